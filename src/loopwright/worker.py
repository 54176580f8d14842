"""Worker: takes up the runs of a journal that nobody works on, so that a process may die and its runs go on."""

import asyncio
import math
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from ._internal.log import logger
from ._kernel.control.commands import DECIDING
from ._kernel.control.run_control import open_questions
from ._kernel.session.session import SUSPEND_REASON
from .engine import LoopEngine
from .errors import ConfigError, Fenced, JournalError, RunBusy, format_error
from .events.control import CommandReceived
from .events.effects import BreakerChanged, DriftNoticed
from .events.entry import Entry
from .events.lifecycle import read_start
from .events.recovery import UnknownOutcomeResolved
from .events.run import RunResumed
from .journals.base import RunInfo, orphaned
from .result import Result
from .runtime import Runtime

LATER = 30.0  # seconds before a run that the journal could not give is tried again
MAX_PICKUPS = 5
"""So often running a run is taken up without getting any further, before it is left to people."""


class Worker:
    """Takes up runs whose process died or whose lease is over, that were released, that got the word they wait for, or
    whose question nobody answered in time.

    Several workers, in several processes, may serve one journal: a run is claimed by one of them. What was begun and
    not suspended on purpose is found at the start too. A run that cannot go on (its code is not here, it diverges, it
    ended its process time and again) is logged and left to people.

    Args:
        runtime: with a lease, or a worker that hangs would keep its runs for ever.
        engines: those that cannot be rebuilt from the journal (their options are code); the others are.
        outputs: the classes of `output=` that runs were started with.
        deps: handed to the tools of runs that were started with deps.
        max_concurrency: runs at work at the same time.
        poll: seconds between two looks into the journal.
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
    ) -> None:
        if runtime.lease is None:
            raise ConfigError(
                "runtime: a worker needs Runtime(lease=...), for example 30 seconds"
            )
        if max_concurrency < 1 or not poll > 0:
            raise ConfigError(
                f"max_concurrency must be at least 1 and poll greater than 0, got {max_concurrency} and {poll}"
            )
        self._runtime, self._deps, self._at_once, self._poll = (
            runtime,
            deps,
            max_concurrency,
            poll,
        )
        self._engines: Mapping[str, LoopEngine] = {
            engine.name: engine for engine in engines
        }
        self._outputs: Mapping[str, type[BaseModel]] = {
            output.__name__: output for output in outputs
        }
        self._tasks: dict[str, asyncio.Task[Result | None]] = {}
        self._left: dict[
            str, int
        ] = {}  # runs that this worker cannot take further, with their last entry
        self._later: dict[
            str, float
        ] = {}  # runs that the journal could not give, with when to try again
        self._answered: dict[
            str, int
        ] = {}  # waiting runs, with the last command that was tried
        self._closing: dict[
            str, tuple[int, float]
        ] = {}  # waiting runs, with their last entry and until when they wait

    async def serve(self) -> None:
        """Take up runs until cancelled; those at work are then released to other workers."""
        try:
            while True:
                await self._take_up()
                await self._runtime.clock.sleep(self._poll)
        finally:
            await self._release()

    async def drain(self) -> list[Result]:
        """Take up what there is now, and wait until that is done; the results, in no order."""
        results: list[Result] = []
        try:
            while await self._take_up():
                done, _ = await asyncio.wait(
                    self._tasks.values(), return_when=asyncio.FIRST_COMPLETED
                )
                results += [
                    result for task in done if (result := task.result()) is not None
                ]
                self._tasks = {
                    run_id: task
                    for run_id, task in self._tasks.items()
                    if task not in done
                }
        finally:
            await self._release()
        return results

    async def _take_up(self) -> int:
        """Start as many runs as there are places for; how many are at work."""
        self._tasks = {
            run_id: task for run_id, task in self._tasks.items() if not task.done()
        }
        free = self._at_once - len(self._tasks)
        if free > 0:
            try:
                found = await self._found()
            except JournalError as error:
                logger().warning("journal_not_read", error=format_error(error))
                found = []
            for info in found[:free]:
                self._tasks[info.run_id] = asyncio.ensure_future(self._work(info))
        return len(self._tasks)

    async def _found(self) -> list[RunInfo]:
        """The runs to take up, the oldest first."""
        now = self._runtime.clock.wall()
        infos = await asyncio.to_thread(
            lambda: self._runtime.journal.runs(unfinished=True)
        )
        self._forget({info.run_id for info in infos})
        mine = [
            info
            for info in reversed(infos)
            if info.run_id not in self._tasks and self._may(info)
        ]
        return [
            info
            for info in mine
            if info.status == "released"
            or orphaned(info, now)
            or (
                info.status == "waiting"
                and (await self._told(info) or await self._over(info, now))
            )
        ]

    def _may(self, info: RunInfo) -> bool:
        later = self._later.get(info.run_id, 0.0)
        return (
            self._left.get(info.run_id) != info.head_seq
            and self._runtime.clock.monotonic() >= later
        )

    def _forget(self, unfinished: set[str]) -> None:
        for known in (self._left, self._later, self._answered, self._closing):
            for run_id in known.keys() - unfinished:
                del known[run_id]

    async def _told(self, info: RunInfo) -> bool:
        """Whether somebody said something to a waiting run since it was looked at last."""
        after = self._answered.get(info.run_id, 0)
        try:
            commands = await asyncio.to_thread(
                self._runtime.journal.inbox, info.run_id, after
            )
        except Exception as error:  # noqa: BLE001 - one inbox that cannot be read holds up no other run
            logger().warning(
                "inbox_not_read", run_id=info.run_id, error=format_error(error)
            )
            self._again(info, LATER)
            return False
        # One that cannot be read may have been such a word: the run is told so, and asks again.
        return any(command.kind in DECIDING or command.damage for command in commands)

    async def _over(self, info: RunInfo, now: float) -> bool:
        """Whether nobody can answer a question of a waiting run any more, which the run goes on with as a denial."""
        head, until = self._closing.get(info.run_id, (-1, 0.0))
        if head != info.head_seq:
            try:
                asked = open_questions(
                    await asyncio.to_thread(self._runtime.journal.read, info.run_id)
                )
            except Exception as error:  # noqa: BLE001 - as above
                logger().warning(
                    "run_not_read", run_id=info.run_id, error=format_error(error)
                )
                self._again(info, LATER)
                return False
            until = min(
                (question.expires for question in asked if question.expires),
                default=math.inf,
            )
            self._closing[info.run_id] = info.head_seq, until
        return until <= now

    async def _hear(self, info: RunInfo) -> None:
        """Remember what was said to a waiting run that is taken up now."""
        if info.status == "waiting":
            commands = await asyncio.to_thread(self._runtime.journal.inbox, info.run_id)
            self._answered[info.run_id] = commands[-1].number if commands else 0

    async def _work(self, info: RunInfo) -> Result | None:
        """Go on with one run; whatever goes wrong with it does not hurt the others."""
        SUSPEND_REASON.set("released")  # for the tasks that this one starts
        journal = self._runtime.journal
        try:
            await self._hear(info)
            entries = await asyncio.to_thread(journal.read, info.run_id)
            if _pickups(entries) >= MAX_PICKUPS:
                raise ConfigError(
                    f"it was taken up {MAX_PICKUPS} times and got no further: see to it, then resume it"
                )
            return await self._resume(info, entries)
        except (RunBusy, Fenced):  # another worker was quicker
            self._again(info, self._poll)
            return None
        except JournalError as error:
            logger().warning(
                "run_not_taken_up",
                run_id=info.run_id,
                engine=info.engine,
                error=format_error(error),
            )
            self._again(info, LATER)
            return None
        except Exception as error:  # noqa: BLE001 - foreign code: an engine that cannot be made holds up no other run
            logger().error(
                "run_left",
                run_id=info.run_id,
                engine=info.engine,
                error=format_error(error),
            )
            self._left[info.run_id] = await self._head(info)
            return None

    def _again(self, info: RunInfo, seconds: float) -> None:
        """Look at a run again after that time; what was said to it was not heard yet."""
        self._later[info.run_id] = self._runtime.clock.monotonic() + seconds
        self._answered.pop(info.run_id, None)

    async def _head(self, info: RunInfo) -> int:
        """The last entry that a run has now, as far as the journal can be read."""
        try:
            infos = await asyncio.to_thread(
                lambda: self._runtime.journal.runs(unfinished=True)
            )
        except JournalError:
            return info.head_seq
        return next(
            (known.head_seq for known in infos if known.run_id == info.run_id),
            info.head_seq,
        )

    async def _resume(self, info: RunInfo, entries: list[Entry]) -> Result:
        started = read_start(info.run_id, entries)
        deps = self._deps if started.deps else None
        output = self._outputs.get(started.output or "")
        by = self._engines.get(started.engine, self._runtime)
        return await by.resume(info.run_id, output=output, deps=deps)

    async def _release(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks = {}


def _pickups(entries: list[Entry]) -> int:
    """How often a run was taken up since it last got any further."""
    count = 0
    for entry in reversed(entries):
        if isinstance(entry.event, RunResumed):
            count += 1
        elif not isinstance(
            entry.event, (BreakerChanged, CommandReceived, DriftNoticed)
        ) and not _is_look_up(entry):
            break
    return count


def _is_look_up(entry: Entry) -> bool:
    """Whether a tool was asked about a call, which each life does again."""
    return (
        isinstance(entry.event, UnknownOutcomeResolved) and entry.event.by == "lookup"
    )
