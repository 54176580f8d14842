"""What of a journal is deleted: runs with those that follow them, and the oldest beyond a number or an age."""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

from ..errors import ConfigError
from ..events.run import Status
from .base import RESUMABLE, RunInfo
from .listing import check_count
from .owner import Owner

ENDED = tuple(status for status in get_args(Status) if status not in RESUMABLE)
"""The statuses of runs that have ended."""


def hash_name(run_id: str) -> str:
    """Return what a tombstone keeps of a run's id: its SHA-256, since a name may be personal data."""
    return hashlib.sha256(run_id.encode()).hexdigest()


def name_this_process() -> str:
    """Return who deletes by default: this process and its host."""
    return (
        f"process {os.getpid()} on {Owner.of_this_process('').host.partition('/')[0]}"
    )


def format_deleted(run_id: str, deleted_by: str, day: str, head_hash: str) -> str:
    """Return the error text for a run that was deleted."""
    return (
        f"run {run_id!r} was deleted on {day} by {deleted_by}; its head was {head_hash}"
    )


def format_name_deleted(run_id: str) -> str:
    """Return the error text for a new run with the id of a deleted one."""
    return f"run_id {run_id!r} is that of a deleted run: choose another id"


def format_followed(run_id: str, followers: Iterable[str]) -> str:
    """Return the error text for a run that others continue."""
    names = ", ".join(map(repr, sorted(followers)))
    return f"cascade: run {run_id!r} is continued by {names}; pass cascade=True to delete them too"


def check_prune(older_than: Any, status: Any, keep: Any) -> tuple[str, ...]:
    """Return the statuses to prune, by default all of ended runs; raise `ConfigError` for wrong options."""
    if older_than is None and keep is None:
        raise ConfigError("older_than: give an age in seconds, or keep, or both")
    is_number = isinstance(older_than, (int, float)) and type(older_than) is not bool
    seconds = cast("float", older_than) if is_number else -1
    if older_than is not None and not 0 <= seconds < math.inf:
        raise ConfigError(
            f"older_than: must be seconds of at least 0, got {older_than!r}"
        )
    check_count("keep", keep)
    if not isinstance(status, (str, tuple, list, set, frozenset, type(None))):
        raise ConfigError(f"status: must be a status or several, got {status!r}")
    given = cast("Iterable[Any]", ENDED if status is None else status)
    chosen = (status,) if isinstance(status, str) else tuple(given)
    if not chosen:  # a selection that came out empty must not delete everything
        raise ConfigError("status: is empty; leave it out for all that have ended")
    for one in chosen:
        if one not in ENDED:
            raise ConfigError(
                f"status: prune deletes runs that have ended ({', '.join(ENDED)}), got {one!r}; "
                "delete(run_id) deletes one that has not"
            )
    return chosen


def check_deleter(deleted_by: Any) -> str:
    """Return who deletes, by default this process; raise `ConfigError` unless it is a printable text."""
    if not (isinstance(deleted_by, str) and deleted_by.isprintable()):
        raise ConfigError(f"deleted_by: must be a printable text, got {deleted_by!r}")
    return deleted_by or name_this_process()


def find_root(run_id: str, follows: Mapping[str, str]) -> str:
    """Return the first run of the thread that a run continues."""
    passed = {run_id}
    while (earlier := follows.get(run_id)) is not None and earlier not in passed:
        run_id = earlier
        passed.add(run_id)
    return run_id


def choose_pruned(
    infos: Sequence[RunInfo], statuses: Sequence[str], before: float, keep: int | None
) -> list[list[str]]:
    """Return which threads to prune, each with its runs, of all runs, which are listed newest first.

    A thread counts as one with all that follows it: it is deleted if all of it has ended and is older than `before`
    (wall clock, seconds), and the newest `keep` threads are kept.
    """
    follows = {info.run_id: info.follows for info in infos if info.follows is not None}
    threads: dict[str, list[RunInfo]] = {}
    for info in infos:
        threads.setdefault(find_root(info.run_id, follows), []).append(info)
    ended = [
        thread
        for thread in threads.values()
        if all(info.status in statuses for info in thread)
    ]
    return [
        [info.run_id for info in thread]
        for thread in ended[keep or 0 :]
        if all(info.created < before for info in thread)
    ]
