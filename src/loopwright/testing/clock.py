"""FakeClock: a clock that a test controls."""

import asyncio
import secrets


class FakeClock:
    """A clock that moves only by `advance` and by `sleep`, which returns at once."""

    def __init__(self, *, wall: float = 1_700_000_000.0) -> None:
        self._now, self._wall = 1000.0, wall
        self.slept: list[float] = []
        self.boot_id = f"fake-{secrets.token_hex(8)}"
        """What this clock shows compares with no other clock."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return self._now

    def wall(self) -> float:
        """Return seconds since the Unix epoch."""
        return self._wall + self._now - 1000.0

    async def sleep(self, seconds: float) -> None:
        """Advance by `seconds` without waiting."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`."""
        self._now += seconds
