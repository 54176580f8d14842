"""Faults that were measured on CortexPrism's loop, and that a turn does not have."""

import json
from typing import Any

import pytest

from loopwright import (
    Limits,
    ProviderError,
    Request,
    Runtime,
    Tool,
    ToolError,
    tool,
)
from loopwright.engines import TurnEngine
from loopwright.errors import UndoFailed
from loopwright.providers import TextTools
from loopwright.testing import ScriptedProvider, call, crashed
from recordings import MISSING, fixture

CASES = fixture("cortex_toolcall_cases.json")
EXPECTED = {
    "std": ["a"], "simple": ["file_write"], "html": [], "fence-inside-tag": ["a"], "package-json": [],
    "two-in-one-block": ["a", "b"], "quoted-example": [], "single-quotes": ["a"],
}  # fmt: skip


@pytest.mark.skipif(not CASES.exists(), reason=MISSING)
async def test_a_call_in_text_runs_once_and_an_example_of_one_never() -> None:
    ran: list[str] = []

    def build(name: str) -> Tool:
        def work(**arguments: Any) -> str:
            ran.append(name)
            return "found it"

        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        return Tool(name, "Does it.", schema, work)

    tools = [build(name) for name in ("a", "b", "file_write", "shell")]
    found: dict[str, list[str]] = {}
    for case in json.loads(CASES.read_text())["cases"]:
        ran.clear()
        model = TextTools(ScriptedProvider([case["text"], *["It is there."] * 4]), dialect="xml")  # fmt: skip
        result = await TurnEngine(Runtime(model, tools=tools)).run("x")
        found[case["id"]] = sorted(ran)  # two calls of one turn run at once
        assert result.status == "completed", case["id"]

    assert found == EXPECTED


async def test_an_empty_reply_is_asked_for_again_and_no_apology_is_made_up() -> None:
    runtime = Runtime(ScriptedProvider(["", "Blue."]))
    result = await TurnEngine(runtime).run("Sky?")

    assert result.answer == "Blue."
    told = runtime.provider.requests[1].conversation.messages[-2]  # type: ignore[attr-defined]
    assert told.content == "That reply was empty. Answer, or call a tool."
    silent = await TurnEngine(Runtime(ScriptedProvider(lambda request: ""))).run("Sky?")
    assert (silent.status, silent.llm_calls) == ("limit", 9)


async def test_all_calls_of_a_round_run_at_the_same_time() -> None:
    running: list[int] = []
    most = 0

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await runtime.clock.sleep(0)
        running.pop()
        return what

    calls = [call("look", what=what) for what in "abc"]
    runtime = Runtime(ScriptedProvider([calls, "Blue."]), tools=[look])
    await TurnEngine(runtime).run("Sky?")

    assert most == 3


def test_a_turn_has_300_seconds_by_default() -> None:
    assert Limits().timeout == 300
    assert TurnEngine(Runtime(ScriptedProvider([]))).max_rounds == 8


# --- a plan whose code is gone, and a turn that works for another engine ---

TRIP = "first book the flight, then book the hotel, and finally send Ana the dates"


def model(request: Request) -> str:
    last = request.conversation.messages[-1].content
    if "Plan how" in last:
        return '1. book("flight")\n2. book("hotel")\njoin()'
    return "Decision: FINISH" if "Decision:" in last else "Half of it."


def booking(booked: list[str]) -> Tool:
    def undo(ctx: Any, result: str) -> str:
        booked.remove(str(ctx.arguments["what"]))
        return "undone"

    @tool(effect="write", compensate=undo, name="book", trusted=True)
    async def book(what: str) -> str:
        """Book."""
        if what == "hotel":
            raise ToolError("sold out")
        booked.append(what)
        return f"{what} booked"

    return book


async def test_a_plan_that_is_closed_without_its_code_names_what_is_not_undone() -> (
    None
):
    booked: list[str] = []
    runtime = Runtime(ScriptedProvider(model), tools=[booking(booked)])
    await TurnEngine(runtime).run(TRIP, run_id="r")
    entries = runtime.journal.read("r")
    begun = next(one.seq for one in entries if one.kind == "undo_begun")
    again = Runtime(ScriptedProvider([]), journal=crashed(entries, begun - 1))
    await again.control("r").close("the code is gone")
    result = await again.resume("r")

    assert isinstance(result.error, UndoFailed)
    assert "book (" in str(result.error)


async def test_a_turn_inside_another_engine_does_not_undo_what_that_did() -> None:
    booked: list[str] = []
    inner = Runtime(ScriptedProvider(model), tools=[booking(booked)])
    helper = TurnEngine(inner).as_tool(name="helper")
    down = ProviderError("the model is down")
    outer = Runtime(ScriptedProvider([call("helper", task=TRIP), down]), tools=[helper])
    result = await outer.engine("react").run("Help me.", run_id="r")
    kinds = {one.kind for one in outer.journal.read("r")}

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert "undo_begun" not in kinds
    assert booked == ["flight"]
