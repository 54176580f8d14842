"""Several messages to one thread at once: each is answered once, or refused, whoever comes first."""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fault_sizes import sized
from loopwright import Completion, MemoryJournal, Runtime, Suspend, tool
from loopwright.agents import Busy, Thread
from loopwright.errors import ThreadBusy
from loopwright.events import RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.journals.base import RunInfo
from loopwright.messages import JsonObject
from loopwright.providers import Request
from loopwright.result import Result
from loopwright.testing import ScriptedProvider, call
from virtual_time import in_virtual_time
from waiting import eventually


class HeldProvider(ScriptedProvider):
    """A model whose replies wait until they are let go."""

    def __init__(self, *script: Any) -> None:
        super().__init__(script)
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        """Reply once that is allowed."""
        self.asked.set()
        await self.go_on.wait()
        return await super().complete(request)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SQLiteJournal]:
    opened = SQLiteJournal(tmp_path / "bank.db")
    yield opened
    await opened.close()


def texts(model: ScriptedProvider, request: int = -1) -> list[str]:
    return [one.content for one in model.requests[request].conversation]


def commands(journal: SQLiteJournal, run_id: str) -> tuple[int, ...]:
    started = journal.read(run_id)[0].event
    assert isinstance(started, RunStarted)
    return started.commands


# --- steer ---


async def test_steer_gives_the_message_to_the_turn_at_work(
    journal: SQLiteJournal,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def search() -> str:
        """Search."""
        asked.set()
        await go_on.wait()
        return "found"

    model = ScriptedProvider([call("search"), "Metric it is."])
    agent = Runtime(model, journal=journal, tools=[search]).agent("support")
    first = asyncio.ensure_future(agent.thread("user-42").run("How far?"))
    await asked.wait()
    second = asyncio.ensure_future(
        agent.thread("user-42").run("In metric units.", busy="steer")
    )
    turn = (await agent.thread("user-42").turns())[0]
    await eventually(
        lambda: "command_received" in {e.kind for e in journal.read(turn.run_id)}
    )
    go_on.set()

    results = await asyncio.gather(first, second)
    assert [one.answer for one in results] == ["Metric it is."] * 2
    assert len({one.run_id for one in results}) == 1
    assert "In metric units." in texts(model)[-1]
    history = await agent.thread("user-42").history()
    assert sum("In metric units." in one.content for one in history) == 1


async def test_guidance_of_a_process_is_read_in_the_order_in_which_it_was_sent(
    journal: SQLiteJournal,
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read", trusted=True)
    async def search() -> str:
        """Search."""
        asked.set()
        await go_on.wait()
        return "found"

    def reply(request: Request) -> Any:
        return "All." if "found" in str(request.conversation) else call("search")

    model = ScriptedProvider(reply)
    thread = Runtime(model, journal=journal, tools=[search]).agent("a").thread("ada")
    sent = [asyncio.ensure_future(thread.run("Search."))]
    await asked.wait()
    given = [f"hint {number}" for number in range(8)]
    for text in given:
        sent.append(asyncio.ensure_future(thread.run(text, busy="steer")))
    [info] = journal.runs()
    await eventually(lambda: len(journal.inbox(info.run_id)) == len(given))
    go_on.set()
    await asyncio.gather(*sent)

    history = [message.content for message in await thread.history()]
    read = [text.splitlines()[-1] for text in history if "hint" in text]
    assert read == given


async def test_steer_that_its_turn_did_not_take_is_the_next_turn_once(
    journal: SQLiteJournal,
) -> None:
    model = HeldProvider("One.", "Two.", "Three.")
    agent = Runtime(model, journal=journal).agent("support")
    first = asyncio.ensure_future(agent.thread("user-42").run("one"))
    await model.asked.wait()
    sent = [
        asyncio.ensure_future(agent.thread("user-42").run(text, busy="steer"))
        for text in ("two", "three")
    ]
    turn = (await agent.thread("user-42").turns())[0]
    while len(journal.inbox(turn.run_id)) < 2:  # noqa: ASYNC110 - a file sets no event
        await asyncio.sleep(0.01)
    model.go_on.set()

    # Both are answered by the turn that follows, which has their numbers.
    assert (await first).answer == "One."
    results = await asyncio.gather(*sent)
    assert [one.answer for one in results] == ["Two.", "Two."]
    assert sorted(texts(model)[-2:]) == ["three", "two"]
    assert commands(journal, results[0].run_id) == (1, 2)
    assert [one.number for one in await agent.thread("user-42").turns()] == [1, 2]
    assert (await agent.thread("user-42").run("four")).answer == "Three."
    assert commands(journal, (await agent.thread("user-42").turns())[-1].run_id) == ()


async def test_steer_whose_sender_is_gone_is_answered_before_the_next_message(
    journal: SQLiteJournal,
) -> None:
    model = HeldProvider("One.", "Two.", "Three.")
    agent = Runtime(model, journal=journal).agent("support")
    thread = agent.thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await model.asked.wait()
    turn = (await thread.turns())[0]
    steering = asyncio.ensure_future(thread.run("two", busy="steer"))
    while not journal.inbox(turn.run_id):  # noqa: ASYNC110 - a file sets no event
        await asyncio.sleep(0.01)
    steering.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await steering
    model.go_on.set()
    await first

    assert (await thread.run("three")).answer == "Three."
    said = [(one.text, one.answer) for one in await thread.turns()]
    assert said == [("one", "One."), ("two", "Two."), ("three", "Three.")]


async def test_steer_of_a_turn_that_then_waits_gives_its_questions(
    journal: SQLiteJournal,
) -> None:
    @tool(effect="destructive")
    async def block() -> str:
        """Block."""
        return "blocked"

    model = HeldProvider(call("block"), "Done.")
    runtime = Runtime(model, journal=journal, tools=[block], approver=Suspend())
    thread = runtime.agent("support").thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await model.asked.wait()
    turn = (await thread.turns())[0]
    steering = asyncio.ensure_future(thread.run("two", busy="steer"))
    while not journal.inbox(turn.run_id):  # noqa: ASYNC110 - a file sets no event
        await asyncio.sleep(0.01)
    model.go_on.set()

    waiting = await first
    assert (await steering).pending == waiting.pending
    await runtime.control(turn.run_id).approve(waiting.pending[0].id)
    assert (await thread.resume()).answer == "Done."
    assert "two" in texts(model)[-1]


async def test_steer_is_refused_after_its_time_with_the_command_that_was_sent(
    journal: SQLiteJournal,
) -> None:
    model = HeldProvider("One.", "Two.", "Three.")
    thread = Runtime(model, journal=journal).agent("support").thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await model.asked.wait()
    with pytest.raises(ThreadBusy, match="do not send that again") as busy:
        await thread.run("two", busy="steer", timeout=0.05)
    [command] = journal.inbox(busy.value.run_id)
    assert (busy.value.status, busy.value.command) == ("running", command.number)
    assert "send the message again" not in str(busy.value)
    model.go_on.set()
    await first

    assert (await thread.run("three")).answer == "Three."
    said = [(one.text, one.answer) for one in await thread.turns()]
    assert said == [("one", "One."), ("two", "Two."), ("three", "Three.")]


class LateClaims(MemoryJournal):
    """Makes one claim once that is allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.claiming, self.go_on = asyncio.Event(), asyncio.Event()

    async def claim(self, *arguments: Any, **options: Any) -> Any:
        """Claim a run; the first one that is held waits."""
        if self.holds:
            self.holds = False
            self.claiming.set()
            await self.go_on.wait()
        return await super().claim(*arguments, **options)


@in_virtual_time
async def test_steer_has_its_time_where_another_continues_the_turn_meanwhile() -> None:
    @tool(effect="destructive")
    async def block() -> str:
        """Block."""
        return "blocked"

    journal, model = LateClaims(), HeldProvider(call("block"), "Done.")
    options: dict[str, Any] = {"journal": journal, "tools": [block], "approver": Suspend()}  # fmt: skip
    runtime = Runtime(model, **options)
    thread = runtime.agent("support").thread("user-42")
    other = Runtime(ScriptedProvider([]), **options).agent("support").thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await model.asked.wait()
    journal.holds = True
    steering = asyncio.ensure_future(other.run("two", busy="steer", timeout=60))
    await asyncio.sleep(10)
    model.go_on.set()
    waiting = await first
    model.go_on.clear()
    model.asked.clear()
    await journal.claiming.wait()
    await runtime.control(waiting.run_id).approve(waiting.pending[0].id)
    resumed = asyncio.ensure_future(thread.resume())
    await model.asked.wait()
    journal.go_on.set()

    async with asyncio.timeout(600):
        with pytest.raises(ThreadBusy, match="do not send that again") as busy:
            await steering
    assert (busy.value.status, busy.value.command) == ("running", 1)
    assert asyncio.get_running_loop().time() < 70
    model.go_on.set()
    assert (await resumed).answer == "Done."


class StallingJournal(SQLiteJournal):
    """Stores no command until that is allowed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sending, self.go_on = threading.Event(), threading.Event()

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Store a command once that is allowed."""
        self.sending.set()
        self.go_on.wait(60)
        return super().send(run_id, kind, body)


async def test_steer_waits_for_the_guidance_before_it_as_long_as_it_may(
    tmp_path: Path,
) -> None:
    journal = StallingJournal(tmp_path / "slow.db")
    model = HeldProvider("One.", "Two.")
    thread = Runtime(model, journal=journal).agent("support").thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await model.asked.wait()
    second = asyncio.ensure_future(thread.run("two", busy="steer"))
    await asyncio.to_thread(journal.sending.wait)
    with pytest.raises(ThreadBusy, match="send the message again") as busy:
        await thread.run("three", busy="steer", timeout=0.05)
    assert busy.value.command == 0
    journal.go_on.set()
    model.go_on.set()

    assert [(await one).answer for one in (first, second)] == ["One.", "Two."]
    assert "three" not in str(await thread.history())
    await journal.close()


class LateJournal(SQLiteJournal):
    """Lists runs for the first time once that is allowed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.listing, self.go_on = threading.Event(), threading.Event()

    def runs(self, **options: Any) -> list[RunInfo]:
        """List runs; the first call waits."""
        if not self.listing.is_set():
            self.listing.set()
            self.go_on.wait(60)
        return super().runs(**options)


async def test_message_behind_one_that_has_no_turn_in_time_is_refused(
    tmp_path: Path,
) -> None:
    journal = LateJournal(tmp_path / "late.db")
    model = ScriptedProvider(["One.", "Two."])
    thread = Runtime(model, journal=journal).agent("support").thread("user-42")
    first = asyncio.ensure_future(thread.run("one"))
    await asyncio.to_thread(journal.listing.wait)
    with pytest.raises(ThreadBusy, match="send the message again") as busy:
        await thread.run("two", timeout=0.05)
    assert (busy.value.run_id, busy.value.command) == ("", 0)
    journal.go_on.set()

    assert (await first).answer == "One."
    assert (await thread.run("two")).answer == "Two."
    await journal.close()


# --- random orders ---


class EchoProvider(ScriptedProvider):
    """A model that takes its time, and answers with what it was last told."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__([])
        self._chance = chance

    async def complete(self, request: Request) -> Completion:
        """Name the messages since the last answer."""
        await asyncio.sleep(self._chance.random() * 0.004)
        told: list[str] = []
        for one in request.conversation:
            told = [] if one.role == "assistant" else [*told, one.content]
        answer = f"re: {' '.join(told)}"
        return Completion(text=answer, answer=answer)


class Chatter:
    """People who send messages to one thread from several processes, in an order that chance decides."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.journals = [SQLiteJournal(path, synchronous="NORMAL") for _ in range(2)]
        self.agents = [
            Runtime(EchoProvider(self.chance), journal=one).agent("support")
            for one in self.journals
        ]
        self.refused: list[str] = []
        self.answered: dict[str, Result[Any]] = {}

    async def send(self, text: str, busy: Busy, pause: float) -> None:
        await asyncio.sleep(pause)
        thread: Thread[None] = self.chance.choice(self.agents).thread("user-42")
        try:
            self.answered[text] = await thread.run(text, busy=busy)
        except ThreadBusy:
            self.refused.append(text)

    async def chat(self) -> None:
        policies: list[Busy] = ["wait", "steer", "refuse"]
        await asyncio.gather(
            *(
                self.send(
                    f"<{number}>",
                    self.chance.choice(policies),
                    self.chance.random() * 0.02,
                )
                for number in range(self.chance.randint(2, 5))
            )
        )

    async def check(self) -> None:
        """Each message that was not refused is in the history once, and its result is of the turn that has it."""
        thread = self.agents[0].thread("user-42")
        history = " ".join(
            one.content for one in await thread.history() if one.role == "user"
        )
        for text in self.refused:
            assert text not in history
        for text, result in self.answered.items():
            assert result.status == "completed"
            assert text in (result.answer or "")
            assert history.count(text) == 1
        turns = await thread.turns()
        assert [one.number for one in turns] == list(range(1, len(turns) + 1))
        assert [one.status for one in turns] == ["completed"] * len(turns)
        answers = Counter(one.answer for one in turns)
        assert {one.answer for one in self.answered.values()} == set(answers)
        for turn in turns:
            assert self.journals[0].verify(turn.run_id).ok
        for journal in self.journals:
            await journal.close()


@pytest.mark.faults
@pytest.mark.parametrize("part", range(sized(1, 20)))
async def test_messages_in_any_order_are_answered_once_or_refused(
    tmp_path: Path, part: int
) -> None:
    for seed in range(part * 40, part * 40 + 40):
        chatter = Chatter(tmp_path / f"{seed}.db", seed)
        await chatter.chat()
        await chatter.check()
