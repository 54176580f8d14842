"""Circuit breakers and time limits."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .circuit_breaker import BreakerOptions as BreakerOptions
    from .circuit_breaker import BreakerState as BreakerState
    from .circuit_breaker import CircuitBreaker as CircuitBreaker
    from .circuit_breaker import CircuitBreakers as CircuitBreakers

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".circuit_breaker": (
                "BreakerOptions",
                "BreakerState",
                "CircuitBreaker",
                "CircuitBreakers",
            ),
        },
    )
