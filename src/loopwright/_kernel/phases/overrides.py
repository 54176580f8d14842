"""Make the tool calls that people order while a run works."""

from collections.abc import Iterator
from typing import cast

from ...events.effect_key import call_key
from ...events.effects import CallsProposed
from ...events.run import Question as PendingQuestion
from ...gates.base import Denial, Permit
from ...journals.base import Command
from ...journals.recorded_messages import id_of
from ...messages import JsonObject, Message, Observation, ToolCall, canonical_json
from ...security.spotlighting import OPERATOR_CALL_PREFIX, fence
from ..control.commands import OVERRIDE
from .cycle import Cycle
from .handoff import finish_call
from .observe import is_trusted
from .saga import find_registries


async def make_overrides(cycle: Cycle, verb: str) -> None:
    """Wait while the run is paused, and make the calls that people ordered.

    This happens before a model call; calls that are recorded there are replayed.
    """
    session, effects = cycle.session, cycle.session.replay.effects
    while True:
        key = cycle.scope.upcoming()
        recorded = effects.outcome(key)
        if isinstance(recorded, CallsProposed) and recorded.command:
            await _make_call(cycle, recorded.calls[0], recorded.command)
            continue
        if recorded is not None or session.replay.scopes.has_samples(key):
            return
        await session.replay_end.reach(key)
        await session.intake.wait_while_paused()
        if effects.intent(key) is not None or verb == "best_answer":
            return
        command = _next_override(cycle)
        if command is None:
            return
        session.replay.approvals.used.add(command.number)
        arguments = cast("JsonObject", command.body["arguments"])
        call = ToolCall(str(command.body["tool"]), arguments, f"operator_{id_of(key)}")
        await _make_call(cycle, call, command.number)


def _next_override(cycle: Cycle) -> Command | None:
    """Return the next ordered call that is for this scope: one whose engine has the tool.

    A call of a tool that no engine of the run has is for the root engine, which says so.
    """
    session, is_child = cycle.session, cycle.scope.engine_usage.is_child
    for command in session.command_log.unused(OVERRIDE, session.replay.approvals.used):
        tool = str(command.body["tool"])
        if cycle.services.tools.get(tool) is not None:
            return command
        if not is_child and not _has_tool_below(cycle, tool):
            return command
    return None


def _has_tool_below(cycle: Cycle, tool: str) -> bool:
    """Whether the engine, or one that works for it, has a tool."""
    registries = find_registries(cycle.engine)
    return any(tools.get(tool) is not None for tools in registries)


async def _make_call(cycle: Cycle, call: ToolCall, command: int) -> None:
    """Gate and make an ordered call; the model is told its outcome with the next call."""
    key = cycle.scope.next_key()
    [recorded] = cycle.record_proposed(key, (call,), command)
    decided = await cycle.decide(recorded, call_key(key, 0), "operator")
    if isinstance(decided, PendingQuestion):
        raise await cycle.park([decided])
    cycle.clearance.start([decided])
    observation = await cycle.settle_call(decided)
    cycle.scope.nudges.extend(_report(cycle, recorded, decided, observation))
    await finish_call(cycle, decided, observation)


def _report(
    cycle: Cycle, call: ToolCall, decided: Permit | Denial, observation: Observation
) -> Iterator[Message]:
    """Return what the model is told of such a call, apart from the words of the tool."""
    arguments = canonical_json(dict(call.arguments)).decode()
    summary = f"{OPERATOR_CALL_PREFIX} {call.name}({arguments}): {observation.status}"
    tool = cycle.services.tools.get(call.name)
    if isinstance(decided, Denial) or is_trusted(tool):
        yield Message("user", f"{summary}\n{observation.content}", origin="operator")
        return
    yield Message("user", summary, origin="operator")
    content = fence(
        observation.content, source=call.name, delimiter=cycle.session.delimiter
    )
    yield Message("user", content, origin="tool")
