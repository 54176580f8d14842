"""Do a lookup: a recorded read without an intent, a barrier or a gate of its own."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...labels import check_label
from ...resilience.timeouts import run_with_timeout
from ..session.session import out_of_time
from .cycle import Cycle
from .side_effects import (
    ReadLabel,
    call_function,
    record_failure,
    record_value,
    recorded_effect,
    value_adapter,
)

T = TypeVar("T")


async def lookup(
    cycle: Cycle,
    name: str,
    function: Callable[[], Awaitable[T]],
    into: type[T],
    read: ReadLabel,
) -> T:
    """Return what `function` reads, recorded before it is returned.

    It is durable with the next barrier, and what it gave leaves the process only behind
    one. So one that a crash lost had no consequence, and is done again.
    """
    session = cycle.session
    with cycle.scope.enter("lookup"):
        key = cycle.scope.next_key()
        adapter = value_adapter(into)
        recorded = recorded_effect(cycle.scope, key, name, adapter)
        if recorded is not None:
            return recorded[0]
        if session.replay.effects.intent(key) is not None:
            raise session.signals.diverge_from(key, f"effect {name}")
        await session.replay_end.reach(key)
        session.signals.check(begun=True)
        remaining = session.remaining()
        if remaining == 0:
            raise session.refuse(key, out_of_time())
        await session.intake.wait_while_paused()
        with session.active.working:
            ended = await run_with_timeout(call_function(function), remaining)
        if ended.timed_out:
            raise session.refuse(key, out_of_time())
        if ended.error is not None:
            raise record_failure(session, key, name, ended.error, read)
        return record_value(session, key, name, ended.value, adapter, read)


def read_label(label: object, untrusted: object) -> ReadLabel:
    """Return how sensitive and how trusted a lookup is; raise `ConfigError`."""
    return ReadLabel(check_label(label), bool(untrusted))
