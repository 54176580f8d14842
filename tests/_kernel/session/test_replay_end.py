"""A resumed run does nothing live before it has replayed what its journal holds."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import (
    Limits,
    MemoryJournal,
    ReActEngine,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright._kernel.session import replay_end
from loopwright.errors import JournalError, ReplayDivergence, ToolError
from loopwright.events import RunResumed, RunSuspended
from loopwright.journals import Claim
from loopwright.providers.base import Request
from loopwright.testing import ScriptedProvider, crashed
from loopwright.tools import Fallback

Body = Callable[[Run], Awaitable[object]]
PAID: list[str] = []


@tool(effect="write")
async def pay(what: str) -> str:
    """Pay."""
    PAID.append(what)
    return "paid"


def payment(what: str) -> ToolCall:
    return ToolCall("pay", {"what": what})


def engine(body: Body, journal: MemoryJournal) -> FunctionEngine:
    provider = ScriptedProvider(["a reply"] * 20)
    return FunctionEngine(Runtime(provider, tools=[pay], journal=journal), body=body)


async def record(body: Body) -> MemoryJournal:
    journal = MemoryJournal()
    await engine(body, journal).run("Go.", run_id="r")
    return journal


@pytest.fixture(autouse=True)
def no_payments() -> None:
    PAID.clear()


async def asks_twice(branch: Run) -> str:
    return await branch.ask("one") + await branch.ask("two")


async def two_branches(run: Run) -> object:
    return await run.gather(asks_twice, asks_twice)


def diverging(pays_first: bool) -> Body:
    """One branch of old code is gone, and the other makes a payment that is new."""

    async def pays(branch: Run) -> str:
        await branch.call(payment("the new invoice"))
        return await branch.ask("one")

    async def idles(branch: Run) -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return ""

    async def body(run: Run) -> object:
        works = (pays, asks_twice) if pays_first else (idles, pays)
        return await run.gather(*works)

    return body


@pytest.mark.parametrize("pays_first", [True, False])
async def test_code_that_diverges_pays_nothing_and_records_nothing(
    pays_first: bool,
) -> None:
    journal = await record(two_branches)
    entries = journal.read("r")
    diverged = 0
    for keep in range(1, len(entries)):
        PAID.clear()
        cut = crashed(entries, keep)
        try:
            await engine(diverging(pays_first), cut).resume("r")
        except ReplayDivergence:
            diverged += 1
            assert PAID == [], keep
            added = [type(entry.event) for entry in cut.read("r")[keep:]]
            assert added == [RunResumed, RunSuspended], keep
            old = await engine(two_branches, cut).resume("r")
            assert old.status == "completed", keep

    assert diverged >= 2


async def test_what_code_notes_before_it_diverges_is_not_recorded() -> None:
    async def old(run: Run) -> object:
        return [await run.ask("one"), await run.ask("two")]

    async def new(run: Run) -> object:
        run.note("a fact of the new code")
        run.now()
        run.propose(payment("x"))
        return ""

    async def other(run: Run) -> object:
        run.note("a fact of the new code")
        run.now()
        return await run.ask("something else")

    journal = await record(old)
    entries = journal.read("r")
    for body in (new, other):
        cut = crashed(entries, len(entries) - 1)
        with pytest.raises(ReplayDivergence):
            await engine(body, cut).resume("r")
        added = [type(entry.event) for entry in cut.read("r")[len(entries) - 1 :]]
        assert added == [RunResumed, RunSuspended]


async def test_an_engine_that_fails_before_it_used_every_outcome_diverges() -> None:
    async def fails(run: Run) -> object:
        raise ValueError("the new code is broken")

    journal = await record(two_branches)
    entries = journal.read("r")
    cut = crashed(entries, len(entries) - 1)

    with pytest.raises(ReplayDivergence):
        await engine(fails, cut).resume("r")
    assert (await engine(two_branches, cut).resume("r")).status == "completed"


async def test_a_branch_that_waits_for_another_one_in_its_own_code_goes_on() -> None:
    # Once all outcomes were asked for, nothing waits for a branch that makes no verb.
    async def body(run: Run) -> object:
        told = asyncio.Event()

        async def tells(branch: Run) -> str:
            said = await branch.ask("one") + await branch.ask("two")
            told.set()
            return said

        async def hears(branch: Run) -> str:
            said = await branch.ask("three")
            await told.wait()
            return said + await branch.ask("four")

        return await run.gather(tells, hears)

    journal = await record(body)
    entries = journal.read("r")
    for keep in range(1, len(entries)):
        result = await engine(body, crashed(entries, keep)).resume("r")
        assert result.status == "completed", keep


async def test_a_branch_that_stalls_with_unused_outcomes_is_a_divergence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_end, "MAX_IDLE_POLLS", 4)

    async def stalls(run: Run) -> object:
        async def waits(branch: Run) -> str:
            await asyncio.sleep(0.8)
            return ""

        async def pays(branch: Run) -> str:
            return (await branch.call(payment("the new invoice"))).content

        return await run.gather(waits, pays)

    journal = await record(two_branches)
    entries = journal.read("r")
    cut = crashed(entries, len(entries) - 1)
    with pytest.raises(ReplayDivergence):
        await engine(stalls, cut).resume("r")

    assert PAID == []


async def value() -> int:
    await asyncio.sleep(0.01)
    return 1


async def counts(branch: Run) -> str:
    return str(await branch.effect("count", value, into=int))


async def asks_once(branch: Run) -> str:
    return await branch.ask("one")


async def asks_and_pays(branch: Run) -> str:
    return await branch.ask("one") + str(await branch.call(payment("a new one")))


async def gathers_later(branch: Run) -> str:
    for _ in range(9):
        await asyncio.sleep(0)
    return str(await branch.gather(asks_once))


async def test_an_effect_that_had_begun_is_met_before_anything_new_begins() -> None:
    async def old(run: Run) -> object:
        return await run.gather(asks_once, counts)

    async def new(run: Run) -> object:
        return await run.gather(asks_and_pays, gathers_later)

    journal = await record(old)
    entries = journal.read("r")
    keep = max(e.seq for e in entries if e.kind in ("effect_started", "model_replied"))
    assert "effect_finished" not in [entry.kind for entry in entries[:keep]]
    cut = crashed(entries, keep)

    with pytest.raises(ReplayDivergence, match="recorded: effect count; now: gather"):
        await engine(new, cut).resume("r")
    assert PAID == []
    added = [type(entry.event) for entry in cut.read("r")[keep:]]
    assert added == [RunResumed, RunSuspended]
    assert (await engine(old, cut).resume("r")).status == "completed"


class LosesTheStore(MemoryJournal):
    """Cannot make entries durable for a while."""

    is_lost = False

    async def barrier(self, claim: Claim) -> None:
        if self.is_lost:
            raise JournalError("the store could not be reached")
        await super().barrier(claim)


async def test_a_journal_that_fails_during_the_replay_is_no_divergence() -> None:
    async def body(run: Run) -> object:
        await run.call(payment("the invoice"))
        return await run.ask("And then?")

    entries = (await record(body)).read("r")
    PAID.clear()
    lost = LosesTheStore()
    crashed(entries, len(entries) - 2, lost)
    lost.is_lost = True

    result = await engine(body, lost).resume("r")

    assert (result.status, result.stop_reason) == ("failed", "journal_error")
    assert PAID == []


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return "blue"


async def test_a_call_beside_one_that_met_a_limit_is_no_divergence() -> None:
    def say(request: Request) -> list[ToolCall] | str:
        two = [ToolCall("look", {"what": "sky"}), payment("it")]
        return two if request.tools else "the best"

    def limited(journal: MemoryJournal) -> ReActEngine:
        parts = Runtime(
            ScriptedProvider(say),
            tools=[look, pay],
            journal=journal,
            limits=Limits(max_tool_calls=0),
        )
        return ReActEngine(parts)

    journal = MemoryJournal()
    first = await limited(journal).run("Go.", run_id="r")
    entries = journal.read("r")
    assert [entry.key for entry in entries if entry.kind == "limit_hit"] == ["0#0"]
    for keep in range(1, len(entries)):
        resumed = await limited(crashed(entries, keep)).resume("r")
        assert (resumed.status, resumed.answer) == (first.status, first.answer)


async def test_a_question_beside_a_work_that_met_a_limit_is_no_divergence() -> None:
    """Its work ends by the limit once the run is resumed, at a place of which no outcome is recorded."""

    async def asks(branch: Run) -> str:
        return await branch.ask_user("Which one?")

    async def spends(branch: Run) -> str:
        return await branch.ask("one") + await branch.ask("two")

    async def takes_both(run: Run) -> str:
        found: list[str] = []
        async with run.as_completed(asks, spends) as done:
            async for one in done:
                found.append(type(one.error).__name__)
        return f"{found} {await run.best_answer(run.conversation)}"

    def limited(journal: MemoryJournal) -> FunctionEngine:
        parts = Runtime(
            ScriptedProvider(["a reply"] * 20),
            journal=journal,
            limits=Limits(max_llm_calls=2),
        )
        return FunctionEngine(parts, body=takes_both)

    journal = MemoryJournal()
    waited = await limited(journal).run("Go.", run_id="r")
    written = journal.read("r")
    dead = crashed(written, cut_after(written, "limit_hit"))
    first = await limited(dead).resume("r")
    entries = dead.read("r")
    assert (waited.status, first.status) == ("waiting", "limit")
    for keep in range(cut_after(entries, "limit_hit"), len(entries)):
        resumed = await limited(crashed(entries, keep)).resume("r")
        assert (resumed.status, resumed.answer) == (first.status, first.answer)


@tool(effect="read", recovery=[Fallback("look")])
async def glance(what: str) -> str:
    """Glance."""
    raise ToolError("it is not there")


async def test_a_substitute_beside_a_call_that_met_a_limit_is_no_divergence() -> None:
    """The call in whose place it stands has no outcome; that it met the limit is recorded with the substitute."""

    def say(request: Request) -> list[ToolCall] | str:
        two = [ToolCall("glance", {"what": "sky"}), ToolCall("look", {"what": "it"})]
        return two if request.tools else "the best"

    def limited(journal: MemoryJournal) -> ReActEngine:
        parts = Runtime(
            ScriptedProvider(say),
            tools=[look, glance],
            journal=journal,
            limits=Limits(max_tool_calls=1),
        )
        return ReActEngine(parts)

    journal = MemoryJournal()
    first = await limited(journal).run("Go.", run_id="r")
    entries = journal.read("r")
    refused = [entry.key for entry in entries if entry.kind == "limit_hit"]
    assert refused == ["0#1", "0#0~1"]
    for keep in range(1, len(entries)):
        resumed = await limited(crashed(entries, keep)).resume("r")
        assert (resumed.status, resumed.answer) == (first.status, first.answer)
