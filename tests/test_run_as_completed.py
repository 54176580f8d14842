"""Works whose outcomes come as they end: the order is recorded, and a resumed run gets them in the same one."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after, kinds
from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    LimitReached,
    Limits,
    MemoryJournal,
    PolicyState,
    ProviderError,
    ReplayDivergence,
    Request,
    Result,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    tool,
)
from loopwright.errors import PhaseError, Suspended
from loopwright.events import BranchDelivered, Entry, ToolFinished
from loopwright.gates import InstantGate
from loopwright.testing import ScriptedProvider, crashed
from loopwright.tools import Fallback
from sample_tools import RAN
from virtual_time import LoopClock, in_virtual_time

Body = Callable[[Run], Awaitable[object]]
Work = Callable[[Run], Awaitable[str]]
UNBOUNDED = Limits(max_concurrent_tools=None)
STEP = 0.02
"""Seconds between the ends of two works."""


@tool(effect="read")
async def wait(seconds: float) -> str:
    """Wait."""
    RAN.append(f"wait {seconds:g}")
    await asyncio.sleep(seconds)
    return f"{seconds:g}"


async def take_back() -> str:
    """Undo."""
    return "taken back"


@tool(effect="write", compensate=take_back)
async def pay(seconds: float) -> str:
    """Pay."""
    RAN.append(f"pay {seconds:g}")
    await asyncio.sleep(seconds)
    return f"paid after {seconds:g}"


def runtime(journal: MemoryJournal | None = None, **options: Any) -> Runtime:
    def answer(request: Request) -> str:
        return str(request.conversation.messages[-1].content).upper()

    options.setdefault("limits", UNBOUNDED)
    options.setdefault("clock", LoopClock())
    return Runtime(
        ScriptedProvider(answer), tools=[wait, pay], journal=journal, **options
    )


def engine(
    body: Body, journal: MemoryJournal | None = None, **options: Any
) -> FunctionEngine:
    return FunctionEngine(runtime(journal, **options), body=body)


async def run_whole(
    body: Body, *, limits: Limits = UNBOUNDED, **options: Any
) -> tuple[Result, list[Entry]]:
    started = engine(body, MemoryJournal(), limits=limits)
    result = await started.run("go", run_id="r", **options)
    return result, started.runtime.journal.read("r")


def waits(steps: float, name: str = "wait") -> Work:
    """Return a work that ends after so many steps."""

    async def work(run: Run) -> str:
        call = ToolCall(name, {"seconds": steps * STEP})
        return (await run.call(call)).content

    return work


async def fails(run: Run) -> str:
    raise ValueError(await run.ask("no"))


async def asks_a_person(run: Run) -> str:
    return await run.ask_user("Which?")


async def read_all(run: Run, works: Sequence[Work], **options: Any) -> list[object]:
    found: list[object] = []
    async with run.as_completed(*works, **options) as done:
        async for finished in done:
            error = type(finished.error).__name__ if finished.error else None
            found.append((finished.index, finished.value, error))
    return found


SLOW_FIRST = (waits(3), waits(1), waits(2))


async def all_of_them(run: Run) -> object:
    return await read_all(run, SLOW_FIRST)


async def verbs_between(run: Run) -> object:
    words: list[str] = []
    async with run.as_completed(waits(6), waits(1), waits(2), waits(4)) as done:
        async for finished in done:
            run.note({"ended": finished.index})
            words.append(await run.ask(f"{finished.index} {finished.value}"))
            await run.call(ToolCall("wait", {"seconds": STEP / 2}))
    return [*words, await run.ask("after")]


async def an_early_end(run: Run) -> object:
    async with run.as_completed(waits(500), waits(1), waits(2), waits(500)) as done:
        async for finished in done:
            if finished.index == 2:
                break
    return finished.value + await run.ask("after")


async def a_failing_block(run: Run) -> object:
    try:
        async with run.as_completed(waits(500), waits(1)) as done:
            async for finished in done:
                raise KeyError(await run.ask(f"ended {finished.index}"))
    except KeyError as error:
        return await run.ask(f"then {error}")


async def more_works(run: Run) -> object:
    found: list[object] = []
    async with run.as_completed(waits(1), waits(5)) as done:
        async for finished in done:
            found.append((finished.index, finished.value))
            if len(found) == 1:
                found.append(done.start(waits(2)))
                found.append(await run.ask("between"))
                found.append(done.start(waits(8)))
    return found


async def with_errors(run: Run) -> object:
    return await read_all(run, (waits(2), fails, waits(1)))


async def in_turn(run: Run) -> object:
    works = [waits(12), waits(1), waits(1), waits(2)]
    return await read_all(run, works, max_concurrency=2)


async def of_nothing(run: Run) -> object:
    return await read_all(run, ()) + [await run.ask("after")]


async def nested(run: Run) -> object:
    async def inner(branch: Run) -> str:
        return f"{await read_all(branch, SLOW_FIRST)} {await branch.ask('inner')}"

    async def in_gather(branch: Run) -> str:
        return "".join(await branch.gather(waits(2), waits(1)))

    return await read_all(run, (waits(9), inner, in_gather, waits(1)))


async def with_timeouts(run: Run) -> object:
    async def bounded(branch: Run) -> str:
        return await branch.timeout(STEP * 5, waits(500))

    return await read_all(run, (waits(20), bounded, waits(1)))


async def within_a_timeout(run: Run) -> object:
    async def slow(branch: Run) -> str:
        return str(await read_all(branch, (waits(500), waits(1), waits(2))))

    try:
        return await run.timeout(STEP * 4, slow)
    except TimeoutError:
        return await run.ask("too late")


async def begun_and_left(run: Run) -> object:
    async with run.as_completed(waits(500), waits(500)) as done:
        done.start(waits(500))
        await run.ask("inside")
    return await run.ask("outside")


async def one_after_the_other(run: Run) -> object:
    return [await all_of_them(run), await an_early_end(run), await in_turn(run)]


BODIES = (
    all_of_them, verbs_between, an_early_end, a_failing_block, more_works, with_errors, in_turn, of_nothing, nested,
    with_timeouts, within_a_timeout, begun_and_left, one_after_the_other,
)  # fmt: skip


@in_virtual_time
async def test_outcomes_come_as_works_end() -> None:
    result, entries = await run_whole(all_of_them)

    assert result.answer == "[(1, '0.02', None), (2, '0.04', None), (0, '0.06', None)]"
    given = [(one.key, one.event) for one in entries if "deliver" in one.kind]
    assert given == [
        ("done:0.0", BranchDelivered(1)),
        ("done:0.1", BranchDelivered(2)),
        ("done:0.2", BranchDelivered(0)),
    ]
    assert "branches_closed" not in [one.kind for one in entries]


@in_virtual_time
async def test_errors_are_given_as_outcomes() -> None:
    result, _ = await run_whole(with_errors)

    assert result.answer == (
        "[(1, None, 'ValueError'), (2, '0.02', None), (0, '0.04', None)]"
    )


@in_virtual_time
async def test_leaving_early_cuts_the_others_off() -> None:
    RAN.clear()
    result, entries = await run_whole(an_early_end)

    assert result.answer == "0.04AFTER"
    closed = cut_after(entries, "branches_closed")
    cut = [
        (entry.seq > closed, entry.key, entry.event.status)
        for entry in entries
        if isinstance(entry.event, ToolFinished) and entry.event.status != "ok"
    ]
    assert cut == [(True, "0.0.0#0", "cancelled"), (True, "0.3.0#0", "cancelled")]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@in_virtual_time
async def test_a_run_cut_after_any_entry_gets_the_same_in_the_same_order(
    body: Body,
) -> None:
    started = engine(body, MemoryJournal())
    result = await started.run("go", run_id="r")
    entries = started.runtime.journal.read("r")
    assert result.status == "completed", result.error
    for keep in range(1, len(entries)):
        RAN.clear()
        journal = crashed(entries, keep)
        again = await engine(body, journal).resume("r")

        assert again.answer == result.answer, keep
        assert again.llm_calls == result.llm_calls, keep
        after = journal.read("r")
        recorded = [one.key for one in after if one.kind.startswith("branch")]
        assert len(recorded) == len(set(recorded)), keep
        ended = {one.key for one in entries[:keep] if one.kind == "tool_finished"}
        begun = {one.key for one in after[keep:] if one.kind == "tool_started"}
        assert not begun & ended, keep


@in_virtual_time
async def test_outcomes_that_were_not_given_yet_come_in_the_order_of_their_ends() -> (
    None
):
    """The engine was at work while two works ended; then the process died."""

    async def body(run: Run) -> object:
        found: list[int] = []
        async with run.as_completed(waits(2), waits(3), waits(1)) as done:
            await run.call(ToolCall("wait", {"seconds": STEP * 5}))
            async for finished in done:
                found.append(finished.index)
                await run.ask(str(finished.index))
        return found

    result, entries = await run_whole(body)
    assert result.answer == "[2, 0, 1]"
    for keep in range(cut_after(entries, "tool_finished", 3), len(entries)):
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert again.answer == result.answer, keep


async def parked(run: Run) -> object:
    return await read_all(run, (asks_a_person, waits(1), waits(2)))


async def parked_with_verbs(run: Run) -> object:
    found: list[object] = []
    async with run.as_completed(asks_a_person, waits(1), waits(2)) as done:
        async for finished in done:
            found.append(await run.ask(f"{finished.index} {finished.value}"))
    return found


@pytest.mark.parametrize("body", [parked, parked_with_verbs])
@in_virtual_time
async def test_a_work_that_waits_for_a_person_is_given_once_it_ended(
    body: Body,
) -> None:
    started = engine(body, MemoryJournal())
    result = await started.run("go", run_id="r")
    assert result.status == "waiting"
    assert [one.key for one in result.pending] == ["0.0.0"]
    assert kinds(started.runtime, "r").count("branch_delivered") == 2
    waiting = started.runtime.journal.read("r")
    for keep in range(2, len(waiting)):
        journal = crashed(waiting, keep)
        again = engine(body, journal)
        assert (await again.resume("r")).status == "waiting", keep
        await again.runtime.control("r").answer("this one")
        ended = await again.resume("r")
        assert ended.status == "completed", (keep, ended.error)
        assert str(ended.answer).index("THIS" if body is not parked else "this") > 20
        assert kinds(again.runtime, "r").count("branch_delivered") == 3


@in_virtual_time
async def test_an_engine_that_waits_in_its_block_lets_the_works_end() -> None:
    async def body(run: Run) -> object:
        found: list[object] = []
        async with run.as_completed(waits(2), waits(1)) as done:
            found.append(await run.ask_user("Which?"))
            async for finished in done:
                found.append(finished.index)
        return found

    started = engine(body, MemoryJournal())
    assert (await started.run("go", run_id="r")).status == "waiting"
    entries = started.runtime.journal.read("r")
    assert sum(isinstance(entry.event, ToolFinished) for entry in entries) == 2
    assert "branches_closed" not in [entry.kind for entry in entries]
    await started.runtime.control("r").answer("this one")
    RAN.clear()

    assert (await started.resume("r")).answer == "['this one', 1, 0]"
    assert RAN == []


@in_virtual_time
async def test_the_question_of_a_work_that_was_left_is_withdrawn() -> None:
    async def body(run: Run) -> object:
        async with run.as_completed(asks_a_person, waits(1)) as done:
            finished = await anext(done)
        return await run.ask(f"{finished.index}")

    result, entries = await run_whole(body)
    assert (result.status, result.answer, result.pending) == ("completed", "1", ())
    assert "question_withdrawn" in [entry.kind for entry in entries]
    for keep in range(1, len(entries)):
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert again.answer == "1", keep


@in_virtual_time
async def test_a_saga_names_the_call_of_a_work_that_was_left() -> None:
    async def body(run: Run) -> object:
        async with run.as_completed(waits(500, "pay"), waits(1)) as done:
            async for _ in done:
                break
        raise ValueError("no")

    result, entries = await run_whole(body, saga=True)
    text = "pay (0.0.0#0): it is not known whether it took effect"
    assert text in str(result.error)
    for keep in range(cut_after(entries, "branches_closed"), len(entries)):
        RAN.clear()
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert text in str(again.error), keep
        assert RAN == []


@in_virtual_time
async def test_a_limit_in_one_work_leaves_the_outcomes_of_the_others() -> None:
    async def asks_often(run: Run) -> str:
        await waits(0.5)(run)
        for number in range(9):
            await run.ask(str(number))
        return "never"

    async def body(run: Run) -> object:
        found = await read_all(run, (asks_often, waits(1), waits(2)))
        run.offer(str(found))
        return found

    result, _ = await run_whole(body, limits=Limits(max_llm_calls=4))
    assert result.status == "limit"
    assert isinstance(result.error, LimitReached)
    assert result.answer == (
        "[(0, None, 'LimitReached'), (1, '0.02', None), (2, '0.04', None)]"
    )


@in_virtual_time
async def test_a_sleep_that_a_gather_in_a_work_ended_without_stays_abandoned() -> None:
    async def sleeps(run: Run) -> str:
        await run.sleep(200)
        return "never"

    async def gathers(run: Run) -> str:
        with contextlib.suppress(ValueError):
            await run.gather(sleeps, fails)
        return "gathered"

    async def body(run: Run) -> object:
        found = await read_all(run, (gathers, waits(1)))
        return [*found, await run.ask("after")]

    result, entries = await run_whole(body)
    assert str(result.answer).startswith("[(0, 'gathered', None), (1,")
    for keep in range(cut_after(entries, "branch_delivered"), len(entries)):
        again = await engine(body, crashed(entries, keep)).resume("r")
        assert again.answer == result.answer, keep


class AskToPay(InstantGate):
    """Asks a person about paying."""

    version = "test-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("pay?") if action.tool == "pay" else Allow()


@in_virtual_time
async def test_a_work_that_met_the_limit_where_it_had_waited_is_given_with_it() -> None:
    async def waits_twice(run: Run) -> str:
        return await waits(1)(run) + await waits(1)(run)

    async def body(run: Run) -> object:
        found = await read_all(run, (waits(0, "pay"), waits_twice))
        run.offer(str(found))
        return found

    def parts(journal: MemoryJournal) -> FunctionEngine:
        limits = Limits(max_tool_calls=1, best_effort=False)
        return engine(body, journal, limits=limits, gate=AskToPay(), approver=Suspend())

    started = parts(MemoryJournal())
    assert (await started.run("go", run_id="r")).status == "waiting"
    await started.runtime.control("r").approve("0.0.0#0")
    result = await started.resume("r")
    assert result.status == "limit"
    assert result.answer == ("[(1, None, 'LimitReached'), (0, None, 'LimitReached')]")
    entries = started.runtime.journal.read("r")
    for keep in range(cut_after(entries, "branch_delivered", 2), len(entries)):
        again = await parts(crashed(entries, keep)).resume("r")
        assert (again.status, again.answer) == (result.status, result.answer), keep


@pytest.mark.parametrize("by", ["host", "abort"])
@in_virtual_time
async def test_a_run_that_is_stopped_closes_nothing(by: str) -> None:
    is_delivered = asyncio.Event()

    async def body(run: Run) -> object:
        async with run.as_completed(waits(500), waits(1)) as done:
            async for _ in done:
                is_delivered.set()
        return "never"

    started = engine(body, MemoryJournal())
    task = asyncio.ensure_future(started.run("go", run_id="r"))
    await is_delivered.wait()
    if by == "abort":
        await started.runtime.control("r").abort()
    else:
        task.cancel()
    await asyncio.wait([task])
    recorded = kinds(started.runtime, "r")
    assert "branch_delivered" in recorded
    assert "branches_closed" not in recorded
    assert recorded[-1] == ("run_finished" if by == "abort" else "run_suspended")


@in_virtual_time
async def test_code_that_takes_outcomes_in_another_way_diverges() -> None:
    async def gathered(run: Run) -> object:
        return await run.gather(*SLOW_FIRST)

    _, entries = await run_whole(all_of_them)
    _, before = await run_whole(gathered)
    for keep in range(cut_after(entries, "tool_started"), len(entries)):
        journal = crashed(entries, keep)
        with pytest.raises(ReplayDivergence, match="now: gather"):
            await engine(gathered, journal).resume("r")
        assert kinds(engine(gathered, journal).runtime, "r")[keep:] == [
            "run_resumed",
            "run_suspended",
        ]
    cut = crashed(before, cut_after(before, "tool_finished"))
    with pytest.raises(ReplayDivergence, match="now: as_completed"):
        await engine(all_of_them, cut).resume("r")


@in_virtual_time
async def test_code_that_leaves_later_than_it_did_diverges() -> None:
    async def stays(run: Run) -> object:
        async with run.as_completed(waits(500), waits(1), waits(2), waits(500)) as done:
            async for finished in done:
                if finished.index == 0:
                    break
        return finished.value + await run.ask("after")

    _, entries = await run_whole(an_early_end)
    cut = crashed(entries, cut_after(entries, "branches_closed"))
    with pytest.raises(ReplayDivergence, match="the engine left the branches"):
        await engine(stays, cut).resume("r")


@in_virtual_time
async def test_fewer_works_than_were_given_diverge() -> None:
    async def fewer(run: Run) -> object:
        return await read_all(run, SLOW_FIRST[:2])

    _, entries = await run_whole(all_of_them)
    cut = crashed(entries, cut_after(entries, "branch_delivered", 2))
    with pytest.raises(ReplayDivergence, match="branch 2 ended as number 1"):
        await engine(fewer, cut).resume("r")


@pytest.mark.parametrize("max_concurrency", [0, -1])
@in_virtual_time
async def test_max_concurrency_must_be_at_least_one(max_concurrency: int) -> None:
    async def body(run: Run) -> object:
        return await read_all(run, SLOW_FIRST, max_concurrency=max_concurrency)

    result, _ = await run_whole(body)
    assert isinstance(result.error, ConfigError)
    assert "max_concurrency must be at least 1" in str(result.error)


@in_virtual_time
async def test_works_are_begun_within_the_block_alone() -> None:
    async def body(run: Run) -> object:
        done = run.as_completed(waits(1))
        with pytest.raises(PhaseError, match="not open"):
            done.start(waits(1))
        async with done:
            pass
        with pytest.raises(PhaseError, match="not open"):
            done.start(waits(1))
        with pytest.raises(PhaseError, match="entered already"):
            async with done:
                pass
        return "seen"

    assert (await run_whole(body))[0].answer == "seen"


@in_virtual_time
async def test_a_work_that_was_given_can_do_nothing_more() -> None:
    branches: list[Run] = []

    async def work(run: Run) -> str:
        branches.append(run)
        return await run.ask("one")

    async def body(run: Run) -> object:
        async with run.as_completed(work) as done:
            async for _ in done:
                with pytest.raises(PhaseError, match="this branch is over"):
                    await branches[-1].ask("two")
        return dataclasses.asdict(_)

    assert "'value': 'ONE'" in str((await run_whole(body))[0].answer)


@in_virtual_time
async def test_outcomes_are_given_within_the_block_alone() -> None:
    async def body(run: Run) -> object:
        done = run.as_completed(waits(1))
        with pytest.raises(PhaseError, match="use it as `async with`"):
            async for _ in done:
                pass
        async with done:
            pass
        with pytest.raises(PhaseError, match="not open"):
            await anext(done)
        return "seen"

    assert (await run_whole(body))[0].answer == "seen"


@in_virtual_time
async def test_a_branch_may_not_use_the_run_that_it_works_beside() -> None:
    refused: list[str] = []

    async def body(run: Run) -> object:
        async def work(_: Run) -> None:
            for verb in (lambda: run.ask("hello"), lambda: run.gather(waits(1))):
                with pytest.raises(PhaseError, match="the run that the work is given"):
                    await verb()
                refused.append("verb")
            with pytest.raises(PhaseError, match="note was called in a branch"):
                run.note({"seen": 1})

        async def nested(branch: Run) -> None:
            await branch.gather(work, work)

        async with run.as_completed(work, nested) as done:
            async for finished in done:
                assert finished.error is None
        return await run.ask("after")

    assert (await run_whole(body))[0].answer == "AFTER"
    assert len(refused) == 6


@in_virtual_time
async def test_a_branch_may_not_begin_works_beside_it() -> None:
    async def body(run: Run) -> object:
        async with run.as_completed() as done:

            async def work(_: Run) -> None:
                with pytest.raises(PhaseError, match="in a branch of as_completed"):
                    done.start(waits(1))

            done.start(work)
            return [finished.error async for finished in done]

    assert (await run_whole(body))[0].answer == "[None]"


@in_virtual_time
async def test_a_run_waits_for_each_of_its_branches_once() -> None:
    met: list[str] = []

    async def body(run: Run) -> object:
        try:
            return await read_all(run, (asks_a_person, asks_a_person))
        except Suspended as error:
            met.append(str(error))
            raise

    result, _ = await run_whole(body)

    assert (result.status, len(result.pending)) == ("waiting", 2)
    assert [text.partition(",")[0] for text in met] == ["waiting in 2 branches"]


class Outage:
    """A provider whose key was rotated wrongly, until somebody repairs that."""

    def __init__(self) -> None:
        self.is_down = True

    def __call__(self, request: Request) -> str:
        if self.is_down:
            raise ProviderError("the key was rotated", status=401)
        return str(request.conversation.messages[-1].content).upper()


async def asks(run: Run) -> str:
    return await run.ask("hello")


async def raises_at_once(run: Run) -> object:
    found = []
    async with run.as_completed(asks, waits(2)) as done:
        async for finished in done:
            if finished.error:
                raise finished.error
            found.append(finished.value)
    return sorted(found)


async def raises_in_the_end(run: Run) -> object:
    outcomes = []
    async with run.as_completed(asks, waits(2)) as done:
        async for finished in done:
            run.note({"ended": finished.index})
            outcomes.append(finished)
    if errors := [one.error for one in outcomes if one.error]:
        raise errors[0]
    return sorted(str(one.value) for one in outcomes)


async def inside_another(run: Run) -> object:
    async def outer(branch: Run) -> str:
        return str(await raises_in_the_end(branch))

    async with run.as_completed(outer) as done:
        finished = await anext(done)
    if finished.error:
        raise finished.error
    return finished.value


@pytest.mark.parametrize("body", [raises_at_once, raises_in_the_end, inside_another])
@in_virtual_time
async def test_a_retry_revives_a_run_whose_branch_lost_its_provider(body: Body) -> None:
    outage, journal = Outage(), MemoryJournal()
    parts = Runtime(
        ScriptedProvider(outage), tools=[wait, pay], journal=journal, limits=UNBOUNDED
    )
    failed = await FunctionEngine(parts, body=body).run("go", run_id="r")
    assert (failed.status, failed.stop_reason) == ("failed", "provider_error")
    outage.is_down = False
    RAN.clear()

    await parts.control("r").retry()
    revived = await FunctionEngine(parts, body=body).resume("r")

    assert "HELLO" in str(revived.answer), revived.error
    entries = journal.read("r")
    for keep in range(cut_after(entries, "run_retried"), len(entries)):
        cut = crashed(entries, keep)
        again = await FunctionEngine(
            Runtime(ScriptedProvider(outage), tools=[wait, pay], journal=cut),
            body=body,
        ).resume("r")
        assert "HELLO" in str(again.answer), (keep, again.error)


@in_virtual_time
async def test_a_retry_is_refused_where_the_engine_continued_after_the_failure() -> (
    None
):
    outage, journal = Outage(), MemoryJournal()
    parts = Runtime(
        ScriptedProvider(outage), tools=[wait, pay], journal=journal, limits=UNBOUNDED
    )

    async def body(run: Run) -> object:
        async with run.as_completed(asks) as done:
            async for finished in done:
                await run.call(ToolCall("pay", {"seconds": STEP}))
                raise finished.error or AssertionError

    await FunctionEngine(parts, body=body).run("go", run_id="r")
    head = journal.runs()[0].head_seq

    with pytest.raises(ConfigError, match="fork it before its failure"):
        await parts.control("r").retry()
    assert journal.runs()[0].head_seq == head
    assert journal.runs()[0].status == "failed"


@tool(effect="read", recovery=[Fallback("wait")])
async def search(seconds: float) -> str:
    """Search."""
    raise ValueError(f"not for {seconds:g}")


@in_virtual_time
async def test_a_limit_that_a_recovery_met_is_met_again_by_every_resume() -> None:
    async def searches(run: Run) -> str:
        return (await run.call(ToolCall("search", {"seconds": STEP}))).content

    async def body(run: Run) -> object:
        async with run.as_completed(searches, asks) as done:
            errors = [type(one.error).__name__ async for one in done]
        return [sorted(errors), await run.best_answer(run.conversation)]

    def build(journal: MemoryJournal) -> FunctionEngine:
        limits = Limits(max_tool_calls=1)
        model = ScriptedProvider(lambda _: "best")
        parts = Runtime(model, tools=[search, wait], journal=journal, limits=limits)
        return FunctionEngine(parts, body=body)

    journal = MemoryJournal()
    result = await build(journal).run("go", run_id="r")
    entries = journal.read("r")
    assert "best" in str(result.answer)
    assert [e.key for e in entries if e.kind == "limit_hit"] == ["0.0.0#0~1"]
    for keep in range(1, len(entries)):
        again = await build(crashed(entries, keep)).resume("r")
        assert (again.status, again.answer) == (result.status, result.answer), keep
