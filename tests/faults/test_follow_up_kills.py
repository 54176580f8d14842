"""kill -9 at every barrier of a run and of its follow-ups: each is done once, whoever does it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import LoopEngine, ReActEngine, Run, Runtime
from loopwright.events import EffectFinished
from loopwright.followups import EndedRun, FollowUp
from loopwright.journals import Journal, SQLiteJournal
from loopwright.knowledge import Remembered, SQLiteKnowledge
from loopwright.providers import Request
from loopwright.testing import call, kill_everywhere, witness, witnessed
from loopwright.tools import ToolContext, tool
from programs import run_once

pytestmark = pytest.mark.timeout(240)


@tool(effect="write", name="send")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send something."""
    witness(ctx)
    return f"{what} sent"


class Diary(FollowUp):
    """Has a model sum the run up, and appends a line to a file and an item to a store."""

    name = "diary"
    folder: str

    async def follow(self, run: Run, ended: EndedRun) -> str:
        line = await run.ask(f"Sum up: {ended.result.answer}", purpose="diary")
        store = SQLiteKnowledge(Path(self.folder) / "memory.db")

        async def keep() -> str:
            item = Remembered(line, kind="episode", scope="ada")
            return await store.store(item, key=f"{ended.run_id}:diary")

        try:
            await run.effect("keep", keep, into=str)
        finally:
            await store.close()
        return line


class Diarist:
    """A run with a follow-up."""

    task = "Send a card."

    def __init__(self) -> None:
        self._folder = Path()

    def journal(self, folder: Path) -> SQLiteJournal:
        self._folder = folder
        return SQLiteJournal(folder / "runs.db")

    def runtime(self, journal: Journal) -> Runtime:
        def model(request: Request) -> Any:
            if request.conversation.task.startswith("Sum up"):
                return "A card was sent."
            told = [one for one in request.conversation if one.role == "tool"]
            return "Done." if told else call("send", what="card")

        diary = Diary(folder=str(self._folder))
        return Runtime(witnessed(model), tools=[send], journal=journal, after=[diary])

    def engine(self, runtime: Runtime) -> LoopEngine:
        return ReActEngine(runtime)

    def warm_up(self) -> None:
        run_once(self)


def test_a_follow_up_is_done_once_wherever_its_processes_die(tmp_path: Path) -> None:
    kills = 0
    for killed in kill_everywhere(Diarist, folder=tmp_path):
        kills += 1
        asyncio.run(check(killed.folder))

    assert kills >= 14  # seven barriers: four of the run, three of the follow-up


async def check(folder: Path) -> None:
    """Check that the follow-up of a run that was killed was done, and once."""
    journal, store = (
        SQLiteJournal(folder / "runs.db"),
        SQLiteKnowledge(folder / "memory.db"),
    )
    assert {info.run_id: info.status for info in journal.runs()} == {
        "the-run": "completed",
        "the-run@after:diary": "completed",
    }
    entries = journal.read("the-run@after:diary")
    assert sum(isinstance(entry.event, EffectFinished) for entry in entries) == 1
    found = await store.search("card sent", scope="ada", threshold=0.0)
    assert [item.text for item in found] == ["A card was sent."]
    await store.close()
    await journal.close()
