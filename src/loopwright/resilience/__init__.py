"""Circuit breakers and time limits."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .circuit_breaker import BreakerOptions as BreakerOptions
    from .circuit_breaker import BreakerState as BreakerState
    from .circuit_breaker import CircuitBreaker as CircuitBreaker
    from .circuit_breaker import CircuitBreakers as CircuitBreakers

__all__ = [
    "BreakerOptions",
    "BreakerState",
    "CircuitBreaker",
    "CircuitBreakers",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "BreakerOptions": ".circuit_breaker",
            "BreakerState": ".circuit_breaker",
            "CircuitBreaker": ".circuit_breaker",
            "CircuitBreakers": ".circuit_breaker",
        },
    )
