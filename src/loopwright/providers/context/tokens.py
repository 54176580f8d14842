"""How many tokens the messages of a request have: estimated, by what replies reported so far."""

import math
import operator
import re
from collections.abc import Callable, Iterable

from ..._internal.regex import compile_late
from ...errors import ContextTooLong, ProviderError
from ...messages import Conversation, Message, ToolSpec, estimate_size
from ..base import Request
from .token_counts import TokenCounts

BYTES_PER_TOKEN = (
    4  # a common estimate for English and JSON, used where the provider has not counted
)
LEARNABLE_BYTES = 1_000  # of a shorter request, what surrounds it decides
MIN_RATIO, MAX_RATIO = 1 / 8, 1.0  # tokens a byte; anything else was not counted
UNKNOWN_OUTPUT = (
    16_384  # tokens of the longest reply that a model of unknown size is taken to give
)
MAX_CAP = (
    4_096  # tokens; bounds that an endpoint which refused a larger one is still sent
)
BAD_REQUEST = (400, 422)
ABOUT_TOKENS = (400, 402, 413, 422, 429)
"""The statuses of a refusal for tokens: of the model, of what is paid for, and of a minute's quota."""
_ABOUT_TOKENS = compile_late(
    r"max(?:imum)?[\s_]*(?:completion|output|new)?[\s_]*tokens|(?:completion|output)[\s_]tokens|context.{0,20}length|"
    r"\btokens\b.{0,80}\btoo large|\btoo large\b.{0,200}\btokens\b",
    re.IGNORECASE,
)
_ABOUT_SAMPLES = compile_late(
    r"candidate|choices|sample|\bn\b|['\"`]n['\"`]", re.IGNORECASE
)


_get_size: Callable[[ToolSpec], int] = operator.attrgetter("size")


def estimate_tokens(conversation: Conversation) -> int:
    """Return roughly how many tokens a conversation has."""
    return conversation.size // BYTES_PER_TOKEN


def measure_request(request: Request) -> int:
    """Return about how many bytes a request sends: the conversation and the tools."""
    return request.conversation.size + sum(map(_get_size, request.tools))


class TokenMeter:
    """How many tokens the requests to one model have: estimated, by what its replies reported so far."""

    def __init__(self) -> None:
        self._tokens, self._bytes = 1.0, float(BYTES_PER_TOKEN)
        self._counts = TokenCounts()
        self.refuses_samples = False
        """Whether the endpoint refused to give several replies to a request."""
        self.refuses_counts = False
        """Whether the provider could not count the tokens of a request."""
        self._max_cap = math.inf
        self.refuses_attachments = False
        """Whether the endpoint refused a request for an attachment of a tool result."""

    def estimate(self, size: int) -> int:
        """Return about how many tokens a request of `size` bytes has."""
        return int(size * self._tokens / self._bytes)

    def count(self, messages: Iterable[Message]) -> int:
        """Return about how many tokens messages have, by what each of them had in earlier requests."""
        if self._counts.are_any:
            return int(self._counts.count(messages))
        return self.estimate(sum(map(estimate_size, messages)))

    def count_request(self, request: Request) -> int:
        """Return about how many tokens a request has, tools included."""
        if self._counts.are_any:
            return int(self._counts.count_request(request))
        return self.estimate(measure_request(request))

    def bytes_for(self, tokens: int) -> int:
        """Return about how many bytes fit into `tokens` tokens."""
        return int(tokens * self._bytes / self._tokens)

    def needs_cap(self, left: int, max_length: int) -> bool:
        """Return whether a request must bound its reply, which may have `max_length` tokens where `left` are left.

        A bound of a size that the endpoint refused is not sent.
        """
        return left < max_length and left < self._max_cap

    def refuse_cap(self, cap: int) -> None:
        """Take in that the endpoint refused a bound, and took the request without."""
        self._max_cap = min(self._max_cap, cap // 2 + 1, MAX_CAP)

    def learn(self, request: Request, tokens: int | None) -> None:
        """Take in that a request had `tokens` tokens; a figure that cannot be one is left out."""
        size = measure_request(request)
        if tokens is None or size < LEARNABLE_BYTES:
            return
        if MIN_RATIO <= tokens / size <= MAX_RATIO:
            self._tokens, self._bytes = float(tokens), float(size)
            self._counts.learn(request, tokens)


def is_about_tokens(error: ProviderError) -> bool:
    """Whether an endpoint refused a request for its size, or for that of the reply that it may bring."""
    if isinstance(error, ContextTooLong):
        return True
    is_refusal = error.status in ABOUT_TOKENS and not error.retryable
    return is_refusal and _ABOUT_TOKENS.search(str(error)) is not None


def is_about_samples(error: ProviderError) -> bool:
    """Whether an endpoint refused a request for the number of replies that it asks for."""
    if isinstance(error, ContextTooLong) or error.status not in BAD_REQUEST:
        return False
    return bool(_ABOUT_SAMPLES.search(str(error)))
