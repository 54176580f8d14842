"""More words for an engine that has answered: heard whenever they come, until the answer is let out."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from held_tool import events_of
from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    Ask,
    Completion,
    Decision,
    LoopEngine,
    MemoryJournal,
    PolicyState,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
)
from loopwright.errors import ReplayDivergence
from loopwright.events import FollowedUp
from loopwright.gates import RESPOND, InstantGate
from loopwright.testing import ScriptedProvider, crashed


class Colour(BaseModel):
    """A colour."""

    name: str


class AsksAboutAnswers(InstantGate):
    """Asks a person before an answer goes out."""

    version, answers = "test-1", True

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("let it out?") if action.tool == RESPOND else Allow()


def model(request: Request) -> str:
    """Says what colour it is, of the sea if it is asked about that; as JSON only when that did not come out."""
    said = [message.content for message in request.conversation.messages]
    colour = "green" if any("sea" in text for text in said) else "blue"
    if "Reply with the corrected JSON" in said[-1]:
        return f'{{"name": "{colour}"}}'
    return (
        "no JSON"
        if any("Give that answer as JSON" in text for text in said[-2:])
        else f"it is {colour}"
    )


def runtime(journal: MemoryJournal | None = None, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(model),
        journal=journal or MemoryJournal(),
        approver=Suspend(),
        **options,
    )


@pytest.mark.parametrize("output", [None, Colour])
async def test_a_follow_up_to_a_run_that_waits_for_leave_for_its_answer_is_heard(
    output: Any,
) -> None:
    parts = runtime(gate=AsksAboutAnswers())
    waiting = await ReActEngine(parts).run("Which colour?", run_id="r", output=output)
    control = parts.control("r")
    await control.follow_up("And of the sea?")
    await control.approve(waiting.pending[0].id)
    [question] = (await parts.resume("r", output=output)).pending
    await control.approve(question.id)
    result = await parts.resume("r", output=output)

    assert (result.status, result.answer) == ("completed", "it is green")
    assert result.output == (None if output is None else Colour(name="green"))
    entries = parts.journal.read("r")
    for keep in range(cut_after(entries, "followed_up"), len(entries)):
        again = runtime(crashed(entries, keep), gate=AsksAboutAnswers())
        assert (await again.resume("r", output=output)).status in (
            "completed",
            "waiting",
        ), entries[keep - 1].kind


async def test_a_follow_up_to_a_run_that_died_while_formatting_is_read_on_resume() -> (
    None
):
    whole = runtime()
    await ReActEngine(whole).run("Which colour?", run_id="r", output=Colour)
    entries = whole.journal.read("r")
    ends = range(cut_after(entries, "model_replied"), len(entries))
    assert [entry.key for entry in entries if entry.kind == "model_requested"] == [
        "0",
        "1",
        "2",
    ]
    for keep in ends:
        parts = runtime(crashed(entries, keep))
        await parts.control("r").follow_up("And of the sea?")
        result = await parts.resume("r", output=Colour)

        assert (result.answer, result.output) == (
            "it is green",
            Colour(name="green"),
        ), entries[keep - 1].kind
        after = parts.journal.read("r")
        again = runtime(crashed(after, len(after) - 1))
        assert (await again.resume("r", output=Colour)).output == result.output


class Held(ScriptedProvider):
    """Holds the answer back that is put into form, until the test lets go."""

    reached, go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        if "Give that answer as JSON" in "".join(
            message.content for message in request.conversation.messages[-2:]
        ):
            self.reached.set()
            await self.go.wait()
        return await super().complete(request)


async def test_a_follow_up_during_formatting_of_the_answer_is_read_after_it() -> None:
    parts = Runtime(held := Held(model))
    async with ReActEngine(parts).start(
        "Which colour?", run_id="r", output=Colour
    ) as run:
        await held.reached.wait()
        await run.follow_up("And of the sea?")
        held.go.set()
        result = await run.result()

    assert (result.answer, result.output) == ("it is green", Colour(name="green"))
    assert events_of(parts.journal, "r", FollowedUp) == [
        FollowedUp(1, "And of the sea?")
    ]


class Says(LoopEngine):
    """Asks, and says what it says."""

    name = "says"
    text: str = "it is blue"

    async def solve(self, run: Run) -> str:
        await run.ask("Which colour?")
        return self.text if len(run.conversation) == 1 else "it is green"


async def let_out(text: str = "it is blue") -> tuple[Says, Runtime]:
    """An engine to go on with a run whose process died when the answer was let out, before it had ended."""
    first = runtime(gate=AsksAboutAnswers())
    waiting = await Says(first).run("Which colour?", run_id="r")
    await first.control("r").approve(waiting.pending[0].id)
    await Says(first).resume("r")
    entries = first.journal.read("r")
    parts = runtime(crashed(entries, len(entries) - 1), gate=AsksAboutAnswers())
    for command in first.journal.inbox("r"):
        parts.journal.send("r", command.kind, command.body)
    return Says(parts, text=text), parts


async def test_a_follow_up_to_an_answer_that_was_let_out_comes_too_late() -> None:
    engine, parts = await let_out()
    await parts.control("r").follow_up("And of the sea?")
    result = await engine.resume("r")

    assert (result.status, result.answer) == ("completed", "it is blue")
    assert events_of(parts.journal, "r", FollowedUp) == []


async def test_another_answer_than_the_one_that_was_let_out_is_divergence() -> None:
    engine, _ = await let_out("it is red")
    with pytest.raises(
        ReplayDivergence, match="at respond: recorded: a decision about"
    ):
        await engine.resume("r")
