"""What the entries of a run say about the run as a whole; its row in a list of runs is checked against that."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import to_json

from ..errors import JournalError
from .effects import ModelReplied
from .entry import KINDS, Entry
from .run import (
    RunFinished,
    RunForked,
    RunParked,
    RunResumed,
    RunRetried,
    RunStarted,
    RunSuspended,
)

_LIFECYCLE_KINDS = frozenset(
    KINDS[event_type]
    for event_type in (
        RunStarted,
        RunForked,
        RunResumed,
        RunSuspended,
        RunParked,
        RunRetried,
        RunFinished,
    )
)
_UNKNOWN_TO_EARLY_VERSIONS = ("version", "created")
_RELEASED: dict[str, Any] = {"owner": None, "wake_at": 0.0}
_STATUS_OF_REASON = {"waiting": "waiting", "released": "released"}


def read_start(run_id: str, entries: Sequence[Entry]) -> RunStarted:
    """Return the first event of a run; raise `JournalError` if it is not there."""
    started = entries[0].event if entries else None
    if not isinstance(started, RunStarted):
        raise JournalError(
            f"run {run_id!r} does not begin with a run_started entry: it cannot be resumed"
        )
    return started


def restore_answer(
    entries: Sequence[Entry], find: Callable[[str], Entry | None] | None = None
) -> None:
    """Give the end of a run, where it is the last of `entries`, the answer that is stored in the entry of a reply.

    `find` looks for an entry with that key that is not among these.
    """
    if not entries or entries[-1].kind != RunFinished.kind:
        return
    last = entries[-1].event
    if not isinstance(last, RunFinished) or not last.answer_key or last.answer:
        return
    replies = [entry for entry in entries if entry.key == last.answer_key]
    if find is not None and not replies:
        replies = [found for found in (find(last.answer_key),) if found is not None]
    for entry in replies:
        if isinstance(entry.event, ModelReplied):
            answer = entry.event.completion.answer
            entries[-1].__dict__["event"] = dataclasses.replace(last, answer=answer)


def read_app_version(entries: Sequence[Entry]) -> str:
    """Return the version of the application that began a run, or that made the fork; empty for none."""
    events = (entry.event for entry in entries)
    versions = [
        event.app_version
        for event in events
        if isinstance(event, (RunStarted, RunForked)) and event.app_version
    ]
    return versions[-1] if versions else ""


def find_diverged_versions(entries: Sequence[Entry]) -> set[str]:
    """Return the versions of the application whose code could not replay a run; empty is none."""
    diverged: set[str] = set()
    resuming = ""
    for entry in entries:
        if isinstance(entry.event, RunResumed):
            resuming = entry.event.app_version
        elif isinstance(entry.event, RunSuspended) and entry.event.reason == "diverged":
            diverged.add(resuming)
    return diverged


def read_run_info(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the entries say of a run, by the names of the fields of `RunInfo`.

    A fact that no entry holds is left out: version and time in the entries of early versions, the first owner.
    Raise `JournalError` for an entry that cannot be read.
    """
    found: dict[str, Any] = {}
    for entry in entries:
        if entry.kind in _LIFECYCLE_KINDS:
            found |= _read_entry(entry)
    return {
        name: value
        for name, value in found.items()
        if value or name not in _UNKNOWN_TO_EARLY_VERSIONS
    }


def _read_entry(entry: Entry) -> dict[str, Any]:
    match entry.event:
        case RunStarted() as start:
            return {
                "engine": start.engine,
                "options": to_json(start.options).decode(),
                "version": start.version,
                "created": start.created,
                "app_version": start.app_version,
                "tags": start.tags,
                "thread": start.thread,
                "agent": start.agent,
                "wake_at": 0.0,
                "parent_run": None,
                "fork_seq": None,
                "follows": start.follows and start.follows.run_id,
                "status": "running",
            }
        case RunForked() as fork:
            changed = {"app_version": fork.app_version} if fork.app_version else {}
            return {
                **changed,
                "version": fork.version,
                "created": entry.at,
                "parent_run": fork.run_id,
                "fork_seq": fork.seq,
                **_RELEASED,
                "status": "suspended",
            }
        case RunResumed(owner):
            return {"status": "running", "owner": owner, "wake_at": 0.0}
        case RunSuspended(released=True):
            return {**_RELEASED, "status": "released"}
        case RunSuspended(reason, wake_at=wake_at):
            status = _STATUS_OF_REASON.get(reason, "suspended")
            return {**_RELEASED, "status": status, "wake_at": wake_at}
        case RunParked() | RunRetried() | RunFinished() as left:
            return {**_RELEASED, "status": left.status}
        case _:
            return {}
