"""Wait for a provider that does not work, for as long as the run may; then suspend the run."""

import random

from ...errors import CircuitOpen, ProviderError, Suspended
from ...events.effects import ModelWaiting
from ..session.interruptible_sleep import POLL_SECONDS, sleep_or_stop
from ..session.session import Session, out_of_time

FIRST_DELAY, MAX_DELAY = 0.5, 30.0
"""Seconds: the k-th pause is random in 0 … FIRST_DELAY * 2^k (full jitter)."""
MAX_ASKED = 24 * 3600.0
"""Seconds: a server that asks for a longer pause is asked again after these."""
NOTICEABLE_SECONDS = 0.5
"""Shorter waits for a breaker are not recorded."""
MIN_PAUSE = 0.001
"""Seconds between two questions to a breaker at least, whatever it says."""
MIN_WAKE_SECONDS = 30.0
"""After how many seconds at the earliest a suspended run is resumed."""


class ProviderWait:
    """The waiting of one model call: its length, which costs no active time of the run."""

    def __init__(
        self, session: Session, key: str, provider: str, failed: int = 0
    ) -> None:
        self._session, self._key, self._provider = session, key, provider
        self._waited = 0.0
        self._recorded_until = 0.0
        self.failed = failed
        """Attempts that failed, also in earlier processes: pauses grow with them."""
        self.problem = "its circuit breaker is open"
        """What the last attempt failed with, redacted."""

    def next_delay(self, error: ProviderError) -> float:
        """Return the seconds before the next attempt: what the server asks for, at most a day, else a random pause."""
        if error.retry_after is not None:
            # In this order, since NaN is not greater than any number.
            return min(max(0.0, error.retry_after), MAX_ASKED)
        max_wait = min(MAX_DELAY, FIRST_DELAY * 2 ** min(self.failed, 10))
        return random.uniform(0, max_wait)  # noqa: S311 - jitter

    async def pause_after(self, error: ProviderError) -> None:
        """Wait before the next attempt after one that failed."""
        delay = self.next_delay(error)
        self.failed += 1
        await self.sleep(delay)

    async def sleep(self, seconds: float) -> None:
        """Wait. Raises `Suspended` if the run would wait for too long, `Aborted` if it is to stop."""
        self._check(seconds)
        session = self._session
        with session.active.waiting:
            await sleep_or_stop(session, seconds)
        self._waited += seconds
        if session.command_log.stopping:
            raise session.intake.stop_signal()
        if session.remaining() == 0:
            raise out_of_time()

    async def sleep_until_admitted(self, rejection: CircuitOpen) -> None:
        """Wait before the breaker is asked again; an open one may close at any time."""
        seconds = max(rejection.retry_after or 0.0, MIN_PAUSE)
        self._check(seconds)
        self._record(seconds)
        if not rejection.retryable:
            seconds = min(seconds, POLL_SECONDS)  # then it asks the breaker again
        await self.sleep(seconds)

    def _check(self, seconds: float) -> None:
        """Raise `Suspended` if another wait exceeds what the run may wait in one stretch."""
        services = self._session.services
        max_wait = services.limits.max_provider_wait
        if max_wait is None or self._waited + seconds <= max_wait:
            return
        wake_at = services.clock.wall() + max(seconds, MIN_WAKE_SECONDS)
        text = f"{self._provider} does not work; the run waited {self._waited:.0f} s: {self.problem}"
        raise Suspended(text, reason="provider_unavailable", wake_at=wake_at)

    def _record(self, seconds: float) -> None:
        """Record that the call waits, once for each period in which the breaker is open."""
        wall = self._session.services.clock.wall()
        if seconds < NOTICEABLE_SECONDS or wall < self._recorded_until:
            return
        self._recorded_until = wall + seconds
        waited = self._session.active.take_waited()
        waiting = ModelWaiting("circuit_open", round(wall + seconds, 3), waited)
        self._session.writer.record(self._key, waiting)
