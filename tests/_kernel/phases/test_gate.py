"""The policy gate: nothing runs that it did not allow, and what is not a decision is a refusal."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import tool_messages
from loopwright import (
    Action,
    Allow,
    AllowAll,
    Ask,
    ConfigError,
    Deny,
    DenyAll,
    Limits,
    LoopEngine,
    MemoryJournal,
    Modify,
    Permit,
    Question,
    ReActEngine,
    Result,
    Run,
    Runtime,
    Suspend,
    tool,
)
from loopwright._kernel.phases.gate import policy_version
from loopwright.errors import Denied, JournalError
from loopwright.events import (
    Entry,
    GateDecided,
    RunSuspended,
    ToolFinished,
    ToolStarted,
)
from loopwright.gates import (
    Decision,
    DefaultGate,
    Denial,
    InstantGate,
    PolicyGate,
    PolicyState,
)
from loopwright.journals import Claim
from loopwright.messages import hash_arguments
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    RAN.append(f"look {what}")
    return f"{what} is blue"


@tool(effect="idempotent")
async def put(what: str) -> str:
    """Put something somewhere."""
    RAN.append(f"put {what}")
    return "put"


@tool
async def send(what: str) -> str:
    """Send something."""
    RAN.append(f"send {what}")
    return "sent"


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase something."""
    RAN.append(f"erase {what}")
    return "erased"


TOOLS = (look, put, send, erase)


class Gate:
    """A gate that does what a function says, and remembers what it was asked."""

    def __init__(self, decide: Callable[[Action], Any]) -> None:
        self.decide = decide
        self.seen: list[Action] = []
        self.states: list[PolicyState] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        self.seen.append(action)
        self.states.append(state)
        decision = self.decide(action)
        return await decision if isinstance(decision, Awaitable) else decision


class FailingJournal(MemoryJournal):
    """A journal whose n-th barrier, and all after it unless it recovers, fail as on a full disk."""

    def __init__(self, failing: int, *, recovers: bool = False) -> None:
        super().__init__()
        self.failing, self.recovers, self.barriers = failing, recovers, 0

    async def barrier(self, claim: Claim) -> None:
        self.barriers += 1
        if self.barriers == self.failing or (
            self.barriers > self.failing and not self.recovers
        ):
            raise JournalError("the disk is full")
        await super().barrier(claim)


def decisions(runtime: Runtime, result: Result) -> list[tuple[str, str, str]]:
    """Tool, verdict and reason of each recorded decision."""
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [(e.tool, e.verdict, e.reason) for e in events if isinstance(e, GateDecided)]


def asking(*calls: Any, answer: str = "done") -> ScriptedProvider:
    return ScriptedProvider([*calls, answer])


# --- the default gate, AllowAll, DenyAll ---


@pytest.mark.parametrize("wanted", ["look", "put", "send"])
async def test_reads_idempotent_and_write_tools_run_without_a_question(
    wanted: str,
) -> None:
    runtime = Runtime(asking(call(wanted, what="sky")), tools=TOOLS)

    result = await ReActEngine(runtime).run("Do it.")

    assert (result.status, RAN) == ("completed", [f"{wanted} sky"])
    assert decisions(runtime, result) == [(wanted, "allow", "")]


async def test_a_destructive_tool_without_an_approver_is_denied_with_the_remedy() -> (
    None
):
    runtime = Runtime(
        asking(call("erase", what="disk"), answer="I may not."), tools=TOOLS
    )

    result = await ReActEngine(runtime).run("Erase the disk.")

    assert (result.status, result.answer, RAN) == ("completed", "I may not.", [])
    assert tool_messages(result) == [
        "erase was not run: it needs a person's approval and the runtime has no approver (allow it with "
        "Runtime(approver=...), or wait for a decision with Runtime(approver=Suspend()))"
    ]


async def test_allow_all_lets_a_destructive_tool_run() -> None:
    result = await ReActEngine(
        Runtime(asking(call("erase", what="disk")), tools=TOOLS, gate=AllowAll())
    ).run("Go.")

    assert (result.status, RAN, tool_messages(result)) == (
        "completed",
        ["erase disk"],
        ["erased"],
    )


async def test_deny_all_denies_a_read_and_the_model_goes_on_from_the_denial() -> None:
    provider = asking(call("look", what="sky"), answer="I cannot look.")
    result = await ReActEngine(Runtime(provider, tools=TOOLS, gate=DenyAll())).run(
        "Go."
    )

    assert (result.answer, RAN, tool_messages(result)) == (
        "I cannot look.",
        [],
        ["no tool may run here"],
    )
    assert (
        provider.requests[1].conversation.messages[-1].content == "no tool may run here"
    )


async def no(action: Action, question: str) -> bool:
    return False


async def test_what_the_gate_gives_back_tells_what_may_run_from_what_may_not() -> None:
    class Cautious(LoopEngine):
        """Asks first, and runs nothing."""

        name = "cautious"

        async def solve(self, run: Run) -> str:
            cleared = await run.gate(
                run.propose(
                    call("look", what="sky"),
                    call("erase", what="disk"),
                    call("put", what="x"),
                )
            )
            made.extend(cleared.decisions)
            look, erase, put = cleared.decisions
            assert (cleared.permits, cleared.denials) == ((look, put), (erase,))
            return f"may {[permit.call.name for permit in cleared.permits]}"

    made: list[Permit | Denial] = []
    engine = Cautious(
        Runtime(ScriptedProvider([]), tools=TOOLS, approver=no, clock=FakeClock())
    )
    result = await engine.run("Go.", run_id="r")

    assert result.answer == "may ['look', 'put']"
    permit, denial, _ = made
    assert vars(permit) == {
        "call": permit.call, "arguments_hash": hash_arguments({"what": "sky"}), "policy_version": "default-1",
        "run_id": "r", "key": "0#0", "expires": 60.0, "unredacted": None,
        "unredacted_hash": "", "approved_until": 0.0, "approval": 0,
        "tool": engine.runtime.tools.get("look"), "tool_name": "look",
    }  # fmt: skip
    hashed = hash_arguments({"what": "disk"})
    assert denial == Denial(denial.call, hashed, "0#1", "denied", "a person refused it")
    assert (denial.call.name, denial.call.arguments) == ("erase", {"what": "disk"})
    assert RAN == []

    entries = engine.runtime.journal.read("r")
    again = Cautious(
        Runtime(
            ScriptedProvider([]),
            tools=TOOLS,
            journal=crashed(entries, len(entries) - 1),
        )
    )
    await again.resume("r")
    assert made[4] == denial


@pytest.mark.parametrize(
    ("gate", "decision"),
    [
        (AllowAll(), Allow()),
        (DenyAll(), Deny("no tool may run here")),
        (DefaultGate(), Ask("erase is destructive: run it?")),
    ],
)
async def test_a_gate_that_only_computes_can_be_awaited_like_any_other(
    gate: PolicyGate, decision: Decision
) -> None:
    state = PolicyState("r", "0#0", "react", 1, 1, 0)

    assert (
        await gate.evaluate(
            Action("erase", {"what": "disk"}, effect="destructive"), state
        )
        == decision
    )


async def test_a_custom_synchronous_gate_receives_the_state_from_every_caller() -> None:
    class Sparing(InstantGate):
        """Allows the first two tool calls."""

        version = "sparing-1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return (
                Allow()
                if state.tool_calls < 2
                else Deny(f"{state.tool_calls} are enough")
            )

    action, third = (
        Action("look", {"what": "sky"}),
        PolicyState("r", "2#0", "react", 3, 3, 2),
    )
    assert await Sparing().evaluate(action, third) == Deny("2 are enough")
    calls = [call("look", what=what) for what in ("sky", "sea", "sun")]
    result = await ReActEngine(
        Runtime(asking(*calls), tools=TOOLS, gate=Sparing())
    ).run("Go.")

    assert (result.answer, RAN, tool_messages(result)[-1]) == (
        "done",
        ["look sky", "look sea"],
        "2 are enough",
    )


async def test_a_gate_that_computes_is_awaited_once_it_has_an_evaluate_of_its_own() -> (
    None
):
    class Strict(DefaultGate):
        async def evaluate(self, action: Action, state: PolicyState) -> Decision:
            await asyncio.sleep(0)
            return (
                Deny("never")
                if action.tool == "look"
                else await super().evaluate(action, state)
            )

    result = await ReActEngine(
        Runtime(asking(call("look", what="sky")), tools=TOOLS, gate=Strict())
    ).run("Go.")

    assert (RAN, tool_messages(result)) == ([], ["never"])


def test_the_versions_of_all_gates_make_one_a_gate_without_one_is_known_by_its_class() -> (
    None
):
    unversioned = Gate(lambda action: Allow())
    own = f"{Gate.__module__}.{Gate.__qualname__}"

    assert (
        policy_version([DefaultGate(), unversioned, DenyAll()])
        == f"default-1+{own}+deny-all-1"
    )


@pytest.mark.parametrize(("timeout", "decided"), [(0.05, []), (None, ["look"])])
async def test_a_gate_gets_no_more_time_than_the_run_has_left(
    timeout: float | None, decided: list[str]
) -> None:
    async def think(action: Action) -> Allow:
        await asyncio.sleep(0.3)
        thought.append(action.tool)
        return Allow()

    thought: list[str] = []
    gate = Gate(lambda action: think(action))
    runtime = Runtime(
        asking(call("look", what="sky")),
        tools=TOOLS,
        gate=gate,
        limits=Limits(timeout=timeout),
    )
    result = await ReActEngine(runtime).run("Go.")
    await asyncio.sleep(0.4)  # what was not cancelled would have decided by now

    assert (result.stop_reason, thought) == (
        "answered" if decided else "timeout",
        decided,
    )


async def test_one_denied_call_does_not_hold_up_the_others_of_its_turn() -> None:
    gate = Gate(
        lambda action: (
            Deny("not that one") if action.arguments["what"] == "b" else Allow()
        )
    )
    turn = [call("send", what="a"), call("send", what="b"), call("send", what="c")]

    result = await ReActEngine(Runtime(asking(turn), tools=TOOLS, gate=gate)).run("Go.")

    assert tool_messages(result) == ["sent", "not that one", "sent"]
    assert RAN == ["send a", "send c"]


async def test_the_gate_is_told_the_effect_the_place_and_what_was_spent() -> None:
    gate = Gate(lambda action: Allow())
    runtime = Runtime(asking(call("look", what="sky"), [call("put", what="a"), call("erase", what="b")]), tools=TOOLS,
                      gate=gate)  # fmt: skip

    result = await ReActEngine(runtime).run("Go.")

    assert [(a.tool, dict(a.arguments), a.effect) for a in gate.seen] == [
        ("look", {"what": "sky"}, "read"),
        ("put", {"what": "a"}, "idempotent"),
        ("erase", {"what": "b"}, "destructive"),
    ]
    run = result.run_id
    assert gate.states == [
        PolicyState(run, "0#0", "react", iteration=1, llm_calls=1, tool_calls=0),
        PolicyState(
            run, "1#0", "react", iteration=2, llm_calls=2, tool_calls=1, untrusted=True
        ),
        PolicyState(
            run, "1#1", "react", iteration=2, llm_calls=2, tool_calls=1, untrusted=True
        ),
    ]


# --- what is not a decision is a refusal ---


async def _hangs() -> None:
    await asyncio.sleep(30)


def _raises(error: BaseException) -> Callable[[Action], Any]:
    def decide(action: Action) -> Any:
        raise error

    return decide


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (
            _raises(RuntimeError("secret detail")),
            "the policy gate failed (RuntimeError)",
        ),
        (_raises(SystemExit(0)), "the policy gate failed (SystemExit)"),
        (_raises(RecursionError()), "the policy gate failed (RecursionError)"),
        (_raises(asyncio.CancelledError()), "the policy gate failed (RuntimeError)"),
        (lambda action: None, "the policy gate gave no decision (NoneType)"),
        (lambda action: True, "the policy gate gave no decision (bool)"),
        (lambda action: "allow", "the policy gate gave no decision (str)"),
        (lambda action: Allow, "the policy gate gave no decision (type)"),
        (lambda action: _hangs(), "the policy gate did not decide in time"),
    ],
    ids=[
        "raises",
        "exits",
        "recurses",
        "cancels itself",
        "None",
        "True",
        "a text",
        "the class",
        "hangs",
    ],
)
async def test_a_gate_that_does_not_decide_denies(
    decide: Callable[[Action], Any], reason: str
) -> None:
    runtime = Runtime(
        asking(call("look", what="sky"), answer="no"), tools=TOOLS, gate=Gate(decide)
    )

    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, RAN, tool_messages(result)) == ("completed", [], [reason])
    assert decisions(runtime, result) == [("look", "deny", reason)]


def test_a_gate_without_an_evaluate_method_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="gate: needs an object with a method `evaluate`, got object"
    ):
        Runtime(asking(call("look", what="sky")), tools=TOOLS, gate=object())  # type: ignore[arg-type]


VERDICTS = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.just(Allow), st.builds(Deny, st.text(max_size=5)),
    st.builds(Ask, st.text(max_size=5)), st.builds(Modify, st.dictionaries(st.text(max_size=3), st.integers()),
                                                   st.just("")),
    st.sampled_from([ValueError("x"), SystemExit(1), KeyError("y")]),
)  # fmt: skip


@given(st.lists(VERDICTS, min_size=1, max_size=3))
def test_nothing_but_an_allow_ever_starts_a_tool(verdicts: list[Any]) -> None:
    async def conversation() -> None:
        left = [*verdicts, Deny("enough")]

        def decide(action: Action) -> Any:
            verdict = left.pop(0)
            if isinstance(verdict, BaseException):
                raise verdict
            return verdict

        runtime = Runtime(
            asking(call("look", what="sky")), tools=TOOLS, gate=Gate(decide)
        )
        result = await ReActEngine(runtime).run("Go.")
        assert result.status == "completed"
        assert RAN == []

    asyncio.run(conversation())


# --- Modify ---


async def test_modified_arguments_are_gated_again_and_recorded_beside_the_old_ones() -> (
    None
):
    gate = Gate(
        lambda a: (
            Allow()
            if a.arguments["what"] == "safe"
            else Modify({"what": "safe"}, "made safe")
        )
    )
    runtime = Runtime(asking(call("send", what="secret")), tools=TOOLS, gate=gate)

    result = await ReActEngine(runtime).run("Go.")

    assert RAN == ["send safe"]
    assert [dict(action.arguments) for action in gate.seen] == [
        {"what": "secret"},
        {"what": "safe"},
    ]
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    decided = next(e for e in events if isinstance(e, GateDecided))
    started = next(e for e in events if isinstance(e, ToolStarted))
    assert (decided.verdict, decided.arguments, decided.reason) == (
        "modify",
        {"what": "safe"},
        "made safe",
    )
    assert (
        started.arguments_hash
        == decided.arguments_hash
        == hash_arguments({"what": "safe"})
    )
    asked_for = [
        c.arguments
        for e in events
        if hasattr(e, "completion")
        for c in e.completion.calls
    ]
    assert asked_for == [{"what": "secret"}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"what": 7},
        {"other": "x"},
        {},
        {"what": "x", "more": 1},
        None,
        "what",
    ],
)
async def test_modified_arguments_that_do_not_fit_the_schema_are_refused(
    arguments: Any,
) -> None:
    gate = Gate(lambda action: Modify(arguments, "broken policy"))

    result = await ReActEngine(
        Runtime(asking(call("send", what="x")), tools=TOOLS, gate=gate)
    ).run("Go.")

    assert (result.status, RAN, len(gate.seen)) == ("completed", [], 1)
    assert "schema of send" in tool_messages(result)[0]


@pytest.mark.parametrize(
    "what",
    [float("nan"), object(), "\ud800"],
    ids=["not a number", "an object", "half a pair"],
)
async def test_modified_arguments_that_no_journal_holds_are_a_denial(what: Any) -> None:
    gate = Gate(lambda action: Modify({"what": what}, "broken policy"))

    result = await ReActEngine(
        Runtime(asking(call("send", what="x")), tools=TOOLS, gate=gate)
    ).run("Go.")

    assert (result.status, RAN, len(gate.seen)) == ("completed", [], 1)
    assert tool_messages(result) == [
        "the policy wants arguments that are not plain JSON"
    ]


async def test_a_gate_that_keeps_modifying_is_denied_after_two_changes() -> None:
    gate = Gate(
        lambda action: Modify({"what": f"{action.arguments['what']}!"}, "louder")
    )

    result = await ReActEngine(
        Runtime(asking(call("send", what="x")), tools=TOOLS, gate=gate)
    ).run("Go.")

    assert [a.arguments["what"] for a in gate.seen] == ["x", "x!", "x!!"]
    assert (RAN, tool_messages(result)) == (
        [],
        ["the policy keeps changing the arguments"],
    )


async def test_two_changes_are_allowed() -> None:
    def decide(action: Action) -> Any:
        what = action.arguments["what"]
        return (
            Allow()
            if what == "x!!"
            else Modify({"what": f"{what}!"}, f"louder than {what}")
        )

    runtime = Runtime(asking(call("send", what="x")), tools=TOOLS, gate=Gate(decide))
    result = await ReActEngine(runtime).run("Go.")

    assert RAN == ["send x!!"]
    assert decisions(runtime, result) == [
        ("send", "modify", "louder than x; louder than x!")
    ]


async def test_no_gate_is_asked_about_arguments_that_are_no_json() -> None:
    @tool
    async def halve(x: float) -> None:
        """Halve."""
        RAN.append(f"halve {x}")

    gate = Gate(lambda action: Allow())
    calls = [call("halve", x=float("nan")), call("halve", x=float("inf"))]
    result = await ReActEngine(Runtime(asking(calls), tools=[halve], gate=gate)).run(
        "Go."
    )

    assert (RAN, gate.seen) == ([], [])
    assert tool_messages(result) == ["The arguments of halve are not plain JSON."] * 2


async def test_a_gate_that_changes_its_arguments_in_place_changes_nothing() -> None:
    def decide(action: Action) -> Allow:
        action.arguments["what"] = "smuggled"  # type: ignore[index]
        return Allow()

    runtime = Runtime(asking(call("send", what="x")), tools=TOOLS, gate=Gate(decide))
    result = await ReActEngine(runtime).run("Go.")

    assert RAN == ["send x"]
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    assert [e.arguments_hash for e in events if isinstance(e, GateDecided)] == [
        hash_arguments({"what": "x"})
    ]


async def test_a_gate_that_changes_what_is_inside_its_arguments_changes_nothing_either() -> (
    None
):
    @tool
    async def pack(things: list[str]) -> str:
        """Pack."""
        RAN.extend(things)
        return "packed"

    def decide(action: Action) -> Allow:
        action.arguments["things"].append("contraband")  # type: ignore[union-attr]
        return Allow()

    result = await ReActEngine(
        Runtime(asking(call("pack", things=["book"])), tools=[pack], gate=Gate(decide))
    ).run("Go.")

    assert (tool_messages(result), RAN) == (["packed"], ["book"])


# --- denials and progress ---


async def test_the_same_denial_three_times_ends_the_run_as_stuck_with_a_best_answer() -> (
    None
):
    calls = [call("look", what=what) for what in "aaa"]
    provider = ScriptedProvider([*calls, "My best answer."])
    runtime = Runtime(provider, tools=TOOLS, gate=DenyAll())

    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "denied",
        "My best answer.",
    )
    assert (RAN, result.llm_calls) == ([], 4)
    assert provider.requests[-1].tool_choice == "none"
    assert tool_messages(result) == ["no tool may run here"] * 2


async def test_denials_of_calls_with_other_arguments_do_not_add_up() -> None:
    calls = [call("look", what=what) for what in "ababa"]
    provider = ScriptedProvider([*calls[:4], "I may not."])
    runtime = Runtime(provider, tools=TOOLS, gate=DenyAll())
    assert (await ReActEngine(runtime).run("Go.")).answer == "I may not."

    provider = ScriptedProvider([*calls, "My best answer."])
    runtime = Runtime(provider, tools=TOOLS, gate=DenyAll())
    assert (await ReActEngine(runtime).run("Go.")).stop_reason == "denied"


async def test_different_denials_do_not_add_up() -> None:
    gate = Gate(lambda action: Deny(f"not {action.arguments['what']}"))
    calls = [call("look", what=what) for what in "abcd"]

    result = await ReActEngine(Runtime(asking(*calls), tools=TOOLS, gate=gate)).run(
        "Go."
    )

    assert (result.status, result.answer) == ("completed", "done")


async def test_three_calls_denied_in_one_turn_are_fed_back_before_anything_ends() -> (
    None
):
    turn = [call("erase", what=what) for what in "abc"]

    result = await ReActEngine(
        Runtime(asking(turn, answer="I may not."), tools=TOOLS)
    ).run("Tidy up.")

    assert (result.status, result.answer) == ("completed", "I may not.")


# --- the approver ---


async def _says(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


@pytest.mark.parametrize(
    ("answer", "ran", "told"),
    [
        (True, ["erase disk"], "erased"),
        (Allow(), ["erase disk"], "erased"),
        (False, [], "a person refused it"),
        (Deny("over my dead body"), [], "over my dead body"),
        (None, [], "a person refused it"),
        ("yes", [], "a person refused it"),
        (1, [], "a person refused it"),
        (
            OSError("no terminal"),
            [],
            "the approver failed, so the call was not approved",
        ),
        (SystemExit(0), [], "the approver failed, so the call was not approved"),
    ],
)
async def test_an_approver_s_callback_decides_and_all_but_a_clear_yes_is_a_no(
    answer: Any, ran: list[str], told: str
) -> None:
    asked: list[tuple[str, Any, str]] = []

    async def approver(action: Action, question: str) -> Any:
        asked.append((action.tool, dict(action.arguments), question))
        return await _says(answer)

    result = await ReActEngine(
        Runtime(asking(call("erase", what="disk")), tools=TOOLS, approver=approver)
    ).run("Go.")  # fmt: skip

    assert (RAN, tool_messages(result)) == (ran, [told])
    assert asked == [("erase", {"what": "disk"}, "erase is destructive: run it?")]


async def test_an_approver_that_modifies_the_arguments_is_asked_again() -> None:
    asked: list[Any] = []

    async def approver(action: Action, question: str) -> Any:
        asked.append(dict(action.arguments))
        return (
            True
            if action.arguments["what"] == "a copy"
            else Modify({"what": "a copy"}, "not the original")
        )

    await ReActEngine(
        Runtime(asking(call("erase", what="disk")), tools=TOOLS, approver=approver)
    ).run("Go.")

    assert (RAN, asked) == (["erase a copy"], [{"what": "disk"}, {"what": "a copy"}])


async def test_an_approval_covers_one_call_only() -> None:
    asked: list[str] = []

    async def approver(action: Action, question: str) -> bool:
        asked.append(action.call_id)
        return len(asked) == 1

    script = asking(call("erase", what="disk"), call("erase", what="disk"))
    result = await ReActEngine(Runtime(script, tools=TOOLS, approver=approver)).run(
        "Go."
    )

    assert (RAN, tool_messages(result), len(asked)) == (
        ["erase disk"],
        ["erased", "a person refused it"],
        2,
    )


async def test_the_time_that_a_person_takes_does_not_count() -> None:
    clock = FakeClock()

    async def slow(action: Action, question: str) -> bool:
        clock.advance(10_000)
        return True

    runtime = Runtime(asking(call("erase", what="disk")), tools=TOOLS, approver=slow, clock=clock,
                      limits=Limits(timeout=60))  # fmt: skip
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, RAN) == ("completed", ["erase disk"])


async def test_suspend_makes_the_run_wait_until_a_later_approver_resumes_it() -> None:
    journal = MemoryJournal()
    turn = [call("send", what="a"), call("erase", what="disk")]
    waiting = ReActEngine(
        Runtime(
            ScriptedProvider([turn]), tools=TOOLS, journal=journal, approver=Suspend()
        )
    )

    result = await waiting.run("Go.", run_id="wait-for-me")

    assert (result.status, result.stop_reason, result.answer, RAN) == (
        "waiting",
        "approval",
        None,
        [],
    )
    question = Question(
        "0#1", "erase is destructive: run it?", "erase", {"what": "disk"}, "call_0_1"
    )
    assert result.pending == (question,)
    assert journal.read("wait-for-me")[-1].event == RunSuspended("waiting", (question,))

    async def yes(action: Action, question: str) -> bool:
        return True

    resumed = ReActEngine(
        Runtime(ScriptedProvider(["done"]), tools=TOOLS, journal=journal, approver=yes)
    )
    result = await resumed.resume("wait-for-me")

    assert (result.status, result.answer, tool_messages(result)) == (
        "completed",
        "done",
        ["sent", "erased"],
    )
    assert (sorted(RAN), result.llm_calls, result.pending) == (
        ["erase disk", "send a"],
        2,
        (),
    )


async def test_resuming_without_a_decision_waits_again_with_the_same_question() -> None:
    runtime = Runtime(
        ScriptedProvider([call("erase", what="disk")]), tools=TOOLS, approver=Suspend()
    )
    engine = ReActEngine(runtime)
    first = await engine.run("Go.")

    again = await engine.resume(first.run_id)

    assert (again.status, again.pending, RAN) == ("waiting", first.pending, [])


# --- other effects pass the same gate ---


class Verifies(LoopEngine):
    """Writes its own calls."""

    name = "verifies"

    async def solve(self, run: Run) -> str:
        (observation,) = await run.act(
            await run.gate(run.propose(call("erase", what="disk")))
        )
        return observation.status


class Looks(LoopEngine):
    """Has an effect of its own."""

    name = "looks"

    async def solve(self, run: Run) -> str:
        async def body() -> str:
            RAN.append("effect")
            return "seen"

        try:
            return await run.effect("spy", body, into=str)
        except Denied as denied:
            return f"Denied: {denied}"


class Delegates(LoopEngine):
    """Hands its task on."""

    name = "delegates"

    async def solve(self, run: Run) -> str:
        try:
            return (
                await run.delegate(ReActEngine(self.runtime), run.task)
            ).answer or "nothing"
        except Denied as denied:
            return f"Denied: {denied}"


async def test_calls_that_an_engine_writes_itself_pass_the_gate() -> None:
    result = await Verifies(Runtime(ScriptedProvider([]), tools=TOOLS)).run("Go.")

    assert (result.answer, RAN) == ("denied", [])


@pytest.mark.parametrize(("engine", "tried"), [(Looks, "spy"), (Delegates, "delegate")])
async def test_an_engine_s_own_effects_and_delegations_pass_the_gate(
    engine: Any, tried: str
) -> None:
    runtime = Runtime(ScriptedProvider([]), tools=TOOLS, gate=DenyAll())

    result = await engine(runtime).run("Go.")

    assert (result.answer, RAN) == (f"Denied: {tried}: no tool may run here", [])
    assert decisions(runtime, result) == [(tried, "deny", "no tool may run here")]


@pytest.mark.parametrize("strict_one", ["parent", "child"])
async def test_both_gates_must_allow_what_a_child_engine_does(strict_one: str) -> None:
    strict = Gate(
        lambda action: (
            Allow() if action.tool == "delegate" else Deny(f"the {strict_one} says no")
        )
    )
    child = Runtime(asking(call("send", what="a"), answer="child"), tools=TOOLS,
                    gate=strict if strict_one == "child" else AllowAll())  # fmt: skip

    class Parent(LoopEngine):
        name = "parent"

        async def solve(self, run: Run) -> str:
            result = await run.delegate(ReActEngine(child), run.task)
            return " ".join(tool_messages(result))

    result = await Parent(
        Runtime(
            ScriptedProvider([]), gate=strict if strict_one == "parent" else AllowAll()
        )
    ).run("Go.")

    assert (result.answer, RAN) == (f"the {strict_one} says no", [])


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        ((Allow(), Deny("no")), "denied"),
        ((Ask("sure?"), Deny("no")), "denied"),
        ((Modify({"what": "b"}, ""), Deny("no")), "denied"),
        ((Allow(), Ask("sure?")), "asked"),
        ((Modify({"what": "b"}, ""), Ask("sure?")), "asked"),
        ((Allow(), Allow()), "ran"),
    ],
)
async def test_chained_gates_only_tighten(
    verdicts: Sequence[Any], outcome: str
) -> None:
    for outer, inner in (verdicts, verdicts[::-1]):
        RAN.clear()
        asked: list[str] = []

        async def approver(
            action: Action, question: str, asked: list[str] = asked
        ) -> bool:
            asked.append(question)
            return False

        def gate(verdict: Any) -> Gate:
            return Gate(
                lambda action: Allow() if action.tool == "delegate" else verdict
            )

        child = Runtime(
            asking(call("send", what="a")),
            tools=TOOLS,
            gate=gate(inner),
            approver=approver,
        )

        class Parent(LoopEngine):
            name = "parent"

            async def solve(self, run: Run, child: Runtime = child) -> str:
                return (await run.delegate(ReActEngine(child), run.task)).answer or ""

        await Parent(
            Runtime(ScriptedProvider([]), gate=gate(outer), approver=approver)
        ).run("Go.")

        assert (RAN, asked) == {
            "denied": ([], []),
            "asked": ([], ["sure?"]),
            "ran": (["send a"], []),
        }[outcome]


# --- the journal comes first ---


class Watching(MemoryJournal):
    """A journal that remembers what was durable when."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[Entry] = []
        self._handed: list[Entry] = []

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        super().append(claim, entries, status=status)
        self._handed.extend(entries)

    async def barrier(self, claim: Claim) -> None:
        await asyncio.sleep(0)
        await super().barrier(claim)
        self.durable, self._handed = [*self.durable, *self._handed], []


async def test_decision_and_intent_are_durable_before_the_tool_and_outcome_after_it() -> (
    None
):
    journal = Watching()
    seen: dict[str, list[str]] = {}

    @tool
    async def act() -> str:
        """Act."""
        seen["in the tool"] = [entry.kind for entry in journal.durable]
        return "acted"

    def second(request: Any) -> str:
        seen["at the next call"] = [entry.kind for entry in journal.durable]
        return "done"

    await ReActEngine(
        Runtime(ScriptedProvider([call("act"), second]), tools=[act], journal=journal)
    ).run("Go.")

    before = [
        "run_started",
        "model_requested",
        "model_replied",
        "gate_decided",
        "tool_started",
    ]
    assert seen == {
        "in the tool": before,
        "at the next call": [*before, "tool_finished", "model_requested"],
    }


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
async def test_when_the_journal_fails_nothing_runs_after_it(failing: int) -> None:
    provider = ScriptedProvider([call("send", what="a"), "done"])
    runtime = Runtime(provider, tools=TOOLS, journal=FailingJournal(failing))

    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason) == ("failed", "journal_error")
    assert str(result.error) == "the disk is full"
    asked, ran = {1: (0, []), 2: (1, []), 3: (1, ["send a"]), 4: (2, ["send a"])}[
        failing
    ]
    assert (len(provider.requests), RAN) == (asked, ran)
    with pytest.raises(JournalError):
        result.raise_for_status()


async def test_a_journal_that_failed_once_starts_no_sibling_although_it_recovers() -> (
    None
):
    turn = [call("send", what="a"), call("send", what="b"), call("send", what="c")]
    runtime = Runtime(
        asking(turn), tools=TOOLS, journal=FailingJournal(2, recovers=True)
    )

    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.stop_reason, RAN) == ("failed", "journal_error", [])


async def test_the_journal_tells_the_whole_story_of_a_refused_call() -> None:
    runtime = Runtime(asking(call("erase", what="disk")), tools=TOOLS)

    result = await ReActEngine(runtime).run("Go.")

    story = [entry.event for entry in runtime.journal.read(result.run_id)][3:5]
    assert [type(event) for event in story] == [GateDecided, ToolFinished]
    assert isinstance(story[1], ToolFinished)
    assert story[1].status == "denied"


# --- changed arguments, on a resume ---


def once(request: Any) -> Any:
    """A model that looks up the sky, and then is done."""
    return (
        "done"
        if any(message.role == "tool" for message in request.conversation)
        else call("look", what="sky")
    )


def to_the_sea(then: Any) -> Gate:
    """Changes the sky to the sea, and says `then` to that."""
    return Gate(
        lambda action: (
            Modify({"what": "sea"}, "not that")
            if action.arguments == {"what": "sky"}
            else then
        )
    )


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (lambda: to_the_sea(Deny("not there")), "not there"),
        (
            lambda: to_the_sea(Modify({"what": "sky"}, "back")),
            "the policy keeps changing the arguments",
        ),
        (
            lambda: Gate(lambda _: Modify({"what": 1}, "typed")),
            "The arguments do not fit the schema of look",
        ),
        (
            lambda: to_the_sea(Modify({"what": {1}}, "a set")),
            "The arguments do not fit the schema",
        ),  # type: ignore[dict-item]
    ],
    ids=["deny", "changed again", "invalid", "no JSON"],
)
async def test_changed_arguments_that_are_refused_are_refused_again_after_every_entry(
    gate: Callable[[], Gate], told: str
) -> None:
    first = Runtime(ScriptedProvider(once), tools=TOOLS, gate=gate())
    whole = await ReActEngine(first).run("Go.", run_id="r")
    entries = first.journal.read("r")
    [observation] = tool_messages(whole)
    assert (observation[: len(told)], whole.answer, RAN) == (told, "done", [])
    [event] = [entry.event for entry in entries if isinstance(entry.event, GateDecided)]
    assert event.arguments_hash == (
        "" if event.arguments is None else hash_arguments(event.arguments)
    )

    for keep in range(1, len(entries) + 1):
        again = Runtime(
            ScriptedProvider(once),
            tools=TOOLS,
            gate=gate(),
            journal=crashed(entries, keep),
        )
        result = await ReActEngine(again).resume("r")

        assert (result.status, result.answer, tool_messages(result), RAN) == (
            "completed",
            "done",
            [observation],
            [],
        )


async def test_changed_arguments_that_a_person_is_asked_about_run_once_after_any_entry() -> (
    None
):
    async def yes(action: Action, question: Question) -> bool:
        return action.arguments == {"what": "sea"}

    def engine(journal: MemoryJournal, approver: Any) -> ReActEngine:
        provider = ScriptedProvider(once)
        return ReActEngine(
            Runtime(
                provider,
                tools=TOOLS,
                gate=to_the_sea(Ask("may it?")),
                approver=approver,
                journal=journal,
            )
        )

    journal = MemoryJournal()
    suspended = await engine(journal, Suspend()).run("Go.", run_id="r")
    assert (suspended.status, [one.arguments for one in suspended.pending]) == (
        "waiting",
        [{"what": "sea"}],
    )
    await engine(journal, yes).resume("r")
    assert RAN == ["look sea"]

    entries = journal.read("r")
    for keep in range(1, len(entries) + 1):
        RAN.clear()
        result = await engine(crashed(entries, keep), yes).resume("r")
        finished = sum(
            isinstance(entry.event, ToolFinished) for entry in entries[:keep]
        )

        assert (result.answer, tool_messages(result), len(RAN)) == (
            "done",
            ["sea is blue"],
            1 - finished,
        )
