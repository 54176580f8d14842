"""Retry budget: retries stay a bounded share of all calls, so that an outage is not multiplied.

Source: Finagle, `RetryBudget` (deposits that expire after a time, beside a constant minimum).
"""

from collections import deque

from ..clock import Clock, SystemClock
from .circuit_breaker import LOCK


class RetryBudget:
    """What pays for retries: recent successful calls, and a small reserve that time refills.

    In any period there are at most `reserve` retries, `per_second` more for each of its
    seconds, and `earned` for each call that succeeded in it or in the `window` before. So
    while some calls succeed, retries keep pace with them, and when none does they are few.

    A caller that it cannot pay for waits until it can: the budget bounds how many attempts
    are sent, and fails no call. Safe in threads: two event loops with one runtime do not
    spend the same retry.

    Args:
        reserve: the retries that need no successful call; all are there at the start.
        per_second: how many of these come back in a second.
        earned: the retries that each successful call pays for. With 1 they suffice while
            half of the calls succeed; a circuit breaker opens where fewer do.
        window: seconds after which what a call earned is void.
        clock: the source of monotonic time, for tests.
    """

    def __init__(
        self,
        *,
        reserve: float = 10.0,
        per_second: float = 1.0,
        earned: float = 1.0,
        window: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self._max_reserve, self._per_second = reserve, per_second
        self._earned_each, self._window = earned, window
        self._clock: Clock = clock or SystemClock()
        self._reserve, self._filled_at = reserve, self._clock.monotonic()
        self._deposits: deque[tuple[int, float]] = deque()
        """What was earned and not spent in each second, the oldest first."""

    def earn(self) -> None:
        """Add what a successful call pays for."""
        with LOCK:
            second = int(self._clock.monotonic())
            tokens = self._earned_each
            if self._deposits and self._deposits[-1][0] == second:
                tokens += self._deposits.pop()[1]
            self._deposits.append((second, tokens))
            if self._deposits[0][0] < second - self._window:
                self._expire(second)

    def spend(self) -> bool:
        """Pay for one retry; return whether the budget could."""
        with LOCK:
            now = self._clock.monotonic()
            refilled = self._reserve + (now - self._filled_at) * self._per_second
            self._reserve, self._filled_at = min(self._max_reserve, refilled), now
            self._expire(int(now))
            if sum(tokens for _, tokens in self._deposits) >= 1:
                self._withdraw()
                return True
            granted = self._reserve >= 1
            self._reserve -= granted
        return granted

    def _expire(self, second: int) -> None:
        """Forget what was earned before the window."""
        while self._deposits and self._deposits[0][0] < second - self._window:
            self._deposits.popleft()

    def _withdraw(self) -> None:
        """Take one retry from what was earned, the oldest first."""
        left = 1.0
        while left > 0 and self._deposits:
            second, tokens = self._deposits.popleft()
            if tokens > left:
                self._deposits.appendleft((second, tokens - left))
            left -= tokens
