"""A person's word counts for the call that they were shown, while it can be given, and until they take it back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from erase_tool import RAN, erase, react, tool_messages
from erase_tool import nothing_ran as nothing_ran
from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    Entry,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyState,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    ToolError,
    Worker,
    tool,
)
from loopwright.events import CommandReceived, GateDecided
from loopwright.gates import RESPOND, InstantGate
from loopwright.journals import Command
from loopwright.messages import hash_arguments
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import Fallback, LlmRecovery
from waiting import eventually

DAY = 86_400.0


# --- what is shown is what is approved ---


class Changing(InstantGate):
    """Asks about what erases; another version of it first makes the call a larger one."""

    def __init__(self, version: str) -> None:
        self.version = version

    def decide(self, action: Action, state: object) -> Decision:
        if action.tool != "erase":
            return Allow()
        if self.version == "v2" and action.arguments != {"what": "all"}:
            return Modify({"what": "all"}, "v2")
        return Ask(f"{self.version}: erase {action.arguments['what']}?")


class Branching(LoopEngine):
    """Erases in one branch, and asks its user before it works on in the other."""

    name = "branching"

    async def solve(self, run: Run) -> str:
        async def erases(branch: Run) -> str:
            return (await branch.call(ToolCall("erase", {"what": "disk"}))).content

        async def works(branch: Run) -> str:
            await branch.ask_user("Which?")
            return (await branch.call(ToolCall("hold", {}))).content

        return " ".join(await run.gather(erases, works))


async def test_a_person_is_shown_the_call_that_they_approve_though_it_was_another_before() -> (
    None
):
    go = asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Hold."""
        await go.wait()
        return "held"

    clock = FakeClock()
    journal = MemoryJournal(clock=clock)

    def engine(version: str) -> Branching:
        options: dict[str, Any] = {
            "tools": [erase, hold],
            "journal": journal,
            "clock": clock,
            "approver": Suspend(),
        }
        return Branching(
            Runtime(ScriptedProvider([]), gate=Changing(version), **options)
        )

    first = await engine("v1").run("Go.", run_id="r")
    control = engine("v1").runtime.control("r")
    await control.answer("the blue one")
    [shown_first] = [
        question for question in first.pending if question.about == "approval"
    ]
    clock.advance(
        DAY + 1
    )  # nobody can answer that one any more; the new question is another one
    again = asyncio.ensure_future(engine("v2").resume("r"))
    await eventually(
        lambda: "v2" in {e.event.policy_version for e in decisions(journal)}
    )

    [shown] = [
        question
        for question in await control.questions()
        if question.about == "approval"
    ]
    assert (shown.text, shown.arguments) == ("v2: erase all?", {"what": "all"})
    with pytest.raises(ConfigError, match="asks about another call at "):
        await control.approve(shown_first.id)
    await control.approve(shown.id)
    go.set()
    await again

    await engine("v2").resume("r")
    assert RAN == ["all"]


def decisions(journal: MemoryJournal) -> list[Any]:
    return [
        entry for entry in journal.read("r") if isinstance(entry.event, GateDecided)
    ]


async def test_the_question_of_a_run_that_died_is_the_last_one_in_its_journal() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk"), gate=Changing("v1")).run(
        "Go.", run_id="r"
    )
    await react(journal, gate=Changing("v2")).resume("r")
    entries = journal.read("r")
    died = crashed(entries, decisions(journal)[-1].seq)

    [question] = await react(died).runtime.control("r").questions()

    assert (question.text, question.arguments) == ("v2: erase all?", {"what": "all"})


class AsksAboutAnswers(InstantGate):
    """Has a person look at answers."""

    version, answers = "answers-1", True

    def decide(self, action: Action, state: object) -> Decision:
        return Ask("give this answer?") if action.tool == RESPOND else Allow()


class Books(LoopEngine):
    """Books a seat in one branch, and holds twice in the other."""

    name = "books"

    async def solve(self, run: Run) -> str:
        async def books(branch: Run) -> str:
            return (await branch.call(ToolCall("book", {"seat": "twelve A"}))).content

        async def holds(branch: Run) -> str:
            await branch.call(ToolCall("hold", {"until": "asked"}))
            return (await branch.call(ToolCall("hold", {"until": "told"}))).content

        return " ".join(await run.gather(books, holds))


class AsksInstead(InstantGate):
    """Asks about what is done in place of a failed call."""

    version = "test-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("this instead?") if "~" in state.key else Allow()


def booking(
    recovery: Any, events: dict[str, asyncio.Event], ran: list[Any]
) -> Callable[[MemoryJournal], Books]:
    """How to make an engine whose bookings fail, which says when it has asked and holds until it is told."""

    @tool(recovery=recovery)
    async def book(seat: str) -> str:
        """Book a seat."""
        if not seat[0].isdigit():
            raise ToolError("seats are a row and a letter")
        ran.append(("book", {"seat": seat}))
        return "booked"

    @tool
    async def reserve(seat: str) -> str:
        """Reserve a seat."""
        ran.append(("reserve", {"seat": seat}))
        return "reserved"

    @tool(effect="read")
    async def hold(until: str) -> str:
        """Hold."""
        await events[until].wait()
        return "held"

    def see(entry: Entry) -> None:
        if isinstance(entry.event, GateDecided) and entry.event.verdict == "ask":
            events["asked"].set()

    def engine(journal: MemoryJournal) -> Books:
        options: dict[str, Any] = {
            "gate": AsksInstead(),
            "approver": Suspend(),
            "journal": journal,
            "observers": [see],
        }
        model = ScriptedProvider(lambda _: '{"arguments": {"seat": "12A"}}')
        return Books(Runtime(model, tools=[book, reserve, hold], **options))

    return engine


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(
    ("recovery", "instead", "arguments"),
    [
        (LlmRecovery(), "book", {"seat": "12A"}),
        (Fallback("reserve"), "reserve", {"seat": "twelve A"}),
    ],
)
async def test_what_would_be_done_in_place_of_a_failed_call_is_shown_and_then_done(
    recovery: Any, instead: str, arguments: Any, dies: bool
) -> None:
    events, ran = {"asked": asyncio.Event(), "told": asyncio.Event()}, list[Any]()
    engine = booking(recovery, events, ran)
    journal = MemoryJournal()
    work = asyncio.ensure_future(engine(journal).run("Go.", run_id="r"))
    await eventually(
        lambda: (
            journal.runs()
            and any(known.event.verdict == "ask" for known in decisions(journal))
        )
    )
    if dies:
        work.cancel()
        await asyncio.wait({work})
        entries = journal.read("r")
        journal = crashed(entries, len(entries) - 1)
    control = engine(journal).runtime.control("r")
    [shown] = await control.questions()
    await control.approve(shown.id)
    events["told"].set()
    if not dies:
        await work
    await engine(journal).resume("r")

    assert (shown.tool, shown.arguments) == (instead, arguments)
    assert hash_arguments(shown.arguments) == shown.arguments_hash
    assert ran == [(instead, arguments)]


async def test_what_a_run_has_gone_past_is_not_asked_any_more_and_keeps_no_worker_busy() -> (
    None
):
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    options: dict[str, Any] = {"gate": AsksAboutAnswers(), "clock": clock, "lease": 30}
    await react(journal, "42", **options).run("Go.", run_id="r")
    control = react(journal, **options).runtime.control("r")
    await control.follow_up("Ask me which year I mean.")
    await react(journal, call("ask_user", question="Which year?"), **options).resume(
        "r"
    )

    assert [question.text for question in await control.questions()] == ["Which year?"]
    with pytest.raises(ConfigError, match="does not ask 'respond:'"):
        await control.approve("respond:")
    clock.advance(DAY + 1)
    assert await Worker(react(journal, **options).runtime).drain() == []


# --- in time ---


@pytest.mark.parametrize("seconds", [None, 10 * DAY])
async def test_leave_that_is_given_too_late_is_refused_and_is_none_for_later_calls_either(
    seconds: float | None,
) -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await react(journal, call("erase", what="a"), clock=clock).run("Go.", run_id="r")
    clock.advance(DAY + 1)
    slow = react(journal, clock=FakeClock()).runtime.control(
        "r"
    )  # of a process whose clock is behind
    await slow.approve("0#0", seconds=seconds)

    result = await react(journal, call("erase", what="b"), clock=clock).resume("r")

    assert (result.status, [question.key for question in result.pending], RAN) == (
        "waiting",
        ["1#0"],
        [],
    )
    [heard] = [
        entry.event
        for entry in journal.read("r")
        if isinstance(entry.event, CommandReceived)
    ]
    assert heard.refused == "the time of its question was over"


async def test_a_question_that_is_asked_in_this_life_cannot_be_approved_late_in_it_either() -> (
    None
):
    go = asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Hold."""
        await go.wait()
        return "held"

    class Two(LoopEngine):
        """Erases in one branch, and later, in the other, again."""

        name = "two"

        async def solve(self, run: Run) -> str:
            async def erases(branch: Run) -> str:
                return (await branch.call(ToolCall("erase", {"what": "a"}))).content

            async def later(branch: Run) -> str:
                await branch.call(ToolCall("hold", {}))
                return (await branch.call(ToolCall("erase", {"what": "b"}))).content

            return " ".join(await run.gather(erases, later))

    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    options: dict[str, Any] = {
        "tools": [erase, hold],
        "journal": journal,
        "clock": clock,
    }
    engine = Two(Runtime(ScriptedProvider([]), approver=Suspend(), **options))
    slow = Runtime(
        ScriptedProvider([]), tools=[erase, hold], journal=journal, clock=FakeClock()
    ).control("r")
    async with engine.start("Go.", run_id="r") as run:
        await eventually(lambda: bool(journal.runs() and decisions(journal)))
        clock.advance(DAY + 1)
        await slow.approve("0.0.0#0", seconds=10 * DAY)
        await eventually(
            lambda: any(
                isinstance(entry.event, CommandReceived) for entry in journal.read("r")
            )
        )
        go.set()
        result = await run.result()

    assert ([question.key for question in result.pending], RAN) == (
        ["0.0.0#0", "0.1.1#0"],
        [],
    )


@pytest.mark.parametrize(
    "times", [{"holds": 1e12}, {"expires": 1e12}, {"expires": float("inf")}]
)
def test_leave_is_for_a_time_that_a_calendar_has(times: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"at most 1e\+11"):
        Suspend(**times)


async def test_a_fork_of_a_question_whose_time_is_over_asks_it_anew() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await react(journal, call("erase", what="a"), clock=clock).run("Go.", run_id="r")
    clock.advance(DAY + 1)
    fork = await react(journal, clock=clock).fork("r", at=decisions(journal)[0].seq)

    result = await react(journal, clock=clock).resume(fork)

    assert [question.expires for question in result.pending] == [
        pytest.approx(clock.wall() + DAY)
    ]
    await (
        react(journal, clock=clock).runtime.control(fork).approve(result.pending[0].id)
    )
    assert (await react(journal, "done", clock=clock).resume(fork)).answer == "done"


@pytest.mark.parametrize("expires", [DAY, None])
async def test_a_fork_of_a_question_that_can_be_answered_can_be_answered_at_once(
    expires: float | None,
) -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    options: dict[str, Any] = {"clock": clock, "approver": Suspend(expires=expires)}
    await react(journal, call("erase", what="a"), **options).run("Go.", run_id="r")
    clock.advance(DAY - 1)
    fork = await react(journal, **options).fork("r", at=decisions(journal)[0].seq)
    control = react(journal, **options).runtime.control(fork)

    [question] = await control.questions()
    await control.approve(question.id)

    assert ((await react(journal, "done", **options).resume(fork)).answer, RAN) == (
        "done",
        ["a"],
    )


# --- revoked ---


async def two_calls(journal: Any, **options: Any) -> None:
    """A run that waits for leave to erase a and b."""
    await react(
        journal, [call("erase", what="a"), call("erase", what="b")], **options
    ).run("Go.", run_id="r")


@pytest.mark.parametrize("arguments", [None, {"what": "c"}])
async def test_a_call_that_was_approved_can_be_denied_until_it_begins(
    arguments: Any,
) -> None:
    journal = MemoryJournal()
    await two_calls(journal)
    control = react(journal).runtime.control("r")
    await control.approve("0#0", arguments=arguments)
    await react(journal).resume(
        "r"
    )  # the decision is written, and its neighbour still waits
    await control.deny("0#0", "on second thoughts")
    await control.approve("0#1")

    result = await react(journal, "done").resume("r")

    assert (tool_messages(result), RAN) == (["on second thoughts", "erased b"], ["b"])
    [no] = [
        entry.event for entry in decisions(journal) if entry.event.verdict == "deny"
    ]
    assert no.command == 2
    again = await react(
        crashed(journal.read("r"), journal.read("r")[-1].seq - 1), "done"
    ).resume("r")
    assert tool_messages(again) == tool_messages(result)


async def test_what_has_begun_cannot_be_denied_any_more() -> None:
    journal = MemoryJournal()
    first = await react(journal, call("erase", what="a")).run("Go.", run_id="r")
    control = react(journal).runtime.control("r")
    await control.approve(first.pending[0].id)
    died = await decided_and_died(journal, after="tool_started")
    with pytest.raises(ConfigError, match="does not ask"):
        await react(died).runtime.control("r").deny("0#0")
    given = {
        name: value
        for name, value in journal.inbox("r")[0].body.items()
        if name != "by"
    }
    died.send("r", "deny", {**given, "reason": "too late"})

    result = await react(died, "then so").resume("r")

    assert [
        text.partition(",")[0].partition(" and")[0] for text in tool_messages(result)
    ] == ["This call was interrupted"]


async def decided_and_died(
    journal: MemoryJournal, *, after: str = "gate_decided"
) -> MemoryJournal:
    """Its run, resumed and killed right after the last entry of a kind, with all that it was told."""
    await react(journal, "done").resume("r")
    RAN.clear()
    entries = journal.read("r")
    died = crashed(entries, max(entry.seq for entry in entries if entry.kind == after))
    for word in journal.inbox("r"):
        died.send("r", word.kind, word.body)
    return died


@pytest.mark.parametrize("how", [{"arguments": {"what": "c"}}, {"seconds": 600}])
async def test_a_modified_or_preapproved_call_can_be_denied_by_the_arguments_shown(
    how: dict[str, Any],
) -> None:
    journal = MemoryJournal()
    first = await react(journal, call("erase", what="a")).run("Go.", run_id="r")
    await react(journal).runtime.control("r").approve(first.pending[0].id, **how)
    died = await decided_and_died(journal)
    await react(died).runtime.control("r").deny(first.pending[0].id, "no")

    assert (tool_messages(await react(died, "then not").resume("r")), RAN) == (
        ["no"],
        [],
    )


async def test_a_call_that_a_timed_approval_allowed_can_be_denied_without_a_question() -> (
    None
):
    journal = MemoryJournal()
    await react(journal, call("erase", what="a")).run("Go.", run_id="r")
    await react(journal).runtime.control("r").approve("0#0", seconds=600)
    await react(journal, call("erase", what="b"), "done").resume("r")
    entries = journal.read("r")
    RAN.clear()
    died = crashed(entries, next(e.seq for e in entries if e.key == "1#0"))
    for word in journal.inbox("r"):
        died.send("r", word.kind, word.body)
    await react(died).runtime.control("r").deny("1#0", "not that")

    assert (tool_messages(await react(died, "then not").resume("r"))[-1], RAN) == (
        "not that",
        [],
    )


async def test_a_used_approval_is_asked_for_again_after_an_unreadable_denial() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="a")).run("Go.", run_id="r")
    await react(journal).runtime.control("r").approve("0#0")
    died = await decided_and_died(journal)
    died.send("r", "deny", {"key": "0#0"})

    result = await react(died).resume("r")

    assert ([question.key for question in result.pending], RAN) == (["0#0"], [])


async def test_a_denied_call_has_no_intent_so_that_no_crash_makes_it_a_call_that_has_begun() -> (
    None
):
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(name="erase", effect="idempotent", max_concurrency=1)
    async def one_at_a_time(what: str) -> str:
        """Erase something."""
        RAN.append(what)
        begun.set()
        await go.wait()
        return f"erased {what}"

    class Asks(InstantGate):
        version = "asks-1"

        def decide(self, action: Action, state: object) -> Decision:
            return Ask("really?")

    journal = MemoryJournal()
    options: dict[str, Any] = {"tools": [one_at_a_time], "gate": Asks()}
    await two_calls(journal, **options)
    control = react(journal, **options).runtime.control("r")
    await control.approve("0#0")
    await control.approve("0#1")
    resuming = asyncio.ensure_future(react(journal, "done", **options).resume("r"))
    await asyncio.wait_for(begun.wait(), 60)
    denied = {"a": "0#1", "b": "0#0"}[RAN[0]]
    await control.deny(denied, "not that one")
    await eventually(lambda: heard(journal)[-1].kind == "deny")
    go.set()
    await resuming
    RAN.clear()

    assert [e.kind for e in journal.read("r") if e.key == denied][-2:] == [
        "gate_decided",
        "tool_finished",
    ]
    entries = journal.read("r")
    for at in range(
        next(e.seq for e in entries if e.kind == "tool_started"), len(entries)
    ):
        died = crashed(entries, at)
        for word in journal.inbox("r"):
            died.send("r", word.kind, word.body)
        await react(died, "done", **options).resume("r")
        assert {"0#0": "a", "0#1": "b"}[denied] not in RAN, at


async def test_leave_for_a_while_that_was_taken_back_makes_no_call_that_has_not_begun() -> (
    None
):
    journal = MemoryJournal()
    await two_calls(journal)
    control = react(journal).runtime.control("r")
    await control.approve("0#0", seconds=600)
    entries = await allowed_and_died(journal)
    died = crashed(entries, entries[-1].seq)
    for word in journal.inbox("r"):
        died.send("r", word.kind, word.body)
    [asked] = [
        entry
        for entry in entries
        if entry.key == "0#1" and entry.event.verdict == "ask"
    ][:1]
    body = dict(journal.inbox("r")[0].body) | {
        "key": "0#1",
        "question": asked.seq,
        "reason": "stop that",
    }
    died.send(
        "r",
        "deny",
        {key: value for key, value in body.items() if key not in ("seconds", "by")},
    )

    result = await react(died, "then not").resume("r")

    assert (tool_messages(result), RAN) == (["erased a", "stop that"], ["a"])


async def allowed_and_died(journal: MemoryJournal) -> list[Any]:
    """The entries up to the decisions to make both calls, of a run that was then killed."""
    await react(journal, "done").resume("r")
    RAN.clear()
    last = [entry.seq for entry in decisions(journal)][-1]
    return [entry for entry in journal.read("r") if entry.seq <= last]


async def test_leave_that_is_taken_back_while_the_call_waits_for_its_turn_is_not_used() -> (
    None
):
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(name="erase", effect="destructive", max_concurrency=1)
    async def one_at_a_time(what: str) -> str:
        """Erase something."""
        RAN.append(what)
        begun.set()
        await go.wait()
        return f"erased {what}"

    journal = MemoryJournal()
    await two_calls(journal, tools=[one_at_a_time])
    control = react(journal).runtime.control("r")
    await control.approve("0#0")
    await control.approve("0#1")
    engine = react(journal, "done", tools=[one_at_a_time])
    resuming = asyncio.ensure_future(engine.resume("r"))
    await asyncio.wait_for(begun.wait(), 60)
    waits = {"a": "0#1", "b": "0#0"}[RAN[0]]
    await control.deny(waits, "not that one")
    await eventually(lambda: heard(journal)[-1].kind == "deny")
    go.set()

    result = await resuming

    assert len(RAN) == 1
    assert sum("was revoked" in text for text in tool_messages(result)) == 1


def heard(journal: MemoryJournal) -> list[Command]:
    found = [
        entry.event
        for entry in journal.read("r")
        if isinstance(entry.event, CommandReceived)
    ]
    return [
        Command(event.number, "r", event.sent, event.command, event.body)
        for event in found
    ]
