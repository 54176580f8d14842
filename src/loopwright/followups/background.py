"""Background: does the follow-ups of runs that ended in this process, beside its other work."""

import asyncio
import concurrent.futures
import weakref
from collections.abc import Awaitable, Callable, Iterable

from .._internal.log import logger
from .._kernel.session.session import SUSPEND_REASON
from ..errors import LoopwrightError, RunBusy, format_error

MAX_CONCURRENCY = 4
"""Follow-ups that one event loop does at a time."""


class Background:
    """The follow-ups that this process does in the background; the others are for `drain` and for workers.

    Args:
        resume: the method of a runtime that resumes a run by its id; it is not kept alive.
    """

    def __init__(self, resume: Callable[[str], Awaitable[object]]) -> None:
        self._resume = weakref.WeakMethod(resume)
        self._at_work: dict[asyncio.Task[None], concurrent.futures.Future[None]] = {}
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def start(self, run_ids: Iterable[str]) -> None:
        """Begin with runs that are due, unless a worker ran what came before: it finds them by itself."""
        if SUSPEND_REASON.get() == "released":
            return
        resume = self._resume()
        if resume is None:  # the runtime is gone
            return
        for run_id in run_ids:
            ended = concurrent.futures.Future[None]()
            task = asyncio.ensure_future(self._work(resume, run_id))
            self._at_work[task] = ended
            task.add_done_callback(self._end)

    async def join(self) -> None:
        """Wait for those at work, in whichever event loop they are."""
        while self._at_work:
            waiting = [asyncio.wrap_future(one) for one in self._at_work.values()]
            await asyncio.gather(*waiting)

    async def release(self) -> None:
        """Leave those at work to others."""
        for task in list(self._at_work):
            task.get_loop().call_soon_threadsafe(task.cancel)
        await self.join()

    async def _work(
        self, resume: Callable[[str], Awaitable[object]], run_id: str
    ) -> None:
        SUSPEND_REASON.set("released")  # it is left to others if this loop ends
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, asyncio.Semaphore(MAX_CONCURRENCY))
        try:
            async with slots:
                await resume(run_id)
        except RunBusy:  # a worker was faster
            return
        except LoopwrightError as error:
            problem = format_error(error)
            logger().warning("follow_up_not_done", run_id=run_id, error=problem)

    def _end(self, task: asyncio.Task[None]) -> None:
        ended = self._at_work.pop(task)
        if not task.cancelled():
            task.exception()  # seen: an error of third-party code is in the run's own result
        ended.set_result(None)
