"""The goal cycle: a goal with three skills, a step that fails and another plan, a call that a person orders.

The planner writes steps. After each one the output is evaluated, and a decision follows: by rules where they suffice, else
by the model. Here a page is gone, so the decider makes another plan; meanwhile a person orders a look at a certain page,
which counts as the output of the step that is under way.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
import json
from typing import Any

from loopwright import RunHandle, Runtime, ToolError, tool
from loopwright.engines import GoalCycleEngine
from loopwright.events import Entry, FactNoted, ToolFinished
from loopwright.testing import Line, ScriptedProvider

PAGES = {
    "tower.example/height": "The tower is 330 metres high, with its antenna.",
    "tower.example/steps": "There are 1,665 steps to the top; 674 of them are open to visitors.",
}
HANDLES: list[RunHandle[Any, Any]] = []


@tool(effect="read", trusted=True)
async def search(query: str) -> str:
    """Find the addresses of pages about something."""
    return "tower.example/old-page"


@tool(effect="read", trusted=True)
async def fetch(address: str) -> str:
    """Read a page."""
    if address == "tower.example/height":  # a person watches, and wants something else
        await HANDLES[0].override("fetch", {"address": "tower.example/steps"}, by="Ada")
        await HANDLES[0].steer("Say how many steps are open.", by="Ada")
    if address not in PAGES:
        raise ToolError(f"there is no page {address}")
    return PAGES[address]


@tool(effect="read", trusted=True)
async def sum_up(text: str) -> str:
    """Say a text in one sentence."""
    return text.split(".")[0] + "."


def say(**fields: object) -> str:
    """A reply of the model."""
    return json.dumps(fields)


GOOD = say(relevance=4, completeness=4, usability=4, goal_progress=4, quality="good")
SCRIPT: list[Line] = [
    # The planner, then the input and the evaluation of the first step: rules say that the next step follows.
    say(
        steps=[
            {"skill": "search", "input_description": "pages about the tower"},
            {"skill": "fetch", "input_description": "the page that was found"},
        ]
    ),
    say(input={"query": "tower"}),
    GOOD,
    # The page is gone, so the model is asked: another plan, with the field names that it likes.
    say(input={"address": "tower.example/old-page"}),
    say(
        action="adjust",
        confidence="90%",
        reason="the page is gone",
        new_plan=[
            {"tool": "fetch", "query": "the page about its height"},
            {"tool": "sum_up", "query": "what the page says"},
        ],
    ),
    # While this page is read, a person orders another one: that is what is evaluated, and no decision is asked for.
    say(input={"address": "tower.example/height"}),
    GOOD,
    say(input={"text": PAGES["tower.example/steps"]}),
    GOOD,
    say(answer="674 of the 1,665 steps are open to visitors."),
]


def show(entry: Entry) -> None:
    """Print what was called and what was decided."""
    event = entry.event
    if isinstance(event, ToolFinished):
        print(f"Skill        [{event.status}] {event.content}")
    if not isinstance(event, FactNoted) or not isinstance(event.value, dict):
        return
    if event.name == "Plan":
        steps: Any = event.value["steps"]
        print("Plan         " + ", ".join(f"{one['id']}. {one['tool']}" for one in steps))  # fmt: skip
    if event.name == "GoalDecided":
        print(f"Next         {event.value['move']}, by {event.value['by']}: {event.value['reason']}")  # fmt: skip


async def main() -> None:
    """Run it, and watch."""
    runtime = Runtime(ScriptedProvider(SCRIPT), tools=[search, fetch, sum_up])
    engine = GoalCycleEngine(runtime)
    async with engine.start("How high is the tower?") as handle:
        HANDLES.append(handle)
        async for entry in handle:
            show(entry)
        result = await handle.result()
    print(f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls")  # fmt: skip
    print(f"Answer: {result.answer}")


asyncio.run(main())
