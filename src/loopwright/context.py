"""What of a conversation the next model call sees: old tool results are masked, then the oldest turns slide out."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from .messages import Conversation, Message, encode_message

BYTES_PER_TOKEN = 4  # a common rule of thumb for English and JSON; used only where the provider has not counted
MASK = "[an earlier result, left out to save space]"


class ContextPolicy(Protocol):
    """Makes a conversation fit, never splitting a call from its result.

    The system message, the task and the newest turn are always kept.
    """

    def fit(self, conversation: Conversation, tokens: int) -> Conversation:
        """The part of `conversation` to send, in about `tokens` tokens; the same object if it fits as it is."""
        ...


def estimate_tokens(conversation: Conversation) -> int:
    """Roughly how many tokens a conversation has."""
    return conversation.size // BYTES_PER_TOKEN


def turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages in groups that belong together: what the assistant said, with the results of its calls."""
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


@dataclasses.dataclass(frozen=True)
class SlidingContext:
    """Masks results older than the newest `keep_results`, then drops the oldest turns after the task."""

    keep_results: int = 3

    def fit(self, conversation: Conversation, tokens: int) -> Conversation:
        """The conversation in about `tokens` tokens."""
        if estimate_tokens(conversation) <= tokens:
            return conversation
        masked = self._mask(conversation.messages)
        head_size = 1 + next((i for i, m in enumerate(masked) if m.role == "user"), 0)
        head, groups = masked[:head_size], turns(masked[head_size:])
        room = tokens * BYTES_PER_TOKEN - sum(map(_size, head))
        kept: list[list[Message]] = []
        for group in reversed(groups):
            room -= sum(map(_size, group))
            if kept and room < 0:
                break
            kept.insert(0, group)
        return Conversation([*head, *(message for group in kept for message in group)])

    def _mask(self, messages: tuple[Message, ...]) -> list[Message]:
        results = [i for i, m in enumerate(messages) if m.role == "tool"]
        old = set(results[: -self.keep_results] if self.keep_results else results)
        return [dataclasses.replace(m, content=MASK) if i in old else m for i, m in enumerate(messages)]


def _size(message: Message) -> int:
    return len(message.encoded(encode_message))
