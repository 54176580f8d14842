"""The clock that a runtime reads: monotonic time, wall time and sleep."""

import asyncio
import dataclasses
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

MAX_SECONDS: Final = 1e11
"""The longest duration and the latest wall time (in the year 5138), in seconds, that is accepted."""

_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """The source of time of a runtime; tests pass one that they control.

    A clock may also have a method `boot` that returns seconds which count while the machine sleeps too, and a `boot_id`,
    a text that is the same for all clocks whose `boot` seconds compare, such as those of one machine since it started.
    """

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

    @property
    def boot_id(self) -> str:
        """Return the id of this machine's boot; empty if the system has none."""
        return _read_boot_id()


@functools.cache
def _read_boot_id() -> str:
    """Return the id of the boot; in a time namespace of its own, which has other clocks, with its number."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    try:
        return f"{boot}/{os.stat('/proc/self/ns/time').st_ino}"
    except OSError:
        return boot


def read_boot_time(clock: Clock) -> float:
    """Return seconds that also count while the machine sleeps, where the clock can tell."""
    boot: Callable[[], float] = getattr(clock, "boot", clock.monotonic)
    return boot()


@dataclasses.dataclass(frozen=True)
class ClockReading:
    """The clocks at one moment: none of them alone says how much time has passed since.

    The monotonic clock pauses while the machine sleeps, the wall clock may be set back or forward, and not every
    system (nor every clock of a test) has one that counts sleep as well. `boot` compares with what other clocks of the
    same `boot_id` show, unless that is empty.
    """

    monotonic: float
    boot: float
    wall: float
    boot_id: str = ""

    @classmethod
    def take(cls, clock: Clock) -> "ClockReading":
        """Return what a clock shows now."""
        boot_id: str = getattr(clock, "boot_id", "")
        return cls(clock.monotonic(), read_boot_time(clock), clock.wall(), boot_id)

    def elapsed(self, clock: Clock) -> float:
        """Return the greatest number of seconds that have passed by any of the clocks."""
        now = ClockReading.take(clock)
        return max(
            now.monotonic - self.monotonic, now.boot - self.boot, now.wall - self.wall
        )
