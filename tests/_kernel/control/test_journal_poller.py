"""How soon a run hears of a command where the journal pushes them, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from loopwright._kernel.control.journal_poller import INTERVAL, JournalPoller
from loopwright.journals.base import Journal
from loopwright.testing.simulation.loop import SimulatedLoop

QUIET = 20 * INTERVAL
"""Longer than the time from one look to the next while the journal pushes."""


class PushedInbox:
    """The inbox of a journal that pushes, until `is_away`."""

    def __init__(self) -> None:
        self.pushed: asyncio.Queue[set[str] | None] = asyncio.Queue()
        self.mark = 0
        self.is_away = False

    def inbox_mark(self) -> int:
        return self.mark

    async def watch_inbox(self) -> AsyncIterator[set[str] | None]:
        if self.is_away:
            raise ConnectionError("the server is away")
        yield None
        while not self.is_away:
            yield await self.pushed.get()
        raise ConnectionError("the connection was lost")


class Listener:
    """A run that notes when it was told of news, and fails to take it `failures` times."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.failures = 0
        self.pause = 0.0
        self._heard = asyncio.Event()

    async def listen(self) -> None:
        await asyncio.sleep(self.pause)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the inbox was not read")
        self._heard.set()

    async def wait(self) -> float:
        """Return the seconds until it was told."""
        self._heard.clear()
        began = asyncio.get_running_loop().time()
        await self._heard.wait()
        return asyncio.get_running_loop().time() - began


Scene = Callable[[PushedInbox, JournalPoller, Listener], Coroutine[Any, Any, float]]


async def begin_late(
    inbox: PushedInbox, poller: JournalPoller, first: Listener
) -> float:
    """A command is pushed after a run has read its inbox, and before the poller knows the run."""
    late = Listener("late")
    inbox.pushed.put_nowait({"late"})
    await asyncio.sleep(0.01)
    poller.add(late)
    waited = await late.wait()
    poller.discard(late)
    return waited


async def begin_during_a_slow_read(
    inbox: PushedInbox, poller: JournalPoller, first: Listener
) -> float:
    """The same, while another run takes longer than `INTERVAL` to read."""
    first.pause = 2 * INTERVAL
    inbox.pushed.put_nowait({"first"})
    await asyncio.sleep(0.01)
    return await begin_late(inbox, poller, first) - first.pause


async def begin_many(
    inbox: PushedInbox, poller: JournalPoller, first: Listener
) -> float:
    """Runs begin more often than the poller looks."""
    hearing = asyncio.ensure_future(begin_late(inbox, poller, first))
    while not hearing.done():
        other = Listener("other")
        poller.add(other)
        await asyncio.sleep(INTERVAL / 4)
        poller.discard(other)
    return hearing.result()


async def fail_once(
    inbox: PushedInbox, poller: JournalPoller, first: Listener
) -> float:
    """A run fails to read what was pushed to it."""
    first.failures = 1
    inbox.pushed.put_nowait({"first"})
    return await first.wait()


async def lose_the_watch(
    inbox: PushedInbox, poller: JournalPoller, first: Listener
) -> float:
    """The watch breaks, none can be opened, and then a command comes."""
    inbox.is_away = True
    inbox.pushed.put_nowait(set())
    await asyncio.sleep(0.01)
    inbox.mark += 1
    return await first.wait()


@pytest.mark.parametrize(
    "scene",
    [begin_late, begin_during_a_slow_read, begin_many, fail_once, lose_the_watch],
)
def test_what_a_push_did_not_bring_is_looked_for_at_once(scene: Scene) -> None:
    async def play() -> float:
        inbox, first = PushedInbox(), Listener("first")
        poller = JournalPoller(cast(Journal, inbox))
        poller.add(first)
        await asyncio.sleep(4 * INTERVAL)  # the looks are rare from here on
        waited = await scene(inbox, poller, first)
        poller.discard(first)
        return waited

    loop = SimulatedLoop(random.Random(1))
    try:
        waited = loop.run_until_complete(play())
    finally:
        loop.close()
    assert waited <= 1.1 * INTERVAL


def test_a_quiet_journal_that_pushes_is_looked_at_rarely() -> None:
    looks: list[int] = []

    class Counted(PushedInbox):
        def inbox_mark(self) -> int:
            looks.append(1)
            return super().inbox_mark()

    async def play() -> None:
        first = Listener("first")
        poller = JournalPoller(cast(Journal, Counted()))
        poller.add(first)
        await asyncio.sleep(4 * INTERVAL)
        looks.clear()
        await asyncio.sleep(QUIET)
        poller.discard(first)

    loop = SimulatedLoop(random.Random(1))
    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    assert len(looks) <= 1


class PolledInbox:
    """The inbox of a journal that pushes nothing; its driver fails once, when something was sent."""

    def __init__(self, error: BaseException) -> None:
        self.mark = 0
        self._error: BaseException | None = error

    def inbox_mark(self) -> int:
        return self.mark

    async def inbox_news(self, after: int) -> tuple[int, frozenset[str]]:
        if self.mark and self._error is not None:
            error, self._error = self._error, None
            raise error
        return self.mark, frozenset({"first"} if self.mark > after else ())


@pytest.mark.parametrize("error", [OSError("reset"), asyncio.CancelledError()])
def test_news_reaches_a_run_though_the_driver_of_the_journal_failed(
    error: BaseException,
) -> None:
    async def play() -> float:
        inbox, first = PolledInbox(error), Listener("first")
        poller = JournalPoller(cast(Journal, inbox))
        poller.add(first)
        await asyncio.sleep(4 * INTERVAL)
        inbox.mark = 1
        async with asyncio.timeout(QUIET):
            waited = await first.wait()
        poller.discard(first)
        return waited

    loop = SimulatedLoop(random.Random(1))
    try:
        assert loop.run_until_complete(play()) <= 2.1 * INTERVAL
    finally:
        loop.close()
