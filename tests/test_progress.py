"""No progress: the same again is met with a nudge, then a blocked call, then an end; progress is left alone."""

import itertools
from typing import Any

import pytest

from loopwright import ReActEngine, Result, Runtime, Stuck, tool
from loopwright.events import GateDecided, ModelRequested
from loopwright.testing import ScriptedProvider, call

RAN: list[str] = []
NUDGE = (
    "You have called look with the same arguments 3 times and got the same result each time. "
    "Calling it again will not help: try something else, or answer with what you know."
)
BLOCKED = "This exact call was made several times with the same result; it is not made again."


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    RAN.append(what)
    return f"{what} is blue"


async def run(*script: Any, tools: Any = (look,), **options: Any) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=tools, **options)
    return await ReActEngine(runtime).run("Go."), provider, runtime


def observed(result: Result) -> list[str]:
    return [message.content for message in result.conversation if message.role == "tool"]


SAME = call("look", what="sky")


async def test_the_third_time_is_nudged_the_fourth_blocked_and_the_fifth_ends_the_run() -> None:
    result, provider, runtime = await run(SAME, SAME, SAME, SAME, SAME, "Blue, I think.")

    assert (result.status, result.stop_reason, result.answer) == ("stuck", "repeated_action", "Blue, I think.")
    assert (RAN, result.tool_calls) == (["sky"] * 3, 3)
    assert observed(result) == ["sky is blue"] * 3 + [BLOCKED]
    assert [m.content for m in provider.requests[3].conversation if m.origin == "runtime"] == [NUDGE]
    assert provider.requests[-1].tool_choice == "none"
    assert isinstance(result.error, Stuck)
    decided = [e.event for e in runtime.journal.read(result.run_id) if isinstance(e.event, GateDecided)]
    assert [event.verdict for event in decided] == ["allow"] * 3 + ["blocked", "stuck"]


async def test_the_nudge_is_said_once_stays_in_the_conversation_and_is_recorded_with_its_call() -> None:
    result, _, runtime = await run(SAME, SAME, SAME, call("look", what="sea"), "done")

    assert [m.content for m in result.conversation if m.origin == "runtime"] == [NUDGE]
    asked = [e.event for e in runtime.journal.read(result.run_id) if isinstance(e.event, ModelRequested)]
    assert [len(event.delivered) for event in asked] == [0, 0, 0, 1, 0]


async def test_two_calls_in_turns_are_noticed_too() -> None:
    other = call("look", what="sea")
    result, _, _ = await run(*[SAME, other] * 4, SAME, "enough")

    assert (result.status, result.stop_reason, RAN) == ("stuck", "repeated_action", ["sky", "sea"] * 3)


async def test_a_poll_whose_result_changes_is_progress() -> None:
    number = itertools.count()

    @tool(effect="read")
    async def poll() -> str:
        """Poll."""
        return f"{next(number)} % done"

    result, provider, _ = await run(*[call("poll")] * 8, "done", tools=[poll])

    assert (result.status, result.tool_calls) == ("completed", 8)
    assert [m for request in provider.requests for m in request.conversation if m.origin == "runtime"] == []


async def test_a_result_that_changes_in_between_starts_the_count_anew() -> None:
    results = iter(["a", "a", "b", "b", "a", "a"])

    @tool(effect="read")
    async def poll() -> str:
        """Poll."""
        return next(results)

    result, _, _ = await run(*[call("poll")] * 6, "done", tools=[poll])

    assert (result.status, result.tool_calls) == ("completed", 6)


async def test_a_repeatable_tool_may_say_the_same_for_ever() -> None:
    @tool(effect="read", repeatable=True)
    async def poll() -> str:
        """Poll."""
        return "not yet"

    result, _, _ = await run(*[call("poll")] * 12, "done", tools=[poll])

    assert (result.status, result.tool_calls) == ("completed", 12)


async def test_the_same_arguments_in_another_order_are_the_same() -> None:
    @tool(effect="read")
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    turns = [call("add", a=1, b=2), call("add", b=2, a=1)] * 3
    result, _, _ = await run(*turns, "three", tools=[add])

    assert (result.status, result.tool_calls) == ("stuck", 3)


async def test_the_same_call_several_times_in_one_turn_counts() -> None:
    result, provider, _ = await run([SAME, SAME, SAME], "done")

    assert (result.status, RAN) == ("completed", ["sky"] * 3)
    assert [m.content for m in provider.requests[1].conversation if m.origin == "runtime"] == [NUDGE]


async def test_the_same_unknown_tool_again_and_again_is_stuck() -> None:
    result, _, _ = await run(*[call("lok", what="sky")] * 5, "I give up.")

    assert (result.status, result.answer, RAN) == ("stuck", "I give up.", [])


async def test_the_same_arguments_that_do_not_fit_again_and_again_are_stuck() -> None:
    result, _, _ = await run(*[call("look", what=1)] * 5, "I give up.")

    assert (result.status, RAN) == ("stuck", [])


async def test_arguments_that_are_not_json_again_and_again_are_stuck() -> None:
    @tool
    async def halve(x: float) -> float:
        """Halve."""
        return x / 2

    result, _, _ = await run(*[call("halve", x=float("nan"))] * 5, "I give up.", tools=[halve])

    assert (result.status, result.stop_reason) == ("stuck", "repeated_action")
