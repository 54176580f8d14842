"""A run marked as a saga undoes what it did unless it completes: in reverse, intents first, also after a crash."""

import asyncio
from typing import Any, ClassVar

import pytest
import structlog

from journal_positions import cut_after, kinds
from loopwright import (
    Allow,
    AllowAll,
    Ask,
    Deny,
    Limits,
    LoopEngine,
    ProviderError,
    ReActEngine,
    ReplayDivergence,
    Request,
    Run,
    Runtime,
    Suspend,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    Worker,
    tool,
)
from loopwright._kernel.durability.deaths import ISOLATION_DEATHS
from loopwright.errors import UndoFailed
from loopwright.events import (
    RunFinished,
    ToolFinished,
    ToolStarted,
    UndoBegun,
    UndoFinished,
    UndoStarted,
)
from loopwright.gates import Action, Decision, InstantGate, PolicyState
from loopwright.security import Redactor
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.tools import (
    CallNotExecuted,
    DeadLetter,
    Fallback,
    LlmRecovery,
    RecoveryStrategy,
    Retry,
)

DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


async def cancel_booking(ctx: ToolContext[Any], result: str) -> str:
    DONE.append(
        f"undo {ctx.arguments['what']} ({result}) of {ctx.undoes} as {ctx.idempotency_key}"
    )
    if ctx.arguments["what"] == "stuck":
        raise OSError("the office is closed")
    return "cancelled"


@tool(compensate=cancel_booking)
async def book(what: str) -> str:
    """Book."""
    DONE.append(f"book {what}")
    if what == "moon":
        raise OSError("no flights")
    if what == "slow":
        await asyncio.sleep(60)
    return f"{what} booked"


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def booking(*script: Any, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=[book, look], **options)


FAILURE = ProviderError("the model is gone")
TWO = (call("book", what="hotel"), call("look"), call("book", what="car"), FAILURE)
UNDONE = [
    "undo car (car booked) of r:2#0 as r:2#0:undo",
    "undo hotel (hotel booked) of r:0#0 as r:0#0:undo",
]


async def test_a_saga_that_fails_undoes_its_calls_the_last_one_first():
    parts = booking(*TWO)
    result = await ReActEngine(parts).run("Go.", run_id="r", saga=True)

    assert (result.status, str(result.error)) == ("failed", "the model is gone")
    assert ["book hotel", "book car", *UNDONE] == DONE
    assert kinds(parts, "r")[-7:] == [
        "undo_begun", "gate_decided", "undo_started", "undo_finished", "gate_decided", "undo_started", "undo_finished",
        "run_finished",
    ][-7:]  # fmt: skip
    assert parts.journal.verify("r").ok


async def test_a_saga_that_completes_undoes_nothing_and_neither_does_a_run_that_is_none():
    result = await ReActEngine(booking(*TWO[:3], "done")).run("Go.", saga=True)
    assert (result.answer, DONE) == ("done", ["book hotel", "book car"])

    DONE.clear()
    result = await ReActEngine(booking(*TWO)).run("Go.")
    assert (result.status, DONE) == ("failed", ["book hotel", "book car"])


async def test_calls_that_failed_or_change_nothing_are_not_undone():
    await ReActEngine(booking(call("book", what="moon"), call("look"), FAILURE)).run(
        "Go.", saga=True
    )

    assert DONE == ["book moon"]


@pytest.mark.parametrize("limits", [Limits(max_iterations=1), Limits(max_tool_calls=1)])
async def test_a_saga_that_reaches_a_limit_is_undone(limits: Limits):
    script = (call("book", what="hotel"), call("book", what="car"), "best so far")
    result = await ReActEngine(booking(*script, limits=limits)).run(
        "Go.", run_id="r", saga=True
    )

    assert (result.status, DONE[-1]) == ("limit", UNDONE[1])


async def test_a_saga_that_is_aborted_is_undone_and_what_is_in_doubt_is_named():
    parts = booking(call("book", what="hotel"), call("book", what="slow"))
    async with ReActEngine(parts).start("Go.", run_id="r", saga=True) as run:
        async for entry in run:
            if entry.kind == "tool_started" and entry.key == "1#0":
                await asyncio.sleep(0.01)
                break
        result = await run.abort()

    assert result.status == "aborted"
    assert UNDONE[1] in DONE
    assert isinstance(result.error, UndoFailed)
    assert (
        "book (1#0): it is not known whether it took effect, so it was not undone"
        in str(result.error)
    )


async def test_what_cannot_be_undone_is_said_and_the_rest_is_undone():
    script = (call("book", what="hotel"), call("book", what="stuck"), FAILURE)
    parts = booking(*script)
    result = await ReActEngine(parts).run("Go.", run_id="r", saga=True)

    assert UNDONE[1] in DONE
    assert isinstance(result.error, UndoFailed)
    assert isinstance(result.error.__cause__, ProviderError)
    assert (
        "could not undo: book (1#0): undoing it failed: OSError: the office is closed"
        in str(result.error)
    )
    assert result.status == "failed"


async def test_undoing_passes_the_gate():
    class NoUndoing(InstantGate):
        version = "no-undoing-1"

        def decide(self, action: Action, state: PolicyState) -> Any:
            DONE.append(f"gate {action.tool}")
            return (
                Deny("hands off")
                if action.tool == "book:undo"
                else AllowAll().decide(action, state)
            )

    result = await ReActEngine(booking(TWO[0], FAILURE, gate=NoUndoing())).run(
        "Go.", saga=True
    )

    assert DONE == ["gate book", "book hotel", "gate book:undo"]
    assert "book (0#0): book:undo: hands off" in str(result.error)


async def test_a_crash_at_any_entry_of_the_undoing_undoes_the_rest_and_nothing_twice():
    parts = booking(*TWO)
    whole = await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    for cut in range(1, len(entries)):
        DONE.clear()
        kept = entries[:cut]
        replied = sum(entry.kind in ("model_replied", "model_failed") for entry in kept)
        again = booking(*TWO[replied:], journal=crashed(entries, cut))
        result = await ReActEngine(again).resume("r")

        finished = {e.key for e in kept if isinstance(e.event, UndoFinished)}
        ended = {e.key for e in kept if e.kind == "tool_finished"}
        doubtful = [
            e.key
            for e in kept
            if e.kind == "tool_started" and e.key not in {*ended, "1#0"}
        ]
        undone = [line for line in DONE if line.startswith("undo")]
        if doubtful:
            told = f"could not undo: book ({doubtful[0]}): it is not known whether it took effect"
            assert told in str(result.error)
            assert undone == UNDONE[1 if doubtful == ["2#0"] else 0 :][:1]
        else:
            assert (result.status, str(result.error)) == (
                whole.status,
                str(whole.error),
            ), f"cut after {cut}"
            assert undone == UNDONE[len(finished) :], f"cut after {cut}"
        assert again.journal.verify("r").ok


async def test_an_abort_survives_a_crash_in_the_middle_of_undoing():
    parts = booking(call("book", what="hotel"), call("look"), call("look"))
    async with ReActEngine(parts).start("Go.", run_id="r", saga=True) as run:
        async for entry in run:
            if entry.kind == "model_requested" and entry.key == "1":
                break
        await run.abort()
    entries = parts.journal.read("r")
    begun = next(i for i, e in enumerate(entries, 1) if isinstance(e.event, UndoBegun))
    DONE.clear()

    again = booking(journal=crashed(entries, begun))
    result = await ReActEngine(again).resume("r")

    assert (result.status, DONE) == ("aborted", [UNDONE[1]])


async def test_a_host_that_stops_during_compensation_leaves_the_rest_to_the_resumed_run():
    entered = asyncio.Event()

    async def slowly(ctx: ToolContext[Any], result: str) -> str:
        DONE.append(f"undo {ctx.arguments['x']}")
        entered.set()
        if ctx.arguments["x"] == 1 and DONE.count("undo 1") == 1:
            await asyncio.sleep(60)
        return "undone"

    @tool(compensate=slowly)
    async def take(x: int) -> str:
        """Take."""
        return "taken"

    script = [call("take", x=0), call("take", x=1), FAILURE]
    parts = Runtime(ScriptedProvider(script), tools=[take])
    run = asyncio.ensure_future(ReActEngine(parts).run("Go.", run_id="r", saga=True))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert kinds(parts, "r")[-1] == "run_suspended"

    result = await ReActEngine(parts).resume("r")

    assert (result.status, str(result.error)) == ("failed", "the model is gone")
    assert DONE == ["undo 1", "undo 1", "undo 0"]


async def test_an_abort_in_the_middle_of_undoing_waits_for_it():
    entered = asyncio.Event()

    async def slowly(ctx: ToolContext[Any], result: str) -> str:
        entered.set()
        await asyncio.sleep(0.05)
        DONE.append("undone")
        return "undone"

    @tool(compensate=slowly)
    async def take() -> str:
        """Take."""
        return "taken"

    parts = Runtime(ScriptedProvider([call("take"), FAILURE]), tools=[take])
    async with ReActEngine(parts).start("Go.", run_id="r", saga=True) as run:
        await entered.wait()
        result = await run.abort()

    assert (result.status, DONE) == ("failed", ["undone"])


class Outer(LoopEngine):
    """Delegates, then fails."""

    name = "outer"
    inner: LoopEngine

    async def solve(self, run: Run) -> str:
        """Delegate, then fail."""
        await run.delegate(self.inner, "Book it.")
        raise RuntimeError("and then this")


async def test_what_a_child_engine_did_is_undone_too_also_in_another_process():
    child = Runtime(
        ScriptedProvider([call("book", what="hotel"), "booked"]), tools=[book]
    )
    parts = Runtime(ScriptedProvider([]))
    await Outer(parts, inner=ReActEngine(child)).run("Go.", run_id="r", saga=True)
    assert DONE == [
        "book hotel",
        "undo hotel (hotel booked) of r:0.0#0 as r:0.0#0:undo",
    ]

    entries = parts.journal.read("r")
    begun = next(i for i, e in enumerate(entries, 1) if isinstance(e.event, UndoBegun))
    DONE.clear()
    again = Runtime(ScriptedProvider([]), journal=crashed(entries, begun))
    other = Runtime(ScriptedProvider([]), tools=[book])
    result = await Outer(again, inner=ReActEngine(other)).resume("r")

    assert (result.status, DONE) == (
        "failed",
        ["undo hotel (hotel booked) of r:0.0#0 as r:0.0#0:undo"],
    )


async def test_a_tool_that_is_gone_when_it_should_undo_is_named():
    parts = booking(*TWO)
    await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    begun = next(i for i, e in enumerate(entries, 1) if isinstance(e.event, UndoBegun))

    again = Runtime(ScriptedProvider([]), journal=crashed(entries, begun))
    result = await ReActEngine(again).resume("r")

    assert (
        "book (2#0): the tool, or its compensate function, is not there any more"
        in str(result.error)
    )
    [end] = [
        e.event for e in again.journal.read("r") if isinstance(e.event, RunFinished)
    ]
    assert end.error is not None
    assert end.error.type == "UndoFailed"


async def test_a_plain_function_may_undo_too_and_one_that_hangs_is_left():
    def give_back(ctx: ToolContext[Any], result: str) -> None:
        DONE.append(f"gave back {ctx.arguments['x']}")

    async def hang(ctx: ToolContext[Any], result: str) -> None:
        await asyncio.sleep(60)

    @tool(compensate=give_back)
    def take(x: int) -> str:
        """Take."""
        return "taken"

    @tool(compensate=hang, timeout=0.05)
    async def grab(x: int) -> str:
        """Grab."""
        return "grabbed"

    script = [[call("take", x=1), call("grab", x=2)], FAILURE]
    parts = Runtime(ScriptedProvider(script), tools=[take, grab])
    result = await ReActEngine(parts).run("Go.", saga=True)

    assert DONE == ["gave back 1"]
    assert "grab (0#1): undoing it gave no result within 0.05 s" in str(result.error)


async def test_a_substitute_call_is_undone_also_when_the_journal_answers_the_call():
    """By a fall-back, and by the same tool with mended arguments."""

    @tool(recovery=Fallback("book"))
    async def reserve(what: str) -> str:
        """Reserve."""
        raise ToolError("closed")

    @tool(compensate=cancel_booking, recovery=LlmRecovery())
    async def buy(what: str) -> str:
        """Buy."""
        if what != "car":
            raise ToolError("we have cars")
        return f"{what} booked"

    def parts(script: list[Any], **options: Any) -> Runtime:
        return Runtime(ScriptedProvider(script), tools=[book, reserve, buy], **options)

    script = [
        call("reserve", what="hotel"),
        call("buy", what="boat"),
        '{"arguments": {"what": "car"}}',
        FAILURE,
    ]
    first = parts(script)
    await ReActEngine(first).run("Go.", run_id="r", saga=True)
    undone = [
        "undo car (car booked) of r:1#0~1 as r:1#0~1:undo",
        "undo hotel (hotel booked) of r:0#0~1 as r:0#0~1:undo",
    ]
    assert ["book hotel", *undone] == DONE

    entries = first.journal.read("r")
    ends = [
        entry.seq
        for entry in entries
        if entry.kind == "tool_finished" and "~" not in entry.key
    ]
    for cut in (
        ends[0],
        ends[0] + 1,
        ends[1],
        ends[1] + 1,
        cut_after(entries, "undo_begun"),
    ):
        DONE.clear()
        replied = sum(
            entry.kind in ("model_replied", "model_failed") for entry in entries[:cut]
        )
        again = parts(script[replied:], journal=crashed(entries, cut))
        result = await ReActEngine(again).resume("r")

        assert (str(result.error), DONE) == ("the model is gone", undone), (
            f"cut after {cut}"
        )


UNSURE = "book (0#0): it is not known whether it took effect, so it was not undone"


def slow_at_first(effect: Any, recovery: RecoveryStrategy) -> Tool:
    """A tool that takes effect and then too long; made again it says that it failed."""

    @tool(
        name="book",
        effect=effect,
        compensate=cancel_booking,
        timeout=0.02,
        recovery=recovery,
    )
    async def take_effect(what: str) -> str:
        """Book."""
        DONE.append(f"book {what}")
        if len(DONE) == 1:
            await asyncio.sleep(60)
        raise OSError("down")

    return take_effect


@pytest.mark.parametrize(
    ("effect", "recovery"),
    [
        ("write", DeadLetter()),
        ("idempotent", Retry(base_delay=0.0)),
        ("idempotent", Fallback("look")),
    ],
)
async def test_a_call_that_took_too_long_is_named_whatever_was_done_about_it(
    effect: Any, recovery: RecoveryStrategy
):
    tools = [slow_at_first(effect, recovery), look]
    parts = Runtime(
        ScriptedProvider([call("book", what="hotel"), FAILURE]), tools=tools
    )
    result = await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    assert isinstance(result.error, UndoFailed)
    assert str(result.error).endswith(f"could not undo: {UNSURE}")

    entries = parts.journal.read("r")
    end = next(e.seq for e in entries if (e.kind, e.key) == ("tool_finished", "0#0"))
    again = Runtime(
        ScriptedProvider([FAILURE]), tools=tools, journal=crashed(entries, end)
    )
    resumed = await ReActEngine(again).resume("r")

    assert (str(resumed.error), [line for line in DONE if "undo" in line]) == (
        str(result.error),
        [],
    )


async def test_a_timed_out_call_is_named_when_the_run_is_aborted_before_its_retry():
    parts = Runtime(
        ScriptedProvider([call("book", what="hotel")]),
        tools=[slow_at_first("idempotent", Retry(base_delay=1e7, max_delay=1e7))],
        limits=Limits(timeout=None),
    )
    async with ReActEngine(parts).start("Go.", saga=True) as run:
        async for entry in run:
            if entry.kind == "recovery_triggered":
                break
        result = await run.abort()

    assert (result.status, DONE) == ("aborted", ["book hotel"])
    assert UNSURE in str(result.error)


def office(kind: str) -> Tool:
    """A tool `book` that knows how to undo its own bookings alone."""

    async def cancel(ctx: ToolContext[Any], result: str) -> str:
        DONE.append(f"{kind} office cancels: {result}")
        return "cancelled"

    @tool(name="book", compensate=cancel)
    async def book_here(what: str) -> str:
        """Book."""
        return f"{kind} {what}"

    return book_here


async def test_each_booking_is_undone_by_its_own_tool_although_another_has_its_name():
    child = ReActEngine(
        Runtime(
            ScriptedProvider([call("book", what="room"), "booked"]),
            tools=[office("hotel")],
        )
    )
    tools = [office("flight"), child.as_tool(name="travel")]
    script = [call("book", what="seat"), call("travel", task="Book a room."), FAILURE]
    await ReActEngine(Runtime(ScriptedProvider(script), tools=tools)).run(
        "Go.", saga=True
    )
    assert DONE == [
        "hotel office cancels: hotel room",
        "flight office cancels: flight seat",
    ]

    DONE.clear()

    class Alone(LoopEngine):
        """Delegates to an engine that is nowhere among its options, then fails."""

        name = "alone"

        async def solve(self, run: Run) -> str:
            """Delegate, then fail."""
            script = [call("book", what="room"), "booked"]
            await run.delegate(
                ReActEngine(Runtime(ScriptedProvider(script), tools=[office("hotel")])),
                "Book it.",
            )
            raise RuntimeError("and then this")

    await Alone(Runtime(ScriptedProvider([]), tools=[office("flight")])).run(
        "Go.", saga=True
    )

    assert DONE == ["hotel office cancels: hotel room"]


# --- told to end while nobody works on it, and resumed in the middle of undoing ---


def traveller(request: Request) -> Any:
    """A model that books a hotel and a car, one after the other."""
    turns = [
        call("book", what="hotel"),
        call("look"),
        call("book", what="car"),
        "booked",
    ]
    return turns[sum(message.role == "tool" for message in request.conversation)]


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_saga_aborted_without_an_owner_is_undone_and_begins_nothing_new(
    parallel: bool,
):
    both = [call("book", what="hotel"), call("book", what="car")]
    turns = both if parallel else None

    def model(request: Request) -> Any:
        seen = any(message.role == "tool" for message in request.conversation)
        return traveller(request) if turns is None else "booked" if seen else turns

    parts = Runtime(ScriptedProvider(model), tools=[book, look])
    await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    for cut in range(2, len(entries)):
        held = entries[:cut]
        began = {
            e.event.call_id: e.key
            for e in held
            if isinstance(e.event, ToolStarted) and e.event.tool == "book"
        }
        ended = {e.key for e in held if isinstance(e.event, ToolFinished)}
        again = Runtime(
            ScriptedProvider([]), tools=[book, look], journal=crashed(entries, cut)
        )
        await again.control("r").abort()
        DONE.clear()
        result = await ReActEngine(again).resume("r")

        assert (result.status, result.stop_reason) == ("aborted", "aborted"), cut
        assert {line.split()[5] for line in DONE} == {
            f"r:{key}" for key in began.values() if key in ended
        }, cut
        doubtful = [key for key in began.values() if key not in ended]
        assert all(f"book ({key})" in str(result.error) for key in doubtful), cut


async def test_a_run_aborted_without_an_owner_keeps_its_conversation():
    parts = booking(*TWO)
    whole = await ReActEngine(parts).run("Go.", run_id="r")
    entries = parts.journal.read("r")
    again = Runtime(
        ScriptedProvider([]),
        tools=[book, look],
        journal=crashed(entries, cut_after(entries, "model_requested", 4)),
    )
    await again.control("r").abort()
    result = await ReActEngine(again).resume("r")

    assert str(result.error) == "the run was aborted"
    assert result.conversation.messages == whole.conversation.messages
    assert (result.llm_calls, result.tool_calls, result.iterations) == (
        4,
        3,
        whole.iterations,
    )


class Asks(LoopEngine):
    """Asks, and asks again."""

    name = "asks"
    words: ClassVar[str] = "Please."

    async def solve(self, run: Run) -> str:
        """Ask twice."""
        await run.ask(run.conversation.user(self.words))
        return (await run.ask(run.conversation)).text


@pytest.mark.parametrize("saga", [False, True])
async def test_an_abort_ends_a_run_whose_code_was_changed_unless_it_may_have_to_be_undone(
    saga: bool, monkeypatch: pytest.MonkeyPatch
):
    parts = Runtime(ScriptedProvider(["one", "two"]))
    await Asks(parts).run("Go.", run_id="r", saga=saga)
    entries = parts.journal.read("r")
    again = Runtime(
        ScriptedProvider([]),
        journal=crashed(entries, cut_after(entries, "model_replied")),
    )
    await again.control("r").abort()
    monkeypatch.setattr(Asks, "words", "Now!")

    if saga:
        with pytest.raises(ReplayDivergence):
            await Asks(again).resume("r")
    else:
        result = await Asks(again).resume("r")
        assert (result.status, str(result.error)) == ("aborted", "the run was aborted")
        assert again.journal.verify("r", result.head_hash).ok


async def test_a_run_that_is_resumed_in_the_middle_of_undoing_ends_as_it_would_have():
    parts = booking(*TWO)
    whole = await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    for cut in range(cut_after(entries, "undo_begun"), len(entries)):
        again = Runtime(
            ScriptedProvider([]), tools=[book, look], journal=crashed(entries, cut)
        )
        result = await ReActEngine(again).resume("r")

        assert result.conversation.messages == whole.conversation.messages, cut
        assert (result.iterations, result.llm_calls, str(result.error)) == (
            whole.iterations,
            4,
            str(whole.error),
        ), cut
        started = [
            e.key for e in again.journal.read("r") if isinstance(e.event, UndoStarted)
        ]
        assert sorted(started) == sorted(set(started)), cut


async def test_each_booking_is_undone_by_the_tool_that_made_it_also_in_another_process():
    def make(script: list[Any], child: list[Any], journal: Any = None) -> Outer:
        inner = ReActEngine(
            Runtime(
                ScriptedProvider(child),
                tools=[office("hotel")],
                redactor=Redactor(["hotel room"]),
            )
        )
        return Outer(
            Runtime(
                ScriptedProvider(script), tools=[office("flight")], journal=journal
            ),
            inner=inner,
        )

    first = make([], [call("book", what="room"), "booked"])
    await first.run("Go.", run_id="r", saga=True)
    entries = first.runtime.journal.read("r")
    DONE.clear()
    again = make([], [], crashed(entries, cut_after(entries, "undo_begun")))
    await again.resume("r")

    assert [line.partition(":")[0] for line in DONE] == ["hotel office cancels"]
    assert b"hotel room" not in b"".join(
        entry.body for entry in again.runtime.journal.read("r")
    )


async def test_the_error_of_a_run_that_could_not_be_undone_is_in_its_result_on_replay():
    parts = booking(call("book", what="stuck"), FAILURE)
    live = await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    again = await ReActEngine(parts).resume("r")

    assert isinstance(live.error, UndoFailed)
    assert isinstance(again.error, UndoFailed)
    assert (
        str(again.error.__cause__) == str(live.error.__cause__) == "the model is gone"
    )


async def test_a_call_with_unknown_outcome_is_named_when_its_run_is_stopped():
    parts = booking(*TWO)
    await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_started", 3))
    again = Runtime(
        ScriptedProvider([]), tools=[book, look], journal=journal, on_unknown="ask"
    )
    assert (await ReActEngine(again).resume("r")).status == "waiting"
    await again.control("r").stop()
    DONE.clear()
    result = await ReActEngine(again).resume("r")

    assert "could not undo: book (2#0): it is not known whether it took effect" in str(
        result.error
    )
    assert DONE == ["undo hotel (hotel booked) of r:0#0 as r:0#0:undo"]


async def test_a_run_whose_undoing_ends_its_process_time_and_again_is_left_to_people():
    parts = booking(*TWO)
    await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "undo_started"), status="running")
    for _ in range(ISOLATION_DEATHS):
        again = Runtime(
            ScriptedProvider([]), tools=[book, look], journal=journal, lease=30
        )
        await Worker(again).drain()
        entries = journal.read("r")
        journal = crashed(
            entries, cut_after(entries, "undo_finished") - 1, status="running"
        )
    with structlog.testing.capture_logs():
        assert (
            await Worker(
                Runtime(
                    ScriptedProvider([]), tools=[book, look], journal=journal, lease=30
                )
            ).drain()
            == []
        )
    assert journal.runs()[0].status == "parked"


async def test_compensation_that_needs_an_approval_is_not_done_also_after_a_crash():
    class AsksToUndo(InstantGate):
        """Asks about undoing."""

        version = "asks-to-undo-1"

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return Ask("may it?") if action.tool == "book:undo" else Allow()

    parts = booking(*TWO, gate=AsksToUndo(), approver=Suspend())
    whole = await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    DONE.clear()
    for cut in range(cut_after(entries, "undo_begun"), len(entries)):
        journal = crashed(entries, cut)
        again = Runtime(
            ScriptedProvider([]),
            tools=[book, look],
            journal=journal,
            gate=AsksToUndo(),
            approver=Suspend(),
        )
        result = await ReActEngine(again).resume("r")
        assert (result.status, str(result.error), DONE) == (
            "failed",
            str(whole.error),
            [],
        ), cut


class Slow(LoopEngine):
    """Books three things, and takes its time between them."""

    name = "slow"

    async def solve(self, run: Run) -> str:
        """Book."""
        for what in ("a", "b", "c"):
            await run.call(ToolCall("book", {"what": what}))
            await asyncio.sleep(
                0.15
            )  # longer in all than it takes until a run looks into its inbox again
        return (await run.ask(run.conversation)).text


async def test_an_abort_that_was_sent_before_does_not_cut_off_the_reading_of_what_was_done():
    parts = booking("done")
    await Slow(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "model_requested"))
    again = Runtime(ScriptedProvider([]), tools=[book, look], journal=journal)
    await again.control("r").abort()
    DONE.clear()
    result = await Slow(again).resume("r")

    assert (result.status, [line[:6] for line in DONE]) == (
        "aborted",
        ["undo c", "undo b", "undo a"],
    )


class Looks(LoopEngine):
    """Books, and then does an effect of its own."""

    name = "looks"

    async def solve(self, run: Run) -> str:
        """Book, and look."""

        async def seen() -> str:
            DONE.append("seen")
            return "seen"

        await run.call(ToolCall("book", {"what": "hotel"}))
        return await run.effect("look around", seen, into=str)


@pytest.mark.parametrize("undoing", [False, True])
async def test_an_effect_in_doubt_is_not_done_again_in_a_run_that_was_aborted(
    undoing: bool,
):
    parts = booking()
    await Looks(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "effect_started"))
    again = Runtime(ScriptedProvider([]), tools=[book, look], journal=journal)
    await again.control("r").abort()
    DONE.clear()
    result = await Looks(again).resume("r")
    if undoing:  # and died once more
        entries = journal.read("r")
        journal = crashed(entries, cut_after(entries, "undo_begun"))
        DONE.clear()
        result = await Looks(
            Runtime(ScriptedProvider([]), tools=[book, look], journal=journal)
        ).resume("r")

    assert (result.status, [line[:10] for line in DONE]) == ("aborted", ["undo hotel"])


async def test_a_call_that_failed_is_not_named_for_what_may_have_happened_in_its_place():
    @tool(compensate=cancel_booking, recovery=[Fallback("rail"), DeadLetter()])
    async def fly(what: str) -> str:
        """Fly."""
        raise ToolError("no seats")

    @tool(compensate=cancel_booking, timeout=0.02)
    async def rail(what: str) -> str:
        """Go by rail."""
        await asyncio.sleep(10)
        return "never"

    parts = Runtime(
        ScriptedProvider([call("fly", what="me"), FAILURE]), tools=[fly, rail]
    )
    result = await ReActEngine(parts).run("Go.", run_id="r", saga=True)

    [begun] = [
        e.event for e in parts.journal.read("r") if isinstance(e.event, UndoBegun)
    ]
    assert [(done.key, done.call.name) for done in begun.calls] == [("0#0~1", "rail")]
    assert "fly" not in str(result.error)


async def test_a_call_found_not_done_is_not_named_by_an_aborted_run():
    async def not_done(ctx: ToolContext[Any]) -> CallNotExecuted:
        return CallNotExecuted()

    @tool(compensate=cancel_booking, lookup=not_done)
    async def reserve(what: str) -> str:
        """Reserve."""
        return "reserved"

    parts = Runtime(
        ScriptedProvider([call("reserve", what="room"), "done"]), tools=[reserve]
    )
    await ReActEngine(parts).run("Go.", run_id="r", saga=True)
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_started"))
    again = Runtime(ScriptedProvider([]), tools=[reserve], journal=journal)
    await again.control("r").abort()
    result = await ReActEngine(again).resume("r")

    assert (str(result.error), DONE) == ("the run was aborted", [])
