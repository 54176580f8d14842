"""No progress: the same again is met with a nudge, then a blocked call, then an end; progress is left alone."""

import asyncio
import dataclasses
import functools
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import tool_messages
from loopwright import (
    DenyAll,
    ReActEngine,
    Request,
    Result,
    Runtime,
    Tool,
    ToolError,
    tool,
)
from loopwright._kernel.session.similarity import (
    ALIKE,
    COMPARED,
    is_alike,
    similarity,
)
from loopwright.errors import Stuck
from loopwright.events import Entry, GateDecided, ModelRequested
from loopwright.limits import ProgressRules
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN

NUDGE = (
    "You have called look with the same arguments 3 times and got the same result each time. "
    "Calling it again will not help: try something else, or answer with what you know."
)
BLOCKED = (
    "This exact call was made several times with the same result; it is not made again."
)


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    RAN.append(what)
    return f"{what} is blue"


async def run(
    *script: Any, tools: Any = (look,), **options: Any
) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider(script)
    runtime = Runtime(provider, tools=tools, **options)
    return await ReActEngine(runtime).run("Go."), provider, runtime


def nudges(result: Result) -> list[str]:
    return [
        message.content
        for message in result.conversation
        if message.origin == "runtime"
    ]


def decided(runtime: Runtime, run_id: str) -> list[str]:
    return [
        e.event.verdict
        for e in runtime.journal.read(run_id)
        if isinstance(e.event, GateDecided)
    ]


SAME, SEA = call("look", what="sky"), call("look", what="sea")


async def test_a_tool_that_exists_is_no_unknown_one_whatever_its_arguments() -> None:
    unknown = [call(name, what="sky") for name in ("lok", "luk", "lyk")]
    result, _, runtime = await run(
        *unknown, call("look", what=["sky"]), call("look", what="sky"), "done"
    )

    assert (result.answer, RAN) == ("done", ["sky"])
    assert decided(runtime, result.run_id) == ["invalid"] * 4 + ["allow"]
    assert tool_messages(result)[3].startswith(
        "The arguments do not fit the schema of look"
    )


# --- the same call with the same result ---


async def test_the_third_time_is_nudged_the_fourth_blocked_and_the_fifth_ends_the_run() -> (
    None
):
    result, provider, runtime = await run(
        SAME, SAME, SAME, SAME, SAME, "Blue, I think."
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_action",
        "Blue, I think.",
    )
    assert (RAN, result.tool_calls) == (["sky"] * 3, 3)
    assert tool_messages(result) == ["sky is blue"] * 3 + [BLOCKED]
    assert [
        m.content for m in provider.requests[3].conversation if m.origin == "runtime"
    ] == [NUDGE]
    assert provider.requests[-1].tool_choice == "none"
    assert isinstance(result.error, Stuck)
    assert decided(runtime, result.run_id) == ["allow"] * 3 + ["blocked", "stuck"]


async def test_the_nudge_is_sent_once_and_recorded_with_its_call() -> None:
    result, _, runtime = await run(SAME, SAME, SAME, call("look", what="sea"), "done")

    assert nudges(result) == [NUDGE]
    asked = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ModelRequested)
    ]
    assert [len(event.delivered) for event in asked] == [0, 0, 0, 1, 0]


async def test_a_poll_whose_result_changes_is_progress() -> None:
    number = itertools.count()

    @tool(effect="read")
    async def poll() -> str:
        """Poll."""
        return f"{next(number)} % done"

    result, provider, _ = await run(*[call("poll")] * 8, "done", tools=[poll])

    assert (result.status, result.tool_calls) == ("completed", 8)
    assert [
        m
        for request in provider.requests
        for m in request.conversation
        if m.origin == "runtime"
    ] == []


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
    assert [
        m.content for m in provider.requests[1].conversation if m.origin == "runtime"
    ] == [NUDGE]


async def test_calls_of_one_turn_are_blocked_together() -> None:
    result, _, runtime = await run(SAME, SAME, SAME, [SAME, SAME], SAME, "enough")

    assert (result.status, RAN) == ("stuck", ["sky"] * 3)
    assert decided(runtime, result.run_id) == ["allow"] * 3 + ["blocked"] * 2 + [
        "stuck"
    ]


async def test_the_same_arguments_that_do_not_fit_again_and_again_are_stuck() -> None:
    result, _, _ = await run(*[call("look", what=1)] * 5, "I give up.")

    assert (result.status, RAN) == ("stuck", [])


async def test_arguments_that_are_not_json_again_and_again_are_stuck() -> None:
    @tool
    async def halve(x: float) -> float:
        """Halve."""
        return x / 2

    result, _, _ = await run(
        *[call("halve", x=float("nan"))] * 5, "I give up.", tools=[halve]
    )

    assert (result.status, result.stop_reason) == ("stuck", "repeated_action")


# --- two calls in turns ---

IN_TURNS = (
    "You go back and forth between two calls of look, with the same arguments and the same results. "
    "Going on like that will not help: try something else, or answer with what you know."
)
NOT_IN_TURNS = (
    "You go back and forth between two calls of look, with the same arguments and the same results. "
    "Neither is made again before you have done something else."
)


@tool(effect="read")
async def count() -> int:
    """Count."""
    return 3


async def test_two_alternating_calls_are_nudged_then_blocked_then_end_the_run() -> None:
    result, provider, runtime = await run(SAME, SEA, SAME, SEA, SAME, SEA, "enough")

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_action",
        "enough",
    )
    assert RAN == ["sky", "sea"] * 2
    assert [
        m.content for m in provider.requests[4].conversation if m.origin == "runtime"
    ] == [IN_TURNS]
    assert tool_messages(result)[4:] == [NOT_IN_TURNS]
    assert decided(runtime, result.run_id) == ["allow"] * 4 + ["blocked", "stuck"]


async def test_two_tools_in_turns_are_both_named() -> None:
    result, _, _ = await run(
        SAME, call("count"), SAME, call("count"), SEA, "blue", tools=[look, count]
    )

    [nudge] = nudges(result)
    assert nudge.startswith(
        "You go back and forth between a call of look and one of count, with the same"
    )


async def test_either_of_two_calls_in_turns_ends_the_run_once_that_was_said() -> None:
    result, _, _ = await run(SAME, SEA, SAME, SEA, SAME, SAME, "enough")

    assert (result.status, RAN) == ("stuck", ["sky", "sea"] * 2)


async def test_after_two_calls_in_turns_only_the_one_that_goes_on_with_them_is_blocked() -> (
    None
):
    result, _, runtime = await run(SAME, SEA, SAME, SEA, SEA, SAME, "done")

    assert (result.status, RAN) == (
        "completed",
        ["sky", "sea", "sky", "sea", "sea", "sky"],
    )
    assert decided(runtime, result.run_id) == ["allow"] * 6


async def test_two_calls_in_turns_are_blocked_together_where_one_turn_makes_both() -> (
    None
):
    both = [SAME, SEA]
    result, _, runtime = await run(both, both, both, both, "enough")

    assert (result.status, RAN, nudges(result)) == (
        "stuck",
        ["sky", "sea"] * 2,
        [IN_TURNS],
    )
    assert (
        decided(runtime, result.run_id)
        == ["allow"] * 4 + ["blocked"] * 2 + ["stuck"] * 2
    )


async def test_alternating_calls_of_one_turn_are_nudged_once_and_counted_each() -> None:
    result, provider, _ = await run([SAME, SEA] * 4, "done")
    told = [
        m.content for m in provider.requests[1].conversation if m.origin == "runtime"
    ]

    assert (result.status, RAN) == ("completed", ["sky", "sea"] * 4)
    assert told == [IN_TURNS, NUDGE, NUDGE]


async def test_something_else_ends_the_turns_and_the_calls_are_made_again() -> None:
    script = [SAME, SEA, SAME, SEA, SAME, call("count"), SAME, SEA, "done"]
    result, _, runtime = await run(*script, tools=[look, count])

    assert (result.status, RAN) == ("completed", ["sky", "sea"] * 3)
    assert (
        decided(runtime, result.run_id) == ["allow"] * 4 + ["blocked"] + ["allow"] * 3
    )


async def test_the_same_two_calls_in_turns_again_are_blocked_again_before_they_end_the_run() -> (
    None
):
    script = [
        SAME,
        call("count"),
        SAME,
        call("count"),
        SAME,
        SEA,
        call("look", what="sun"),
        SEA,
        call("look", what="sun"),
    ]
    result, _, runtime = await run(*script, SEA, "done", tools=[look, count])

    assert result.status == "completed"
    assert decided(runtime, result.run_id) == ["allow"] * 4 + ["blocked"] + [
        "allow"
    ] * 4 + ["blocked"]


async def test_calls_in_turns_whose_results_change_are_progress() -> None:
    number = itertools.count()

    @tool(effect="write")
    async def turn() -> str:
        """Turn the page."""
        return "turned"

    @tool(effect="read")
    async def page() -> str:
        """Read the page."""
        return f"page {next(number)}"

    script = [
        call("turn"),
        call("page"),
        call("turn"),
        call("page"),
        call("page"),
        call("turn"),
        call("page"),
    ]
    result, _, _ = await run(*script, "done", tools=[turn, page])

    assert (result.status, result.tool_calls) == ("completed", 7)
    assert [nudge.partition(" with")[0] for nudge in nudges(result)] == [
        "You have called turn"
    ]


async def test_one_call_whose_result_goes_back_and_forth_is_not_two_calls_in_turns() -> (
    None
):
    lights = itertools.cycle(["red", "green"])

    @tool(effect="read")
    async def light() -> str:
        """See the traffic light."""
        return next(lights)

    result, _, _ = await run(*[call("light")] * 8, "done", tools=[light])

    assert (result.status, result.tool_calls, nudges(result)) == ("completed", 8, [])


async def test_a_repeatable_tool_is_never_one_of_two_in_turns() -> None:
    @tool(effect="read", repeatable=True)
    async def wait() -> str:
        """Wait."""
        return "waited"

    one, _, _ = await run(*[SAME, call("wait")] * 3, "done", tools=[look, wait])
    two, _, _ = await run(
        *[SAME, call("wait"), SEA, call("wait")] * 2, "done", tools=[look, wait]
    )

    assert (one.status, one.tool_calls, nudges(one)) == ("completed", 6, [NUDGE])
    assert (two.status, two.tool_calls, nudges(two)) == ("completed", 8, [])


# --- tools that do not exist ---


async def test_unknown_tools_are_nudged_then_blocked_then_end_the_run() -> None:
    names = ["search", "find", "google", "lookup", "query"]
    result, provider, runtime = await run(
        *[call(name, q="sky") for name in names], "I give up."
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_error",
        "I give up.",
    )
    assert [
        m.content for m in provider.requests[3].conversation if m.origin == "runtime"
    ] == [
        "The last 3 calls named tools that do not exist. There is no tool 'google'. Tools: look. "
        "Call one of the tools that there are, by its exact name, or answer with what you know."
    ]
    assert tool_messages(result)[3:] == [
        "There is no tool 'lookup'. Did you mean look? Tools: look. "
        "The calls before named no tool either. Call one of the tools that there are, or answer with what you know."
    ]
    assert decided(runtime, result.run_id) == ["invalid"] * 3 + ["blocked", "stuck"]
    assert str(result.error) == "query failed in the same way again and again"


async def test_the_same_unknown_tool_again_and_again_is_stuck() -> None:
    result, _, _ = await run(*[call("lok", what="sky")] * 5, "I give up.")

    assert (result.status, result.stop_reason, result.answer, RAN) == (
        "stuck",
        "repeated_error",
        "I give up.",
        [],
    )
    assert [nudge.partition(" exist")[0] for nudge in nudges(result)] == [
        "The last 3 calls named tools that do not"
    ]


async def test_an_unknown_tool_that_comes_back_between_other_calls_fails_in_the_same_way() -> (
    None
):
    looks = [call("look", what=what) for what in "abcde"]
    between = [one for pair in zip(looks, pages("lok", 5), strict=True) for one in pair]
    result, _, runtime = await run(
        *between, call("look", what="f"), call("lok", page=6), "no luck"
    )

    assert (result.status, result.stop_reason, RAN) == (
        "stuck",
        "repeated_error",
        [*"abcdef"],
    )
    assert [nudge.partition(" failed")[0] for nudge in nudges(result)] == [
        "The last 3 calls of lok"
    ]
    assert decided(runtime, result.run_id) == ["allow", "invalid"] * 4 + [
        "allow",
        "blocked",
        "allow",
        "stuck",
    ]


async def test_unknown_tools_of_one_turn_are_nudged_once_and_the_next_turn_is_blocked() -> (
    None
):
    unknown = [call("a"), call("b"), call("c"), call("d")]
    result, _, runtime = await run(unknown, [call("e"), call("f")], SAME, "done")

    assert (result.status, RAN, len(nudges(result))) == ("completed", ["sky"], 1)
    assert decided(runtime, result.run_id) == ["invalid"] * 4 + ["blocked"] * 2 + [
        "allow"
    ]


async def test_a_call_of_a_tool_that_exists_starts_the_count_of_unknown_tools_anew() -> (
    None
):
    script = [
        call("a"),
        call("b"),
        SAME,
        call("c"),
        call("d"),
        SEA,
        call("e"),
        call("f"),
    ]
    result, _, _ = await run(*script, "done")

    assert (result.status, nudges(result), RAN) == ("completed", [], ["sky", "sea"])


# --- errors that are nearly the same ---


@tool(effect="read")
async def fetch(page: int) -> str:
    """Fetch a page."""
    RAN.append(str(page))
    raise ToolError(f"no connection to host 10.0.0.{page}")


@tool(effect="read", timeout=0.01)
async def dawdle(page: int) -> str:
    """Take long."""
    RAN.append(str(page))
    await asyncio.sleep(60)
    return "late"


def pages(name: str, number: int) -> list[Any]:
    return [call(name, page=page) for page in range(number)]


@pytest.mark.parametrize("fails", [fetch, dawdle], ids=["errors", "time-outs"])
async def test_errors_alike_are_nudged_get_one_more_chance_are_blocked_and_end_the_run(
    fails: Tool,
) -> None:
    result, provider, runtime = await run(
        *pages(fails.name, 6), "no luck", tools=[fails]
    )

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_error",
        "no luck",
    )
    assert RAN == ["0", "1", "2", "3"]
    assert [
        m.content for m in provider.requests[3].conversation if m.origin == "runtime"
    ] == [
        f"The last 3 calls of {fails.name} failed with nearly the same error. "
        "Do what the error asks for, use another tool, or answer with what you know."
    ]
    assert tool_messages(result)[4:] == [
        f"This call was not made: {fails.name} keeps failing with nearly the same error, whatever its arguments. "
        f"Do not call {fails.name} again: use another tool, or answer with what you know."
    ]
    assert decided(runtime, result.run_id) == ["allow"] * 4 + ["blocked", "stuck"]
    assert str(result.error) == f"{fails.name} failed in the same way again and again"


async def test_arguments_that_never_fit_are_errors_alike() -> None:
    result, _, runtime = await run(
        *[call("look", what=number) for number in range(6)], "no luck"
    )

    assert (result.status, result.stop_reason, RAN) == ("stuck", "repeated_error", [])
    assert decided(runtime, result.run_id) == ["invalid"] * 4 + ["blocked", "stuck"]


def failing(
    *errors: str | None, error_type: type[Exception] = ToolError, **options: Any
) -> Tool:
    """A tool that fails with one text after the other; it works where there is `None`."""
    told = iter(errors)

    @tool(effect="read", **options)
    async def attempt(page: int) -> str:
        """Try."""
        error = next(told)
        if error is not None:
            raise error_type(error)
        return f"page {page}"

    return attempt


DOWN = "the server is down"


async def test_a_tool_that_works_after_the_nudge_was_not_blocked_and_starts_anew() -> (
    None
):
    again = failing(DOWN, DOWN, DOWN, None, DOWN, DOWN, None)
    result, _, _ = await run(*pages("attempt", 7), "done", tools=[again])

    assert (result.status, result.tool_calls, len(nudges(result))) == (
        "completed",
        7,
        1,
    )


async def test_another_error_after_the_nudge_is_progress() -> None:
    again = failing(DOWN, DOWN, DOWN, "no such page", "no such page", None)
    result, _, _ = await run(*pages("attempt", 6), "done", tools=[again])

    assert (result.status, result.tool_calls, len(nudges(result))) == (
        "completed",
        6,
        1,
    )


async def test_errors_that_differ_are_no_loop() -> None:
    again = failing(
        "disk full",
        "no such host",
        "permission denied",
        "connection timeout",
        "not found",
        None,
    )
    result, _, _ = await run(*pages("attempt", 6), "done", tools=[again])

    assert (result.status, result.tool_calls, nudges(result)) == ("completed", 6, [])


async def test_an_error_is_compared_with_the_one_before() -> None:
    again = failing("0123456789", "x123456789", "xy23456789", "xyz3456789", None)
    result, _, runtime = await run(*pages("attempt", 5), "done", tools=[again])

    assert not is_alike("0123456789", "xy23456789")
    assert decided(runtime, result.run_id) == ["allow"] * 4 + ["blocked"]


async def test_errors_of_several_tools_are_counted_apart_and_calls_of_others_do_not_matter() -> (
    None
):
    first, second = (
        failing(*[DOWN] * 4),
        dataclasses.replace(failing(*[DOWN] * 2), name="second"),
    )
    apart = [
        call("attempt", page=0),
        call("second", page=0),
        call("attempt", page=1),
        call("second", page=1),
    ]
    result, _, runtime = await run(
        *apart, SAME, *pages("attempt", 5)[2:], "done", tools=[first, second, look]
    )

    assert result.status == "completed"
    assert [nudge.partition(" failed")[0] for nudge in nudges(result)] == [
        "The last 3 calls of attempt"
    ]
    assert decided(runtime, result.run_id) == ["allow"] * 7 + ["blocked"]


async def test_the_chance_that_comes_with_the_nudge_is_a_turn_that_has_read_it() -> (
    None
):
    two = [call("fetch", page=8), call("fetch", page=9)]
    result, _, runtime = await run(
        pages("fetch", 5), two, two, two, "no luck", tools=[fetch]
    )

    assert (result.status, result.stop_reason, len(nudges(result))) == (
        "stuck",
        "repeated_error",
        1,
    )
    assert RAN == ["0", "1", "2", "3", "4", "8", "9"]
    assert (
        decided(runtime, result.run_id)
        == ["allow"] * 7 + ["blocked"] * 2 + ["stuck"] * 2
    )


async def test_a_repeatable_tool_may_fail_in_the_same_way_for_ever() -> None:
    again = failing(*[DOWN] * 4, None, repeatable=True)
    result, _, _ = await run(*pages("attempt", 5), "done", tools=[again])

    assert (result.status, result.tool_calls, nudges(result)) == ("completed", 5, [])


async def test_calls_that_an_open_breaker_rejects_are_no_errors() -> None:
    errors = [
        "disk full",
        "no such host",
        "permission denied",
        "connection timeout",
        "not found",
    ]
    again = failing(*errors, error_type=OSError)
    result, _, runtime = await run(
        *pages("attempt", 11), "done", tools=[again], clock=FakeClock()
    )

    assert (result.status, nudges(result)) == ("completed", [])
    assert len(set(tool_messages(result)[5:])) == 1, (
        "the breaker said the same six times"
    )
    assert decided(runtime, result.run_id) == ["allow"] * 11


async def test_denials_keep_their_own_count_and_reason() -> None:
    script = [SAME, call("count"), SAME, call("count"), SAME]
    result, provider, _ = await run(
        *script, "no luck", tools=[look, count], gate=DenyAll()
    )

    assert (result.status, result.stop_reason) == ("stuck", "denied")
    assert [
        m.content for m in provider.requests[4].conversation if m.origin == "runtime"
    ] == []


# --- how alike two texts are ---


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("hello", "hello", 1.0),
        ("", "", 1.0),
        ("", "hello", 0.0),
        ("hello", "", 0.0),
        ("kitten", "sitting", 0.5714285714285714),
        ("abc", "xyz", 0.0),
        ("naïve 🙂", "naive 🙂", 1 - 1 / 7),
    ],
)
def test_similarity_is_one_less_the_edit_distance_by_the_longer_length(
    a: str, b: str, expected: float
) -> None:
    assert similarity(a, b) == similarity(b, a) == expected


def levenshtein(a: str, b: str) -> int:
    @functools.cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    return distance(len(a), len(b))


@given(st.text("abc", max_size=40), st.text("abcd", max_size=40))
def test_similarity_is_that_of_the_textbook(a: str, b: str) -> None:
    longer = max(len(a), len(b))

    assert similarity(a, b) == (1 - levenshtein(a, b) / longer if longer else 1.0)
    assert is_alike(a, b) == (similarity(a, b) >= ALIKE)


def test_texts_are_alike_from_the_threshold_on() -> None:
    twenty = "abcdefghijklmnopqrst"

    assert (
        similarity(twenty, twenty[:17])
        == similarity(twenty, twenty[:17] + "123")
        == ALIKE
    )
    assert [is_alike(twenty, twenty[:17]), is_alike(twenty, twenty[:17] + "123")] == [
        True,
        True,
    ]
    assert [is_alike(twenty, twenty[:16]), is_alike(twenty, twenty[:16] + "1234")] == [
        False,
        False,
    ]


def test_of_long_texts_the_first_and_the_last_characters_are_compared() -> None:
    half = "x" * (COMPARED // 2)
    one, other = f"{half}{'b' * 10**6}{half}", f"{half}{'c' * 10**5}{half}"

    assert is_alike(one, other)
    assert not is_alike(one, f"{half}{'y' * 10**6}")


Operation = tuple[str, ...]
TRACKERS: list[
    tuple[int, list[Operation]]
] = [  # of Symbiont: attempts allowed, and what its tracker is told and says
    (
        2,
        [
            ("attempt", "error A"),
            ("check", "continue"),
            ("attempt", "error B"),
            ("check", "stop"),
        ],
    ),
    (
        10,
        [
            ("attempt", "connection timeout to api.example.com:443"),
            ("record_and_check", "connection timeout to api.example.com:443", "stop"),
        ],
    ),
    (
        10,
        [
            ("attempt", "connection timeout to api.example.com"),
            ("record_and_check", "permission denied for /etc/secret", "continue"),
        ],
    ),
]


@pytest.mark.parametrize(("most", "operations"), TRACKERS)
def test_what_symbiont_s_tracker_takes_for_the_same_error_is_the_same_here(
    most: int, operations: list[Operation]
) -> None:
    """Its tracker stops at the second error alike, and after any `most` errors.

    Ours has a ladder in between and counts errors alike only: that of its first case is the same in both.
    """
    errors: list[str] = []
    for name, *rest in operations:
        if name == "check":
            assert rest == ["stop" if len(errors) >= most else "continue"]
            continue
        error, *expected = rest
        same = bool(errors) and is_alike(errors[-1], error)
        errors.append(error)
        if expected:
            assert expected == ["stop" if same or len(errors) >= most else "continue"]
    assert len(errors) < ProgressRules().repeats, (
        "so none of these has the monitor do anything yet"
    )


# --- a run that is resumed ---

LOOPS: dict[str, tuple[list[Any], str]] = {
    "the same call": ([SAME] * 5, "repeated_action"),
    "the same call twice in a turn": (
        [SAME, SAME, SAME, [SAME, SAME], SAME],
        "repeated_action",
    ),
    "two calls in turns": ([SAME, SEA] * 3, "repeated_action"),
    "two calls in turns, in one turn": ([[SAME, SEA]] * 4, "repeated_action"),
    "unknown tools": ([call(name) for name in "abcde"], "repeated_error"),
    "errors alike": (pages("fetch", 6), "repeated_error"),
    "errors alike, beside others": (
        [[SAME, call("fetch", page=0)], *pages("fetch", 7)[1:]],
        "repeated_error",
    ),
    "arguments that never fit": (
        [call("look", what=number) for number in range(6)],
        "repeated_error",
    ),
}


def told(script: list[Any]) -> Any:
    """A model that goes by how far the conversation is, and says `enough` where it may only answer."""

    def answer(request: Request) -> Any:
        if request.tool_choice == "none":
            return "enough"
        return script[
            sum(message.role == "assistant" for message in request.conversation)
        ]

    return answer


def ending(result: Result) -> tuple[Any, ...]:
    return (
        result.status,
        result.stop_reason,
        result.answer,
        str(result.error),
        result.conversation,
    )


async def recorded(
    script: list[Any], tools: Any = (look, fetch)
) -> tuple[Result, list[Entry]]:
    runtime = Runtime(ScriptedProvider(told(script)), tools=tools)
    result = await ReActEngine(runtime).run("Go.", run_id="r")
    return result, runtime.journal.read("r")


@pytest.mark.parametrize(("script", "reason"), LOOPS.values(), ids=LOOPS)
async def test_a_loop_ends_in_the_same_way_wherever_the_journal_is_cut(
    script: list[Any], reason: str
) -> None:
    whole, entries = await recorded(script)
    verdicts = [e.event.verdict for e in entries if isinstance(e.event, GateDecided)]
    assert (whole.status, whole.stop_reason, whole.answer) == (
        "stuck",
        reason,
        "enough",
    )
    assert [
        e.event.stop
        for e in entries
        if isinstance(e.event, GateDecided) and e.event.stop
    ][:1] == [reason]

    for keep in range(1, len(entries) + 1):
        again = Runtime(
            ScriptedProvider(told(script)),
            tools=[look, fetch],
            journal=crashed(entries, keep),
        )
        result = await again.resume("r")
        assert ending(result) == ending(whole), keep
        events = [entry.event for entry in again.journal.read("r")]
        once = {
            e.call_id: e.verdict for e in events if isinstance(e, GateDecided)
        }  # what has no intent is decided anew
        assert list(once.values()) == verdicts, keep


@pytest.mark.parametrize(
    "script",
    [
        [SAME] * 7,
        [SAME, SEA] * 4,
        [[SAME, SEA]] * 4,
        pages("fetch", 8),
        [*pages("fetch", 8), SAME, SAME, SAME, SAME],
    ],
    ids=[
        "the same call",
        "in turns",
        "both in one turn",
        "errors",
        "errors and the same call",
    ],
)
async def test_a_journal_in_which_nothing_was_noticed_is_resumed_as_it_was_recorded(
    script: list[Any],
) -> None:
    """As a journal of an older monitor: its tools are not watched, and those that it is resumed with are."""
    unwatched = [dataclasses.replace(one, repeatable=True) for one in (look, fetch)]
    whole, entries = await recorded([*script, "done"], unwatched)
    assert (whole.status, whole.answer, nudges(whole)) == ("completed", "done", [])

    for keep in range(1, len(entries) + 1):
        again = Runtime(
            ScriptedProvider(told([*script, "done"])),
            tools=[look, fetch],
            journal=crashed(entries, keep),
        )
        result = await again.resume("r")
        before = [
            e.event.verdict for e in entries[:keep] if isinstance(e.event, GateDecided)
        ]
        assert decided(again, "r")[: len(before)] == before, keep
        assert (result.status, result.answer) in {
            ("completed", "done"),
            ("stuck", "enough"),
        }, keep
        if len(before) == len(decided(again, "r")):
            assert result.answer == "done", keep


async def stuck_on_unknown_tools() -> tuple[Result, list[Entry]]:
    """A run that called tools that do not exist, up to the decision that ended it."""
    whole, entries = await recorded([call(name) for name in "abcde"])
    last = next(
        entry.seq
        for entry in entries
        if isinstance(entry.event, GateDecided) and entry.event.stop
    )
    return whole, entries[:last]


async def test_a_recorded_end_stays_one_although_the_tools_exist_by_now() -> None:
    @tool(name="e")
    async def now_there() -> str:
        """Be there."""
        raise AssertionError

    whole, entries = await stuck_on_unknown_tools()
    again = Runtime(
        ScriptedProvider(told([])),
        tools=[now_there],
        journal=crashed(entries, len(entries)),
    )

    assert ending(await again.resume("r")) == ending(whole)


async def test_an_end_that_was_recorded_without_a_stop_reason_is_a_repeated_action() -> (
    None
):
    _, entries = await stuck_on_unknown_tools()
    body = {
        name: value
        for name, value in json.loads(entries[-1].body).items()
        if name != "stop"
    }
    entries[-1] = dataclasses.replace(entries[-1], body=json.dumps(body).encode())
    again = Runtime(
        ScriptedProvider(told([])), tools=[look], journal=crashed(entries, len(entries))
    )
    result = await again.resume("r")

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_action",
        "enough",
    )
