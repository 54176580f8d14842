"""Approvals: for exactly one call, with exactly its arguments, under the policy of then, once, for a while."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    Deny,
    MemoryJournal,
    PolicyState,
    ReActEngine,
    Result,
    Runtime,
    Suspend,
    tool,
)
from loopwright.events import CommandReceived, GateDecided, RunSuspended
from loopwright.gates import RESPOND, ApprovalGate
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN
from waiting import eventually

HOUR, DAY = 3_600.0, 86_400.0


@tool(effect="destructive", content=("what",))
async def erase(what: str) -> str:
    """Erase something."""
    RAN.append(what)
    return f"erased {what}"


@tool(effect="destructive", content=("what",))
async def shred(what: str) -> str:
    """Shred something."""
    RAN.append(f"shred {what}")
    return f"shredded {what}"


def runtime(
    *script: Any, journal: Any, clock: FakeClock | None = None, **options: Any
) -> Runtime:
    given: dict[str, Any] = {"approver": Suspend(), "tools": [erase, shred], **options}
    return Runtime(ScriptedProvider(script), journal=journal, clock=clock, **given)


async def waiting(
    journal: Any, *calls: Any, clock: FakeClock | None = None, **options: Any
) -> Result:
    turn = list(calls) or [call("erase", what="disk")]
    return await ReActEngine(
        runtime(turn, journal=journal, clock=clock, **options)
    ).run("Go.", run_id="r")


async def resumed(
    journal: Any, *script: Any, clock: FakeClock | None = None, **options: Any
) -> Result:
    return await ReActEngine(
        runtime(*script, journal=journal, clock=clock, **options)
    ).resume("r")


def told(result: Result) -> list[str]:
    return [
        message.content
        for message in result.conversation.messages
        if message.role == "tool"
    ]


async def test_an_approved_call_runs_on_resume_and_the_journal_names_the_approver() -> (
    None
):
    journal = MemoryJournal()
    asked = await waiting(journal)
    [question] = asked.pending
    assert (question.key, question.about, question.policy_version) == (
        "0#0",
        "approval",
        "default-1",
    )

    await runtime(journal=journal).control("r").approve(question.key, by="Ada")
    result = await resumed(journal, "done")

    assert (result.answer, told(result), RAN) == ("done", ["erased disk"], ["disk"])
    decided = [e.event for e in journal.read("r") if isinstance(e.event, GateDecided)]
    assert [(d.verdict, d.command) for d in decided] == [("ask", 0), ("allow", 1)]
    [received] = [
        e.event for e in journal.read("r") if isinstance(e.event, CommandReceived)
    ]
    assert received.body["by"] == "Ada"


async def test_the_process_may_end_and_another_one_approves(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = SQLiteJournal(path)
    await waiting(first)
    await first.close()

    second = SQLiteJournal(path)
    await runtime(journal=second).control("r").approve("0#0")
    await second.close()

    third = SQLiteJournal(path)
    assert (await resumed(third, "done")).answer == "done"
    assert RAN == ["disk"]
    await third.close()


async def test_a_denial_is_told_with_its_reason() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    await runtime(journal=journal).control("r").deny("0#0", "not today")

    result = await resumed(journal, "then not")

    assert (told(result), RAN) == (["not today"], [])


async def test_of_two_words_on_one_call_the_last_counts() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    control = runtime(journal=journal).control("r")
    await control.approve("0#0")
    await control.deny("0#0", "no after all")

    assert told(await resumed(journal, "then not")) == ["no after all"]
    assert RAN == []


async def test_arguments_of_a_person_are_validated_gated_again_and_run() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    await (
        runtime(journal=journal)
        .control("r")
        .approve("0#0", arguments={"what": "old disk"})
    )

    result = await resumed(journal, "done")

    assert (told(result), RAN) == (["erased old disk"], ["old disk"])
    decided = [e.event for e in journal.read("r") if isinstance(e.event, GateDecided)]
    assert [(d.verdict, d.arguments) for d in decided] == [
        ("ask", None),
        ("modify", {"what": "old disk"}),
    ]


async def test_arguments_of_a_person_that_do_not_fit_the_schema_do_not_run() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    await (
        runtime(journal=journal)
        .control("r")
        .approve("0#0", arguments={"which": "disk"})
    )

    result = await resumed(journal, "then not")

    assert RAN == []
    assert "'which' was unexpected" in told(result)[0]


class OnlyOld:
    """Asks about everything and refuses what is not old."""

    version = "only-old-1"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        if "new" in str(action.arguments.get("what")):
            return Deny("that is new")
        return Ask("may it?")


async def test_arguments_of_a_person_do_not_pass_a_gate_that_denies_them() -> None:
    journal = MemoryJournal()
    await waiting(journal, gate=OnlyOld())
    await (
        runtime(journal=journal)
        .control("r")
        .approve("0#0", arguments={"what": "new disk"})
    )

    result = await resumed(journal, "then not", gate=OnlyOld())

    assert (told(result), RAN) == (["that is new"], [])


class Version(OnlyOld):
    """The same under another version."""

    version = "only-old-2"


async def test_an_approval_under_another_policy_does_not_count() -> None:
    journal = MemoryJournal()
    await waiting(journal, gate=OnlyOld())
    await runtime(journal=journal).control("r").approve("0#0")

    result = await resumed(journal, gate=Version())

    assert (result.status, RAN) == ("waiting", [])
    assert result.pending[0].policy_version == "only-old-2"
    again = await resumed(journal, gate=Version())  # nor when it is asked a second time
    assert (again.status, RAN) == ("waiting", [])


class Reloaded:
    """Asks about everything, until other rules are loaded: those let nothing through."""

    def __init__(self) -> None:
        self.version = "asks"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        return Ask("run it?") if self.version == "asks" else Deny("not any more")


async def test_a_policy_that_is_reloaded_while_a_person_decides_is_asked_again() -> (
    None
):
    gate = Reloaded()

    async def person(action: Action, question: str) -> Allow:
        gate.version = "denies"
        return Allow()

    result = await waiting(
        MemoryJournal(), call("erase", what="disk"), gate=gate, approver=person
    )

    assert (told(result), RAN) == (["not any more"], [])


async def test_an_approval_counts_for_its_call_alone() -> None:
    journal = MemoryJournal()
    await waiting(journal, call("erase", what="a"), call("erase", what="b"))
    await runtime(journal=journal).control("r").approve("0#1")

    result = await resumed(journal)

    assert (result.status, [q.key for q in result.pending], RAN) == (
        "waiting",
        ["0#0"],
        [],
    )
    await runtime(journal=journal).control("r").deny("0#0")
    again = await resumed(journal, "done")
    assert (told(again), RAN) == (["a person refused it", "erased b"], ["b"])


async def test_the_same_call_later_is_asked_about_again() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    await runtime(journal=journal).control("r").approve("0#0")

    result = await resumed(journal, call("erase", what="disk"))

    assert (result.status, [q.key for q in result.pending], RAN) == (
        "waiting",
        ["1#0"],
        ["disk"],
    )


async def test_an_approval_expires_and_the_question_is_asked_again() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    await runtime(journal=journal, clock=clock).control("r").approve("0#0")
    clock.advance(HOUR + 1)

    late = await resumed(journal, clock=clock)
    assert (late.status, RAN) == ("waiting", [])

    await runtime(journal=journal, clock=clock).control("r").approve("0#0")
    clock.advance(HOUR - 1)
    assert (await resumed(journal, "done", clock=clock)).answer == "done"
    assert RAN == ["disk"]


async def test_a_question_that_nobody_answered_in_time_is_a_denial() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    first = await waiting(journal, clock=clock)
    clock.advance(DAY - 1)
    again = await resumed(journal, clock=clock)
    assert (
        again.pending[0].expires
        == first.pending[0].expires
        == pytest.approx(clock.wall() + 1)
    )
    clock.advance(2)

    result = await resumed(journal, "then not", clock=clock)

    assert (told(result), RAN) == (["it was not approved in time"], [])


async def test_a_question_whose_time_is_over_cannot_be_approved_any_more() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    clock.advance(DAY + 1)

    with pytest.raises(ConfigError, match="until its time was over"):
        await runtime(journal=journal, clock=clock).control("r").approve("0#0")
    await (
        runtime(journal=journal, clock=clock)
        .control("r")
        .deny("0#0", "too late for that")
    )

    assert told(await resumed(journal, "then not", clock=clock)) == [
        "too late for that"
    ]


@pytest.mark.parametrize("seconds", [None, 600.0])
async def test_leave_that_comes_after_the_time_of_a_question_is_none(
    seconds: float | None,
) -> None:
    """From a process whose clock is slow; when it was sent, the inbox says."""
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    slow = runtime(journal=journal, clock=FakeClock()).control("r")
    clock.advance(DAY + 1)
    await slow.approve("0#0", seconds=seconds)

    result = await resumed(journal, "then not", clock=clock)

    assert (told(result), RAN) == (["it was not approved in time"], [])


@pytest.mark.parametrize("seconds", [None, 7_200.0])
async def test_leave_that_came_in_time_counts_although_the_time_of_the_question_is_over(
    seconds: float | None,
) -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    clock.advance(DAY - 1)
    await (
        runtime(journal=journal, clock=clock)
        .control("r")
        .approve("0#0", seconds=seconds)
    )
    clock.advance(HOUR - 1)

    assert ((await resumed(journal, "done", clock=clock)).answer, RAN) == (
        "done",
        ["disk"],
    )


async def test_an_approval_that_runs_out_between_decision_and_call_is_not_used() -> (
    None
):
    """The crash comes after the decision was recorded and before the call began."""

    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    await runtime(journal=journal, clock=clock).control("r").approve("0#0")
    await resumed(journal, "done", clock=clock)
    entries = journal.read("r")
    allowed = next(
        e.seq
        for e in entries
        if isinstance(e.event, GateDecided) and e.event.verdict == "allow"
    )
    RAN.clear()
    clock.advance(HOUR + 1)

    result = await resumed(crashed(entries, allowed), clock=clock)

    assert (result.status, RAN) == ("waiting", [])


async def test_leave_for_a_tool_is_for_this_run_this_tool_and_so_long() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await waiting(journal, clock=clock)
    await runtime(journal=journal, clock=clock).control("r").approve("0#0", seconds=600)

    first = await resumed(
        journal, call("erase", what="more"), call("shred", what="paper"), clock=clock
    )
    assert (RAN, [q.tool for q in first.pending]) == (["disk", "more"], ["shred"])

    await runtime(journal=journal).control("r").deny(first.pending[0].key)
    clock.advance(601)
    later = await resumed(journal, call("erase", what="again"), clock=clock)
    assert (RAN, later.status) == (["disk", "more"], "waiting")
    other = await ReActEngine(
        runtime([call("erase", what="x")], journal=journal, clock=clock)
    ).run("Go.", run_id="s")
    assert other.status == "waiting"


@tool(outbound=True, content=("text",))
async def send(to: str, text: str, cc: str = "") -> str:
    """Send a mail."""
    RAN.append(f"{to} {text} {cc}".strip())
    return "sent"


async def test_an_approval_for_a_while_is_for_the_same_destinations() -> None:
    journal = MemoryJournal()
    options: dict[str, Any] = {"tools": [send], "gate": ApprovalGate("send")}
    await waiting(journal, call("send", to="bob", text="one"), **options)
    control = runtime(journal=journal).control("r")
    await control.approve("0#0", seconds=600)

    again = [call("send", to="bob", text="two"), call("send", to="bob", text="three")]
    first = await resumed(
        journal, *again, call("send", to="eve", text="all"), **options
    )
    assert (RAN, first.status) == (["bob one", "bob two", "bob three"], "waiting")
    await control.deny(first.pending[0].key)
    # Another recipient beside the same one is another destination, too.
    second = await resumed(
        journal, call("send", to="bob", text="x", cc="eve"), **options
    )
    assert (len(RAN), second.status) == (3, "waiting")


async def test_an_approval_for_a_while_without_destinations_is_for_its_call() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    await runtime(journal=journal).control("r").approve("0#0", seconds=600)
    [sent] = journal.inbox("r")
    forged = await ReActEngine(runtime(journal=journal)).fork(
        "r", at=len(journal.read("r")), new_id="f"
    )
    body = {name: value for name, value in sent.body.items() if name != "same"}
    journal.send(forged, "approve", body)
    model = runtime(call("erase", what="more"), journal=journal)
    assert (await ReActEngine(model).resume(forged)).status == "waiting"
    assert RAN == ["disk"]


async def test_an_approval_for_a_while_of_an_undeclared_tool_is_for_equal_calls() -> (
    None
):
    @tool(effect="destructive")
    async def drop(table: str) -> str:
        """Drop a table."""
        RAN.append(table)
        return "dropped"

    journal = MemoryJournal()
    await waiting(journal, call("drop", table="a"), tools=[drop])
    await runtime(journal=journal).control("r").approve("0#0", seconds=600)
    calls = [call("drop", table="a"), call("drop", table="b")]
    result = await resumed(journal, *calls, tools=[drop])
    assert (RAN, result.status) == (["a", "a"], "waiting")


async def test_what_is_not_asked_cannot_be_approved() -> None:
    journal = MemoryJournal()
    await waiting(journal)
    control = runtime(journal=journal).control("r")

    with pytest.raises(ConfigError, match="run 'r' does not ask '7#0'; it asks '0#0'"):
        await control.approve("7#0")
    with pytest.raises(ConfigError, match="seconds: must be a number above 0"):
        await control.approve("0#0", seconds=-1)
    with pytest.raises(ConfigError, match="arguments must be a JSON object"):
        await control.approve("0#0", arguments=["disk"])  # type: ignore[arg-type]


async def test_a_copied_approval_with_another_hash_does_not_count() -> None:
    """Whoever writes into the inbox by hand has to name the arguments that the call has."""
    journal = MemoryJournal()
    await waiting(journal)
    await runtime(journal=journal).control("r").approve("0#0")
    [given] = journal.inbox("r")
    other = crashed(journal.read("r"), len(journal.read("r")))
    other.send("r", "approve", {**given.body, "arguments_hash": "0" * 64})

    assert (await resumed(other)).status == "waiting"
    assert RAN == []


async def test_a_call_that_waits_beside_one_at_work_can_be_approved_meanwhile() -> None:
    reached, go = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Hold."""
        reached.set()
        await go.wait()
        return "held"

    from loopwright import LoopEngine, Run
    from loopwright.messages import ToolCall

    class Both(LoopEngine):
        name = "both"

        async def solve(self, run: Run) -> str:
            async def one(own: Run) -> str:
                return (await own.call(ToolCall("hold", {}))).content

            async def two(own: Run) -> str:
                return (await own.call(ToolCall("erase", {"what": "disk"}))).content

            return ", ".join(await run.gather(one, two))

    journal = MemoryJournal()
    engine = Both(runtime(journal=journal, tools=[hold, erase]))
    async with engine.start("Go.", run_id="r") as run:
        await reached.wait()
        [question] = await eventually(run.questions)
        await run.approve(question.key)
        go.set()
        assert (await run.result()).status == "waiting"

    assert (await engine.resume("r")).answer == "held, erased disk"


class Answers:
    """Looks at answers too."""

    answers = True
    version = "answers-1"

    def __init__(self, decision: Decision) -> None:
        self.decision, self.seen = decision, list[Action]()

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        if action.tool != RESPOND:
            return Allow()
        self.seen.append(action)
        return self.decision


async def test_an_answer_is_shown_to_the_gates_that_want_it() -> None:
    gate = Answers(Allow())
    result = await ReActEngine(runtime("42", journal=None, gate=gate)).run("Go.")

    assert result.answer == "42"
    [action] = gate.seen
    assert (action.effect, dict(action.arguments)) == (
        "read",
        {"answer": "42", "status": "completed", "stop_reason": "answered"},
    )


async def test_an_answer_that_a_gate_denies_is_withheld() -> None:
    result = await ReActEngine(
        runtime("42", journal=None, gate=Answers(Deny("too much")))
    ).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "denied",
        None,
    )
    assert "42" not in str(result.error)
    assert str(result.error) == "the answer was withheld: too much"


async def test_an_answer_waits_for_a_person() -> None:
    journal = MemoryJournal()
    first = await ReActEngine(
        runtime("42", journal=journal, gate=Answers(Ask("send it?")))
    ).run("Go.", run_id="r")
    assert (first.status, first.answer, [q.text for q in first.pending]) == (
        "waiting",
        None,
        ["send it?"],
    )
    assert isinstance(journal.read("r")[-1].event, RunSuspended)

    await runtime(journal=journal).control("r").approve(first.pending[0].key)

    assert (await resumed(journal, gate=Answers(Ask("send it?")))).answer == "42"
