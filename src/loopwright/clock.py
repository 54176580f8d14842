"""Time as an argument: a monotonic clock, a wall clock and a sleep."""

import asyncio
import time
from typing import Final, Protocol

LONGEST: Final = 1e11
"""Seconds: no command is sent later (in the year 5138), and nothing is allowed, or asked, for longer."""


class Clock(Protocol):
    """Where a runtime reads time; tests bring one that stands still."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    async def sleep(self, seconds: float, /) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    sleep = staticmethod(asyncio.sleep)
