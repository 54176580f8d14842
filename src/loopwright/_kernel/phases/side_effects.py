"""What an engine does or says by itself: notes, clock readings, and effects of its own, recorded and replayed."""

import dataclasses
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from ...errors import (
    ConfigError,
    EngineError,
    JournalError,
    LoopwrightError,
    ReplayDivergence,
    RunSignal,
    UnknownOutcome,
    format_error,
)
from ...events.effects import (
    ClockRead,
    DriftNoticed,
    EffectFinished,
    EffectStarted,
    FactNoted,
    LimitHit,
)
from ...events.run import ErrorRecord
from ...resilience.timeouts import run_with_timeout
from ...security.redaction.errors import redact_error
from ..session.scope import Scope
from ..session.session import Session, out_of_time
from .tool_call import as_text

T = TypeVar("T")
NOT_OURS_TO_END = (RunSignal, UnknownOutcome, JournalError, ReplayDivergence)


def note(scope: Scope, fact: object) -> None:
    """Record a fact once; another fact in its place on replay is only a warning."""
    key = scope.side_key("note")
    value = scope.session.services.redactor.redact_value(to_jsonable_python(fact))
    recorded = scope.session.replay.effects.side(key)
    if recorded is None:
        noted = scope.session.facts[key] = FactNoted(type(fact).__name__, value)
        scope.session.writer.record(key, noted)
    elif isinstance(recorded, FactNoted) and recorded.value != value:
        scope.session.writer.record(
            key, DriftNoticed("note", str(recorded.value)[:200], str(value)[:200])
        )


def now(scope: Scope) -> datetime:
    """Wall time in UTC, read once for each place in the program."""
    key = scope.side_key("now")
    recorded = scope.session.replay.effects.side(key)
    if isinstance(recorded, ClockRead):
        return datetime.fromtimestamp(recorded.seconds, UTC)
    seconds = scope.session.services.clock.wall()
    scope.session.writer.record(key, ClockRead(seconds))
    return datetime.fromtimestamp(seconds, UTC)


def recorded_effect(
    scope: Scope, key: str, name: str, into: TypeAdapter[T]
) -> tuple[T] | None:
    """The recorded value of an effect, in a tuple; `None` if there is none; raises the error that it raised."""
    replay = scope.session.replay
    recorded = replay.effects.outcome(key)
    if recorded is None:
        scope.check_gap(key)
        return None
    if isinstance(recorded, LimitHit):
        raise scope.session.recorded_refusal(key, recorded)
    if not isinstance(recorded, EffectFinished) or recorded.name != name:
        raise scope.session.signals.diverge(
            key, type(recorded).__name__, f"effect {name}"
        )
    replay.effects.agree(key)
    if recorded.error is not None:
        raise recorded.error.restore()
    return (into.validate_json(to_json(recorded.value)),)


async def do_effect(
    scope: Scope,
    key: str,
    name: str,
    function: Callable[[], Awaitable[T]],
    into: TypeAdapter[T],
) -> T:
    """Do an effect within the run's time and record what came of it; value or error are the same now as on replay."""
    session = scope.session
    session.signals.check(begun=True)
    if session.remaining() == 0:
        raise session.refuse(key, out_of_time())
    if session.replay.effects.intent(key) is None:
        await session.intake.wait_while_paused()
        session.writer.record(key, EffectStarted(name))
    await session.writer.barrier()
    await session.writer.ensure_held()
    with session.active.working():
        ended = await run_with_timeout(_awaited(function), session.remaining())
    if ended.timed_out:
        raise session.refuse(key, out_of_time())
    if ended.error is not None:
        raise failed(session, key, name, ended.error)
    try:
        whole = into.dump_python(into.validate_python(ended.value), mode="json")
        value = session.secrets.redactor.redact_value(whole)
        encoded = to_json(value)
    except ValueError as error:  # what pydantic raises, and what foreign values may
        raise failed(
            session,
            key,
            name,
            ConfigError(f"effect {name!r}: its value does not fit `into`: {error}"),
        ) from None
    session.sensitivity.observe(
        label := session.sensitivity.classify(lambda: as_text(whole)), untrusted=False
    )
    session.writer.record(key, EffectFinished(name, value, label=label))
    return into.validate_json(encoded)


async def _awaited(function: Callable[[], Awaitable[T]]) -> T:
    return await function()


def failed(
    session: Session, key: str, name: str, error: BaseException
) -> LoopwrightError:
    """Record that an effect failed; gives the error as it will be raised on replay too."""
    redactor = session.secrets.redactor
    record = ErrorRecord.of(
        redact_error(redactor, error) if isinstance(error, LoopwrightError) else error
    )
    record = dataclasses.replace(record, message=redactor.redact_text(record.message))
    if isinstance(
        error, NOT_OURS_TO_END
    ):  # another run's, met inside the effect: it does not end this one
        record = ErrorRecord(
            EngineError.__name__,
            f"effect {name!r} raised {record.type}: {record.message}",
        )
    session.sensitivity.observe(
        label := session.sensitivity.classify(format_error(error)), untrusted=False
    )
    session.writer.record(key, EffectFinished(name, error=record, label=label))
    again = record.restore()
    again.__cause__ = error
    return redact_error(redactor, again)
