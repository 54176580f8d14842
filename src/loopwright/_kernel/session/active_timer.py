"""Do something once a run has been active for a number of seconds."""

import asyncio
from collections.abc import Callable

from .session import Session

MIN_SECONDS = 0.02
"""How soon a timer looks again whose time has not come, since the clock of the run was stopped."""


class ActiveTimer:
    """Calls a function once the run has been active until `deadline`; replayed time does not count.

    It is armed by what is new in the branches that it bounds, so that a branch that is
    recorded as a whole never meets it.
    """

    def __init__(
        self, session: Session, deadline: float, expire: Callable[[], None]
    ) -> None:
        self._session, self._deadline, self._expire = session, deadline, expire
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, key: str) -> None:
        """Begin to count, unless it does."""
        if self._handle is None:
            self._schedule(0.0)

    def cancel(self) -> None:
        """Never call the function."""
        if self._handle is not None:
            self._handle.cancel()

    def _schedule(self, min_seconds: float) -> None:
        remaining = self._deadline - self._session.active.seconds()
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(max(remaining, min_seconds), self._check)

    def _check(self) -> None:
        is_over = self._session.active.seconds() >= self._deadline
        if is_over and self._session.replay_end.is_reached:
            self._expire()
        else:
            self._schedule(MIN_SECONDS)
