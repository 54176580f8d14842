"""Whatever people say or an engine does itself, the run is as sensitive as that from then on: live, after any crash."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Request,
    Run,
    Suspend,
    Tool,
    ToolCall,
    ToolError,
    tool,
)
from loopwright._kernel.durability.replay import Replay
from loopwright.engine import RunHandle
from loopwright.events import Declassified, EffectFinished, ToolFinished
from loopwright.labels import Label
from loopwright.security import Redactor
from loopwright.testing import call, crashed
from loopwright.tools import CachedResult
from private_data import PRIVATE, burn, process, sent, stays_after_any_crash, turns

Saying = Callable[[RunHandle[Any, Any]], Awaitable[None]]


@tool(effect="read")
async def shelf(row: int) -> str:
    """Ask the shelf."""
    return f"there lies {PRIVATE}"


@tool(effect="read")
async def mirror(row: int) -> str:
    """Ask the mirror."""
    return "all is fine"


# --- what a person lowered, and is read again ---


class Hand:
    """A tool that holds the run until the test lets go; in a run that goes on after a crash it holds nothing."""

    def __init__(self) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    def tool(self) -> Tool:
        @tool(effect="read", trusted=True, label="public")
        async def hold() -> str:
            """Hold."""
            self.reached.set()
            await self.go.wait()
            return "held"

        return hold


async def told(make: Callable[[Any], LoopEngine], hand: Hand, saying: Saying) -> Any:
    """The journal of a run that was told something while its tool was at work."""
    journal = MemoryJournal()
    async with make(journal).start("Go.", run_id="r") as run:
        await hand.reached.wait()
        await saying(run)
        hand.go.set()
        await run.result()
    return journal


async def test_a_private_result_that_is_repeated_is_private_after_declassification() -> (
    None
):
    hand = Hand()

    def make(journal: Any) -> LoopEngine:
        known = (
            0
            if journal.runs() == []
            else sum(e.kind == "tool_finished" for e in journal.read("r"))
        )
        lives: list[int] = [known]

        @tool(effect="read", recovery=[CachedResult()])
        async def account(row: int) -> str:
            """Ask for the account."""
            lives[0] += 1
            if lives[0] > 1:
                raise OSError("down")
            return PRIVATE

        lines = [
            call("account", row=1),
            call("hold"),
            call("account", row=1),
            call("send", text="x"),
            "done",
        ]
        return ReActEngine(
            process(turns(*lines), [account, hand.tool()], journal=journal)
        )

    journal = await told(
        make, hand, lambda run: run.declassify("normal", "it is known by now")
    )

    finished = [e.event for e in journal.read("r") if isinstance(e.event, ToolFinished)]
    assert [(e.tool, e.label, e.untrusted) for e in finished] == [
        ("account", "sensitive", True), ("hold", "public", False), ("account", "sensitive", True),
        ("send", "sensitive", False),
    ]  # fmt: skip
    await stays_after_any_crash(make, journal)


async def test_what_was_declassified_stays_so_until_something_else_is_read() -> None:
    hand = Hand()

    def make(journal: Any) -> LoopEngine:
        lines = [call("shelf", row=1), call("hold"), call("send", text="x"), "done"]
        return ReActEngine(
            process(turns(*lines), [shelf, hand.tool()], journal=journal)
        )

    journal = await told(
        make, hand, lambda run: run.declassify("normal", "it is known by now")
    )

    entries = journal.read("r")
    assert sent(entries) == ["ok"]
    for cut in range(
        cut_after(entries, "declassified"), cut_after(entries, "tool_finished", 2) + 1
    ):
        again = crashed(entries, cut)
        for command in journal.inbox("r"):
            again.send("r", command.kind, command.body)
        await make(again).resume("r")
        assert sent(again.read("r")) == ["ok"]
        assert (
            len([e for e in again.read("r") if isinstance(e.event, Declassified)]) == 1
        )


# --- the words of people ---

WORDS: dict[str, Saying] = {
    "steer": lambda run: run.steer(f"Mind {PRIVATE}."),
    "add_context": lambda run: run.add_context(f"There is {PRIVATE}."),
    "override": lambda run: run.override("mirror_text", {"text": PRIVATE}),
}


@tool(effect="read", label="public")
async def mirror_text(text: str) -> str:
    """Say nothing."""
    return "fine"


@pytest.mark.parametrize("kind", WORDS)
async def test_what_people_tell_a_run_is_as_sensitive_as_their_words(kind: str) -> None:
    hand = Hand()

    def make(journal: Any) -> LoopEngine:
        lines = [call("hold"), call("send", text="x"), "done"]
        return ReActEngine(
            process(turns(*lines), [hand.tool(), mirror_text], journal=journal)
        )

    journal = await told(make, hand, WORDS[kind])

    await stays_after_any_crash(make, journal)


@pytest.mark.parametrize("kind", WORDS)
async def test_a_fork_that_was_told_something_private_has_its_label(kind: str) -> None:
    hand = Hand()

    def make(journal: Any) -> LoopEngine:
        lines = [call("hold"), call("send", text="x"), "done"]
        return ReActEngine(
            process(turns(*lines), [hand.tool(), mirror_text], journal=journal)
        )

    journal = await told(make, hand, WORDS[kind])
    entries = journal.read("r")
    engine = make(journal)
    for cut in range(cut_after(entries, "model_requested", 2), len(entries)):
        fork = await engine.fork("r", at=cut)
        await engine.resume(fork)
        assert sent(journal.read(fork)) == ["denied"], f"forked after {cut}"


async def test_a_message_sent_before_declassification_counts_when_it_is_read() -> None:
    hand = Hand()

    async def saying(run: RunHandle[Any, Any]) -> None:
        await run.steer(f"Mind {PRIVATE}.")
        await run.declassify("normal", "of what it had read so far")

    def make(journal: Any) -> LoopEngine:
        lines = [call("hold"), call("send", text="x"), "done"]
        return ReActEngine(process(turns(*lines), [hand.tool()], journal=journal))

    journal = await told(make, hand, saying)

    await stays_after_any_crash(
        make, journal, cut_after(journal.read("r"), "declassified")
    )


async def test_what_a_person_says_after_the_answer_counts_from_then_on() -> None:
    hand = Hand()

    def model(request: Request) -> Any:
        messages = request.conversation.messages
        if not any(message.role == "tool" for message in messages):
            return call("hold")
        asked = any(message.origin == "operator" for message in messages)
        return (
            call("send", text="x") if asked and messages[-1].role == "user" else "done"
        )

    def make(journal: Any) -> LoopEngine:
        return ReActEngine(process(model, [hand.tool()], journal=journal))

    journal = await told(make, hand, lambda run: run.follow_up(f"Send {PRIVATE}."))

    await stays_after_any_crash(make, journal)


async def test_the_reason_of_a_denial_is_as_sensitive_as_its_words() -> None:
    def make(journal: Any) -> LoopEngine:
        model = turns(call("burn", what="x"), call("send", text="x"), "done")
        return ReActEngine(process(model, [burn], journal=journal, approver=Suspend()))

    journal = MemoryJournal()
    [question] = (await make(journal).run("Go.", run_id="r")).pending
    await make(journal).runtime.control("r").deny(question.key, f"It holds {PRIVATE}.")
    await make(journal).resume("r")

    await stays_after_any_crash(
        make, journal, cut_after(journal.read("r"), "run_suspended")
    )


class Asking(LoopEngine):
    """Gets something in one of its own ways, and sends something else."""

    name = "asking"
    way: str

    async def solve(self, run: Run) -> str:
        if self.way == "ask_user":
            await run.ask_user("Which one?")
        else:
            with contextlib.suppress(ToolError):
                await run.effect("look", self._look, into=list[str])
        observation = await run.call(ToolCall("send", {"text": "x"}))
        return observation.content

    async def _look(self) -> list[str]:
        if self.way == "failure":
            raise ToolError(PRIVATE)
        return ["fine", PRIVATE]


@pytest.mark.parametrize("way", ["ask_user", "effect", "failure"])
async def test_what_an_engine_asks_or_does_itself_is_as_sensitive_as_what_comes_of_it(
    way: str,
) -> None:
    async def user(question: str) -> str:
        return PRIVATE

    def make(journal: Any) -> LoopEngine:
        return Asking(process(turns("done"), [], journal=journal, user=user), way=way)

    journal = MemoryJournal()
    await make(journal).run("Go.", run_id="r")

    [finished] = [
        entry.event
        for entry in journal.read("r")
        if isinstance(entry.event, EffectFinished)
    ]
    assert finished.label == "sensitive"
    await stays_after_any_crash(make, journal)


async def test_what_an_engine_does_is_labelled_as_it_came_before_secrets_are_taken_out() -> (
    None
):
    parts = process(turns("done"), [], redactor=Redactor([PRIVATE]))
    await Asking(parts, way="effect").run("Go.", run_id="r")

    entries = parts.journal.read("r")
    [finished] = [
        entry.event for entry in entries if isinstance(entry.event, EffectFinished)
    ]
    assert (finished.label, PRIVATE in str(finished.value)) == ("sensitive", False)


# --- classifiers that fail ---


class Broken:
    """A classifier that fails, or says what is no label, but of the task."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def label(self, text: str) -> Label:
        if text == "Go.":
            return "normal"
        if isinstance(self.found, Exception):
            raise self.found
        label: Label = self.found
        return label


@pytest.mark.parametrize("found", [ValueError("broken"), "top secret", None])
async def test_a_text_that_a_classifier_fails_to_label_is_secret(found: Any) -> None:
    model = turns(call("mirror", row=1), call("send", text="x"), "done")
    parts = process(model, [mirror], classifier=Broken(found))
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert result.status == "completed"
    assert Replay(parts.journal.read("r")).totals.label == "secret"
    assert sent(parts.journal.read("r")) == ["denied"]
