"""The rule gate: the first rule that applies decides, and what no rule allows does not run."""

import asyncio
import threading
import time
from collections.abc import Iterable
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
    Modify,
    PolicyGate,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.gates import RESPOND, AllOf, Condition, Decision, Hours, Rule, RuleGate
from loopwright.gates.rate_limit import RateCounter
from loopwright.labels import LABELS
from loopwright.messages import Json
from loopwright.testing import FakeClock, GateContract, ScriptedProvider, call

STATE = PolicyState("run-1", "0#0", "react", 1, 1, 1)
DENIED = Deny("no rule allows it")


def state(**fields: Any) -> PolicyState:
    return PolicyState(**{**vars(STATE), **fields})


def action(tool: str = "send", **arguments: Json) -> Action:
    return Action(tool, arguments)


def decide(
    rules: Iterable[Rule], asked: Action | None = None, at: PolicyState = STATE
) -> Decision:
    return RuleGate(rules).decide(asked or action(), at)


class TestRuleGateKeepsTheContract(GateContract):
    def gate(self) -> PolicyGate:
        return RuleGate(
            [
                Rule(
                    name="no wiping",
                    then="deny",
                    effects=("destructive",),
                    reason="nothing is wiped here",
                ),
                Rule(name="short", then="modify", tools=("put",), set={"/what": "sky"}),
                Rule(
                    name="deep",
                    then="ask",
                    when=(Condition(argument="/deep/0/0", max_length=1),),
                ),
                Rule(
                    name="look",
                    then="allow",
                    tools=("look", "d*"),
                    at_most=100,
                    every=60,
                    per="tool",
                ),
            ],
            clock=FakeClock(),
        )


# --- which rule decides ---


def test_the_first_rule_that_applies_decides() -> None:
    rules = [
        Rule(name="a", then="deny", tools=("send_mail",)),
        Rule(name="b", then="ask", tools=("send_*",), question="Send it?"),
        Rule(name="c", then="allow"),
    ]

    assert decide(rules, action("send_mail")) == Deny("refused by the rule 'a'")
    assert decide(rules, action("send_fax")) == Ask("Send it?")
    assert decide(rules, action("look")) == Allow()


def test_what_no_rule_speaks_of_is_denied_unless_the_gate_says_otherwise() -> None:
    rules = [Rule(name="a", then="allow", tools=("look",))]

    assert RuleGate(rules).decide(action(), STATE) == DENIED
    assert RuleGate(rules, otherwise="ask").decide(action(), STATE) == Ask(
        "No rule covers send: run it?"
    )
    assert RuleGate(rules, otherwise="allow").decide(action(), STATE) == Allow()
    assert RuleGate([]).decide(action(), STATE) == DENIED
    with pytest.raises(
        ConfigError, match=r'^otherwise: "deny", "ask" or "allow", got \'let\'$'
    ):
        RuleGate([], otherwise=cast(Any, "let"))


def test_an_answer_is_given_unless_a_rule_stops_it() -> None:
    secret = Rule(name="mum", then="deny", tools=(RESPOND,), labels="secret")

    assert RuleGate([secret]).answers
    assert decide([secret], action(RESPOND)) == Allow()
    assert decide([secret], action(RESPOND), state(label="secret")) == Deny(
        "refused by the rule 'mum'"
    )


def test_a_gate_that_names_no_answers_is_not_asked_about_them() -> None:
    gate = RuleGate(
        [Rule(name="a", then="allow", tools=("look", "resp*"), untrusted=True)]
    )

    assert not gate.answers
    assert gate.decide(action(RESPOND), STATE) == DENIED  # a tool of that name


@pytest.mark.parametrize("name", ["respond", RESPOND])
async def test_a_rule_withholds_an_answer_with_a_secret(name: str) -> None:
    rule = Rule(
        name="mum",
        then="deny",
        tools=(name,),
        when=(Condition(argument="/answer", glob=("*4711*",)),),
    )
    for gate in (
        RuleGate([rule]),
        RuleGate([rule], otherwise="allow"),
        AllOf(AllowAll(), RuleGate([rule])),
    ):
        for said, answer in (("It is 4711.", None), ("It is blue.", "It is blue.")):
            result = await ReActEngine(
                Runtime(ScriptedProvider([said]), gate=gate)
            ).run("What is it?")

            assert result.answer == answer


def test_the_name_of_the_answer_means_a_tool_of_that_name_too() -> None:
    rule = Rule(name="mum", then="deny", tools=("look", "respond"))

    assert [decide([rule], action(name)) for name in (RESPOND, "respond")] == [
        Deny("refused by the rule 'mum'")
    ] * 2
    assert decide([rule], action("responder")) == DENIED


def test_a_refusal_names_the_rule_and_says_why_and_nothing_else() -> None:
    rule = Rule(
        name="mail",
        then="deny",
        when=(Condition(argument="/to", destinations=("example.com",), negate=True),),
        reason="write to colleagues only",
    )

    assert decide([rule], action(to="x@evil.com")) == Deny(
        "refused by the rule 'mail': write to colleagues only"
    )


def test_a_rule_applies_where_all_that_it_names_is_true() -> None:
    rule = Rule(
        name="all",
        then="allow",
        tools=("send", "put"),
        effects=("read", "write"),
        engines=("react",),
        labels="normal",
        untrusted=False,
        hours=(Hours(days=("thu",)),),
        when=(Condition(argument="/a", equals=1), Condition(argument="/b", equals=2)),
    )
    fits, good = action(a=1, b=2), state()  # the epoch was a Thursday

    assert decide([rule], fits, good) == Allow()
    assert [
        decide([rule], asked, at)
        for asked, at in (
            (action("wipe", a=1, b=2), good),
            (Action("send", fits.arguments, effect="destructive"), good),
            (action(a=1, b=3), good),
            (action(a=1), good),
            (fits, state(engine="critic")),
            (fits, state(label="public")),
            (fits, state(untrusted=True)),
            (fits, state(at=86_400.0)),
        )
    ] == [DENIED] * 8


@pytest.mark.parametrize("least", LABELS)
def test_a_label_stands_for_all_that_are_as_high(least: Any) -> None:
    rule = Rule(name="a", then="deny", labels=least)
    denied = [
        label
        for label in LABELS
        if RuleGate([rule], otherwise="allow").decide(action(), state(label=label))
        != Allow()
    ]

    assert denied == list(LABELS[LABELS.index(least) :])


# --- what cannot be told ---

UNCLEAR = Condition(argument="/sum", more_than=100)


@pytest.mark.parametrize("value", ["5000", True, [5000], {"sum": 5000}, float("nan")])
def test_a_condition_that_cannot_be_told_never_loosens(value: Any) -> None:
    asked = action(sum=value)
    then: dict[str, Any] = {"ask": {"question": "?"}, "modify": {"set": {"/sum": 100}}}
    rules = {
        kind: Rule(
            name="r", then=cast(Any, kind), when=(UNCLEAR,), **then.get(kind, {})
        )
        for kind in ("allow", "deny", "ask", "modify")
    }

    decided = {
        kind: RuleGate([rule], otherwise="allow").decide(asked, STATE)
        for kind, rule in rules.items()
    }
    assert (
        decided.pop("allow") == Allow()
    )  # by `otherwise`: the rule itself does not allow it
    assert decide([rules["allow"]], asked) == DENIED
    assert decided == {
        "deny": Deny("refused by the rule 'r'"),
        "ask": Ask("?"),
        "modify": Deny(
            "refused by the rule 'r': it cannot be applied to these arguments"
        ),
    }


def test_one_condition_that_does_not_hold_is_enough_whatever_the_others_tell() -> None:
    rule = Rule(
        name="r",
        then="deny",
        when=(UNCLEAR, Condition(argument="/kind", equals="payment")),
    )

    assert (
        RuleGate([rule], otherwise="allow").decide(action(sum="?", kind="note"), STATE)
        == Allow()
    )
    assert (
        RuleGate([rule], otherwise="allow").decide(
            action(sum="?", kind="payment"), STATE
        )
        != Allow()
    )


# --- modify ---


def test_a_changed_call_is_allowed_once_it_is_so() -> None:
    gate = RuleGate(
        [
            Rule(
                name="dry",
                then="modify",
                set={"/options/dry": True, "/to": "x"},
                reason="dry runs only",
            )
        ]
    )
    asked = action(to="y", n=1)

    changed = gate.decide(asked, STATE)

    assert changed == Modify(
        {"to": "x", "n": 1, "options": {"dry": True}}, "dry runs only"
    )
    assert gate.decide(Action("send", changed.arguments), STATE) == Allow()  # type: ignore[union-attr]
    assert asked == action(to="y", n=1)


def test_true_is_not_one_for_what_is_set() -> None:
    gate = RuleGate([Rule(name="dry", then="modify", set={"/dry": True})])

    assert gate.decide(action(dry=1), STATE) == Modify(
        {"dry": True}, "changed by the rule 'dry'"
    )


def test_what_is_set_cannot_be_changed_from_outside() -> None:
    gate = RuleGate([Rule(name="dry", then="modify", set={"/deep": {"a": [1]}})])
    first = gate.decide(action(), STATE)
    assert isinstance(first, Modify)
    cast(Any, first.arguments)["deep"]["a"].append(2)

    assert gate.decide(action(), STATE) == Modify(
        {"deep": {"a": [1]}}, "changed by the rule 'dry'"
    )


@pytest.mark.parametrize(
    "arguments", [{"to": "text"}, {"to": []}, {"to": [[]]}, {"to": 5}]
)
def test_what_cannot_be_set_is_refused(arguments: dict[str, Json]) -> None:
    gate = RuleGate([Rule(name="r", then="modify", set={"/to/0/name": "x"})])

    refused = Deny("refused by the rule 'r': it cannot be applied to these arguments")
    assert gate.decide(Action("send", arguments), STATE) == refused


async def test_a_changed_call_runs_with_what_was_set() -> None:
    ran: list[int] = []

    @tool
    def refund(cents: int) -> str:
        """Pay money back."""
        ran.append(cents)
        return "done"

    rule = Rule(
        name="cap",
        then="modify",
        when=(Condition(argument="/cents", more_than=100),),
        set={"/cents": 100},
    )
    gate = RuleGate([rule, Rule(name="refunds", then="allow", tools=("refund",))])
    runtime = Runtime(
        ScriptedProvider(
            [call("refund", cents=5000), call("refund", cents=7), "Done."]
        ),
        tools=[refund],
        gate=gate,
    )
    await ReActEngine(runtime).run("Refund it.")

    assert ran == [100, 7]


# --- limits ---


def limited(
    clock: FakeClock,
    at_most: int = 2,
    per: Any = "all",
    then: Any = "allow",
    **fields: Any,
) -> RuleGate:
    return RuleGate(
        [Rule(name="few", then=then, at_most=at_most, every=60, per=per, **fields)],
        clock=clock,
    )


SPENT = Deny("refused by the rule 'few': too many calls recently")


def test_a_rule_allows_so_many_calls_in_any_stretch_of_time() -> None:
    clock = FakeClock()
    gate = limited(clock)
    decided: list[Decision] = []
    for _ in range(8):
        decided.append(gate.decide(action(), STATE))
        clock.advance(20)

    assert decided == [
        Allow(),
        Allow(),
        SPENT,
        Allow(),
        Allow(),
        SPENT,
        Allow(),
        Allow(),
    ]


def test_what_is_refused_does_not_count() -> None:
    clock = FakeClock()
    gate = limited(clock, at_most=1)
    assert gate.decide(action(), STATE) == Allow()
    for _ in range(59):
        clock.advance(1)
        assert gate.decide(action(), STATE) == SPENT
    clock.advance(1)

    assert gate.decide(action(), STATE) == Allow()


def test_a_change_counts_once_it_is_made() -> None:
    gate = limited(FakeClock(), at_most=1, then="modify", set={"/n": 1})
    assert [type(gate.decide(action(n=2), STATE)) for _ in range(3)] == [Modify] * 3

    assert [gate.decide(action(n=1), STATE) for _ in range(2)] == [Allow(), SPENT]


@pytest.mark.parametrize(("per", "allowed"), [("run", 2), ("tool", 3), ("all", 1)])
def test_runs_or_tools_are_counted_each_by_itself(per: str, allowed: int) -> None:
    gate = limited(FakeClock(), at_most=1, per=per)
    decided = [
        gate.decide(action(name), state(run_id=run))
        for run in ("r1", "r2")
        for name in ("a", "b", "c")
    ]

    assert decided.count(Allow()) == allowed


def test_many_threads_and_loops_together_get_no_more_than_the_limit() -> None:
    gate, allowed = limited(FakeClock(), at_most=100), list[int]()
    start = threading.Barrier(8)

    async def ask() -> int:
        decided = await asyncio.gather(
            *(gate.evaluate(action(), STATE) for _ in range(250))
        )
        return decided.count(Allow())

    def work() -> None:
        start.wait()
        allowed.append(asyncio.run(ask()))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(allowed), sum(allowed)) == (8, 100)


class Sleepy(str):
    """A key that lets other threads go first whenever it is looked up."""

    __slots__ = ()

    def __hash__(self) -> int:
        time.sleep(0.001)
        return super().__hash__()


def test_nothing_comes_between_counting_and_deciding() -> None:
    tally, clock, taken, start = (
        RateCounter(),
        FakeClock(),
        list[bool](),
        threading.Barrier(8),
    )

    def work() -> None:
        start.wait()
        taken.extend(tally.take(Sleepy("key"), clock, 3, 60) for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(taken), taken.count(True)) == (24, 3)


def test_what_was_counted_long_ago_is_forgotten() -> None:
    clock = FakeClock()
    gate = limited(clock, per="run")
    for number in range(5_000):
        gate.decide(action(), state(run_id=f"run-{number}"))
        clock.advance(1)

    ((_, tally),) = gate._rules[0]
    assert len(tally) <= 60


def test_a_full_memory_allows_nothing_more() -> None:
    clock, tally = FakeClock(), RateCounter(max_times=3)
    assert [tally.take(key, clock, 2, 60) for key in ("a", "a", "b", "c", "b")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    clock.advance(60)

    assert (tally.take("c", clock, 2, 60), len(tally)) == (True, 1)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=60),
    st.integers(1, 4),
)
def test_no_stretch_of_time_has_more_than_the_limit(
    calls: list[tuple[str, int]], at_most: int
) -> None:
    clock = FakeClock()
    gate = limited(clock, at_most=at_most, per="run")
    times: dict[str, list[float]] = {}
    for run, seconds in calls:
        clock.advance(seconds)
        now, before = clock.monotonic(), times.setdefault(run, [])
        free = sum(now - 60 < one for one in before) < at_most

        assert gate.decide(action(), state(run_id=run)) == (Allow() if free else SPENT)
        before += [now] * free


# --- versions ---


def test_the_version_tells_rules_apart_by_what_they_say_and_by_their_order() -> None:
    a, b = Rule(name="a", then="allow"), Rule(name="b", then="deny")
    again = Rule(name="a", then="allow")

    assert RuleGate([a, b]).version == RuleGate([again, b]).version
    different = [
        RuleGate([a, b]),
        RuleGate([b, a]),
        RuleGate([a]),
        RuleGate([a, b], otherwise="ask"),
    ]
    different += [RuleGate([Rule(name="a", then="allow", tools=("x",)), b])]
    assert len({gate.version for gate in different}) == 5


def test_two_rules_of_one_name_are_refused() -> None:
    rule = Rule(name="a", then="allow")

    with pytest.raises(ConfigError, match=r"^rule 3 'a': name: rule 1 has it too$"):
        RuleGate([rule, Rule(name="b", then="deny"), rule])
