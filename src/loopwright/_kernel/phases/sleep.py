"""Sleep until a wall time: in this process for less than a minute, else suspended."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from pydantic import TypeAdapter

from ...clock import MAX_SECONDS
from ...errors import ConfigError, Suspended
from ...events.effects import EffectFinished, SleepSet
from ..session.interruptible_sleep import sleep_or_stop
from ..session.session import Session, out_of_time
from .cycle import Cycle
from .side_effects import recorded_effect

VERB = "sleep"
MAX_SECONDS_AWAKE = 60.0
"""A longer sleep suspends the run, so that it needs no process."""
LAST_WAKE = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""The last wall time that can be shown: later ones, in another time zone or rounded, are this one."""
Wake: TypeAlias = Callable[[float], float]
"""Returns the wall time of waking for the wall time of now."""


def parse_wake(seconds: float | timedelta | None, until: datetime | None) -> Wake:
    """Return when a sleep ends, of which exactly one must be given; raise `ConfigError`."""
    if (seconds is None) == (until is None):
        raise ConfigError(
            "sleep: give either seconds or until=, got "
            + ("neither" if seconds is None else "both")
        )
    if until is not None:
        return _wake_at(until)
    length = parse_seconds(seconds)
    return lambda now: now + length


def _wake_at(until: object) -> Wake:
    if not isinstance(until, datetime) or until.tzinfo is None:
        raise ConfigError(
            f"until: must be a datetime with a time zone, got {until!r:.80}; "
            "pass datetime.now(UTC) + timedelta(...)"
        )
    wake_at = min(until.timestamp(), LAST_WAKE)
    return lambda now: wake_at


def parse_seconds(seconds: object, field: str = "seconds") -> float:
    """Return a length of time in seconds; raise `ConfigError`."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MAX_SECONDS:  # type: ignore[operator]
        raise ConfigError(
            f"{field}: must be a number from 0 to {MAX_SECONDS:g}, got {seconds!r:.80}"
        )
    return float(seconds)  # type: ignore[arg-type]


async def sleep(cycle: Cycle, wake: Wake) -> None:
    """Return at the recorded time; raise `Suspended` where that is a minute away or more."""
    session = cycle.session
    with cycle.scope.enter(VERB):
        key = cycle.scope.next_key()
        recorded = recorded_effect(cycle.scope, key, VERB, TypeAdapter(type(None)))
        if recorded is not None:
            return
        session.signals.check_intent(key, SleepSet, VERB)
        await session.replay_end.reach(key)
        session.signals.check(begun=True)
        intent = session.replay.effects.intent(key)
        if not isinstance(intent, SleepSet):
            intent = await _set_sleep(session, key, wake)
        await _sleep_until(cycle, key, intent.until)
        waited = session.active.take_waited()
        session.writer.record(key, EffectFinished(VERB, waited=waited))


async def _set_sleep(session: Session, key: str, wake: Wake) -> SleepSet:
    """Record when a new sleep ends."""
    if session.remaining() == 0:
        raise session.refuse(key, out_of_time(), VERB)
    await session.intake.wait_while_paused()
    intent = SleepSet(round(wake(session.services.clock.wall()), 3))
    session.writer.record(key, intent)
    await session.writer.barrier()
    return intent


async def _sleep_until(cycle: Cycle, key: str, until: float) -> None:
    session = cycle.session
    if session.command_log.stopping:
        raise session.intake.stop_signal()
    seconds = until - session.services.clock.wall()
    if seconds >= MAX_SECONDS_AWAKE:
        text = f"sleeping at {key} for {seconds:.0f} s"
        raise cycle.scope.halt(Suspended(text, reason="sleeping", wake_at=until))
    if seconds > 0:
        with session.active.waiting:
            await sleep_or_stop(session, seconds)
    if session.command_log.stopping:
        raise session.intake.stop_signal()
