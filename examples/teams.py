"""Agents at work together: a team with a board, and a boss that gives work to agents by tools.

The team splits a task, two agents work at once, one task fails and loses no other. The board is read from the journal's
entries while the run is at work; any other process can read it too. Then a boss delegates to `explore`, an agent that
comes with the library and has the tools that only read.

No model is needed: `model` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import json

from loopwright import ProviderError, Request, Runtime, tool
from loopwright.agents import AgentsToolbox
from loopwright.engines import Board, TeamEngine
from loopwright.testing import Line, ScriptedProvider, call

PLAN = [
    {"agent": "trains", "task": "How does one get to Zermatt?"},
    {"agent": "beds", "task": "Where does one sleep there?"},
    {"agent": "trains", "task": "And back?"},
]
SAYS = {
    "How does one get to Zermatt?": "By train, change in Visp.",
    "And back?": "The same way, the last one is at 20:13.",
}


@tool(effect="read")
def read_note(name: str) -> str:
    """Read a note."""
    return f"{name}: the hut is closed on Mondays"


def model(request: Request) -> Line:
    """Split, work and join."""
    asked = request.conversation.messages[-1].content
    if asked.startswith("Split the task"):
        return json.dumps({"value": PLAN})
    if "results of its parts" in asked:
        return "Train via Visp, back by 20:13; nothing is known of beds."
    task = asked.rpartition("\n")[2]
    if task not in SAYS:
        return ProviderError("the hotel's page is down", retryable=False)
    return SAYS[task]


async def run_team() -> None:
    """Run a team and print its board as it changes."""
    runtime = Runtime(ScriptedProvider(model))
    runtime.agent("trains", description="Knows timetables.")
    runtime.agent("beds", description="Knows hotels.")
    board = Board()
    async with TeamEngine(runtime, max_concurrency=1).start("Plan a trip.") as run:
        async for entry in run:
            changed = board.add(entry)
            if changed != board:
                board = changed
                print("board:", *(f"{task.agent} {task.state}" for task in board.tasks))
        result = await run.result()
    print("failed:", *(task.problem for task in board.tasks if task.problem))
    print(f"Team: {result.answer}")


async def run_boss() -> None:
    """Have a boss delegate to an agent that comes with the library."""
    script: list[Line] = [
        call("delegate", agent="explore", task="When is the hut closed?"),
        call("read_note", name="hut"),
        "On Mondays, says the note on the hut.",
        "Not on a Monday.",
    ]
    runtime = Runtime(ScriptedProvider(script), tools=[read_note])
    boss = runtime.agent("boss", tools=[AgentsToolbox(runtime, presets=["explore"])])
    result = await boss.run("When do we go?")
    print(f"Boss: {result.answer}")


async def main() -> None:
    """Run both."""
    await run_team()
    await run_boss()


if __name__ == "__main__":
    asyncio.run(main())
