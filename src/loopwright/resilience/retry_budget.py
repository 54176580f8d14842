"""Retry budget: retries stay a small share of all calls, so that an outage is not multiplied."""

from .circuit_breaker import LOCK


class RetryBudget:
    """A token bucket that pays for retries; each first attempt earns a tenth of a retry.

    Safe in threads: two event loops with one runtime do not spend the same retry.

    Args:
        max_retries: the capacity of the bucket, which is full at the start.
        earned: the part of a retry that a first attempt adds.
    """

    def __init__(self, *, max_retries: float = 10.0, earned: float = 0.1) -> None:
        self._max_retries, self._earned, self._tokens = max_retries, earned, max_retries

    def earn(self) -> None:
        """Add the share of a first attempt."""
        self._add(self._earned)

    @property
    def has_retry(self) -> bool:
        """Whether the budget can pay for one more retry."""
        return self._tokens >= 1

    def spend(self) -> bool:
        """Pay for one retry; return whether the budget could."""
        with LOCK:
            granted = self.has_retry
            self._tokens -= granted
        return granted

    def refund(self) -> None:
        """Return the token of a retry that was paid for and not made."""
        self._add(1)

    def _add(self, tokens: float) -> None:
        with LOCK:
            self._tokens = min(self._max_retries, self._tokens + tokens)
