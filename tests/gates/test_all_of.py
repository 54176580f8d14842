"""Several gates as one: never looser than any of them, whatever becomes of one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Action,
    Allow,
    AllowAll,
    Ask,
    ConfigError,
    Deny,
    DenyAll,
    MemoryJournal,
    Modify,
    PolicyGate,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright._kernel.phases.gate import policy_version
from loopwright.gates import (
    RESPOND,
    AllOf,
    Condition,
    Decision,
    DefaultGate,
    InstantGate,
    Rule,
    RuleGate,
)
from loopwright.messages import Json, hash_arguments
from loopwright.testing import GateContract, ScriptedProvider, call

STATE = PolicyState("run-1", "0#0", "react", 1, 1, 1)
ACTION = Action("put", {"n": 1})
Deciding = Callable[[Action], Any]


class Quick(InstantGate):
    """A gate that only computes."""

    def __init__(self, deciding: Deciding, version: str = "quick") -> None:
        self._deciding, self.version, self.asked = deciding, version, 0

    def decide(self, action: Action, state: PolicyState) -> Decision:
        self.asked += 1
        return cast(Decision, self._deciding(action))


class Slow:
    """A gate that awaits something."""

    def __init__(self, deciding: Deciding, timeout: float = 1.0) -> None:
        self._deciding, self.timeout, self.asked = deciding, timeout, 0

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.asked += 1
        await asyncio.sleep(0)
        decision = self._deciding(action)
        return cast(
            Decision, await decision if asyncio.iscoroutine(decision) else decision
        )


def says(decision: object) -> Deciding:
    return lambda _: decision


def fails(error: BaseException) -> Deciding:
    def deciding(_: Action) -> Decision:
        raise error

    return deciding


async def decide(*gates: PolicyGate) -> Decision:
    return await AllOf(*gates).evaluate(ACTION, STATE)


class TestAllOfKeepsTheContract(GateContract):
    def gate(self) -> PolicyGate:
        return AllOf(DefaultGate(), Slow(says(Allow())), AllOf(AllowAll(), AllowAll()))

    def broken(self) -> list[PolicyGate]:
        async def silent(_: Action) -> None:
            await asyncio.sleep(60)

        return [
            AllOf(AllowAll(), Slow(fails(ConnectionError("down")))),
            AllOf(Slow(silent, timeout=0.01), AllowAll()),
            AllOf(AllowAll(), AllOf(Quick(says(None)))),
        ]


class TestAllOfQuickGatesKeepsTheContract(GateContract):
    def gate(self) -> PolicyGate:
        return AllOf(
            DefaultGate(),
            RuleGate([Rule(name="a", then="allow", tools=("look", "put"))]),
        )

    def broken(self) -> list[PolicyGate]:
        return [AllOf(AllowAll(), Quick(fails(ValueError())))]


KINDS = pytest.mark.parametrize("kind", [Quick, Slow])
CHANGE, OTHER = Modify({"n": 2}, "first"), Modify({"n": 3}, "second")
SAME = Modify(dict(ACTION.arguments), "as it is")


@KINDS
@pytest.mark.parametrize(
    ("said", "decided"),
    [
        ([Allow(), Allow()], Allow()),
        ([Allow(), Deny("no")], Deny("no")),
        ([Ask("?"), CHANGE, Deny("no"), Deny("never")], Deny("no")),
        ([Allow(), Ask("a?"), Ask("b?"), Ask("a?")], Ask("a?; b?")),
        ([CHANGE, OTHER, Allow()], CHANGE),
        ([Ask("a?"), CHANGE, Ask("b?")], CHANGE),
        ([SAME, Ask("a?")], Ask("a?")),
        ([Ask("a?"), SAME], Ask("a?")),
        ([SAME, CHANGE, Allow()], CHANGE),
        ([SAME, Allow()], Allow()),
    ],
)
async def test_the_strictest_counts(
    kind: Any, said: Sequence[Decision], decided: Decision
) -> None:
    gates = [kind(says(one)) for one in said]

    assert await decide(*gates) == decided
    assert await decide(AllOf(*gates[:1]), AllOf(*gates[1:])) == decided


@KINDS
async def test_after_a_denial_nobody_is_asked(kind: Any) -> None:
    gates = [kind(says(one)) for one in (Ask("?"), Deny("no"), Allow())]
    await decide(*gates)

    assert [gate.asked for gate in gates] == [1, 1, 0]


FAILED = {
    "raises": (fails(ValueError("secret")), "the policy gate failed (ValueError)"),
    "exits": (fails(SystemExit(1)), "the policy gate failed (SystemExit)"),
    "none": (says(None), "the policy gate gave no decision (NoneType)"),
    "true": (says(True), "the policy gate gave no decision (bool)"),
    "a class": (says(Allow), "the policy gate gave no decision (type)"),
}


@KINDS
@pytest.mark.parametrize("how", FAILED)
async def test_what_is_no_decision_denies(kind: Any, how: str) -> None:
    deciding, reason = FAILED[how]

    assert await decide(AllowAll(), kind(deciding), AllowAll()) == Deny(reason)


async def test_a_gate_that_takes_too_long_denies_even_if_it_will_not_be_cancelled() -> (
    None
):
    done = asyncio.Event()

    async def stubborn(_: Action) -> Allow:
        while not done.is_set():
            try:
                await asyncio.wait_for(done.wait(), 60)
            except asyncio.CancelledError:
                continue
        return Allow()

    gate = Slow(stubborn, timeout=0.01)
    began = asyncio.get_running_loop().time()
    decided = await decide(AllowAll(), gate, DenyAll())
    took = asyncio.get_running_loop().time() - began
    done.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert decided == Deny("the policy gate did not decide in time")
    assert took < AllOf(AllowAll(), gate, DenyAll()).timeout


async def test_a_gate_that_cancels_itself_denies_and_a_cancelled_question_is_cancelled() -> (
    None
):
    assert await decide(Slow(fails(asyncio.CancelledError()))) == Deny(
        "the policy gate failed (RuntimeError)"
    )

    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(_: Action) -> Allow:
        asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Allow()

    asking = asyncio.ensure_future(decide(Slow(waits, timeout=50)))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cancelled.is_set()


async def test_what_one_gate_does_to_the_arguments_no_other_sees() -> None:
    seen: list[Json] = []

    def spoils(action: Action) -> Decision:
        cast(Any, action.arguments)["n"] = 99
        cast(Any, action.arguments)["deep"].append(99)
        return Allow()

    def looks(action: Action) -> Decision:
        seen.append(dict(action.arguments))
        return Allow()

    asked = Action("put", {"n": 1, "deep": [1]})
    assert (
        await AllOf(Slow(spoils), Slow(looks), Quick(looks)).evaluate(asked, STATE)
        == Allow()
    )
    assert (seen, asked) == (
        [{"n": 1, "deep": [1]}] * 2,
        Action("put", {"n": 1, "deep": [1]}),
    )


def test_it_only_computes_if_all_its_gates_do() -> None:
    quick, slow = Quick(says(Allow())), Slow(says(Allow()))
    gates = [
        AllOf(quick),
        AllOf(quick, AllOf(quick, quick)),
        AllOf(quick, slow),
        AllOf(quick, AllOf(slow)),
    ]

    assert [isinstance(gate, InstantGate) for gate in gates] == [
        True,
        True,
        False,
        False,
    ]
    assert cast(InstantGate, gates[1]).decide(ACTION, STATE) == Allow()


class Stricter(AllowAll):
    """A gate that only computes, tightened by the method that all gates have."""

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        await asyncio.sleep(0)
        return Deny("never")


async def test_a_gate_that_computes_is_awaited_once_it_has_an_evaluate_of_its_own() -> (
    None
):
    patched = AllowAll()
    patched.evaluate = Stricter().evaluate  # type: ignore[method-assign]

    for strict in (Stricter(), patched):
        for gate in (
            AllOf(strict),
            AllOf(AllowAll(), AllOf(strict)),
            AllOf(strict, Slow(says(Allow()))),
        ):
            assert not isinstance(gate, InstantGate)
            assert await gate.evaluate(ACTION, STATE) == Deny("never")
            assert gate.timeout > 1


@KINDS
async def test_about_an_answer_it_asks_those_gates_that_want_to_be_asked(
    kind: Any,
) -> None:
    tools_only, wants = kind(says(Deny("no tool of mine"))), kind(says(Ask("give it?")))
    wants.answers = True
    answer = Action(RESPOND, {"answer": "42"}, effect="read")
    gates = (
        AllOf(tools_only),
        AllOf(tools_only, wants),
        AllOf(AllOf(tools_only), AllOf(wants, tools_only)),
    )

    assert [gate.answers for gate in gates] == [False, True, True]
    assert [await gate.evaluate(answer, STATE) for gate in gates] == [
        Deny("no tool of mine"),
        Ask("give it?"),
        Ask("give it?"),
    ]
    assert [await gate.evaluate(ACTION, STATE) for gate in gates] == [
        Deny("no tool of mine")
    ] * 3


def test_its_version_joins_those_of_its_gates_as_they_are_now() -> None:
    first, second = Quick(says(Allow()), "a-1"), Quick(says(Allow()), "b-1")
    gate = AllOf(first, AllOf(second, Slow(says(Allow()))))
    assert gate.version == f"a-1+b-1+{Slow.__module__}.Slow" == policy_version([gate])
    second.version = "b-2"

    assert gate.version == f"a-1+b-2+{Slow.__module__}.Slow"


def test_its_time_is_that_of_all_its_gates() -> None:
    gate = AllOf(
        AllowAll(),
        Slow(says(Allow()), timeout=2),
        AllOf(Slow(says(Allow()), timeout=3), AllowAll()),
    )

    assert 5 < gate.timeout < 6


def test_what_is_no_gate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^AllOf: name the gates"):
        AllOf()
    with pytest.raises(ConfigError, match=r"^AllOf: 5 is not a gate"):
        AllOf(AllowAll(), cast(Any, 5))
    for timeout in (0, -1, float("nan"), float("inf"), True, None, "5"):
        with pytest.raises(
            ConfigError,
            match=r"^AllOf: timeout of .*Slow: must be a number of seconds",
        ):
            AllOf(Slow(says(Allow()), cast(Any, timeout)))


# --- never looser ---


async def test_a_person_is_asked_about_what_would_really_run() -> None:
    ran, questions = list[int](), list[int]()

    @tool(effect="destructive")
    def wipe(n: int) -> str:
        """Wipe something."""
        ran.append(n)
        return "wiped"

    async def approver(action: Action, question: str) -> bool:
        questions.append(cast(int, action.arguments["n"]))
        return True

    cap = RuleGate(
        [
            Rule(
                name="cap",
                then="modify",
                when=(Condition(argument="/n", more_than=5),),
                set={"/n": 5},
            )
        ],
        otherwise="allow",
    )
    journal = MemoryJournal()
    for gate in (AllOf(cap, DefaultGate()), AllOf(DefaultGate(), cap)):
        model = ScriptedProvider([call("wipe", n=1000), "Done."])
        await ReActEngine(
            Runtime(model, tools=[wipe], gate=gate, approver=approver, journal=journal)
        ).run("Wipe.")

    assert (ran, questions) == ([5, 5], [5, 5])


ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 4), "to": st.sampled_from(["a", "b"])}
)
CONDITIONS = st.one_of(
    st.integers(0, 4).map(lambda n: Condition(argument="/n", at_most=n)),
    st.integers(0, 4).map(lambda n: Condition(argument="/n", more_than=n)),
    st.sampled_from("ab").map(lambda to: Condition(argument="/to", equals=to)),
)
RULES = st.builds(
    lambda then, when, tools, value: Rule(
        name="r",
        then=then,
        when=tuple(when) or None,
        tools=tools,
        set={"/n": value} if then == "modify" else None,
    ),
    st.sampled_from(["allow", "deny", "ask", "modify"]),
    st.lists(CONDITIONS, max_size=2),
    st.sampled_from([None, ("put",), ("p*",), ("look",)]),
    st.integers(0, 4),
)
GATES = st.builds(
    lambda rules, otherwise: RuleGate(
        [Rule(**{**vars(rule), "name": str(n)}) for n, rule in enumerate(rules)],
        otherwise=otherwise,
    ),
    st.lists(RULES, max_size=3),
    st.sampled_from(["deny", "ask", "allow"]),
)


def comes_to(
    gate: InstantGate, arguments: dict[str, Json]
) -> tuple[str, dict[str, Json]]:
    """What the runtime makes of a call: whether it runs, is asked about or does not run, and with which arguments."""
    for _ in range(3):
        decision = gate.decide(Action("put", arguments), STATE)
        if isinstance(decision, Deny):
            return "denied", {}
        if not isinstance(decision, Modify) or hash_arguments(
            decision.arguments
        ) == hash_arguments(arguments):
            return ("asked" if isinstance(decision, Ask) else "allowed"), arguments
        arguments = dict(decision.arguments)
    return "denied", {}


@given(GATES, GATES, ARGUMENTS)
def test_one_more_gate_never_loosens(
    gate: RuleGate, more: RuleGate, arguments: dict[str, Json]
) -> None:
    together = cast(InstantGate, AllOf(gate, more))
    outcome, ends = comes_to(together, arguments)

    if (
        outcome != "denied"
    ):  # what runs is allowed, or asked about, by each of the two as it runs
        each = [comes_to(one, ends) for one in (gate, more)]
        assert [with_what for _, with_what in each] == [ends, ends]
        assert ("asked" in [said for said, _ in each]) is (outcome == "asked")
        assert "denied" not in [said for said, _ in each]
