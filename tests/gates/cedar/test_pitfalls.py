"""Six ways in which Cedar lets through what was meant to be stopped, and that CedarGate does not."""

import json
from typing import Any

import cedarpy
import pytest
import structlog

from loopwright import (
    Action,
    Allow,
    ConfigError,
    Deny,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.events import ToolStarted
from loopwright.gates import CedarGate
from loopwright.testing import ScriptedProvider, call

STATE = PolicyState("run-1", "3#0", "react", 2, 3, 4)
ADMIN = {"__entity": {"type": "Agent", "id": "admin"}}
RAN: list[str] = []


@tool
def pay(
    to: str, cents: int, rate: float = 1.0, who: str = "", note: str | None = None
) -> str:
    """Pay."""
    RAN.append(f"{to} {cents} {rate} {who} {note}")
    return "paid"


async def starts(gate: CedarGate, **arguments: Any) -> int:
    """How often the tool starts in a real run, called once with these arguments."""
    RAN.clear()
    runtime = Runtime(
        ScriptedProvider([call("pay", **arguments), "Done."]), tools=[pay], gate=gate
    )
    result = await ReActEngine(runtime).run("Pay.")
    started = [
        e
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ToolStarted)
    ]
    assert len(started) == len(RAN)
    return len(RAN)


def plain(policies: str, context: dict[str, Any]) -> tuple[str, list[str]]:
    """What Cedar itself says without a schema."""
    request = {
        "principal": 'Agent::"react"',
        "action": 'Action::"pay"',
        "resource": 'Tool::"pay"',
        "context": context,
    }
    said = cedarpy.is_authorized(request, policies, [])
    return said.decision.value, said.diagnostics.errors


# --- 1: a `forbid` that fails is skipped ---

OVERFLOWS = """
permit(principal, action, resource);
forbid(principal, action == Action::"pay", resource) when { context.arguments.cents + 9223372036854775807 > 0 };
"""


async def test_a_forbid_that_fails_while_it_is_evaluated_denies() -> None:
    verdict, errors = plain(OVERFLOWS, {"arguments": {"cents": 1}})
    assert (verdict, len(errors)) == ("Allow", 1), "so it is with Cedar alone"

    gate = CedarGate(OVERFLOWS, tools=[pay])

    assert await starts(gate, to="ada", cents=1) == 0


def test_the_log_names_the_policy_that_failed_and_shows_no_value() -> None:
    with structlog.testing.capture_logs() as lines:
        said = CedarGate(OVERFLOWS, tools=[pay]).decide(
            Action("pay", {"to": "ada", "cents": 4_711}), STATE
        )

    assert said == Deny(
        "policy could not be evaluated for this call of pay, so it was not made"
    )
    assert lines == [
        {
            "event": "cedar_undecided",
            "log_level": "warning",
            "tool": "pay",
            "problem": "failed: policies, policy 2",
        }
    ]


def test_a_forbid_about_what_is_not_in_the_context_is_refused_when_it_is_loaded() -> (
    None
):
    taint = 'permit(principal, action, resource); forbid(principal, action, resource) when { context.taint == "yes" };'
    assert plain(taint, {})[0] == "Allow", "so it is with Cedar alone"

    with pytest.raises(
        ConfigError, match=r"policies: does not match the schema of the gate: .*taint"
    ):
        CedarGate(taint)


# --- 2: a third decision beside allow and deny ---


async def test_what_is_neither_allowed_nor_denied_is_denied() -> None:
    permit = "permit(principal, action, resource);"
    assert plain(permit, {"rate": None})[0] == "NoDecision", "so it is with Cedar alone"
    gate = CedarGate(permit, tools=[pay])
    unknown = Action("pay", {"to": "ada", "cents": 1}, effect="\ud800")  # type: ignore[arg-type]

    with structlog.testing.capture_logs() as lines:
        said = gate.decide(unknown, STATE)

    assert said == Deny(
        "policy could not be evaluated for this call of pay, so it was not made"
    )
    assert [line["problem"] for line in lines] == [
        "the request does not match the schema"
    ]


@pytest.mark.parametrize("effect", [ADMIN, 1, None, ["read"]])
def test_every_request_is_held_to_the_schema_where_everything_is_permitted(
    effect: Any,
) -> None:
    gate = CedarGate("permit(principal, action, resource);")

    with structlog.testing.capture_logs() as lines:
        said = gate.decide(Action("pay", {}, effect=effect), STATE)

    assert said == Deny(
        "policy could not be evaluated for this call of pay, so it was not made"
    )
    assert [line["problem"] for line in lines] == [
        "the request does not match the schema"
    ]


@pytest.mark.parametrize("name", ["\ud800", "\x00", "", 'x"::y', "a\nb"])
def test_a_name_that_cedar_may_not_read_is_not_let_through_by_an_error(
    name: str,
) -> None:
    gate = CedarGate('permit(principal, action, resource == Tool::"good");')

    with structlog.testing.capture_logs():
        assert isinstance(gate.decide(Action(name, {}), STATE), Deny)


def test_an_exception_on_the_way_denies() -> None:
    gate = CedarGate("permit(principal, action, resource);")

    with structlog.testing.capture_logs() as lines:
        said = gate.decide(Action("pay", {}, labels=None), STATE)  # type: ignore[arg-type]

    assert said == Deny(
        "policy could not be evaluated for this call of pay, so it was not made"
    )
    assert [line["problem"] for line in lines] == ["TypeError"]


# --- 3: floats, null and large numbers make a request that cannot be built ---

UP_TO_TEN = """
permit(principal, action == Action::"pay", resource) when {
    context.arguments.cents <= 1000 && context.arguments.rate.lessThanOrEqual(decimal("1.5"))
};
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"rate": 1.25}, 1),
        ({"rate": 1.5, "note": None}, 1),
        ({"rate": 1}, 1),
        ({"rate": 1.5001}, 0),
        ({"cents": 1001}, 0),
        ({"cents": 2**63}, 0),
        ({"cents": -(2**80)}, 0),
    ],
)
async def test_numbers_and_null_in_arguments_are_judged_and_not_stumbled_over(
    arguments: dict[str, Any], expected: int
) -> None:
    assert (
        plain("permit(principal, action, resource);", {"rate": 1.25})[0] == "NoDecision"
    ), "so it is with Cedar alone"
    gate = CedarGate(UP_TO_TEN, tools=[pay])

    assert await starts(gate, **{"to": "ada", "cents": 1, **arguments}) == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rate": 1.50001}, "rate has more than four decimal places"),
        ({"rate": 1e300}, "rate is too large a number"),
        ({"cents": 2**63}, "cents is too large a number"),
        ({"to": "\ud800"}, "to contains half a surrogate pair"),
        ({"too": "eve"}, '"too" is not among the arguments that the policy knows'),
    ],
)
def test_what_cedar_cannot_hold_exactly_is_never_rounded_but_denied(
    arguments: dict[str, Any], problem: str
) -> None:
    said = CedarGate(UP_TO_TEN, tools=[pay]).decide(
        Action("pay", {"to": "ada", "cents": 1, **arguments}), STATE
    )

    assert said == Deny(
        f"policy cannot judge this call of pay, so it was not made: {problem}"
    )


# --- 4: an argument that becomes an entity ---


async def test_an_argument_never_becomes_an_entity() -> None:
    as_admin = 'permit(principal, action, resource) when { context.arguments.who == Agent::"admin" };'
    assert plain(as_admin, {"arguments": {"who": ADMIN}})[0] == "Allow", (
        "so it is with Cedar alone"
    )

    with pytest.raises(
        ConfigError, match="policies: does not match the schema of the gate"
    ):
        CedarGate(as_admin, tools=[pay])


@pytest.mark.parametrize(
    "smuggled",
    [ADMIN, {"__expr": 'Agent::"admin"'}, {"__extn": {"fn": "ip", "arg": "::1"}}],
)
def test_an_instruction_in_an_argument_is_refused_or_a_text(
    smuggled: dict[str, Any],
) -> None:
    permit = "permit(principal, action, resource);"
    told = 'permit(principal, action == Action::"tell", resource) when { context.arguments.what == %s };'

    class Tell:
        name = "tell"
        schema = {  # noqa: RUF012 - as a server sends it
            "type": "object",
            "properties": {"what": {}, "__entity": {}},
            "required": ["what"],
        }

    as_text = json.dumps(smuggled, separators=(",", ":"), sort_keys=True)
    exactly = CedarGate(told % json.dumps(as_text), tools=[Tell()])

    assert isinstance(
        CedarGate(permit, tools=[pay]).decide(
            Action("pay", {"to": smuggled, "cents": 1}), STATE
        ),
        Deny,
    )
    assert isinstance(
        CedarGate(permit, tools=[pay]).decide(Action("pay", smuggled), STATE), Deny
    )
    assert exactly.decide(Action("tell", {"what": smuggled}), STATE) == Allow()
    assert (
        exactly.decide(
            Action("tell", {"what": smuggled, "__entity": ADMIN["__entity"]}), STATE
        )
        == Allow()
    )


# --- 5: a pattern is no parser of addresses ---

AT_EXAMPLE = 'context.arguments.to like "*@example.com"'
ONE = 'permit(principal, action == Action::"pay", resource) when { %s && !context.several.contains("to") };'


@pytest.mark.parametrize(
    "to",
    [
        "evil@x.com,b@example.com",
        "evil@x.com;b@example.com",
        "evil@x.com b@example.com",
        "evil@x.com\nb@example.com",
        "evil@x.com\u2028b@example.com",
        "evil@x.com\u200bb@example.com",
    ],
)
async def test_a_pattern_for_one_address_can_tell_a_list_of_them(to: str) -> None:
    careless = CedarGate(
        f'permit(principal, action == Action::"pay", resource) when {{ {AT_EXAMPLE} }};',
        tools=[pay],
    )
    careful = CedarGate(ONE % AT_EXAMPLE, tools=[pay])

    assert await starts(careless, to=to, cents=1) == 1, "so it is with Cedar alone"
    assert await starts(careful, to=to, cents=1) == 0
    assert await starts(careful, to="b@example.com", cents=1) == 1


# --- 6: without a schema an unknown tool is denied by luck alone ---


@pytest.mark.parametrize(
    "where",
    ['action == Action::"payy"', 'action in Action::"pays"', "action, resource is Tol"],
)
def test_a_policy_about_a_name_that_is_not_there_is_refused_when_it_is_loaded(
    where: str,
) -> None:
    policy = f"forbid(principal, {where}{'' if 'resource' in where else ', resource'});"

    with pytest.raises(
        ConfigError, match="policies: does not match the schema of the gate"
    ):
        CedarGate(policy, tools=[pay])


def test_a_tool_that_the_gate_was_not_given_is_a_call_without_arguments() -> None:
    gate = CedarGate(
        'permit(principal, action in Action::"call", resource == Tool::"look");',
        tools=[pay],
    )

    assert (
        gate.decide(Action("look", {"any": [1.23456, None, ADMIN]}), STATE) == Allow()
    )
    assert gate.decide(Action("lock", {}), STATE) == Deny(
        "policy does not permit lock here"
    )
    with pytest.raises(ConfigError, match="arguments"):
        CedarGate(
            'permit(principal, action == Action::"call", resource) when { context.arguments.what == "x" };'
        )


@pytest.mark.parametrize(
    "condition",
    [
        'context.arguments.note == "x"',
        "context.arguments.sents < 5",
        "context.arguments.cents == 1.5",
        "context.lable > 1",
    ],
)
def test_an_unguarded_or_misspelt_attribute_is_refused_when_it_is_loaded(
    condition: str,
) -> None:
    with pytest.raises(ConfigError, match="policies: "):
        CedarGate(
            f'permit(principal, action == Action::"pay", resource) when {{ {condition} }};',
            tools=[pay],
        )
