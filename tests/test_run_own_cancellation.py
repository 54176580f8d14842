"""Code that raises `CancelledError` by itself has failed; only who cancels the run's task stops the run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NoReturn

import pytest

from function_engine import FunctionEngine
from loopwright import MemoryJournal, Run, Runtime, ToolCall, Worker, tool
from loopwright.engine import LoopEngine
from loopwright.events import AttemptFailed, BranchFinished, HookRan
from loopwright.hooks import Hook, Moment
from loopwright.journals import Claim, RunInfo
from loopwright.journals.memory import MemorySchedules
from loopwright.providers import Delta, FallbackProvider, Request
from loopwright.schedules.base import Schedule
from loopwright.testing import ScriptedProvider
from loopwright.tools.recovery import CallOutcome, RecoveryContext, RecoveryStrategy
from virtual_time import in_virtual_time

OWN = "RuntimeError: CancelledError, although its task was not cancelled"
LATE = 60.0


async def await_cancelled(*_: object) -> NoReturn:
    """Await a task that was cancelled, as a client does whose connection is shared."""
    task = asyncio.ensure_future(asyncio.sleep(LATE))
    task.cancel()
    await task
    raise AssertionError("the task was cancelled")


async def raise_itself(run: Run) -> NoReturn:
    raise asyncio.CancelledError("of the engine")


async def ask(run: Run) -> str:
    return await run.ask("What?")


async def await_in_branch(run: Run) -> object:
    return await run.gather(ask, await_cancelled)


async def await_in_time(run: Run) -> object:
    return await run.timeout(LATE, await_cancelled)


def engine(
    body: Callable[[Run], Awaitable[object]], *script: Any, **options: Any
) -> FunctionEngine:
    runtime = Runtime(
        ScriptedProvider([*script, *["a reply"] * 3]),
        journal=MemoryJournal(),
        **options,
    )
    return FunctionEngine(runtime, body=body)


@pytest.mark.parametrize(
    "body", [raise_itself, await_cancelled, await_in_branch, await_in_time]
)
async def test_an_engine_that_raises_a_cancellation_fails(body: Any) -> None:
    doing = engine(body)
    result = await doing.run("Go.", run_id="r")

    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    assert f"doing raised {OWN}" in str(result.error)
    assert (await doing.resume("r")).status == "failed"


async def test_an_engine_may_handle_the_cancellation_of_a_branch() -> None:
    ended = list[str]()

    async def body(run: Run) -> str:
        async with run.as_completed(await_cancelled, ask) as done:
            async for one in done:
                ended.append(str(one.error))
        return "handled"

    assert (await engine(body).run("Go.")).answer == "handled"
    assert len(ended) == 2
    assert OWN.removeprefix("RuntimeError: ") in "".join(ended)


async def test_a_named_branch_that_raises_a_cancellation_is_recorded() -> None:
    async def body(run: Run) -> object:
        return await run.gather(await_cancelled, names=["one"])

    doing = engine(body)
    result = await doing.run("Go.", run_id="r")
    entries = doing.runtime.journal.read("r")
    [ended] = [one.event for one in entries if isinstance(one.event, BranchFinished)]

    assert (result.status, ended.error) == ("failed", "RuntimeError")


async def test_a_child_that_raises_a_cancellation_fails_alone() -> None:
    async def body(run: Run) -> str:
        child = await run.delegate(engine(await_cancelled), "Go.")
        called = await run.call(ToolCall("doing", {"task": "Go."}))
        return f"{child.stop_reason}, {called.status}"

    child: LoopEngine = engine(await_cancelled)
    tools = [child.as_tool(name="doing", description="Do it.")]

    assert (await engine(body, tools=tools).run("Go.")).answer == "engine_error, error"


@pytest.mark.parametrize("watched", [False, True])
def test_a_provider_that_raises_a_cancellation_is_asked_again(*, watched: bool) -> None:
    @in_virtual_time
    async def converse() -> None:
        doing = engine(ask, asyncio.CancelledError(), "fine")
        async with doing.start("Go.", run_id="r", deltas=watched) as handle:
            result = await handle.result()
        entries = doing.runtime.journal.read("r")
        failed = [one.event for one in entries if isinstance(one.event, AttemptFailed)]

        assert result.answer == "fine"
        assert [OWN in one.error.message for one in failed] == [True]

    converse()


class Streaming(ScriptedProvider):
    """A provider whose stream awaits what was cancelled."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Fail."""
        await await_cancelled()
        yield Delta("never")


@pytest.mark.parametrize("watched", [False, True])
async def test_another_provider_is_asked_where_one_raises_a_cancellation(
    *, watched: bool
) -> None:
    first = Streaming([asyncio.CancelledError()], model="first")
    chain = FallbackProvider(first, ScriptedProvider(["from the second"]))
    doing = FunctionEngine(Runtime(chain, journal=MemoryJournal()), body=ask)
    async with doing.start("Go.", deltas=watched) as handle:
        result = await handle.result()

    assert result.answer == "from the second"


class Awaiting(Hook):
    """A hook that raises a cancellation at once, or from what it awaits."""

    name = "awaiting"

    def __init__(self, *, waits: bool) -> None:
        self._waits = waits

    async def before_answer(self, moment: Moment, text: str) -> None:
        """Fail."""
        if not self._waits:
            raise asyncio.CancelledError
        await await_cancelled()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_hook_that_raises_a_cancellation_fails_alone(*, waits: bool) -> None:
    doing = engine(ask, hooks=[Awaiting(waits=waits)])
    result = await doing.run("Go.", run_id="r")
    entries = doing.runtime.journal.read("r")
    [ran] = [one.event for one in entries if isinstance(one.event, HookRan)]

    assert result.answer == "a reply"
    assert ran.error is not None
    assert ran.error.type == "RuntimeError"


class Cancelling(RecoveryStrategy):
    """A strategy whose code raises a cancellation."""

    name = "cancelling"

    def __init__(self, where: str) -> None:
        self._where = where

    def applies(self, context: RecoveryContext) -> bool:
        """Fail, or say yes."""
        if self._where == "applies":
            raise asyncio.CancelledError
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        """Fail."""
        return await await_cancelled()


@pytest.mark.parametrize("where", ["applies", "recover"])
async def test_a_recovery_that_raises_a_cancellation_leaves_the_failure(
    where: str,
) -> None:
    @tool(effect="read", recovery=Cancelling(where))
    async def look() -> str:
        """Fail."""
        raise ValueError("no sky")

    async def body(run: Run) -> str:
        return (await run.call(ToolCall("look", {}))).content

    assert (await engine(body, tools=[look]).run("Go.")).answer == "ValueError: no sky"


class Lost(MemoryJournal):
    """A journal whose barrier awaits a task of its driver that was cancelled, from the n-th on."""

    def __init__(self, barriers: int) -> None:
        super().__init__()
        self._left = barriers

    async def barrier(self, claim: Claim) -> None:
        """Fail."""
        self._left -= 1
        if self._left < 0:
            await await_cancelled()
        await super().barrier(claim)


@pytest.mark.parametrize("barriers", [0, 1])
async def test_a_journal_that_raises_a_cancellation_has_failed(barriers: int) -> None:
    provider = ScriptedProvider(["a reply"])
    runtime = Runtime(provider, journal=Lost(barriers))
    result = await FunctionEngine(runtime, body=ask).run("Go.")

    assert (result.status, result.stop_reason) == ("failed", "journal_error")
    assert OWN.removeprefix("RuntimeError: ") in str(result.error)
    assert len(provider.requests) == barriers


class LostSchedules(MemorySchedules):
    """Schedules whose first reading raises a cancellation."""

    asked = 0

    def read(self) -> list[Schedule]:
        """Fail once."""
        self.asked += 1
        if self.asked == 1:
            raise asyncio.CancelledError
        return super().read()


class Unlisted(MemoryJournal):
    """A journal whose first list of the runs, and of the schedules, raises a cancellation."""

    asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.schedules = self.lost = LostSchedules(self)

    def runs(self, **given: Any) -> list[RunInfo]:
        """Fail once."""
        self.asked += 1
        if self.asked == 1:
            raise asyncio.CancelledError
        return super().runs(**given)


async def test_a_worker_outlives_a_journal_that_raises_a_cancellation() -> None:
    journal = Unlisted()
    worker = Worker(Runtime(ScriptedProvider([]), journal=journal, lease=5.0))

    assert await worker.drain() == []
    assert await worker.drain() == []
    assert (journal.asked, journal.lost.asked) == (2, 2)


async def test_an_observer_that_raises_a_cancellation_does_not_stop_the_run() -> None:
    def observe(entry: object) -> None:
        raise asyncio.CancelledError

    assert (await engine(ask, observers=[observe]).run("Go.")).answer == "a reply"
