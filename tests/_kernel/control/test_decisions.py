"""What was decided about a call, an answer or an effect counts as it was recorded: once, and for exactly that."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from erase_tool import RAN, erase, react, tool_messages
from erase_tool import nothing_ran as nothing_ran
from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Decision,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyState,
    ReActEngine,
    ReplayDivergence,
    Run,
    Runtime,
    Suspend,
    Tool,
    tool,
)
from loopwright.events import GateDecided
from loopwright.gates import RESPOND, Deny, InstantGate, consultation
from loopwright.messages import hash_arguments
from loopwright.providers import Request
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed

HOUR, DAY = 3_600.0, 86_400.0


class Saying:
    """Says the same of everything that it is told of, and remembers what that was."""

    version = "saying-1"

    def __init__(
        self, says: Callable[[Action], Decision], *, answers: bool = False
    ) -> None:
        self._says, self.answers = says, answers
        self.seen: list[Action] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.seen.append(action)
        return self._says(action)


class Handing(LoopEngine):
    """Hands its task to another engine."""

    name = "handing"
    child: LoopEngine

    async def solve(self, run: Run) -> str:
        return str((await run.delegate(self.child, "do it")).answer)


def decisions(journal: MemoryJournal, run_id: str = "r") -> list[GateDecided]:
    return [
        entry.event
        for entry in journal.read(run_id)
        if isinstance(entry.event, GateDecided)
    ]


# --- answers ---


async def test_an_answer_is_decided_about_once_wherever_the_process_dies() -> None:
    whole = react(None, "42", gate=Saying(lambda action: Allow(), answers=True))
    await whole.run("Go.", run_id="r")
    entries = whole.runtime.journal.read("r")
    [decided] = decisions(whole.runtime.journal)  # type: ignore[arg-type]
    assert decided.arguments_hash == hash_arguments(
        {"answer": "42", "status": "completed", "stop_reason": "answered"}
    )
    gate = Saying(lambda action: Deny("not any more"), answers=True)

    result = await react(
        crashed(entries, cut_after(entries, "gate_decided")), gate=gate
    ).resume("r")

    assert (result.answer, gate.seen) == ("42", [])


async def test_only_gates_that_want_to_see_answers_are_asked_about_them() -> None:
    knows_tools_alone = Saying(
        lambda action: Deny("no") if action.tool == RESPOND else Allow()
    )
    reads_answers = Saying(lambda action: Allow(), answers=True)
    child = react(None, "42", gate=knows_tools_alone)
    parts = Runtime(ScriptedProvider([]), gate=reads_answers)

    assert (await Handing(parts, child=child).run("Go.")).answer == "42"
    assert [action.tool for action in reads_answers.seen] == ["delegate", RESPOND]
    assert [action.tool for action in knows_tools_alone.seen] == ["delegate"]


# --- questions ---


async def test_a_question_without_an_end_stands_for_ever() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    options: dict[str, Any] = {"clock": clock, "approver": Suspend(expires=None)}
    first = await react(journal, call("erase", what="disk"), **options).run(
        "Go.", run_id="r"
    )
    clock.advance(1_000 * DAY)
    again = await react(journal, **options).resume("r")
    await react(journal, **options).runtime.control("r").approve("0#0")

    result = await react(journal, "done", **options).resume("r")

    assert [question.expires for question in (*first.pending, *again.pending)] == [0, 0]
    assert (result.answer, RAN) == ("done", ["disk"])


async def test_leave_is_over_the_moment_it_ends() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await react(journal, call("erase", what="disk"), clock=clock).run("Go.", run_id="r")
    await react(journal, clock=clock).runtime.control("r").approve("0#0")
    clock.advance(HOUR)

    assert ((await react(journal, clock=clock).resume("r")).status, RAN) == (
        "waiting",
        [],
    )


async def test_a_question_is_over_the_moment_its_time_ends() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    await react(journal, call("erase", what="disk"), clock=clock).run("Go.", run_id="r")
    clock.advance(DAY)
    with pytest.raises(ConfigError, match="its time was over"):
        await react(journal, clock=clock).runtime.control("r").approve("0#0")

    assert tool_messages(await react(journal, "not then", clock=clock).resume("r")) == [
        "it was not approved in time"
    ]


async def test_the_question_of_a_run_that_died_shows_the_call_of_the_model() -> None:
    journal = MemoryJournal()
    result = await react(
        journal, [call("erase", what="a"), call("erase", what="b")]
    ).run("Go.", run_id="r")
    entries = journal.read("r")
    died = crashed(entries, cut_after(entries, "run_suspended") - 1)

    assert await react(died).runtime.control("r").questions() == result.pending
    assert [question.arguments for question in result.pending] == [
        {"what": "a"},
        {"what": "b"},
    ]


async def test_a_call_that_a_gate_modified_has_its_own_time_for_an_answer() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)

    def engine(what: str) -> ReActEngine:
        def says(action: Action) -> Decision:
            return (
                Ask("really?")
                if action.arguments == {"what": what}
                else Modify({"what": what}, "that, rather")
            )

        return react(journal, clock=clock, gate=Saying(says))

    first = react(
        journal,
        call("erase", what="disk"),
        clock=clock,
        gate=engine("disk").runtime.gate,
    )
    await first.run("Go.", run_id="r")
    clock.advance(DAY + 1)

    [question] = (await engine("floppy").resume("r")).pending

    assert (question.arguments, question.expires) == (
        {"what": "floppy"},
        pytest.approx(clock.wall() + DAY),
    )


@pytest.mark.parametrize(
    "times", [{"holds": 0.5}, {"expires": 0.5}, {"holds": 1e11}, {"expires": 1e11}]
)
def test_times_of_leave_may_be_short_and_long(times: dict[str, float]) -> None:
    assert vars(Suspend(**times)).items() >= times.items()


async def test_the_journal_names_the_word_that_a_decision_rests_on() -> None:
    journal = MemoryJournal()
    calls = [call("erase", what="a"), call("erase", what="b"), call("erase", what="c")]
    await react(journal, calls).run("Go.", run_id="r")
    control = react(journal).runtime.control("r")
    await control.deny("0#0", "no")
    await control.approve("0#1")
    await control.approve("0#2", arguments={"what": "d"})

    await react(journal, "done").resume("r")

    made = [event for event in decisions(journal) if event.verdict != "ask"]
    assert [(event.verdict, event.command, event.reason) for event in made] == [
        ("deny", 1, "no"),
        ("allow", 2, ""),
        ("modify", 3, "a person changed it"),
    ]


async def test_an_approval_is_not_for_the_call_once_its_tool_does_something_else() -> (
    None
):
    """The run died after the decision and before the call; meanwhile the tool was rewritten."""

    @tool(name="erase", effect="write")
    async def other(what: str) -> str:
        """Overwrite something."""
        RAN.append(f"other {what}")
        return ""

    def react_with(given: Tool, journal: Any, *script: Any) -> ReActEngine:
        return react(
            journal, *script, tools=[given], gate=Saying(lambda action: Ask("really?"))
        )

    journal = MemoryJournal()
    await react_with(erase, journal, call("erase", what="disk")).run("Go.", run_id="r")
    await react_with(erase, journal).runtime.control("r").approve("0#0")
    await react_with(erase, journal, "done").resume("r")
    RAN.clear()
    entries = journal.read("r")
    allowed = next(
        e.seq
        for e in entries
        if isinstance(e.event, GateDecided) and e.event.verdict == "allow"
    )
    died = crashed(entries, allowed)
    for word in journal.inbox("r"):
        died.send("r", word.kind, word.body)

    result = await react_with(other, died).resume("r")

    assert (result.status, RAN) == ("waiting", [])


# --- changes ---


async def test_arguments_that_no_journal_can_hold_are_none_that_a_person_gives() -> (
    None
):
    async def person(action: Action, question: str) -> Decision:
        return Modify({"what": object()}, "a thing")  # type: ignore[dict-item]

    result = await react(
        None, call("erase", what="disk"), "not then", approver=person
    ).run("Go.")

    assert (tool_messages(result), RAN) == (
        ["the policy wants arguments that are not plain JSON"],
        [],
    )


async def test_what_one_gate_does_to_defaults_no_other_sees() -> None:
    @tool(effect="read")
    async def look(at: dict[str, list[int]] = {"places": [1]}) -> str:  # noqa: B006 - a default with depth
        """Look."""
        return str(at)

    def meddles(action: Action) -> Decision:
        if action.tool == "look":
            action.defaults["at"]["places"].append(2)  # type: ignore[index, call-overload, union-attr]
            action.defaults["more"] = True
        return Allow()

    seen = Saying(lambda action: Allow())
    child = react(None, call("look"), "done", tools=[look], gate=Saying(meddles))
    result = await Handing(Runtime(ScriptedProvider([]), gate=seen), child=child).run(
        "Go."
    )
    last = Saying(lambda action: Allow())
    upside_down = react(None, call("look"), "done", tools=[look], gate=last)
    await Handing(
        Runtime(ScriptedProvider([]), gate=Saying(meddles)), child=upside_down
    ).run("Go.")

    assert result.answer == "done"
    assert [
        a.defaults for gate in (seen, last) for a in gate.seen if a.tool == "look"
    ] == [{"at": {"places": [1]}}] * 2


async def test_what_a_gate_that_only_computes_does_to_defaults_stays_in_its_call() -> (
    None
):
    @tool(effect="read")
    async def look(at: dict[str, list[int]] = {"places": [1]}) -> str:  # noqa: B006 - a default with depth
        """Look."""
        return str(at)

    class Meddling(InstantGate):
        version = "meddling-1"

        def __init__(self) -> None:
            self.seen: list[Any] = []

        def decide(self, action: Action, state: PolicyState) -> Decision:
            self.seen.append(action.defaults["at"]["places"][:])  # type: ignore[index, call-overload]
            action.defaults["at"]["places"].append(2)  # type: ignore[index, call-overload, union-attr]
            return Allow()

    gate = Meddling()
    result = await react(
        None, call("look"), call("look"), "done", tools=[look], gate=gate
    ).run("Look.")

    assert (tool_messages(result), gate.seen) == (["{'places': [1]}"] * 2, [[1], [1]])


async def test_what_an_engine_asks_for_by_the_name_of_a_tool_has_no_defaults_of_that_tool() -> (
    None
):
    @tool(name="plan", effect="read")
    async def look(depth: int = 3) -> str:
        """Look."""
        return ""

    gate = Saying(lambda action: Allow())
    await Planning(Runtime(ScriptedProvider([]), tools=[look], gate=gate)).run("Go.")

    assert [(action.tool, action.defaults) for action in gate.seen] == [
        ("plan", {}),
        ("dig", {}),
    ]


async def test_a_gate_has_the_time_that_it_says_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Saying):
        timeout = 30.0

        async def evaluate(self, action: Action, state: PolicyState) -> Decision:
            await asyncio.sleep(0.2)
            return Allow()

    monkeypatch.setattr(consultation, "GATE_TIMEOUT", 0.05)
    gate = Slow(lambda action: Allow())

    assert tool_messages(
        await react(None, call("erase", what="disk"), "done", gate=gate).run("Go.")
    ) == ["erased disk"]


@pytest.mark.parametrize(
    ("changes", "ran", "says"),
    [(1, ["disk"], "erased disk"), (9, [], "the policy keeps changing")],
)
async def test_a_call_is_decided_by_the_policy_at_the_time_of_the_answer(
    changes: int, ran: list[str], says: str
) -> None:
    gate = Saying(lambda action: Ask("really?"))

    async def person(action: Action, question: str) -> bool:
        if len(gate.seen) <= changes:
            gate.version = f"saying-{len(gate.seen) + 1}"
        return True

    engine = react(None, call("erase", what="disk"), "done", gate=gate, approver=person)
    result = await engine.run("Go.", run_id="r")

    assert (tool_messages(result), RAN) == ([says], ran)
    [decided] = decisions(engine.runtime.journal)  # type: ignore[arg-type]
    assert decided.policy_version == gate.version or not ran


# --- forks ---


async def test_a_fork_asks_again_about_a_call_that_a_person_changed() -> None:
    journal = MemoryJournal()
    await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
    await (
        react(journal).runtime.control("r").approve("0#0", arguments={"what": "floppy"})
    )
    await react(journal, "done").resume("r")
    entries = journal.read("r")
    changed = next(
        e.seq
        for e in entries
        if isinstance(e.event, GateDecided) and e.event.verdict == "modify"
    )
    RAN.clear()

    fork = await react(journal).fork("r", at=changed)
    result = await react(journal).resume(fork)

    assert (result.status, RAN) == ("waiting", [])


async def test_a_fork_hears_its_own_first_word_although_the_other_run_was_told_one() -> (
    None
):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "nothing"

    journal = MemoryJournal()
    options: dict[str, Any] = {"tools": [erase, look]}
    await react(journal, call("erase", what="disk"), **options).run("Go.", run_id="r")
    control = react(journal).runtime.control("r")
    await control.steer("be quick")
    await control.deny("0#0")
    first = ScriptedProvider([call("look"), "done"])
    await ReActEngine(
        Runtime(first, journal=journal, approver=Suspend(), **options)
    ).resume("r")
    fork = await react(journal).fork(
        "r", at=cut_after(journal.read("r"), "tool_finished", 2)
    )
    await react(journal).runtime.control(fork).steer("be slow")

    model = ScriptedProvider(["done"])
    await ReActEngine(
        Runtime(model, journal=journal, approver=Suspend(), **options)
    ).resume(fork)

    def heard(request: Request) -> list[str]:
        return [
            m.content.splitlines()[-1]
            for m in request.conversation.messages
            if m.origin == "operator"
        ]

    assert [heard(request) for request in first.requests] == [["be quick"]] * 2
    assert [heard(request) for request in model.requests] == [["be quick", "be slow"]]


class Planning(LoopEngine):
    """Has its plan permitted, and makes something of its own."""

    name = "planning"
    plan: str = "walk"

    async def solve(self, run: Run) -> str:
        await run.permit("plan", {"steps": self.plan})

        async def dig() -> str:
            RAN.append("dug")
            return "a hole"

        return await run.effect("dig", dig, into=str)


async def test_what_an_engine_had_begun_by_itself_is_not_asked_about_again_in_a_fork() -> (
    None
):
    journal = MemoryJournal()
    willing = Saying(lambda action: Allow())
    await Planning(Runtime(ScriptedProvider([]), journal=journal, gate=willing)).run(
        "Go.", run_id="r"
    )
    entries = journal.read("r")
    fork = await Planning(Runtime(ScriptedProvider([]), journal=journal)).fork(
        "r", at=cut_after(entries, "effect_started")
    )
    gate = Saying(lambda action: Deny("not here"))

    result = await Planning(
        Runtime(ScriptedProvider([]), journal=journal, gate=gate)
    ).resume(fork)

    assert (result.answer, RAN, gate.seen) == ("a hole", ["dug", "dug"], [])


async def test_another_plan_than_the_one_that_was_permitted_is_noticed_in_a_fork_too() -> (
    None
):
    journal = MemoryJournal()
    await Planning(Runtime(ScriptedProvider([]), journal=journal)).run(
        "Go.", run_id="r"
    )
    entries = journal.read("r")
    fork = await Planning(Runtime(ScriptedProvider([]), journal=journal)).fork(
        "r", at=cut_after(entries, "effect_finished")
    )

    with pytest.raises(ReplayDivergence, match="plan with other arguments"):
        await Planning(
            Runtime(ScriptedProvider([]), journal=journal), plan="fly"
        ).resume(fork)
