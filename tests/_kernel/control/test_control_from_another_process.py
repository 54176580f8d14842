"""A run at work in this process, and a hand on it from another one: through the inbox beside the journal's file."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import forked_processes
from loopwright import ReActEngine, Request, Runtime, Suspend, tool
from loopwright.errors import JournalError
from loopwright.events import CommandReceived, RunContinued, RunPaused
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call
from waiting import eventually

pytestmark = pytest.mark.faults  # each command is a process of its own


async def typed(*words: str, journal: Path) -> tuple[int, str]:
    """Type a command of the command line; its exit status, and all that it says."""
    program = ("-m", "loopwright", *words, "--journal", str(journal))
    ended = await asyncio.to_thread(forked_processes.run, *program)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SQLiteJournal]:
    opened = SQLiteJournal(tmp_path / "runs.db")
    yield opened
    await opened.close()


async def test_a_run_at_work_is_steered_paused_and_stopped_from_a_shell(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    path, go = tmp_path / "runs.db", asyncio.Event()
    heard: list[str] = []

    @tool(effect="read", repeatable=True)
    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "waited"

    def listens(request: Request) -> object:
        heard.append(request.conversation.messages[-1].content)
        return call("wait")

    def events(kind: type) -> list[Any]:
        return [
            entry.event for entry in journal.read("r") if isinstance(entry.event, kind)
        ]

    runtime = Runtime(ScriptedProvider(listens), tools=[wait], journal=journal)
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await eventually(lambda: heard)
        assert await typed("steer", "r", "Mind the budget.", journal=path) == (
            0, "queued; takes effect before the next step\n",
        )  # fmt: skip
        assert (await typed("pause", "r", journal=path))[0] == 0
        await eventually(lambda: len(events(CommandReceived)) == 2)
        go.set()
        await eventually(lambda: events(RunPaused))
        assert heard == ["Go."]
        go.clear()

        assert (await typed("unpause", "r", journal=path))[0] == 0
        await eventually(lambda: events(RunContinued))
        await eventually(lambda: len(heard) > 1)
        assert heard[1] == "Guidance from the operator of this run:\nMind the budget."

        assert (await typed("stop", "r", journal=path))[0] == 0
        await eventually(lambda: len(events(CommandReceived)) == 4)
        go.set()
        result = await asyncio.wait_for(run.result(), 30)

    assert (result.status, len(heard)) == ("aborted", 2)
    assert [e.command for e in events(CommandReceived)] == [
        "steer",
        "pause",
        "resume",
        "stop",
    ]
    assert await typed("steer", "r", "more", journal=path) == (
        2, "error: run 'r' has ended: it receives no more commands\n",
    )  # fmt: skip


async def test_a_call_is_listed_with_its_exact_arguments_and_approved_from_a_shell(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"

    @tool(effect="destructive")
    async def erase(what: str) -> str:
        """Erase."""
        return f"erased {what}"

    def runtime(*script: object) -> Runtime:
        return Runtime(
            ScriptedProvider(script), tools=[erase], journal=journal, approver=Suspend()
        )

    await ReActEngine(runtime(call("erase", what="disk"))).run("Go.", run_id="r")

    status, listed = await typed("approvals", journal=path)
    assert status == 0
    assert listed.splitlines()[:2] == [
        "r  0#0  erase is destructive: run it?",
        '  erase({"what":"disk"})',
    ]
    assert f"loopwright approve r '0#0@66660a3d' --journal {path}" in listed
    status, lines = await typed("approvals", "--json", journal=path)
    assert json.loads(lines)["question"]["arguments"] == {"what": "disk"}

    assert await typed("approve", "r", "1#0", journal=path) == (
        2, "error: question: run 'r' does not ask '1#0'; it asks '0#0'\n",
    )  # fmt: skip
    assert await typed("approve", "r", "0#0@ffffffff", journal=path) == (
        2, "error: question: run 'r' asks about another call at '0#0' by now: look at it again\n",
    )  # fmt: skip
    assert await typed("approve", "r", "0#0@66660a3d", "--by", "Ada", journal=path) == (
        0, "queued; takes effect when the run is resumed\n",
    )  # fmt: skip

    assert (await ReActEngine(runtime("done")).resume("r")).answer == "done"
    assert await typed("approvals", journal=path) == (
        0,
        "no run waits for a decision\n",
    )


async def test_a_word_that_a_run_cannot_hear_since_its_inbox_was_lost_is_an_error(
    tmp_path: Path,
) -> None:
    @tool(effect="destructive")
    async def erase(what: str) -> str:
        """Erase."""
        return f"erased {what}"

    def runtime(*script: object) -> Runtime:
        journal = SQLiteJournal(tmp_path / "runs.db")
        return Runtime(
            ScriptedProvider(script), tools=[erase], journal=journal, approver=Suspend()
        )

    await ReActEngine(runtime(call("erase", what="a"))).run("Go.", run_id="r")
    await runtime().control("r").approve("0#0")
    await ReActEngine(runtime(call("erase", what="b"))).resume("r")
    for lost in ("runs.db.inbox", "runs.db.inbox-wal", "runs.db.inbox-shm"):
        tmp_path.joinpath(lost).unlink(missing_ok=True)

    control = runtime().control("r")
    with pytest.raises(
        JournalError,
        match="has received 1 commands and takes this one, number 1, for an earlier one",
    ):
        await control.stop()
    await control.stop()
    assert (await ReActEngine(runtime()).resume("r")).status == "aborted"
