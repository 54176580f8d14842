"""The handoffs of a run: which scopes are over, since another agent works in the place of theirs."""

from typing import Any

from ..._internal import dataclasses
from ...errors import AgentReplaced
from ...events.effect_key import is_inside
from ...messages import Conversation


@dataclasses.dataclass(eq=False)
class Handoff:
    """One handoff, from the moment that it is certain.

    Args:
        path: the scope of the agent that gave the run away; all of it is over.
        source: the key of the call, or of the engine's own effect, that asked for it.
        receiver: the agent that works from then on.
        given: the conversation that it is given.
        whole: the conversation as it was, of which the receiver may see less.
        key: the key of its effect, below which the receiver's are; empty until it is recorded.
    """

    path: str
    source: str
    receiver: Any
    given: Conversation
    whole: Conversation
    key: str = ""

    def covers(self, path: str) -> bool:
        """Whether a scope is over: it is of the agent that gave the run away, or works for it."""
        is_of_giver = is_inside(path, self.path)
        return is_of_giver and not (self.key and is_inside(path, self.key))


class Handoffs(list[Handoff]):
    """The handoffs of a run in this process, in their order: their scopes, and all inside them, begin nothing any more."""

    def find(self, path: str) -> Handoff | None:
        """Return the handoff that ended a scope itself."""
        return next((one for one in self if one.path == path), None)

    def has_key(self, key: str) -> bool:
        """Whether a key is that of a handoff itself."""
        return any(one.key == key for one in self)

    def signal(self, path: str) -> AgentReplaced | None:
        """Return the signal of a scope that is over."""
        if not any(one.covers(path) for one in self):
            return None
        return AgentReplaced("the run was handed off to another agent")
