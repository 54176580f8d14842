"""A time-out or a task group of asyncio around a verb cannot be replayed, so the door refuses it."""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable

import pytest

from function_engine import FunctionEngine
from loopwright import MemoryJournal, Run, Runtime, ToolCall, tool
from loopwright.errors import PhaseError
from loopwright.testing import ScriptedProvider
from virtual_time import in_virtual_time

Body = Callable[[Run], Awaitable[object]]
REPLACEMENTS = (
    "Bound time with run.timeout, Limits or @tool(timeout=...) in place of asyncio.timeout and wait_for, and use "
    "run.gather or run.as_completed in place of TaskGroup"
)


@tool(effect="read")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


def engine(body: Body) -> FunctionEngine:
    provider = ScriptedProvider(["a reply"] * 9)
    return FunctionEngine(
        Runtime(provider, tools=[wait], journal=MemoryJournal()), body=body
    )


async def waits(run: Run) -> str:
    return (await run.call(ToolCall("wait", {}))).content


async def with_timeout(run: Run) -> object:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await waits(run)
    return await run.ask("go on")


async def with_wait_for(run: Run) -> object:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(waits(run), 0.01)
    return await run.ask("go on")


async def with_group(run: Run) -> object:
    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(waits(run))
            group.create_task(fails())
    return await run.ask("go on")


async def with_a_task(run: Run) -> object:
    task = asyncio.ensure_future(waits(run))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    return await run.ask("go on")


async def with_an_answer_at_once(run: Run) -> object:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await waits(run)
    return "the answer"


async def around_a_gather(run: Run) -> object:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await run.gather(waits, waits)
    return await run.ask("go on")


async def in_a_branch(run: Run) -> object:
    with contextlib.suppress(PhaseError):
        await run.gather(with_an_answer_at_once)
    return await run.ask("go on")


async def in_a_child(run: Run) -> object:
    await run.delegate(engine(with_an_answer_at_once), "Do.")
    return await run.ask("go on")


BODIES = (
    with_timeout, with_wait_for, with_group, with_a_task, with_an_answer_at_once, around_a_gather, in_a_branch,
    in_a_child,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@in_virtual_time
async def test_an_engine_that_cancels_a_verb_and_continues_is_refused(
    body: Body,
) -> None:
    result = await engine(body).run("Go.")

    assert result.status == "failed"
    assert isinstance(result.error, PhaseError), result.error
    verb = "gather" if body is around_a_gather else "act"
    assert str(result.error).startswith(f"{verb} was cancelled by the engine")
    assert REPLACEMENTS in str(result.error)
    assert result.llm_calls == 0


async def test_a_timeout_that_is_not_reached_is_no_error() -> None:
    async def body(run: Run) -> object:
        async with asyncio.timeout(60):
            return await run.ask("one")

    assert (await engine(body).run("Go.")).answer == "a reply"


@in_virtual_time
async def test_a_timeout_around_no_verb_is_no_error() -> None:
    async def body(run: Run) -> object:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        return await run.ask("one")

    assert (await engine(body).run("Go.")).answer == "a reply"


@pytest.mark.parametrize("by", ["host", "abort"])
async def test_an_engine_that_ends_after_the_host_cancelled_it_is_not_blamed(
    by: str,
) -> None:
    async def body(run: Run) -> object:
        try:
            await waits(run)
        except asyncio.CancelledError:
            return "stopped"
        return "never"

    parts = engine(body)
    async with parts.start("Go.", run_id="r") as run:
        async for entry in run:
            if entry.kind == "tool_started":
                break
        if by == "abort":
            await run.abort()
            result = await run.result()
            assert (result.status, type(result.error).__name__) == (
                "aborted",
                "Aborted",
            )
    kinds = [entry.kind for entry in parts.runtime.journal.read("r")]
    assert "PhaseError" not in str(parts.runtime.journal.read("r")[-1].body), kinds


def test_this_python_has_the_cancellation_counts_that_tell_them_apart() -> None:
    assert sys.version_info >= (3, 11)
    assert hasattr(asyncio.Task, "cancelling")
