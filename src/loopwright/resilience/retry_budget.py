"""Retry budget: retries stay a bounded share of all calls, so that an outage is not multiplied."""

from ..clock import Clock, SystemClock
from .circuit_breaker import LOCK


class RetryBudget:
    """A token bucket that pays for retries; it is filled by successful calls, and by time.

    A caller for whom it has no token waits until it has one: the budget bounds how many
    attempts are sent, and fails no call. Safe in threads: two event loops with one runtime
    do not spend the same retry.

    Args:
        max_retries: the capacity of the bucket, which is full at the start.
        earned: the part of a retry that a successful call adds.
        per_second: the retries that each second adds.
        clock: the source of monotonic time, for tests.
    """

    def __init__(
        self,
        *,
        max_retries: float = 10.0,
        earned: float = 0.5,
        per_second: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._max_retries, self._earned = max_retries, earned
        self._per_second = per_second
        self._clock: Clock = clock or SystemClock()
        self._tokens, self._filled_at = max_retries, self._clock.monotonic()

    def earn(self) -> None:
        """Add the share of a successful call."""
        with LOCK:
            self._add(self._earned)

    def spend(self) -> bool:
        """Pay for one retry; return whether the budget could."""
        with LOCK:
            now = self._clock.monotonic()
            self._add((now - self._filled_at) * self._per_second)
            self._filled_at = now
            granted = self._tokens >= 1
            self._tokens -= granted
        return granted

    def _add(self, tokens: float) -> None:
        self._tokens = min(self._max_retries, self._tokens + tokens)
