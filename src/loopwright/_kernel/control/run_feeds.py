"""Feeds of the runs at work in this process: entries that are durable, and chunks of replies, for those that watch."""

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...events.entry import Entry
from ...journals.base import Journal
from ...providers.base import Delta
from .journal_poller import ENTRIES, JournalPoller

News: TypeAlias = Sequence[Entry] | Delta
MAX_SILENCE = 5.0
"""Seconds after which a watcher reads the journal although nothing was told: the run may have been deleted."""


class RunFeed:
    """What happens to one run in this process; it lasts as long as the run is at work here, or watched.

    The run tells it which entries are durable, and what its models write.
    """

    def __init__(self) -> None:
        self.delta_watchers: list[Callable[[Delta], None]] = []
        self.subscriptions: list[FeedWatcher] = []
        self._replies: dict[str, list[Delta]] = {}
        """What was shown of the replies in progress, by their keys."""
        self._sessions = 0

    @property
    def is_at_work(self) -> bool:
        """Whether this process works on the run."""
        return self._sessions > 0

    def begin(self) -> None:
        """Note that this process begins to work on the run."""
        self._sessions += 1

    def end(self) -> None:
        """Note that this process stops working on the run; others may write it from now on."""
        self._sessions -= 1
        self._replies.clear()
        for subscription in tuple(self.subscriptions):
            subscription.call(subscription.look)

    def publish(self, entries: Sequence[Entry]) -> None:
        """Tell entries that are durable."""
        for subscription in tuple(self.subscriptions):
            subscription.call(subscription.put, entries)

    def show(self, delta: Delta) -> None:
        """Show a chunk of a reply; those who come later get what was shown of it before."""
        shown = self._replies.setdefault(delta.key, [])
        if shown and shown[0].attempt != delta.attempt:
            shown.clear()
        shown.append(delta)
        if delta.completion is not None:
            del self._replies[delta.key]
        for watcher in tuple(self.delta_watchers):
            watcher(delta)

    def show_replies(self, subscription: "Subscription") -> None:
        """Show a subscription the replies in progress from their beginning, if it wants them."""
        if subscription.wants_deltas:
            for shown in self._replies.values():
                subscription.items.extend(shown)
            self.delta_watchers.append(subscription.receive)

    def hide_replies(self, subscription: "Subscription") -> None:
        """Show a subscription no more replies."""
        with contextlib.suppress(ValueError):
            self.delta_watchers.remove(subscription.receive)


class RunFeeds:
    """The feeds of a runtime by run; its poller tells what other processes write."""

    def __init__(self, journal: Journal) -> None:
        self.poller = JournalPoller(journal, ENTRIES)
        self._feeds: weakref.WeakValueDictionary[str, RunFeed] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()

    def open(self, run_id: str) -> RunFeed:
        """Return the feed of a run; it is kept for as long as a session or a watcher holds it."""
        with self._lock:
            feed = self._feeds.get(run_id)
            if feed is None:
                feed = self._feeds[run_id] = RunFeed()
            return feed


class FeedWatcher:
    """Calls a function, in the event loop in which this is made, whenever entries of a run at work here are durable.

    The function is called too when this process stops working on the run.
    """

    def __init__(self, feeds: RunFeeds, run_id: str, wake: Callable[[], None]) -> None:
        self.run_id, self.wake = run_id, wake
        self.feed = feeds.open(run_id)
        self._loop = asyncio.get_running_loop()
        self.feed.subscriptions.append(self)

    def close(self) -> None:
        """Be told nothing more; from any thread."""
        with contextlib.suppress(ValueError):
            self.feed.subscriptions.remove(self)

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop of the watcher."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            function(*arguments)
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def put(self, item: News) -> None:
        """Take an item."""
        self.wake()

    def look(self) -> None:
        """Read the journal next."""
        self.wake()


class Subscription(FeedWatcher):
    """What one watcher was told of a run and has not taken yet; it may be in another event loop than the run."""

    def __init__(self, feeds: RunFeeds, run_id: str, *, deltas: bool) -> None:
        self.wants_deltas = deltas
        self.items: deque[News] = deque()
        self.is_stale = True
        """Whether the journal may have entries that were not told."""
        self._poller, self._has_news = feeds.poller, asyncio.Event()
        super().__init__(feeds, run_id, self._has_news.set)
        self.feed.show_replies(self)
        self._poller.add(self)

    def close(self) -> None:
        """Be told nothing more; from any thread."""
        super().close()
        self.feed.hide_replies(self)
        self.call(self._poller.discard, self)

    def put(self, item: News) -> None:
        """Take an item."""
        self.items.append(item)
        self.wake()

    def receive(self, delta: Delta) -> None:
        """Take a chunk of a reply, which is told from the event loop of the run."""
        self.call(self.put, delta)

    def look(self) -> None:
        """Read the journal next."""
        self.is_stale = True
        self.wake()

    async def listen(self) -> None:
        """Take note that another process wrote an entry; what this one writes it is told."""
        if not self.feed.is_at_work:
            self.look()

    async def wait(self) -> None:
        """Wait for an item, or until the journal is to be read."""
        try:
            async with asyncio.timeout(MAX_SILENCE):
                await self._has_news.wait()
            self._has_news.clear()
        except TimeoutError:
            self.is_stale = True

    def drop_replies(self, entries: Sequence[Entry]) -> None:
        """Drop the chunks of replies that are in these entries."""
        keys = {entry.key for entry in entries if entry.kind == "model_replied"}
        kept = [
            item
            for item in self.items
            if not isinstance(item, Delta) or item.key not in keys
        ]
        self.items.clear()
        self.items.extend(kept)
