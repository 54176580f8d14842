"""What a circuit breaker costs each call, in nanoseconds of CPU: `python tests/benchmarks/bench_breaker.py`."""

import time
from collections.abc import Callable

from loopwright import CircuitBreaker, CircuitBreakers
from loopwright.errors import CircuitOpen

REPEATS, CALLS = 15, 20_000


def cost(work: Callable[[], object]) -> float:
    """Nanoseconds of CPU of one `work`: the best of several measurements, less an empty call."""

    def measured(function: Callable[[], object]) -> float:
        begun = time.thread_time_ns()
        for _ in range(CALLS):
            function()
        return (time.thread_time_ns() - begun) / CALLS

    empty = min(measured(lambda: None) for _ in range(REPEATS))
    return min(measured(work) for _ in range(REPEATS)) - empty


def closed() -> None:
    """Leave of a closed breaker, and that the call worked."""
    CLOSED.success(CLOSED.acquire(listen), listen)


def by_name() -> None:
    """The same, with the look-up of the breaker."""
    breaker = BREAKERS.get("tool/x")
    breaker.success(breaker.acquire(listen), listen)


def rejected() -> None:
    """A call that an open breaker rejects."""
    try:
        OPEN.acquire(listen)
    except CircuitOpen:
        return
    raise AssertionError("it is open")


def listen(*change: str) -> None:
    """What a run would record."""


CLOSED, OPEN, BREAKERS = (
    CircuitBreaker("tool/x"),
    CircuitBreaker("tool/y", open_seconds=300),
    CircuitBreakers(),
)
for _ in range(5):
    OPEN.failure(OPEN.acquire())

if __name__ == "__main__":
    for name, work in (
        ("closed", closed),
        ("closed, by name", by_name),
        ("rejected", rejected),
    ):
        print(f"{name}: {cost(work):.0f} ns")
