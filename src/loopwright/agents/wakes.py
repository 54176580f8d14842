"""Wakes: the runs of a journal whose time has come, resumed by a process that has no worker."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable

from .._internal.log import logger
from .._kernel.session.services import Services
from .._kernel.session.session import SUSPEND_REASON
from ..errors import JournalError, format_error
from ..events.wakes import has_diverged
from ..journals.access import list_unfinished, read_run
from ..journals.base import RunInfo
from ..result import Result
from .schedules import Schedules


class Wakes:
    """Resumes runs as their time comes.

    Args:
        services: those of the runtime.
        schedules: its schedules, which fire meanwhile.
        resume: resumes a run by its id.
        can_do: tells whether the process has the follow-up of a run that does one.
        join: waits for what is done in the background.
    """

    def __init__(
        self,
        services: Services,
        schedules: Schedules,
        *,
        resume: Callable[[str], Awaitable[Result]],
        can_do: Callable[[RunInfo], bool],
        join: Callable[[], Awaitable[None]],
    ) -> None:
        self._journal, self._clock = services.journal, services.clock
        self._version = services.app_version
        self._schedules, self._resume = schedules, resume
        self._can_do, self._join = can_do, join

    async def drain(self, until: float | None) -> list[Result]:
        """Resume runs until none is due up to a wall time (seconds), by default now; return their results."""
        results, failed = list[Result](), set[str]()
        while True:
            await self._join()
            await self._fire_schedules()
            times, now = await self._read_times(failed), self._clock.wall()
            due = [run_id for run_id, time in times.items() if time <= now]
            woken = await asyncio.gather(*map(self._wake, due))
            results += filter(None, woken)
            failed |= {
                name for name, result in zip(due, woken, strict=True) if not result
            }
            next_at = await self._find_next(times)
            if not due and next_at > (until or now):
                return results
            await self._clock.sleep(max(next_at - now, 0.0))

    async def _fire_schedules(self) -> None:
        """Store the runs whose time has come; schedules that cannot be read hold up no run."""
        try:
            await self._schedules.fire_due()
        except JournalError as error:
            logger().warning("schedules_unreadable", error=format_error(error))

    async def _find_next(self, times: dict[str, float]) -> float:
        """Return when the next run or schedule is due, infinite for never."""
        scheduled = math.inf
        with contextlib.suppress(JournalError):  # which is logged as they are to fire
            scheduled = await self._schedules.find_next()
        return min([*times.values(), scheduled], default=math.inf)

    async def _read_times(self, failed: set[str]) -> dict[str, float]:
        """Return when each run continues without a person, but for those that failed to."""
        infos = await list_unfinished(self._journal)
        waking = [info for info in infos if info.run_id not in failed and _wakes(info)]
        return {info.run_id: info.wake_at for info in waking if self._can_do(info)}

    async def _wake(self, run_id: str) -> Result | None:
        """Resume a run; return `None`, and log why, if it cannot be resumed.

        If this is cancelled, the run is left to the next process, as a worker leaves its runs.
        """
        SUSPEND_REASON.set("released")  # for the task that wakes this run
        try:
            entries = await read_run(self._journal, run_id)
            if has_diverged(self._version, entries):
                return None
            return await self._resume(run_id)
        except Exception as error:  # noqa: BLE001 - third-party code: one broken engine must not stop the other runs
            problem = format_error(error)
            logger().warning("run_not_resumed", run_id=run_id, error=problem)
            return None


def _wakes(info: RunInfo) -> bool:
    """Return whether a run continues without a person, now or at a time."""
    if info.status == "released":
        return True
    return info.status in ("suspended", "waiting") and info.wake_at > 0
