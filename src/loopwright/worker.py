"""Worker: claims and resumes the orphaned runs of a journal, so that a run survives its process."""

import asyncio
import dataclasses
import math
from collections.abc import Iterable

from pydantic import BaseModel

from ._internal.log import logger
from ._kernel.control.commands import RESUMING
from ._kernel.control.questions import open_questions
from ._kernel.session.session import SUSPEND_REASON
from .engine import LoopEngine
from .errors import (
    ConfigError,
    Fenced,
    JournalError,
    ReplayDivergence,
    RunBusy,
    format_error,
)
from .events.control import CommandReceived
from .events.effects import BreakerChanged, DriftNoticed
from .events.entry import Entry
from .events.lifecycle import find_diverged_versions, read_app_version, read_start
from .events.recovery import UnknownOutcomeResolved
from .events.run import RunResumed, RunSuspended
from .journals.base import RunInfo, is_orphaned
from .result import Result
from .runtime import Runtime

RETRY_SECONDS = 30.0  # until a run that the journal could not read is tried again
MAX_RESUMES_WITHOUT_PROGRESS = 5
"""Consecutive resumes of a run without a new entry, after which it is left to an operator."""


@dataclasses.dataclass
class _Memory:
    """What a worker remembers of one unfinished run, to look at it only when something changed.

    Args:
        skipped_at: last entry of a run that this worker cannot resume.
        retry_at: monotonic time before which the run is not tried again.
        last_command: the last command that was tried in a waiting run.
        expiry: last entry of a waiting run, and when its first question expires.
        app_version: the version of the application that the run is of, once it was read.
        has_diverged: whether the code of this process cannot replay the run.
    """

    skipped_at: int | None = None
    retry_at: float = 0.0
    last_command: int = 0
    expiry: tuple[int, float] = (-1, 0.0)
    app_version: str | None = None
    has_diverged: bool = False


class Worker:
    """Claims and resumes the runs of a journal that no process works on.

    These are runs whose process died or whose lease expired, that were released, that received the command they wait
    for, or whose question expired. Several workers in several processes may serve one journal: each run is claimed by
    one of them. A run that cannot be resumed (its code is missing, it ended its process repeatedly) is logged and left
    to an operator. One that the worker's code cannot replay (`ReplayDivergence`) is released as it was, for a worker
    with other code; this one, and those of the same version, do not take it again.

    A worker whose runtime has an `app_version` takes the runs of that version and of those that it `accepts`; one
    without takes every run.

    Args:
        runtime: must have a lease, so that a worker that hangs loses its runs.
        engines: engines that cannot be rebuilt from the journal, because their options are code.
        outputs: the classes of `output=` that runs were started with.
        deps: passed to the tools of runs that were started with deps.
        max_concurrency: the maximum number of concurrent runs.
        poll: seconds between two looks into the journal.
        accepts: other versions of the application whose runs this code can replay; `""` is that of runs without one.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        engines: Iterable[LoopEngine] = (),
        outputs: Iterable[type[BaseModel]] = (),
        deps: object = None,
        max_concurrency: int = 10,
        poll: float = 1.0,
        accepts: Iterable[str] = (),
    ) -> None:
        if runtime.lease is None:
            raise ConfigError(
                "runtime: a worker needs a lease, got None; pass Runtime(lease=30.0)"
            )
        if max_concurrency < 1:
            raise ConfigError(
                f"max_concurrency: must be at least 1, got {max_concurrency}"
            )
        if not poll > 0:
            raise ConfigError(f"poll: must be seconds above 0, got {poll}")
        self._runtime = runtime
        self._versions = _accepted_versions(runtime.app_version, accepts)
        self._engines = {engine.name: engine for engine in engines}
        self._outputs = {output.__name__: output for output in outputs}
        self._deps = deps
        self._max_concurrency = max_concurrency
        self._poll = poll
        self._tasks: dict[str, asyncio.Task[Result | None]] = {}
        self._memories: dict[str, _Memory] = {}

    async def serve(self) -> None:
        """Claim and resume runs until cancelled; then release those at work to other workers."""
        try:
            while True:
                await self._start_runs()
                await self._runtime.clock.sleep(self._poll)
        finally:
            await self._release()

    async def drain(self) -> list[Result]:
        """Resume the runs there are now, and return their results in no particular order."""
        results: list[Result] = []
        try:
            while await self._start_runs():
                done, _ = await asyncio.wait(
                    self._tasks.values(), return_when=asyncio.FIRST_COMPLETED
                )
                ended = [task.result() for task in done]
                results += [result for result in ended if result is not None]
        finally:
            await self._release()
        return results

    async def _start_runs(self) -> int:
        """Start as many runs as there are free slots; return how many are at work."""
        self._tasks = {
            run_id: task for run_id, task in self._tasks.items() if not task.done()
        }
        free = self._max_concurrency - len(self._tasks)
        if free > 0:
            try:
                found = await self._find_runs()
            except JournalError as error:
                logger().warning("journal_unreadable", error=format_error(error))
                found = []
            for info in found[:free]:
                self._tasks[info.run_id] = asyncio.ensure_future(self._work(info))
        return len(self._tasks)

    # --- which runs ---

    async def _find_runs(self) -> list[RunInfo]:
        """Return the runs to claim, the oldest first."""
        now = self._runtime.clock.wall()
        infos = await self._list_unfinished()
        unfinished = {info.run_id for info in infos}
        self._memories = {
            run_id: memory
            for run_id, memory in self._memories.items()
            if run_id in unfinished
        }
        candidates = [info for info in reversed(infos) if self._is_candidate(info)]
        return [info for info in candidates if await self._is_due(info, now)]

    async def _list_unfinished(self) -> list[RunInfo]:
        return await asyncio.to_thread(
            lambda: self._runtime.journal.runs(unfinished=True)
        )

    def _remember(self, info: RunInfo) -> _Memory:
        return self._memories.setdefault(info.run_id, _Memory())

    def _is_candidate(self, info: RunInfo) -> bool:
        if info.run_id in self._tasks:
            return False
        memory = self._remember(info)
        if memory.has_diverged:
            return False
        is_early = self._runtime.clock.monotonic() < memory.retry_at
        return memory.skipped_at != info.head_seq and not is_early

    async def _is_due(self, info: RunInfo, now: float) -> bool:
        """Return whether no process works on a run and it can continue."""
        if info.status == "released" or is_orphaned(info, now):
            return await self._is_accepted(info)
        if info.status != "waiting" or not await self._is_accepted(info):
            return False
        return await self._has_command(info) or await self._has_expired(info, now)

    async def _is_accepted(self, info: RunInfo) -> bool:
        """Return whether a run is of a version that this worker takes, read once for each run."""
        if self._versions is None:
            return True
        memory = self._remember(info)
        if memory.app_version is None:
            try:
                entries = await asyncio.to_thread(
                    self._runtime.journal.read, info.run_id
                )
                memory.app_version = read_app_version(entries)
            except Exception as error:  # noqa: BLE001 - one unreadable run must not stop the others
                self._postpone_unreadable(info, "run_unreadable", error)
                return False
        return memory.app_version in self._versions

    async def _has_command(self, info: RunInfo) -> bool:
        """Return whether a waiting run received a command since the last look.

        An unreadable command counts: the run reports it and asks again.
        """
        after = self._remember(info).last_command
        try:
            commands = await asyncio.to_thread(
                self._runtime.journal.inbox, info.run_id, after
            )
        except Exception as error:  # noqa: BLE001 - one unreadable inbox must not stop the other runs
            self._postpone_unreadable(info, "inbox_unreadable", error)
            return False
        return any(command.kind in RESUMING or command.damage for command in commands)

    async def _has_expired(self, info: RunInfo, now: float) -> bool:
        """Return whether a question of a waiting run has expired, which denies it."""
        memory = self._remember(info)
        head_seq, expires = memory.expiry
        if head_seq != info.head_seq:
            try:
                entries = await asyncio.to_thread(
                    self._runtime.journal.read, info.run_id
                )
                expires = _find_expiry(entries)
            except Exception as error:  # noqa: BLE001 - one unreadable run must not stop the others
                self._postpone_unreadable(info, "run_unreadable", error)
                return False
            memory.expiry = info.head_seq, expires
        return expires <= now

    def _postpone_unreadable(self, info: RunInfo, event: str, error: Exception) -> None:
        logger().warning(event, run_id=info.run_id, error=format_error(error))
        self._postpone(info, RETRY_SECONDS)

    def _postpone(self, info: RunInfo, seconds: float) -> None:
        """Look at a run again after that time; its commands count as not tried."""
        memory = self._remember(info)
        memory.retry_at = self._runtime.clock.monotonic() + seconds
        memory.last_command = 0

    # --- one run ---

    async def _work(self, info: RunInfo) -> Result | None:
        """Resume one run; its failure does not affect the others."""
        SUSPEND_REASON.set("released")  # inherited by the tasks that this one starts
        journal = self._runtime.journal
        try:
            await self._mark_commands(info)
            entries = await asyncio.to_thread(journal.read, info.run_id)
            if self._is_diverged(entries):
                self._remember(info).has_diverged = True
                return None
            _check_resumes(info, entries)
            return await self._resume(info, entries)
        except (RunBusy, Fenced):  # another worker was faster
            self._postpone(info, self._poll)
        except JournalError as error:
            logger().warning(
                "run_not_claimed",
                run_id=info.run_id,
                engine=info.engine,
                error=format_error(error),
            )
            self._postpone(info, RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 - third-party code: one broken engine must not stop the other runs
            logger().error(
                "run_skipped",
                run_id=info.run_id,
                engine=info.engine,
                error=format_error(error),
            )
            memory = self._remember(info)
            memory.has_diverged = isinstance(error, ReplayDivergence)
            memory.skipped_at = await self._find_head(info)
        return None

    def _is_diverged(self, entries: list[Entry]) -> bool:
        """Return whether this version of the application failed to replay a run before."""
        version = self._runtime.app_version
        return bool(version) and version in find_diverged_versions(entries)

    async def _mark_commands(self, info: RunInfo) -> None:
        """Remember the commands of a waiting run as tried, because it is resumed now."""
        if info.status == "waiting":
            commands = await asyncio.to_thread(self._runtime.journal.inbox, info.run_id)
            number = commands[-1].number if commands else 0
            self._remember(info).last_command = number

    async def _find_head(self, info: RunInfo) -> int:
        """Return the last entry that a run has now, as far as the journal can be read."""
        try:
            infos = await self._list_unfinished()
        except JournalError:
            return info.head_seq
        heads = {known.run_id: known.head_seq for known in infos}
        return heads.get(info.run_id, info.head_seq)

    async def _resume(self, info: RunInfo, entries: list[Entry]) -> Result:
        started = read_start(info.run_id, entries)
        deps = self._deps if started.deps else None
        output = self._outputs.get(started.output or "")
        engine = self._engines.get(started.engine, self._runtime)
        return await engine.resume(info.run_id, output=output, deps=deps)

    async def _release(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks = {}


def _accepted_versions(own: str, accepts: Iterable[str]) -> frozenset[str] | None:
    """Return the versions whose runs a worker takes, `None` for all."""
    others = frozenset((accepts,) if isinstance(accepts, str) else accepts)
    if own:
        return others | {own}
    if others:
        raise ConfigError(
            f"accepts: a worker without a version takes every run, got {sorted(others)}; "
            "pass Runtime(app_version=...) or leave it out"
        )
    return None


def _find_expiry(entries: list[Entry]) -> float:
    """Return when the first open question expires (wall clock, seconds)."""
    expiries = [question.expires for question in open_questions(entries)]
    return min((expires for expires in expiries if expires), default=math.inf)


def _check_resumes(info: RunInfo, entries: list[Entry]) -> None:
    """Raise `ConfigError` for a run that was resumed again and again without progress."""
    if _count_resumes(entries) >= MAX_RESUMES_WITHOUT_PROGRESS:
        raise ConfigError(
            f"run {info.run_id!r}: resumed {MAX_RESUMES_WITHOUT_PROGRESS} times without a new entry; "
            "find the cause, then resume it yourself"
        )


def _count_resumes(entries: list[Entry]) -> int:
    """Count how often a run was resumed since its last progress."""
    count = 0
    for entry in reversed(entries):
        if isinstance(entry.event, RunResumed):
            count += 1
        elif not _is_repeated(entry):
            break
    return count


def _is_repeated(entry: Entry) -> bool:
    """Return whether every resume may write such an entry again, so that it is not progress."""
    event = entry.event
    if isinstance(event, RunSuspended):
        return event.reason == "diverged"
    if isinstance(event, UnknownOutcomeResolved):
        return event.by == "lookup"
    return isinstance(event, (BreakerChanged, CommandReceived, DriftNoticed))
