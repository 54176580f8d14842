"""Runs at work without a watcher, and the choice of what happens to a run whose watcher leaves."""

import asyncio
from typing import Any, Literal, TypeAlias

from ..._internal.log import logger
from ...errors import ConfigError, format_error
from ...result import Result
from .cancellation import wait_despite_cancellation

OnDisconnect: TypeAlias = Literal["abort", "continue"]
"""What happens to a run whose watcher leaves while it is at work."""


class UnwatchedRuns:
    """The runs that continue in this process although their watchers went away; their runtime waits for them."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Result[Any]], str] = {}

    def add(self, task: asyncio.Task[Result[Any]], run_id: str) -> None:
        """Keep a run until it has ended."""
        if not task.done():
            self._tasks[task] = run_id
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Result[Any]]) -> None:
        run_id = self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:  # no caller learns of it
            problem = format_error(error)
            logger().warning("unwatched_run_lost", run_id=run_id, error=problem)

    async def drain(self) -> list[Result[Any]]:
        """Wait for the runs of this event loop; return the results of those that ended.

        If this is cancelled, the runs are released to other processes.
        """
        loop = asyncio.get_running_loop()
        results: list[Result[Any]] = []
        while tasks := [task for task in self._tasks if task.get_loop() is loop]:
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                await self.release()
                raise
            results += [task.result() for task in tasks if _has_result(task)]
        return results

    async def release(self) -> None:
        """Leave the runs of this event loop to other processes."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        for task in tasks:
            await wait_despite_cancellation(task)


def _has_result(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and task.exception() is None


def check_on_disconnect(chosen: OnDisconnect | None) -> OnDisconnect | None:
    """Return a choice, or `None` for none; raise `ConfigError` for anything else."""
    if chosen in (None, "abort", "continue"):
        return chosen
    raise ConfigError(
        f'on_disconnect: must be "abort" or "continue", got {chosen!r:.80}'
    )
