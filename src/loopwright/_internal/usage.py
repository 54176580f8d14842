"""Usage: the tokens and the cost of model calls."""

import dataclasses


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

    @property
    def total_tokens(self) -> int:
        """Input and output together; what is not known counts as 0."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            _add_tokens(self.input_tokens, other.input_tokens),
            _add_tokens(self.output_tokens, other.output_tokens),
            _add_tokens(self.cached_tokens, other.cached_tokens),
            _add_tokens(self.cache_write_tokens, other.cache_write_tokens),
            _add_tokens(self.reasoning_tokens, other.reasoning_tokens),
            _add_costs(self.cost, other.cost),
            self.estimated or other.estimated,
        )


def _add_tokens(one: int | None, other: int | None) -> int | None:
    """Return a sum in which an unknown number counts as 0; `None` if both are unknown."""
    if one is None and other is None:
        return None
    return (one or 0) + (other or 0)


def _add_costs(one: float | None, other: float | None) -> float | None:
    if one is None and other is None:
        return None
    return (one or 0.0) + (other or 0.0)
