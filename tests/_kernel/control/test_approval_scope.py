"""How far leave reaches: for the run that has it, for the question that was asked, and no longer than anybody meant."""

import asyncio
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    Deny,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyState,
    ReActEngine,
    Result,
    Run,
    Runtime,
    Suspend,
    Tool,
    ToolCall,
    tool,
)
from loopwright.errors import UnknownRun
from loopwright.events import Entry, GateDecided
from loopwright.gates import AllOf, ApprovalGate, Condition, InstantGate, Rule, RuleGate
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import CallNotExecuted
from sample_tools import RAN
from waiting import eventually

HOUR = 3_600.0


@tool(effect="destructive", content=("what", "kind"))
async def erase(what: str, kind: str = "quick") -> str:
    """Erase something."""
    RAN.append(what)
    return f"erased {what}"


def react(journal: Any, *script: Any, **options: Any) -> ReActEngine:
    given: dict[str, Any] = {"approver": Suspend(), "tools": [erase], **options}
    return ReActEngine(Runtime(ScriptedProvider(script), journal=journal, **given))


async def approved(
    journal: Any,
    key: str = "0#0",
    run_id: str = "r",
    clock: FakeClock | None = None,
    **options: Any,
) -> None:
    await react(journal, clock=clock).runtime.control(run_id).approve(key, **options)


class Asks(InstantGate):
    """Asks about everything, under any version."""

    def __init__(self, version: str = "asks-1") -> None:
        self.version = version

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Allow() if action.tool == "delegate" else Ask(f"{action.tool}?")


class SandboxRoot(InstantGate):
    """Puts what is to be erased below a folder."""

    version = "rooted-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        what = str(action.arguments.get("what", "safe/"))
        return (
            Allow()
            if what.startswith("safe/")
            else Modify({"what": f"safe/{what}"}, "rooted")
        )


class Repeats(InstantGate):
    """Gives back the arguments that it was shown as if they were others."""

    version = "repeats-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Modify(dict(action.arguments), "the same")


class Handing(LoopEngine):
    """Hands its task to another engine."""

    name = "handing"
    child: LoopEngine

    async def solve(self, run: Run) -> str:
        return str((await run.delegate(self.child, "erase it")).answer)


# --- of one run ---


@pytest.mark.parametrize("inline", [False, True])
async def test_a_fork_asks_again_for_approved_calls_that_had_not_begun(
    inline: bool,
) -> None:
    asked: list[str] = []

    async def person(action: Action, question: str) -> bool:
        asked.append(question)
        return True

    journal = MemoryJournal()
    options: dict[str, Any] = {"approver": person} if inline else {}
    if inline:
        await react(journal, call("erase", what="disk"), "done", **options).run(
            "Go.", run_id="r"
        )
    else:
        await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
        await approved(journal)
        await react(journal, "done").resume("r")
    assert RAN == ["disk"]
    entries = journal.read("r")
    allowed = max(e.seq for e in entries if isinstance(e.event, GateDecided))
    engine = react(journal, "done", **options)
    forked = await engine.fork("r", at=allowed)

    result = await engine.resume(forked)

    assert (result.status, len(asked)) == (
        ("completed", 2) if inline else ("waiting", 0)
    )
    assert len(RAN) == (2 if inline else 1)


async def test_what_the_other_run_had_begun_is_not_asked_about_again_in_a_fork() -> (
    None
):
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    await approved(journal)
    await react(journal, "done").resume("r")
    engine = react(journal, "done")

    result = await engine.resume(
        await engine.fork("r", at=cut_after(journal.read("r"), "tool_finished"))
    )

    assert (result.status, RAN) == ("completed", ["disk"])


async def test_a_policy_that_is_restored_does_not_restore_its_approvals() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk"), gate=Asks("v1")).run(
        "Go.", run_id="r"
    )
    await approved(journal)
    for version in ("v2", "v1", "v1"):
        result = await react(journal, "done", gate=Asks(version)).resume("r")
        assert (result.status, RAN) == ("waiting", [])

    await approved(journal)
    assert (
        await react(journal, "done", gate=Asks("v1")).resume("r")
    ).status == "completed"


async def test_a_question_that_is_asked_on_is_no_new_one() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    await approved(journal)
    body = journal.inbox("r")[0].body
    again = MemoryJournal()
    crashed(journal.read("r"), len(journal.read("r")), again)
    for _ in range(3):  # resumed before anybody has decided
        assert (await react(again).resume("r")).status == "waiting"
    again.send("r", "approve", body)

    assert (await react(again, "done").resume("r")).status == "completed"
    assert RAN == ["disk"]


# --- no longer than anybody meant ---


async def test_of_two_guards_the_leave_that_ends_first_counts() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)

    def handing(*script: Any) -> Handing:
        child = react(
            journal,
            *script,
            gate=Asks("child"),
            approver=Suspend(holds=10),
            clock=clock,
        )
        parts = Runtime(
            ScriptedProvider([]),
            gate=Asks("parent"),
            approver=Suspend(holds=HOUR),
            journal=journal,
            clock=clock,
        )
        return Handing(parts, child=child)

    waiting = await handing(call("erase", what="disk")).run("Go.", run_id="r")
    await approved(journal, waiting.pending[0].key, clock=clock)
    await react(journal).runtime.control("r").pause()
    going_on = asyncio.ensure_future(handing("done").resume("r"))
    await eventually(lambda: any(e.kind == "run_paused" for e in journal.read("r")))
    clock.advance(60)
    await react(journal).runtime.control("r").unpause()
    result = await going_on

    decided = [
        e.event
        for e in journal.read("r")
        if isinstance(e.event, GateDecided) and e.event.verdict == "allow"
    ]
    assert [
        event.until - journal.inbox("r")[0].at
        for event in decided
        if event.tool == "erase"
    ] == [10]
    assert (result.status, RAN) == ("completed", [])


async def test_leave_that_ran_out_makes_no_call_that_its_tool_says_was_not_made() -> (
    None
):
    clock = FakeClock()

    async def look(ctx: object) -> CallNotExecuted:
        return CallNotExecuted()

    @tool(effect="destructive", lookup=look)
    async def wipe(what: str) -> str:
        """Wipe."""
        RAN.append(what)
        return "wiped"

    journal = MemoryJournal(clock=clock)
    options: dict[str, Any] = {"tools": [wipe], "clock": clock}
    await react(journal, call("wipe", what="disk"), **options).run("Go.", run_id="r")
    await approved(journal, clock=clock)
    await react(journal, "done", **options).resume("r")
    RAN.clear()
    died = MemoryJournal(clock=clock)
    crashed(journal.read("r"), cut_after(journal.read("r"), "tool_started"), died)
    clock.advance(HOUR + 1)

    result = await react(died, "then not", **options).resume("r")

    [observation] = [
        m.content for m in result.conversation.messages if m.role == "tool"
    ]
    assert (result.answer, RAN) == ("then not", [])
    assert observation.endswith("the approval of wipe has expired")


async def test_a_denial_takes_back_what_was_allowed_for_a_while() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="a")).run("Go.", run_id="r")
    await approved(journal, seconds=600)
    await react(journal).runtime.control("r").deny("0#0", "no, stop that")

    result = await react(journal, call("erase", what="b")).resume("r")

    assert (result.status, [question.key for question in result.pending], RAN) == (
        "waiting",
        ["1#0"],
        [],
    )


@pytest.mark.parametrize("seconds", [10**400, 0, -1, float("nan"), float("inf")])
async def test_seconds_that_are_none_are_refused(seconds: float) -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="a")).run("Go.", run_id="r")

    with pytest.raises(ConfigError, match="seconds: must be a number above 0"):
        await approved(journal, seconds=seconds)


# --- of that call, as it would be made ---


@pytest.mark.parametrize("inline", [False, True])
async def test_a_person_is_asked_about_the_call_as_a_gate_has_changed_it(
    inline: bool,
) -> None:
    shown: list[dict[str, Any]] = []

    async def person(action: Action, question: str) -> bool:
        shown.append(dict(action.arguments))
        return True

    journal = MemoryJournal()

    def handing(*script: Any) -> Handing:
        child = react(journal, *script, gate=SandboxRoot())
        parts = Runtime(
            ScriptedProvider([]),
            gate=Asks(),
            approver=person if inline else Suspend(),
            journal=journal,
        )
        return Handing(parts, child=child)

    engine = (
        handing(call("erase", what="disk"), "done")
        if inline
        else handing(call("erase", what="disk"))
    )
    result: Result = await engine.run("Go.", run_id="r")
    if not inline:
        [question] = result.pending
        shown.append(dict(question.arguments))
        await approved(journal, question.key)
        result = await handing("done").resume("r")

    assert (result.status, RAN) == ("completed", ["safe/disk"])
    assert [arguments["what"] for arguments in shown] == ["safe/disk"]


@pytest.mark.parametrize("together", [False, True])
async def test_a_change_that_is_none_does_not_take_the_place_of_a_question(
    together: bool,
) -> None:
    journal = MemoryJournal()
    if together:
        engine: LoopEngine = react(
            journal, call("erase", what="disk"), gate=AllOf(Repeats(), Asks())
        )
    else:
        child = react(journal, call("erase", what="disk"), gate=Repeats())
        engine = Handing(
            Runtime(
                ScriptedProvider([]), gate=Asks(), approver=Suspend(), journal=journal
            ),
            child=child,
        )

    result = await engine.run("Go.", run_id="r")

    assert (result.status, RAN) == ("waiting", [])


class NothingQuick(InstantGate):
    """Refuses what is quick."""

    version = "slow-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Deny("not so quick") if action.filled["kind"] == "quick" else Allow()


QUICK = Rule(
    name="quick",
    tools=["erase"],
    when=[Condition(argument="/kind", equals="quick")],
    then="deny",
    reason="not so quick",
)
REST = Rule(name="rest", then="allow")


@pytest.mark.parametrize("gate", [NothingQuick(), RuleGate([QUICK, REST])])
async def test_gates_see_what_a_tool_fills_in_for_arguments_that_were_left_out(
    gate: InstantGate,
) -> None:
    script = [call("erase", what="a"), call("erase", what="b", kind="slow"), "done"]
    result = await react(MemoryJournal(), *script, gate=gate).run("Go.", run_id="r")

    told = [m.content for m in result.conversation.messages if m.role == "tool"]
    assert (told[0].endswith("not so quick"), told[1], RAN) == (True, "erased b", ["b"])


def with_effect(effect: Any) -> Tool:
    @tool(effect=effect)
    async def look(what: str) -> str:
        """Look."""
        RAN.append(f"{effect} {what}")
        return "seen"

    return look


async def test_what_was_allowed_as_a_read_is_asked_about_once_it_destroys() -> None:
    journal = MemoryJournal()
    await react(
        journal, call("look", what="x"), "done", tools=[with_effect("read")]
    ).run("Go.", run_id="r")
    RAN.clear()
    died = crashed(journal.read("r"), cut_after(journal.read("r"), "gate_decided"))

    result = await react(died, "done", tools=[with_effect("destructive")]).resume("r")

    assert (result.status, RAN) == ("waiting", [])


async def test_a_gate_that_changes_what_it_is_shown_changes_nothing_else() -> None:
    seen: list[Any] = []

    class Careless:
        version = "careless-1"

        async def evaluate(self, action: Action, state: PolicyState) -> Decision:
            seen.append([dict(action.filled), action.defaults["tags"]])
            action.defaults["tags"].append("x")  # type: ignore[union-attr]
            return Allow()

    @tool(effect="read")
    async def look(what: str, tags: list[str] = ["safe"]) -> str:  # noqa: B006 - so that there is a default to change
        """Look."""
        return str(tags)

    script = [call("look", what="a"), call("look", what="b"), "done"]
    await react(
        MemoryJournal(), *script, tools=[look], gate=AllOf(Careless(), Careless())
    ).run("Go.")

    assert [tags for _, tags in seen] == [
        ["safe", "x"]
    ] * 4  # each saw one of its own, and put one more into it
    assert look.defaults == {"tags": ["safe"]}


# --- shown to whoever decides ---


def entries_of(journal: MemoryJournal) -> list[Entry]:
    """The entries of the run, once the journal has it."""
    try:
        return journal.read("r")
    except UnknownRun:
        return []


class Branching(LoopEngine):
    """Makes a call in one branch, while another is at work."""

    name = "branching"

    async def solve(self, run: Run) -> str:
        async def erases(branch: Run) -> str:
            return (await branch.call(ToolCall("erase", {"what": "disk"}))).content

        async def waits(branch: Run) -> str:
            return (await branch.call(ToolCall("hold", {}))).content

        return " ".join(await run.gather(erases, waits))


async def test_a_question_shows_what_is_asked_about_wherever_its_run_is() -> None:
    go = asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Hold."""
        await go.wait()
        return "held"

    journal = MemoryJournal()
    runtime = Runtime(
        ScriptedProvider([]), tools=[erase, hold], journal=journal, approver=Suspend()
    )
    async with Branching(runtime).start("Go.", run_id="r") as run:
        await eventually(
            lambda: any(entry.kind == "gate_decided" for entry in entries_of(journal))
        )
        [question] = await runtime.control("r").questions()
        assert (question.tool, question.arguments) == ("erase", {"what": "disk"})
        go.set()
        result = await run.result()
    died = crashed(
        journal.read("r"), cut_after(journal.read("r"), "run_suspended") - 1
    )  # before it was told
    parts = Runtime(ScriptedProvider([]), journal=died)
    assert await parts.control("r").questions() == result.pending


class Planning(LoopEngine):
    """Has a plan approved."""

    name = "planning"

    async def solve(self, run: Run) -> str:
        await run.permit("approve_plan", {"plan": "erase everything"})
        return "approved"


async def test_what_is_no_call_is_shown_too() -> None:
    journal = MemoryJournal()
    engine = Planning(
        Runtime(ScriptedProvider([]), gate=Asks(), approver=Suspend(), journal=journal)
    )
    await engine.run("Go.", run_id="r")
    entries = journal.read("r")
    died = crashed(entries, cut_after(entries, "gate_decided"))

    [question] = (
        await Runtime(ScriptedProvider([]), journal=died).control("r").questions()
    )

    assert (question.tool, question.arguments) == (
        "approve_plan",
        {"plan": "erase everything"},
    )


async def test_leave_without_the_question_that_it_answers_is_none() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    await approved(journal)
    [given] = journal.inbox("r")
    other = MemoryJournal()
    crashed(journal.read("r"), len(journal.read("r")), other)
    other.send(
        "r",
        "approve",
        {name: value for name, value in given.body.items() if name != "question"},
    )
    other.send("r", "approve", {**given.body, "question": 1})

    result = await react(other, "done").resume("r")

    assert (result.status, RAN) == ("waiting", [])


@pytest.mark.parametrize(("kind", "body", "status"), [
    ("deny", {"key": "0#0"}, "waiting"),
    ("damaged", {}, "waiting"),
    ("steer", {}, "completed"),
])  # fmt: skip
@pytest.mark.parametrize("seconds", [None, 600.0])
async def test_a_command_that_cannot_be_read_may_have_taken_leave_back(
    kind: str, body: dict[str, Any], status: str, seconds: float | None
) -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    await approved(journal, seconds=seconds)
    journal.send("r", kind, body)

    result = await react(journal, "done").resume("r")
    again = await react(journal, "done").resume("r")  # it is remembered

    assert (result.status, again.status) == (status, status)
    assert (["disk"] if status == "completed" else []) == RAN


@pytest.mark.parametrize("scope", ["run", "thread"])
async def test_an_approval_for_a_time_covers_no_call_that_leaves_its_destination_out(
    scope: Any,
) -> None:
    sent: list[str] = []

    @tool(destinations=("to",), content=("text", "note"))
    def mail(text: str, to: str = "everybody@x.org", note: str = "") -> str:
        """Send a mail."""
        sent.append(f"{to}: {text}")
        return "sent"

    script = [call("mail", to="ada@x.org", text="one", note="n"), "Sent."]
    script += [call("mail", to="ada@x.org", text="two"), call("mail", text="three")]
    if scope == "run":
        del script[1]
    engine = react(MemoryJournal(), *script, tools=[mail], gate=ApprovalGate(["mail"]))
    thread = engine.runtime.agent("clerk").thread("t")
    waiting = await thread.run("Write.")
    await engine.runtime.control(waiting.run_id).approve(
        waiting.pending[0].id, seconds=HOUR, scope=scope
    )
    result = await thread.resume()
    if scope == "thread":
        result = await thread.run("Write again.")

    assert [one.arguments for one in result.pending] == [{"text": "three"}]
    assert sent == ["ada@x.org: one", "ada@x.org: two"]
