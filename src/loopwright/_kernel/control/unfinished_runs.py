"""The unfinished runs of a journal: those that wait are looked at again once something happened to them."""

import math

from ...clock import Clock
from ...journals.access import list_unfinished, read_news
from ...journals.base import Journal, RunInfo

MAX_AGE = 60.0
"""Seconds after which the list is read again although nothing seems to have been written."""


class UnfinishedRuns:
    """Lists the unfinished runs, and leaves out those that rest without news.

    The list is read again when the journal's mark says that an entry was written, and a resting run is looked at again
    when it has other entries, a new command, or its time has come.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self.run_ids: set[str] = set()
        """The unfinished runs, as they were listed last."""
        self._infos: list[RunInfo] = []
        self._chosen: list[RunInfo] = []
        self._is_stale, self._wake_at = True, math.inf
        self._head: object = None
        self._read_at = -math.inf
        self._inbox: object = None
        self._number = -1
        self._resting: dict[str, tuple[int, int, float]] = {}

    async def find(self, now: float) -> list[RunInfo]:
        """Return the runs to look at now (wall clock, seconds), the oldest first."""
        await self._read_commands()
        await self._read_list()
        if self._is_stale or self._wake_at <= now:
            self._choose(now)
        return self._chosen

    def _choose(self, now: float) -> None:
        """Choose the runs to look at, until something happens."""
        self._chosen = [info for info in self._infos if not self._rests(info, now)]
        times = [wake_at for _, _, wake_at in self._resting.values() if wake_at > now]
        self._wake_at, self._is_stale = min(times, default=math.inf), False

    def expire(self) -> None:
        """Read the list again at the next look, since it was not as it seemed."""
        self._read_at = -math.inf

    async def read(self) -> list[RunInfo]:
        """Return all unfinished runs as they are now, newest first."""
        return await list_unfinished(self._journal)

    def rest(self, info: RunInfo, wake_at: float) -> None:
        """Look at a run again at a time (wall clock, seconds; 0 for never), or if something happens to it."""
        self._resting[info.run_id] = info.head_seq, info.fence, wake_at or math.inf
        self._is_stale = True

    def _rests(self, info: RunInfo, now: float) -> bool:
        known = self._resting.get(info.run_id)
        if known is None or known[:2] != (info.head_seq, info.fence):
            return False
        return now < known[2] and info.status in ("waiting", "suspended")

    async def _read_list(self) -> None:
        """Read the list, unless nothing was written since."""
        mark, now = self._read_mark("head_mark"), self._clock.monotonic()
        is_known = mark is not None and mark == self._head
        if is_known and now - self._read_at < MAX_AGE:
            return
        infos = await self.read()
        self._infos, self._head, self._read_at = infos[::-1], mark, now
        self._is_stale = True
        self.run_ids = {info.run_id for info in infos}
        for run_id in self._resting.keys() - self.run_ids:
            del self._resting[run_id]

    def _read_mark(self, name: str) -> object:
        """Return a mark of the journal; `None` if it has none, so that all is looked at."""
        read: object = getattr(self._journal, name, None)
        return read() if callable(read) else None

    async def _read_commands(self) -> None:
        """Wake the runs that got a command since the last time: all of them if the journal does not say which."""
        mark = self._read_mark("inbox_mark")
        if mark is not None and mark == self._inbox:
            return
        news = getattr(self._journal, "inbox_news", None)
        if news is None:
            self._resting.clear()
        else:
            self._number, changed = await read_news(news, self._number)
            for run_id in changed:
                self._resting.pop(run_id, None)
        self._inbox, self._is_stale = mark, True
