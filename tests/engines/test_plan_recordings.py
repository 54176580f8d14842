"""Recorded plans of LLMCompiler and ReWOO: the same graph, or a reason why there is none."""

import asyncio
import json
from typing import Any

import pytest

from loopwright import MemoryJournal, PlanExecuteEngine, Request, Runtime, tool
from loopwright.messages import ToolSpec
from loopwright.parsing.plans.checks import check_plan
from loopwright.parsing.plans.reader import read_plan
from loopwright.testing import ScriptedProvider
from recordings import MISSING, fixture, rows
from virtual_time import in_virtual_time

ROWS = rows("dag_plans.jsonl")
UNCLOSED = (
    "llmcompiler-parallelqa-lla-1"  # lines 2, 4 and 6 of it have no closing bracket
)
LENIENT = fixture("alexclaw_parser_cases.json")
CASES: list[dict[str, Any]] = (
    json.loads(LENIENT.read_text(encoding="utf-8"))["cases"] if LENIENT.exists() else []
)

pytestmark = pytest.mark.skipif(not ROWS or not CASES, reason=MISSING)


def spec(name: str) -> ToolSpec:
    properties: dict[str, Any] = {
        "text": {"type": "string"},
        "context": {"type": "array"},
    }
    return ToolSpec(
        name, "", {"type": "object", "properties": properties, "required": ["text"]}
    )


TOOLS = [spec("search"), spec("math"), spec("Wikipedia")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
@pytest.mark.parametrize(
    "names", [[], [tool.name for tool in TOOLS]], ids=["unknown tools", "known tools"]
)
def test_a_recorded_plan_is_the_graph_that_was_meant(
    row: dict[str, Any], names: list[str]
) -> None:
    if row["id"] == UNCLOSED:
        with pytest.raises(
            ValueError, match=r"^Step 2: the bracket of math\( is never closed\.$"
        ):
            read_plan(row["plan"], names)
        return
    plan = read_plan(row["plan"], names)
    check_plan(plan, TOOLS, 10)
    tasks = [*plan.steps, *([plan.join] if plan.join else [])]

    assert [
        {
            "id": task.id,
            "tool": task.tool,
            "args": task.arguments,
            "depends_on": list(task.depends_on),
        }
        for task in tasks
    ] == row["expected_tasks"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
@in_virtual_time
async def test_a_recorded_plan_runs_in_as_few_waves_as_its_graph_is_deep(
    row: dict[str, Any],
) -> None:
    ran: list[str] = []
    together: list[int] = []
    at_work = 0

    async def work(text: str) -> str:
        nonlocal at_work
        at_work += 1
        await asyncio.sleep(0.01)
        together.append(at_work)
        await asyncio.sleep(0.01)
        at_work -= 1
        ran.append(text)
        return f"<{text}>"

    def model(request: Request) -> str:
        asked = request.conversation.messages[-1].content
        return (
            row["plan"]
            if asked.startswith("Plan how")
            else "thought"
            if "this one step" in asked
            else "the end"
        )

    @tool(effect="read")
    async def search(text: str) -> str:
        """Search."""
        return await work(text)

    @tool(effect="read")
    async def math(text: str, context: list[str] | None = None) -> str:
        """Calculate."""
        return await work(f"{text} {context or ''}".strip())

    @tool(effect="read", name="Wikipedia")
    async def wikipedia(text: str) -> str:
        """Read."""
        return await work(text)

    runtime = Runtime(
        ScriptedProvider(model),
        tools=[search, math, wikipedia],
        journal=MemoryJournal(),
    )
    result = await PlanExecuteEngine(runtime, max_plan_attempts=1).run(
        row.get("question", "Q?")
    )

    if row["id"] == UNCLOSED:
        assert (result.status, result.stop_reason, ran) == ("failed", "unreadable", [])
        return
    tasks = [
        task for task in row["expected_tasks"] if task["tool"] not in ("join", "LLM")
    ]
    independent = sum(not task["depends_on"] for task in tasks)
    thinkers = sum(task["tool"] == "LLM" for task in row["expected_tasks"])
    assert (result.answer, result.llm_calls, result.tool_calls) == (
        "the end",
        2 + thinkers,
        len(tasks),
    )
    assert max(together) == min(independent, 5)
    assert not any("$" in text or "#E" in text for text in ran)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["parser"] == "plan"],
    ids=lambda case: case["raw"][:40],
)
def test_lenient_json_plans_are_read_as_their_own_system_does(
    case: dict[str, Any],
) -> None:
    expected = case["expect"]
    if not expected["ok"]:
        with pytest.raises(ValueError, match="The reply is empty"):
            read_plan(case["raw"])
        return
    steps = read_plan(case["raw"]).steps

    assert len(steps) == expected.get("n_steps", 1)
    assert [step.id for step in steps] == list(range(1, len(steps) + 1))
    assert [step.tool for step in steps] == expected.get(
        "skills", [step.tool for step in steps]
    )
    assert [step.goal for step in steps] == expected.get(
        "input_descriptions", [step.goal for step in steps]
    )


def test_a_reply_cut_anywhere_in_a_recorded_plan_gives_no_half_call() -> None:
    for row in ROWS:
        whole = {task["id"]: task for task in row["expected_tasks"]}
        for end in range(1, len(row["plan"])):
            try:
                steps = read_plan(
                    row["plan"][:end], [tool.name for tool in TOOLS]
                ).steps
            except ValueError:
                continue
            for step in steps:
                assert step.tool is None or whole[step.id]["args"] == step.arguments
