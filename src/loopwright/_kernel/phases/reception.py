"""Give an engine what people sent, and what earlier turns of its thread noted, as data; recorded as it was read."""

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from ...errors import ConfigError
from ...journals.access import consult
from ...journals.base import Command
from ...journals.thread_facts import find_thread_facts
from ..control.commands import ADD_CONTEXT, GUIDANCE, OVERRIDE, STEER
from .cycle import Cycle
from .lookup import lookup
from .side_effects import OWN, record_value, recorded_effect, value_adapter

T = TypeVar("T")
KINDS = (STEER, ADD_CONTEXT, OVERRIDE)
NAME = "received"
COMMANDS: TypeAdapter[tuple[Command, ...]] = TypeAdapter(
    tuple[Command, ...], config=ConfigDict(defer_build=True)
)


async def receive(cycle: Cycle, kinds: Collection[str]) -> tuple[Command, ...]:
    """Return the commands of some kinds that came since the last time, once in each scope."""
    if isinstance(kinds, str) or not set(kinds) <= set(KINDS):
        raise ConfigError(f"kinds: must be some of {', '.join(KINDS)}, got {kinds!r}")
    session, scope = cycle.session, cycle.scope
    with scope.enter(NAME):
        key = scope.next_key()
        known = recorded_effect(scope, key, NAME, COMMANDS)
        if known is None:
            session.signals.check_intent(key, type(None), NAME)
            await session.replay_end.reach(key)
            session.signals.check(begun=True)
            await session.intake.wait_while_paused()
            found = _find_new(cycle, kinds)
            commands = record_value(session, key, NAME, found, COMMANDS, OWN)
        else:
            commands = known[0]
        numbers = {command.number for command in commands}
        scope.received |= numbers
        ordered = {one.number for one in commands if one.kind == OVERRIDE}
        session.replay.approvals.used.update(ordered)
        return commands


def _find_new(cycle: Cycle, kinds: Collection[str]) -> tuple[Command, ...]:
    """Return the commands that this scope has not received; an override that was made is none of them."""
    made = cycle.session.replay.approvals.used
    wanted = [one for one in cycle.session.command_log.commands if one.kind in kinds]
    new = [one for one in wanted if one.number not in cycle.scope.received]
    return tuple(one for one in new if one.kind in GUIDANCE or one.number not in made)


async def read_thread_facts(
    cycle: Cycle, kind: type[T], last: int | None
) -> tuple[T, ...]:
    """Return the facts of a type that earlier turns of the run's thread noted, the oldest first.

    Of them the `last` ones alone, or all; they are recorded as read.
    """
    if last is not None and last < 1:
        raise ConfigError(f"last: must be at least 1, got {last}")
    name, session = kind.__name__, cycle.session

    async def read() -> list[Any]:
        return await consult(
            find_thread_facts,
            session.services.journal,
            session.thread,
            session.run_id,
            name,
            last,
        )

    values = await lookup(cycle, f"facts {name}", read, list[Any], OWN)
    adapter = value_adapter(kind)
    return tuple(adapter.validate_python(value) for value in values)
