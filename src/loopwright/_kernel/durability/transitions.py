"""Change the status of a run that no process works on: park it, have it retried, or close it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...clock import Clock
from ...errors import Aborted, ConfigError, UndoFailed
from ...events.effect_key import undo_key
from ...events.effects import ToolFinished, ToolStarted
from ...events.entry import Entry, chain_event
from ...events.lifecycle import read_start
from ...events.run import ErrorRecord, RunFinished, RunParked, RunRetried
from ...journals.access import list_runs, read_run
from ...journals.base import Journal, is_turn_id
from ...journals.listing import RunFilter, find_later_turn, format_continued
from ...journals.owner import ACTIVE_TOKENS, new_owner
from ...messages import UNCERTAIN_STATUSES
from .forgotten_failures import RetryPlan, plan_retry
from .history import count_messages
from .replay import Replay, last_event

Transition: TypeAlias = RunParked | RunRetried | RunFinished
SAGA = "SagaBegun"
"""The fact by which an engine notes that it made its run a saga."""
Decide: TypeAlias = Callable[[Sequence[Entry]], Transition]


async def park(journal: Journal, clock: Clock, run_id: str, parked: RunParked) -> Entry:
    """Leave a run to a person: no worker resumes it until it is retried."""

    def decide(entries: Sequence[Entry]) -> RunParked:
        _refuse_ended(run_id, entries)
        return parked

    return await _append(journal, clock, run_id, decide, "parked")


async def retry(
    journal: Journal, clock: Clock, run_id: str, reason: str, by: str = ""
) -> Entry:
    """Let a parked run, or one that a provider's failure or a dead letter ended, continue in the next worker.

    Raises `ConfigError` for any other run, also for a turn that the next one of its thread continues, and `RunBusy` for
    one at work.
    """
    later = await _find_later_turn(journal, run_id)

    def decide(entries: Sequence[Entry]) -> RunRetried:
        plan = RetryPlan((), format_continued(later)) if later else plan_retry(entries)
        if plan.problem:
            raise ConfigError(f"run_id: run {run_id!r} {plan.problem}")
        return RunRetried(reason, plan.forgets, by)

    return await _append(journal, clock, run_id, decide, "released")


async def _find_later_turn(journal: Journal, run_id: str) -> str:
    """Return the turn that continues a run of a thread; empty if there is none."""
    if not is_turn_id(run_id):
        return ""
    thread = read_start(run_id, await read_run(journal, run_id)).thread
    return find_later_turn(run_id, await list_runs(journal, RunFilter(thread=thread)))


async def close(
    journal: Journal,
    clock: Clock,
    run_id: str,
    reason: str,
    *,
    take_over: bool = False,
) -> Entry:
    """End a run as `aborted` without its code; the error names the calls of a saga that are not undone.

    Raises `ConfigError` for a run that has ended, and `RunBusy` for one at work, unless it takes that over.
    """

    def decide(entries: Sequence[Entry]) -> RunFinished:
        _refuse_ended(run_id, entries)
        return _build_ending(entries, reason)

    return await _append(journal, clock, run_id, decide, "aborted", take_over=take_over)


async def _append(
    journal: Journal,
    clock: Clock,
    run_id: str,
    decide: Decide,
    status: str,
    *,
    take_over: bool = False,
) -> Entry:
    """Append one entry under a claim of its own; it is decided before the claim, and again if the run continued."""
    known = await read_run(journal, run_id)
    event = decide(known)
    owner = new_owner()
    ACTIVE_TOKENS.add(owner.token)
    try:
        claim = await journal.claim(run_id, str(owner), take_over=take_over)
        if claim.head_seq != len(known):
            event = decide(await read_run(journal, run_id))
        entry = chain_event(claim, "", event, clock.wall())
        journal.append(claim, [entry], status=status)
        await journal.barrier(claim)
    finally:
        ACTIVE_TOKENS.discard(owner.token)
    return entry


def _refuse_ended(run_id: str, entries: Sequence[Entry]) -> None:
    last = last_event(entries)
    if isinstance(last, RunFinished):
        raise ConfigError(f"run_id: run {run_id!r} has ended already as {last.status}")


# --- the end of a run without its code ---


def _build_ending(entries: Sequence[Entry], reason: str) -> RunFinished:
    replay = Replay(entries)
    totals, started = replay.totals, replay.started
    error = ErrorRecord.of(Aborted(f"the run was closed: {reason}"))
    is_saga = (started is not None and started.saga) or _has_begun_saga(replay)
    left = _find_not_undone(replay) if is_saga else []
    if left:
        failed = UndoFailed(
            f"the run was closed without its code and could not undo: {'; '.join(left)}; "
            "undo them by hand (a run that is aborted and resumed by its code undoes them)"
        )
        error = dataclasses.replace(ErrorRecord.of(failed), cause=error)
    kept = 0 if started is None else count_messages(started)
    return RunFinished(
        "aborted", "aborted", None, None, error, totals.usage, totals.llm_calls, totals.tool_calls, 0, (),
        added=(), kept=kept,
    )  # fmt: skip


def _has_begun_saga(replay: Replay) -> bool:
    """Whether the engine of a run made it a saga."""
    return any(fact.name == SAGA for fact in replay.effects.facts.values())


def _find_not_undone(replay: Replay) -> list[str]:
    """Return the calls of a saga that took effect, or may have, and that are not undone, the last one first."""
    effects, undone = replay.effects, replay.recoveries.undo_finished
    calls = {
        key: intent.tool
        for key, intent in effects.intents.items()
        if isinstance(intent, ToolStarted) and intent.effect != "read"
    }
    return [
        f"{tool} ({key})"
        for key, tool in reversed(calls.items())
        if _took_effect(effects.outcome(key))
        and not ((finished := undone.get(undo_key(key))) and finished.status == "ok")
    ]


def _took_effect(outcome: object) -> bool:
    """Whether a call that had begun took effect, or may have."""
    if not isinstance(outcome, ToolFinished):
        return True
    return outcome.status in ("ok", *UNCERTAIN_STATUSES)
