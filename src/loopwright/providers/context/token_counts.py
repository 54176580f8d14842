"""How many tokens single messages have, worked out from what the replies to requests with them reported."""

from collections.abc import Iterable
from typing import Literal, TypeAlias

from pydantic_core import to_json

from ...messages import (
    ATTACHMENT_SIZE,
    Conversation,
    Message,
    ToolSpec,
)
from ..base import Request

Kind: TypeAlias = Literal["result", "mask", "other"]
"""What a text is: texts of one kind have about as many tokens for what they weigh."""
MASK_START = "[result of "
"""What stands in the place of a masked result begins with it."""
MAX_KNOWN, MAX_REPORTS = 20_000, 64
"""How many messages and how many requests are remembered."""
SAMPLE = 2_000
"""Bytes at the beginning and in the middle of a longer text that it is weighed by."""
MESSAGE_WEIGHT, CALL_WEIGHT = 4, 8
"""What a message and a call weigh beside their text, in tokens."""
MIN_SCALE, MAX_SCALE = 1 / 8, 8.0
"""Tokens for a unit of weight; anything else was not counted."""
MIN_LEARNED = 60
"""The weight of the masks of a request from which their own scale is learned."""
_DIGITS = bytes(range(48, 58))
_ALPHABETIC = bytes([*range(65, 91), *range(97, 123)])
_SIGNS = bytes(c for c in range(33, 127) if c not in _DIGITS + _ALPHABETIC)
_NOT_FIRST = bytes(range(0xC0))
"""Every byte but the first of a character that is not ASCII."""


def _keep(kept: bytes) -> bytes:
    """Return the table that puts a space in the place of each other byte."""
    return bytes(c if c in kept else 32 for c in range(256))


_ONLY_ALPHABETIC, _ONLY_DIGITS, _ONLY_SIGNS = map(_keep, (_ALPHABETIC, _DIGITS, _SIGNS))


def weigh(text: bytes) -> float:
    """Return about how many tokens a text has: words, digits, runs of signs, and characters that are not ASCII.

    Compared with the tokenizers of GPT-4, GPT-4o, Claude and SmolLM2 in twelve kinds of text. How much more finely another
    model splits texts is told by the reports of its replies.
    """
    if len(text) > 2 * SAMPLE:
        middle = len(text) // 2
        parts = text[:SAMPLE], text[middle : middle + SAMPLE]
        return sum(map(_weigh_all, parts)) * len(text) / (2 * SAMPLE)
    return _weigh_all(text)


def _weigh_all(text: bytes) -> float:
    size = len(text)
    alphabetic = size - len(text.translate(None, _ALPHABETIC))
    digits = size - len(text.translate(None, _DIGITS))
    words = len(text.translate(_ONLY_ALPHABETIC).split())
    numbers = len(text.translate(_ONLY_DIGITS).split())
    signs = len(text.translate(_ONLY_SIGNS).split())
    others = len(text.translate(None, _NOT_FIRST))
    return words + alphabetic / 40 + 0.3 * numbers + 0.7 * digits + signs + others


def weigh_message(message: Message) -> float:
    """Return what a message weighs as chat templates write it: its text and its calls, without ids and reasoning."""
    weight = MESSAGE_WEIGHT + weigh(message.content.encode("utf-8", "replace"))
    for call in message.calls:
        weight += CALL_WEIGHT + weigh(to_json([call.name, call.arguments]))
    return weight + ATTACHMENT_SIZE / 4 * len(message.attachments)


def _find_kind(message: Message) -> Kind:
    if message.role != "tool":
        return "other"
    return "mask" if message.content.startswith(MASK_START) else "result"


class TokenCounts:
    """The tokens of messages and tools that requests to one model had.

    A request that begins with one that was reported says what its new messages have; one that was cut says what the
    masks have, since the messages that stay are known.
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        """Tokens by the hash of what was sent, so that no text is kept."""
        self._reports: dict[bytes, float] = {}
        """Tokens of the messages of the last requests, by the digest of the conversation."""
        self._scales: dict[Kind, float] = {}
        """Tokens for a unit of weight."""

    @property
    def are_any(self) -> bool:
        """Whether a reply reported anything yet."""
        return bool(self._scales)

    def count(self, messages: Iterable[Message]) -> float:
        """Return about how many tokens messages have."""
        known = self._known
        total = 0.0
        for message in messages:
            tokens = known.get(hash(message.canonical))
            if tokens is None:
                tokens = weigh_message(message) * self._scale(_find_kind(message))
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
        weights: dict[Kind, float] = {}
        unknown: list[tuple[int, float, Kind]] = []
        for key, kind, source in _list_parts(request, start):
            tokens_known = self._known.get(key)
            if tokens_known is not None:
                left -= tokens_known
                continue
            weight = _weigh_part(source)
            unknown.append((key, weight, kind))
            weights[kind] = weights.get(kind, 0.0) + weight
        if weights:
            scales = self._share(weights, left)
            known = {key: weight * scales[kind] for key, weight, kind in unknown}
            self._remember(known)
        tools = sum(map(self._count_tool, request.tools))
        self._reports[conversation.digest] = tokens - tools
        if len(self._reports) > MAX_REPORTS:
            del self._reports[next(iter(self._reports))]

    def _share(self, weights: dict[Kind, float], tokens: float) -> dict[Kind, float]:
        """Return the scale of each kind by which unknown parts have so many tokens together.

        One kind is learned, and the others are taken as they were before.
        """
        scales: dict[Kind, float] = {kind: self._scale(kind) for kind in weights}
        learned = _choose_learned(weights)
        others = sum(scales[one] * weights[one] for one in weights if one != learned)
        scale = (tokens - others) / weights[learned]
        if MIN_SCALE <= scale <= MAX_SCALE:
            scales[learned] = self._scales[learned] = scale
        return scales

    def _scale(self, kind: Kind) -> float:
        return self._scales.get(kind) or self._scales.get("other", 1.0)

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
        return _weigh_part(tool) * self._scale("other") if known is None else known

    def _remember(self, counts: dict[int, float]) -> None:
        self._known.update(counts)
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]


def _list_parts(
    request: Request, start: int
) -> Iterable[tuple[int, Kind, Message | ToolSpec]]:
    """Yield the key and kind of each tool of a request, and of each of its messages from one on."""
    for tool in request.tools:
        yield _key_tool(tool), "other", tool
    for message in request.conversation.messages[start:]:
        yield hash(message.canonical), _find_kind(message), message


def _weigh_part(part: Message | ToolSpec) -> float:
    if isinstance(part, Message):
        return weigh_message(part)
    return weigh(to_json([part.name, part.description, part.schema]))


def _key_tool(tool: ToolSpec) -> int:
    return hash((tool.name, tool.size))


def _choose_learned(weights: dict[Kind, float]) -> Kind:
    """Return the kind of a request of which most is new: masks after a cut, else results."""
    if weights.get("mask", 0.0) > MIN_LEARNED:
        return "mask"
    if "result" in weights:
        return "result"
    return "other" if "other" in weights else "mask"
