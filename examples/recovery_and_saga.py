"""Recovery and saga: tools that fail, how calls recover, and a trip that is undone when it fails.

Each tool declares by `recovery` what helps when a call of it fails: a retry, another tool, arguments
that the model repairs, or the dead-letter queue. The run is a saga: when the model itself fails in
the end, the bookings are undone by the tools' `compensate`, the last booking first.

No model is needed: `SCRIPT` plays one. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import logging

import structlog

from loopwright import (
    Entry,
    ProviderError,
    ReActEngine,
    Runtime,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.events import CallDeadLettered, RecoveryTriggered, UndoFinished
from loopwright.testing import Script, ScriptedProvider, call
from loopwright.tools import DeadLetter, Fallback, LlmRecovery, Retry

BUSY = ["the line is busy"]  # what the timetable says before it works

SCRIPT: Script = [
    [call("timetable", to="Porto"), call("fare", to="Porto")],
    [call("book_train", leaves="08:12"), call("book_room", arrives="Friday")],
    '{"arguments": {"arrives": "2026-05-01"}}',  # asked for better arguments
    call("order_taxi", at="07:30"),
    ProviderError("the model is gone"),
]


@tool(effect="read", recovery=Retry(max_attempts=3, base_delay=0.01))
async def timetable(to: str) -> str:
    """When trains leave."""
    if BUSY:
        raise ConnectionError(BUSY.pop())
    return "08:12 and 10:12"


@tool(effect="read", recovery=Fallback("last_years_fare"))
async def fare(to: str) -> str:
    """What a ticket costs."""
    raise ConnectionError("no route to host")


@tool(effect="read")
async def last_years_fare(to: str) -> str:
    """What a ticket cost last year."""
    return "61 EUR"


async def cancel(ctx: ToolContext[None], result: str) -> str:
    """Cancel a booking, which the result of the call names."""
    return f"{result} cancelled"


@tool(compensate=cancel)
async def book_train(leaves: str) -> str:
    """Book a train."""
    return "ticket 88-1"


@tool(compensate=cancel, recovery=LlmRecovery())
async def book_room(arrives: str) -> str:
    """Book a room."""
    if not arrives[0].isdigit():
        raise ToolError("write the day as YYYY-MM-DD")
    return "room 14"


@tool(recovery=DeadLetter(queue="front-desk"))
async def order_taxi(at: str) -> str:
    """Order a taxi."""
    raise OSError("no answer on the phone")


def show(entry: Entry) -> None:
    """Print how failures are handled, as it happens."""
    match entry.event:
        case RecoveryTriggered() as recovery:
            print(f"{recovery.tool} failed: {recovery.error}\n    {recovery.strategy}")
        case CallDeadLettered() as call:
            print(f"    for the {call.queue}: {call.tool} {dict(call.arguments)}")
        case UndoFinished() as undone:
            print(f"undone: {undone.tool}, {undone.content}")
        case _:
            pass


async def main() -> None:
    """Plan a trip that fails at the end."""
    # The tracebacks of failed tools are in the log, which belongs to the application: this one wants errors only.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR)
    )
    tools = [timetable, fare, last_years_fare, book_train, book_room, order_taxi]
    runtime = Runtime(ScriptedProvider(SCRIPT), tools=tools, observers=[show])
    result = await ReActEngine(runtime).run(
        "Book a trip to Porto on Friday.", saga=True
    )
    read = [
        message.content
        for message in result.conversation.messages
        if message.role == "tool"
    ]
    print(f"\nThe model read of the fare: {read[1].splitlines()}")
    print(f"{result.status}: {result.error}")


if __name__ == "__main__":
    asyncio.run(main())
