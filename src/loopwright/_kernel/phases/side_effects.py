"""Record what an engine does by itself, such as notes, clock readings and effects, and replay it."""

import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from ..._internal import dataclasses
from ..._internal.regex import compile_late
from ...errors import (
    ConfigError,
    Denied,
    EngineError,
    JournalError,
    LoopwrightError,
    ReplayDivergence,
    RunSignal,
    UnknownOutcome,
    format_error,
)
from ...events.effect_key import call_key, patch_key
from ...events.effects import (
    ClockRead,
    DriftNoticed,
    EffectFinished,
    EffectStarted,
    FactNoted,
    LimitHit,
    PatchDecided,
)
from ...events.run import ErrorRecord
from ...labels import Label, find_provenance, highest
from ...messages import Effect, Json
from ...resilience.timeouts import run_with_timeout
from ...security.redaction.errors import redact_error
from ...tools.value import as_text
from ..session.scope import Scope
from ..session.session import Session, out_of_time
from .cycle import Cycle
from .secret_free import clean_arguments, was_recorded

T = TypeVar("T")
PATCH_NAME = compile_late(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SIGNALS_OF_A_RUN = (RunSignal, UnknownOutcome, JournalError, ReplayDivergence)
"""Errors that end a run; raised inside an effect they are another run's."""


@dataclasses.dataclass(frozen=True)
class ReadLabel:
    """How sensitive what an engine read by itself is, at least, and whether it came from outside."""

    label: Label = "public"
    untrusted: bool = False


OWN = ReadLabel()


@dataclasses.dataclass(frozen=True)
class SagaBegun:
    """Fact: from here on the run is a saga: what its tools did is undone unless it completes."""


@functools.lru_cache(maxsize=256)
def _cached_adapter(into: Any) -> TypeAdapter[Any]:
    return TypeAdapter(into)


def value_adapter(into: type[T]) -> TypeAdapter[T]:
    """Return the reader of values of a type, which takes longer to build than a lookup may take."""
    hashable: Any = into
    try:
        return _cached_adapter(hashable)
    except TypeError:  # an unhashable type, such as one annotated with a list
        return TypeAdapter(into)


def note(scope: Scope, fact: object) -> None:
    """Record a fact once; a different fact at its place on replay is only a warning."""
    session, key = scope.session, scope.side_key("note")
    redact = session.services.redactor.redact_value
    value = redact(to_jsonable_python(fact))
    recorded = session.replay.effects.side(key)
    if recorded is None:
        noted = session.facts[key] = FactNoted(type(fact).__name__, value)
        session.writer.record_after_replay(key, noted)
    elif isinstance(recorded, FactNoted) and redact(recorded.value) != value:
        before, now = str(redact(recorded.value))[:200], str(value)[:200]
        session.writer.record_after_replay(key, DriftNoticed("note", before, now))


def begin_saga(scope: Scope) -> None:
    """Have what tools did undone unless the run completes; an engine that works for another one does not decide that."""
    if not scope.engine_usage.is_child:
        note(scope, SagaBegun())
        scope.session.saga = True


def now(scope: Scope) -> datetime:
    """Return wall time in UTC, read once for each place in the program."""
    key = scope.side_key("now")
    recorded = scope.session.replay.effects.side(key)
    if isinstance(recorded, ClockRead):
        return datetime.fromtimestamp(recorded.seconds, UTC)
    seconds = scope.session.services.clock.wall()
    scope.session.writer.record_after_replay(key, ClockRead(seconds))
    return datetime.fromtimestamp(seconds, UTC)


def is_patched(scope: Scope, name: str) -> bool:
    """Return whether a scope runs the code of a patch, decided at its first call.

    It does unless the journal holds an effect of the scope, or of one inside, from here on,
    or the end of the scope: that was made by the code from before the patch.
    """
    if name not in scope.patches:
        scope.patches[name] = _decide_patch(scope, name)
    return scope.patches[name]


def _decide_patch(scope: Scope, name: str) -> bool:
    if not PATCH_NAME.fullmatch(name):
        raise ConfigError(
            f"patched: must be letters, digits and . _ -, at most 64, got {name!r}"
        )
    key = patch_key(scope.path, name)
    recorded = scope.session.replay.effects.side(key)
    if isinstance(recorded, PatchDecided):
        return recorded.active
    is_active = not scope.has_gone_on()
    scope.session.writer.record_after_replay(key, PatchDecided(name, is_active))
    return is_active


async def effect(
    cycle: Cycle,
    name: str,
    function: Callable[[], Awaitable[T]],
    into: type[T],
    read: ReadLabel,
) -> T:
    """Run an operation of the engine once: gated like a read, recorded and replayed.

    `read` is the least sensitivity of its value, and whether that is from outside.
    """
    with cycle.scope.enter("effect"):
        key = cycle.scope.next_key()
        adapter = value_adapter(into)
        recorded = recorded_effect(cycle.scope, key, name, adapter)
        if recorded is not None:
            return recorded[0]
        cycle.session.signals.check_intent(key, EffectStarted, f"effect {name}")
        await permit_effect(cycle, name, {}, "read", key)
        return await _do_effect(cycle.session, key, name, function, adapter, read)


async def permit(cycle: Cycle, name: str, arguments: dict[str, Json]) -> None:
    """Have policy decide about something that the engine is about to do; nothing runs."""
    session = cycle.session
    with cycle.scope.enter("permit"):
        key = cycle.scope.next_key()
        clean = clean_arguments(cycle.services.redactor, arguments)
        known = session.replay.approvals.decision(call_key(key, 0))
        if known and not was_recorded(known.arguments_hash, arguments, clean):
            expected = f"{known.tool} with other arguments"
            raise session.signals.diverge(key, expected, name)
        nothing = value_adapter(type(None))
        if recorded_effect(cycle.scope, key, name, nothing) is None:
            await permit_effect(cycle, name, arguments, "write", key)
            session.writer.record_after_replay(key, EffectFinished(name))


async def permit_effect(
    cycle: Cycle, name: str, arguments: dict[str, Json], kind: Effect, key: str
) -> None:
    """Have policy decide about an effect of the engine's own; a denial is its outcome."""
    try:
        await cycle.permit_own(name, arguments, kind, key)
    except Denied as denied:
        raise record_failure(cycle.session, key, name, denied) from None


def recorded_effect(
    scope: Scope, key: str, name: str, into: TypeAdapter[T]
) -> tuple[T] | None:
    """Return the recorded value of an effect in a tuple, if there is one.

    Raises the error that the effect raised.
    """
    session = scope.session
    recorded = session.replay.effects.outcome(key)
    if recorded is None:
        scope.check_gap(key, f"effect {name}")
        return None
    if isinstance(recorded, LimitHit):
        raise session.recorded_refusal(key, recorded)
    if not isinstance(recorded, EffectFinished) or recorded.name != name:
        raise session.signals.diverge_from(key, f"effect {name}")
    session.replay.effects.agree(key)
    if recorded.error is not None:
        raise recorded.error.restore()
    return (into.validate_json(to_json(recorded.value)),)


async def _do_effect(
    session: Session,
    key: str,
    name: str,
    function: Callable[[], Awaitable[T]],
    into: TypeAdapter[T],
    read: ReadLabel,
) -> T:
    """Do an effect within the run's time, and record its value or error.

    Both are the same now as on replay.
    """
    await session.replay_end.reach(key)
    session.signals.check(begun=True)
    if session.remaining() == 0:
        raise session.refuse(key, out_of_time())
    if session.replay.effects.intent(key) is None:
        await session.intake.wait_while_paused()
        session.writer.record(key, EffectStarted(name))
    await session.writer.barrier()
    await session.writer.ensure_held()
    with session.active.working:
        ended = await run_with_timeout(call_function(function), session.remaining())
    if ended.timed_out:
        raise session.refuse(key, out_of_time())
    if ended.error is not None:
        raise record_failure(session, key, name, ended.error, read)
    return record_value(session, key, name, ended.value, into, read)


async def call_function(function: Callable[[], Awaitable[T]]) -> T:
    """Call a function and await what it returns, as one coroutine."""
    return await function()


def record_value(
    session: Session,
    key: str,
    name: str,
    value: object,
    into: TypeAdapter[T],
    read: ReadLabel = OWN,
) -> T:
    """Record the value of an effect; return it as it is read on replay."""
    try:
        whole = into.dump_python(into.validate_python(value), mode="json")
        recorded = session.secrets.redactor.redact_value(whole)
        encoded = to_json(recorded)
    except ValueError as error:  # from pydantic, and from third-party values
        problem = f"effect {name!r}: its value does not fit `into`: {error}"
        failure = ConfigError(problem)
        raise record_failure(session, key, name, failure, read) from None
    found, is_outside = find_provenance(value)
    untrusted, minimum = read.untrusted or is_outside, highest((read.label, found))
    label = session.sensitivity.classify(lambda: as_text(whole), minimum)
    session.sensitivity.observe(label, untrusted, key)
    finished = EffectFinished(name, recorded, label=label, untrusted=untrusted)
    session.writer.record(key, finished)
    return into.validate_json(encoded)


def record_failure(
    session: Session,
    key: str,
    name: str,
    error: BaseException,
    read: ReadLabel = OWN,
) -> LoopwrightError:
    """Record that an effect failed; return the error as it is raised on replay, too."""
    redactor = session.secrets.redactor
    record = ErrorRecord.of(error)
    if isinstance(error, LoopwrightError):
        record = ErrorRecord.of(redact_error(redactor, error))
    message = redactor.redact_text(record.message)
    record = dataclasses.replace(record, message=message)
    if isinstance(error, SIGNALS_OF_A_RUN):
        message = f"effect {name!r} raised {record.type}: {message}"
        record = ErrorRecord(EngineError.__name__, message)
    label = session.sensitivity.classify(format_error(error), read.label)
    session.sensitivity.observe(label, read.untrusted, key)
    failed = EffectFinished(name, error=record, label=label, untrusted=read.untrusted)
    session.writer.record_after_replay(key, failed)
    again = record.restore()
    again.__cause__ = error
    return redact_error(redactor, again)
