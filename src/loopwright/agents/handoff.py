"""Handoff: to which agent another one may hand a run off, and what that sees of the conversation."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import Conversation
from ..tools.base import Tool
from ..tools.handoff import NO_ARGUMENTS, HandoffTarget
from .tool import select_history

PREFIX = "transfer_to_"

Filter: TypeAlias = Literal["all", "last"] | Callable[[Conversation], Conversation]
"""What an agent sees that a run is handed off to: all, the last message of a person, or what a function returns."""


@dataclasses.dataclass(frozen=True)
class Handoff:
    """An agent that another one may hand a run off to.

    Args:
        agent: its name; it may be defined later.
        filter: what it sees of the conversation: "all" of it, the "last" message of a person, or what a function of the
            conversation returns, the same for the same conversation.
        description: when to hand the run off to it, for the model; its own description by default.
        tool: the name of the tool that the model calls, `transfer_to_NAME` by default.
    """

    agent: str
    filter: Filter = "all"
    description: str = ""
    tool: str = ""

    def __post_init__(self) -> None:
        given: Any = self.filter
        if given not in ("all", "last") and not callable(given):
            raise ConfigError(
                f'filter: must be "all", "last" or a function of a conversation, got {given!r:.80}'
            )


def build_handoff_tools(
    giver: str, given: Any, agents: Mapping[str, Any]
) -> tuple[Tool, ...]:
    """Return the tools with which the model of an agent hands a run off; raise `ConfigError`."""
    if isinstance(given, (str, Handoff)) or not hasattr(given, "__iter__"):
        raise ConfigError(f"handoffs: must be a list of agents, got {given!r:.80}")
    handoffs = [_read(one) for one in given]
    names = [one.agent for one in handoffs]
    if giver in names:
        raise ConfigError(
            f"handoffs: {giver!r} cannot hand a run off to itself; leave it out"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"handoffs: {twice!r} is given twice; remove one")
    return tuple(_build_tool(one, agents) for one in handoffs)


def _read(given: Any) -> Handoff:
    if isinstance(given, Handoff):
        return given
    name = getattr(given, "name", given)
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f"handoffs: needs names of agents, or Handoff(name, ...), got {given!r:.80}"
        )
    return Handoff(name)


def _build_tool(handoff: Handoff, agents: Mapping[str, Any]) -> Tool:
    async def transfer() -> str:
        return f"Handed off to {handoff.agent}."

    describe = functools.partial(_describe, handoff, agents)
    choice = handoff.filter
    select = select_all if choice == "all" else select_history(choice)
    return Tool(
        handoff.tool or f"{PREFIX}{handoff.agent}",
        f"Hand the conversation over to {handoff.agent}.",
        NO_ARGUMENTS,
        transfer,
        trusted=True,
        source="engine",
        handoff=HandoffTarget(handoff.agent, select, describe),
    )


def select_all(conversation: Conversation) -> Conversation:
    """Return a conversation as it stands."""
    return conversation


def _describe(handoff: Handoff, agents: Mapping[str, Any]) -> str:
    """Return what a model reads of a handoff."""
    agent = agents.get(handoff.agent)
    about = handoff.description or getattr(agent, "description", "")
    return f"Hand the conversation over to {handoff.agent}. {about}".strip()
