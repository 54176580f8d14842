"""A work that is bounded by time: what was faster is recorded, and a resumed run goes the same way."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after, kinds
from loopwright import (
    Completion,
    ConfigError,
    MemoryJournal,
    ReplayDivergence,
    Request,
    Result,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.errors import TimedOut
from loopwright.events import Entry, TimeoutSet, ToolFinished
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from sample_tools import RAN
from virtual_time import LoopClock, in_virtual_time
from waiting import eventually

Body = Callable[[Run], Awaitable[object]]
SHORT, LONG = 0.03, 30.0


@tool(effect="read")
async def wait(seconds: float) -> str:
    """Wait."""
    RAN.append(f"wait {seconds}")
    await asyncio.sleep(seconds)
    return "waited"


async def take_back() -> str:
    """Undo."""
    return "taken back"


@tool(effect="write", compensate=take_back)
async def pay(seconds: float) -> str:
    """Pay."""
    RAN.append(f"pay {seconds}")
    await asyncio.sleep(seconds)
    return "paid"


class SlowProvider(ScriptedProvider):
    """Takes its time for one question."""

    async def complete(self, request: Request) -> Completion:
        if request.conversation.messages[-1].content == "slow":
            await asyncio.sleep(LONG)
        return await super().complete(request)


def runtime(journal: MemoryJournal | None = None, **options: Any) -> Runtime:
    def answer(request: Any) -> str:
        return str(request.conversation.messages[-1].content).upper()

    options.setdefault("clock", LoopClock())
    return Runtime(SlowProvider(answer), tools=[wait, pay], journal=journal, **options)


def engine(body: Body, journal: MemoryJournal | None = None, **options: Any) -> Any:
    return FunctionEngine(runtime(journal, **options), body=body)


async def run_whole(body: Body, **options: Any) -> tuple[Result, list[Entry]]:
    started = engine(body, MemoryJournal())
    result = await started.run("go", run_id="r", **options)
    return result, started.runtime.journal.read("r")


async def ask_and_wait(run: Run) -> str:
    first = await run.ask("one")
    await run.call(ToolCall("wait", {"seconds": LONG}))
    return first + await run.ask("never")


async def ask_slowly(run: Run) -> str:
    return await run.ask("one") + await run.ask("slow")


def within(seconds: float, work: Callable[[Run], Awaitable[str]]) -> Body:
    async def body(run: Run) -> object:
        try:
            found = await run.timeout(seconds, work)
        except TimeoutError as error:
            found = type(error).__name__
        return f"{found} {await run.ask('two')}"

    return body


async def test_a_work_in_time_returns_its_result() -> None:
    result, entries = await run_whole(within(LONG, lambda run: run.ask("one")))

    assert result.answer == "ONE TWO"
    assert [entry.key for entry in entries if "timeout" in entry.kind] == ["timeout:0"]
    assert [entry.key for entry in entries if entry.kind == "model_replied"] == [
        "0.0.0",
        "1",
    ]


@in_virtual_time
async def test_a_work_that_takes_too_long_is_cut_off() -> None:
    RAN.clear()
    result, entries = await run_whole(within(SHORT, ask_and_wait))

    assert result.answer == "TimedOut TWO"
    assert result.llm_calls == 2
    assert RAN == ["wait 30.0"]
    fired = cut_after(entries, "timeout_fired")
    [finished] = [e for e in entries if isinstance(e.event, ToolFinished)]
    assert finished.seq > fired  # recorded before anything is cancelled
    assert finished.event.status == "timed_out"  # type: ignore[union-attr]


async def swallow(run: Run) -> str:
    for _ in range(3):
        with contextlib.suppress(asyncio.CancelledError):
            await run.call(ToolCall("wait", {"seconds": LONG}))
    with contextlib.suppress(asyncio.CancelledError):
        await run.ask("after the end")
    return "it went on"


async def clean_up(run: Run) -> str:
    try:
        await ask_and_wait(run)
    finally:
        await run.ask("clean up")
    return "never"


async def spread(run: Run) -> str:
    async def quick(branch: Run) -> str:
        return await branch.ask("quick")

    found = await run.gather(quick, ask_and_wait, quick)
    return "".join(found)


async def several(run: Run) -> str:
    calls = [ToolCall("wait", {"seconds": seconds}) for seconds in (0.0, LONG, LONG)]
    cleared = await run.gate(run.propose(*calls))
    seen = await run.act(cleared)
    return await run.ask(f"{len(seen)} calls")


async def nested(run: Run) -> str:
    with contextlib.suppress(TimedOut):
        await run.timeout(SHORT / 2, ask_and_wait)
    after = await run.ask("inner is over")
    return after + await run.timeout(LONG, ask_and_wait)


async def with_a_child(run: Run) -> str:
    child = engine(ask_and_wait)
    return str((await run.delegate(child, "Do.")).answer)


async def with_an_effect(run: Run) -> str:
    async def work() -> str:
        await asyncio.sleep(LONG)
        return "late"

    return await run.effect("slow", work, into=str)


WORKS = (
    ask_and_wait, swallow, clean_up, spread, several, nested, with_a_child, with_an_effect, ask_slowly,
)  # fmt: skip


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
@in_virtual_time
async def test_a_run_cut_after_any_entry_times_out_as_well(work: Any) -> None:
    body = within(SHORT * 2, work)
    result, entries = await run_whole(body)
    assert result.answer == "TimedOut TWO"
    fired = max(entry.seq for entry in entries if entry.kind == "timeout_fired")
    for keep in range(1, len(entries)):
        RAN.clear()
        cut = crashed(entries, keep)
        again = await engine(body, cut).resume("r")

        assert again.answer == result.answer, keep
        outer = [one for one in cut.read("r") if one.key == "fired:0"]
        assert len(outer) == 1, keep
        if keep >= fired:
            assert RAN == [], keep
            assert again.llm_calls == result.llm_calls, keep
            new = {one.key.partition(".")[0] for one in cut.read("r")[keep:]}
            assert new <= {"", "1"}, (keep, new)


async def test_a_work_that_was_in_time_is_in_time_when_it_is_resumed_late() -> None:
    clock = FakeClock()

    @tool(effect="read")
    async def tick() -> str:
        """Let ten seconds pass."""
        clock.advance(10)
        return "ten seconds later"

    async def work(run: Run) -> str:
        return (await run.call(ToolCall("tick", {}))).content

    async def other(run: Run) -> str:
        return await run.ask("other")

    async def body(run: Run) -> object:
        return await run.gather(other, lambda branch: branch.timeout(5, work), other)

    def parts(journal: MemoryJournal) -> FunctionEngine:
        provider = ScriptedProvider(["other"] * 9)
        return FunctionEngine(
            Runtime(provider, tools=[tick], journal=journal, clock=clock), body=body
        )

    journal = MemoryJournal()
    result = await parts(journal).run("go", run_id="r")
    entries = journal.read("r")
    assert result.answer == "['other', 'ten seconds later', 'other']"
    for keep in range(cut_after(entries, "tool_finished"), len(entries)):
        again = await parts(crashed(entries, keep)).resume("r")
        assert again.answer == result.answer, keep


async def test_the_time_that_was_recorded_first_counts() -> None:
    async def body(run: Run) -> object:
        return await run.timeout(LONG, lambda branch: branch.ask("one"))

    _, entries = await run_whole(body)
    cut = crashed(entries, cut_after(entries, "timeout_set"))
    await engine(body, cut).resume("r")

    assert sum(isinstance(entry.event, TimeoutSet) for entry in cut.read("r")) == 1


async def test_waiting_for_a_person_takes_no_time_of_the_work() -> None:
    async def work(run: Run) -> str:
        return await run.ask_user("Which?")

    clock = FakeClock()
    asked = FunctionEngine(runtime(MemoryJournal(), clock=clock), body=within(5, work))
    result = await asked.run("go", run_id="r")
    assert result.status == "waiting"
    clock.advance(3600)
    await asked.runtime.control("r").answer("this one")

    assert (await asked.resume("r")).answer == "this one TWO"


async def asks_beside(run: Run) -> str:
    async def asks(branch: Run) -> str:
        return await branch.ask_user("Which?")

    return "".join(await run.gather(asks, ask_and_wait))


@in_virtual_time
async def test_the_questions_of_a_work_that_is_cut_off_are_withdrawn() -> None:
    body = within(SHORT * 2, asks_beside)
    result, entries = await run_whole(body)

    assert (result.status, result.answer) == ("completed", "TimedOut TWO")
    assert result.pending == ()
    assert [entry.key for entry in entries if entry.kind == "question_withdrawn"]
    for keep in range(1, len(entries)):
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert again.answer == result.answer, keep


@in_virtual_time
async def test_a_saga_names_the_call_that_was_cut_off_as_in_doubt() -> None:
    async def work(run: Run) -> str:
        return (await run.call(ToolCall("pay", {"seconds": LONG}))).content

    async def body(run: Run) -> object:
        with contextlib.suppress(TimedOut):
            await run.timeout(SHORT, work)
        raise ValueError("no")

    result, entries = await run_whole(body, saga=True)
    assert result.status == "failed"
    text = "pay (0.0.0#0): it is not known whether it took effect"
    assert text in str(result.error)
    for keep in range(cut_after(entries, "timeout_fired"), len(entries)):
        RAN.clear()
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert text in str(again.error), keep
        assert RAN == []


async def test_an_aborted_work_is_aborted_and_not_timed_out() -> None:
    started = engine(within(LONG, ask_and_wait), MemoryJournal())
    async with started.start("go", run_id="r") as run:
        async for entry in run:
            if entry.kind == "tool_started":
                break
        await run.abort()
        result = await run.result()
    assert result.status == "aborted"
    assert "timeout_fired" not in kinds(started.runtime, "r")


@in_virtual_time
async def test_a_run_that_its_host_cancelled_within_a_work_goes_on_with_it() -> None:
    RAN.clear()
    started = engine(within(LONG, ask_and_wait), MemoryJournal())
    task = asyncio.ensure_future(started.run("go", run_id="r"))
    await eventually(lambda: "wait 30.0" in RAN)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert kinds(started.runtime, "r")[-1] == "run_suspended"
    assert "timeout_fired" not in kinds(started.runtime, "r")

    shorter = engine(within(SHORT, ask_and_wait), started.runtime.journal)
    resumed = asyncio.ensure_future(shorter.resume("r"))
    await asyncio.sleep(SHORT * 3)
    assert not resumed.done()  # the recorded time counts
    resumed.cancel()
    await asyncio.wait([resumed])


async def test_an_error_of_a_work_in_time_is_raised() -> None:
    async def work(run: Run) -> str:
        raise ValueError(await run.ask("one"))

    async def body(run: Run) -> object:
        with pytest.raises(ValueError, match="ONE"):
            await run.timeout(LONG, work)
        return "seen"

    assert (await run_whole(body))[0].answer == "seen"


async def test_an_effect_recorded_in_place_of_the_work_is_a_divergence() -> None:
    async def before(run: Run) -> object:
        return await run.ask("one") + await run.ask("two")

    _, entries = await run_whole(before)
    cut = crashed(entries, cut_after(entries, "model_replied", 2))
    with pytest.raises(ReplayDivergence, match="now: timeout"):
        await engine(within(LONG, ask_and_wait), cut).resume("r")


@in_virtual_time
async def test_a_call_that_a_person_ordered_waits_for_no_work_that_was_cut_off() -> (
    None
):
    _, entries = await run_whole(within(SHORT, ask_slowly))
    cut = crashed(entries, cut_after(entries, "timeout_fired"))
    again = engine(within(SHORT, ask_slowly), cut)
    await again.runtime.control("r").override("wait", {"seconds": 0.0})
    result = await again.resume("r")

    assert result.status == "completed"
    assert str(result.answer).startswith("TimedOut ")
    calls = [entry.key for entry in cut.read("r") if entry.kind == "tool_started"]
    assert calls == ["1#0"]


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), True, "5"])
async def test_the_time_of_a_work_is_a_number_from_zero(seconds: Any) -> None:
    async def body(run: Run) -> object:
        return await run.timeout(seconds, ask_and_wait)

    result, _ = await run_whole(body)
    assert isinstance(result.error, ConfigError)
    assert str(result.error).startswith("seconds: must be a number from 0")


async def test_the_time_of_a_work_may_be_a_timedelta() -> None:
    async def body(run: Run) -> object:
        return await run.timeout(timedelta(minutes=1), lambda one: one.ask("one"))

    result, entries = await run_whole(body)
    assert result.answer == "ONE"
    [times] = [e.event for e in entries if isinstance(e.event, TimeoutSet)]
    assert times.seconds == 60.0
