"""Usage: the tokens and the cost of model calls."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens of one or more model calls.

    `input_tokens` is the total; `cached_tokens` (read from a cache) and `cache_write_tokens` are
    included in it. `output_tokens` is the total; `reasoning_tokens` is included in it. `None` means
    that the provider did not say. `cost` is what the provider charged, or what the runtime's prices
    make of the tokens. `estimated` marks a figure that was guessed from sizes.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    estimated: bool = False

    @functools.cached_property
    def total_tokens(self) -> int:
        """Input and output together; what is not known counts as 0."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sums; an unknown figure counts as 0, and the sum of two is unknown."""
        sums: dict[str, Any] = {}
        amounts = zip(_AMOUNTS, _list_amounts(self), _list_amounts(other), strict=True)
        for name, one, more in amounts:
            sums[name] = one if more is None else (one or 0) + more
        return Usage(**sums, estimated=self.estimated or other.estimated)


_AMOUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost",
)
_list_amounts: Callable[[Usage], tuple[Any, ...]] = operator.attrgetter(*_AMOUNTS)
