"""Refuse handoffs that limits or the types of agents forbid, and to agents that are not there."""

from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError
from ...gates.base import Denial, Permit
from ...tools.base import Tool
from ...tools.handoff import find_agent
from ..session.scope import Scope
from ..session.services import Services
from .permits import ToolPermit

ONE_HANDOFF = "Not done: another call of this turn hands the run off."


def check_handoff(scope: Scope, services: Services, agent: Any) -> None:
    """Raise `ConfigError` for a handoff that the limits or the types of the agents forbid."""
    receiver = find_agent(services.agents, agent)
    limit = scope.session.services.limits.max_handoffs
    made = len(scope.session.signals.handoffs)
    if limit is not None and made >= limit:
        raise ConfigError(
            f"max_handoffs: this run was handed off {made} times, which is all that Limits(max_handoffs={limit}) "
            f"allow, got {receiver.name}; answer without another agent"
        )
    check_same_output(services, receiver)


def check_same_output(giver: Services, receiver: Any) -> None:
    """Raise `ConfigError` for an agent that answers in another form than the one in whose place it would work."""
    own = giver.agents.get(giver.agent_name)
    expected = getattr(own, "output", None)
    if own is not None and expected != receiver.output:
        raise ConfigError(
            f"handoffs: {receiver.name!r} answers as {_format(receiver.output)}, and {giver.agent_name!r} as "
            f"{_format(expected)}; give both the same output"
        )


def _format(output: object) -> str:
    return "a text" if output is None else str(getattr(output, "__name__", output))


def check_targets(services: Services) -> None:
    """Raise `ConfigError` for a handoff to an agent that is not there, or that answers in another form.

    That concerns all agents that the run may come to: before anything of it runs.
    """
    known: list[Services] = [services]
    for current in known:  # the list grows while it is read
        for tool in current.tools.targets:
            found = _find_target(current, tool)
            if not any(found is other for other in known):
                known.append(found)


def _find_target(services: Services, tool: Tool) -> Services:
    if tool.handoff is not None:
        receiver = find_agent(services.agents, tool.handoff.agent)
        check_same_output(services, receiver)
        found: Services = receiver.engine.runtime
    else:
        found = tool.engine.runtime
    return found


def refuse_handoffs(
    decisions: Sequence[Permit | Denial], permits: set[Permit]
) -> tuple[Permit | Denial, ...]:
    """Return decisions of which at most one hands the run off, the first."""
    kept: list[Permit | Denial] = []
    has_handoff = False
    for decision in decisions:
        is_handoff = find_handoff_tool(decision) is not None
        if is_handoff and has_handoff and isinstance(decision, Permit):
            permits.discard(decision)
            call, hashed = decision.call, decision.arguments_hash
            kept.append(Denial(call, hashed, decision.key, "rejected", ONE_HANDOFF))
        else:
            kept.append(decision)
        has_handoff |= is_handoff
    return tuple(kept)


def find_handoff_tool(decision: Permit | Denial) -> Tool | None:
    """Return the tool of a permitted call if it hands the run off."""
    tool = decision.tool if isinstance(decision, ToolPermit) else None
    return tool if tool is not None and tool.handoff is not None else None
