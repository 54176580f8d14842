"""Turns that are watched: entries and deltas as they happen, control, and what leaving does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import Entry, Runtime, ask_user, tool
from loopwright.agents import Agent
from loopwright.errors import PhaseError, ThreadBusy
from loopwright.events import RunFinished, RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.providers import Delta
from loopwright.testing import ScriptedProvider, call
from waiting import eventually


class Desk:
    """An agent with a tool that waits until it is let go."""

    def __init__(self, journal: SQLiteJournal, *script: Any) -> None:
        self.searching, self.go_on = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def search() -> str:
            """Search."""
            self.searching.set()
            await self.go_on.wait()
            return "found"

        self.model = ScriptedProvider(script)
        self.runtime = Runtime(self.model, journal=journal, tools=[search, ask_user])
        self.agent: Agent[None] = self.runtime.agent("support")

    def thread(self, **options: Any) -> Any:
        return self.agent.thread("user-42", **options)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SQLiteJournal]:
    opened = SQLiteJournal(tmp_path / "bank.db")
    yield opened
    await opened.close()


async def read(turn: Any) -> list[Entry | Delta]:
    return [item async for item in turn]


def seqs(items: list[Entry | Delta]) -> list[int]:
    return [one.seq for one in items if isinstance(one, Entry)]


async def test_watched_turn_gives_its_entries_and_deltas(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, "Hello Ada.", "Ada.")
    async with desk.thread().start("I am Ada.", deltas=True) as turn:
        items = await read(turn)
        result = await turn.result()
    assert result.answer == "Hello Ada."
    assert turn.run_id == result.run_id
    texts = "".join(one.text for one in items if isinstance(one, Delta))
    assert texts == "Hello Ada."
    entries = [one for one in items if isinstance(one, Entry)]
    assert entries == journal.read(result.run_id)
    assert isinstance(entries[0].event, RunStarted)
    assert isinstance(entries[-1].event, RunFinished)

    async with desk.thread().start("Who am I?") as turn:
        plain = await read(turn)
    assert all(isinstance(one, Entry) for one in plain)
    assert [one.content for one in await desk.thread().history()] == [
        "I am Ada.",
        "Hello Ada.",
        "Who am I?",
        "Ada.",
    ]


async def test_watched_message_is_refused_where_the_block_begins(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), "Found.")
    first = asyncio.ensure_future(desk.thread().run("one"))
    await desk.searching.wait()
    with pytest.raises(ThreadBusy, match="is at work"):
        async with desk.thread().start("two", busy="refuse"):
            pytest.fail("the block was entered")
    desk.go_on.set()
    assert (await first).answer == "Found."
    assert len(await desk.thread().turns()) == 1


async def test_watching_before_the_block_is_an_error_and_sends_nothing(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, "Hello.")
    turn = desk.thread().start("one")
    async with asyncio.timeout(30):
        with pytest.raises(PhaseError, match="iterate inside `async with"):
            await read(turn)
    assert await desk.thread().turns() == []

    async with turn:
        assert len(await read(turn)) > 1


async def test_watched_message_waits_for_its_turn_before_the_block(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), "Found.", "Second.")
    first = asyncio.ensure_future(desk.thread().run("one"))
    await desk.searching.wait()
    waiting = desk.thread().start("two")
    with pytest.raises(PhaseError, match="no turn yet"):
        _ = waiting.run_id
    entering = asyncio.ensure_future(waiting.__aenter__())
    await asyncio.sleep(0.05)
    assert not entering.done()
    desk.go_on.set()
    turn = await entering

    assert (await turn.result()).answer == "Second."
    assert seqs(await read(turn)) == [*range(1, len(journal.read(turn.run_id)) + 1)]
    assert (await first).answer == "Found."


async def test_watched_answer_gives_the_rest_of_the_turn(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("ask_user", question="Which?"), "Done.")
    waiting = await desk.thread().run("one")
    before = len(journal.read(waiting.run_id))
    async with desk.thread().start("The red one.", deltas=True) as turn:
        items = await read(turn)
        result = await turn.result()
    assert (result.answer, result.run_id) == ("Done.", waiting.run_id)
    assert seqs(items) == [*range(before + 1, len(journal.read(turn.run_id)) + 1)]
    assert "".join(one.text for one in items if isinstance(one, Delta)) == "Done."


async def test_watched_steer_gives_the_turn_that_it_guides(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), "Found.")
    first = asyncio.ensure_future(desk.thread().run("one"))
    await desk.searching.wait()
    async with desk.thread().start("Hurry.", busy="steer", deltas=True) as turn:
        reading = asyncio.ensure_future(read(turn))
        await eventually(
            lambda: "command_received" in {e.kind for e in journal.read(turn.run_id)}
        )
        desk.go_on.set()
        result = await turn.result()
        items = await reading
    assert (result.answer, result.run_id) == ("Found.", (await first).run_id)
    last = [one for one in items if isinstance(one, Entry)][-1]
    assert isinstance(last.event, RunFinished)
    assert "Hurry." in desk.model.requests[-1].conversation.messages[-1].content


async def test_watched_steer_that_is_not_taken_gives_the_next_turn(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), "Found.", "Next.")
    first = asyncio.ensure_future(desk.thread().run("one"))
    await desk.searching.wait()
    other = Desk(journal, "Next.")
    async with other.thread().start("two", busy="steer") as turn:
        guided = turn.run_id
        # The turn ends before it reads its inbox.
        desk.go_on.set()
        items = await read(turn)
        result = await turn.result()
    assert guided == (await first).run_id
    if result.run_id != guided:  # else the inbox was read in time
        assert result.answer == "Next."
        own = [one for one in items if isinstance(one, Entry) and one.run_id != guided]
        assert seqs(list(own)) == [*range(1, len(own) + 1)]
        assert turn.run_id == result.run_id


@pytest.mark.parametrize("choice", ["abort", "continue"])
async def test_leaving_a_watched_turn_ends_it_or_lets_it_continue(
    journal: SQLiteJournal, choice: Any
) -> None:
    desk = Desk(journal, call("search"), "Found.", "Later.")
    async with desk.thread().start("one", on_disconnect=choice) as turn:
        await desk.searching.wait()
    desk.go_on.set()
    assert (await desk.thread().run("two")).answer is not None
    statuses = [one.status for one in await desk.thread().turns()]
    first = "aborted" if choice == "abort" else "completed"
    assert statuses == [first, "completed"]
    assert turn.run_id.endswith(":1")


async def test_leaving_before_the_turn_takes_the_message_back(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), "Found.", "Third.")
    first = asyncio.ensure_future(desk.thread().run("one"))
    await desk.searching.wait()
    entering = asyncio.ensure_future(desk.thread().start("two").__aenter__())
    await asyncio.sleep(0.05)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    desk.go_on.set()

    assert (await first).answer == "Found."
    assert (await desk.thread().run("three")).answer == "Third."
    assert [one.text for one in await desk.thread().turns()] == ["one", "three"]


async def test_watched_turn_is_steered_and_aborted_by_its_handle(
    journal: SQLiteJournal,
) -> None:
    desk = Desk(journal, call("search"), call("search"), "Never.")
    async with desk.thread().start("one") as turn:
        await desk.searching.wait()
        await turn.steer("Be quick.")
        desk.searching.clear()
        desk.go_on.set()
        await desk.searching.wait()
        desk.go_on.clear()
        stopped = await turn.abort()
    assert stopped.status in ("aborted", "completed")
    texts = [one.content for one in desk.model.requests[1].conversation]
    assert "Be quick." in texts[-1]


async def test_turn_that_another_sender_resumes_continues_without_it(
    journal: SQLiteJournal,
) -> None:
    async def begin_and_stop() -> str:
        opened = SQLiteJournal(journal.path)
        desk = Desk(opened, call("search"), "Found.")
        async with desk.thread().start("one", on_disconnect="continue") as turn:
            await desk.searching.wait()
        return turn.run_id

    # The end of its event loop releases the turn, as the end of its process does.
    run_id = await asyncio.to_thread(asyncio.run, begin_and_stop())
    assert journal.runs()[0].status == "released"

    later = Desk(journal, "Found.", "Two.")
    second = asyncio.ensure_future(later.thread().run("two"))
    await later.searching.wait()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    later.go_on.set()
    result = await later.thread().run("three")
    assert result.answer == "Two."
    turns = [(one.text, one.answer) for one in await later.thread().turns()]
    assert turns == [("one", "Found."), ("three", "Two.")]
    assert journal.runs()[-1].run_id == run_id
