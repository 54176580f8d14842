"""What model calls without a reply used that a branch is cut off in: it counts, and a resumed run counts the same."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import Limits, MemoryJournal, Run, Runtime
from loopwright.errors import LimitReached, ProviderError
from loopwright.messages import Completion, Usage
from loopwright.providers import Capabilities, Price, Request
from virtual_time import LoopClock, in_virtual_time

Body = Callable[[Run], Awaitable[object]]
SHORT = 0.3
LONG_QUESTION = "slow " * 80


class SlowProvider:
    """Takes too long for a question that begins with "slow"."""

    name, model = "slow", "slow-1"
    capabilities = Capabilities()

    async def complete(self, request: Request) -> Completion:
        asked = request.conversation.messages[-1].content
        if asked.startswith("slow"):
            await asyncio.sleep(60)
        if asked.startswith("busy"):
            raise ProviderError("busy", status=503, retry_after=60)
        return Completion("ok", answer="ok", usage=Usage(10, 1))


def build(body: Body, journal: MemoryJournal, **options: Any) -> FunctionEngine:
    runtime = Runtime(SlowProvider(), journal=journal, clock=LoopClock(), **options)
    return FunctionEngine(runtime, body=body)


def ask(question: str) -> Callable[[Run], Awaitable[str]]:
    async def work(run: Run) -> str:
        return await run.ask(question)

    return work


async def time_out_twice(run: Run) -> object:
    """Two calls that are cut off, and one that is answered."""
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await run.timeout(SHORT, ask(LONG_QUESTION))
    return await run.ask("quick")


async def leave_two(run: Run) -> object:
    """Leave two calls when the first of three has ended."""
    works = [ask(LONG_QUESTION), ask("quick"), ask(LONG_QUESTION)]
    async with run.as_completed(*works) as done:
        async for finished in done:
            return finished.value
    raise AssertionError("no branch ended")


@pytest.mark.parametrize("body", [time_out_twice, leave_two])
@in_virtual_time
async def test_a_call_that_is_cut_off_counts_its_input(body: Body) -> None:
    result = await build(body, MemoryJournal()).run("go")
    assert (result.status, result.answer) == ("completed", "ok")
    assert result.usage.estimated
    assert (result.usage.output_tokens, result.llm_calls) == (1, 3)
    assert 10 + 2 * 100 <= (result.usage.input_tokens or 0) <= 10 + 2 * 130


@pytest.mark.parametrize(
    ("body", "begins"),
    [(time_out_twice, "run_started"), (leave_two, "branches_closed")],
)
@in_virtual_time
async def test_a_run_that_is_resumed_counts_the_same(body: Body, begins: str) -> None:
    journal = MemoryJournal()
    whole = await build(body, journal).run("go", run_id="r")
    entries = journal.read("r")
    for at in range(cut_after(entries, begins), len(entries)):
        forked = await build(body, journal).fork("r", at=at)
        resumed = await build(body, journal).resume(forked)
        assert (at, resumed.usage) == (at, whole.usage)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_tokens=300, best_effort=False), "max_tokens"),
        (Limits(max_cost=0.3, max_tokens=None, best_effort=False), "max_cost"),
    ],
)
@in_virtual_time
async def test_a_loop_of_time_outs_ends_at_a_limit(limits: Limits, reason: str) -> None:
    async def body(run: Run) -> object:
        for _ in range(20):
            try:
                await run.timeout(SHORT, ask(LONG_QUESTION))
            except LimitReached:
                raise
            except TimeoutError:
                continue
        return "never"

    prices = {"slow-1": Price(1_000, 1_000)}
    engine = build(body, MemoryJournal(), limits=limits, prices=prices)
    result = await engine.run("go")
    assert (result.status, result.stop_reason) == ("limit", reason)
    assert result.llm_calls <= 4


async def test_a_call_that_only_waits_for_its_provider_counts_nothing() -> None:
    async def body(run: Run) -> object:
        works = [ask("busy " * 80), ask("quick")]
        async with run.as_completed(*works) as done:
            async for finished in done:
                return finished.value
        raise AssertionError("no branch ended")

    result = await build(body, MemoryJournal()).run("go")
    assert result.answer == "ok"
    assert result.usage == Usage(10, 1)
