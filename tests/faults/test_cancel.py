"""Stopped at every point: a run that is aborted, cancelled or out of time anywhere ends once and leaves nothing.

The points are the callbacks of the event loop: between two of them nothing of the program runs, so there is no other
place at which something from outside can strike. Model, tools, gate, approver, journal and pauses all wait somewhere.
"""

import asyncio
import contextlib
import dataclasses
import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fault_sizes import figure, sized
from interruptions import (
    LoopClock,
    SteppingLoop,
    WaitingGate,
    WaitingJournal,
    WaitingProvider,
    counted,
    waiting_approver,
)
from lateness import LATEST, TRIES, allowed
from loopwright import (
    Action,
    Allow,
    ChainOfThoughtEngine,
    Delta,
    Entry,
    Journal,
    Limits,
    LoopEngine,
    MemoryJournal,
    PolicyState,
    ProviderError,
    ReActEngine,
    Request,
    Result,
    RunHandle,
    Runtime,
    Tool,
    Usage,
    plugins,
    tool,
)
from loopwright.errors import UnknownRun
from loopwright.events import ModelReplied, ToolFinished, ToolStarted
from loopwright.gates import Decision
from loopwright.journals import Claim, SQLiteJournal
from loopwright.messages import Completion, ToolCall, check_call_results
from loopwright.resilience.timeouts import run_with_timeout
from loopwright.testing import ScriptedProvider, call
from programs import PROGRAMS, Program, look, put, send
from third_party_package import install_third_party
from virtual_time import in_virtual_time

T = TypeVar("T")
RUN = "the-run"
TIMEOUT = 250.0
POINTS = sized(6, 10_000)  # at most so many points of a run, spread evenly
ENDS = {("completed", "answered"), ("aborted", "aborted"), ("limit", "timeout")}
# Where the time is over before a failed model call could be tried again, or while a gate decides about a delegation.
FAILED = {("failed", "provider_error"), ("failed", "denied")}
TURNS_TO_END = 3  # of the loop: the task meets its cancellation, ends, and that is told
NOT_RUN = "This call was not run: the run ends."
CLOSING = ("run_finished", "run_suspended")


@pytest.fixture(scope="module", autouse=True)
def _strangers() -> Iterator[None]:
    """A stranger's engine is among those tried, installed from its own pyproject."""
    sys.path.insert(0, str(install_third_party()))
    plugins._find_installed.cache_clear()  # it may have been listed before
    yield
    sys.path.remove(str(install_third_party()))
    plugins._find_installed.cache_clear()


@dataclasses.dataclass
class Trial:
    """One run and what is known of it: its loop, its journal, and which calls really ran how often."""

    program: Program
    journal: Journal = dataclasses.field(default_factory=WaitingJournal)
    ran: Counter[str] = dataclasses.field(default_factory=Counter[str])
    failures: list[ProviderError] = dataclasses.field(
        default_factory=lambda: [ProviderError("busy", retryable=True)]
    )

    def on(
        self,
        plan: dict[int, Callable[["Host"], object]],
        work: Callable[["Host"], Coroutine[Any, Any, T]],
    ) -> T:
        """What a host does on a loop of its own, interrupted as planned; nothing may be left of it."""
        loop = SteppingLoop()
        try:
            host = Host(self, loop)
            loop.plan = {
                turn: functools.partial(act, host) for turn, act in plan.items()
            }
            return loop.run_until_complete(host.work(work))
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    @property
    def entries(self) -> list[Entry]:
        """What the journal has; nothing if the run never was."""
        try:
            return self.journal.read(RUN)
        except UnknownRun:
            return []


class Host:
    """An application with a run at work on a loop that can be interrupted."""

    def __init__(self, trial: Trial, loop: SteppingLoop) -> None:
        self.loop, self.program = loop, trial.program
        self.runtimes: list[Runtime] = []
        self._others = (
            workers()
        )  # idle ones of runtimes that other tests have left open
        self._trial, self._main = trial, asyncio.current_task(loop)
        runtime = self.runtime(
            self.program, *self.program.tools, failures=trial.failures
        )
        self.engine: LoopEngine = self.program.engine(runtime)
        if (
            self.program is PROGRAMS["react-as-tool"]
        ):  # its tools, and those of the engine among them, count too
            self.engine = self._asks_an_engine()
        self.task: asyncio.Task[Any] | None = None
        self.handle: RunHandle[Any, Any] | None = None
        self.aborting: asyncio.Task[Any] | None = None

    def runtime(
        self,
        program: Program,
        *tools: Tool,
        failures: list[ProviderError] | None = None,
    ) -> Runtime:
        """Where a program runs, on parts that wait."""
        made = Runtime(
            WaitingProvider(program.model, failures or []),
            tools=[
                counted(tool, self._trial.ran) if tool.engine is None else tool
                for tool in tools
            ],
            journal=self._trial.journal,
            gate=WaitingGate(program.gate),
            approver=waiting_approver(program.approver),
            limits=Limits(timeout=TIMEOUT),
            clock=LoopClock(self.loop),
        )
        self.runtimes.append(made)
        return made

    def _asks_an_engine(self) -> LoopEngine:
        reasons = ChainOfThoughtEngine(self.runtime(PROGRAMS["chain-of-thought"]))
        inner = ReActEngine(self.runtime(PROGRAMS["react"], look, send, put)).as_tool(
            name="ask", description="Ask."
        )
        return ReActEngine(
            self.runtime(self.program, look, inner), max_iterations=2, fallback=reasons
        )

    async def work(self, work: Callable[["Host"], Coroutine[Any, Any, T]]) -> T:
        """Do it in a task that can be cancelled; afterwards no task and no thread may be left."""
        self._main = asyncio.current_task()
        task = asyncio.ensure_future(work(self))
        self.task = task
        self.loop.counting = True
        try:
            return await task
        finally:
            self.loop.counting = False
            if self.aborting is not None:
                await asyncio.wait((self.aborting,))
            await self.tasks_are_gone()
            await self.threads_are_gone()

    async def tasks_are_gone(self) -> None:
        """No task is left; one that the run cancelled last, such as a look at the journal, has a few turns to end."""
        for _ in range(TURNS_TO_END):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if not all(task.cancelling() for task in left):
                break
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert left == set(), f"tasks are left: {left}"

    async def threads_are_gone(self) -> None:
        """The tools' threads end, and those that were left behind are counted until they do."""
        pools = [runtime.worker_threads for runtime in self.runtimes]
        for pool in pools:
            pool.close()
        until = time.monotonic() + 60
        while self._own_workers() and time.monotonic() < until:  # noqa: ASYNC110 - threads set no asyncio.Event
            await asyncio.sleep(0.001)
        assert (self._own_workers(), [pool.abandoned for pool in pools]) == (
            [],
            [0] * len(pools),
        )

    def _own_workers(self) -> list[threading.Thread]:
        return [thread for thread in workers() if thread not in self._others]

    def cancel(self) -> None:
        """The host's task is cancelled."""
        if self.task is not None:
            self.task.cancel()

    def cancel_all(self) -> None:
        """Every task on the loop is cancelled, as when an application is interrupted."""
        for task in asyncio.all_tasks(self.loop) - {self._main}:
            task.cancel()

    def abort(self) -> None:
        """Somebody aborts the run."""
        if self.handle is not None and self.aborting is None:
            self.aborting = asyncio.ensure_future(self.handle.abort())

    def skip(self) -> None:
        """The run's time is over."""
        self.loop.skipped += TIMEOUT


def workers() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name == "loopwright-tool"
    ]


# --- what hosts do ---


async def run(host: Host) -> Result:
    return await host.engine.run(host.program.task, run_id=RUN)


async def hold(host: Host) -> Result:
    async with host.engine.start(host.program.task, run_id=RUN) as handle:
        host.handle = handle
        return await handle.result()


async def watch(host: Host) -> Result:
    async with host.engine.start(host.program.task, run_id=RUN, deltas=True) as handle:
        host.handle = handle
        async for _ in handle:
            pass
        return await handle.result()


async def resume(host: Host) -> Result:
    return await host.engine.resume(RUN)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a run is stopped: what its host does, and what comes at the point and, if anything, a little later."""

    host: Callable[[Host], Coroutine[Any, Any, Result]]
    first: Callable[[Host], object]
    then: Callable[[Host], object] | None = None

    def at(self, point: int) -> dict[int, Callable[[Host], object]]:
        """The plan of a loop."""
        return {point: self.first} | (
            {} if self.then is None else {point + 1 + point % 7: self.then}
        )


WAYS = {
    "aborted": Way(hold, Host.abort),
    "aborted while it is watched": Way(watch, Host.abort),
    "aborted, then cancelled": Way(hold, Host.abort, Host.cancel),
    "out of time": Way(run, Host.skip),
    "out of time while it is watched": Way(watch, Host.skip),
    "out of time, then aborted": Way(hold, Host.skip, Host.abort),
    "cancelled": Way(run, Host.cancel),
    "cancelled twice": Way(run, Host.cancel, Host.cancel),
    "cancelled while it is watched": Way(watch, Host.cancel),
    "cancelled with all tasks": Way(run, Host.cancel_all),
    "cancelled with all tasks, twice": Way(run, Host.cancel_all, Host.cancel_all),
    "cancelled, then aborted": Way(hold, Host.cancel, Host.abort),
}


# --- what must hold ---


def points(turns: int) -> range:
    return range(1, turns + 1, max(turns // POINTS, 1))


@functools.cache
def count_points(name: str, act: Callable[[Host], Coroutine[Any, Any, Result]]) -> int:
    """Return how many points a run has that nobody stops, by what its host does: the ways share three of those."""
    program, turns = PROGRAMS[name], list[int]()

    async def counting(host: Host) -> Result:
        result = await act(host)
        turns.append(host.loop.turns)
        return result

    result = Trial(program).on({}, counting)
    assert (result.status, result.answer) == ("completed", program.answer)
    return turns[0]


def closing(entries: list[Entry]) -> list[str]:
    return [entry.kind for entry in entries if entry.kind in CLOSING]


def used(entries: list[Entry]) -> Usage:
    return sum(
        (
            e.event.completion.usage
            for e in entries
            if isinstance(e.event, ModelReplied)
        ),
        Usage(),
    )


def check_result(trial: Trial, result: Result) -> None:
    """The journal is whole and closed once, the result says what it says, and the history is valid."""
    entries = trial.entries
    assert entries[-1].kind == "run_finished"
    assert closing(entries).count("run_finished") == 1
    assert trial.journal.verify(RUN, result.head_hash).ok
    assert result.usage == used(entries)
    check_call_results(result.conversation.messages)
    unheard = said(result) - came_of_calls(entries)
    assert {content for _, content in unheard} <= {NOT_RUN}


def said(result: Result) -> set[tuple[str, str]]:
    """What the history says of each call."""
    return {
        (m.call_id, m.content) for m in result.conversation.messages if m.role == "tool"
    }


def came_of_calls(entries: list[Entry]) -> set[tuple[str, str]]:
    """What the journal says of each call."""
    return {
        (e.event.call_id, e.event.content)
        for e in entries
        if isinstance(e.event, ToolFinished)
    }


def effects(entries: list[Entry]) -> set[str]:
    """The calls that may not be made again: those with an outcome, and writes that have begun."""
    finished = {e.key for e in entries if isinstance(e.event, ToolFinished)}
    return finished | {
        e.key
        for e in entries
        if isinstance(e.event, ToolStarted) and e.event.effect == "write"
    }


def check_resumed(trial: Trial) -> None:
    """What was suspended goes on to the same answer, what has ended stays as it was; nothing recorded is repeated."""
    before, ran = trial.entries, trial.ran.copy()
    result = trial.on({}, resume if before else run)
    check_result(trial, result)
    if closing(before)[-1:] == ["run_finished"]:
        assert trial.entries == before
        assert (result.status, result.stop_reason) in ENDS | FAILED
    else:
        assert (result.status, result.answer) == ("completed", trial.program.answer)
    assert {key: trial.ran[key] for key in effects(before)} == {
        key: ran[key] for key in effects(before)
    }
    writes = {
        e.key
        for e in trial.entries
        if isinstance(e.event, ToolStarted) and e.event.effect == "write"
    }
    assert {key: n for key, n in trial.ran.items() if key in writes and n > 1} == {}


def stopped(trial: Trial, stop: Way, point: int) -> str:
    """Stop a run at a point: what it came to, or its closing entry if the host got no result."""
    try:
        result = trial.on(stop.at(point), stop.host)
    except asyncio.CancelledError:
        ended = closing(trial.entries)
        assert len(ended) == bool(trial.entries), f"at point {point}: {ended}"
        return ended[0] if ended else "never was"
    came = (result.status, result.stop_reason)
    assert came in ENDS or (came in FAILED and stop.first is Host.skip), (
        f"at point {point}: {result}"
    )
    assert closing(trial.entries) == ["run_finished"]
    check_result(trial, result)
    return result.status


@pytest.fixture(scope="module")
def stops() -> Iterator[Counter[str]]:
    """How the runs ended that were stopped at a point."""
    ended: Counter[str] = Counter()
    yield ended
    told = ", ".join(
        f"{count} {how.replace('_', ' ')}" for how, count in ended.most_common()
    )
    figure(
        "runs stopped at a point",
        f"{ended.total()} in {len(PROGRAMS)} programs and {len(WAYS)} ways: {told}",
    )


@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_is_stopped_at_any_point_ends_once_and_whole(
    name: str, way: str, stops: Counter[str]
) -> None:
    program, stop = PROGRAMS[name], WAYS[way]
    turns = count_points(name, stop.host)
    came_to: Counter[str] = Counter()
    for point in points(turns):
        trial = Trial(program)
        came_to[stopped(trial, stop, point)] += 1
        check_resumed(trial)
    stops.update(came_to)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way", ["aborted", "out of time", "cancelled", "cancelled with all tasks, twice"]
)
@pytest.mark.parametrize("name", ["react", "plan-execute"])
def test_it_is_the_same_with_a_journal_on_disk(
    name: str, way: str, tmp_path: Path
) -> None:
    program, stop = PROGRAMS[name], WAYS[way]
    turns = count_points(name, stop.host)
    for point in range(1, turns + 1, max(turns // sized(5, 60), 1)):
        journal = SQLiteJournal(tmp_path / f"{point}.db")
        trial = Trial(program, journal)
        ended_as = stopped(trial, stop, point)
        check_resumed(trial)
        assert ended_as != "run_suspended" or closing(trial.entries) == [
            "run_suspended",
            "run_finished",
        ]
        asyncio.run(journal.close())


@pytest.mark.parametrize(
    "way", ["aborted", "aborted while it is watched", "out of time, then aborted"]
)
def test_what_calls_came_to_is_in_the_history_of_an_aborted_run(way: str) -> None:
    program, stop = PROGRAMS["react"], WAYS[way]
    turns = count_points("react", stop.host)
    for point in points(turns):
        trial = Trial(program)
        told = said(trial.on(stop.at(point), stop.host))
        assert told >= came_of_calls(trial.entries), f"at point {point}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_is_cancelled_again_and_again_comes_to_its_answer(name: str) -> None:
    rounds: list[int] = []
    for first in range(3, 43, sized(20, 1)):
        trial, point = Trial(PROGRAMS[name]), first
        while closing(trial.entries)[-1:] != ["run_finished"]:
            point += 8
            before, ran = effects(trial.entries), trial.ran.copy()
            with contextlib.suppress(asyncio.CancelledError):
                trial.on({point: Host.cancel}, resume if trial.entries else run)
            assert {key: trial.ran[key] for key in before} == {
                key: ran[key] for key in before
            }
        check_resumed(trial)
        rounds.append(closing(trial.entries).count("run_suspended"))
    assert max(rounds) >= 2


# --- deadlines: whatever is in flight when the time is over ---

LIMIT = 0.2  # seconds that a run has


class Stubborn:
    """Something that neither ends nor lets itself be cancelled, until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    async def wait(self) -> None:
        """Wait, whatever comes."""
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)


def hung_model(stubborn: Stubborn) -> Runtime:
    return Runtime(Silent("done"))


def hung_stream(stubborn: Stubborn) -> Runtime:
    return Runtime(Silent("done", pieces=3))


def hung_tool(stubborn: Stubborn) -> Runtime:
    @tool
    async def hang() -> None:
        """Hang."""
        await stubborn.wait()

    return Runtime(ScriptedProvider([call("hang"), "done"]), tools=[hang])


def blocked_thread(stubborn: Stubborn) -> Runtime:
    @tool
    def block() -> None:
        """Block."""
        stubborn.released.wait(30)

    return Runtime(ScriptedProvider([call("block"), "done"]), tools=[block])


def hung_calls(stubborn: Stubborn) -> Runtime:
    @tool
    async def hang(n: int) -> None:
        """Hang."""
        await stubborn.wait()

    turn = [call("hang", n=n) for n in range(8)]
    return Runtime(ScriptedProvider([turn, "done"]), tools=[hang])


def hung_engine(stubborn: Stubborn) -> Runtime:
    inner = ReActEngine(hung_tool(stubborn)).as_tool(name="ask", description="Ask.")
    return Runtime(ScriptedProvider([call("ask", task="it"), "done"]), tools=[inner])


def hung_gate(stubborn: Stubborn) -> Runtime:
    class Gate:
        version = "hangs-1"

        async def evaluate(self, action: Action, state: PolicyState) -> Decision:
            await stubborn.wait()
            return Allow()

    return Runtime(
        ScriptedProvider([call("look", what="sky"), "done"]), tools=[look], gate=Gate()
    )


def failing_model(stubborn: Stubborn) -> Runtime:
    return Runtime(
        ScriptedProvider(lambda request: ProviderError("busy", retryable=True))
    )


def patient_model(stubborn: Stubborn) -> Runtime:
    return Runtime(
        ScriptedProvider(
            [ProviderError("busy", retryable=True, retry_after=LIMIT / 2), "done"]
        )
    )


def slow_journal(stubborn: Stubborn) -> Runtime:
    class Slow(MemoryJournal):
        async def barrier(self, claim: Claim) -> None:
            await asyncio.sleep(LATEST / 4)
            await super().barrier(claim)

    def asks(request: Request) -> ToolCall:
        return call("look", what=f"sky {len(request.conversation)}")

    return Runtime(ScriptedProvider(asks), tools=[look], journal=Slow())


class Silent(ScriptedProvider):
    """Says so many pieces of a reply and then nothing."""

    def __init__(self, answer: str, pieces: int = 0) -> None:
        super().__init__([answer])
        self._pieces = pieces

    async def complete(self, request: Request) -> Completion:
        """Nothing."""
        await asyncio.sleep(30)
        return await super().complete(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """A little."""
        for _ in range(self._pieces):
            yield Delta(text="well")
        await asyncio.sleep(30)


DEADLINES: dict[str, Callable[[Stubborn], Runtime]] = {
    "a model that is silent": hung_model,
    "a stream that stands still": hung_stream,
    "a model that fails": failing_model,
    "a model that wants to be waited for": patient_model,
    "a tool that ignores its cancellation": hung_tool,
    "a tool that blocks its thread": blocked_thread,
    "more such calls than may be at work at once": hung_calls,
    "an engine as a tool": hung_engine,
    "a gate that ignores its cancellation": hung_gate,
    "a journal that takes its time": slow_journal,
}


# Waiting for a provider costs no active time: those runs are suspended in the end, or have their answer.
WAITING = {
    "a model that fails": ("suspended", "provider_unavailable"),
    "a model that wants to be waited for": ("completed", "answered"),
}


@pytest.mark.parametrize("watched", [False, True], ids=["plain", "watched"])
@pytest.mark.parametrize("what", DEADLINES)
async def test_a_run_s_time_is_kept_whatever_is_in_flight(
    what: str, watched: bool
) -> None:
    late: list[float] = []
    while len(late) < TRIES and min(late, default=1.0) > LATEST:
        stubborn = Stubborn()
        runtime = DEADLINES[what](stubborn)
        vars(runtime)["limits"] = Limits(timeout=LIMIT, max_provider_wait=LIMIT)
        before = time.monotonic()
        engine = ReActEngine(runtime)
        plain, told = (
            engine.start("Go.", run_id=RUN),
            engine.start("Go.", run_id=RUN, deltas=True),
        )
        async with told if watched else plain as handle:
            result = await handle.result()
        late.append(time.monotonic() - before - LIMIT)
        if what in WAITING:
            assert (result.status, result.stop_reason) == WAITING[what]
        else:
            assert (result.status, result.stop_reason) in {
                ("limit", "timeout"),
                *FAILED,
            }
        last = "run_suspended" if result.status == "suspended" else "run_finished"
        assert closing(runtime.journal.read(RUN)) == [last]
        assert runtime.journal.verify(RUN, result.head_hash).ok
        check_call_results(result.conversation.messages)
        stubborn.released.set()
        await no_task_is_left()
    assert min(late) <= allowed()
    figure(
        f"deadline during {what}{' watched' if watched else ''}",
        f"{min(late) * 1000:.0f} ms late",
    )


async def no_task_is_left() -> None:
    """What was left behind ends when it is let go."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, left = await asyncio.wait(others, timeout=60)
        assert left == set()


@in_virtual_time
async def test_work_that_is_cancelled_twice_has_its_time_to_tidy_up() -> None:
    tidied: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            for _ in range(9):
                await asyncio.sleep(0)
            tidied.append("up")

    task = asyncio.ensure_future(run_with_timeout(work(), None))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tidied == ["up"]


@pytest.mark.parametrize("stop", ["abort", "cancel"])
async def test_a_person_who_does_not_answer_delays_no_other_run(stop: str) -> None:
    late: list[float] = []
    while len(late) < TRIES and min(late, default=1.0) > LATEST:
        late.append(await stop_while_a_person_is_silent(stop))
    assert min(late) <= allowed()


async def stop_while_a_person_is_silent(stop: str) -> float:
    """Stop a run whose approver does not answer; return the seconds until it has ended."""
    stubborn, asked = Stubborn(), asyncio.Event()

    async def silent(action: Action, question: str) -> bool:
        asked.set()
        await stubborn.wait()
        return True

    @tool(effect="destructive")
    async def wipe() -> str:
        """Wipe."""
        raise AssertionError("nobody allowed it")

    runtime = Runtime(
        ScriptedProvider([call("wipe"), "done"]), tools=[wipe], approver=silent
    )
    handle = ReActEngine(runtime).start("Go.", run_id=RUN)
    work = asyncio.ensure_future(handle.result())
    await asked.wait()
    before = time.monotonic()
    if stop == "abort":
        assert (await handle.abort()).status == "aborted"
        await work
    else:
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    seconds = time.monotonic() - before
    assert closing(runtime.journal.read(RUN)) == [
        "run_finished" if stop == "abort" else "run_suspended"
    ]
    stubborn.released.set()
    await no_task_is_left()
    return seconds
