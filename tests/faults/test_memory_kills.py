"""kill -9 at every barrier of what remembers: nothing is injected, stored, summarised, fetched or appended twice."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fault_sizes import sized
from loopwright import LoopEngine, ReActEngine, Run, Runtime, tool
from loopwright.engines import PreHydration, WorkingMemory
from loopwright.events import (
    Entry,
    FactNoted,
    ModelReplied,
    ToolFinished,
    ToolStarted,
)
from loopwright.followups import Memories
from loopwright.journals import Journal, SQLiteJournal
from loopwright.knowledge import KnowledgeBridge, Remembered, SQLiteKnowledge
from loopwright.providers import Request
from loopwright.testing import call, kill_everywhere, witness, witnessed
from loopwright.toolboxes.memory import memory
from loopwright.tools import ToolContext
from programs import run_once

pytestmark = pytest.mark.timeout(sized(400, 1800))
RUN = "the-run"
LESSON = json.dumps(
    {"confidence": 0.9, "quality": 0.7, "issues": [], "patterns": ["Send early."]}
)


@tool(effect="write", name="send")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send something."""
    witness(ctx)
    return f"{what} sent"


@tool(effect="read", name="look")
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look something up."""
    witness(ctx)
    return f"{what} is blue"


class Remembering:
    """A run whose model reads what is known, stores a fact, and of which all kinds of memories are made."""

    task = "I prefer tea. Send Ada Lovelace a card about the violin."

    def __init__(self) -> None:
        self._folder = Path()

    def journal(self, folder: Path) -> Journal:
        self._folder = folder
        (folder / "skills").mkdir(exist_ok=True)
        return SQLiteJournal(folder / "runs.db")

    def runtime(self, journal: Journal) -> Runtime:
        store = SQLiteKnowledge(self._folder / "memory.db", shared=True)
        bridge = KnowledgeBridge(store, required=True, timeout=60.0, auto_persist=True)
        memories = Memories(
            reflection=True, adversarial=True, skills_folder=str(self._folder / "skills")
        )  # fmt: skip
        return Runtime(
            witnessed(_remembering), tools=[look, send], journal=journal, knowledge=bridge, after=[memories]
        )  # fmt: skip

    def engine(self, runtime: Runtime) -> LoopEngine:
        return ReActEngine(runtime)

    def warm_up(self) -> None:
        run_once(self)


def _remembering(request: Request) -> Any:
    if "Task: " in request.conversation.task:
        return LESSON
    steps: list[Any] = [
        call("store_knowledge", subject="Ada", predicate="has", object="a violin"),
        [call("look", what="violin"), call("send", what="card")],
        "Sent to Ada Lovelace in Oslo.",
    ]
    return steps[sum(one.role == "assistant" for one in request.conversation)]


class Surveyor(LoopEngine):
    """Compresses its notes by a model."""

    name: ClassVar[str] = "kill-surveyor"

    async def solve(self, run: Run) -> str:
        notes = WorkingMemory(every=2, above=40, limit=300).open(run)
        notes.add_person(run.task)
        for number in run.iterations(4):
            notes.add(await run.ask(f"Part {number}. {notes.text}"))
            await notes.end_iteration()
        return await run.ask(f"Report. {notes.text}")


class Surveying(Remembering):
    """A run with a working memory that is compressed twice."""

    task = "Survey it."

    def runtime(self, journal: Journal) -> Runtime:
        return Runtime(witnessed(_surveying), journal=journal)

    def engine(self, runtime: Runtime) -> LoopEngine:
        return Surveyor(runtime)


def _surveying(request: Request) -> str:
    task = request.conversation.task
    if task.startswith("Shorten"):
        return f"short {task.count('long')}"
    return "It was shortened twice." if task.count("short") else "long " * 20


class Hydrated(LoopEngine):
    """Fetches what its task refers to before the first call."""

    name: ClassVar[str] = "kill-hydrated"

    async def solve(self, run: Run) -> str:
        references = PreHydration({"file": "look", "issue": "send"}, timeout=60.0)
        return await run.ask(await references.hydrate(run))


class Hydrating(Remembering):
    """A run that refers to two files and to an issue that a writing tool resolves."""

    task = "Compare src/a.py with src/b.py for issue #7."

    def runtime(self, journal: Journal) -> Runtime:
        return Runtime(witnessed(_comparing), tools=[look, send], journal=journal)

    def engine(self, runtime: Runtime) -> LoopEngine:
        return Hydrated(runtime)


def _comparing(request: Request) -> str:
    return f"{request.conversation.task.count('is blue')} are blue."


class NoteTaking(Remembering):
    """A run that appends to a file of notes."""

    task = "Note that Ada called."

    def runtime(self, journal: Journal) -> Runtime:
        notes = self._folder / "notes"
        notes.mkdir(exist_ok=True)
        return Runtime(witnessed(_noting), tools=memory(notes), journal=journal)


def _noting(request: Request) -> Any:
    steps = [
        call("memory", command="create", path="/memories/a.md", file_text="Calls:\n"),
        call("memory", command="insert", path="/memories/a.md", insert_text="Ada called."),
        call("memory", command="insert", path="/memories/a.md", insert_text="She was well."),
        "Noted.",
    ]  # fmt: skip
    return steps[sum(one.role == "assistant" for one in request.conversation)]


def read(folder: Path) -> dict[str, list[Entry]]:
    """The entries of all runs of a folder, whose chains are intact."""
    journal = SQLiteJournal(folder / "runs.db")
    runs = [info.run_id for info in journal.runs()]
    assert all(journal.verify(run).ok for run in runs)
    assert {info.status for info in journal.runs()} == {"completed"}
    return {run: journal.read(run) for run in runs}


def once(entries: list[Entry], kind: type[object]) -> int:
    """The number of events of a kind; no place has two."""
    keys = [entry.key for entry in entries if isinstance(entry.event, kind)]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    return len(keys)


async def list_all(folder: Path) -> Iterator[Remembered]:
    """All items of a store that hold, by kind and text."""
    store = SQLiteKnowledge(folder / "memory.db", shared=True)
    rows = store._read(  # pyright: ignore[reportPrivateUsage]
        lambda cursor: cursor.execute("SELECT id FROM items").fetchall()
    )
    found = [one for (id,) in rows for one in await store.history(id)]
    await store.close()
    return iter(sorted(found, key=lambda item: (item.kind, item.text)))


EXPECTED = [
    ("answer", f"{Remembering.task}: Sent to Ada Lovelace in Oslo."),
    ("entity", f"Ada Lovelace: came up in '{Remembering.task}'"),
    ("entity", f"Oslo: came up in '{Remembering.task}'"),
    ("episode", f"{Remembering.task} -> Sent to Ada Lovelace in Oslo."),
    ("fact", "Ada has a violin"),
    ("preference", "I prefer tea."),
    ("reflection", "Send early."),
]


def test_knowledge_and_memories_are_stored_once(tmp_path: Path) -> None:
    kills = 0
    for killed in kill_everywhere(Remembering, folder=tmp_path):
        kills += 1
        runs = read(killed.folder)
        assert set(runs) == {RUN, f"{RUN}@after:memories", f"{RUN}@after:answer-gist"}
        assert once(runs[f"{RUN}@after:memories"], ModelReplied) == 2
        stored = asyncio.run(list_all(killed.folder))
        assert [(item.kind, item.text) for item in stored] == EXPECTED
        assert len(list((killed.folder / "skills").rglob("SKILL.md"))) == 1

    assert kills >= 30


def test_a_working_memory_is_compressed_once_at_each_place(tmp_path: Path) -> None:
    kills = 0
    for killed in kill_everywhere(Surveying, folder=tmp_path):
        kills += 1
        entries = read(killed.folder)[RUN]
        assert once(entries, ModelReplied) == 7
        facts: list[Any] = [one.event.value for one in entries if isinstance(one.event, FactNoted)]  # fmt: skip
        assert [fact["iterations"] for fact in facts] == [2, 4]

    assert kills >= 16


def test_what_a_task_refers_to_is_fetched_and_injected_once(tmp_path: Path) -> None:
    kills = 0
    for killed in kill_everywhere(Hydrating, folder=tmp_path):
        kills += 1
        entries = read(killed.folder)[RUN]
        assert (once(entries, ToolFinished), once(entries, ModelReplied)) == (3, 1)
        [answer] = [one.event.completion.answer for one in entries if isinstance(one.event, ModelReplied)]  # fmt: skip
        assert answer == "2 are blue."

    assert kills >= 8


def test_notes_are_appended_once_or_known_to_be_unknown(tmp_path: Path) -> None:
    kills = unknown = 0
    for killed in kill_everywhere(NoteTaking, folder=tmp_path):
        kills += 1
        entries = read(killed.folder)[RUN]
        outcomes = {
            entry.key: entry.event.status
            for entry in entries
            if isinstance(entry.event, ToolFinished)
        }
        assert once(entries, ToolStarted) == len(outcomes) == 3
        text = (
            (killed.folder / "notes" / "a.md").read_text()
            if _is_there(killed.folder)
            else ""
        )
        lines = Counter(text.splitlines())
        assert max(lines.values(), default=0) <= 1
        unknown += "unknown" in outcomes.values()
        if set(outcomes.values()) == {"ok"}:
            assert text == "Calls:\nAda called.\nShe was well.\n"

    assert kills >= 14
    assert unknown >= 3


def _is_there(folder: Path) -> bool:
    return (folder / "notes" / "a.md").exists()
