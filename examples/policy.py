"""A policy gate: what a support desk refunds by itself, what is cut down, what a person decides, what is refused.

A gate is asked about every call before it runs: allow, deny, modify, or ask a person. What it says is in the journal
before the tool starts. The model reads a denial like a tool's result, and continues from there. A gate that fails denies.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio

from loopwright import (
    Action,
    Allow,
    Ask,
    Deny,
    Modify,
    PolicyState,
    ReActEngine,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import Event, GateDecided, ToolFinished
from loopwright.gates import Decision
from loopwright.testing import ScriptedProvider, call

PAID = {"4711": 80.0, "4712": 900.0, "4713": 35.0}


@tool(effect="read")
def order(number: str) -> str:
    """What was paid for an order."""
    return f"{PAID[number]:.2f} EUR were paid for {number}"


@tool(effect="write")
def refund(order: str, amount: float) -> str:
    """Pay money back."""
    return f"{amount:.2f} EUR refunded for {order}"


@tool(effect="destructive")
def close_account(customer: str) -> str:
    """Close a customer's account for good."""
    raise AssertionError(f"the account of {customer} must not be closed here")


class RefundPolicy:
    """Reads are free; a refund is never more than was paid; above 100 EUR a person decides; nothing is destroyed."""

    version = (
        "refunds-3"  # a permit given under one version is not honoured under another
    )

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Decide about one call; `state` says where the run stands."""
        if action.effect == "read":
            return Allow()
        if action.tool != "refund":
            return Deny(
                f"the support desk may not use {action.tool}: tell the customer how to do it themselves"
            )
        number, amount = (
            str(action.arguments["order"]),
            float(str(action.arguments["amount"])),
        )
        if amount > PAID[number]:
            return Modify(
                {"order": number, "amount": PAID[number]},
                "no more is refunded than was paid",
            )
        if amount > 100:
            return Ask(
                f"Refund {amount:.2f} EUR for order {number}? (call {state.tool_calls + 1} of this run)"
            )
        return Allow()


async def on_duty(action: Action, question: str) -> bool:
    """The person who is asked: here they agree to refunds below 1,000 EUR; use a prompt or a web form instead."""
    agreed = float(str(action.arguments["amount"])) < 1000
    print(f"person    {question} {'Yes.' if agreed else 'No.'}")
    return agreed


SCRIPT: list[str | list[ToolCall]] = [
    [call("order", number="4711"), call("order", number="4712")],
    [
        call("refund", order="4711", amount=800.0),  # a slip: 80.00 were paid
        call("refund", order="4712", amount=900.0),
        call("close_account", customer="C-17"),
    ],
    "80.00 and 900.00 EUR are on their way back to you. Your account you can close under Settings > Account.",
]


def tell(event: Event) -> None:
    """Print what was decided and done."""
    match event:
        case GateDecided(verdict="modify", tool=name, arguments=arguments):
            print(f"gate      modify  {name}: {arguments}")
        case GateDecided(verdict=verdict, tool=name, reason=reason):
            print(f"gate      {verdict:<7} {name}" + (f": {reason}" if reason else ""))
        case ToolFinished(status=status, content=content):
            print(f"tool      [{status}] {content}")
        case _:
            pass


async def main() -> None:
    """Let the desk work on a complaint."""
    provider = ScriptedProvider(SCRIPT)
    runtime = Runtime(
        provider,
        tools=[order, refund, close_account],
        gate=RefundPolicy(),
        approver=on_duty,
    )
    async with ReActEngine(runtime).start(
        "Refund my orders 4711 and 4712, and close my account C-17."
    ) as run:
        async for entry in run:
            tell(entry.event)
        result = await run.result()

    denial = provider.requests[-1].conversation.messages[-1].content
    print(f"\nThe model read: {denial}")
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
