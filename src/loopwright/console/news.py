"""News of a journal: what is waiting for entries is woken when any process has written some, this one at once."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol, cast, runtime_checkable

from .._kernel.control.run_feeds import FeedWatcher, RunFeeds
from ..errors import JournalError
from ..journals.access import read_news
from ..journals.base import Journal
from .threads import call_in_thread

POLL = 0.025
"""Seconds between two looks at the marks of a journal, which cost microseconds, while a page is open."""
PATIENCE = 10
"""Looks after which a change that was no entry is told: most are a transaction that is being written."""
SLOW_POLL = 1.0
"""Seconds between two looks at a journal that tells no news."""


@runtime_checkable
class NewsJournal(Protocol):
    """A journal that tells when something was written, and to which runs."""

    def head_mark(self) -> object:
        """Return a value that compares differently once something was written."""
        ...

    def news(self, after: int) -> tuple[int, frozenset[str]]:
        """Return a number, and the runs that got entries since it returned the number `after`."""
        ...


class Subscription:
    """Waits for news of one run, or of all; a run at work in this process tells of its entries as they become durable."""

    def __init__(self, run_id: str | None, feeds: RunFeeds | None) -> None:
        self._run_id, self._changed = run_id, asyncio.Event()
        self._runs: set[str] = set()
        self._watcher: FeedWatcher | None = None
        if feeds is not None and run_id is not None:
            self._watcher = FeedWatcher(feeds, run_id, self._changed.set)

    def close(self) -> None:
        """Be told nothing more by the run."""
        if self._watcher is not None:
            self._watcher.close()

    def tell(self, runs: frozenset[str] | None) -> None:
        """Wake what waits if its run is among those that changed; `None` is any."""
        if self._run_id is None:
            self._runs |= runs or set()
            self._changed.set()
        elif runs is None or (self._run_id in runs and not self._run_reports):
            self._changed.set()

    @property
    def _run_reports(self) -> bool:
        """Whether the run itself tells of what is written."""
        return self._watcher is not None and self._watcher.feed.is_at_work

    async def wait(self, seconds: float) -> set[str] | None:
        """Return the runs that changed, at most `seconds` later; `None` if there is no news by then."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return None
        self._changed.clear()
        runs, self._runs = self._runs, set()
        return runs


class News:
    """Looks at a journal while a page waits for its news.

    Args:
        journal: has the runs.
        feeds: tell of the runs at work in this process, of a runtime that has them.
    """

    def __init__(self, journal: Journal, feeds: RunFeeds | None = None) -> None:
        self._journal, self._feeds = journal, feeds
        known = cast("object", journal)
        self._source = known if isinstance(known, NewsJournal) else None
        self._subscriptions: set[Subscription] = set()
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def subscribe(self, run_id: str | None) -> AsyncGenerator[Subscription]:
        """Wait for news of a run, `None` for all, within this context."""
        subscription = Subscription(run_id, self._feeds)
        self._subscriptions.add(subscription)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        task = self._task
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()
            if not self._subscriptions:
                task.cancel()
                self._task = None

    async def _look(self) -> None:
        """Look until this is cancelled."""
        number, mark, inbox = -1, None, self._journal.inbox_mark()
        looks = 0
        while True:
            found, sent = self._find_mark(), self._journal.inbox_mark()
            has_commands, inbox = sent != inbox, sent
            if self._source is None or found != mark:
                is_first, mark = mark is None, found
                number, runs = await self._read_news(number)
                if is_first or runs is not None:
                    self._tell(runs)
                else:
                    looks = looks or PATIENCE
            looks, is_due = max(looks - 1, 0), looks == 1
            if has_commands or is_due:
                self._tell(None)
            await asyncio.sleep(SLOW_POLL if self._source is None else POLL)

    def _find_mark(self) -> object:
        return None if self._source is None else self._source.head_mark()

    async def _read_news(self, number: int) -> tuple[int, frozenset[str] | None]:
        """Return the runs that changed; where that is not known, `None` for any."""
        if self._source is None:
            return number, None
        try:
            found, runs = await self._ask(self._source.news, max(number, 0))
        except JournalError:  # the readers meet it themselves, and say so
            return number, None
        # Without an entry it was a renewal, or a run was deleted.
        is_known = 0 <= number <= found and bool(runs)
        return found, runs if is_known else None

    async def _ask(
        self, news: Callable[[int], Any], number: int
    ) -> tuple[int, frozenset[str]]:
        if inspect.iscoroutinefunction(news):
            return await read_news(news, number)
        return await call_in_thread(news, number)

    def _tell(self, runs: frozenset[str] | None) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.tell(runs)
