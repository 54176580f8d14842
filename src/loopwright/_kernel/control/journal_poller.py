"""Poll a journal for what other processes write: one cheap look now and then, for all who wait."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from ..._internal.log import logger
from ..._internal.own_errors import read_own_error
from ...errors import format_error
from ...journals.access import read_news
from ...journals.base import Journal
from ...journals.pushes import Pushed, concerns, follow_pushes

INTERVAL = 0.25  # seconds between two looks
PUSHED_INTERVAL = 5.0  # the same where the journal says when to look
UNKNOWN_POSITION = -1  # the first look asks for the position alone: all runs read then


@dataclass(frozen=True)
class PolledSource:
    """A part of a journal that is polled.

    Args:
        mark: the journal's method that returns what changes when something is written.
        news: its method that returns the runs to which something was written since.
        unmarked: the event that is logged if the first fails.
        unreadable: the event that is logged if a watcher fails.
        push: its method, if it has one, that yields the runs to which something was written, as soon as it is.
    """

    mark: str
    news: str
    unmarked: str
    unreadable: str
    push: str = ""


INBOX = PolledSource(
    "inbox_mark", "inbox_news", "inbox_not_looked_at", "inbox_unreadable", "watch_inbox"
)
"""The commands that are sent to runs."""
ENTRIES = PolledSource(
    "head_mark", "news", "entries_not_looked_at", "entries_unreadable"
)
"""The entries of runs."""


class PollWatcher(Protocol):
    """What is told of news about a run."""

    @property
    def run_id(self) -> str:
        """The run's name."""
        ...

    async def listen(self) -> None:
        """Take what was written since the last time."""
        ...


class JournalPoller:
    """Polls one part of a journal for watchers in each event loop of this process.

    A timer of the loop checks whether anything was written; only then are the watchers told whose runs it concerns.
    """

    def __init__(self, journal: Journal, source: PolledSource = INBOX) -> None:
        self._journal, self._source = journal, source
        self._pollers: dict[asyncio.AbstractEventLoop, _LoopPoller] = {}

    def add(self, watcher: PollWatcher) -> None:
        """Poll for a watcher, in this event loop; it is told of what was written before, too."""
        loop = asyncio.get_running_loop()
        poller = self._pollers.get(loop)
        if poller is None:
            self._discard_closed()
            poller = _LoopPoller(self._journal, self._source, loop)
            self._pollers[loop] = poller
        poller.add(watcher)

    def discard(self, watcher: PollWatcher) -> None:
        """Poll for a watcher no longer."""
        loop = asyncio.get_running_loop()
        poller = self._pollers.get(loop)
        if poller is None:
            return
        poller.discard(watcher)
        if not poller.watchers:
            poller.close()
            del self._pollers[loop]

    def _discard_closed(self) -> None:
        for loop in list(self._pollers):
            if loop.is_closed():
                del self._pollers[loop]


class _LoopPoller:
    """The watchers of one event loop, and the timer that looks for them."""

    def __init__(
        self,
        journal: Journal,
        source: PolledSource,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.watchers: dict[int, PollWatcher] = {}
        self._unread: dict[int, str] = {}
        """The watchers that have to be told, with why that failed, if it was tried."""
        self._has_news = False
        """Whether something was written, and it is not known yet to which run."""
        self._position = UNKNOWN_POSITION  # of the news that the journal gave
        self._journal, self._source, self._loop = journal, source, loop
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None
        self._last_mark = self._get_mark()
        self._interval, self._push_problem = INTERVAL, ""
        self._timer = loop.call_later(INTERVAL, self._look)
        self._is_pushed = False
        """Whether news came since the watchers were told last."""
        self._receiving: asyncio.Task[None] | None = None
        push = getattr(journal, source.push, None)
        if push is not None:
            pushes = follow_pushes(push, self._take, self._end_push, INTERVAL)
            self._receiving = loop.create_task(pushes)

    def add(self, watcher: PollWatcher) -> None:
        """Add a watcher; something may have been written before the first look."""
        self.watchers[id(watcher)] = watcher
        self._unread[id(watcher)] = ""
        self._look_soon()

    def discard(self, watcher: PollWatcher) -> None:
        """Remove a watcher."""
        self.watchers.pop(id(watcher), None)
        self._unread.pop(id(watcher), None)

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()
        self._is_pushed = False
        for task in (self._reading, self._receiving):
            if task is not None:
                task.cancel()

    def _end_push(self, problem: str) -> None:
        """Look as often as at a journal that pushes nothing, until another watch has begun."""
        self._interval = INTERVAL
        self._look_soon()
        if problem not in ("", self._push_problem):
            logger().warning(self._source.unmarked, error=problem)
        self._push_problem = problem

    def _take(self, run_ids: Pushed) -> None:
        """Tell the watchers of these runs; `None` is all of them, since something may have been missed."""
        self._interval = PUSHED_INTERVAL
        known = self.watchers.items()
        new = [one for one, watcher in known if concerns(run_ids, watcher.run_id)]
        self._unread.update((one, "") for one in new)
        self._is_pushed |= bool(new)
        self._continue()

    def _look_soon(self) -> None:
        """Look within `INTERVAL`; a look that is due before is not put off, however often this is called."""
        due = min(self._timer.when(), self._loop.time() + INTERVAL)
        self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        # The next look is planned first, since anything below may fail.
        self._timer = self._loop.call_later(self._interval, self._look)
        if self._reading is not None:
            return
        mark = self._get_mark()
        if mark != self._last_mark:
            self._last_mark, self._has_news = mark, True
        if self._has_news or self._unread:
            self._begin_reading()

    def _begin_reading(self) -> None:
        self._is_pushed = False
        self._reading = self._loop.create_task(self._read())
        self._reading.add_done_callback(self._end_reading)

    def _get_mark(self) -> object:
        """Return what changes when something is written; of a journal without it, something new each time."""
        read_mark = getattr(self._journal, self._source.mark, None)
        if read_mark is None:
            return object()
        try:
            mark: object = read_mark()
        except Exception as error:  # noqa: BLE001 - a journal may be third-party code, and the timer must continue
            problem = format_error(error)
            if problem != self._problem:
                logger().warning(self._source.unmarked, error=problem)
            self._problem = problem
            return object()
        self._problem = ""
        return mark

    async def _find_news(self) -> list[int]:
        """Return the watchers of runs to which something was written; all of them if the journal cannot say."""
        news = getattr(self._journal, self._source.news, None)
        after = self._position
        if news is None:
            self._position = 0
            return list(self.watchers)
        try:
            self._position, run_ids = await read_news(news, after)
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - the problem shows when the watchers read
            read_own_error(raised)
            return list(self.watchers)
        if after == UNKNOWN_POSITION:
            return list(self.watchers)
        return [
            known
            for known, watcher in self.watchers.items()
            if watcher.run_id in run_ids
        ]

    def _end_reading(self, task: "asyncio.Task[None]") -> None:
        self._reading = None
        # What failed, or came while others were read, waits for no push: that may be seconds away.
        if self._unread:
            self._look_soon()
        self._continue()

    def _continue(self) -> None:
        """Read what was pushed, once what is being read is done."""
        if self._is_pushed and self._reading is None:
            self._begin_reading()

    async def _read(self) -> None:
        """Tell the watchers; one that fails is tried again with the next look, and logged once."""
        if self._has_news or self._position == UNKNOWN_POSITION:
            self._has_news = False
            for known in await self._find_news():
                self._unread.setdefault(known, "")
        for known, earlier_problem in list(self._unread.items()):
            watcher = self.watchers.get(known)
            problem = ""
            if watcher is not None:
                problem = await self._tell(watcher, earlier_problem)
            if problem and known in self.watchers:
                self._unread[known] = problem
            else:
                self._unread.pop(known, None)

    async def _tell(self, watcher: PollWatcher, earlier_problem: str) -> str:
        """Tell one watcher; return why it failed, or an empty text."""
        try:
            await watcher.listen()
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - a run continues without its inbox
            error = read_own_error(raised)
            problem = format_error(error)
            if problem != earlier_problem:
                event, run_id = self._source.unreadable, watcher.run_id
                logger().warning(event, run_id=run_id, error=problem)
            return problem or type(error).__name__
        return ""
