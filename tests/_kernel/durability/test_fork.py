"""Forks: a run copied up to an entry goes its own way from there, and the original stays as it is."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    Journal,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    ReplayDivergence,
    Run,
    RunHandle,
    Runtime,
    ToolContext,
    tool,
)
from loopwright._internal.version import __version__
from loopwright.errors import UnknownRun
from loopwright.events import RunForked
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import CallCompleted

done: list[str] = []


@tool(effect="write")
def send(to: str) -> str:
    """Send a letter."""
    done.append(to)
    return f"sent to {to}"


class DiceEngine(LoopEngine):
    """Throws dice and says what came."""

    name = "dice"

    async def solve(self, run: Run) -> str:
        """Throw, name, ask."""
        thrown = run.random.randrange(10**9)
        said = await run.ask(f"{thrown} {run.new_id()}")
        again = await run.ask(f"{run.random.randrange(10**9)} {said}")
        return f"{thrown} {again}"


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: Any, tmp_path: Path) -> Journal:
    done.clear()
    return (
        MemoryJournal()
        if request.param == "memory"
        else SQLiteJournal(tmp_path / "runs.db")
    )


def model(answer: str) -> Callable[[Request], Any]:
    """Sends two letters, then answers."""

    def line(request: Request) -> Any:
        sent = sum(message.role == "tool" for message in request.conversation.messages)
        return call("send", to=("Ann", "Bob")[sent]) if sent < 2 else answer

    return line


def engine(journal: Journal, answer: str = "done") -> ReActEngine:
    return ReActEngine(
        Runtime(ScriptedProvider(model(answer)), tools=[send], journal=journal)
    )


async def test_a_fork_of_every_entry_ends_as_the_run_did_and_repeats_nothing_it_holds(
    journal: Journal,
) -> None:
    first = await engine(journal).run("Write.", run_id="first")
    entries = journal.read("first")

    for at in range(1, len(entries)):
        done.clear()
        held = {e.event.call_id for e in entries[:at] if e.kind == "tool_started"}
        fork = await engine(journal).fork("first", at=at)
        result = await engine(journal).resume(fork)

        assert (result.answer, result.run_id) == (first.answer, fork)
        assert len(done) == 2 - len(held)
        assert journal.verify(fork).ok
    assert journal.read("first") == entries


async def test_a_fork_goes_its_own_way(journal: Journal) -> None:
    await engine(journal).run("Write.", run_id="first")
    after_first_letter = next(
        e.seq for e in journal.read("first") if e.kind == "tool_finished"
    )

    fork = await engine(journal).fork("first", at=after_first_letter, new_id="second")
    result = await engine(journal, "another end").resume(fork)

    assert result.answer == "another end"
    assert done == ["Ann", "Bob", "Bob"]


async def test_a_fork_says_where_it_comes_from(journal: Journal) -> None:
    await engine(journal).run("Write.", run_id="first")
    await engine(journal).fork("first", at=4, new_id="second")

    info = next(run for run in journal.runs() if run.run_id == "second")
    forked = journal.read("second")[-1].event
    assert (info.parent_run, info.fork_seq, info.status, info.owner) == (
        "first",
        4,
        "suspended",
        None,
    )
    assert forked == RunForked(
        "first", 4, journal.read("first")[3].hash, "first", __version__
    )


async def test_random_numbers_and_ids_before_the_fork_stay_also_in_a_fork_of_a_fork(
    journal: Journal,
) -> None:
    dice = DiceEngine(
        Runtime(
            ScriptedProvider(lambda request: request.conversation.task), journal=journal
        )
    )
    result = await dice.run("Throw.", run_id="first")
    half = next(e.seq for e in journal.read("first") if e.kind == "model_replied")

    second = await dice.fork("first", at=half)
    third = await dice.fork(second, at=half + 1)

    assert (await dice.resume(second)).answer == result.answer
    assert (await dice.resume(third)).answer == result.answer


async def test_a_fork_of_a_fork_is_the_run_wherever_it_is_cut(journal: Journal) -> None:
    dice = DiceEngine(
        Runtime(
            ScriptedProvider(lambda request: request.conversation.task), journal=journal
        )
    )
    result = await dice.run("Throw.", run_id="first")
    second = await dice.fork("first", at=len(journal.read("first")) - 1)

    for at in range(1, len(journal.read(second)) + 1):
        assert (
            await dice.resume(await dice.fork(second, at=at))
        ).answer == result.answer


async def test_a_call_that_the_cut_goes_through_is_made_again_under_its_own_key(
    journal: Journal,
) -> None:
    keys: list[str] = []

    @tool(effect="idempotent")
    def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    def model(request: Request) -> Any:
        return (
            "done"
            if any(message.role == "tool" for message in request.conversation)
            else call("pay")
        )

    made = ReActEngine(Runtime(ScriptedProvider(model), tools=[pay], journal=journal))
    await made.run("Pay.", run_id="first")
    begun = next(
        entry.seq for entry in journal.read("first") if entry.kind == "tool_started"
    )

    await made.resume(await made.fork("first", at=begun))

    assert keys[0] == keys[1]
    assert keys[0].endswith("first:0#0")


async def test_a_waiting_fork_takes_its_own_first_answer_and_none_of_the_run(
    journal: Journal,
) -> None:
    def parts() -> Runtime:
        return Runtime(
            ScriptedProvider(model("done")),
            tools=[send],
            journal=journal,
            on_unknown="ask",
        )

    async def interrupted(run_id: str, occurrence: int) -> str:
        begun = [
            entry.seq for entry in journal.read(run_id) if entry.kind == "tool_started"
        ][occurrence]
        return await ReActEngine(parts()).fork(run_id, at=begun)

    await engine(journal).run("Write.", run_id="whole")
    first = await interrupted("whole", 0)
    assert (await ReActEngine(parts()).resume(first)).status == "waiting"
    await parts().resolve(first, "0#0", CallCompleted("the first was sent"))
    assert (await parts().resume(first)).answer == "done"

    again, second = await interrupted(first, 0), await interrupted(first, 1)
    for fork, key in ((again, "0#0"), (second, "1#0")):
        done.clear()
        waiting = await parts().resume(fork)
        assert [question.key for question in waiting.pending] == [key]
        assert (await parts().resume(fork)).status == "waiting"

        await parts().resolve(fork, key, CallCompleted("it was sent"))
        result = await parts().resume(fork)

        assert (result.answer, done) == ("done", ["Bob"] if fork == again else [])


class Branches(LoopEngine):
    """Two branches of two questions each."""

    name = "branches"
    second: str = "b"

    async def solve(self, run: Run) -> str:
        """Ask in both."""

        async def ask(branch: Run, about: str) -> str:
            return await branch.ask(f"{about} {await branch.ask(f'{about}?')}")

        return " ".join(
            await run.gather(lambda r: ask(r, "a"), lambda r: ask(r, self.second))
        )


async def test_a_run_whose_code_changed_goes_on_in_a_fork_before_the_change(
    journal: Journal,
) -> None:
    parts = Runtime(
        ScriptedProvider(lambda request: request.conversation.task.upper()),
        journal=journal,
    )
    whole = await Branches(parts).run("Go.", run_id="whole")
    cut = await Branches(parts).fork("whole", at=len(journal.read("whole")) - 1)

    with pytest.raises(ReplayDivergence) as diverged:
        await Branches(parts, second="c").resume(cut)
    result = await Branches(parts, second="c").resume(
        await Branches(parts).fork(cut, at=diverged.value.seq)
    )

    assert (whole.answer, result.answer) == ("A A? B B?", "A A? C C?")


async def test_the_time_between_the_run_and_its_fork_is_not_active_time(
    journal: Journal,
) -> None:
    from loopwright import Limits
    from loopwright.testing import FakeClock

    clock = FakeClock()
    provider = ScriptedProvider(model("done"))
    made = ReActEngine(
        Runtime(
            provider,
            tools=[send],
            journal=journal,
            clock=clock,
            limits=Limits(timeout=10),
        )
    )
    await made.run("Write.", run_id="first")
    clock.advance(1000)

    fork = await made.fork("first", at=5)
    clock.advance(1000)

    assert (await made.resume(fork)).status == "completed"


@pytest.mark.parametrize("at", [0, -1, 1000])
async def test_an_entry_that_is_not_there_is_refused(journal: Journal, at: int) -> None:
    await engine(journal).run("Write.", run_id="first")

    with pytest.raises(
        ConfigError,
        match=rf"^at: run 'first' can be forked after its entries 1 to \d+, got {at}$",
    ):
        await engine(journal).fork("first", at=at)


async def test_the_end_of_a_finished_run_cannot_be_forked(journal: Journal) -> None:
    await engine(journal).run("Write.", run_id="first")

    with pytest.raises(ConfigError, match="can be forked after its entries"):
        await engine(journal).fork("first", at=len(journal.read("first")))


async def test_an_unknown_run_and_a_taken_name_are_refused(journal: Journal) -> None:
    with pytest.raises(UnknownRun):
        await engine(journal).fork("nobody", at=1)

    await engine(journal).run("Write.", run_id="first")
    with pytest.raises(ConfigError, match="exists already"):
        await engine(journal).fork("first", at=2, new_id="first")
    with pytest.raises(ConfigError, match="run_id"):
        await engine(journal).fork("first", at=2, new_id="no good")


class HandingEngine(LoopEngine):
    """Hands its task to another engine, and sums up."""

    name = "handing"
    child: LoopEngine

    async def solve(self, run: Run) -> str:
        """Delegate, ask."""
        ended = await run.delegate(self.child, "Send letters.")
        return f"{ended.answer} {await run.ask('Sum up.')}"


@pytest.mark.parametrize("as_tool", [False, True])
@pytest.mark.parametrize("word", ["stop", "abort"])
async def test_a_run_stopped_inside_a_child_engine_continues_in_a_fork_of_any_entry(
    journal: Journal, word: str, as_tool: bool
) -> None:
    at_work: list[RunHandle[Any, Any]] = []

    @tool(effect="idempotent")
    async def tell() -> str:
        """Stop the run around it, once."""
        if at_work:
            await getattr(at_work.pop(), word)()
            await asyncio.sleep(0.01)
        return "told"

    def line(request: Request) -> Any:
        last = request.conversation.messages[-1]
        return (
            "Summed up."
            if last.content == "Sum up."
            else "Sent."
            if last.role == "tool"
            else call("tell")
        )

    def outer(request: Request) -> Any:
        last = request.conversation.messages[-1]
        return (
            f"{last.content} Summed up."
            if last.role == "tool"
            else call("helper", task="Send letters.")
        )

    def engine() -> LoopEngine:
        parts = Runtime(ScriptedProvider(line), tools=[tell], journal=journal)
        child = ReActEngine(parts)
        if not as_tool:
            return HandingEngine(parts, child=child)
        helper = child.as_tool(name="helper", description="Sends letters.")
        return ReActEngine(
            Runtime(ScriptedProvider(outer), tools=[helper], journal=journal)
        )

    async with engine().start("Go.", run_id="first") as handle:
        at_work.append(handle)
        assert (await handle.result()).status == "aborted"
    entries = journal.read("first")

    for at in range(1, len(entries)):
        fork = await engine().fork("first", at=at)
        result = await engine().resume(fork)
        assert (result.status, result.answer) == ("completed", "Sent. Summed up."), at
    [ended] = [
        entry
        for entry in entries
        if entry.key in ("0", "0#0") and entry.kind.endswith("_finished")
    ]
    assert ended.event.status in ("aborted", "cancelled")


async def test_fork_of_a_turn_continues_the_turn_before_in_the_journal(
    journal: MemoryJournal | SQLiteJournal,
) -> None:
    """What it began with is in the run before, so that is not deleted without it."""
    engine = ReActEngine(Runtime(ScriptedProvider(["Yes.", "No.", "Perhaps."]), journal=journal))  # fmt: skip
    before = await engine.run("Really?", run_id="before")
    await engine.run(before.conversation.user("And now?"), run_id="turn")

    await engine.fork("turn", at=1, new_id="fork")

    assert journal.verify("fork").problem == ""
    assert [one.follows for one in journal.runs()] == ["before", "before", None]
    with pytest.raises(ConfigError, match=r"continued by .*'fork'"):
        await journal.delete("before")
    assert await journal.delete("turn") == ["turn"]
    resumed = await engine.resume("fork")
    assert [one.content for one in resumed.conversation] == ["Really?", "Yes.", "And now?", "Perhaps."]  # fmt: skip
