"""JSON that fits is the answer in place of JSON that did not: in the turn it was made for, and in runs of today."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from function_engine import FunctionEngine
from loopwright import (
    Completion,
    MemoryJournal,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
)
from loopwright.gates.base import RESPOND, Action, Allow, Ask, Decision, PolicyState
from loopwright.testing import ScriptedProvider, crashed


class Sky(BaseModel):
    """What an answer must fit."""

    blue: int = Field(le=100)


REFUSED, FITTING = '{"blue": 210}', '{"blue": 21}'


class Judging:
    """A gate that decides about answers."""

    answers = True
    version = "1"

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Decide about the answer; allow all else."""
        return self._decision if action.tool == RESPOND else Allow()


async def begin_as_before(
    gate: Judging, monkeypatch: pytest.MonkeyPatch
) -> MemoryJournal:
    """Return the journal of a run that began before JSON that fits was the answer."""
    journal = MemoryJournal()
    provider = ScriptedProvider([REFUSED, FITTING])
    runtime = Runtime(provider, gate=gate, journal=journal, approver=Suspend())
    with monkeypatch.context() as earlier:
        earlier.setattr("loopwright.engine.REVISION", 3)
        earlier.setattr("loopwright._kernel.session.session.REVISION", 3)
        result = await ReActEngine(runtime).run("Sky?", output=Sky, run_id="r")
    assert result.answer in {REFUSED, None}
    return journal


async def test_an_earlier_run_whose_answer_was_decided_about_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Judging(Allow())
    entries = (await begin_as_before(gate, monkeypatch)).read("r")
    assert [entry.kind for entry in entries[-2:]] == ["gate_decided", "run_finished"]

    runtime = Runtime(
        ScriptedProvider([]), gate=gate, journal=crashed(entries, len(entries) - 1)
    )
    result = await ReActEngine(runtime).resume("r", output=Sky)
    assert (result.answer, result.output) == (REFUSED, Sky(blue=21))


async def test_an_approval_of_the_answer_of_an_earlier_run_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Judging(Ask("May it be given?"))
    journal = await begin_as_before(gate, monkeypatch)
    runtime = Runtime(
        ScriptedProvider([]), gate=gate, journal=journal, approver=Suspend()
    )
    [question] = await runtime.control("r").questions()
    assert question.arguments["answer"] == REFUSED
    await runtime.control("r").approve(question.key)

    result = await ReActEngine(runtime).resume("r", output=Sky)
    assert (result.status, result.output) == ("completed", Sky(blue=21))


class Interrupting(ScriptedProvider):
    """A person sends something after the answer, while the output is made."""

    handle: Any = None

    async def complete(self, request: Request) -> Completion:
        """Send it, and answer."""
        if self.left == 1:
            await self.handle.follow_up("And tomorrow?")
        return await super().complete(request)


async def test_the_json_of_a_turn_is_no_answer_of_the_turn_after_it() -> None:
    read = list[str]()

    async def body(run: Run) -> str:
        read.append(run.conversation.messages[-2:][0].content)
        if len(read) == 1:
            return REFUSED
        run.offer('{"blue": 777}')
        raise ValueError("no sky tomorrow")

    provider = Interrupting([FITTING])
    engine = FunctionEngine(Runtime(provider), body=body)
    async with engine.start("Sky?", output=Sky) as provider.handle:
        result = await provider.handle.result()

    assert (result.status, result.answer) == ("failed", '{"blue": 777}')
    assert read == ["Sky?", FITTING]
