"""A clock that moves only when told to, or when something sleeps on it."""

import asyncio


class FakeClock:
    """Stands still; `advance` moves it, and so does every `sleep`."""

    def __init__(self, *, wall: float = 1_700_000_000.0) -> None:
        self._now, self._wall = 1000.0, wall
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self._now

    def wall(self) -> float:
        """Seconds since the Unix epoch."""
        return self._wall + self._now - 1000.0

    async def sleep(self, seconds: float) -> None:
        """Move on by `seconds` at once."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._now += seconds
