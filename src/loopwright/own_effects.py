"""What an engine does or says by itself: notes, clock readings, and effects of its own, recorded and replayed."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from .errors import ConfigError, error_named
from .events import ClockRead, DriftNoticed, EffectFinished, EffectStarted, ErrorRecord, FactNoted
from .scope import Scope

T = TypeVar("T")


def note(scope: Scope, fact: object) -> None:
    """Record a fact once; another fact in its place on replay is only a warning."""
    key = scope.side_key("note")
    value = to_jsonable_python(fact)
    recorded = scope.session.replay.side(key)
    if recorded is None:
        scope.session.record(key, FactNoted(type(fact).__name__, value))
    elif isinstance(recorded, FactNoted) and recorded.value != value:
        scope.session.record(key, DriftNoticed("note", str(recorded.value)[:200], str(value)[:200]))


def now(scope: Scope) -> datetime:
    """Wall time in UTC, read once for each place in the program."""
    key = scope.side_key("now")
    recorded = scope.session.replay.side(key)
    if isinstance(recorded, ClockRead):
        return datetime.fromtimestamp(recorded.seconds, UTC)
    seconds = scope.session.parts.clock.wall()
    scope.session.record(key, ClockRead(seconds))
    return datetime.fromtimestamp(seconds, UTC)


def recorded_effect(scope: Scope, key: str, name: str, into: TypeAdapter[T]) -> tuple[T] | None:
    """The recorded value of an effect, in a tuple; `None` if there is none; raises the error that it raised."""
    replay = scope.session.replay
    recorded = replay.outcome(key)
    if recorded is None:
        scope.session.check_gap(key)
        return None
    if not isinstance(recorded, EffectFinished) or recorded.name != name:
        raise scope.session.diverged(key, type(recorded).__name__, f"effect {name}")
    replay.agree(key)
    if recorded.error is not None:
        raise error_named(recorded.error.type, recorded.error.message)
    return (into.validate_python(recorded.value),)


async def do_effect(scope: Scope, key: str, name: str, function: Callable[[], Awaitable[T]], into: TypeAdapter[T]) -> T:
    """Do an effect and record what came of it. Raises the same error now as on replay."""
    session = scope.session
    if session.replay.intent(key) is None:
        session.record(key, EffectStarted(name))
    await session.barrier()
    try:
        with session.active.working():
            value = into.validate_python(await function())
    except ValidationError as error:
        raise ConfigError(f"effect {name!r}: its value does not fit `into`: {error}") from None
    except Exception as error:
        failure = ErrorRecord.of(error)
        session.record(key, EffectFinished(name, error=failure))
        raise error_named(failure.type, failure.message) from error
    session.record(key, EffectFinished(name, into.dump_python(value, mode="json")))
    return value
