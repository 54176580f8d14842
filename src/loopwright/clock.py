"""The clock that a runtime reads: monotonic time, wall time and sleep."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Final, Protocol

MAX_SECONDS: Final = 1e11
"""The longest duration and the latest wall time (in the year 5138), in seconds, that is accepted."""

_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


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

    @staticmethod
    def boot() -> float:
        """Return seconds from an arbitrary start that also count while the machine sleeps."""
        if _BOOT_CLOCK is None:
            return time.monotonic()
        return time.clock_gettime(_BOOT_CLOCK)


def read_boot_time(clock: Clock) -> float:
    """Return seconds that also count while the machine sleeps, where the clock can tell."""
    boot: Callable[[], float] = getattr(clock, "boot", clock.monotonic)
    return boot()


@dataclasses.dataclass(frozen=True)
class ClockReading:
    """The clocks at one moment: none of them alone says how much time has passed since.

    The monotonic clock pauses while the machine sleeps, the wall clock may be set back or forward, and not every
    system (nor every clock of a test) has one that counts sleep as well.
    """

    monotonic: float
    boot: float
    wall: float

    @classmethod
    def take(cls, clock: Clock) -> "ClockReading":
        """Return what a clock shows now."""
        return cls(clock.monotonic(), read_boot_time(clock), clock.wall())

    def elapsed(self, clock: Clock) -> float:
        """Return the greatest number of seconds that have passed by any of the clocks."""
        now = ClockReading.take(clock)
        return max(
            now.monotonic - self.monotonic, now.boot - self.boot, now.wall - self.wall
        )
