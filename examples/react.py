"""ReAct: a support desk looks an order up, gets a number wrong, reads why, and answers.

ReAct takes turns: the model thinks, calls tools, reads what came back, and continues until it answers. This is the loop
for open tasks, where the next step depends on what the last one brought.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

from loopwright import (
    Completion,
    Limits,
    ReActEngine,
    Runtime,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.events import Event, GateDecided, ModelReplied, ToolFinished
from loopwright.testing import ScriptedProvider, call

ORDERS = {"4711": ("desk lamp", "NX-20817"), "4712": ("office chair", "NX-20990")}
PARCELS = {
    "NX-20817": "in Leipzig, due on Thursday",
    "NX-20990": "delayed in Hamburg, due on Monday",
}
OFFICES = {"Leipzig": "open until 20:00", "Hamburg": "open until 18:00"}


# --- tools: typed functions; the docstring is what the model reads ---


@tool(effect="read")
def order(number: str) -> str:
    """What was ordered, and the number of its parcel."""
    if number not in ORDERS:
        raise ToolError(f"there is no order {number!r}; order numbers have four digits")
    goods, parcel = ORDERS[number]
    return f"{goods}, parcel {parcel}"


@tool(effect="read")
def parcel(number: str) -> str:
    """Where a parcel is, and when it is due."""
    return PARCELS.get(number, "unknown")


@tool(effect="read")
def office_hours(city: str) -> str:
    """When the post office of a city is open."""
    return OFFICES.get(city, "unknown")


# --- the model's turns ---


def turn(thought: str, *calls: ToolCall) -> Completion:
    """A thought, and the calls that follow from it."""
    return Completion(thought, calls=calls, thought=thought, finish_reason="tool_calls")


SCRIPT: list[Completion | str] = [
    turn("I need the parcel's number first.", call("order", number="#4711")),
    turn("Only the digits, then.", call("order", number="4711")),
    turn("Now the parcel.", call("parcel", number="NX-20817")),
    turn(  # two calls in one turn run at the same time
        "It is in Leipzig. Other cities may be asked about as well.",
        call("office_hours", city="Leipzig"),
        call("office_hours", city="Hamburg"),
    ),
    "Your desk lamp is in Leipzig and due on Thursday. To fetch it yourself: the office there is open until 20:00.",
]


def tell(event: Event) -> None:
    """Print a journal entry as one line; the journal has more kinds than these."""
    match event:
        case ModelReplied(completion=reply):
            if reply.thought:
                print(f"Thought      {reply.thought}")
            for made in reply.calls:
                print(
                    f"Action       {made.name}({', '.join(f'{k}={v!r}' for k, v in made.arguments.items())})"
                )
        case GateDecided(verdict=verdict, tool=name):
            print(f"Gate         {verdict} {name}")
        case ToolFinished(status=status, content=content):
            print(f"Observation  [{status}] {content}")
        case _:
            pass


def main() -> None:
    """Answer a customer, and print each turn."""
    provider = ScriptedProvider(SCRIPT)
    runtime = Runtime(
        provider, tools=[order, parcel, office_hours], limits=Limits(max_iterations=8)
    )
    result = ReActEngine(runtime).run_sync(
        "Where is my order #4711, and can I fetch it after work?"
    )

    for entry in runtime.journal.read(result.run_id):
        tell(entry.event)
    print(
        f"\n{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
