"""Stored runs are replayed with today's code, without a model, a tool or a write."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from function_engine import FunctionEngine
from loopwright import MemoryJournal, ReActEngine, Run, Runtime, Suspend, ToolCall, tool
from loopwright.cli.app import main
from loopwright.errors import ConfigError
from loopwright.gates import Allow, InstantGate
from loopwright.journals import Journal, SQLiteJournal
from loopwright.testing import (
    ReplayReport,
    ScriptedProvider,
    call,
    crashed,
    replay_check,
)

Body = Callable[[Run], Awaitable[object]]
ACTED: list[str] = []


class Answer(BaseModel):
    text: str


@tool(effect="write")
async def send(what: str) -> str:
    """Send."""
    ACTED.append(what)
    return "sent"


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase."""
    ACTED.append(what)
    return "gone"


class Watching(InstantGate):
    """Notes what it is asked."""

    def decide(self, action: object, state: object) -> Allow:
        ACTED.append("gate")
        return Allow()


async def old(run: Run) -> object:
    run.note("a fact")
    both = await run.gather(asks, sends)
    return [*both, await run.ask("last")]


async def new(run: Run) -> object:
    run.note("another fact")
    both = await run.gather(asks, sends)
    await run.call(ToolCall("send", {"what": "a new payment"}))
    return [*both, await run.ask("last, please")]


async def asks(branch: Run) -> str:
    return await branch.ask("one") + await branch.ask("two")


async def sends(branch: Run) -> str:
    return (await branch.call(ToolCall("send", {"what": "x"}))).content


def engine(
    body: Body, journal: Journal, provider: ScriptedProvider | None = None
) -> FunctionEngine:
    provider = provider or ScriptedProvider(["a reply"] * 9)
    services = Runtime(
        provider, tools=[send, erase], journal=journal, approver=Suspend()
    )
    return FunctionEngine(services, body=body)


@pytest.fixture(autouse=True)
def nothing_acted() -> None:
    ACTED.clear()


async def test_the_same_code_replays_every_run_wherever_it_stopped() -> None:
    journal = MemoryJournal()
    await engine(old, journal).run("Go.", run_id="r")
    entries = journal.read("r")
    ACTED.clear()
    for keep in range(1, len(entries) + 1):
        cut = crashed(entries, keep)
        provider = ScriptedProvider(["a reply"] * 9)
        [report] = await replay_check(cut, [engine(old, MemoryJournal(), provider)])
        assert report == ReplayReport("r", "doing", "", "replayed"), keep
        assert (ACTED, provider.requests) == ([], [])
        assert cut.read("r") == entries[:keep]


async def test_code_that_differs_is_reported_with_its_place_and_does_nothing() -> None:
    journal = MemoryJournal()
    await engine(old, journal).run("Go.", run_id="r")
    entries = journal.read("r")
    ACTED.clear()
    provider = ScriptedProvider(["a reply"] * 9)
    today = FunctionEngine(
        Runtime(provider, tools=[send], gate=Watching(), journal=journal), body=new
    )
    [report] = await replay_check(journal, [today])

    assert (report.outcome, report.key, report.ok) == ("diverged", "1", False)
    assert "recorded: ask 'last'; now: propose send" in report.problem
    assert (ACTED, provider.requests) == ([], [])
    assert journal.read("r") == entries


async def test_runs_are_selected_by_status_and_a_missing_engine_is_reported() -> None:
    async def asks_leave(run: Run) -> object:
        return (await run.call(ToolCall("erase", {"what": "x"}))).content

    journal = MemoryJournal()
    await engine(asks_leave, journal).run("Go.", run_id="waits")
    await engine(old, journal).run("Go.", run_id="ended")
    ACTED.clear()
    waiting = await replay_check(
        journal, [engine(asks_leave, MemoryJournal())], status="waiting"
    )
    assert [(one.run_id, one.outcome) for one in waiting] == [("waits", "replayed")]
    [changed] = await replay_check(
        journal, [engine(old, MemoryJournal())], status="waiting"
    )
    assert changed.outcome == "diverged"
    [missing] = await replay_check(journal, [], status="waiting")
    assert (missing.outcome, missing.ok) == ("unchecked", False)
    assert "was made by engine 'doing', which is missing; pass it" in missing.problem
    assert ACTED == []


async def test_a_run_with_an_output_needs_its_class() -> None:
    journal = MemoryJournal()
    provider = ScriptedProvider(["no JSON", '{"text": "yes"}'])
    react = ReActEngine(Runtime(provider, journal=journal))
    await react.run("Go.", run_id="r", output=Answer)
    today = ReActEngine(Runtime(ScriptedProvider([])))

    [report] = await replay_check(journal, [today])
    assert (report.outcome, report.problem) == (
        "unchecked",
        "outputs: the run answers as Answer; pass it",
    )
    [report] = await replay_check(journal, [today], outputs=[Answer])
    assert report.outcome == "replayed"


async def test_runs_of_agents_are_replayed_with_their_agents() -> None:
    def build(model: ScriptedProvider, journal: Journal) -> Runtime:
        runtime = Runtime(model, journal=journal)
        runtime.agent("clerk", instructions="Write.")
        runtime.agent("form", output=Answer)
        runtime.agent("desk", handoffs=["clerk"])
        return runtime

    journal = MemoryJournal()
    handed = [call("transfer_to_clerk"), "yes", '{"text": "no"}']
    first = build(ScriptedProvider(handed), journal)
    assert (await first.agents["desk"].run("Go.", run_id="r1")).status == "completed"
    await first.agents["form"].thread("chat").run("And?")
    today = build(ScriptedProvider([]), MemoryJournal())

    names: Any = today.agents
    with pytest.raises(ConfigError, match=r"agents: must be agents.*got 'clerk'"):
        await replay_check(journal, agents=names)
    found = await replay_check(journal, agents=today.agents.values())
    assert [report.outcome for report in found] == ["replayed", "replayed"]
    found = await replay_check(journal, [ReActEngine(today)])
    assert [report.outcome for report in found] == ["unchecked", "unchecked"]
    assert found[0].problem == "agents: run 'r1' is of agent 'desk', which is missing; pass it"  # fmt: skip


async def test_an_aborted_run_is_skipped() -> None:
    journal = MemoryJournal()
    first = engine(old, journal)
    async with first.start("Go.", run_id="r") as run:
        await run.abort()
    [report] = await replay_check(journal, [first])
    assert (report.outcome, report.ok) == ("skipped", True)


async def test_a_saga_that_failed_is_replayed_without_undoing_anything() -> None:
    undone: list[str] = []

    async def undo(what: str) -> str:
        undone.append(what)
        return "undone"

    @tool(effect="write", compensate=undo)
    async def book(what: str) -> str:
        """Book."""
        return "booked"

    async def body(run: Run) -> object:
        await run.call(ToolCall("book", {"what": "x"}))
        raise ValueError("broken")

    journal = MemoryJournal()
    saga = FunctionEngine(
        Runtime(ScriptedProvider([]), tools=[book], journal=journal), body=body
    )
    await saga.run("Go.", run_id="r", saga=True)
    done = len(undone)
    [report] = await replay_check(journal, [saga])
    assert report.outcome == "replayed"
    cut = crashed(journal.read("r"), 7)
    [report] = await replay_check(cut, [saga])
    assert (report.outcome, len(undone)) == ("replayed", done)


def check(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["replay-check", *arguments])
    return int(ended.value.code or 0)


async def test_the_command_prints_what_diverges_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "runs.db"
    journal = SQLiteJournal(file)
    services = Runtime(ScriptedProvider(["6 times 7 is 42.", "42"]), journal=journal)
    await services.engine("chain-of-thought").run("6 times 7?", run_id="ended")
    await journal.close()
    before = file.read_bytes()

    here = [str(file), "--provider", "ollama:qwen3"]
    assert await asyncio.to_thread(check, here) == 0
    assert capsys.readouterr() == ("", "1 replayed\n")
    waiting = [*here, "--status", "waiting"]
    assert await asyncio.to_thread(check, waiting) == 0
    assert capsys.readouterr() == ("", "no runs\n")
    changed = [*here, "-o", "answer=letter"]
    assert await asyncio.to_thread(check, changed) == 1
    out, err = capsys.readouterr()
    assert out.startswith("ended\tdiverged\tat 0")
    assert err == "1 diverged\n"
    assert await asyncio.to_thread(check, [*changed, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["run_id"], report["outcome"], report["ok"]) == (
        "ended",
        "diverged",
        False,
    )
    assert await asyncio.to_thread(check, [*here, "--status", "asleep"]) == 2
    assert file.read_bytes() == before
