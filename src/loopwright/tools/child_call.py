"""ChildCall: what an engine that is a tool is given for a call, and how its answer is read."""

from collections.abc import Callable
from typing import Any

from .._internal import dataclasses
from ..messages import Conversation, JsonObject
from ..providers.base import OutputSchema


@dataclasses.dataclass(frozen=True)
class ChildCall:
    """How a call becomes the conversation of an engine, and its answer the result.

    Args:
        open: makes the conversation of the call's arguments and the caller's conversation.
        schema: what the answer must fit, or `None` for a text.
        read: returns the result in an answer; raises ValueError for one that does not fit.
        choose: returns the engine for the arguments, in place of the tool's own; raises `ConfigError` for none.
    """

    open: Callable[[JsonObject, Conversation], Conversation]
    schema: OutputSchema | None = None
    read: Callable[[str], str] = str
    choose: Callable[[JsonObject], Any] | None = None


def open_task(arguments: JsonObject, _caller: Conversation) -> Conversation:
    """Return a conversation that opens with the argument `task`."""
    return Conversation.of(str(arguments["task"]))


TASK = ChildCall(open_task)
