"""A run that continues another one: it refers to that run's messages, and reads them where they are wanted."""

import asyncio
import contextlib
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Attachment,
    ConfigError,
    Conversation,
    Entry,
    Journal,
    MemoryJournal,
    Message,
    ReActEngine,
    Result,
    Run,
    Runtime,
    tool,
)
from loopwright._kernel.durability.history import (
    ContinuedConversation,
    History,
    is_loaded,
)
from loopwright.engine import LoopEngine
from loopwright.errors import JournalError, UnknownRun
from loopwright.events import RunFinished, RunStarted
from loopwright.events.run import Follows
from loopwright.journals import RunHeader, SQLiteJournal
from loopwright.journals.owner import Owner
from loopwright.testing import ScriptedProvider, call

ANSWERS = ["Paris, of course.", "About two million people.", "The Seine."]
QUESTIONS = ["Capital of France?", "How many people?", "Which river?"]


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: Any, tmp_path: Path) -> Journal:
    return (
        MemoryJournal()
        if request.param == "memory"
        else SQLiteJournal(tmp_path / "runs.db")
    )


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"line 1 of {what}\nline 2 of {what}"


def chatting(journal: Journal, *script: Any) -> ReActEngine:
    runtime = Runtime(ScriptedProvider([*script]), tools=[look], journal=journal)
    return ReActEngine(runtime)


async def chat(journal: Journal, turns: int = 3) -> list[Result]:
    """Each question in a run of its own that continues the one before."""
    engine = chatting(journal, *ANSWERS[:turns])
    conversation, results = Conversation(), []
    for number, question in enumerate(QUESTIONS[:turns]):
        asked = conversation.user(question)
        results.append(await engine.run(asked, run_id=f"turn-{number}"))
        conversation = results[-1].conversation
    return results


def texts(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation]


def first_event(journal: Journal, run_id: str) -> RunStarted:
    event = journal.read(run_id)[0].event
    assert isinstance(event, RunStarted)
    return event


class Counting(MemoryJournal):
    """Counts which runs were read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, run_id: str, **options: Any) -> list[Entry]:
        self.reads.append(run_id)
        return super().read(run_id, **options)


async def test_a_second_turn_stores_its_own_messages_and_refers_to_the_others(
    journal: Journal,
) -> None:
    first, second, _ = await chat(journal)
    started = first_event(journal, "turn-1")

    assert [m.content for m in started.messages] == [QUESTIONS[1]]
    assert started.follows is not None
    assert (started.follows.run_id, started.follows.hash) == ("turn-0", first.head_hash)
    assert started.follows.messages == 2
    assert [info.follows for info in journal.runs()] == ["turn-1", "turn-0", None]
    assert texts(second.conversation) == [
        QUESTIONS[0],
        ANSWERS[0],
        QUESTIONS[1],
        ANSWERS[1],
    ]


async def test_the_model_is_sent_the_whole_conversation(journal: Journal) -> None:
    results = await chat(journal, 2)
    model = ScriptedProvider(["end"])
    engine = ReActEngine(Runtime(model, journal=journal))
    await engine.run(results[-1].conversation.user("And now?"))

    assert texts(model.requests[0].conversation) == [
        QUESTIONS[0],
        ANSWERS[0],
        QUESTIONS[1],
        ANSWERS[1],
        "And now?",
    ]


async def test_a_reply_is_stored_once(journal: Journal) -> None:
    await chat(journal)

    for number, answer in enumerate(ANSWERS):
        bodies = b"".join(entry.body for entry in journal.read(f"turn-{number}"))
        assert bodies.count(answer.encode()) == 1


async def test_the_end_of_a_run_is_read_with_its_answer(journal: Journal) -> None:
    await chat(journal)
    ended = journal.read("turn-2")[-1].event

    assert isinstance(ended, RunFinished)
    assert (ended.answer, ended.added, ended.kept) == (ANSWERS[2], ("0=",), 5)


async def test_the_last_entry_alone_is_read_with_its_answer(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await chat(journal)
    ended = journal.read("turn-2", last=1)[0].event

    assert isinstance(ended, RunFinished)
    assert ended.answer == ANSWERS[2]


async def test_a_finished_turn_has_the_same_result_when_it_is_read(
    journal: Journal,
) -> None:
    results = await chat(journal)
    again = await chatting(journal).resume("turn-2")

    assert again == results[-1]
    assert again.conversation.messages == results[-1].conversation.messages


async def test_a_turn_with_calls_is_read_as_it_was(journal: Journal) -> None:
    first = await chatting(journal, "Hello.").run("Hi.", run_id="one")
    asked = first.conversation.user("Look at a and b.")
    script = [[call("look", what="a"), call("look", what="b")], call("no"), "Seen."]
    second = await chatting(journal, *script).run(asked, run_id="two")
    ended = journal.read("two")[-1].event

    assert isinstance(ended, RunFinished)
    assert ended.added is not None
    assert all(isinstance(one, str) for one in ended.added)
    again = await chatting(journal).resume("two")
    assert again.conversation.messages == second.conversation.messages


async def test_a_replay_reads_nothing_of_the_runs_before() -> None:
    journal = Counting()
    await chat(journal)
    journal.reads.clear()
    again = await chatting(journal).resume("turn-2")

    assert set(journal.reads) == {"turn-2"}
    assert len(again.conversation) == 6
    assert texts(again.conversation)[-1] == ANSWERS[2]
    assert set(journal.reads) == {"turn-0", "turn-1", "turn-2"}


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6, 7])
async def test_a_turn_that_was_cut_off_continues_and_repeats_nothing(cut: int) -> None:
    journal = Counting()
    results = await chat(journal, 2)
    asked = results[-1].conversation.user("Look at a.")
    script: list[Any] = [call("look", what="a"), "Seen."]
    whole = await chatting(journal, *script).run(asked, run_id="whole")
    entries = journal.read("whole")
    other = await cut_copy(journal, entries, cut)
    replies = sum(entry.kind == "model_replied" for entry in entries[:cut])
    model = ScriptedProvider(script[replies:])
    engine = ReActEngine(Runtime(model, tools=[look], journal=other))
    result = await engine.resume("whole")

    assert result.answer == "Seen."
    assert result.conversation == whole.conversation
    assert len(model.requests) == 2 - replies
    for request in model.requests:
        assert texts(request.conversation)[:4] == texts(results[-1].conversation)


async def cut_copy(journal: MemoryJournal, entries: list[Entry], cut: int) -> Counting:
    """The same journal, in which one run has its first entries alone, as after a crash."""
    other = Counting()
    for info in reversed(journal.runs()):
        stored = entries[:cut] if info.run_id == "whole" else journal.read(info.run_id)
        owner = Owner.of_this_process("dead")
        header = RunHeader(
            info.run_id, info.engine, info.options, info.version, str(owner), info.created, follows=info.follows
        )  # fmt: skip
        claim = other.create(header)
        status = "running" if info.run_id == "whole" else info.status
        other.append(claim, stored, status=status)
    return other


async def test_a_changed_run_is_found_in_those_that_continue_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    await chat(journal)
    await journal.close()
    change(path, "turn-0", "Paris", "Tokyo")
    journal = SQLiteJournal(path)
    problems = [journal.verify(f"turn-{number}").problem for number in range(3)]

    assert problems == [
        "entry 3 was changed",
        "run 'turn-0', which is continued: entry 3 was changed",
        "run 'turn-0', which is continued: entry 3 was changed",
    ]


async def test_a_run_that_is_missing_is_found_in_the_one_that_continues_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    await chat(journal, 2)
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE run_id = 'turn-0'")

    assert "turn-0" in SQLiteJournal(path).verify("turn-1").problem


def change(path: Path, run_id: str, old: str, new: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), ?, ?) AS BLOB) WHERE run_id = ?",
            (old, new, run_id),
        )


class Twice(LoopEngine):
    """Asks twice."""

    name = "twice"

    async def solve(self, run: Run) -> str:
        """Ask, and ask again."""
        first = await run.reason(run.conversation)
        conversation = run.conversation.observe(first)
        second = await run.reason(conversation.user("Sure?"))
        return second.answer or ""


class StoppedBetween(Twice):
    """Is stopped after its first question."""

    async def solve(self, run: Run) -> str:
        """Ask once."""
        await run.reason(run.conversation)
        await asyncio.Event().wait()
        return ""


async def test_a_live_step_on_a_changed_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = SQLiteJournal(path)
    first = await ReActEngine(
        Runtime(ScriptedProvider(["Paris."]), journal=journal)
    ).run("Capital?", run_id="turn-0")

    asked = first.conversation.user("And now?")
    model = ScriptedProvider(["One."])
    engine = StoppedBetween(Runtime(model, journal=journal))
    async with engine.start(asked, run_id="turn-1") as run:
        async for entry in run:
            if entry.kind == "model_replied":
                break
        await stop(run)
    await journal.close()
    change(path, "turn-0", "Paris", "Tokyo")
    journal, model = SQLiteJournal(path), ScriptedProvider(["Two."])
    result = await Twice(Runtime(model, journal=journal)).resume("turn-1")

    assert (result.status, result.stop_reason) == ("failed", "journal_error")
    assert isinstance(result.error, JournalError)
    assert "turn-0" in str(result.error)
    assert model.requests == []
    assert journal.read("turn-1")[-1].kind == "run_resumed"
    await journal.close()
    change(path, "turn-0", "Tokyo", "Paris")
    journal = SQLiteJournal(path)
    model = ScriptedProvider(["Two."])
    result = await Twice(Runtime(model, journal=journal)).resume("turn-1")
    assert result.answer == "Two."


async def stop(run: Any) -> None:
    """Cancel a run as its host does, so that it can be resumed."""
    task = asyncio.ensure_future(run.result())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_run_that_is_continued_is_deleted_only_with_those_that_follow(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await chat(journal)

    with pytest.raises(ConfigError, match="'turn-1', 'turn-2'"):
        await journal.delete("turn-0")
    assert len(journal.runs()) == 3
    assert set(await journal.delete("turn-0", cascade=True)) == {
        "turn-0",
        "turn-1",
        "turn-2",
    }


async def test_an_export_has_the_runs_that_are_continued(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    results = await chat(journal)
    exported = await journal.export(tmp_path / "thread.jsonl", ["turn-2"])
    other = SQLiteJournal(tmp_path / "other.db")
    await other.import_(tmp_path / "thread.jsonl")
    again = await chatting(other).resume("turn-2")

    assert exported == ["turn-0", "turn-1", "turn-2"]
    assert other.verify("turn-2", results[-1].head_hash).ok
    assert again.conversation == results[-1].conversation


async def test_a_turn_stores_everything_where_the_run_before_was_deleted(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    results = await chat(journal, 2)
    await journal.delete("turn-0", cascade=True)
    asked = results[-1].conversation.user("And now?")
    result = await chatting(journal, "Fine.").run(asked, run_id="after")
    started = first_event(journal, "after")

    assert result.answer == "Fine."
    assert started.follows is None
    assert [m.content for m in started.messages] == texts(asked)
    assert journal.verify("after", result.head_hash).ok
    assert journal.runs()[0].follows is None
    again = await chatting(journal).resume("after")
    assert again.conversation == result.conversation


async def test_a_turn_stores_everything_in_another_journal(journal: Journal) -> None:
    results = await chat(journal, 2)
    other = MemoryJournal()
    asked = results[-1].conversation.user("And now?")
    result = await chatting(other, "Fine.").run(asked, run_id="elsewhere")

    assert first_event(other, "elsewhere").follows is None
    assert len(first_event(other, "elsewhere").messages) == 5
    assert (await chatting(other).resume("elsewhere")) == result


async def test_a_second_object_for_the_same_file_is_the_same_journal(
    tmp_path: Path,
) -> None:
    results = await chat(SQLiteJournal(tmp_path / "runs.db"), 2)
    journal = SQLiteJournal(tmp_path / "runs.db")
    asked = results[-1].conversation.user("And now?")
    await chatting(journal, "Fine.").run(asked, run_id="third")

    assert first_event(journal, "third").follows is not None


async def test_memory_forgets_runs_that_continue_each_other_together() -> None:
    journal = MemoryJournal(keep_runs=1)
    results = await chat(journal)
    assert len(journal.runs()) == 3
    await chatting(journal, "Another.").run("Something else.", run_id="other")

    assert [info.run_id for info in journal.runs()] == ["other"]
    asked = results[-1].conversation.user("And now?")
    result = await chatting(journal, "Fine.").run(asked, run_id="later")
    assert first_event(journal, "later").follows is None
    assert result.answer == "Fine."


async def test_a_conversation_with_another_beginning_is_stored_whole(
    journal: Journal,
) -> None:
    first, *_ = await chat(journal, 1)
    engine = chatting(journal, "Oui.")
    await engine.run(
        first.conversation.user("Sure?"), system="Speak French.", run_id="french"
    )

    assert first_event(journal, "french").follows is None
    assert len(first_event(journal, "french").messages) == 4


async def test_a_conversation_goes_to_another_process(journal: Journal) -> None:
    first, *_ = await chat(journal, 1)
    copied = pickle.loads(pickle.dumps(first.conversation))

    assert copied == first.conversation
    assert type(copied) is Conversation


@pytest.mark.parametrize(
    "attachments", [[], [Attachment.image(b"\x89PNG\r\n\x1a\n-pixels-")]]
)
def test_a_chat_of_one_process_has_no_number_of_turns_that_is_too_many(
    attachments: list[Attachment],
) -> None:
    journal, follows = MemoryJournal(), Follows("r", 5, "", "", 100, 2)
    turn = Conversation.of("See.", attachments=attachments)
    for _ in range(2_000):
        history = History(journal, follows, turn)
        turn = ContinuedConversation.begin(history).user("More?").assistant("Yes.")
        assert is_loaded(turn)

    assert turn.has_attachments is bool(attachments)


async def test_a_conversation_of_a_run_is_used_as_any_other(journal: Journal) -> None:
    first, *_ = await chat(journal, 1)
    grown = first.conversation.add(Message("user", "One?"), Message("assistant", "1."))

    assert len(grown) == 4
    assert grown.task == "One?"
    assert first.conversation.task == QUESTIONS[0]
    assert grown == Conversation(grown.messages)
    assert [*grown.user("Two?")][-1].content == "Two?"
    with pytest.raises(UnknownRun):
        journal.read("nobody")
