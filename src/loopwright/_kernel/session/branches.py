"""Count the branches of a gather, or the calls of an act, and let a bounded number run at a time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ...errors import Suspended
from .replay_end import ReplayEnd


class Branches:
    """The branches that work in place of their parent.

    Those that had begun when the run's process ended run at once, whatever the bound is
    now, so that each of them can replay; the others wait for a place.

    Args:
        replay_end: what waits for all branches that run.
        begun: the number of branches of which the journal holds entries.
        new: the number of the others.
        max_concurrency: how many may run at a time.
    """

    def __init__(
        self, replay_end: ReplayEnd, begun: int, new: int, max_concurrency: int
    ) -> None:
        self._replay_end = replay_end
        self._begun, self._new = begun, new
        self._max = max(max_concurrency, 1)
        self._places = asyncio.Semaphore(max(self._max - begun, 0))
        replay_end.add_branches(self._running - 1)

    @property
    def _running(self) -> int:
        """The number of branches that run now; where none is left, their parent does."""
        places = max(self._max - self._begun, 0)
        return max(self._begun + min(self._new, places), 1)

    @asynccontextmanager
    async def place(self, *, begun: bool) -> AsyncGenerator[None]:
        """Hold a place while a branch runs; a new branch waits for one."""
        try:
            if not begun:
                await self._places.acquire()
            yield
        finally:
            self._close(begun)

    def _close(self, begun: bool) -> None:
        before = self._running
        has_surplus = self._begun > self._max
        self._begun -= begun
        self._new -= not begun
        if not has_surplus:
            self._places.release()
        self._replay_end.add_branches(self._running - before)


def combine_waits(waiting: list[Suspended]) -> Suspended:
    """Return what a parent waits for whose branches wait: a person before a time, the first time."""
    first = min(waiting, key=_needs_a_time)
    times = [one.wake_at for one in waiting if one.wake_at]
    text = f"waiting in {len(waiting)} branches, first: {first}"
    return Suspended(text, reason=first.reason, wake_at=min(times, default=0.0))


def _needs_a_time(waiting: Suspended) -> bool:
    """Whether a branch waits for a time alone, and not for a person."""
    return waiting.wake_at > 0
