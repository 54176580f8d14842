"""HandoffTarget: to which agent a call hands the run off, and what that sees."""

from collections.abc import Callable, Mapping
from typing import Any

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import Conversation, Json

NO_ARGUMENTS: dict[str, Json] = {
    "type": "object", "properties": {}, "additionalProperties": False,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class HandoffTarget:
    """The agent that a tool hands the run off to.

    Args:
        agent: its name.
        select: returns what it sees of the conversation.
        describe: returns what the model reads about the tool, once all agents are defined.
    """

    agent: str
    select: Callable[[Conversation], Conversation]
    describe: Callable[[], str]


def check_view(given: object) -> None:
    """Raise `ConfigError` for a conversation that no model could answer."""
    messages = given.messages if isinstance(given, Conversation) else ()
    roles = [one.role for one in messages]
    if "user" not in roles or roles[-1] not in ("user", "tool"):
        raise ConfigError(
            "handoff: what the other agent sees must be a conversation with a task, which ends with a message of the "
            f"user or a result, got {given!r:.80}; change the filter"
        )


def find_agent(agents: Mapping[str, Any], agent: Any) -> Any:
    """Return the agent of a name, or itself; raise `ConfigError`, which names those there are."""
    if not isinstance(agent, str):
        if not hasattr(agent, "engine"):
            raise ConfigError(
                f"handoff: needs the name of an agent or an Agent, got {agent!r:.80}"
            )
        return agent
    if agent not in agents:
        known = ", ".join(agents) or "none"
        raise ConfigError(
            f"handoffs: there is no agent {agent!r}, the runtime has {known}; define it with runtime.agent({agent!r}, ...)"
        )
    return agents[agent]
