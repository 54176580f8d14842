"""What of a conversation the next model call sees: old tool results are masked, then the oldest turns slide out."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from ..messages import Conversation, Message, size_of

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
    """Masks results older than the newest `keep_results`, then drops the oldest turns."""

    keep_results: int = 3

    def fit(self, conversation: Conversation, tokens: int) -> Conversation:
        """The conversation in about `tokens` tokens."""
        if estimate_tokens(conversation) <= tokens:
            return conversation
        groups = turns(self._mask(conversation.messages))
        kept = _always_kept(groups)
        room = tokens * BYTES_PER_TOKEN - sum(_size(groups[i]) for i in kept)
        for index in reversed(range(len(groups))):
            if index in kept:
                continue
            room -= _size(groups[index])
            if room < 0:
                break
            kept.add(index)
        return Conversation(message for i in sorted(kept) for message in groups[i])

    def _mask(self, messages: tuple[Message, ...]) -> list[Message]:
        results = [i for i, m in enumerate(messages) if m.role == "tool"]
        old = set(results[: -self.keep_results] if self.keep_results else results)
        return [
            dataclasses.replace(m, content=MASK)
            if i in old and len(m.content) > len(MASK)
            else m
            for i, m in enumerate(messages)
        ]


def _always_kept(groups: list[list[Message]]) -> set[int]:
    """System messages, the task (the latest text of the caller's, or the first of anybody's) and the newest turn."""
    texts = [i for i, group in enumerate(groups) if group[0].role == "user"]
    tasks = [i for i in texts if groups[i][0].origin == "caller"][-1:] or texts[:1]
    systems = [i for i, group in enumerate(groups) if group[0].role == "system"]
    return {*systems, *tasks, *range(len(groups))[-1:]}


def _size(group: list[Message]) -> int:
    return sum(map(size_of, group))
