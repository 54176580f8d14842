"""A turn that killed its processes is parked: its thread says so, and what lets the next message in."""

import pytest

from loopwright import MemoryJournal, Runtime, Suspend, tool
from loopwright._kernel.durability.transitions import park
from loopwright.clock import SystemClock
from loopwright.errors import ThreadBusy
from loopwright.events import RunParked
from loopwright.testing import ScriptedProvider, call, crashed

REASON = "4 processes in a row died at work on it"


async def chat_with_parked_turn() -> tuple[MemoryJournal, str]:
    """Return a journal in which the first turn of ada's thread is parked before its model was asked."""
    first = Runtime(ScriptedProvider(["Hello."]))
    said = await first.agent("clerk").thread("ada").run("I am Ada.")
    journal = crashed(first.journal.read(said.run_id), 1, status="running")
    await park(journal, SystemClock(), said.run_id, RunParked(REASON, 4))
    return journal, said.run_id


async def test_a_message_after_a_parked_turn_is_told_the_reason_and_the_way_on() -> None:  # fmt: skip
    journal, run_id = await chat_with_parked_turn()
    runtime = Runtime(ScriptedProvider([]), journal=journal)
    thread = runtime.agent("clerk").thread("ada")

    with pytest.raises(ThreadBusy) as busy:
        await thread.run("Are you there?")

    assert (busy.value.run_id, busy.value.status) == (run_id, "parked")
    assert REASON in str(busy.value)
    assert f"runtime.control({run_id!r}).retry()" in str(busy.value)
    [turn] = await thread.turns()
    assert (turn.status, turn.text, turn.answer) == ("parked", "I am Ada.", None)
    assert (turn.reason, turn.stop_reason) == (REASON, "")


async def test_a_retried_turn_is_completed_before_the_next_message() -> None:
    journal, run_id = await chat_with_parked_turn()
    model = ScriptedProvider(["Hello Ada.", "I am."])
    runtime = Runtime(model, journal=journal)
    thread = runtime.agent("clerk").thread("ada")
    await runtime.control(run_id).retry("more memory", by="operator")

    result = await thread.run("Are you there?")

    assert result.answer == "I am."
    assert [turn.answer for turn in await thread.turns()] == ["Hello Ada.", "I am."]


async def test_a_closed_turn_is_left_without_an_answer() -> None:
    journal, run_id = await chat_with_parked_turn()
    model = ScriptedProvider(["I am."])
    runtime = Runtime(model, journal=journal)
    thread = runtime.agent("clerk").thread("ada")
    await runtime.control(run_id).close("given up", by="ada")

    await thread.run("Are you there?")

    texts = [one.content for one in model.requests[0].conversation]
    assert texts == ["I am Ada.", "[no answer: aborted]", "Are you there?"]


async def test_a_suspended_turn_says_how_it_is_continued() -> None:
    first = Runtime(ScriptedProvider(["Hello."]))
    said = await first.agent("clerk").thread("ada").run("I am Ada.")
    journal = crashed(first.journal.read(said.run_id), 1)
    thread = Runtime(ScriptedProvider(["Hello."]), journal=journal).agent("clerk").thread("ada")  # fmt: skip

    with pytest.raises(ThreadBusy, match=r"suspended: continue it with `await thread\.resume\(\)`"):  # fmt: skip
        await thread.run("Are you there?")
    assert (await thread.resume()).answer == "Hello."


async def test_a_turn_says_why_it_is_not_at_work_as_its_result_does() -> None:
    @tool(effect="destructive")
    async def block() -> str:
        """Block the card."""
        return "blocked"

    model = ScriptedProvider([call("block"), "Blocked."])
    runtime = Runtime(model, tools=[block], approver=Suspend())
    thread = runtime.agent("clerk").thread("ada")
    waiting = await thread.run("Block my card.")
    [turn] = await thread.turns()
    assert (turn.status, turn.reason) == (waiting.status, waiting.stop_reason)
    assert (turn.reason, turn.stop_reason) == ("approval", "")

    await runtime.control(waiting.run_id).approve(waiting.pending[0].id)
    ended = await thread.resume()
    [turn] = await thread.turns()
    assert (turn.reason, turn.stop_reason) == ("", ended.stop_reason)
