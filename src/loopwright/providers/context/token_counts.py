"""How many tokens single messages have, worked out from what the replies to requests with them reported."""

from collections.abc import Iterable

from ...messages import Conversation, Message, ToolSpec
from ..base import Request
from .token_weights import (
    Features,
    TokenWeights,
    add_features,
    measure_message,
    measure_tool,
)

MAX_KNOWN, MAX_REPORTS = 20_000, 64
"""How many messages and how many requests are remembered."""
MIN_SCALE, MAX_SCALE = 1 / 8, 8.0
"""What a report may have of what it was counted as; anything else was not counted."""


class TokenCounts:
    """The tokens of messages and tools that requests to one model had.

    A request that begins with one that was reported says what its new messages have; one that was cut says what the
    masks have, since the messages that stay are known. What is not known yet is counted by what the model makes of
    words, digits and signs.
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        """Tokens by the hash of what was sent, so that no text is kept."""
        self._reports: dict[bytes, float] = {}
        """Tokens of the messages of the last requests, by the digest of the conversation."""
        self._weights = TokenWeights()
        self.are_any = False
        """Whether a reply reported anything yet."""

    def count(self, messages: Iterable[Message]) -> float:
        """Return about how many tokens messages have."""
        known, total = self._known, 0.0
        for message in messages:
            tokens = known.get(hash(message.canonical))
            if tokens is None:
                tokens = self._weights.estimate(measure_message(message))
            total += tokens
        return total

    def count_request(self, request: Request) -> float:
        """Return about how many tokens a request has: its messages, from the last report on, and its tools."""
        start, base = self._find_report(request.conversation)
        new = request.conversation.messages[start:]
        return base + self.count(new) + sum(map(self._count_tool, request.tools))

    def learn(self, request: Request, tokens: int) -> None:
        """Take in what a request had, by what is not known of it."""
        conversation = request.conversation
        start, base = self._find_report(conversation)
        left = tokens - base
        unknown: list[tuple[int, Features]] = []
        for key, part in _list_parts(request, start):
            known = self._known.get(key)
            if known is None:
                unknown.append((key, _measure_part(part)))
            else:
                left -= known
        if unknown:
            self._learn_parts(unknown, left)
        tools = sum(map(self._count_tool, request.tools))
        self._reports[conversation.digest] = tokens - tools
        self.are_any = True
        if len(self._reports) > MAX_REPORTS:
            del self._reports[next(iter(self._reports))]

    def _learn_parts(self, parts: list[tuple[int, Features]], tokens: float) -> None:
        """Take in that parts have so many tokens together, and share these among them."""
        features = add_features(one for _, one in parts)
        if self._scale(features, tokens):
            self._weights.learn(features, tokens)
        scale = self._scale(features, tokens) or 1.0
        estimate = self._weights.estimate
        self._known.update({key: estimate(one) * scale for key, one in parts})
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _scale(self, features: Features, tokens: float) -> float | None:
        """Return by how much a report is above the estimate; `None` where it cannot have counted the text."""
        scale = tokens / max(self._weights.estimate(features), 1.0)
        return scale if MIN_SCALE <= scale <= MAX_SCALE else None

    def _find_report(self, conversation: Conversation) -> tuple[int, float]:
        """Return how many messages of a conversation a request had, and their tokens; zeros without one."""
        if conversation.digest in self._reports:
            return len(conversation), self._reports[conversation.digest]
        for length, digest in reversed(conversation.grown_from):
            if digest in self._reports:
                return length, self._reports[digest]
        return 0, 0.0

    def _count_tool(self, tool: ToolSpec) -> float:
        known = self._known.get(_key_tool(tool))
        return self._weights.estimate(measure_tool(tool)) if known is None else known


def _list_parts(
    request: Request, start: int
) -> Iterable[tuple[int, Message | ToolSpec]]:
    """Yield the key of each tool of a request, and of each of its messages from one on."""
    for tool in request.tools:
        yield _key_tool(tool), tool
    for message in request.conversation.messages[start:]:
        yield hash(message.canonical), message


def _measure_part(part: Message | ToolSpec) -> Features:
    return measure_message(part) if isinstance(part, Message) else measure_tool(part)


def _key_tool(tool: ToolSpec) -> int:
    return hash((tool.name, tool.size))
