"""Bad input to an agent and its thread: a clear error, nothing half stored, and the next message is answered."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, Runtime, Template
from loopwright.events import KnowledgeUnavailable
from loopwright.journals import SQLiteJournal
from loopwright.knowledge import KnowledgeBridge, Remembered, SQLiteKnowledge
from loopwright.testing import ScriptedProvider

FILES = ("runs.db", "runs.db.inbox", "known.db")


def answer_all(request: Any) -> str:
    return f"Heard: {request.conversation.task}"


class House:
    """A runtime whose runs, commands and knowledge are in files."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.model = ScriptedProvider(answer_all)
        self.known = SQLiteKnowledge(folder / "known.db")
        bridge = KnowledgeBridge(self.known, **options)
        self.runtime = Runtime(
            self.model, knowledge=bridge, journal=SQLiteJournal(folder / "runs.db")
        )

    def rows(self) -> dict[str, int]:
        """How many rows each table of each file has."""
        found: dict[str, int] = {}
        for file in FILES:
            if (self.folder / file).exists():
                found |= {f"{file}/{t}": n for t, n in count_rows(self.folder / file)}
        return found

    async def said(self, id: str) -> list[str]:
        history = await next(iter(self.runtime.agents.values())).thread(id).history()
        return [message.content for message in history]


def count_rows(path: Path) -> Iterator[tuple[str, int]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        for (name,) in connection.execute(tables).fetchall():
            [(count,)] = connection.execute(f'SELECT count(*) FROM "{name}"')
            yield name, count


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.known.close()
    await made.runtime.journal.close()


async def test_agent_without_a_name_or_with_one_of_another_kind_is_not_defined(
    house: House,
) -> None:
    with pytest.raises(TypeError, match="name"):
        house.runtime.agent()  # type: ignore[call-overload]
    for name in ("", " ", None, 7, "a b", "a/b"):
        with pytest.raises(ConfigError, match="name: must be letters"):
            house.runtime.agent(name)  # type: ignore[arg-type]

    assert list(house.runtime.agents) == []
    assert house.rows() == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"saga": 5}, "saga: must be True or False"),
        ({"saga": None}, "saga: must be True or False"),
        ({"attachments": ["page.pdf"]}, "attachments: must be a list of Attachment"),
        ({"attachments": 5}, "attachments: must be a list of Attachment"),
    ],
)
async def test_option_that_no_journal_could_keep_leaves_the_thread_as_it_was(
    house: House, options: dict[str, Any], problem: str
) -> None:
    agent = house.runtime.agent("desk")
    await agent.thread("ada").run("Hello.")
    before = house.rows()
    with pytest.raises(ConfigError, match=problem):
        await agent.thread("ada").run("And now?", **options)
    with pytest.raises(ConfigError, match=problem):
        await agent.thread("ada", **options).run("And now?")
    if "saga" in options:
        with pytest.raises(ConfigError, match=problem):
            await agent.run("And now?", **options)

    assert house.rows() == before
    assert (await agent.thread("ada").run("And now?")).answer == "Heard: And now?"


async def test_agents_and_switches_of_another_type_are_refused(house: House) -> None:
    agent: Any = house.runtime.agent("desk")
    thread = agent.thread("ada")
    await thread.run("Hello.")
    before = house.rows()
    for other in (5, None, "", agent.engine.runtime):
        with pytest.raises(ConfigError, match="agent: must be an agent, or the name"):
            await thread.switch(other)
    with pytest.raises(ConfigError, match="system: must be a text, got 5"):
        await agent.run("Hello.", system=5)
    define: Any = house.runtime.agent
    for options, problem in (
        ({"engine": 5}, "engine: must be an engine, or the name of one, got 5"),
        ({"engine": None}, "engine: must be an engine"),
        ({"description": 5}, "description: must be a text, got 5"),
    ):
        with pytest.raises(ConfigError, match=problem):
            define("other", **options)

    assert list(house.runtime.agents) == ["desk"]
    assert house.rows() == before


async def test_fork_at_a_turn_of_another_thread_is_refused(house: House) -> None:
    agent = house.runtime.agent("desk")
    ada, bob = agent.thread("ada"), agent.thread("bob")
    await ada.run("I am Ada.")
    await bob.run("I am Bob.")
    [of_ada] = await ada.turns()
    with pytest.raises(ConfigError, match=f"no ended turn {of_ada.run_id}"):
        await bob.fork("bob/again", at=of_ada)
    await ada.delete()
    await ada.run("I am another Ada.")
    with pytest.raises(ConfigError, match=f"no ended turn {of_ada.run_id}"):
        await ada.fork("ada/again", at=of_ada)
    [today] = await ada.turns()
    fork = await ada.fork("ada/again", at=today)

    assert [message.content for message in await fork.history()] == [
        "I am another Ada.", "Heard: I am another Ada.",
    ]  # fmt: skip


async def test_template_with_an_unknown_placeholder_leaves_nothing_of_a_turn(
    house: House,
) -> None:
    agent = house.runtime.agent("desk", instructions=Template("You help {name}."))
    thread = agent.thread("ada")
    await thread.run("Hello.", deps={"name": "Ada"})
    before = house.rows()
    with pytest.raises(ConfigError, match="need 'name', got dict with None for it"):
        await thread.run("What is it?", deps={"name": None})
    for deps in (None, {}, {"nane": "Ada"}, 5):
        with pytest.raises(ConfigError, match="deps: the instructions need 'name'"):
            await thread.run("What is it?", deps=deps)
        with pytest.raises(ConfigError, match="deps: the instructions need 'name'"):
            async with thread.start("What is it?", deps=deps) as turn:
                await turn.result()

    assert house.rows() == before
    assert (await thread.run("Still?", deps={"name": "Ada"})).answer == "Heard: Still?"
    assert await house.said("ada") == ["Hello.", "Heard: Hello.", "Still?", "Heard: Still?"]  # fmt: skip


async def test_thread_ids_with_slashes_are_apart_and_leave_nothing_when_deleted(
    house: House,
) -> None:
    agent = house.runtime.agent("desk")
    await agent.thread("a").run("Remember.")
    kept = house.rows()
    for id in ("a/b", "../a", "/", "a%2Fb"):
        thread = agent.thread(id)
        assert (await thread.run(f"I am {id}.")).answer == f"Heard: I am {id}."
        [turn] = await thread.turns()
        item = Remembered(f"I am {id}", source_run=turn.run_id, scope="x")
        await house.known.store(item, key=id)
    for id in ("a/b", "../a", "/", "a%2Fb"):
        assert (await agent.thread(id).delete()).knowledge == 1

    assert await house.said("a") == ["Remember.", "Heard: Remember."]
    left = {name: n for name, n in house.rows().items() if kept.get(name, 0) != n}
    # A deleted run cannot come back, and that runs were deleted is itself recorded; neither has a word of them.
    of_deletion = {f"runs.db/{table}" for table in ("tombstones", "events", "sqlite_sequence")}  # fmt: skip
    assert {name for name in left if name.startswith("runs.db/")} <= of_deletion
    assert await house.known.search("I am", scope="x", threshold=0) == []


@pytest.mark.parametrize("is_required", [False, True])
async def test_knowledge_of_another_version_is_left_as_it_is(
    tmp_path: Path, is_required: bool
) -> None:
    old = House(tmp_path)
    await old.known.store(Remembered("Ada plays the violin.", scope="ada"), key="1")
    await old.known.close()
    path = tmp_path / "known.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    house = House(tmp_path, required=is_required)
    thread = house.runtime.agent("desk").thread("ada", tags={"user": "ada"})
    ended = await thread.run("Where is my violin?")
    entries = house.runtime.journal.read(ended.run_id)
    [failed] = [e.event for e in entries if isinstance(e.event, KnowledgeUnavailable)]
    await house.known.close()

    problem = "has format 99, this version reads formats up to 3: upgrade loopwright"
    assert problem in failed.error.message
    assert ended.status == ("failed" if is_required else "completed")
    assert (problem in str(ended.error)) == is_required
    assert path.read_bytes() == before

    # With the version that the file is of, the thread continues and knows what it knew.
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    again = House(tmp_path)
    thread = again.runtime.agent("desk").thread("ada", tags={"user": "ada"})
    assert (await thread.run("The violin!")).answer == "Heard: The violin!"
    request = again.model.requests[-1]
    assert any("Ada plays the violin" in m.content for m in request.conversation)
    said = await again.said("ada")
    assert said[0] == "Where is my violin?"
    assert said[1] == ("[no answer: engine_error]" if is_required else "Heard: Where is my violin?")  # fmt: skip


async def test_instructions_that_raise_end_the_turn_and_the_next_one_is_answered(
    house: House,
) -> None:
    is_down = True

    def write(about: Any) -> str:
        if is_down:
            raise KeyError("tone")
        return "Be kind."

    thread = house.runtime.agent("desk", instructions=write).thread("ada")
    ended = await thread.run("Hello.")
    kinds = [entry.kind for entry in house.runtime.journal.read(ended.run_id)]
    is_down = False
    again = await thread.run("And now?")

    assert ended.status == "failed"
    assert str(ended.error) == "instructions of 'desk': the function raised KeyError: 'tone'"  # fmt: skip
    assert kinds == ["run_started", "run_finished"]
    assert again.answer == "Heard: And now?"
    assert house.model.requests[0].system == "Be kind."
    assert await house.said("ada") == [
        "Hello.", "[no answer: engine_error]", "And now?", "Heard: And now?",
    ]  # fmt: skip
