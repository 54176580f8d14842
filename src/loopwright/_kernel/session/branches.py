"""Count the branches of a gather, or the calls of an act, and let a bounded number run at a time."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias

from ...errors import Suspended
from .replay_end import ReplayEnd

Turn: TypeAlias = asyncio.Future[None]
"""Done once a branch may run."""


class Branches:
    """The branches that work in place of their parent, or beside it.

    Those that had begun when the run's process ended run at once, whatever the bound is
    now, so that each of them can replay; the others wait for their turn.

    Args:
        replay_end: what waits for all branches that run.
        max_concurrency: how many may run at a time.
    """

    def __init__(
        self, replay_end: ReplayEnd, max_concurrency: int | None = None
    ) -> None:
        self._replay_end = replay_end
        self._max = max_concurrency or sys.maxsize
        self._running = 0
        self._queue: deque[Turn] = deque()
        self._is_beside = False

    def add(self, *, begun: bool) -> Turn:
        """Count a branch; return its turn."""
        turn: Turn = asyncio.get_running_loop().create_future()
        with self._counted():
            if begun:
                self._grant(turn)
            else:
                self._queue.append(turn)
                self._grant_next()
        return turn

    @asynccontextmanager
    async def place(self, turn: Turn) -> AsyncGenerator[None]:
        """Hold a place while a branch runs, from its turn on."""
        try:
            await turn
            yield
        finally:
            self.end(turn)

    def work_beside(self, *, beside: bool) -> None:
        """Note whether the parent works too, or waits for its branches."""
        with self._counted():
            self._is_beside = beside

    def end(self, turn: Turn) -> None:
        """End a branch, also one that has not had its turn."""
        with self._counted():
            if turn in self._queue:  # it was cancelled before its turn
                self._queue.remove(turn)
            else:
                self._running -= 1
            self._grant_next()

    def _grant_next(self) -> None:
        while self._queue and self._running < self._max:
            self._grant(self._queue.popleft())

    def _grant(self, turn: Turn) -> None:
        self._running += 1
        if not turn.done():
            turn.set_result(None)

    @contextmanager
    def _counted(self) -> Generator[None]:
        """Tell how many strands of the program more, or fewer, run after a change."""
        before = self._strands
        yield
        self._replay_end.add_branches(self._strands - before)

    @property
    def _strands(self) -> int:
        """The number of branches that run, and their parent if it works; where none is left, it does."""
        return self._running + 1 if self._is_beside else max(self._running, 1)


def combine_waits(waiting: list[Suspended]) -> Suspended:
    """Return what a parent waits for whose branches wait: a person before a time, the first time."""
    first = min(waiting, key=_needs_a_time)
    times = [one.wake_at for one in waiting if one.wake_at]
    text = f"waiting in {len(waiting)} branches, first: {first}"
    return Suspended(text, reason=first.reason, wake_at=min(times, default=0.0))


def _needs_a_time(waiting: Suspended) -> bool:
    """Whether a branch waits for a time alone, and not for a person."""
    return waiting.wake_at > 0
