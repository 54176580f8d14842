"""Fork: a new run that shares another's first entries, and goes its own way from there."""

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence

from pydantic_core import to_json

from ..._internal.version import __version__
from ...clock import Clock
from ...errors import ConfigError, JournalError
from ...events.entry import EVENT_VERSION, KINDS, Entry, encode_event
from ...events.run import RunFinished, RunForked, RunStarted
from ...journals.base import Journal, RunHeader, chain_hash, check_run_id
from ...journals.owner import new_owner


async def fork(
    journal: Journal, run_id: str, *, at: int, clock: Clock, new_id: str | None = None
) -> str:
    """Copy a run's entries 1 to `at` into a new run, which can be resumed; gives the new run's id.

    The run that is copied stays as it is, at work or finished. An effect that had begun by then and not ended is in
    doubt in the fork, as it is after a crash. Raises `UnknownRun`, or `ConfigError` for an entry that is not there or
    is the last of a finished run.
    """
    entries = await asyncio.to_thread(journal.read, run_id)
    copied = _first(run_id, entries, at)
    started = copied[0].event
    if not isinstance(started, RunStarted):
        raise JournalError(f"run {run_id!r} has no first entry: it cannot be forked")
    # All entries: the mark of a fork stands behind those that it was given.
    seed = next(
        (entry.event.seed for entry in entries if isinstance(entry.event, RunForked)),
        run_id,
    )
    owner, now = new_owner(), clock.wall()
    new_id = check_run_id(new_id) or f"run-{owner.token}"
    header = RunHeader(
        new_id,
        started.engine,
        to_json(started.options).decode(),
        __version__,
        str(owner),
        now,
        run_id,
        at,
    )
    claim = journal.create(header)
    body = encode_event(RunForked(run_id, at, copied[-1].hash, seed, __version__))
    mark = Entry(
        new_id, at + 1, "", KINDS[RunForked], now, EVENT_VERSION, claim.fence, body, ""
    )
    journal.append(
        claim, list(_chained([*copied, mark], new_id, claim.fence)), status="suspended"
    )
    await journal.barrier(claim)
    return new_id


def _first(run_id: str, entries: Sequence[Entry], at: int) -> Sequence[Entry]:
    last = len(entries) - isinstance(entries[-1].event, RunFinished) if entries else 0
    if not 1 <= at <= last:
        raise ConfigError(
            f"at: run {run_id!r} can be forked after its entries 1 to {last}, got {at}"
        )
    return entries[:at]


def _chained(entries: Sequence[Entry], run_id: str, fence: int) -> Iterator[Entry]:
    """The entries as those of another run, with a chain of their own."""
    head = ""
    for entry in entries:
        moved = dataclasses.replace(entry, run_id=run_id, fence=fence)
        head = chain_hash(head, moved)
        yield dataclasses.replace(moved, hash=head)
