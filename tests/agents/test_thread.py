"""Threads: conversations that the journal keeps, a run for each turn, and one turn at a time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    MemoryJournal,
    Message,
    ReActEngine,
    Runtime,
    Suspend,
    ask_user,
    tool,
)
from loopwright._kernel.durability.history import TurnStart
from loopwright._kernel.durability.replay import Replay
from loopwright.agents import Agent, InstructionContext
from loopwright.agents.thread_record import ThreadRecord
from loopwright.errors import ProviderError, ThreadBusy
from loopwright.events import RunFinished
from loopwright.journals import SQLiteJournal
from loopwright.journals.base import EarlierRunGone
from loopwright.labels import LabelledText, Untrusted
from loopwright.testing import ScriptedProvider, call, crashed


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


@tool(effect="destructive")
async def block(card: str) -> str:
    """Block a card."""
    return f"{card} is blocked"


class Desk:
    """A support agent on a journal in a file, and how a later process opens it."""

    def __init__(self, path: Path, *script: Any, **options: Any) -> None:
        options.setdefault("tools", [look, block, ask_user])
        self.journal = SQLiteJournal(path)
        self.model = ScriptedProvider(script)
        self.runtime = Runtime(self.model, journal=self.journal, **options)
        self.agent: Agent[None] = self.runtime.agent("support", instructions="Help.")

    def texts(self, request: int = -1) -> list[str]:
        """What a request said, behind the instructions."""
        asked = self.model.requests[request].conversation
        return [one.content for one in asked if one.role != "system"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.db"


async def test_thread_of_three_turns_continues_what_was_said(path: Path) -> None:
    desk = Desk(path, "Hello Ada.", "Ada.", "Yes.")
    thread = desk.agent.thread("user-42", tags={"tenant": "acme"})
    assert (await thread.run("I am Ada.")).answer == "Hello Ada."
    assert (await thread.run("Who am I?", tags={"day": "2"})).answer == "Ada."

    last = await thread.run("Sure?")
    assert desk.texts() == ["I am Ada.", "Hello Ada.", "Who am I?", "Ada.", "Sure?"]
    assert [one.system for one in desk.model.requests] == ["Help."] * 3
    assert [one.number for one in await thread.turns()] == [1, 2, 3]
    listed = desk.journal.runs()
    assert {one.thread for one in listed} == {"user-42"}
    assert listed[1].tags == {"tenant": "acme", "day": "2"}
    assert listed[0].follows == listed[1].run_id
    assert (await thread.history()) == last.conversation


async def test_thread_in_another_process_reads_all_from_the_journal(path: Path) -> None:
    first = Desk(path, "Hello Ada.")
    await first.agent.thread("user-42").run("I am Ada.")
    await first.journal.close()
    second = Desk(path, "Ada.")

    thread = second.agent.thread("user-42")
    assert (await thread.run("Who am I?")).answer == "Ada."
    assert second.texts() == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert [(one.text, one.answer) for one in await thread.turns()] == [
        ("I am Ada.", "Hello Ada."),
        ("Who am I?", "Ada."),
    ]


@pytest.mark.parametrize("id", ["a/b", "ünd ich", "user 42:1", "x" * 256, "t:1"])
async def test_thread_id_of_any_printable_text_is_its_own_thread(
    path: Path, id: str
) -> None:
    desk = Desk(path, "one", "two", "other")
    await desk.agent.thread(id).run("first")
    await desk.agent.thread(id).run("second")
    await desk.agent.thread("else").run("third")

    assert desk.texts(1) == ["first", "one", "second"]
    assert desk.texts(2) == ["third"]
    assert [one.thread for one in desk.journal.runs()] == ["else", id, id]


@pytest.mark.parametrize(
    ("id", "problem"),
    [
        ("", "id: must be a text"),
        (None, "id: must be a text"),
        (7, "id: must be a text, got 7"),
        (" ", "id: must be a text"),
        ("a\nb", "at most 256 printable characters"),
        ("x" * 257, "at most 256 printable characters"),
        ("sk-proj-" + "a1B2" * 12, "id: holds a secret"),
    ],
)
async def test_thread_with_a_bad_id_is_refused(
    path: Path, id: Any, problem: str
) -> None:
    desk = Desk(path)
    with pytest.raises(ConfigError, match=problem):
        desk.agent.thread(id)
    assert desk.journal.runs() == []


@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        ("", {}, "text: must be a text"),
        ("  ", {}, "text: must be a text"),
        (None, {}, "text: must be a text"),
        ("Hi", {"busy": "queue"}, "busy: must be 'wait'"),
        ("Hi", {"timeout": -1}, "timeout: must be seconds"),
        ("Hi", {"timeout": True}, "timeout: must be seconds"),
        ("Hi", {"run_id": "mine"}, "run_id: a turn does not have this option"),
        ("Hi", {"system": "Be brief."}, "system: a turn does not have this option"),
        ("Hi", {"tags": {"": "x"}}, "tags: a name must be"),
    ],
)
async def test_thread_refuses_a_bad_message_and_stores_nothing(
    path: Path, text: Any, options: dict[str, Any], problem: str
) -> None:
    desk = Desk(path, "Hello.")
    with pytest.raises(ConfigError, match=problem):
        await desk.agent.thread("user-42").run(text, **options)
    assert desk.journal.runs() == []
    assert (await desk.agent.thread("user-42").run("Hi")).answer == "Hello."


async def test_thread_of_another_agent_is_refused_by_name(path: Path) -> None:
    desk = Desk(path, "Hello.")
    other = desk.runtime.agent("sales", instructions="Sell.")
    await desk.agent.thread("user-42").run("Hi")
    with pytest.raises(ConfigError, match="is of agent 'support', got 'sales'"):
        await other.thread("user-42").run("Hi")
    with pytest.raises(ConfigError, match="is of agent 'support', got 'sales'"):
        await other.thread("user-42").turns()
    assert len(desk.journal.runs()) == 1


async def test_thread_of_a_renamed_agent_continues_as_its_error_says(
    path: Path,
) -> None:
    await Desk(path, "Hello.").agent.thread("user-42").run("Hi")
    model = ScriptedProvider(["Welcome back."])
    runtime = Runtime(model, journal=SQLiteJournal(path))
    renamed = runtime.agent("helpdesk")
    advice = (
        r"`runtime.agent\('support', ...\).thread\('user-42'\).switch\('helpdesk'\)`"
    )
    with pytest.raises(ConfigError, match=advice):
        await renamed.thread("user-42").run("Me again")
    await runtime.agent("support").thread("user-42").switch("helpdesk")

    later = Runtime(model, journal=SQLiteJournal(path)).agent("helpdesk")
    assert (await later.thread("user-42").run("Me again")).answer == "Welcome back."


async def test_thread_without_turns_has_an_empty_history(path: Path) -> None:
    desk = Desk(path)
    thread = desk.agent.thread("user-42")
    assert len(await thread.history()) == 0
    assert await thread.turns() == []
    assert desk.journal.runs() == []


@pytest.mark.parametrize("memory", [True, False])
async def test_thread_answers_all_messages_sent_at_once_one_by_one(
    path: Path, memory: bool
) -> None:
    journal = MemoryJournal() if memory else SQLiteJournal(path)
    model = ScriptedProvider([f"answer {number}" for number in range(6)])
    # Each has a runtime of its own, as in a process of its own.
    agents = [Runtime(model, journal=journal).agent("support") for _ in range(6)]
    threads = [agent.thread("user-42") for agent in agents]
    sent = [one.run(f"question {place}") for place, one in enumerate(threads)]

    results = await asyncio.gather(*sent)
    assert {one.answer for one in results} == {f"answer {n}" for n in range(6)}
    turns = await threads[0].turns()
    assert [one.number for one in turns] == [1, 2, 3, 4, 5, 6]
    assert {one.text for one in turns} == {f"question {n}" for n in range(6)}
    # Each request holds the turns before it, and the message that it answers.
    assert [len(one.conversation) for one in model.requests] == [1, 3, 5, 7, 9, 11]


async def test_thread_refuses_a_message_beside_a_turn_at_work(path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def search() -> str:
        """Search for long."""
        asked.set()
        await go_on.wait()
        return "found"

    desk = Desk(path, call("search"), "Slowly.", "Later.", tools=[search])
    thread = desk.agent.thread("user-42", busy="refuse")
    first = asyncio.ensure_future(thread.run("Hi"))
    await asked.wait()
    with pytest.raises(ThreadBusy, match="turn 1 is at work") as busy:
        await thread.run("Ho")
    assert busy.value.status == "running"
    with pytest.raises(ThreadBusy):
        await thread.run("Ho", busy="wait", timeout=0.05)
    go_on.set()

    assert (await first).answer == "Slowly."
    assert (await thread.run("Ho")).answer == "Later."
    assert desk.texts() == ["Hi", "", "found", "Slowly.", "Ho"]


async def test_thread_takes_the_next_message_as_the_answer_to_a_question(
    path: Path,
) -> None:
    desk = Desk(path, call("ask_user", question="Which card?"), "Card 7 it is.", "Ok.")
    thread = desk.agent.thread("user-42", busy="refuse")
    waiting = await thread.run("My card is gone.")
    assert waiting.status == "waiting"
    assert [one.pending[0].text for one in await thread.turns()] == ["Which card?"]

    answered = await thread.run("Card 7.")
    assert (answered.answer, answered.run_id) == ("Card 7 it is.", waiting.run_id)
    assert desk.texts()[-1] == "Card 7."
    assert (await thread.run("Thanks.")).answer == "Ok."
    assert [one.number for one in await thread.turns()] == [1, 2]


async def test_thread_answers_the_messages_of_a_process_in_their_order(
    path: Path,
) -> None:
    desk = Desk(path, *(f"answer {number}" for number in range(6)))
    sent = [desk.agent.thread("user-42").run(f"question {n}") for n in range(6)]
    results = await asyncio.gather(*sent)
    assert [one.answer for one in results] == [f"answer {n}" for n in range(6)]
    assert desk.runtime.turn_queues == {}


async def test_thread_receives_both_of_two_answers_to_one_question(path: Path) -> None:
    desk = Desk(path, call("ask_user", question="Which card?"))
    await desk.agent.thread("user-42").run("My card is gone.")
    others = [Desk(path, "It is done.", "Ok."), Desk(path, "It is done.", "Ok.")]
    sent = ("Card 7.", "Card 8.")
    results = await asyncio.gather(
        *(
            one.agent.thread("user-42").run(text)
            for one, text in zip(others, sent, strict=True)
        )
    )

    assert len({one.run_id for one in results}) == 2
    history = await desk.agent.thread("user-42").history()
    said = [one.content for one in history]
    assert (said.count("Card 7."), said.count("Card 8.")) == (1, 1)
    assert len(said) == 6


async def test_thread_uses_the_answer_of_a_process_that_is_gone(path: Path) -> None:
    desk = Desk(path, call("ask_user", question="Which card?"), "It is done.", "Ok.")
    thread = desk.agent.thread("user-42")
    await thread.run("My card is gone.")
    record = ThreadRecord(desk.runtime, "user-42", "support")
    last = await record.find_last()
    assert last is not None
    assert await record.answer(last, Message("user", "Card 7."))
    assert not await record.answer(last, Message("user", "Card 8."))

    assert (await thread.run("Thanks.")).answer == "Ok."
    said = [one.content for one in await thread.history()]
    assert said == ["My card is gone.", "", "Card 7.", "It is done.", "Thanks.", "Ok."]


async def test_thread_is_blocked_by_an_approval_until_it_is_given(path: Path) -> None:
    desk = Desk(path, call("block", card="7"), "Blocked.", "Ok.", approver=Suspend())
    thread = desk.agent.thread("user-42")
    waiting = await thread.run("Block card 7.")
    with pytest.raises(ThreadBusy, match="turn 1 is waiting") as busy:
        await thread.run("Hello?")
    assert busy.value.questions == waiting.pending
    with pytest.raises(ThreadBusy):
        await thread.run("Hello?", timeout=0.05)
    control = desk.runtime.control(busy.value.run_id)
    await control.approve(waiting.pending[0].id)

    # The approval was sent and nobody was there to act on it: the next message does.
    assert (await thread.run("Hello?")).answer == "Ok."
    assert [one.answer for one in await thread.turns()] == ["Blocked.", "Ok."]


async def test_thread_keeps_the_words_of_a_turn_without_an_answer(path: Path) -> None:
    desk = Desk(path, ProviderError("it is broken", status=400), "Here I am.")
    thread = desk.agent.thread("user-42")
    assert (await thread.run("Are you there?")).status == "failed"
    history = await thread.history()
    assert [one.content for one in history] == [
        "Are you there?",
        "[no answer: provider_error]",
    ]

    assert (await thread.run("And now?")).answer == "Here I am."
    assert desk.texts() == [
        "Are you there?",
        "[no answer: provider_error]",
        "And now?",
    ]


async def test_thread_goes_on_with_the_provenance_of_the_turn_before(
    path: Path,
) -> None:
    desk = Desk(path, "Noted.", "Ok.", "Still.")
    thread = desk.agent.thread("user-42")
    first = await thread.run(Untrusted("From a page."))
    assert first.untrusted
    await desk.journal.close()

    later = Desk(path, "Ok.", "Fine.")
    second = await later.agent.thread("user-42").run("Go on.")
    assert second.untrusted
    assert (await later.agent.thread("user-42").history()).untrusted


async def test_answer_that_comes_from_outside_makes_the_turn_untrusted(
    path: Path,
) -> None:
    desk = Desk(path, call("ask_user", question="Which card?"), "It is done.", "Ok.")
    thread = desk.agent.thread("user-42")
    assert not (await thread.run("My card is gone.")).untrusted
    mail = LabelledText("Card 7.", label="sensitive", untrusted=True)
    answered = await thread.run(mail)
    assert (answered.answer, answered.untrusted) == ("It is done.", True)
    assert answered.label == "sensitive"
    totals = Replay(desk.journal.read(answered.run_id)[:-1]).totals
    assert (totals.label, totals.is_untrusted) == ("sensitive", True)
    assert (await thread.run("Thanks.")).untrusted


@pytest.mark.parametrize("keep", range(1, 9))
async def test_thread_resumes_the_turn_of_a_dead_process_first(keep: int) -> None:
    script = [call("look", what="it"), "It is blue.", "Ok."]
    first = Runtime(ScriptedProvider(script), tools=[look], journal=MemoryJournal())
    turn = await first.agent("support").thread("user-42").run("What is it?")
    entries = first.journal.read(turn.run_id)
    assert len(entries) == 9
    journal = crashed(entries, keep, status="running")

    replayed = sum(one.kind == "model_replied" for one in entries[:keep])
    model = ScriptedProvider(script[replayed:])
    runtime = Runtime(model, tools=[look], journal=journal)
    thread = runtime.agent("support").thread("user-42", busy="refuse")
    assert (await thread.run("Thanks.")).answer == "Ok."
    assert len(model.requests) == 3 - replayed
    assert [one.answer for one in await thread.turns()] == ["It is blue.", "Ok."]


async def test_thread_that_was_deleted_meanwhile_does_not_come_back(
    path: Path,
) -> None:
    desk = Desk(path, "Hello Ada.", "Who?")
    thread = desk.agent.thread("user-42")
    first = await thread.run("I am Ada.")
    follow = desk.agent.start  # as a turn that read the thread before it was deleted

    ended = await thread.history()
    await desk.journal.delete(first.run_id)
    name = f"{first.run_id[:-1]}2"
    late = await follow(ended.user("Hm?"), run_id=name, turn=TurnStart()).result()
    assert isinstance(late.error, EarlierRunGone)
    assert desk.journal.runs() == []
    assert (await thread.run("Who am I?")).answer == "Who?"
    assert desk.texts() == ["Who am I?"]


async def test_turn_records_the_agent_that_ended_it(path: Path) -> None:
    desk = Desk(path, "Hello.", "Plain.")
    first = await desk.agent.thread("user-42").run("Hi")
    ended = desk.journal.read(first.run_id)[-1].event
    assert isinstance(ended, RunFinished)
    assert ended.agent == "support"
    plain = await ReActEngine(desk.runtime).run("Hi")
    other = desk.journal.read(plain.run_id)[-1].event
    assert isinstance(other, RunFinished)
    assert other.agent == ""


async def test_thread_has_the_instructions_of_today_in_front_of_each_request(
    path: Path,
) -> None:
    desk = Desk(path, *(f"answer {number}" for number in range(20)))
    today = iter(range(20))

    async def instruct(about: InstructionContext) -> str:
        return f"It is day {next(today)}."

    agent = desk.runtime.agent("dated", instructions=instruct)
    for number in range(20):
        await agent.thread("user-42").run(f"question {number}")

    for number, request in enumerate(desk.model.requests):
        first, *others = request.conversation
        assert (first.role, first.content) == ("system", f"It is day {number}.")
        assert {one.role for one in others} <= {"user", "assistant"}
        assert len(others) == 2 * number + 1
    history = await agent.thread("user-42").history()
    assert len(history) == 40
    assert not any("It is day" in one.content for one in history)


async def test_thread_continues_with_the_agent_that_a_turn_was_handed_to(
    path: Path,
) -> None:
    desk = Desk(path, call("transfer_to_fraud"), "It is blocked.", "Still blocked.")
    desk.runtime.agent("fraud", instructions="Protect.")
    desk_agent = desk.runtime.agent("front", instructions="Greet.", handoffs=["fraud"])
    first = await desk_agent.thread("user-42").run("My card is gone.")
    assert first.answer == "It is blocked."

    second = await desk_agent.thread("user-42").run("And now?")
    assert second.answer == "Still blocked."
    assert [one.system for one in desk.model.requests] == [
        "Greet.",
        "Protect.",
        "Protect.",
    ]
    agents = [one.agent for one in await desk_agent.thread("user-42").turns()]
    assert agents == ["front", "fraud"]
