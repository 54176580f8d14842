"""What a run's entries say of the run as a whole, so that whoever lists the run can be checked against them."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from ..errors import JournalError
from .effects import (
    KINDS,
    Entry,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    RunSuspended,
)

_LIFE = frozenset(
    KINDS[kind]
    for kind in (RunStarted, RunForked, RunResumed, RunSuspended, RunFinished)
)
_OF_ITS_OWN = (
    "waiting",
    "released",
)  # the statuses that are called as the reason to suspend is


def beginning(run_id: str, entries: Sequence[Entry]) -> RunStarted:
    """A run's first entry, without which it cannot be resumed; raises `JournalError` if it is not there."""
    started = entries[0].event if entries else None
    if not isinstance(started, RunStarted):
        raise JournalError(f"run {run_id!r} has no first entry: it cannot be resumed")
    return started


def told_of(entries: Sequence[Entry]) -> dict[str, Any]:
    """Engine, options, version, status, owner, time of creation and origin of a run, by their names in `RunInfo`.

    Left out is what nobody told: version and time in the entries of early versions, and who began the run. Raises
    `JournalError` for an entry that cannot be read.
    """
    told: dict[str, Any] = {}
    for entry in entries:
        match entry.event if entry.kind in _LIFE else None:
            case RunStarted() as begun:
                told = {
                    "engine": begun.engine,
                    "options": to_json(begun.options).decode(),
                    "version": begun.version,
                }
                told |= {
                    "created": begun.created,
                    "parent_run": None,
                    "fork_seq": None,
                    "status": "running",
                }
            case RunForked() as fork:
                told |= {
                    "version": fork.version,
                    "created": entry.at,
                    "parent_run": fork.run_id,
                }
                told |= {"fork_seq": fork.seq, "status": "suspended", "owner": None}
            case RunResumed(owner):
                told |= {"status": "running", "owner": owner}
            case RunSuspended(reason):
                told |= {
                    "status": reason if reason in _OF_ITS_OWN else "suspended",
                    "owner": None,
                }
            case RunFinished(status):
                told |= {"status": status, "owner": None}
            case _:
                pass
    return {name: value for name, value in told.items() if value not in ("", 0.0)}
