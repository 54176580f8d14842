"""Hostile tools: whatever one does, its call ends as an observation in time, and run, journal and loop live."""

import asyncio
import contextlib
import contextvars
import inspect
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import structlog
from pydantic import BaseModel, model_serializer

from fault_sizes import figure, sized
from journal_positions import cut_after
from lateness import LATEST, TRIES, allowed
from loopwright import Entry, ReActEngine, Result, Runtime, Tool, ToolError, tool
from loopwright.events import ToolFinished
from loopwright.journals import SQLiteJournal
from loopwright.messages import check_call_results
from loopwright.resilience.timeouts import WorkerThreads
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import look

RUN = "the-run"
TIMEOUT = 0.2  # seconds that a hostile tool has
LEFT = threading.Event()  # lets go what was left behind


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    """Nothing that a test leaves behind outlives it for long."""
    LEFT.clear()
    with structlog.testing.capture_logs():
        yield
    LEFT.set()


def hostile(function: Callable[..., Any], timeout: float = 30.0) -> Tool:
    """The function as the tool `it`."""

    def sync() -> Any:
        """Do it."""
        return function()

    async def later() -> Any:
        """Do it."""
        value = function()
        return await value if asyncio.iscoroutine(value) else value

    is_async = inspect.iscoroutinefunction(function)
    return tool(name="it", timeout=timeout, effect="read")(later if is_async else sync)


async def run(it: Tool, journal: SQLiteJournal) -> Result:
    """A run that calls the tool and then a harmless one, which shows that the loop lives."""
    script: list[Any] = [
        [call("it"), call("look", what="sea")],
        call("look", what="sky"),
        "done",
    ]
    return await ReActEngine(
        Runtime(ScriptedProvider(script), tools=[it, look], journal=journal)
    ).run("Go.", run_id=RUN)


def check(result: Result, journal: SQLiteJournal) -> tuple[str, str]:
    """Status and text of the hostile call, in a run whose result and journal are whole and can be written down."""
    entries = journal.read(RUN)
    assert (result.status, result.answer) == ("completed", "done")
    assert journal.verify(RUN, result.head_hash).ok
    check_call_results(result.conversation.messages)
    for message in result.conversation.messages:
        message.content.encode()
    for entry in entries:
        json.loads(entry.body.decode(), parse_constant=refused)
    ended = {
        e.event.tool: e.event for e in entries if isinstance(e.event, ToolFinished)
    }
    assert (ended["look"].status, ended["look"].content) == ("ok", "sky is blue")
    return ended["it"].status, ended["it"].content


def refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


async def resumed(entries: list[Entry]) -> Result:
    """The run, gone on with after a crash right behind the hostile call, which is not made again."""

    @tool(name="it", effect="read")
    async def never() -> None:
        """Do it."""
        raise AssertionError("it was called again")

    def model(request: Any) -> Any:
        said = sum(
            message.role == "assistant" for message in request.conversation.messages
        )
        return [
            [call("it"), call("look", what="sea")],
            call("look", what="sky"),
            "done",
        ][said]

    cut = cut_after(entries, "model_requested", 2)
    runtime = Runtime(
        ScriptedProvider(model), tools=[never, look], journal=crashed(entries, cut)
    )
    return await ReActEngine(runtime).resume(RUN)


# --- tools that do not end, or not as they should ---


def blocks_its_thread() -> str:
    LEFT.wait(30)
    return "late"


async def sleeps() -> None:
    await asyncio.sleep(30)


async def swallows_one_cancellation() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    while not LEFT.is_set():  # noqa: ASYNC110 - set from other threads too
        await asyncio.sleep(0.01)


async def swallows_every_cancellation() -> None:
    while not LEFT.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


async def returns_when_cancelled() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    return "too late"


async def raises_when_cancelled() -> None:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        raise SystemExit(3) from None


async def tidies_up_for_ever() -> None:
    try:
        await asyncio.sleep(30)
    finally:
        while not LEFT.is_set():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def waits_for_a_thread() -> None:
    await asyncio.to_thread(LEFT.wait, 30)


def gives_a_coroutine_that_hangs() -> Coroutine[Any, Any, None]:
    return sleeps()


def yields_slowly() -> Generator[int]:
    for number in range(30):
        LEFT.wait(1)
        yield number


OVERDUE: list[Callable[..., Any]] = [
    blocks_its_thread, sleeps, swallows_one_cancellation, swallows_every_cancellation, returns_when_cancelled,
    raises_when_cancelled, tidies_up_for_ever, waits_for_a_thread, gives_a_coroutine_that_hangs, yields_slowly,
]  # fmt: skip


@pytest.mark.parametrize("function", OVERDUE, ids=lambda function: function.__name__)
async def test_a_tool_that_does_not_end_is_abandoned_in_time(
    function: Callable[..., Any], tmp_path: Path
) -> None:
    late: list[float] = []
    while len(late) < TRIES and min(late, default=1.0) > LATEST:
        LEFT.clear()
        journal = SQLiteJournal(tmp_path / f"{len(late)}.db")
        result = await run(hostile(function, TIMEOUT), journal)
        status, text = check(result, journal)
        late.append(seconds_of_the_call(journal.read(RUN)) - TIMEOUT)
        assert (status, "gave no result within 0.2 s" in text) == ("timed_out", True)
        assert (
            await resumed(journal.read(RUN))
        ).conversation.messages == result.conversation.messages
        await journal.close()
        LEFT.set()
        await nothing_is_left()
    assert min(late) <= allowed()
    figure(f"tool that {function.__name__}", f"{min(late) * 1000:.0f} ms late")


def seconds_of_the_call(entries: list[Entry]) -> float:
    """Until control was back, as the journal tells."""
    (seconds,) = [
        e.event.seconds
        for e in entries
        if isinstance(e.event, ToolFinished) and e.event.tool == "it"
    ]
    return seconds


async def nothing_is_left() -> None:
    """What was left behind has ended now that it may."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, left = await asyncio.wait(others, timeout=60)
        assert left == set()


async def test_an_async_tool_that_blocks_the_loop_is_observed_when_it_is_done(
    tmp_path: Path,
) -> None:
    """Nothing can interrupt it: code that blocks belongs into a sync tool, which has a thread."""

    async def blocks() -> str:
        time.sleep(2 * TIMEOUT)  # noqa: ASYNC251 - that is what it does
        return "at last"

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(blocks, TIMEOUT), journal)

    assert check(result, journal) in {
        ("ok", "at last"),
        ("timed_out", "it gave no result within 0.2 s"),
    }
    await journal.close()


# --- tools that raise ---


class Own(BaseException):
    """No exception that anybody catches."""


class Unprintable(Exception):
    """Raises when it is asked for its text; `what` says what."""

    def __init__(self, what: BaseException) -> None:
        self.what = what

    def __str__(self) -> str:
        raise self.what


def nested(depth: int) -> BaseException:
    errors: list[Exception] = [ValueError("inside")]
    for _ in range(depth):
        errors = [ExceptionGroup("many", errors)]
    return errors[0]


def chained(length: int) -> BaseException:
    first = last = ValueError("0")
    for number in range(length):
        cause = ValueError(str(number))
        last.__cause__, last = cause, cause
    return first


def itself() -> BaseException:
    error = ValueError("my own cause")
    error.__cause__ = error
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "of its own kind": lambda: Own("x"),
    "SystemExit": lambda: SystemExit(1),
    "SystemExit with an object": lambda: SystemExit(object()),
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": lambda: StopAsyncIteration(1),
    "CancelledError": asyncio.CancelledError,
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("deep"),
    "a text that raises": lambda: Unprintable(ValueError("no text")),
    "a text that exits": lambda: Unprintable(SystemExit(2)),
    "a text that is no text": lambda: Unprintable(Own("no text")),
    "surrogates": lambda: ValueError("half \ud83d"),
    "a megabyte": lambda: ValueError("x" * 1_000_000),
    "a ToolError of a megabyte": lambda: ToolError("x" * 1_000_000),
    "a ToolError without text": ToolError,
    "a ToolError of an object": lambda: ToolError(Unprintable(ValueError())),
    "groups in groups": lambda: nested(3_000),
    "a long chain": lambda: chained(3_000),
    "itself as its cause": itself,
}


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("kind", ERRORS)
async def test_whatever_is_raised_is_an_error_to_the_model(
    kind: str, colour: str, tmp_path: Path
) -> None:
    def max_concurrency() -> NoReturn:
        raise ERRORS[kind]()

    async def later() -> NoReturn:
        raise ERRORS[kind]()

    journal = SQLiteJournal(tmp_path / "runs.db")
    with structlog.testing.capture_logs() as logs:
        result = await run(
            hostile(max_concurrency if colour == "sync" else later), journal
        )
    status, text = check(result, journal)

    assert status == "error"
    assert len(text) < 51_000
    assert sum(len(str(line)) for line in logs) < 100_000, "the log is flooded"
    assert (
        await resumed(journal.read(RUN))
    ).conversation.messages == result.conversation.messages
    await journal.close()


async def test_an_interrupt_of_a_thread_is_the_tool_s_own(tmp_path: Path) -> None:
    """Python interrupts the main thread only, so a KeyboardInterrupt in another one was raised by the tool."""

    def interrupts() -> NoReturn:
        raise KeyboardInterrupt

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(interrupts), journal)

    assert check(result, journal) == (
        "error",
        "RuntimeError: it raised KeyboardInterrupt",
    )
    await journal.close()


async def test_interrupted_threads_return_to_the_pool() -> None:
    def interrupts() -> NoReturn:
        raise KeyboardInterrupt

    threads = WorkerThreads(max_threads=2)
    for _ in range(5):
        with pytest.raises(RuntimeError, match="it raised KeyboardInterrupt"):
            await asyncio.wait_for(threads.run(interrupts), 60)
    assert await asyncio.wait_for(threads.run(lambda: "still here"), 60) == "still here"
    threads.close()


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_endless_recursion_is_an_error(colour: str, tmp_path: Path) -> None:
    def deeper() -> Any:
        return deeper()

    async def deeper_still() -> Any:
        return await deeper_still()

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(deeper if colour == "sync" else deeper_still), journal)
    status, text = check(result, journal)

    assert (status, text.startswith("RecursionError: ")) == ("error", True)
    await journal.close()


# --- tools that return ---


class Raises:
    """Raises in the method of that name."""

    def __init__(self, what: BaseException) -> None:
        self.what = what

    def __str__(self) -> str:
        raise self.what

    __repr__ = __str__

    def __len__(self) -> int:
        raise self.what

    def __iter__(self) -> Iterator[Any]:
        raise self.what

    def __bool__(self) -> bool:
        raise self.what

    def __eq__(self, other: object) -> bool:
        raise self.what

    __hash__ = None  # type: ignore[assignment]


class NoClass:
    """Raises when somebody wants to know what it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        raise ValueError("not telling")


class NoAttributes:
    """Raises at every look."""

    def __getattribute__(self, name: str) -> Any:
        raise OSError(f"no {name}")


class Text(str):
    """A text that does otherwise than texts do."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> Any:
        raise Own("not to be encoded")

    def __len__(self) -> int:
        return -1

    def __getitem__(self, key: Any) -> Any:
        raise Own("not to be cut")


class Model(BaseModel):
    """A model that cannot be written."""

    @model_serializer
    def write(self) -> Any:
        """Fail."""
        raise Own("not to be written")


def cycle() -> Any:
    around: dict[str, Any] = {}
    around["again"] = [around]
    return around


def deep(depth: int) -> Any:
    inside: Any = "x"
    for number in range(depth):
        inside = {"in": inside} if number % 2 else [inside]
    return inside


async def numbers() -> AsyncGenerator[int]:
    yield 1


def yields_for_ever() -> Generator[int]:
    yield from itertools.count()


def letters() -> Generator[str]:
    yield from "ab"
    raise Own("and no more")


VALUES: dict[str, Callable[[], Any]] = {
    "a cycle": cycle,
    "a deep value": lambda: deep(10_000),
    "a value as deep as it may be": lambda: deep(100),
    "a huge number": lambda: 10**5_000,
    "huge numbers in a list": lambda: [10**5_000, -(10**5_000)],
    "NaN": lambda: {"n": float("nan")},
    "infinities": lambda: [float("inf"), -float("inf")],
    "keys of all kinds": lambda: {1: 1, None: 2, (3, 4): 3, b"x": 4, float("nan"): 5},
    "keys that are objects": lambda: {object(): 1},
    "half a surrogate pair as key": lambda: {"\ud83d": "\udc00"},
    "bytes that are no text": lambda: {"b": b"\xff\xfe"},
    "a function": lambda: letters,
    "a class": lambda: Raises,
    "an async generator": numbers,
    "a generator that raises": letters,
    "a generator without end": yields_for_ever,
    "a lock": threading.Lock,
    "an event": asyncio.Event,
    "an exception": lambda: ValueError("not raised"),
    "an object that raises": lambda: Raises(ValueError("no")),
    "an object that exits": lambda: Raises(SystemExit(4)),
    "objects that raise": lambda: {"a": [Raises(ValueError("no"))]},
    "an object that raises what nobody catches": lambda: Raises(Own("no")),
    "an object without a class": NoClass,
    "an object without attributes": NoAttributes,
    "a text of its own kind": lambda: Text("text"),
    "a long text of its own kind": lambda: Text("x" * 100_000),
    "a list of such texts": lambda: [Text("text")],
    "a model that cannot be written": Model,
    "a million small things": lambda: [0] * 1_000_000,
    "control characters": lambda: "\x00\x1b[2J\u202e\u2028",
}


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("kind", VALUES)
async def test_whatever_is_returned_becomes_a_text(
    kind: str, colour: str, tmp_path: Path
) -> None:
    def max_concurrency() -> Any:
        return VALUES[kind]()

    async def later() -> Any:
        return VALUES[kind]()

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(max_concurrency if colour == "sync" else later), journal)
    status, text = check(result, journal)

    assert status in ("ok", "error")
    assert type(text) is str
    assert len(text) < 51_000
    assert (
        await resumed(journal.read(RUN))
    ).conversation.messages == result.conversation.messages
    await journal.close()


FLOOD = """
import asyncio, gc, sys, tracemalloc
from loopwright import ReActEngine, Runtime, ToolError, tool
from loopwright.events import ToolFinished
from loopwright.testing import ScriptedProvider, call

def peak():
    with open("/proc/self/status") as file:  # what getrusage tells begins with the parent's
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) // 1_000

size = int(sys.argv[2]) * 1_000_000
makers = {"text": lambda: "x" * size, "wide text": lambda: "\\u2603" * (size // 3), "bytes": lambda: b"x" * size,
          "list": lambda: ["x" * 1_000_000] * (size // 1_000_000)}

@tool
def flood() -> object:
    '''Flood.'''
    if sys.argv[1] == "error":
        raise ToolError("x" * size)
    return makers[sys.argv[1]]()

async def main():
    await ReActEngine(Runtime(ScriptedProvider([call("nothing"), "done"]), tools=[flood])).run("Go.")
    tracemalloc.start()
    before, traced = peak(), tracemalloc.get_traced_memory()[0]
    runtime = Runtime(ScriptedProvider([call("flood"), "done"]), tools=[flood])
    result = await ReActEngine(runtime).run("Go.")
    gc.collect()
    stays = (tracemalloc.get_traced_memory()[0] - traced) // 1_000_000
    [said] = [e.event for e in runtime.journal.read(result.run_id) if isinstance(e.event, ToolFinished)]
    [read] = [message.content for message in result.conversation if message.role == "tool"]
    assert said.content in read
    print(peak() - before, stays, len(said.content), len(read) - len(said.content))

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["text", "wide text", "bytes", "list", "error"])
def test_a_flood_is_cut_and_nothing_of_it_stays(kind: str) -> None:
    size = sized(40, 100)
    done = subprocess.run(
        [sys.executable, "-c", FLOOD, kind, str(size)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    peak, stays, length, marks = map(int, done.stdout.split()[-4:])

    assert length <= 50_000
    assert (
        marks < 400
    )  # the fence around what is from outside, and the note that it was cut
    assert stays <= 2
    assert (
        peak < 8 * size
    )  # the tool's own copies, and those in JSON where it is no text
    figure(f"{size} MB of {kind}", f"peak {peak} MB above the base, {stays} MB stay")


# --- tools that reach out ---

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_tool_s_context_variables_are_its_own(
    colour: str, tmp_path: Path
) -> None:
    def max_concurrency() -> str:
        WHO.set("mallory")
        return WHO.get()

    async def later() -> str:
        return max_concurrency()

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(max_concurrency if colour == "sync" else later), journal)

    assert check(result, journal) == ("ok", "mallory")
    assert WHO.get() == "nobody"
    await journal.close()


async def test_tasks_and_threads_that_a_tool_leaves_do_not_hold_the_run_up(
    tmp_path: Path,
) -> None:
    left: list[Any] = []

    async def spawns() -> str:
        left.extend(
            asyncio.ensure_future(swallows_every_cancellation()) for _ in range(20)
        )
        left.append(threading.Thread(target=blocks_its_thread, daemon=True))
        left[-1].start()
        return "spawned"

    journal = SQLiteJournal(tmp_path / "runs.db")
    before = time.monotonic()
    result = await run(hostile(spawns), journal)

    assert check(result, journal) == ("ok", "spawned")
    assert time.monotonic() - before < 15, "the thread is left alone for 30 s"
    LEFT.set()
    await nothing_is_left()
    await journal.close()


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_tool_may_run_an_engine(colour: str, tmp_path: Path) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(lambda request: "from inside")))

    def max_concurrency() -> str | None:
        return engine.run_sync("Go in.").answer

    async def later() -> str | None:
        return (await engine.run("Go in.")).answer

    journal = SQLiteJournal(tmp_path / "runs.db")
    work = tool(name="it", effect="read")(
        _documented(max_concurrency if colour == "sync" else later)
    )
    result = await run(work, journal)

    assert check(result, journal) == ("ok", "from inside")
    await journal.close()


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__doc__ = "Do it."
    return function


async def test_a_tool_that_cancels_itself_cancels_nothing_else(tmp_path: Path) -> None:
    async def cancels() -> None:
        task = asyncio.current_task()
        if task is not None:
            task.cancel()
        await asyncio.sleep(0)

    journal = SQLiteJournal(tmp_path / "runs.db")
    result = await run(hostile(cancels), journal)

    assert check(result, journal)[0] == "error"
    await journal.close()


async def test_many_hostile_calls_at_once_leave_no_thread_uncounted(
    tmp_path: Path,
) -> None:
    calls = sized(60, 600)

    @tool(timeout=TIMEOUT, effect="read")
    def block(n: int) -> None:
        """Block."""
        LEFT.wait(30)

    turn = [call("block", n=n) for n in range(calls)]
    runtime = Runtime(
        ScriptedProvider([turn, call("look", what="sky"), "done"]), tools=[block, look]
    )
    runtime = _with_slots(runtime, calls)
    before = time.monotonic()
    result = await ReActEngine(runtime).run("Go.")
    took = time.monotonic() - before
    at_work = [
        thread for thread in threading.enumerate() if thread.name == "loopwright-tool"
    ]

    assert (result.status, runtime.worker_threads.abandoned <= len(at_work)) == (
        "completed",
        True,
    )
    LEFT.set()
    until = time.monotonic() + 60
    while runtime.worker_threads.abandoned and time.monotonic() < until:  # noqa: ASYNC110 - threads set no asyncio.Event
        await asyncio.sleep(0.01)
    assert runtime.worker_threads.abandoned == 0
    figure(f"{calls} calls that block their threads", f"over in {took:.2f} s")


def _with_slots(runtime: Runtime, most: int) -> Runtime:
    from loopwright import Limits

    vars(runtime)["limits"] = Limits(max_concurrent_tools=most, max_tool_calls=None)
    return runtime
