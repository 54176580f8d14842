"""Policies in the Cedar language: what a support desk may read and pay back by itself, and what a person decides.

The policies are checked against the tools' own schemas when they are loaded, so that a misspelt argument is found
before anything runs. One asks a person, one tells the model why it forbids. In files beside the code they are taken by
`CedarGate.from_files("policies/")`. It wants `pip install 'loopwright[cedar]'`.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio

from loopwright import Action, ConfigError, ReActEngine, Runtime, ToolCall, tool
from loopwright.events import Event, GateDecided
from loopwright.gates import CedarGate
from loopwright.testing import ScriptedProvider, call

POLICIES = """\
permit(principal, action in Action::"call", resource)
when { context.effect == "read" };

permit(principal, action == Action::"refund", resource)
when { context.arguments.euros.lessThanOrEqual(decimal("100.0")) };

@ask("A refund of more than 100 EUR: pay it?")
permit(principal, action == Action::"refund", resource)
when { context.arguments.euros.lessThanOrEqual(decimal("1000.0")) };

@reason("no account is closed here: tell the customer how to do it")
forbid(principal, action == Action::"close_account", resource);
"""


@tool(effect="read")
def order(number: str) -> str:
    """What was paid for an order."""
    return f"{number}: 900.00 EUR were paid"


@tool
def refund(order: str, euros: float) -> str:
    """Pay money back."""
    return f"{euros:.2f} EUR refunded for {order}"


@tool(effect="destructive")
def close_account(customer: str) -> str:
    """Close a customer's account for good."""
    raise AssertionError(f"the account of {customer} must not be closed here")


TOOLS = [order, refund, close_account]
SCRIPT: list[str | list[ToolCall]] = [
    [call("order", number="4712")],
    [
        call("refund", order="4712", euros=90.5),
        call("refund", order="4712", euros=809.5),
        call("refund", order="4712", euros=5000.0),
        call("refund", order="4712", euros=0.123456),
        call("close_account", customer="C-17"),
    ],
    "900.00 EUR are on their way. Your account you can close under Settings > Account.",
]


async def on_duty(action: Action, question: str) -> bool:
    """The person who is asked; use a prompt or a web form instead."""
    print(f"person  {question} {action.arguments['euros']} EUR are fine.")
    return True


def tell(event: Event) -> None:
    """Print what was decided."""
    if isinstance(event, GateDecided):
        print(
            f"gate    {event.verdict:<5} {event.tool}"
            + (f": {event.reason}" if event.reason else "")
        )


async def main() -> None:
    """Let the desk work on a complaint, after policies with a slip in them."""
    try:
        CedarGate(POLICIES.replace("arguments.euros", "arguments.euro"), tools=TOOLS)
    except ConfigError as error:
        print(f"A slip is found at once:\n  {str(error).partition('; ')[0]}\n")

    gate = CedarGate(POLICIES, tools=TOOLS)
    runtime = Runtime(
        ScriptedProvider(SCRIPT), tools=TOOLS, gate=gate, approver=on_duty
    )
    async with ReActEngine(runtime).start(
        "Refund my order 4712, and close my account C-17."
    ) as run:
        async for entry in run:
            tell(entry.event)
        result = await run.result()

    print(
        f"\n{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
