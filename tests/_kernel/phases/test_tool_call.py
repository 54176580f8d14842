"""Running tools: deadlines that hold, failures that stay inside, results in call order, texts that a model can read."""

import asyncio
import contextvars
import functools
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest
import structlog

from conversations import tool_messages
from lateness import LATEST, TRIES
from loopwright import (
    CircuitBreakers,
    ConfigError,
    Limits,
    ReActEngine,
    Result,
    Runtime,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.errors import UnknownOutcome
from loopwright.events import ToolFinished, ToolStarted
from loopwright.resilience.timeouts import GRACE, WorkerThreads, run_with_timeout
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.tools import CallCompleted


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that lets blocked threads go when the test is over."""
    opened = threading.Event()
    yield opened
    opened.set()


async def run(*script: Any, tools: Any, **options: Any) -> Result:
    return await ReActEngine(
        Runtime(ScriptedProvider([*script, "done"]), tools=tools, **options)
    ).run("Go.")


def statuses(runtime: Runtime, result: Result) -> list[str]:
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [event.status for event in events if isinstance(event, ToolFinished)]


async def told(function: Callable[..., Any], **arguments: Any) -> tuple[str, str]:
    """Status and text of one call to a tool, in a run that must live."""
    runtime = Runtime(
        ScriptedProvider([call("it", **arguments), "done"]),
        tools=[tool(name="it")(function)],
    )
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, result.answer) == ("completed", "done")
    (status,) = statuses(runtime, result)
    return status, tool_messages(result)[0]


# --- deadlines ---

IN_TIME = 0.2 + LATEST + 0.1
"""Seconds of a run whose tool has 0.2 s; the run around it costs a little too."""
UNTIL_BEGUN = 0.05, 1.0, 20.0
"""Seconds after which a blocked thread is left behind; on a busy machine it may not have begun after the first."""


async def test_a_sync_tool_that_blocks_its_thread_is_left_behind_in_time(
    gate: threading.Event,
) -> None:
    @tool(timeout=0.2)
    def block() -> str:
        """Block."""
        threading.current_thread().name = "left behind"
        begun.set()
        gate.wait(60)
        return "late"

    runtimes, begun = list[Runtime](), threading.Event()
    took = list[float]()
    for _ in range(TRIES):
        begun.clear()
        runtime = Runtime(ScriptedProvider([call("block"), "done"]), tools=[block])
        before = time.monotonic()
        result = await ReActEngine(runtime).run("Go.")
        seconds = time.monotonic() - before
        if not begun.is_set():  # the thread was not started in time
            continue
        took.append(seconds)
        runtimes.append(runtime)
        assert tool_messages(result) == [
            "block gave no result within 0.2 s; it may still take effect. It is still running in the background."
        ]
        assert statuses(runtime, result) == ["timed_out"]
        assert runtime.worker_threads.abandoned == 1
        if seconds < IN_TIME:
            break

    assert min(took) < IN_TIME
    left_behind = [
        thread for thread in threading.enumerate() if thread.name == "left behind"
    ]
    assert len(left_behind) == len(took)
    gate.set()
    for thread in left_behind:
        await asyncio.to_thread(thread.join, 60)
    assert [runtime.worker_threads.abandoned for runtime in runtimes] == [0] * len(took)


async def test_an_async_tool_that_swallows_its_cancellation_is_left_behind_in_time() -> (
    None
):
    released = asyncio.Event()
    swallowed = list[bool]()

    @tool(timeout=0.2)
    async def stubborn() -> str:
        """Do not stop."""
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                swallowed.append(True)
        return "late"

    took = list[float]()
    while len(took) < TRIES and min(took, default=1.0) >= IN_TIME:
        swallowed.clear()
        before = time.monotonic()
        result = await run(call("stubborn"), tools=[stubborn])
        took.append(time.monotonic() - before)
        assert (result.answer, bool(swallowed)) == ("done", True)
        assert tool_messages(result)[0].endswith(
            "It is still running in the background."
        )
    released.set()
    await asyncio.sleep(0)

    assert min(took) < IN_TIME


def wait_for(gate: threading.Event, begun: threading.Event) -> None:
    begun.set()
    gate.wait(60)


async def test_the_bound_itself_is_kept_to_a_tenth_of_a_second(
    gate: threading.Event,
) -> None:
    late: list[float] = []
    while len(late) < TRIES and min(late, default=1.0) > LATEST:
        threads, begun = WorkerThreads(), threading.Event()
        block = functools.partial(wait_for, gate, begun)
        before = time.monotonic()
        ended = await run_with_timeout(threads.run(block), 0.1)
        late.append(time.monotonic() - before - 0.1)
        assert (ended.timed_out, ended.abandoned) == (True, begun.is_set())

    assert min(late) <= LATEST
    assert GRACE < LATEST


async def test_a_tool_that_tidies_up_when_cancelled_is_not_called_left_behind() -> None:
    tidied: list[str] = []

    @tool(timeout=0.05)
    async def slow() -> None:
        """Take long."""
        try:
            await asyncio.sleep(10)
        finally:
            tidied.append("yes")

    result = await run(call("slow"), tools=[slow])

    assert tidied == ["yes"]
    assert tool_messages(result) == [
        "slow gave no result within 0.05 s; it may still take effect."
    ]


async def test_the_run_s_own_tool_timeout_holds_where_a_tool_has_none() -> None:
    @tool
    async def slow() -> None:
        """Take long."""
        await asyncio.sleep(10)

    result = await run(call("slow"), tools=[slow], limits=Limits(tool_timeout=0.05))

    assert "within 0.05 s" in tool_messages(result)[0]


async def test_a_tool_gets_no_more_time_than_the_run_has_left() -> None:
    clock = FakeClock()

    @tool(effect="read")
    async def first() -> str:
        """Take 9.95 of 10 seconds."""
        clock.advance(9.95)
        return "ok"

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> None:
        """Take long."""
        deadlines.append(ctx.deadline)
        await asyncio.sleep(10)

    deadlines: list[float | None] = []
    await run(
        [call("first")],
        [call("slow")],
        tools=[first, slow],
        limits=Limits(timeout=10),
        clock=clock,
    )

    assert deadlines == [pytest.approx(0.05)]


async def test_no_tool_starts_when_the_run_s_time_is_over() -> None:
    clock = FakeClock()
    started: list[str] = []

    @tool
    async def send(what: str) -> str:
        """Send."""
        started.append(what)
        clock.advance(55)
        return "sent"

    turn = [call("send", what="a"), call("send", what="b")]
    result = await run(
        turn,
        tools=[send],
        clock=clock,
        limits=Limits(timeout=50, max_concurrent_tools=1),
    )

    assert (result.status, result.stop_reason, started) == ("limit", "timeout", ["a"])


async def test_blocked_tools_do_not_starve_the_others(gate: threading.Event) -> None:
    for seconds in UNTIL_BEGUN:
        threads = WorkerThreads(max_threads=4)
        blocked = [
            run_with_timeout(threads.run(lambda: gate.wait(60)), seconds)
            for _ in range(12)
        ]
        ended = await asyncio.gather(*blocked)
        assert [e.timed_out for e in ended] == [True] * 12
        if threads.abandoned >= 4:
            break

    assert 4 <= threads.abandoned <= 12
    assert (await run_with_timeout(threads.run(lambda: "quick"), 60)).value == "quick"


async def test_a_call_that_waits_for_a_thread_gets_the_place_of_one_that_is_left_behind(
    gate: threading.Event,
) -> None:
    for seconds in UNTIL_BEGUN:
        threads = WorkerThreads(max_threads=1)
        block, at_last = threads.run(lambda: gate.wait(60)), threads.run(lambda: "last")
        blocked = asyncio.ensure_future(run_with_timeout(block, seconds))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(run_with_timeout(at_last, 60))
        ended = await blocked
        assert (ended.timed_out, (await waiting).value) == (True, "last")
        if ended.abandoned:
            break

    assert ended.abandoned


async def test_a_call_that_waits_for_a_thread_until_its_deadline_never_starts(
    gate: threading.Event,
) -> None:
    threads = WorkerThreads(max_threads=1)
    started: list[str] = []
    first = asyncio.ensure_future(
        run_with_timeout(threads.run(lambda: gate.wait(60)), 60)
    )
    await asyncio.sleep(0)
    late = await run_with_timeout(threads.run(lambda: started.append("late")), 0.05)

    assert (late.timed_out, late.abandoned, threads.abandoned) == (True, False, 0)
    gate.set()
    await first
    assert (await run_with_timeout(threads.run(lambda: "next"), 60)).value == "next"
    assert started == []


async def test_a_second_job_does_not_wait_behind_a_blocked_thread(
    gate: threading.Event,
) -> None:
    threads = WorkerThreads()
    for _ in range(50):  # a thread that has just taken a job is not an idle one
        await threads.run(lambda: None)
        blocked = asyncio.ensure_future(threads.run(lambda: gate.wait(60)))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(threads.run(lambda: "quick"), 30) == "quick"
        gate.set()
        await blocked
        gate.clear()


class Refusing(threading.Thread):
    """Threads of a system that gives no more of them."""

    refuses = True

    def start(self) -> None:
        if Refusing.refuses and self.name.startswith("loopwright-tool"):
            raise RuntimeError("can't start new thread")
        super().start()


async def test_a_call_that_got_no_thread_is_never_made_and_the_next_one_has_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "Thread", Refusing)
    monkeypatch.setattr(Refusing, "refuses", True)
    threads, made = WorkerThreads(max_threads=2), list[str]()
    for _ in range(3):
        ended = await run_with_timeout(threads.run(lambda: made.append("too late")), 5)
        assert str(ended.error) == "can't start new thread"

    Refusing.refuses = False
    await asyncio.gather(
        *(
            run_with_timeout(threads.run(lambda: made.append("now")), 5)
            for _ in range(4)
        )
    )
    assert made == ["now"] * 4


async def test_where_the_system_gives_no_more_threads_those_that_there_are_do_the_work(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = WorkerThreads()
    first = asyncio.ensure_future(threads.run(lambda: gate.wait(10)))
    await asyncio.sleep(0)
    monkeypatch.setattr(threading, "Thread", Refusing)
    monkeypatch.setattr(Refusing, "refuses", True)
    second = asyncio.ensure_future(threads.run(lambda: "second"))
    await asyncio.sleep(0)
    gate.set()

    assert [await first, await second] == [True, "second"]


async def test_a_thread_that_is_left_behind_and_cannot_be_replaced_hurts_no_later_call(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Thread", Refusing)
    for seconds in UNTIL_BEGUN:
        monkeypatch.setattr(Refusing, "refuses", False)
        threads = WorkerThreads(max_threads=1)
        block, at_last = threads.run(lambda: gate.wait(60)), threads.run(lambda: "last")
        blocked = asyncio.ensure_future(run_with_timeout(block, seconds))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(run_with_timeout(at_last, 60))
        await asyncio.sleep(0)
        Refusing.refuses = True
        ended = await blocked
        Refusing.refuses = False
        following = await run_with_timeout(threads.run(lambda: "next"), 60)
        assert (following.value, (await waiting).value) == ("next", "last")
        if ended.abandoned:
            break

    assert ended.abandoned


async def test_threads_work_again_after_they_were_let_go() -> None:
    threads = WorkerThreads()
    await asyncio.gather(*(threads.run(lambda: None) for _ in range(5)))
    threads.close()

    assert await asyncio.wait_for(threads.run(lambda: "still here"), 30) == "still here"
    threads.close()


async def test_a_sync_tool_runs_in_a_thread_of_its_own_and_sees_the_caller_s_context() -> (
    None
):
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[Any] = []

    def look() -> str:
        """Look."""
        seen.append(threading.current_thread() is not threading.main_thread())
        return who.get()

    who.set("alice")

    assert await told(look) == ("ok", "alice")
    assert seen == [True]


# --- siblings, order, concurrency ---


async def test_a_failing_tool_cancels_no_sibling_and_results_come_in_call_order() -> (
    None
):
    finished: list[str] = []

    @tool
    async def work(name: str, turns: int) -> str:
        """Work."""
        for _ in range(turns):
            await asyncio.sleep(0)
        finished.append(name)
        if name == "bad":
            raise ValueError("broken")
        return name

    turn = [
        call("work", name="slow", turns=9),
        call("work", name="bad", turns=1),
        call("work", name="quick", turns=4),
    ]
    result = await run(turn, tools=[work])

    assert finished == ["bad", "quick", "slow"]
    assert tool_messages(result) == ["slow", "ValueError: broken", "quick"]


@pytest.mark.parametrize(
    ("per_run", "per_tool", "most"),
    [(2, None, 2), (5, 3, 3), (2, 3, 2), (None, None, 8)],
)
async def test_no_more_tools_are_at_work_than_allowed(
    per_run: int | None, per_tool: int | None, most: int
) -> None:
    at_work: list[int] = [0]
    highest: list[int] = [0]

    @tool(max_concurrency=per_tool)
    async def work(n: int) -> int:
        """Work."""
        at_work[0] += 1
        highest[0] = max(highest[0], at_work[0])
        for _ in range(5):
            await asyncio.sleep(0)
        at_work[0] -= 1
        return n

    result = await run([call("work", n=n) for n in range(8)], tools=[work],
                       limits=Limits(max_concurrent_tools=per_run))  # fmt: skip

    assert highest == [most]
    assert tool_messages(result) == [str(n) for n in range(8)]


async def test_calls_that_wait_for_one_tool_do_not_hold_the_places_of_others() -> None:
    quick_ran = asyncio.Event()

    @tool(max_concurrency=1, timeout=10)
    async def one_at_a_time() -> str:
        """Wait until the other tool has run."""
        await quick_ran.wait()
        return "one"

    @tool
    async def quick() -> str:
        """Run."""
        quick_ran.set()
        return "quick"

    turn = [call("one_at_a_time"), call("one_at_a_time"), call("quick")]
    result = await run(
        turn, tools=[one_at_a_time, quick], limits=Limits(max_concurrent_tools=2)
    )

    assert tool_messages(result) == ["one", "one", "quick"]


# --- hostile tools ---


class HostileError(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError("x"), "KeyError: 'x'"),
        (BaseException("odd"), "BaseException: odd"),
        (SystemExit(1), "SystemExit: 1"),
        (RecursionError("deep"), "RecursionError: deep"),
        (MemoryError(), "MemoryError: "),
        (GeneratorExit(), "GeneratorExit: "),
        (TimeoutError("theirs"), "TimeoutError: theirs"),
        (
            ExceptionGroup("many", [ValueError("one")]),
            "ExceptionGroup: many (1 sub-exception)",
        ),
        (asyncio.CancelledError(), "RuntimeError: it cancelled itself"),
    ],
)
async def test_whatever_a_tool_raises_is_an_observation(
    error: BaseException, text: str, colour: str
) -> None:
    async def later() -> None:
        """Raise."""
        raise error

    def max_concurrency() -> None:
        """Raise."""
        raise error

    assert await told(later if colour == "async" else max_concurrency) == (
        "error",
        text,
    )


async def test_an_error_that_cannot_be_printed_is_an_observation_too() -> None:
    async def fail() -> None:
        """Fail."""
        raise HostileError

    status, text = await told(fail)
    assert (status, "HostileError" in text) == ("error", True)


async def test_the_text_of_a_tool_error_goes_to_the_model_as_it_is() -> None:
    async def fail() -> None:
        """Fail."""
        raise ToolError("The city is closed on Mondays: try another day.")

    assert await told(fail) == (
        "error",
        "The city is closed on Mondays: try another day.",
    )


async def test_tracebacks_go_to_the_log_and_not_to_the_model() -> None:
    def fail() -> None:
        """Fail."""
        secret_local = 1 / 0
        print(secret_local)

    with structlog.testing.capture_logs() as logs:
        status, text = await told(fail)

    assert (status, text) == ("error", "ZeroDivisionError: division by zero")
    (line,) = [entry for entry in logs if entry["event"] == "tool_failed"]
    assert (line["tool"], line["log_level"]) == ("it", "warning")
    assert "secret_local = 1 / 0" in line["traceback"]


async def test_an_error_whose_traceback_cannot_be_written_is_logged_by_its_name() -> (
    None
):
    class Unwritable(Exception):
        """An error whose notes fail when somebody looks at them."""

        def __getattribute__(self, name: str) -> Any:
            if name == "__notes__":
                raise SystemExit("no notes")
            return super().__getattribute__(name)

    def fail() -> None:
        """Fail."""
        raise Unwritable("as it is")

    with structlog.testing.capture_logs() as logs:
        assert await told(fail) == ("error", "Unwritable: as it is")

    assert [line["traceback"] for line in logs] == [
        "Unwritable has none that can be written"
    ]


async def test_an_expected_tool_error_is_not_logged() -> None:
    def fail() -> None:
        """Fail."""
        raise ToolError("as agreed")

    with structlog.testing.capture_logs() as logs:
        await told(fail)

    assert logs == []


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


class Plain:
    """No JSON at all."""

    def __str__(self) -> str:
        return "plain thing"


class Hostile:
    """A value that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        (None, "ok", "done"),
        ("", "ok", ""),
        ("text as it is \u2603", "ok", "text as it is \u2603"),
        (7, "ok", "7"),
        (True, "ok", "true"),
        (
            {"b": [1, 2.5, None], "a": "\u2603"},
            "ok",
            '{"b": [1, 2.5, null], "a": "\u2603"}',
        ),
        ((1, 2), "ok", "[1, 2]"),
        (Plain(), "ok", '"plain thing"'),
        ({"it": Plain()}, "ok", '{"it": "plain thing"}'),
        (float("nan"), "ok", "NaN"),
        (b"caf\xc3\xa9", "ok", '"caf\u00e9"'),
        ("half a pair: \ud83d", "ok", "half a pair: ?"),
        (["\udcff"], "ok", '["?"]'),
        (b"\xff\xfe", "error", "it returned something that cannot be written as text"),
        (_cycle(), "error", "it returned something that cannot be written as text"),
        (_deep(), "error", "it returned something that cannot be written as text"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
async def test_every_result_becomes_a_text(value: Any, status: str, text: str) -> None:
    async def give() -> Any:
        """Give."""
        return value

    found = await told(give)
    assert found[0] == status
    assert found[1] == text if status == "ok" else found[1].startswith(text)


async def test_a_result_that_cannot_be_printed_is_an_error_observation() -> None:
    async def give() -> Any:
        """Give."""
        return Hostile()

    assert (await told(give))[0] == "error"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    async def inner() -> str:
        return "from inside"

    def wrapped() -> Any:
        """A decorator that is not async itself."""
        return inner()

    assert await told(wrapped) == ("ok", "from inside")


async def test_ten_megabytes_of_text_are_cut_and_the_cut_is_stated() -> None:
    async def flood() -> str:
        """Flood."""
        return "x" * 10_000_000

    status, text = await told(flood)

    assert status == "ok"
    begins, shown, ends, cut = text.split("\n")
    assert (begins[:4], shown, ends[:4]) == ("=== ", "x" * 50_000, "=== ")
    assert cut == "[cut: 10000000 characters, the first 50000 shown]"


async def test_a_tool_s_own_cap_counts_before_the_run_s_and_errors_are_capped_too() -> (
    None
):
    @tool(max_output_chars=4)
    async def short() -> str:
        """Return."""
        return "123456"

    @tool
    async def loud() -> str:
        """Raise."""
        raise ToolError("e" * 100)

    result = await run(
        [call("short"), call("loud")],
        tools=[short, loud],
        limits=Limits(max_output_chars=10),
    )

    assert tool_messages(result) == [
        "1234\n[cut: 6 characters, the first 4 shown]",
        "eeeeeeeeee\n[cut: 100 characters, the first 10 shown]",
    ]


async def test_no_cap_means_no_cut() -> None:
    @tool(trusted=True)
    async def long() -> str:
        """Return."""
        return "x" * 60_000

    result = await run(
        call("long"),
        tools=[long],
        limits=Limits(max_output_chars=None, context_tokens=None),
    )

    assert len(tool_messages(result)[0]) == 60_000


# --- what a tool may know ---


async def test_a_tool_s_context_has_run_place_key_deadline_and_deps() -> None:
    seen: list[ToolContext[dict[str, str]]] = []

    @tool(timeout=7)
    async def look(ctx: ToolContext[dict[str, str]], what: str) -> str:
        """Look."""
        seen.append(ctx)
        return ctx.deps["greeting"] + what

    runtime = Runtime(
        ScriptedProvider([[call("look", what="a"), call("look", what="b")], "done"]),
        tools=[look],
    )
    result = await ReActEngine(runtime).run(
        "Go.", run_id="r1", deps={"greeting": "hi "}
    )

    assert tool_messages(result) == ["hi a", "hi b"]
    assert seen == [
        ToolContext("r1", "0#0", "r1:0#0", 7, {"greeting": "hi "}),
        ToolContext("r1", "0#1", "r1:0#1", 7, {"greeting": "hi "}),
    ]
    started = [
        e.event for e in runtime.journal.read("r1") if isinstance(e.event, ToolStarted)
    ]
    assert [event.idempotency_key for event in started] == ["r1:0#0", "r1:0#1"]


async def test_a_sync_tool_gets_a_context_too_and_deps_default_to_none() -> None:
    def look(ctx: ToolContext[None]) -> str:
        """Look."""
        return repr(ctx.deps)

    assert await told(look) == ("ok", "None")


# --- calls that cannot be made ---


@tool(effect="read")
async def weather(city: str, days: int = 1) -> str:
    """Weather."""
    return f"{city}: rain for {days}"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (call("wether", city="Rome"), "There is no tool 'wether'. Did you mean weather? Tools: weather."),
        (call("zzz"), "There is no tool 'zzz'. Tools: weather."),
        (call(""), "There is no tool ''. Tools: weather."),
        (call("weather"),
         "The arguments do not fit the schema of weather, at arguments: 'city' is a required property"),
        (call("weather", city=3), "The arguments do not fit the schema of weather, at city: 3 is not of type 'string'"),
        (call("weather", city="Rome", days="two"),
         "The arguments do not fit the schema of weather, at days: 'two' is not of type 'integer'"),
        (call("weather", city="Rome", unit="C"),
         "The arguments do not fit the schema of weather, at arguments: Additional properties are not allowed "
         "('unit' was unexpected)"),
    ],
)  # fmt: skip
async def test_a_call_that_cannot_be_made_is_rejected_in_words_that_help(
    wanted: Any, text: str
) -> None:
    runtime = Runtime(
        ScriptedProvider([wanted, call("weather", city="Rome"), "done"]),
        tools=[weather],
    )

    result = await ReActEngine(runtime).run("Go.")

    assert (result.answer, tool_messages(result)) == (
        "done",
        [text, "Rome: rain for 1"],
    )
    assert statuses(runtime, result) == ["rejected", "ok"]
    assert result.tool_calls == 1


async def test_arguments_that_are_not_json_are_rejected() -> None:
    @tool
    async def halve(x: float) -> float:
        """Halve."""
        return x / 2

    result = await run(
        call("halve", x=float("nan")), call("halve", x=float("inf")), tools=[halve]
    )

    assert (result.status, result.tool_calls) == ("completed", 0)
    assert tool_messages(result) == ["The arguments of halve are not plain JSON."] * 2


async def test_a_model_s_mistakes_open_no_breaker() -> None:
    breakers = CircuitBreakers(threshold=1)

    @tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("not today")

    await run(
        call("weather", city=1),
        call("wether"),
        call("fail"),
        tools=[weather, fail],
        breakers=breakers,
    )

    assert [
        breakers.get(f"tool/{name}").state for name in ("weather", "wether", "fail")
    ] == ["closed"] * 3


# --- cancellation ---


async def test_aborting_a_run_cancels_its_tool_and_records_that_its_outcome_is_not_known() -> (
    None
):
    cancelled: list[str] = []
    at_work = asyncio.Event()

    @tool
    async def slow() -> None:
        """Take long."""
        at_work.set()
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.append("slow")

    runtime = Runtime(ScriptedProvider([call("slow")]), tools=[slow])
    async with ReActEngine(runtime).start("Go.") as handle:
        await at_work.wait()
        result = await handle.abort()

    assert (result.status, result.stop_reason, cancelled) == (
        "aborted",
        "aborted",
        ["slow"],
    )
    assert statuses(runtime, result) == ["cancelled"]


async def test_no_task_is_left_when_a_run_is_over() -> None:
    before = asyncio.all_tasks()

    @tool(timeout=0.02)
    async def slow() -> None:
        """Take long."""
        await asyncio.sleep(30)

    await run([call("slow"), call("slow")], tools=[slow])

    assert asyncio.all_tasks() == before


async def test_an_unknown_outcome_can_be_told_to_stop_the_run() -> None:
    @tool
    async def send() -> str:
        """Send."""
        at_work.set()
        await asyncio.sleep(30)
        return "sent"

    at_work = asyncio.Event()
    runtime = Runtime(ScriptedProvider([call("send")]), tools=[send], on_unknown="stop")
    engine = ReActEngine(runtime)
    task = asyncio.ensure_future(engine.run("Go.", run_id="r1"))
    await at_work.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await engine.resume("r1")

    assert (result.status, result.stop_reason) == ("failed", "unknown_outcome")
    with pytest.raises(UnknownOutcome):
        result.raise_for_status()


async def test_a_generator_s_values_are_a_list() -> None:
    def count() -> Any:
        """Count."""
        yield from (1, 2, 3)

    assert await told(count) == ("ok", "[1, 2, 3]")


async def test_an_async_function_may_give_a_generator_too() -> None:
    async def count() -> Any:
        """Count."""
        return (number * number for number in (1, 2, 3))

    assert await told(count) == ("ok", "[1, 4, 9]")


async def test_an_async_generator_is_a_tool_too_and_what_it_gives_is_a_list() -> None:
    closed: list[str] = []

    async def count() -> AsyncGenerator[int]:
        """Count."""
        try:
            for number in itertools.count():
                await asyncio.sleep(0)
                yield number
        finally:
            closed.append("closed")

    async def some() -> AsyncGenerator[str]:
        """Some letters, and no more."""
        yield "a"
        raise ToolError("no more letters")

    parts = Runtime(
        ScriptedProvider([call("count"), "done"]),
        tools=[tool(max_output_chars=9)(count)],
    )
    result = await ReActEngine(parts).run("Go.")

    assert tool_messages(result)[0].startswith("[0, 1, 2,")
    assert (statuses(parts, result), closed) == (["ok"], ["closed"])
    assert await told(some) == ("error", "no more letters")


async def undo_by_yielding(ctx: ToolContext[Any], result: str) -> AsyncGenerator[str]:
    yield "never done"


def look_up_by_yielding(ctx: ToolContext[Any]) -> Generator[CallCompleted]:
    yield CallCompleted("never found")


@pytest.mark.parametrize(
    ("field", "function"),
    [("compensate", undo_by_yielding), ("lookup", look_up_by_yielding)],
)
def test_what_undoes_or_looks_up_does_not_yield(field: str, function: Any) -> None:
    options: dict[str, Any] = {field: functools.partial(function)}

    with pytest.raises(
        ConfigError, match=f"tool 'pay': {field} must do its work when it is called"
    ):

        @tool(**options)
        async def pay() -> None:
            """Pay."""
