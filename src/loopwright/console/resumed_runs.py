"""Runs that the runtime of a console continues in the background, since a user asked for it."""

import asyncio

from .._internal.log import logger
from ..agents.turn_runner import is_served
from ..errors import LoopwrightError, RunBusy
from ..journals.base import RunInfo
from ..principals import Sender
from ..runtime import Runtime


class ResumedRuns:
    """Resumes runs beside the answers to requests; one that another process works on stays there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, run_id: str, by: Sender) -> None:
        """Have the runtime continue a run, and return at once; `by` asked for it."""
        task = asyncio.create_task(self._resume(run_id, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin_served(self, info: RunInfo, by: Sender) -> None:
        """Have the runtime continue a run of its version; one of another is left to the workers of that."""
        if is_served(self._runtime, info):
            self.begin(info.run_id, by)

    async def _resume(self, run_id: str, by: Sender) -> None:
        try:
            await self._runtime.resume(run_id, by=by)
        except RunBusy:
            return
        except LoopwrightError as error:
            logger().warning("run_not_resumed", run_id=run_id, error=str(error))
