"""However a run ends, exactly one closing entry says how, and nothing that was done is lost."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import (
    ChainOfThoughtEngine,
    CircuitBreakers,
    Completion,
    ConfigError,
    Fenced,
    Limits,
    LoopEngine,
    LoopwrightError,
    MemoryJournal,
    ProviderError,
    ReActEngine,
    Run,
    RunBusy,
    Runtime,
    ToolCall,
    Usage,
    tool,
)
from loopwright.errors import Aborted, EngineError, PhaseError, Suspended, Unreadable
from loopwright.events import Entry, ErrorRecord, RunFinished, RunSuspended
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call
from sample_tools import look


def closings(journal: Any, run_id: str) -> list[Any]:
    return [
        e.event
        for e in journal.read(run_id)
        if isinstance(e.event, (RunFinished, RunSuspended))
    ]


def parts(script: Any, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script), tools=[look, *options.pop("tools", [])], **options
    )


async def test_an_answer_completes_the_run() -> None:
    runtime = parts([call("look", what="sky"), "blue"])
    result = await ReActEngine(runtime).run("colour?", run_id="r")

    assert (result.status, result.stop_reason, result.answer, result.error) == (
        "completed",
        "answered",
        "blue",
        None,
    )
    assert (result.iterations, result.llm_calls, result.tool_calls) == (2, 2, 1)
    assert result.usage == Usage(20, 10)
    assert [m.content for m in result.conversation.messages] == [
        "colour?",
        "",
        "sky is blue",
        "blue",
    ]
    assert len(closings(runtime.journal, "r")) == 1
    assert result.raise_for_status() is result


async def test_a_provider_error_fails_the_run_and_is_never_the_answer() -> None:
    runtime = parts(
        [call("look", what="sky"), ProviderError("no such model", status=404)]
    )
    result = await ReActEngine(runtime).run("colour?", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "provider_error",
        None,
    )
    assert [m.content for m in result.conversation.messages][-1] == "sky is blue"
    assert len(closings(runtime.journal, "r")) == 1
    with pytest.raises(ProviderError, match="no such model"):
        result.raise_for_status()


async def test_an_open_breaker_suspends_the_run_without_calling_the_provider() -> None:
    breakers = CircuitBreakers(threshold=1, open_seconds=300)
    limits = Limits(max_provider_wait=10)
    first = parts([ProviderError("down", status=503)], breakers=breakers, limits=limits)
    await ReActEngine(first).run("colour?")
    second = parts(["never"], breakers=breakers, limits=limits)
    result = await ReActEngine(second).run("colour?", run_id="r")

    assert (result.status, result.stop_reason) == ("suspended", "provider_unavailable")
    assert isinstance(result.error, Suspended)
    assert result.error.wake_at > second.clock.wall() + 200
    assert second.provider.requests == []  # type: ignore[attr-defined]


class Crashing(LoopEngine):
    name = "crashing"

    async def solve(self, run: Run) -> str:
        await run.reason(run.conversation)
        raise KeyError("a bug")


async def test_a_crash_in_an_engine_fails_the_run_and_keeps_the_cause() -> None:
    runtime = parts(["x"])
    result = await Crashing(runtime).run("go", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "engine_error",
        None,
    )
    assert isinstance(result.error, EngineError)
    assert isinstance(result.error.__cause__, KeyError)
    assert len(closings(runtime.journal, "r")) == 1


class Wordless(LoopEngine):
    name = "wordless"

    async def solve(self, run: Run) -> str:
        nothing: Any = None
        return nothing


async def test_an_engine_that_returns_no_text_fails_the_run() -> None:
    result = await Wordless(parts([])).run("go")

    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    assert "NoneType" in str(result.error)


async def test_replies_that_stay_unreadable_fail_the_run() -> None:
    bad = Completion("gibberish", problem="There is no action in it.")
    runtime = parts([bad] * 4)
    result = await ReActEngine(runtime).run("go")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "unreadable",
        None,
    )
    assert isinstance(result.error, Unreadable)
    second = runtime.provider.requests[1].conversation.messages  # type: ignore[attr-defined]
    assert [m.content for m in second[-2:]] == [
        "gibberish",
        "There is no action in it.",
    ]


async def test_cancellation_by_the_host_suspends_the_run_and_it_can_be_resumed(
    tmp_path: Path,
) -> None:
    entered = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.sleep(60)
        return "waited"

    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = parts([call("wait")], tools=[wait], journal=journal)
    task = asyncio.ensure_future(ReActEngine(runtime).run("go", run_id="r"))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closings(journal, "r") == [RunSuspended("cancelled")]

    @tool(effect="read", name="wait")
    async def quick() -> str:
        """Wait."""
        return "waited"

    result = await parts(["done"], tools=[quick], journal=journal).resume("r")
    assert (result.status, result.answer) == ("completed", "done")
    await journal.close()


async def test_being_cancelled_twice_still_writes_one_closing_entry() -> None:
    entered = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.sleep(60)
        return "waited"

    closing, done = asyncio.Event(), asyncio.Event()

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            await super().barrier(claim)
            if self.runs()[0].status == "suspended":
                closing.set()
                await asyncio.sleep(0.02)
                done.set()

    runtime = parts([call("wait")], tools=[wait], journal=Slow())
    task = asyncio.ensure_future(ReActEngine(runtime).run("go", run_id="r"))
    await entered.wait()
    task.cancel()
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()
    assert closings(runtime.journal, "r") == [RunSuspended("cancelled")]


async def test_a_host_that_cancels_all_its_tasks_again_and_again_gets_the_closing_entry() -> (
    None
):
    entered, closing = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        entered.set()
        await asyncio.sleep(60)
        return "waited"

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            if self.runs()[0].status == "suspended":
                closing.set()
                await asyncio.sleep(0.02)
                finished.append(claim.head_seq)
            await super().barrier(claim)

    finished: list[int] = []
    runtime = parts([call("wait")], tools=[wait], journal=Slow())
    before = asyncio.all_tasks()
    run = asyncio.ensure_future(ReActEngine(runtime).run("go", run_id="r"))
    await entered.wait()
    run.cancel()
    await closing.wait()
    for task in asyncio.all_tasks() - before:
        if "barrier" not in repr(task.get_coro()):  # the journal's own work goes on
            task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert finished == [len(runtime.journal.read("r"))]


async def test_a_call_starts_only_after_its_own_intent_is_durable_beside_a_sibling() -> (
    None
):
    durable: list[int] = []
    started: list[tuple[int, int]] = []

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            head = claim.head_seq
            await asyncio.sleep(0.02)
            durable.append(head)
            await super().barrier(claim)

    @tool(effect="write")
    async def note(n: int) -> str:
        """Note."""
        intents = [e.seq for e in journal.read("r") if e.kind == "tool_started"]
        started.append((intents[n], max(durable)))
        return "noted"

    class Hasty(LoopEngine):
        name = "hasty"

        async def solve(self, run: Run) -> str:
            async def one(inner: Run) -> str:
                await inner.act(await inner.gate(inner.propose(call("note", n=0))))
                return ""

            async def two(inner: Run) -> str:
                await asyncio.sleep(0.01)  # while the sibling's barrier is under way
                await inner.act(await inner.gate(inner.propose(call("note", n=1))))
                return ""

            await run.gather(one, two)
            return "done"

    journal = Slow()
    await Hasty(parts([], tools=[note], journal=journal)).run("go", run_id="r")

    assert len(started) == 2
    assert all(intent <= head for intent, head in started)


async def test_abort_ends_the_run_at_once_with_what_it_has() -> None:
    entered = asyncio.Event()
    cancelled: list[bool] = []

    @tool(effect="write")
    async def wait() -> str:
        """Wait."""
        entered.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return "waited"

    runtime = parts([call("look", what="sky"), call("wait")], tools=[wait])
    async with ReActEngine(runtime).start("go", run_id="r") as run:
        await entered.wait()
        result = await run.abort()

    assert (result.status, result.stop_reason, result.answer) == (
        "aborted",
        "aborted",
        None,
    )
    assert isinstance(result.error, Aborted)
    assert (cancelled, result.tool_calls, result.llm_calls) == ([True], 2, 2)
    told = [m.content for m in result.conversation.messages if m.role == "tool"]
    assert told == [
        "sky is blue",
        "wait was interrupted; it is not known whether it took effect.",
    ]
    assert len(closings(runtime.journal, "r")) == 1
    statuses = [
        e.event.status for e in runtime.journal.read("r") if e.kind == "tool_finished"
    ]  # type: ignore[union-attr]
    assert statuses == ["ok", "cancelled"]


async def test_a_handle_gives_every_entry_from_the_first_to_the_last() -> None:
    runtime = parts([call("look", what="sky"), "blue"])
    async with ReActEngine(runtime).start("colour?", run_id="r") as run:
        seen = [entry async for entry in run]
        result = await run.result()

    assert seen == runtime.journal.read("r")
    assert (seen[0].kind, seen[-1].kind, seen[-1].hash) == (
        "run_started",
        "run_finished",
        result.head_hash,
    )


async def test_leaving_the_handle_early_aborts_the_run() -> None:
    runtime = parts([lambda request: call("look", what="sky")] * 3)
    async with ReActEngine(runtime).start("colour?", run_id="r") as run:
        async for entry in run:
            if entry.kind == "tool_started":
                break

    assert [c.status for c in closings(runtime.journal, "r")] == ["aborted"]


async def test_a_failing_observer_does_not_hurt_the_run(capsys: Any) -> None:
    def broken(entry: Entry) -> None:
        raise RuntimeError("observer bug")

    assert (
        await ReActEngine(parts(["done"], observers=[broken])).run("go")
    ).answer == "done"


async def test_a_run_id_that_is_taken_is_refused_before_anything_happens(
    tmp_path: Path,
) -> None:
    for journal in (MemoryJournal(), SQLiteJournal(tmp_path / "runs.db")):
        await ReActEngine(parts(["one"], journal=journal)).run("go", run_id="r")
        again = parts(["two"], journal=journal)
        with pytest.raises(ConfigError, match="exists already"):
            await ReActEngine(again).run("go", run_id="r")
        assert again.provider.requests == []  # type: ignore[attr-defined]
        await journal.close()


async def test_a_run_that_is_being_worked_on_is_busy_and_a_take_over_fences_the_old_owner() -> (
    None
):
    entered, go_on = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        ran.append("wait")
        if len(ran) == 1:
            entered.set()
            await go_on.wait()
        return "waited"

    journal = MemoryJournal()
    runtime = parts([call("wait"), "never"], tools=[wait], journal=journal)
    old = asyncio.ensure_future(ReActEngine(runtime).run("go", run_id="r"))
    await entered.wait()
    new = ReActEngine(parts(["done"], tools=[wait], journal=journal))
    with pytest.raises(RunBusy, match="take_over"):
        await new.resume("r")

    assert (await new.resume("r", take_over=True)).answer == "done"
    go_on.set()
    with pytest.raises(Fenced):
        await old
    assert ran == ["wait", "wait"]
    assert len(closings(journal, "r")) == 1


async def test_a_journal_that_dies_stops_the_run_before_the_next_tool() -> None:
    ran: list[str] = []

    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    class Dying(MemoryJournal):
        count = 0

        async def barrier(self, claim: Any) -> None:
            self.count += 1
            if self.count == 2:
                raise OSError("no space left on device")
            await super().barrier(claim)

    result = await ReActEngine(
        parts([call("pay"), "never"], tools=[pay], journal=Dying())
    ).run("go")

    assert (result.status, result.stop_reason, ran) == ("failed", "journal_error", [])
    assert "no space left" in str(result.error)


class Weather(BaseModel):
    city: str
    degrees: int


async def test_an_answer_is_read_as_the_output_model() -> None:
    result = await ReActEngine(parts(['{"city": "Paris", "degrees": 7}'])).run(
        "weather?", output=Weather
    )

    assert result.output == Weather(city="Paris", degrees=7)


async def test_an_answer_in_prose_is_asked_for_again_as_json() -> None:
    runtime = parts(
        [
            "It is 7 degrees in Paris.",
            '{"city": "Paris"}',
            '{"city": "Paris", "degrees": 7}',
        ]
    )
    result = await ReActEngine(runtime).run("weather?", output=Weather, run_id="r")

    assert (result.status, result.output) == (
        "completed",
        Weather(city="Paris", degrees=7),
    )
    assert "degrees: required" in runtime.provider.requests[2].conversation.task  # type: ignore[attr-defined]
    assert (await ReActEngine(runtime).resume("r", output=Weather)) == result


async def test_an_answer_that_never_fits_the_output_model_fails_the_run() -> None:
    result = await ReActEngine(parts(["no idea"] * 4)).run("weather?", output=Weather)

    assert (result.status, result.stop_reason, result.output) == (
        "failed",
        "invalid_output",
        None,
    )


async def test_chain_of_thought_reasons_and_then_extracts() -> None:
    runtime = Runtime(ScriptedProvider(["3 dozen is 36, less 1 is 35.", "35"]))
    result = await ChainOfThoughtEngine(runtime).run(
        "3 dozen less 1?", system="Be exact."
    )

    assert result.answer == "35"
    first, second = (
        request.conversation.messages for request in runtime.provider.requests
    )  # type: ignore[attr-defined]
    assert [m.role for m in first] == ["system", "user", "user"]
    assert second[3].content == "3 dozen is 36, less 1 is 35."
    assert all(request.tools == () for request in runtime.provider.requests)  # type: ignore[attr-defined]


async def test_run_sync_works_inside_a_running_loop_and_not_on_its_own_thread() -> None:
    runtime = parts([call("nested"), "done"], tools=[])

    @tool(effect="read")
    async def nested() -> str:
        """Call run_sync where it cannot work."""
        try:
            ReActEngine(parts(["inner"])).run_sync("go")
        except PhaseError as error:
            return str(error)
        return "never"

    runtime = parts([call("nested"), "done"], tools=[nested])
    result = ReActEngine(runtime).run_sync("go", run_id="r")

    assert result.answer == "done"
    assert "await engine.run" in result.conversation.messages[-2].content
    assert ReActEngine(runtime).resume_sync("r") == result
    assert runtime.resume_sync("r") == result


async def test_options_that_are_code_are_named_when_a_run_is_rebuilt() -> None:
    class Coded(LoopEngine):
        name = "coded"
        score: Any = None

        async def solve(self, run: Run) -> str:
            return str((await run.ask("x")) + self.score(2))

    runtime = parts(["a"])
    engine = Coded(runtime, score=lambda n: str(n + 1))
    await engine.run("go", run_id="r")

    with pytest.raises(ConfigError, match="score: this option"):
        await runtime.resume("r")
    assert (await engine.resume("r")).answer == "a3"


async def test_a_child_that_is_denied_raises_in_the_engine() -> None:
    class Strict:
        async def evaluate(self, action: Any, state: Any) -> Any:
            from loopwright import Allow, Deny

            return Deny("no helpers") if action.tool == "delegate" else Allow()

    class Delegating(LoopEngine):
        name = "delegating"

        async def solve(self, run: Run) -> str:
            return (await run.delegate(ReActEngine(self.runtime), "part")).answer or ""  # type: ignore[arg-type]

    result = await Delegating(parts(["never"], gate=Strict())).run("go")

    assert (result.status, result.stop_reason) == ("failed", "denied")
    assert isinstance(result.error, LoopwrightError)


async def test_the_journal_on_disk_holds_no_class_paths(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await ReActEngine(parts([call("look", what="sky"), "blue"], journal=journal)).run(
        "colour?", run_id="r"
    )
    await journal.close()

    with (
        contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database,
        database,
    ):
        bodies = [str(row[0]) for row in database.execute("SELECT body FROM events")]
    database.close()
    assert bodies
    assert not any(
        "loopwright." in body.replace("loopwright.gates.base", "") for body in bodies
    )


async def test_call_ids_are_unique_even_if_the_model_repeats_them() -> None:
    same = [ToolCall("look", {"what": "a"}, "x"), ToolCall("look", {"what": "b"}, "x")]
    result = await ReActEngine(parts([same, "done"])).run("go")

    ids = [m.call_id for m in result.conversation.messages if m.role == "tool"]
    assert len(set(ids)) == 2


def test_errors_that_lead_to_each_other_are_recorded_as_far_as_it_makes_sense() -> None:
    first, second = ProviderError("first"), ProviderError("second")
    first.__cause__, second.__cause__ = second, first
    restored = ErrorRecord.of(first).restore()

    assert str(restored.__cause__) == "second"
    assert restored.__cause__ is not None
    assert str(restored.__cause__.__cause__) == "first"
