"""Fork a run: a new run that shares the first entries of another one."""

import dataclasses
from collections.abc import Sequence

from pydantic_core import to_json

from ..._internal.version import __version__
from ...clock import Clock
from ...errors import ConfigError, JournalError
from ...events.entry import Entry, chain_event, name_entry
from ...events.lifecycle import read_app_version
from ...events.payloads import encode_payload
from ...events.run import RunFinished, RunForked, RunStarted
from ...journals.access import read_run
from ...journals.base import Claim, Journal, RunHeader, chain_hash, check_run_id
from ...journals.owner import new_owner
from .history import refer
from .replay import last_event


async def fork(
    journal: Journal,
    run_id: str,
    *,
    at: int,
    clock: Clock,
    new_id: str | None = None,
    app_version: str = "",
    by: str = "",
) -> str:
    """Copy a run's entries 1 to `at` into a new run, which can be resumed; return its id.

    The run that is copied does not change, be it at work or finished. An effect that had begun by
    then and not ended has an unknown outcome in the fork, as after a crash. `by` names who asks for it.
    Raises `UnknownRun`, or `ConfigError` for an entry that does not exist or is the last of a finished run.
    """
    entries = await read_run(journal, run_id)
    copied = _first_entries(run_id, entries, at)
    started = copied[0].event
    if not isinstance(started, RunStarted):
        raise JournalError(f"run {run_id!r} has no first entry: it cannot be forked")
    owner, now = new_owner(), clock.wall()
    new_id = check_run_id(new_id) or f"run-{owner.token}"
    options = to_json(started.options).decode()
    header = RunHeader(
        new_id, started.engine, options, __version__, str(owner), now, run_id, at,
        app_version=app_version or read_app_version(copied), tags=started.tags, thread=started.thread, agent=started.agent,
    )  # fmt: skip
    claim = journal.create(refer(header, started.follows))
    seed = _find_seed(entries) or run_id
    event = RunForked(run_id, at, copied[-1].hash, seed, __version__, app_version, by)
    moved = [_move(entry, claim) for entry in copied]
    journal.append(
        claim, [*moved, chain_event(claim, "", event, now)], status="suspended"
    )
    await journal.barrier(claim)
    return new_id


def _first_entries(run_id: str, entries: Sequence[Entry], at: int) -> Sequence[Entry]:
    is_finished = isinstance(last_event(entries), RunFinished)
    last = len(entries) - is_finished
    if not 1 <= at <= last:
        raise ConfigError(
            f"at: run {run_id!r} can be forked after its entries 1 to {last}, got {at}"
        )
    return entries[:at]


def _find_seed(entries: Sequence[Entry]) -> str:
    """Return the seed of a run that is a fork itself; its mark comes after the entries it copied."""
    events = (entry.event for entry in entries)
    seeds = (event.seed for event in events if isinstance(event, RunForked))
    return next(seeds, "")


def _move(entry: Entry, claim: Claim) -> Entry:
    """Return an entry as the next one of another run, for which it is encoded anew."""
    place = name_entry(claim.run_id, entry.seq, entry.kind, claim.tenant)
    body = encode_payload(claim.codec, entry.payload, place)
    moved = dataclasses.replace(
        entry, run_id=claim.run_id, fence=claim.fence, body=body
    )
    claim.head_seq, claim.head_hash = entry.seq, chain_hash(claim.head_hash, moved)
    return dataclasses.replace(moved, hash=claim.head_hash)
