"""Hears what is sent to the runs of this process: one cheap look at the inbox now and then, however many they are."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from .errors import LoopwrightError, text_of
from .journal import Journal
from .log import logger

EVERY = 0.25  # seconds between two looks


class Listening(Protocol):
    """A run that wants to hear."""

    @property
    def run_id(self) -> str:
        """Its name."""
        ...

    async def listen(self) -> None:
        """Take in what was sent since it listened last."""
        ...


class Listener:
    """Looks into a journal's inbox for the runs at work in each event loop of this process.

    A timer of the loop looks whether anything was sent at all; only then the runs read what is theirs.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}

    def add(self, run: Listening) -> None:
        """Hear for a run from now on; to be called in its event loop."""
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            ear = self._ears[loop] = _Ear(self._journal, loop)
        ear.runs[id(run)] = run

    def discard(self, run: Listening) -> None:
        """Do not hear for it any more."""
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            return
        ear.runs.pop(id(run), None)
        if not ear.runs:
            ear.close()
            del self._ears[loop]


def _mark(journal: Journal) -> object:
    """What changes when something is sent; of a journal that cannot say it, something new each time."""
    mark = getattr(journal, "inbox_mark", None)
    return object() if mark is None else mark()


class _Ear:
    """The runs of one event loop, and the timer that looks for them."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self.runs: dict[int, Listening] = {}
        self._journal, self._loop = journal, loop
        self._seen = _mark(journal)
        self._reading: asyncio.Task[None] | None = None
        self._timer = loop.call_later(EVERY, self._look)

    def _look(self) -> None:
        mark = _mark(self._journal)
        if mark != self._seen and self._reading is None:
            self._seen = mark
            self._reading = self._loop.create_task(self._read(list(self.runs.values())))
            self._reading.add_done_callback(self._was_read)
        self._timer = self._loop.call_later(EVERY, self._look)

    def _was_read(self, task: "asyncio.Task[None]") -> None:
        self._reading = None

    async def _read(self, runs: Sequence[Listening]) -> None:
        for run in runs:
            if id(run) in self.runs:
                try:
                    await run.listen()
                except LoopwrightError as error:  # the run goes on without: its inbox is not its journal
                    logger().warning("inbox_not_read", run_id=run.run_id, error=text_of(error))

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()
