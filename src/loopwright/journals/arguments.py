"""Check what the methods of a journal are given, before anything is opened."""

import math
from collections.abc import Iterable
from typing import Any, cast

from ..errors import ConfigError


def check_run_id(run_id: Any) -> None:
    """Raise `ConfigError` unless this is the id of a run, whether there is one or not."""
    check_text("run_id", run_id, "the id of a run")


def check_run_ids(run_ids: Any) -> list[str]:
    """Return the ids of runs; raise `ConfigError` unless these are several."""
    if isinstance(run_ids, str) or not isinstance(run_ids, Iterable):
        raise ConfigError(f"run_ids: must be a list of ids, got {run_ids!r:.200}")
    listed = list(cast("Iterable[str]", run_ids))
    for run_id in listed:
        check_text("run_ids", run_id, "a list of the ids of runs")
    return listed


def check_text(field: str, value: Any, meaning: str) -> None:
    """Raise `ConfigError` unless a value is a text."""
    if not isinstance(value, str):
        raise ConfigError(f"{field}: must be {meaning}, got {value!r:.200}")


def check_whole(field: str, value: Any) -> None:
    """Raise `ConfigError` unless a value is a whole number, which may be negative."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{field}: must be a whole number, got {value!r:.200}")


def check_flags(**flags: Any) -> None:
    """Raise `ConfigError` unless all values are True or False: the text "no" would count as True."""
    for field, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{field}: must be True or False, got {value!r:.200}")


def check_verify(run_id: Any, head: Any, policy: Any) -> None:
    """Raise `ConfigError` for what cannot be verified."""
    check_run_id(run_id)
    if head is not None:
        check_text("head", head, "the hash of an entry")
    check_flags(policy=policy)


def check_claim_arguments(run_id: Any, owner: Any, take_over: Any, lease: Any) -> None:
    """Raise `ConfigError` for a claim that cannot be."""
    check_run_id(run_id)
    check_text("owner", owner, "the name of the owner")
    check_flags(take_over=take_over)
    is_time = isinstance(lease, (int, float)) and 0 < lease < math.inf
    if lease is not None and not is_time:
        raise ConfigError(f"lease: must be seconds above 0, got {lease!r:.200}")
