"""Watch a run wherever it is at work: the entries that the journal has, then those that follow."""

import weakref
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from ...errors import ConfigError, UnknownRun
from ...events.entry import Entry
from ...events.run import RunFinished
from ...journals.access import read_run
from ...journals.base import Journal, check_run_id
from .run_feeds import RunFeeds, Subscription

Item = TypeVar("Item")


class RunWatch(Generic[Item]):
    """A run that is watched: iterate over it for the entries that are recorded, and then for those that follow.

    Each entry comes once, in order, and only when it is durable, so that `after=entry.seq` continues a watch that was
    cut off, also one of another process. It continues while the run waits, is suspended or changes its process, and ends
    with the entry that ends the run. With deltas, the chunks of replies come too while the run is at work in this process; a
    watch that begins in the middle of a reply gets the reply from its beginning.

    A cancelled `anext(watch)` loses nothing: it may be called again. `aclose`, leaving `async with watch`, and dropping
    the object all end the watch; the run notices nothing of it.
    """

    def __init__(
        self,
        journal: Journal,
        feeds: RunFeeds,
        run_id: str,
        *,
        after: int = 0,
        deltas: bool = False,
    ) -> None:
        self._run_id = check_run_id(run_id) or ""
        self._after = check_after(after)
        self._journal, self._feeds, self._deltas = journal, feeds, deltas
        self._subscription: Subscription | None = None
        self._ready: deque[Any] = deque()
        self._last: Entry | None = None
        """The newest entry of those that were handed out or are ready."""
        self._is_closed = False

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._run_id

    def __aiter__(self) -> Self:
        """Return itself: it is iterated once."""
        return self

    async def __anext__(self) -> Item:
        """Return the next item; raise `UnknownRun`, `ConfigError` for an `after` that is not there, or `JournalError`."""
        while not self._ready:
            if self._is_closed or self._has_ended():
                await self.aclose()
                raise StopAsyncIteration
            await self._fill(self._subscribe())
        return cast("Item", self._ready.popleft())

    async def aclose(self) -> None:
        """End the watch."""
        self._is_closed = True
        self._ready.clear()
        if self._subscription is not None:
            self._subscription.close()

    async def open(self) -> Self:
        """Read what is recorded, so that errors of the arguments come before the first item; return itself."""
        news = self._subscribe()
        if self._last is None and news.is_stale:
            await self._read(news)
        return self

    async def __aenter__(self) -> Self:
        """Open the watch in a context that ends it."""
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the watch."""
        await self.aclose()

    def _has_ended(self) -> bool:
        return self._last is not None and isinstance(self._last.event, RunFinished)

    def _subscribe(self) -> Subscription:
        """Return the subscription; it begins before the journal is read, so that nothing is missed."""
        if self._subscription is None:
            made = Subscription(self._feeds, self._run_id, deltas=self._deltas)
            self._subscription = made
            weakref.finalize(self, made.close).atexit = False
        return self._subscription

    async def _fill(self, news: Subscription) -> None:
        """Make the next items ready, or wait for news."""
        if news.is_stale:
            await self._read(news)
        elif news.items:
            item = news.items.popleft()
            if isinstance(item, Sequence):
                news.is_stale = not self._accept(item)
            else:
                self._ready.append(item)
        else:
            await news.wait()

    async def _read(self, news: Subscription) -> None:
        """Read the entries that follow the last one."""
        # Before the read, since news that come while it is under way ask for another one.
        news.is_stale = False
        try:
            entries = await self._read_entries(news)
        except BaseException:
            news.is_stale = True
            raise
        news.drop_replies(entries)
        self._accept(entries)

    async def _read_entries(self, news: Subscription) -> list[Entry]:
        if self._last is not None:
            return await read_run(self._journal, self._run_id, self._last.seq)
        # The entry before tells whether there is such a place, and whether the run has ended.
        begin = max(self._after - 1, 0)
        try:
            entries = await read_run(self._journal, self._run_id, begin)
        except UnknownRun:
            if not news.feed.is_at_work:
                raise
            return []  # nothing of it is stored yet
        if self._after == 0:
            return entries
        if not entries:
            count = len(await read_run(self._journal, self._run_id))
            raise ConfigError(
                f"after: run {self._run_id!r} has {count} entries, got {self._after}; "
                "pass the number of the last entry that was seen, or 0"
            )
        self._last = entries[0]
        return entries[1:]

    def _accept(self, entries: Sequence[Entry]) -> bool:
        """Make the entries ready that follow the last one; return whether none is missing before them."""
        for entry in entries:
            seen = 0 if self._last is None else self._last.seq
            if entry.seq > seen + 1:
                return False
            if entry.seq == seen + 1:
                self._ready.append(entry)
                self._last = entry
        return True


def check_after(after: object) -> int:
    """Return the number of an entry, or 0; raise `ConfigError` for anything else."""
    if type(after) is not int or after < 0:
        raise ConfigError(
            f"after: must be the number of an entry, or 0 for all, got {after!r}"
        )
    return after
