"""Describe the tools that a conversation has calls of, for APIs that want a description beside each call."""

from collections.abc import Iterable

from ..messages import Message, ToolSpec


def describe_called_tools(messages: Iterable[Message]) -> tuple[ToolSpec, ...]:
    """Return a description without words or arguments for each tool, in the order of the first calls."""
    names = dict.fromkeys(call.name for message in messages for call in message.calls)
    return tuple(ToolSpec(name, "", {}) for name in names)
