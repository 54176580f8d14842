"""A conversation in Anthropic's form, for other code that speaks the Messages API."""

import json
from typing import Any, NamedTuple

from ...messages import Conversation
from .request import encode_turns


class AnthropicMessages(NamedTuple):
    """A conversation in the form of the Messages API, whose fields have the names of its parameters."""

    system: list[dict[str, Any]]
    """The blocks of the system messages; empty without any."""
    messages: list[dict[str, Any]]
    """Turns of the user and of the assistant, one after the other, each of several blocks."""


def to_anthropic_messages(conversation: Conversation) -> AnthropicMessages:
    """Return a conversation as the fields `system` and `messages` of the Messages API.

    Neighbours of one role are one turn, as the API has them. A conversation that does not begin with the user gets
    "Begin.", which the API requires. Thinking, which is signed for the model that wrote it, is left out.
    """
    turns = encode_turns(conversation.messages, cache=False, source=None)
    system = json.loads(b"[" + turns.system + b"]")
    messages: list[dict[str, Any]] = json.loads(b"[" + turns.messages + b"]")
    if conversation.messages and conversation.messages[-1].role == "assistant":
        del messages[
            -1
        ]  # The API wants a request to end with the user; this is a record of what was said.
    return AnthropicMessages(system, messages)
