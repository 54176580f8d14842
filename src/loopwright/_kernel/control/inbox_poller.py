"""Watch the inbox for the runs of this process: one cheap look now and then, for all of them."""

import asyncio
from typing import Protocol

from ..._internal.log import logger
from ...errors import format_error
from ...journals.base import Journal

INTERVAL = 0.25  # seconds between two looks
UNKNOWN_POSITION = -1  # the first look asks for the position alone: all runs read then


class WatchedRun(Protocol):
    """A run that receives commands."""

    @property
    def run_id(self) -> str:
        """Its name."""
        ...

    async def listen(self) -> None:
        """Receive what was sent since the last time."""
        ...


class InboxWatcher:
    """Watches a journal's inbox for the runs at work in each event loop of this process.

    A timer of the loop checks whether anything was sent; only then do the runs that it was sent to
    read their inbox.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._watchers: dict[asyncio.AbstractEventLoop, _LoopWatcher] = {}

    def add(self, run: WatchedRun) -> None:
        """Watch for a run, in its event loop; it reads what was sent before, too."""
        loop = asyncio.get_running_loop()
        watcher = self._watchers.get(loop)
        if watcher is None:
            self._discard_closed()
            watcher = self._watchers[loop] = _LoopWatcher(self._journal, loop)
        watcher.add(run)

    def discard(self, run: WatchedRun) -> None:
        """Watch for a run no longer."""
        loop = asyncio.get_running_loop()
        watcher = self._watchers.get(loop)
        if watcher is None:
            return
        watcher.discard(run)
        if not watcher.runs:
            watcher.close()
            del self._watchers[loop]

    def _discard_closed(self) -> None:
        for loop in list(self._watchers):
            if loop.is_closed():
                del self._watchers[loop]


class _LoopWatcher:
    """The watched runs of one event loop, and the timer that looks for them."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self.runs: dict[int, WatchedRun] = {}
        self._unread: dict[int, str] = {}
        """The runs that have to read their inbox, with why that failed, if it was tried."""
        self._has_news = (
            False  # something was sent, and it is not known yet to which run
        )
        self._position = UNKNOWN_POSITION  # of the news that the journal gave
        self._journal, self._loop = journal, loop
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None
        self._last_mark = self._get_mark()
        self._timer = loop.call_later(INTERVAL, self._look)

    def add(self, run: WatchedRun) -> None:
        """Add a run; commands may have been sent to it before the first look."""
        self.runs[id(run)] = run
        self._unread[id(run)] = ""

    def discard(self, run: WatchedRun) -> None:
        """Remove a run."""
        self.runs.pop(id(run), None)
        self._unread.pop(id(run), None)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _look(self) -> None:
        # The next look is planned first, since anything below may fail.
        self._timer = self._loop.call_later(INTERVAL, self._look)
        if self._reading is not None:
            return
        mark = self._get_mark()
        if mark != self._last_mark:
            self._last_mark, self._has_news = mark, True
        if self._has_news or self._unread:
            self._reading = self._loop.create_task(self._read())
            self._reading.add_done_callback(self._end_reading)

    def _get_mark(self) -> object:
        """Return what changes when something is sent; of a journal without it, something new each time."""
        inbox_mark = getattr(self._journal, "inbox_mark", None)
        if inbox_mark is None:
            return object()
        try:
            mark: object = inbox_mark()
        except Exception as error:  # noqa: BLE001 - a journal may be third-party code, and the timer must continue
            problem = format_error(error)
            if problem != self._problem:
                logger().warning("inbox_not_looked_at", error=problem)
            self._problem = problem
            return object()
        self._problem = ""
        return mark

    async def _find_news(self) -> list[int]:
        """Return the runs to which something was sent; all of them if the journal cannot say."""
        inbox_news, after = getattr(self._journal, "inbox_news", None), self._position
        if inbox_news is None:
            self._position = 0
            return list(self.runs)
        try:
            self._position, run_ids = await asyncio.to_thread(inbox_news, after)
        except Exception:  # noqa: BLE001 - the problem shows when the runs read
            return list(self.runs)
        if after == UNKNOWN_POSITION:
            return list(self.runs)
        return [known for known, run in self.runs.items() if run.run_id in run_ids]

    def _end_reading(self, task: "asyncio.Task[None]") -> None:
        self._reading = None

    async def _read(self) -> None:
        """Let the runs read; one that fails is tried again with the next look, and logged once."""
        if self._has_news or self._position == UNKNOWN_POSITION:
            self._has_news = False
            for known in await self._find_news():
                self._unread.setdefault(known, "")
        for known, earlier_problem in list(self._unread.items()):
            run = self.runs.get(known)
            problem = ""
            if run is not None:
                problem = await self._try_reading(run, earlier_problem)
            if problem and known in self.runs:
                self._unread[known] = problem
            else:
                self._unread.pop(known, None)

    async def _try_reading(self, run: WatchedRun, earlier_problem: str) -> str:
        """Let one run read its inbox; return why it failed, or an empty text."""
        try:
            await run.listen()
        except Exception as error:  # noqa: BLE001 - the run continues without: its inbox is not its journal
            problem = format_error(error)
            if problem != earlier_problem:
                logger().warning("inbox_unreadable", run_id=run.run_id, error=problem)
            return problem or type(error).__name__
        return ""
