"""The clock that a runtime reads: monotonic time, wall time and sleep."""

import asyncio
import time
from typing import Final, Protocol

MAX_SECONDS: Final = 1e11
"""The longest duration and the latest wall time (in the year 5138), in seconds, that is accepted."""


class Clock(Protocol):
    """The source of time of a runtime; tests pass one that they control."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; they never decrease."""
        ...

    def wall(self) -> float:
        """Return seconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)
