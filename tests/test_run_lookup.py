"""A recorded read without a gate or a barrier of its own: read once, and gone with a crash only where nobody saw it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    ConfigError,
    Decision,
    Limits,
    MemoryJournal,
    PolicyState,
    ReplayDivergence,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import EffectFinished, EffectStarted
from loopwright.journals import Claim
from loopwright.security import Redactor
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from stopwatch import quickest
from virtual_time import LoopClock, in_virtual_time
from waiting import eventually

Body = Callable[[Run], Awaitable[object]]
READS = itertools.count()
"""Numbers the reads of all tests, so that no two give the same."""


async def read() -> str:
    """Return what no other read returns."""
    return f"read {next(READS)}"


@tool(effect="write")
async def send(text: str) -> str:
    """Send."""
    return f"sent {text}"


class Watching:
    """Remembers which actions it is asked about, and in which state."""

    version = "watching-1"

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.seen.append((action.tool, state.label, state.untrusted))
        return Allow()


def engine(body: Body, journal: MemoryJournal | None = None, **options: Any) -> Any:
    def answer(request: Any) -> str:
        return str(request.conversation.messages[-1].content).upper()

    runtime = Runtime(
        ScriptedProvider(answer), tools=[send], journal=journal, **options
    )
    return FunctionEngine(runtime, body=body)


async def assert_resumable_anywhere(body: Body, **options: Any) -> str:
    """Cut a run after every entry; assert that it replays what is kept, and return its answer."""
    whole = engine(body, MemoryJournal(), **options)
    result = await whole.run("go", run_id="r")
    assert result.status == "completed", result.error
    entries = whole.runtime.journal.read("r")
    for keep in range(1, len(entries)):
        again = engine(body, crashed(entries, keep), **options)
        resumed = await again.resume("r")
        assert resumed.status == "completed", (keep, resumed.error)
        kept = {e.key: e.event for e in entries[:keep] if e.kind == "effect_finished"}
        now = {e.key: e.event for e in again.runtime.journal.read("r")}
        assert kept.items() <= now.items()
        if keep == len(entries) - 1:
            assert resumed.answer == result.answer
    return str(result.answer)


async def ask_about_what_was_read(run: Run) -> object:
    first = await run.lookup("one", read, into=str)
    second = await run.lookup("two", read, into=str)
    asked = await run.ask(f"{first} {second}")
    third = await run.lookup("three", read, into=str)
    sent = await run.call(ToolCall("send", {"text": third}))
    return f"{asked} {sent.content} {await run.lookup('four', read, into=str)}"


async def test_a_lookup_that_is_recorded_is_not_done_again() -> None:
    answer = await assert_resumable_anywhere(ask_about_what_was_read)

    assert answer.startswith("READ ")


async def test_lookups_in_branches_are_replayed_each_in_its_own() -> None:
    async def body(run: Run) -> object:
        async def branch(inner: Run) -> str:
            found = await inner.lookup("inner", read, into=str)
            return await inner.ask(found) + await inner.lookup("last", read, into=str)

        words = await run.gather(branch, branch)
        words.append(await run.timeout(30.0, branch))
        async with run.as_completed(branch, branch) as done:
            words += sorted([one.value async for one in done])
        return [*words, await run.lookup("outer", read, into=str)]

    await assert_resumable_anywhere(body)


@in_virtual_time
async def test_a_lookup_cut_off_by_a_timeout_is_cut_off_again() -> None:
    async def slowly(run: Run) -> str:
        async def never() -> str:
            await asyncio.sleep(600)
            return await read()

        first = await run.ask(await run.lookup("quick", read, into=str))
        return first + await run.lookup("slow", never, into=str)

    async def body(run: Run) -> object:
        try:
            return await run.timeout(0.05, slowly)
        except TimeoutError:
            return await run.ask("too slow")

    answer = await assert_resumable_anywhere(body, clock=LoopClock())
    assert answer == "TOO SLOW"


async def test_the_error_of_a_lookup_is_recorded_and_raised_again() -> None:
    tries = itertools.count(1)

    async def fail() -> str:
        raise ValueError(f"try {next(tries)} failed")

    async def body(run: Run) -> object:
        try:
            await run.lookup("broken", fail, into=str)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the same again
            return await run.ask(f"{type(error).__name__} {error}")
        return "no error"

    whole = engine(body, MemoryJournal())
    result = await whole.run("go", run_id="r")
    entries = whole.runtime.journal.read("r")
    kept = cut_after(entries, "effect_finished")
    resumed = await engine(body, crashed(entries, kept)).resume("r")

    assert "TRY 1 FAILED" in str(result.answer)
    assert resumed.answer == result.answer
    assert next(tries) == 2


class Counting(MemoryJournal):
    """Counts its barriers."""

    barriers = 0

    async def barrier(self, claim: Claim) -> None:
        self.barriers += 1
        await super().barrier(claim)


async def test_a_lookup_has_no_barrier_and_is_stored_before_the_model_is_asked() -> (
    None
):
    journal, found = Counting(), list[tuple[int, list[str]]]()

    async def body(run: Run) -> object:
        before = journal.barriers
        for _ in range(3):
            await run.lookup("x", read, into=str)
        found.append((journal.barriers - before, []))
        return await run.ask("go on")

    def answer(request: Any) -> str:
        found.append((0, [e.kind for e in journal.read("r")]))
        return "done"

    runtime = Runtime(ScriptedProvider(answer), journal=journal)
    await FunctionEngine(runtime, body=body).run("go", run_id="r")

    assert found[0][0] == 0
    assert found[1][1].count("effect_finished") == 3
    assert EffectStarted not in {type(e.event) for e in journal.read("r")}


async def test_a_lookup_is_stored_before_a_person_is_asked_about_it() -> None:
    journal, stored = MemoryJournal(), list[str]()

    async def user(question: str) -> str:
        stored.extend(e.kind for e in journal.read("r"))
        return "yes"

    async def body(run: Run) -> object:
        return await run.ask_user(f"{await run.lookup('x', read, into=str)}?")

    await engine(body, journal, user=user).run("go", run_id="r")

    assert stored.count("effect_finished") == 1


async def test_a_lookup_raises_the_label_and_no_gate_sees_it() -> None:
    async def body(run: Run) -> object:
        await run.permit("before", {})
        await run.lookup("own", read, into=str, untrusted=False, label="sensitive")
        await run.permit("between", {})
        await run.lookup("page", read, into=str)
        await run.permit("after", {})
        return "done"

    gate, again = Watching(), Watching()
    whole = engine(body, MemoryJournal(), gate=gate)
    await whole.run("go", run_id="r")
    entries = whole.runtime.journal.read("r")
    last_read = cut_after(entries, "effect_finished", 4)
    await engine(body, crashed(entries, last_read), gate=again).resume("r")

    assert gate.seen == [
        ("before", "normal", False),
        ("between", "sensitive", False),
        ("after", "sensitive", True),
    ]
    assert again.seen == gate.seen[2:]


async def test_the_error_of_a_lookup_is_as_sensitive_as_its_value() -> None:
    async def fail() -> str:
        raise ValueError("the secret service said no")

    async def body(run: Run) -> object:
        with pytest.raises(Exception, match="said no"):
            await run.lookup("secret", fail, into=str, label="secret")
        await run.permit("after", {})
        return "done"

    gate = Watching()
    await engine(body, gate=gate).run("go")

    assert gate.seen == [("after", "secret", True)]


async def test_a_lookup_without_time_left_ends_the_run_at_its_limit() -> None:
    clock = FakeClock()

    async def slowly() -> str:
        clock.advance(100.0)
        return await read()

    async def body(run: Run) -> object:
        await run.lookup("slow", slowly, into=str)
        return await run.lookup("late", read, into=str)

    limits = Limits(timeout=50.0)
    result = await engine(body, clock=clock, limits=limits).run("go")

    assert (result.status, result.stop_reason) == ("limit", "timeout")


async def test_a_lookup_waits_while_the_run_is_paused() -> None:
    held, journal, reads = asyncio.Event(), MemoryJournal(), list[str]()

    async def hold() -> str:
        await held.wait()
        return "held"

    async def note_read() -> str:
        reads.append(await read())
        return reads[0]

    async def body(run: Run) -> object:
        await run.effect("hold", hold, into=str)
        return await run.lookup("x", note_read, into=str)

    async with engine(body, journal).start("go", run_id="r") as handle:
        await eventually(lambda: _has(journal, "effect_started"))
        await handle.pause()
        await eventually(lambda: _has(journal, "command_received"))
        held.set()
        await eventually(lambda: _has(journal, "run_paused"))
        before = list(reads)
        await handle.unpause()
        result = await handle.result()

    assert before == []
    assert [result.answer] == reads


def _has(journal: MemoryJournal, kind: str) -> bool:
    is_known = any(info.run_id == "r" for info in journal.runs())
    return is_known and any(entry.kind == kind for entry in journal.read("r"))


async def test_a_value_that_does_not_fit_and_an_unknown_label_are_refused() -> None:
    async def body(run: Run) -> object:
        with pytest.raises(ConfigError, match="does not fit `into`"):
            await run.lookup("x", read, into=int)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="label: must be one of public, normal"):
            await run.lookup("x", read, into=str, label="top")  # type: ignore[arg-type]
        return "refused"

    result = await engine(body).run("go")

    assert result.answer == "refused"


async def test_a_lookup_where_an_effect_had_begun_is_divergence() -> None:
    async def old(run: Run) -> object:
        return await run.effect("x", read, into=str)

    async def new(run: Run) -> object:
        return await run.lookup("x", read, into=str)

    whole = engine(old, MemoryJournal())
    await whole.run("go", run_id="r")
    entries = whole.runtime.journal.read("r")
    kept = cut_after(entries, "effect_started")

    with pytest.raises(ReplayDivergence):
        await engine(new, crashed(entries, kept)).resume("r")


async def test_a_secret_that_was_looked_up_is_not_recorded() -> None:
    secret = "correct horse battery staple"

    async def leak() -> str:
        return f"the key is {secret}"

    async def body(run: Run) -> object:
        return await run.lookup("x", leak, into=str)

    redactor = Redactor([secret])
    started = engine(body, MemoryJournal(), redactor=redactor)
    result = await started.run("go", run_id="r")
    [finished] = [
        entry.event
        for entry in started.runtime.journal.read("r")
        if isinstance(entry.event, EffectFinished)
    ]

    assert str(finished.value).startswith("the key is ")
    assert "horse" not in f"{result.answer} {finished.value}"


def test_a_lookup_takes_less_than_sixty_microseconds() -> None:
    async def body(run: Run) -> object:
        for _ in range(2_000):
            await run.lookup("x", read, into=str)
        return "done"

    def work() -> None:
        asyncio.run(engine(body, MemoryJournal()).run("go"))

    assert quickest(work, 2_000 * 60e-6) < 2_000 * 60e-6
