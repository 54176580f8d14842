"""HandoffTarget: to which agent a call hands the run off, and what that sees."""

import dataclasses
from collections.abc import Callable

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
