"""Hears what is sent to the runs of this process: one cheap look at the inbox now and then, however many they are."""

import asyncio
from typing import Protocol

from ..._internal.log import logger
from ...errors import format_error
from ...journals.base import Journal

EVERY = 0.25  # seconds between two looks
BEFORE = -1  # nobody asked for news yet: the first look asks how far they go alone, since all runs read then anyway


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

    A timer of the loop looks whether anything was sent at all; only then the runs to which it was sent read it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}

    def add(self, run: Listening) -> None:
        """Hear for a run from now on; to be called in its event loop. What was sent before is read too."""
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            for closed in [known for known in self._ears if known.is_closed()]:
                del self._ears[closed]
            ear = self._ears[loop] = _Ear(self._journal, loop)
        ear.add(run)

    def discard(self, run: Listening) -> None:
        """Do not hear for it any more."""
        loop = asyncio.get_running_loop()
        ear = self._ears.get(loop)
        if ear is None:
            return
        ear.discard(run)
        if not ear.runs:
            ear.close()
            del self._ears[loop]


class _Ear:
    """The runs of one event loop, and the timer that looks for them."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self.runs: dict[int, Listening] = {}
        self._unread: dict[
            int, str
        ] = {}  # runs whose inbox is to be read, with why that failed if it was tried
        self._sent = (
            False  # whether something was sent, and it is not known yet to which runs
        )
        self._upto = BEFORE  # as far as the journal has told to which
        self._journal, self._loop = journal, loop
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None
        self._seen = self._mark()
        self._timer = loop.call_later(EVERY, self._look)

    def add(self, run: Listening) -> None:
        """One more run; something may have been sent to it before anybody looked."""
        self.runs[id(run)] = run
        self._unread[id(run)] = ""

    def discard(self, run: Listening) -> None:
        """One run less."""
        self.runs.pop(id(run), None)
        self._unread.pop(id(run), None)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(
            EVERY, self._look
        )  # before anything that may fail
        if self._reading is not None:
            return
        mark = self._mark()
        if mark != self._seen:
            self._seen, self._sent = mark, True
        if self._sent or self._unread:
            self._reading = self._loop.create_task(self._read())
            self._reading.add_done_callback(self._was_read)

    def _mark(self) -> object:
        """What changes when something is sent; of a journal that cannot say it, something new each time."""
        mark = getattr(self._journal, "inbox_mark", None)
        try:
            found = object() if mark is None else mark()
        except Exception as error:  # noqa: BLE001 - a journal may be anybody's, and the timer has to go on
            found, problem = object(), format_error(error)
            if problem != self._problem:
                logger().warning("inbox_not_looked_at", error=problem)
            self._problem = problem
        else:
            self._problem = ""
        return found

    async def _told(self) -> list[int]:
        """The runs that something was sent to; all of them if the journal cannot say to which."""
        news, after = getattr(self._journal, "inbox_news", None), self._upto
        if news is None:
            self._upto = 0
            return list(self.runs)
        try:
            self._upto, told = await asyncio.to_thread(news, after)
        except Exception:  # noqa: BLE001 - what is wrong shows when they read
            return list(self.runs)
        return [
            known
            for known, run in self.runs.items()
            if after == BEFORE or run.run_id in told
        ]

    def _was_read(self, task: "asyncio.Task[None]") -> None:
        self._reading = None

    async def _read(self) -> None:
        """Let the runs read; one that cannot is tried again with the next look, and said to be so once."""
        if self._sent or self._upto == BEFORE:
            self._sent = False
            for known in await self._told():
                self._unread.setdefault(known, "")
        for known, before in list(self._unread.items()):
            run = self.runs.get(known)
            problem = "" if run is None else await self._problem_of(run, before)
            if problem and known in self.runs:
                self._unread[known] = problem
            else:
                self._unread.pop(known, None)

    async def _problem_of(self, run: Listening, before: str) -> str:
        """Let one run read; why it cannot, empty if it can."""
        try:
            await run.listen()
        except Exception as error:  # noqa: BLE001 - the run goes on without: its inbox is not its journal
            problem = format_error(error)
            if problem != before:
                logger().warning("inbox_not_read", run_id=run.run_id, error=problem)
            return problem or type(error).__name__
        return ""
