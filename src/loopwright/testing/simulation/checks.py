"""Checks of a world: nothing unsafe happened, every run ended, and it ended as it would without faults."""

from collections import Counter
from collections.abc import Iterator

from ...errors import JournalError
from ...events.branches import BranchDelivered, BranchesClosed, TimeoutFired
from ...events.control import QuestionWithdrawn
from ...events.effect_key import EffectKey
from ...events.effects import (
    AttemptFailed,
    ChildStarted,
    EffectStarted,
    LimitHit,
    ModelReplied,
    ModelRequested,
    PatchDecided,
    SleepSet,
    ToolFinished,
    ToolStarted,
)
from ...events.entry import Entry
from ...events.recovery import RecoveryTriggered, UnknownOutcomeResolved
from ...events.run import RunFinished
from ...result import Result
from .world import World

OUTCOMES = (ModelReplied, ToolFinished)
CUTS = (TimeoutFired, BranchesClosed)
EXPIRED = "has expired: act right after the gate"
"""What the observation says of a call whose permit expired, as in a process that was paused."""
INTENTS = (ModelRequested, ToolStarted, EffectStarted, SleepSet, ChildStarted)


def find_problems(world: World) -> list[str]:
    """Return what is wrong with a world that has been lived, in sentences."""
    problems = list(world.ledger.problems)
    problems += [f"a callback raised {error}" for error in world.loop.errors]
    problems += _find_repeats(world)
    problems += _find_lost(world)
    known = {info.run_id for info in world.store.runs()}
    for run_id in world.run_ids:
        if run_id in known:
            problems += [f"{run_id}: {text}" for text in _check_run(world, run_id)]
        else:
            problems.append(f"{run_id}: it never began")
    return problems


def _check_run(world: World, run_id: str) -> Iterator[str]:
    entries = world.store.read(run_id)
    verified = world.store.verify(run_id)
    if not verified.ok:
        yield f"its chain is broken: {verified.problem}"
    ends = [
        (entry.seq, entry.event)
        for entry in entries
        if isinstance(entry.event, RunFinished)
    ]
    if len(ends) != 1:
        yield f"it has {len(ends)} ends; the last entry is {entries[-1].kind}"
        return
    seq, end = ends[0]
    if seq != len(entries):
        yield f"{entries[-1].kind} follows its end"
    yield from _check_outcomes(entries)
    yield from _check_cuts(entries)
    yield from _check_budget(world, entries, end)
    yield from _check_result(world.results.get(run_id), end)


def _check_result(result: Result | None, end: RunFinished) -> Iterator[str]:
    """Compare what the caller got with the journal, unless the caller's process lost the run."""
    if result is None or isinstance(result.error, JournalError):
        return
    if result.status in ("waiting", "suspended", "released"):
        return
    given, recorded = (result.status, result.answer), (end.status, end.answer)
    if given != recorded:
        yield f"the caller got {given}, the journal says {recorded}"


def _check_outcomes(entries: list[Entry]) -> Iterator[str]:
    outcomes = Counter(
        (entry.key, entry.kind)
        for entry in entries
        if isinstance(entry.event, OUTCOMES)
    )
    for (key, kind), count in outcomes.items():
        if count > 1:
            yield f"{key} has {count} entries {kind}"


def _check_cuts(entries: list[Entry]) -> Iterator[str]:
    """Report effects that began in a branch that had timed out, been delivered or been left."""
    over: dict[str, str] = {}
    seen: set[str] = set()
    for entry in entries:
        key, event = EffectKey.parse(entry.key), entry.event
        if isinstance(event, INTENTS):
            for around in key.around:
                if around.text in over:
                    yield f"{entry.key} has an entry {entry.kind} after {over[around.text]}"
        elif isinstance(event, (BranchDelivered, BranchesClosed, TimeoutFired)):
            ended = key.place
            if isinstance(event, BranchDelivered):
                ended = f"{key.path}.{event.index}"
            if entry.key in seen or ended in over:
                yield f"{ended} is over twice: {entry.key}"
            seen.add(entry.key)
            over[ended] = entry.key


def _check_budget(
    world: World, entries: list[Entry], end: RunFinished
) -> Iterator[str]:
    limits = world.program.limits
    if limits.max_llm_calls is not None and end.llm_calls > limits.max_llm_calls:
        yield f"{end.llm_calls} model calls, of {limits.max_llm_calls} allowed"
    if limits.max_tool_calls is not None and end.tool_calls > limits.max_tool_calls:
        yield f"{end.tool_calls} tool calls, of {limits.max_tool_calls} allowed"
    asked = {entry.key for entry in entries if isinstance(entry.event, ModelRequested)}
    failed = sum(isinstance(entry.event, AttemptFailed) for entry in entries)
    if not len(asked) <= end.llm_calls <= len(asked) + failed:
        yield f"{end.llm_calls} model calls are counted, {len(asked)} and {failed} retries recorded"
    begun = {entry.key for entry in entries if isinstance(entry.event, ToolStarted)}
    if end.tool_calls < len(begun):
        yield f"{end.tool_calls} tool calls are counted, {len(begun)} recorded"


def _find_repeats(world: World) -> Iterator[str]:
    """Say which writes happened twice."""
    names = {
        (one.run_id, one.key, one.idempotency_key) for one in world.ledger.executions
    }
    for (run_id, key), count in Counter((run, key) for run, key, _ in names).items():
        if count > 1:
            yield f"{run_id}: {key} had {count} idempotency keys"
    writes = Counter(
        (one.run_id, one.idempotency_key)
        for one in world.ledger.executions
        if one.effect == "write"
    )
    for (run_id, key), count in writes.items():
        if count > 1 and not _is_repeatable(world, run_id, key):
            yield f"{run_id}: the write {key} happened {count} times"


def _is_repeatable(world: World, run_id: str, key: str) -> bool:
    """Return whether a person or a lookup said that the call was not executed."""
    return any(
        isinstance(entry.event, UnknownOutcomeResolved)
        and entry.event.verdict == "not_done"
        and key.endswith(f":{entry.key}")
        for entry in world.store.read(run_id)
    )


def _find_lost(world: World) -> Iterator[str]:
    """Say which entries were called durable, and are not there."""
    for journal in world.journals:
        for (run_id, seq), hashed in journal.acknowledged.items():
            entries = world.store.read(run_id)
            if seq > len(entries) or entries[seq - 1].hash != hashed:
                yield f"{run_id}: entry {seq} was acknowledged and is lost"


def find_differences(world: World, calm: World) -> list[str]:
    """Return how the runs of a world differ from the same runs without faults, where they must not."""
    problems: list[str] = []
    for run_id in world.run_ids:
        if _is_comparable(world, run_id) and _is_comparable(calm, run_id):
            found, expected = _read_end(world, run_id), _read_end(calm, run_id)
            is_same_order = _read_order(world, run_id) == _read_order(calm, run_id)
            if found != expected and is_same_order:
                problems.append(
                    f"{run_id}: ended as {found}, without faults as {expected}"
                )
    return problems


def _is_comparable(world: World, run_id: str) -> bool:
    """Return whether nothing in a run depends on time: no limit, retry, expired permit, unknown outcome or newer code."""
    return not any(map(_depends_on_time, world.store.read(run_id)))


def _depends_on_time(entry: Entry) -> bool:
    event = entry.event
    if isinstance(event, ToolFinished):
        is_late = event.status == "rejected" and EXPIRED in event.content
        return is_late or event.status not in ("ok", "error", "denied", "rejected")
    if isinstance(event, RunFinished):
        return event.status == "limit"  # which branch meets it first is a race
    if isinstance(event, PatchDecided):
        return event.active
    if isinstance(event, QuestionWithdrawn):
        return event.about == "doubt"  # an outcome that stays unknown
    if isinstance(event, RecoveryTriggered):
        return event.status == "timed_out"  # as in a process that was paused
    return isinstance(event, (LimitHit, AttemptFailed, UnknownOutcomeResolved, *CUTS))


def _read_order(world: World, run_id: str) -> list[tuple[str, int]]:
    """Return the order in which works ended, for engines that were given them in that order."""
    return [
        (entry.key, entry.event.index)
        for entry in sorted(world.store.read(run_id), key=lambda entry: entry.key)
        if isinstance(entry.event, BranchDelivered)
    ]


def _read_end(world: World, run_id: str) -> tuple[object, ...]:
    end = world.store.read(run_id)[-1].event
    assert isinstance(end, RunFinished)  # noqa: S101 - checked before
    return end.status, end.answer, end.llm_calls, end.tool_calls, end.usage.total_tokens
