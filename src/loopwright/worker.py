"""Worker: claims and resumes the orphaned runs of a journal, so that a run survives its process."""

import asyncio
import contextlib
import functools
from collections.abc import Iterable
from typing import Any, Literal

from ._internal import dataclasses
from ._internal.log import logger
from ._internal.own_errors import read_own_error
from ._kernel.control.commands import ENDING, RESUMING
from ._kernel.control.unfinished_runs import UnfinishedRuns
from ._kernel.durability.deaths import Deaths, count_deaths
from ._kernel.durability.transitions import close, park
from ._kernel.phases.output_type import describe_type
from ._kernel.session.claim import ALONE
from ._kernel.session.claim_batch import Chosen, ClaimBatch
from ._kernel.session.service_checks import accepted_versions
from ._kernel.session.session import SUSPEND_REASON
from .agents.approved_turn import proceed_as_approved
from .engine import LoopEngine
from .errors import (
    ConfigError,
    Fenced,
    JournalError,
    ReplayDivergence,
    RunBusy,
    format_error,
)
from .events.followups import FOLLOW_UP
from .events.lifecycle import read_start
from .events.run import RunFinished, RunParked
from .events.wakes import find_seconds_in_vain, find_wake_time, has_diverged
from .journals.access import read_inbox, read_run
from .journals.base import RunInfo
from .journals.claims import LeaseWatch, find_ending, get_watch, is_orphaned
from .plugins import available_engines
from .result import Result
from .runtime import Runtime
from .schedules.plan import GRACE

PASSING = (JournalError, OSError)
"""Errors of a look, or of claiming a run, that may be over at the next one, such as no free file descriptor."""
RETRY_SECONDS = 30.0  # until a run that the journal could not read is tried again
ISOLATION_PATIENCE = 60.0
"""Seconds that a run which needs a worker for itself waits for an idle worker; then nothing else begins before it."""
VAIN_SECONDS = 86_400.0
"""A run is parked that a worker woke in vain for so long."""


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What the entries of a run say, as it was when it had this head and fence.

    Args:
        place: number of the last entry, the fence, and how the last owner's work ended.
        deaths: the processes that died at work on it.
        wake_at: wall time at which a waiting or suspended run continues by itself.
        in_vain: seconds for which it was woken in vain.
        has_diverged: whether code like that of this process could not replay the run before.
    """

    place: tuple[object, ...]
    deaths: Deaths
    wake_at: float
    in_vain: float
    has_diverged: bool


@dataclasses.dataclass
class _Memory:
    """What a worker remembers of one unfinished run, to look at it only when something changed.

    Args:
        skipped_at: last entry of a run that this worker cannot resume.
        retry_at: monotonic time before which the run is not tried again.
        last_command: the last command that was tried in a waiting run.
        facts: what was read of the run last.
        due_since: monotonic time since which no process works on it.
        has_diverged: whether the code of this process cannot replay the run.
    """

    skipped_at: int | None = None
    retry_at: float = 0.0
    last_command: int = 0
    facts: _Facts | None = None
    due_since: float | None = None
    has_diverged: bool = False


class Worker:
    """Claims and resumes the runs of a journal that no process works on.

    These are runs whose process died or whose lease expired, that were released, that received the command they wait
    for, whose question expired, or whose wait for a provider or a time is over. Several workers in several processes may
    serve one journal: each run is claimed by one of them. A run whose code is missing is logged and left to an
    operator. One whose process died rests before it is claimed again (1 s, twice as long each time, up to 5 minutes);
    after three deaths it gets a worker for itself, and if it kills that one too, it is parked: `RunControl.retry`
    revives it. One that the worker's code cannot replay (`ReplayDivergence`) is released as it was, for a worker
    with other code; this one, and those of the same version, do not take it again.

    A worker whose runtime has an `app_version` takes the runs of that version and of those that it `accepts`; one
    without takes every run. The same holds for schedules (`Runtime.schedule`), which a worker fires whose runtime has
    their agent.

    Args:
        runtime: must have a lease, so that a worker that hangs loses its runs.
        engines: engines that cannot be rebuilt from the journal, because their options are code.
        outputs: the types of `output=` that runs were started with.
        deps: passed to the tools of runs that were started with deps.
        max_concurrency: the maximum number of concurrent runs.
        poll: seconds between two looks into the journal.
        accepts: other versions of the application whose runs this code can replay; `""` is that of runs without one.
        orphans: "close" ends runs whose engine is not there as `aborted`; "leave" leaves them to an operator.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        engines: Iterable[LoopEngine] = (),
        outputs: Iterable[Any] = (),
        deps: object = None,
        max_concurrency: int = 10,
        poll: float = 1.0,
        accepts: Iterable[str] = (),
        orphans: Literal["leave", "close"] = "leave",
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
        if orphans not in ("leave", "close"):
            raise ConfigError(f'orphans: must be "leave" or "close", got {orphans!r}')
        self._runtime, self._orphans = runtime, orphans
        self._versions = accepted_versions(runtime.app_version, accepts)
        self._engines = {engine.name: engine for engine in engines}
        self._outputs = {describe_type(output): output for output in outputs}
        self._deps = deps
        self._max_concurrency = max_concurrency
        self._poll = poll
        self._tasks: dict[str, asyncio.Task[Result | None]] = {}
        self._memories: dict[str, _Memory] = {}
        self._unfinished = UnfinishedRuns(runtime.journal, runtime.clock)
        self._watch = get_watch(runtime.journal, runtime.clock)
        self._schedules = runtime.schedules
        self._batch = ClaimBatch(runtime)
        self._lone: str | None = None
        """The run that this worker works on alone."""
        self._rests = True

    async def serve(self) -> None:
        """Claim and resume runs until cancelled; then release those at work to other workers."""
        self._runtime.agents.close()
        try:
            while True:
                await self._start_runs()
                await self._runtime.clock.sleep(self._poll)
        finally:
            await self._release()

    async def drain(self) -> list[Result]:
        """Resume the runs there are now, and return the results of those that it resumed, in no particular order.

        It does not wait until the runs of dead processes have rested.
        """
        results: list[Result] = []
        self._rests = False
        try:
            while await self._start_runs():
                done, _ = await asyncio.wait(
                    self._tasks.values(), return_when=asyncio.FIRST_COMPLETED
                )
                ended = [task.result() for task in done]
                results += [result for result in ended if result is not None]
        finally:
            self._rests = True
            await self._release()
        return results

    async def _start_runs(self) -> int:
        """Start as many runs as there are free slots; return how many are at work."""
        self._tasks = {
            run_id: task for run_id, task in self._tasks.items() if not task.done()
        }
        free = self._max_concurrency - len(self._tasks)
        if free > 0:
            await self._fire_schedules()
            begun: list[Chosen] = []
            try:
                due = self._choose(await self._find_runs())
                begun = await self._claim(due, free)
            except (*PASSING, asyncio.CancelledError) as raised:
                _warn("journal_unreadable", read_own_error(raised))
            for chosen in begun:
                info, _ = chosen
                work = functools.partial(self._work, info)
                task = asyncio.ensure_future(self._batch.hold(chosen, work))
                self._tasks[info.run_id] = task
        return len(self._tasks)

    async def _claim(self, due: list[RunInfo], free: int) -> list[Chosen]:
        """Return the runs to begin, at most `free`, with the claims of those that could be claimed in one step."""
        engines = {FOLLOW_UP, *self._engines, *(available_engines() if due else ())}
        runs = [
            info
            for info in due
            if info.engine in engines and not _is_given_up(info, self._remember(info))
        ]
        known = {info.run_id for info in runs}
        begun: list[Chosen] = [
            (info, None) for info in due[:free] if info.run_id not in known
        ]
        wanted = free - len(begun)
        try:
            begun += await self._batch.claim(runs, wanted)
        except Exception as error:  # noqa: BLE001 - a journal may be third-party code, and the next look tries again
            for info in runs[:wanted]:
                self._postpone_unclaimed(info, error)
        if len(begun) < min(free, len(due)):  # other workers have some of them
            self._unfinished.expire()
        return begun

    async def _fire_schedules(self) -> None:
        """Store the runs whose time has come; a schedule that cannot be read holds up no run."""
        try:
            await self._schedules.fire_due(
                self._versions, grace=max(GRACE, 2 * self._poll)
            )
        except (*PASSING, asyncio.CancelledError) as raised:
            _warn("schedules_unreadable", read_own_error(raised))

    def _choose(self, due: list[RunInfo]) -> list[RunInfo]:
        """Return which of the runs that are due may begin beside those at work."""
        if self._lone in self._tasks:
            return []
        self._lone, now = None, self._runtime.clock.monotonic()
        lone = [info for info in due if _needs_isolation(info, self._remember(info))]
        others = [info for info in due if info not in lone]
        is_next = bool(lone) and (
            not others or _is_impatient(self._remember(lone[0]), now)
        )
        if not is_next:
            return others
        if self._tasks:
            return []
        self._lone = lone[0].run_id
        return lone[:1]

    # --- which runs ---

    async def _find_runs(self) -> list[RunInfo]:
        """Return the runs to claim, the oldest first."""
        now = self._runtime.clock.wall()
        infos = await self._unfinished.find(now)
        if len(self._memories) > len(self._unfinished.run_ids):
            for run_id in self._memories.keys() - self._unfinished.run_ids:
                del self._memories[run_id]
        candidates = [info for info in infos if self._is_candidate(info)]
        return [info for info in candidates if await self._is_due(info, now)]

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
        memory = self._remember(info)
        if not _is_free(info, self._watch) or not self._is_accepted(info):
            memory.due_since = None
            return False
        facts = await self._read_facts(info)
        memory.has_diverged |= facts is not None and facts.has_diverged
        if facts is None or memory.has_diverged:
            return False
        if info.status == "running":
            return self._has_rested(memory, facts.deaths)
        if info.status == "released" or 0 < facts.wake_at <= now:
            return True
        is_paused = info.status == "waiting" or facts.wake_at > 0
        if is_paused and await self._has_command(info):
            return True
        if memory.retry_at <= self._runtime.clock.monotonic():
            self._unfinished.rest(info, facts.wake_at)
        return False

    def _is_accepted(self, info: RunInfo) -> bool:
        """Return whether a run is of a version that this worker takes, and its agent or follow-up is there."""
        if info.agent and info.agent not in self._runtime.agents:
            return False
        if not self._runtime.follow_ups.can_do(info):
            return False
        return self._versions is None or info.app_version in self._versions

    def _has_rested(self, memory: _Memory, deaths: Deaths) -> bool:
        """Return whether a run whose process died may be claimed again, or is to be parked."""
        now = self._runtime.clock.monotonic()
        if memory.due_since is None:
            memory.due_since = now
        if deaths.is_poison or not self._rests:
            return True
        return now - memory.due_since >= deaths.backoff

    async def _read_facts(self, info: RunInfo) -> _Facts | None:
        """Return what the entries of a run say; read again if something changed."""
        memory = self._remember(info)
        ending = find_ending(info, self._watch)
        place = info.head_seq, info.fence, ending
        if memory.facts is None or memory.facts.place != place:
            try:
                entries = await read_run(self._runtime.journal, info.run_id)
                memory.facts = _Facts(
                    place, count_deaths(entries, ending),
                    find_wake_time(entries), find_seconds_in_vain(entries),
                    has_diverged(self._runtime.app_version, entries),
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001 - one unreadable run must not stop the others
                self._postpone_unreadable(info, "run_unreadable", error)
                return None
        return memory.facts

    async def _has_command(self, info: RunInfo) -> bool:
        """Return whether a paused run received a command since the last look.

        One without a question is resumed only to end it.

        An unreadable command counts: the run reports it and asks again.
        """
        after = self._remember(info).last_command
        try:
            commands = await read_inbox(self._runtime.journal, info.run_id, after)
        except Exception as error:  # noqa: BLE001 - one unreadable inbox must not stop the other runs
            self._postpone_unreadable(info, "inbox_unreadable", error)
            return False
        kinds = RESUMING if info.status == "waiting" else ENDING
        return any(command.kind in kinds or command.damage for command in commands)

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
        ALONE.set(self._lone == info.run_id)
        try:
            await self._mark_commands(info)
            if await self._stop_waking(info) or await self._close_orphan(info):
                return None
            return await self._resume(info)
        except (RunBusy, Fenced):  # another worker was faster
            self._postpone(info, self._poll)
        except PASSING as error:
            self._postpone_unclaimed(info, error)
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

    def _postpone_unclaimed(self, info: RunInfo, error: Exception) -> None:
        text = format_error(error)
        logger().warning("run_not_claimed", run_id=info.run_id, engine=info.engine, error=text)  # fmt: skip
        self._postpone(info, RETRY_SECONDS)

    async def _stop_waking(self, info: RunInfo) -> bool:
        """Park a run that kills its processes, or that was woken in vain for too long."""
        facts = self._remember(info).facts
        parked = None if facts is None else _judge(info, facts)
        if parked is not None:
            services = self._runtime
            await park(services.journal, services.clock, info.run_id, parked)
            logger().error("run_parked", run_id=info.run_id, reason=parked.reason)
        return parked is not None

    async def _close_orphan(self, info: RunInfo) -> bool:
        """End a run whose engine is not there, if that is wanted."""
        names = {FOLLOW_UP, *self._engines, *available_engines()}
        is_there = info.engine in names
        if is_there or self._orphans == "leave":
            return False
        services, reason = self._runtime, f"engine {info.engine!r} is not installed"
        closed = await close(services.journal, services.clock, info.run_id, reason)
        if isinstance(closed.event, RunFinished) and closed.event.error is not None:
            error = closed.event.error.message
            logger().warning("run_closed", run_id=info.run_id, error=error)
        return True

    async def _mark_commands(self, info: RunInfo) -> None:
        """Remember the commands of a paused run as tried, because it is resumed now."""
        if info.status in ("waiting", "suspended"):
            commands = await read_inbox(self._runtime.journal, info.run_id)
            number = commands[-1].number if commands else 0
            self._remember(info).last_command = number

    async def _find_head(self, info: RunInfo) -> int:
        """Return the last entry that a run has now, as far as the journal can be read."""
        try:
            infos = await self._unfinished.read()
        except JournalError:
            return info.head_seq
        heads = {known.run_id: known.head_seq for known in infos}
        return heads.get(info.run_id, info.head_seq)

    async def _resume(self, info: RunInfo) -> Result:
        entries = await read_run(self._runtime.journal, info.run_id)
        started = read_start(info.run_id, entries)
        deps = self._deps if started.deps else None
        output = self._outputs.get(started.output or "")
        own = None if started.agent else self._engines.get(started.engine)
        engine = own or self._runtime

        async def resume() -> Result:
            return await engine.resume(info.run_id, output=output, deps=deps)

        services = self._runtime if own is None else own.runtime
        return await proceed_as_approved(services, await resume(), resume)

    async def _release(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks = {}
        await self._batch.settle()  # a task may be cancelled before it begins


def _warn(event: str, error: Exception) -> None:
    with contextlib.suppress(OSError):  # to load the logger takes a file descriptor
        logger().warning(event, error=format_error(error))


def _is_given_up(info: RunInfo, memory: _Memory) -> bool:
    """Return whether a run is to be parked, and not resumed."""
    return memory.facts is None or _judge(info, memory.facts) is not None


def _needs_isolation(info: RunInfo, memory: _Memory) -> bool:
    """Return whether a run needs a worker for itself."""
    facts = memory.facts
    if facts is None or info.status != "running":
        return False
    return facts.deaths.needs_isolation and not facts.deaths.is_poison


def _is_impatient(memory: _Memory, now: float) -> bool:
    """Return whether a run has waited long for an idle worker (monotonic clock, seconds)."""
    since = memory.due_since
    return since is not None and now - since >= ISOLATION_PATIENCE


def _is_free(info: RunInfo, watch: LeaseWatch) -> bool:
    """Return whether no process works on a run, and no person has to decide about it."""
    if info.status == "running":
        return is_orphaned(info, watch)
    return info.status not in ("parked", "damaged")


def _judge(info: RunInfo, facts: _Facts) -> RunParked | None:
    """Return how a run is parked that no worker should resume again; `None` for any other."""
    deaths = facts.deaths
    if info.status == "running" and deaths.is_poison:
        reason = f"it killed {deaths.alone} of its processes that worked on nothing else, of {deaths.count} that died"
        return RunParked(reason, deaths.count)
    if facts.in_vain >= VAIN_SECONDS:
        hours = facts.in_vain / 3600
        return RunParked(f"its provider was not available for {hours:.0f} h")
    return None
