"""An approval for a time is for the same destinations, as the tool of the approved call and that of a later one say."""

from typing import Any

import pytest

from loopwright import ReActEngine, Runtime, Suspend, tool
from loopwright.gates import ApprovalGate
from loopwright.testing import ScriptedProvider, call


def build_pay(paid: list[str], *destinations: str) -> Any:
    """A tool that pays to declared destinations, and notes the accounts."""

    @tool(destinations=destinations)
    def pay(to: str, account: str = "usual") -> str:
        """Pay."""
        paid.append(account)
        return "paid"

    return pay


@pytest.mark.parametrize(
    ("first", "second", "asked"),
    [
        (("to", "account"), ("to",), ["2"]),
        (("to",), ("to", "account"), ["2"]),
        (("to",), ("to",), []),
    ],
)
async def test_a_call_of_another_engine_has_the_destinations_of_both_tools(
    first: tuple[str, ...], second: tuple[str, ...], asked: list[str]
) -> None:
    paid: list[str] = []
    policy, approver = ApprovalGate(["pay"]), Suspend()
    script = [
        call("pay", to="ada", account="1"),
        call("back", task="Pay Ada."),
        call("pay", to="ada", account="2"),
        "Paid.",
        "All paid.",
    ]
    model = ScriptedProvider(script)
    other = Runtime(model, tools=[build_pay(paid, *second)], gate=policy, approver=approver)  # fmt: skip
    back = ReActEngine(other).as_tool(name="back", effect="read")
    tools = [build_pay(paid, *first), back]
    runtime = Runtime(model, tools=tools, gate=policy, approver=approver)
    engine = ReActEngine(runtime)
    waiting = await engine.run("Pay Ada.", run_id="r")
    await runtime.control("r").approve(waiting.pending[0].id, seconds=60)

    result = await engine.resume("r")

    assert [one.arguments["account"] for one in result.pending] == asked
    assert paid == (["1"] if asked else ["1", "2"])


@pytest.mark.parametrize(
    ("first", "second"), [(("to", "account"), ("to",)), (("to",), ("to", "account"))]
)
@pytest.mark.parametrize("approved", [{}, {"account": "1"}])
async def test_a_destination_that_one_of_the_calls_leaves_out_is_another_one(
    first: tuple[str, ...], second: tuple[str, ...], approved: dict[str, str]
) -> None:
    paid: list[str] = []
    later = {} if approved else {"account": "2"}
    script = [
        call("pay", to="ada", **approved),
        call("back", task="Pay Ada."),
        call("pay", to="ada", **later),
    ]
    model, policy = ScriptedProvider(script), ApprovalGate(["pay"])
    other = Runtime(model, tools=[build_pay(paid, *second)], gate=policy, approver=Suspend())  # fmt: skip
    back = ReActEngine(other).as_tool(name="back", effect="read")
    tools = [build_pay(paid, *first), back]
    runtime = Runtime(model, tools=tools, gate=policy, approver=Suspend())
    engine = ReActEngine(runtime)
    waiting = await engine.run("Pay Ada.", run_id="r")
    await runtime.control("r").approve(waiting.pending[0].id, seconds=60)

    result = await engine.resume("r")

    assert [one.arguments for one in result.pending] == [{"to": "ada", **later}]
    assert paid == [approved.get("account", "usual")]
