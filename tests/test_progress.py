"""No progress: the same again is met with a nudge, then a blocked call, then an end; progress is left alone."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Limits, LoopEngine, Observation, ReActEngine, Result, Run, Runtime, Stuck, ToolError, tool
from loopwright.events import GateDecided, ModelRequested
from loopwright.messages import arguments_hash
from loopwright.progress import ProgressMonitor
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


@pytest.mark.xfail(strict=True, reason="progress: unknown tools under ever new names or arguments are not noticed")
async def test_one_unknown_tool_after_another_is_stuck() -> None:
    turns = [call(f"search_{n}", q=f"try {n}") for n in range(9)]
    result, _, _ = await run(*turns, "I give up.")

    assert (result.status, result.answer) == ("stuck", "I give up.")


@pytest.mark.xfail(strict=True, reason="progress: near-equal errors are not noticed; nothing gives repeated_error")
async def test_near_equal_errors_of_a_tool_are_stuck() -> None:
    @tool
    async def query(sql: str) -> str:
        """Query."""
        raise ToolError(f"syntax error at or near {sql!r}: expected SELECT, INSERT, UPDATE or DELETE")

    turns = [call("query", sql=f"SELEC {n}") for n in range(9)]
    result, _, _ = await run(*turns, "I give up.", tools=[query])

    assert (result.status, result.stop_reason, result.answer) == ("stuck", "repeated_error", "I give up.")


async def test_a_stuck_run_asks_for_no_best_answer_where_that_is_off() -> None:
    result, provider, _ = await run(*[SAME] * 5, limits=Limits(best_effort=False))

    assert (result.status, result.answer, len(provider.requests)) == ("stuck", None, 5)


async def test_branches_are_watched_on_their_own() -> None:
    class Branches(LoopEngine):
        name = "branches"

        async def solve(self, run: Run) -> str:
            async def twice(branch: Run) -> str:
                for _ in range(2):
                    await branch.act(await branch.gate(branch.propose(call("look", what="sky"))))
                return "ok"

            return " ".join(await run.gather(twice, twice, twice))

    result = await Branches(Runtime(ScriptedProvider([]), tools=[look])).run("Go.")

    assert (result.status, result.answer, RAN) == ("completed", "ok ok ok", ["sky"] * 6)


# --- the monitor by itself ---

HISTORIES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=40)


@given(HISTORIES)
def test_whatever_happens_no_call_runs_more_often_than_three_times_with_the_same_result(
    history: list[tuple[str, str]],
) -> None:
    monitor = ProgressMonitor()
    same: dict[str, tuple[str, int]] = {}
    for what, result in history:
        wanted = call("look", what=what)
        hashed = arguments_hash(wanted.arguments)
        step = monitor.step("look", hashed)
        if step == "stuck":
            return
        if step == "blocked":
            monitor.observe(Observation(wanted, "rejected", BLOCKED), hashed)
            continue
        before, times = same.get(what, ("", 0))
        same[what] = (result, times + 1 if before == result else 1)
        monitor.observe(Observation(wanted, "ok", result), hashed)

        assert same[what][1] <= 3


@given(HISTORIES)
def test_an_error_and_a_result_of_the_same_words_are_not_the_same(history: list[tuple[str, str]]) -> None:
    monitor = ProgressMonitor()
    for index, (what, content) in enumerate(history):
        status: Any = "ok" if index % 2 else "error"
        wanted = call("look", what=f"{what}{index // 2}")
        hashed = arguments_hash(wanted.arguments)

        assert monitor.step("look", hashed) == "go"
        assert monitor.observe(Observation(wanted, status, content), hashed) is None
