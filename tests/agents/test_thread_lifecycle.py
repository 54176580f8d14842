"""Threads over their life: forked, switched to other agents, listed and deleted."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    Limits,
    LoopEngine,
    MemoryJournal,
    Run,
    Runtime,
    Suspend,
    Worker,
    tool,
)
from loopwright._kernel.durability.transitions import park
from loopwright.agents import Agent, DeletedThread
from loopwright.console.records import Records
from loopwright.errors import JournalError, ProviderError, ThreadBusy
from loopwright.events import RunFinished
from loopwright.events.run import RunParked
from loopwright.followups import Memories
from loopwright.journals import RunFilter, SQLiteJournal
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider, call, crashed


class Desk:
    """Two agents on a journal in a file."""

    def __init__(self, path: Path | None, *script: Any, **options: Any) -> None:
        self.journal: Any = MemoryJournal() if path is None else SQLiteJournal(path)
        self.model = ScriptedProvider(script)
        self.runtime = Runtime(self.model, journal=self.journal, **options)
        self.support: Agent[None] = self.runtime.agent("support", instructions="Help.")
        self.fraud: Agent[None] = self.runtime.agent("fraud", instructions="Protect.")

    def texts(self, request: int = -1) -> list[str]:
        """What a request said, behind the instructions."""
        asked = self.model.requests[request].conversation
        return [one.content for one in asked if one.role != "system"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.db"


# --- forks ---


@pytest.mark.parametrize("in_file", [True, False])
async def test_fork_continues_a_turn_and_leaves_the_thread_as_it_was(
    path: Path, in_file: bool
) -> None:
    desk = Desk(path if in_file else None, "a", "b", "c", "d")
    acme = {"tenant": "acme"}
    thread = desk.support.thread("user-42", tags=acme)
    await thread.run("one")
    await thread.run("two")
    forked = await thread.fork("user-42/b", at=1)
    assert [one.content for one in await forked.history()] == ["one", "a"]
    assert await forked.turns() == []

    # As another process opens it.
    assert (
        await desk.support.thread("user-42/b", tags=acme).run("three")
    ).answer == "c"
    assert desk.texts() == ["one", "a", "three"]
    assert [one.number for one in await forked.turns()] == [1]
    assert (await thread.run("four")).answer == "d"
    assert desk.texts() == ["one", "a", "two", "b", "four"]
    assert {one.tags["tenant"] for one in desk.journal.runs()} == {"acme"}
    for info in desk.journal.runs():
        assert desk.journal.verify(info.run_id).ok


async def test_fork_after_the_last_turn_has_its_agent_and_provenance(
    path: Path,
) -> None:
    desk = Desk(path, "a", "b")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    await thread.switch(desk.fraud)
    forked = await thread.fork("other")
    await forked.run("two")
    assert desk.model.requests[-1].system == "Protect."


@pytest.mark.parametrize(
    ("id", "at", "problem"),
    [
        ("new", 2, "at: thread 'user-42' has no ended turn 2, only \\[1\\]"),
        ("new", 0, "has no ended turn 0"),
        ("user-42", 1, "thread 'user-42' exists already"),
        ("", 1, "id: must be a text"),
    ],
)
async def test_fork_that_cannot_be_is_refused_and_stores_nothing(
    path: Path, id: str, at: int, problem: str
) -> None:
    desk = Desk(path, "a")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    with pytest.raises(ConfigError, match=problem):
        await thread.fork(id, at=at)
    assert len(desk.journal.runs()) == 1


async def test_fork_of_a_thread_without_turns_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="no ended turn at all"):
        await Desk(path).support.thread("user-42").fork("new")


async def test_fork_of_an_unanswered_turn_says_so_once(path: Path) -> None:
    desk = Desk(path, RuntimeError("broken"), "b", "c")
    thread = desk.support.thread("user-42")
    assert (await thread.run("one")).answer is None
    forked = await thread.fork("new", at=1)
    await forked.run("two")
    note = desk.texts()[1]
    assert desk.texts() == ["one", note, "two"]
    assert note.startswith("[no answer: ")


# --- other agents ---


async def test_switch_continues_with_another_agent_in_every_process(
    path: Path,
) -> None:
    desk = Desk(path, "a", "b", "c")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    await thread.switch("fraud")
    await thread.run("two")
    assert [one.system for one in desk.model.requests] == ["Help.", "Protect."]
    assert desk.texts() == ["one", "a", "two"]
    await desk.journal.close()

    later = Desk(path, "c", "d")
    await later.support.thread("user-42").run("three")
    assert later.model.requests[-1].system == "Protect."
    await later.fraud.thread("user-42").run("four")
    turns = await later.support.thread("user-42").turns()
    assert [(one.number, one.agent) for one in turns] == [
        (1, "support"),
        (3, "fraud"),
        (4, "fraud"),
        (5, "fraud"),
    ]


async def test_switch_to_the_agent_of_today_stores_nothing(path: Path) -> None:
    desk = Desk(path, "a")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    await thread.switch(desk.support)
    assert len(desk.journal.runs()) == 1


async def test_switch_before_the_first_turn_begins_with_the_other_agent(
    path: Path,
) -> None:
    desk = Desk(path, "a")
    thread = desk.support.thread("user-42")
    await thread.switch("fraud")
    await thread.run("one")
    assert desk.model.requests[-1].system == "Protect."
    assert desk.texts() == ["one"]


async def test_switch_to_an_unknown_agent_is_refused(path: Path) -> None:
    desk = Desk(path, "a")
    thread = desk.support.thread("user-42")
    with pytest.raises(ConfigError, match="agent 'sales', which this runtime"):
        await thread.switch("sales")
    assert desk.journal.runs() == []


async def test_switch_goes_by_busy_beside_a_turn_that_waits(path: Path) -> None:
    @tool(effect="destructive")
    async def block() -> str:
        """Block."""
        return "blocked"

    desk = Desk(path, call("block"), approver=Suspend(), tools=[block])
    thread = desk.support.thread("user-42")
    await thread.run("one")
    with pytest.raises(ThreadBusy, match="turn 1 is waiting"):
        await thread.switch("fraud")


# --- lists ---


async def test_threads_are_listed_by_their_last_turn(path: Path) -> None:
    desk = Desk(path, *"abcdef")
    acme, other = {"tenant": "acme"}, {"tenant": "other"}
    first = desk.support.thread("first", tags=acme)
    await first.run("one")
    await desk.support.thread("second", tags=other).run("one")
    await first.run("two", tags={"day": "2"})
    await desk.support.run("no thread", thread="plain", tags=acme)

    listed = await desk.runtime.threads()
    assert [(one.id, one.turns, one.agent) for one in listed] == [
        ("first", 2, "support"),
        ("second", 1, "support"),
    ]
    assert listed[0].tags == {"tenant": "acme", "day": "2"}
    names = RunFilter(tags=acme)
    assert [one.id for one in await desk.runtime.threads(names)] == ["first"]
    # Its first turn has no such tag, and is not the last.
    with_day = RunFilter(tags={"tenant": "acme", "day": "2"})
    assert [one.turns for one in await desk.runtime.threads(with_day)] == [2]
    until = RunFilter(until=listed[1].created)
    assert await desk.runtime.threads(until) == []
    assert len(await desk.runtime.threads(limit=1)) == 1
    with pytest.raises(ConfigError, match="where: must be a RunFilter"):
        await desk.runtime.threads("first")  # type: ignore[arg-type]


# --- deletion ---


async def test_deleted_thread_leaves_no_word_in_any_file(path: Path) -> None:
    store = SQLiteKnowledge(path.with_name("memory.db"), shared=True)
    script = [call("store_knowledge", subject="Lovelace", predicate="owns", object="card 7788"),
              "Noted, Lovelace.", "Yes.", "Forked.", "New."]  # fmt: skip
    desk = Desk(path, *script, knowledge=store)
    thread = desk.support.thread("user-lovelace", tags={"user": "lovelace"})
    first = await thread.run("I am Lovelace, card 7788.")
    await thread.run("Lovelace again.")
    forked = await thread.fork("fork-lovelace", at=1)
    await forked.run("Lovelace in a fork.")
    await desk.support.thread("user-other").run("Somebody else.")
    assert [
        one.text for one in await store.search("Lovelace card", scope="lovelace")
    ] != []

    deleted = await thread.delete()
    assert first.run_id in deleted.runs
    assert (len(deleted.runs), deleted.forks) == (4, ("fork-lovelace",))
    assert deleted.knowledge == 1
    assert any("backups" in one for one in deleted.left)
    assert [one.id for one in await desk.runtime.threads()] == ["user-other"]
    assert await store.search("Lovelace card", scope="lovelace") == []
    await store.close()
    await desk.journal.close()
    assert len(list(path.parent.iterdir())) >= 2
    for file in path.parent.iterdir():
        text = file.read_bytes().lower()
        assert b"lovelace" not in text, file
        assert b"7788" not in text, file


async def test_deletion_of_a_thread_that_was_held_up_is_completed_when_it_is_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.storage.rewrite.PATIENCE", 0.1)
    desk = Desk(path, "Yes.")
    thread = desk.support.thread("chat")
    await thread.run("Is it XQZZY?")
    with contextlib.closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        with pytest.raises(JournalError, match="delete again"):
            await thread.delete()
    files = [one for one in path.parent.iterdir() if one.name.startswith(path.name)]
    assert any(b"XQZZY" in one.read_bytes() for one in files)

    assert await thread.delete() == DeletedThread()
    assert not any(b"XQZZY" in one.read_bytes() for one in files)


async def test_deleted_thread_takes_its_follow_ups_and_memories_along(
    path: Path,
) -> None:
    store = SQLiteKnowledge(path.with_name("memory.db"))
    after = [Memories()]
    answers = ["Noted.", "Yes.", "Booked."]
    desk = Desk(path, *answers, knowledge=store, after=after)
    thread = desk.support.thread("user-lovelace", tags={"user": "lovelace"})
    await thread.run("I always take window seats. I am Countess Lovelace.")
    await thread.run("Countess Lovelace wants a seat.")
    await desk.runtime.drain()
    kept = await store.search("window seats Countess", scope="lovelace", threshold=0.0)
    assert kept != []

    deleted = await thread.delete()
    assert deleted.knowledge >= len(kept)
    assert sum("@after" in one for one in deleted.runs) == 2
    assert desk.journal.runs() == []
    await store.close()
    await desk.runtime.aclose()
    await desk.journal.close()
    for file in filter(Path.is_file, path.parent.iterdir()):
        text = file.read_bytes().lower()
        assert b"lovelace" not in text, file
        assert b"window seat" not in text, file


@pytest.mark.parametrize("in_file", [True, False])
async def test_id_of_a_deleted_thread_begins_a_new_one(
    path: Path, in_file: bool
) -> None:
    desk = Desk(path if in_file else None, "a", "b", "c")
    thread = desk.support.thread("user-42")
    first = await thread.run("one")
    await thread.run("two")
    assert await thread.delete() == DeletedThread(
        (first.run_id, f"{first.run_id[:-1]}2")
    )
    assert await thread.turns() == []

    again = await thread.run("three")
    assert desk.texts() == ["three"]
    assert again.run_id[:-1] != first.run_id[:-1]
    assert [one.number for one in await thread.turns()] == [1]


async def test_deletion_of_a_fork_leaves_the_thread_that_it_continues(
    path: Path,
) -> None:
    desk = Desk(path, "a", "b", "c")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    forked = await thread.fork("fork", at=1)
    await forked.run("two")
    deleted = await forked.delete()
    assert (len(deleted.runs), deleted.forks) == (2, ())
    assert [one.text for one in await thread.turns()] == ["one"]


async def test_deletion_of_a_thread_without_turns_deletes_nothing(path: Path) -> None:
    desk = Desk(path, "a")
    assert await desk.support.thread("user-42").delete() == DeletedThread()


async def test_deletion_takes_other_runs_of_that_name_along(path: Path) -> None:
    desk = Desk(path, "a", "b", "c")
    thread = desk.support.thread("user-42")
    await thread.run("one")
    plain = await desk.support.run("plain", thread="user-42")
    kept = await desk.support.run("kept")
    assert plain.run_id in (await thread.delete()).runs
    assert [one.run_id for one in desk.journal.runs()] == [kept.run_id]


@pytest.mark.parametrize("in_file", [True, False])
async def test_deletion_beside_a_turn_at_work_is_refused_or_aborts_it(
    path: Path, in_file: bool
) -> None:
    asked = asyncio.Event()

    @tool(effect="read")
    async def search() -> str:
        """Search for ever."""
        asked.set()
        await asyncio.Event().wait()
        return "never"

    desk = Desk(path if in_file else None, "a", call("search"), "b", tools=[search])
    thread = desk.support.thread("user-42")
    await thread.run("one")
    working = asyncio.ensure_future(thread.run("two"))
    await asked.wait()
    with pytest.raises(ThreadBusy, match="is at work"):
        await thread.delete()
    assert len(await thread.turns()) == 2

    deleted = await thread.delete(abort=True)
    assert len(deleted.runs) == 2
    assert (await working).status == "aborted"
    assert desk.journal.runs() == []


async def test_deletion_takes_a_turn_that_waits_along(path: Path) -> None:
    @tool(effect="destructive")
    async def block() -> str:
        """Block."""
        return "blocked"

    desk = Desk(path, call("block"), approver=Suspend(), tools=[block])
    thread = desk.support.thread("user-42")
    assert (await thread.run("one")).status == "waiting"
    assert len((await thread.delete()).runs) == 1
    assert desk.journal.runs() == []


async def test_deletion_by_another_agent_is_refused(path: Path) -> None:
    desk = Desk(path, "a")
    await desk.support.thread("user-42").run("one")
    with pytest.raises(ConfigError, match="is of agent 'support'"):
        await desk.fraud.thread("user-42").delete()
    assert len(desk.journal.runs()) == 1


async def test_marker_of_a_switch_is_an_ended_run_without_an_answer(
    path: Path,
) -> None:
    desk = Desk(path, "a")
    thread = desk.support.thread("user-42")
    await thread.switch("fraud")
    (info,) = desk.journal.runs()
    ended = desk.journal.read(info.run_id)[-1].event
    assert isinstance(ended, RunFinished)
    assert (ended.status, ended.answer, ended.agent) == ("completed", None, "fraud")
    assert desk.journal.verify(info.run_id).ok


async def test_a_thread_continues_after_its_last_turns_were_deleted(path: Path) -> None:
    desk = Desk(path, "a", "b", "c", "d", "e")
    thread = desk.support.thread("user-42")
    for text in ("one", "two", "three"):
        await thread.run(text)
    for turn in reversed((await thread.turns())[1:]):
        await desk.journal.delete(turn.run_id)

    assert (await thread.run("four")).answer == "d"
    assert desk.texts() == ["one", "a", "four"]
    assert [turn.number for turn in await thread.turns()] == [1, 4]
    await desk.journal.delete((await thread.turns())[-1].run_id)
    await thread.switch(desk.fraud)
    assert (await thread.run("five")).answer == "e"
    assert desk.model.requests[-1].system == "Protect."
    assert [one.content for one in await thread.history()] == ["one", "a", "five", "e"]
    assert all(desk.journal.verify(info.run_id).ok for info in desk.journal.runs())
    await desk.journal.close()


# --- retries ---


class Away:
    """A provider that is away, refuses the key or answers."""

    def __init__(self) -> None:
        self.status = 0

    def answer(self, request: object) -> str | ProviderError:
        if self.status:
            return ProviderError("it does not work", status=self.status)
        return "yes"


@pytest.mark.parametrize("in_file", [True, False])
async def test_a_failed_turn_that_the_next_one_continues_is_not_retried(
    path: Path, in_file: bool
) -> None:
    away = Away()
    journal: Any = SQLiteJournal(path) if in_file else MemoryJournal()
    runtime = Runtime(ScriptedProvider(away.answer), journal=journal)
    thread = runtime.agent("desk").thread("user-42")
    away.status = 401
    first = await thread.run("one")
    records = Records(journal)
    assert records.find_retry_problem(records.find(first.run_id)) == ""
    away.status = 0
    second = await thread.run("two")

    with pytest.raises(ConfigError, match=f"is continued by '{second.run_id}', and of"):
        await runtime.control(first.run_id).retry()
    problem = records.find_retry_problem(records.find(first.run_id))
    assert problem.startswith(f"it is continued by '{second.run_id}'")
    statuses = [(turn.status, turn.answer) for turn in await thread.turns()]
    assert statuses == [("failed", None), ("completed", "yes")]
    await journal.close()


async def test_a_turn_that_is_suspended_or_parked_says_what_continues_it() -> None:
    away, limits = Away(), Limits(max_provider_wait=0.0)
    runtime = Runtime(ScriptedProvider(away.answer), limits=limits)
    thread = runtime.agent("desk").thread("user-42")
    away.status = 503
    first = await thread.run("one")
    with pytest.raises(ThreadBusy, match="suspended: continue it with `await thread"):
        await thread.run("two")
    parked = RunParked("its provider was not available")
    await park(runtime.journal, runtime.clock, first.run_id, parked)

    with pytest.raises(
        ThreadBusy, match=r"is parked \(.*: find the cause, then .*retry\(\)`"
    ):
        await thread.run("two")
    away.status = 0
    await runtime.control(first.run_id).retry()
    assert (await thread.run("two")).answer == "yes"
    assert [turn.answer for turn in await thread.turns()] == ["yes", "yes"]


# --- versions ---


class Trip(LoopEngine):
    """Asks a model, then the user."""

    name = "trip"
    question = "Where?"

    async def solve(self, run: Run) -> str:
        return f"{await run.ask(self.question)} {await run.ask_user('With whom?')}"


class OtherTrip(Trip):
    """The code of the next version, which cannot replay a turn of the one before."""

    question = "When?"


def guide(journal: Any, version: str, kind: type[Trip] = Trip) -> Agent[None]:
    model = ScriptedProvider(lambda _: "there")
    runtime = Runtime(model, journal=journal, app_version=version, lease=30.0)
    return runtime.agent("guide", engine=kind(runtime))


async def test_a_message_to_a_turn_of_another_version_waits_for_its_code() -> None:
    journal = MemoryJournal()
    first = await guide(journal, "1").thread("t").run("Go.")
    other = guide(journal, "2", OtherTrip)

    with pytest.raises(ThreadBusy, match=r"of version '1'.*it has the message") as busy:
        await other.thread("t").run("Ada")
    [sent] = journal.inbox(first.run_id)
    assert (sent.kind, sent.body["text"], busy.value.command) == ("answer", "Ada", 1)
    with pytest.raises(ThreadBusy, match="of version '1'"):
        await other.thread("t").run("And?")
    assert len(journal.inbox(first.run_id)) == 1
    assert [info.status for info in journal.runs()] == ["waiting"]

    waiting = asyncio.ensure_future(other.thread("t").run("Next.", timeout=60.0))
    [done] = await Worker(guide(journal, "1").engine.runtime).drain()
    assert (done.answer, (await waiting).status) == ("there Ada", "waiting")
    assert [info.app_version for info in journal.runs()] == ["2", "1"]


async def test_an_answer_to_a_turn_of_another_version_returns_its_result() -> None:
    journal = MemoryJournal()
    await guide(journal, "1").thread("t").run("Go.")
    other = guide(journal, "2", OtherTrip)

    answered = asyncio.ensure_future(other.thread("t").run("Ada", timeout=60.0))
    while not journal.inbox(journal.runs()[0].run_id):  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0.01)
    await Worker(guide(journal, "1").engine.runtime).drain()
    assert (await answered).answer == "there Ada"


async def test_a_dead_turn_of_another_version_is_left_to_its_code() -> None:
    source = MemoryJournal()
    first = await guide(source, "1").thread("t").run("Go.")
    dead = crashed(source.read(first.run_id), 3, status="released")
    other = guide(dead, "2", OtherTrip)
    with pytest.raises(ThreadBusy, match="is of version '1'"):
        await other.thread("t").run("And?")
    assert [info.status for info in dead.runs()] == ["released"]
    assert (await guide(dead, "1").thread("t").run("Ada")).answer == "there Ada"
