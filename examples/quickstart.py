"""A question, two tools and a small model on this machine: watch a run as it happens, then find it in its journal."""

import asyncio
import sys
from typing import Literal

from loopwright import (
    Conversation,
    Limits,
    Message,
    ReActEngine,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import (
    Event,
    GateDecided,
    ModelReplied,
    ModelRequested,
    RunFinished,
    ToolFinished,
    ToolStarted,
)
from loopwright.journals import SQLiteJournal
from loopwright.providers import LocalProvider, TextTools
from loopwright.providers.dialects import JsonDialect

JOURNAL = "loopwright-demo.db"
CAPITALS = {
    "argentina": "Buenos Aires", "australia": "Canberra", "austria": "Vienna", "brazil": "Brasilia",
    "canada": "Ottawa", "chile": "Santiago", "cuba": "Havana", "egypt": "Cairo", "finland": "Helsinki",
    "france": "Paris", "germany": "Berlin", "greece": "Athens", "india": "New Delhi", "italy": "Rome",
    "japan": "Tokyo", "kenya": "Nairobi", "norway": "Oslo", "peru": "Lima", "poland": "Warsaw",
    "portugal": "Lisbon", "spain": "Madrid", "turkey": "Ankara",
}  # fmt: skip


@tool(effect="read")
def calculator(
    a: float, operation: Literal["add", "subtract", "multiply", "divide"], b: float
) -> str:
    """Add, subtract, multiply or divide two numbers."""
    if operation == "divide" and b == 0:
        return "nothing can be divided by 0"
    results = {
        "add": a + b,
        "subtract": a - b,
        "multiply": a * b,
        "divide": a / (b or 1),
    }
    return f"{results[operation]:.10g}"


@tool(effect="read")
def capital(country: str) -> str:
    """Look up the capital city of a country."""
    return CAPITALS.get(country.strip().lower(), f"there is no entry for {country!r}")


def example(question: str, call: ToolCall, result: str) -> Conversation:
    """A question as it should be answered: a call, its result, and the answer in plain words."""
    return Conversation([
        Message("user", question),
        Message("assistant", "", (call,)),
        Message("tool", result, call_id=call.id),
        Message("assistant", f"The answer is {result}."),
    ])  # fmt: skip


def sum_of(a: int, operation: str, b: int) -> ToolCall:
    """A call of the calculator."""
    return ToolCall("calculator", {"a": a, "operation": operation, "b": b}, "1")


def city_of(country: str) -> ToolCall:
    """A call of the look-up."""
    return ToolCall("capital", {"country": country}, "1")


# A model of 135 million parameters knows what to do only when it has seen it done.
EXAMPLES = [
    example("What is 12 * 8?", sum_of(12, "multiply", 8), "96"),
    example("What is the capital of France?", city_of("France"), "Paris"),
    example(
        "A farmer has 90 sheep and sells 35. How many are left?",
        sum_of(90, "subtract", 35),
        "55",
    ),
    example("Tell me the capital of Spain.", city_of("Spain"), "Madrid"),
    example("What is 150 + 275?", sum_of(150, "add", 275), "425"),
    example("Which city is the capital of Germany?", city_of("Germany"), "Berlin"),
    example("What is 96 / 4?", sum_of(96, "divide", 4), "24"),
]


def tell(event: Event) -> None:
    """Print one line of the run's timeline."""
    match event:
        case ModelRequested(iteration=turn):
            say("model", f"asked, turn {turn}")
        case ModelReplied(completion=reply, seconds=seconds):
            say("thought", reply.thought)
            say("problem", reply.problem)
            for call in reply.calls:
                arguments = ", ".join(
                    f"{name}={value!r}" for name, value in call.arguments.items()
                )
                say("action", f"{call.name}({arguments})   [{seconds:.1f} s]")
        case GateDecided(tool=name, verdict=verdict, reason=reason):
            say("gate", f"{verdict} {name}" + (f": {reason}" if reason else ""))
        case ToolStarted(tool=name, effect=effect):
            say("tool", f"{name} starts ({effect})")
        case ToolFinished(content=content):
            say("observation", content)
        case RunFinished(answer=answer, status=status, stop_reason=reason):
            say("answer", answer)
            say("end", f"{status}: {reason}")
        case _:
            pass


def say(what: str, text: str | None) -> None:
    """Print a line, if there is something to say."""
    if text:
        print(f"{what:>12}  {text}", flush=True)


async def main(question: str) -> int:
    """Answer a question, and say what it took."""
    model = LocalProvider()
    provider = TextTools(model, JsonDialect(repeats=False), examples=EXAMPLES)
    journal = SQLiteJournal(JOURNAL)
    # A busy machine may take minutes for what a quiet one does in seconds.
    limits = Limits(max_iterations=4, timeout=1_800, model_timeout=600)
    async with Runtime(
        provider, tools=[calculator, capital], journal=journal, limits=limits
    ) as runtime:
        say("question", question)
        async with ReActEngine(runtime).start(question) as run:
            async for entry in run:
                tell(entry.event)
            result = await run.result()
    await journal.close()
    usage = result.usage
    say(
        "usage",
        f"{result.llm_calls} model calls, {usage.input_tokens} tokens read, {usage.output_tokens} written",
    )
    say("journal", f"run {result.run_id} in {JOURNAL}")
    return 0 if result.status == "completed" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(" ".join(sys.argv[1:]) or "What is 17 * 23?")))
