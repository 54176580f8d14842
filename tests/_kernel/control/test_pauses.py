"""What is said while a run ends or stands still: heard in time or not at all, and no second of a pause counts."""

import asyncio
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    ChainOfThoughtEngine,
    ConfigError,
    Decision,
    Deny,
    LoopEngine,
    MemoryJournal,
    Modify,
    PolicyState,
    ProviderError,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    Worker,
    ask_user,
    tool,
)
from loopwright._kernel.control.journal_poller import INTERVAL
from loopwright._kernel.durability.replay import Replay
from loopwright.events import RunFinished, RunSuspended, decode_event
from loopwright.gates import RESPOND
from loopwright.journals import Claim
from loopwright.limits import Limits
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from waiting import eventually


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase something."""
    raise AssertionError("nobody allowed this")


def react(journal: Any, *script: Any, **options: Any) -> ReActEngine:
    given: dict[str, Any] = {
        "approver": Suspend(),
        "tools": [erase, ask_user],
        **options,
    }
    return ReActEngine(Runtime(ScriptedProvider(script), journal=journal, **given))


# --- at the end ---


class SlowToEnd(MemoryJournal):
    """Holds the last entry of a run back until something was said, and for the time of a look into the inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.closing, self.was_told = asyncio.Event(), asyncio.Event()

    async def barrier(self, claim: Claim) -> None:
        if any(
            isinstance(entry.event, RunFinished) for entry in self.read(claim.run_id)
        ):
            self.closing.set()
            await self.was_told.wait()
            await asyncio.sleep(2 * INTERVAL)
        await super().barrier(claim)


async def test_what_is_said_while_the_last_entry_is_written_does_not_follow_it() -> (
    None
):
    journal = SlowToEnd()
    engine = react(journal, "first answer", "second answer")
    control = engine.runtime.control("r")
    run = asyncio.ensure_future(engine.run("Go.", run_id="r"))
    await journal.closing.wait()
    journal.send("r", "steer", {"text": "say something else"})
    journal.was_told.set()
    assert (await run).answer == "first answer"

    assert isinstance(journal.read("r")[-1].event, RunFinished)
    with pytest.raises(ConfigError, match="has ended"):
        await control.steer("again")
    assert (await engine.resume("r")).answer == "first answer"


class Judging:
    """Has its own idea of what may be answered."""

    answers = True
    version = "judging-1"

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        return self._decision if action.tool == RESPOND else Allow()


@pytest.mark.parametrize(
    "arguments", [{}, {"answer": None}, {"answer": ["a"]}, {"text": "other"}]
)
async def test_an_answer_that_a_gate_puts_no_text_in_place_of_is_withheld(
    arguments: dict[str, Any],
) -> None:
    gate = Judging(Modify(arguments, "hidden"))

    result = await react(MemoryJournal(), "the code is 1234", gate=gate).run(
        "Go.", run_id="r"
    )

    assert (result.status, result.answer) == ("failed", None)
    assert (
        str(result.error)
        == "the answer was withheld: the policy replaced it by something that is not a text"
    )


class Offering(LoopEngine):
    """Has something to offer, and goes on."""

    name = "offering"

    async def solve(self, run: Run) -> str:
        run.offer("the code is 1234")
        await run.ask("more?")
        await asyncio.sleep(60)
        return "never"


@pytest.mark.parametrize(
    ("gate", "answer"), [(Judging(Deny("no codes")), None), (None, "the code is 1234")]
)
@pytest.mark.parametrize("outside", [False, True])
async def test_an_abort_lets_no_answer_past_a_gate(
    gate: Any, answer: str | None, outside: bool
) -> None:
    journal = MemoryJournal()
    engine = Offering(Runtime(ScriptedProvider(["some"]), gate=gate, journal=journal))
    async with engine.start("Go.", run_id="r") as run:
        async for entry in run:
            if entry.kind == "model_replied":
                break
        if outside:
            await engine.runtime.control("r").abort()
            result = await run.result()
        else:
            result = await run.abort()

    assert (result.status, result.answer) == ("aborted", answer)


# --- a run that waits is told to stop ---


class AskingUser(LoopEngine):
    """Asks its user."""

    name = "asking"

    async def solve(self, run: Run) -> str:
        return await run.ask_user("Which one?")


@tool(effect="write")
async def post(what: str) -> str:
    """Post something."""
    raise AssertionError("nobody knows whether it was posted")


async def in_doubt() -> MemoryJournal:
    """A run that died while it posted."""

    @tool(effect="write", name="post")
    async def posted(what: str) -> str:
        """Post something."""
        return "posted"

    journal = MemoryJournal()
    await react(journal, call("post", what="x"), "done", tools=[posted]).run(
        "Go.", run_id="r"
    )
    entries = journal.read("r")
    return crashed(entries, cut_after(entries, "tool_started"))


@pytest.mark.parametrize(
    "waits", ["for leave", "for its user", "for its user, by a tool", "in doubt"]
)
async def test_a_run_that_waits_ends_where_it_is_resumed_once_somebody_said_stop(
    waits: str,
) -> None:
    journal: Any = MemoryJournal()
    engine: LoopEngine = react(journal)
    match waits:
        case "for leave":
            await react(journal, call("erase", what="disk")).run("Go.", run_id="r")
        case "for its user":
            engine = AskingUser(Runtime(ScriptedProvider([]), journal=journal))
            await engine.run("Go.", run_id="r")
        case "for its user, by a tool":
            await react(journal, call("ask_user", question="Which one?")).run(
                "Go.", run_id="r"
            )
        case _:
            journal = await in_doubt()
            engine = react(journal, tools=[post], on_unknown="ask")
            assert (await engine.resume("r")).status == "waiting"
    assert await engine.runtime.control("r").questions()
    await engine.runtime.control("r").stop()

    result = await engine.resume("r")

    assert (result.status, result.stop_reason, result.answer) == (
        "aborted",
        "aborted",
        None,
    )
    calls = [c.id for m in result.conversation.messages for c in m.calls]
    told = [m.call_id for m in result.conversation.messages if m.role == "tool"]
    assert calls == told  # each call has one observation


class BesideAQuestion(LoopEngine):
    """Asks its user in one branch, and lets another engine think in another one."""

    name = "beside-a-question"
    by_tool = False

    async def solve(self, run: Run) -> str:
        async def ask(branch: Run) -> str:
            return await branch.ask_user("Which one?")

        async def think(branch: Run) -> str:
            if self.by_tool:
                made = ToolCall("chain-of-thought", {"task": "Think."})
                return (await branch.call(made, thought="as told")).content
            child = ChainOfThoughtEngine(self.runtime)
            return str((await branch.delegate(child, "Think.")).answer)

        return " ".join(await run.gather(ask, think))


class BesideATool(BesideAQuestion):
    """Has the engine that thinks as a tool."""

    name = "beside-a-tool"
    by_tool = True


@pytest.mark.parametrize("engine", [BesideAQuestion, BesideATool])
async def test_a_stopped_engine_beside_a_question_is_stopped_again_where_the_run_is_resumed(
    engine: type[BesideAQuestion],
) -> None:
    journal, asked = MemoryJournal(), asyncio.Event()

    def fail(request: Request) -> ProviderError:
        asked.set()
        return ProviderError("it is unavailable", status=503, retry_after=30.0)

    def build(journal: MemoryJournal, *script: Any) -> BesideAQuestion:
        provider = ScriptedProvider(script)
        thinks = ChainOfThoughtEngine(Runtime(provider)).as_tool()
        return engine(Runtime(provider, tools=[thinks], journal=journal))

    async with build(journal, fail).start("Go.", run_id="r") as run:
        await asked.wait()
        await run.stop()
        assert (await run.result()).status == "aborted"
    entries = journal.read("r")
    assert entries[-2].kind in ("child_finished", "tool_finished")

    for keep in range(cut_after(entries, "command_received"), len(entries) + 1):
        died = crashed(entries, keep)
        died.send("r", "stop", {})
        result = await build(died).resume("r")

        assert (result.status, keep) == ("aborted", keep), result.error


# --- the clock ---

PAUSED = 10_000.0  # seconds, far more than the run has


async def heard(journal: MemoryJournal, count: int) -> None:
    await eventually(
        lambda: (
            sum(entry.kind == "command_received" for entry in journal.read("r"))
            >= count
        )
    )


async def test_a_pause_counts_nowhere_though_its_process_dies_in_it() -> None:
    clock, reached, go = FakeClock(), asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Hold."""
        reached.set()
        await go.wait()
        clock.advance(5)
        return "held"

    journal = MemoryJournal(clock=clock)
    engine = react(
        journal,
        call("hold"),
        "done",
        tools=[hold],
        clock=clock,
        limits=Limits(timeout=60),
    )
    control = engine.runtime.control("r")
    run = asyncio.ensure_future(engine.run("Go.", run_id="r"))
    await reached.wait()
    await control.pause()
    await heard(journal, 1)
    go.set()
    await eventually(
        lambda: any(entry.kind == "run_paused" for entry in journal.read("r"))
    )
    for number, say in enumerate((control.steer, control.add_context), 2):
        clock.advance(PAUSED)
        await say("mind the gap")
        await heard(journal, number)
    clock.advance(PAUSED)
    await control.unpause()
    assert (await run).status == "completed"

    entries = journal.read("r")
    for keep in range(2, len(entries) + 1):
        assert Replay(entries[:keep]).totals.active_seconds <= 5.1, entries[
            keep - 1
        ].kind
    for keep in range(2, len(entries)):
        go.set()
        died = MemoryJournal(clock=clock)
        crashed(entries, keep, died)
        again = react(
            died,
            call("hold"),
            "done",
            tools=[hold],
            clock=clock,
            limits=Limits(timeout=60),
        )
        result = await again.resume("r")
        assert result.status == "completed", entries[keep - 1].kind


@pytest.mark.parametrize("by_tool", [False, True])
async def test_the_time_in_which_the_user_thinks_counts_nowhere(by_tool: bool) -> None:
    clock = FakeClock()

    async def user(question: str) -> str:
        clock.advance(PAUSED)
        return "the blue one"

    journal = MemoryJournal(clock=clock)
    runtime = Runtime(
        ScriptedProvider([call("ask_user", question="Which one?"), "done"] if by_tool else []),
        tools=[ask_user], user=user, journal=journal, clock=clock,
    )  # fmt: skip
    result = await (ReActEngine(runtime) if by_tool else AskingUser(runtime)).run(
        "Go.", run_id="r"
    )

    assert result.status == "completed"
    entries = journal.read("r")
    for keep in range(2, len(entries) + 1):
        assert Replay(entries[:keep]).totals.active_seconds < 1, entries[keep - 1].kind


@pytest.mark.parametrize("reason", ["cancelled", "released"])
@pytest.mark.parametrize("who", ["approver", "user"])
async def test_the_time_of_a_person_counts_nowhere_if_the_host_stops_meanwhile(
    who: str, reason: str
) -> None:
    clock, asked = FakeClock(), asyncio.Event()

    async def thinks(*_: Any) -> Any:
        clock.advance(PAUSED)
        asked.set()
        await asyncio.sleep(60)

    async def knows(*_: Any) -> Any:
        return "blue" if who == "user" else Deny("no")

    def model(request: Any) -> Any:
        if len(request.conversation) > 3:
            return "done"
        return (
            call("ask_user", question="Which one?")
            if who == "user"
            else call("erase", what="it")
        )

    journal = MemoryJournal(clock=clock)
    shared: dict[str, Any] = {
        "journal": journal,
        "clock": clock,
        "limits": Limits(timeout=60),
        "tools": [erase, ask_user],
    }
    first = Runtime(
        ScriptedProvider(model), **shared, **{who: thinks}, lease=100 * PAUSED
    )
    if reason == "cancelled":
        host = asyncio.ensure_future(ReActEngine(first).run("Go.", run_id="r"))
    else:
        whole = react(MemoryJournal(), "never said")
        await whole.run("Go.", run_id="r")
        crashed(whole.runtime.journal.read("r"), 1, journal, status="running")
        host = asyncio.ensure_future(Worker(first, poll=0.01).serve())
    await asked.wait()
    host.cancel()
    await asyncio.gather(host, return_exceptions=True)
    left = journal.read("r")
    result = await Runtime(ScriptedProvider(model), **shared, **{who: knows}).resume(
        "r"
    )

    assert (left[-1].kind, left[-1].event.reason) == ("run_suspended", reason)
    assert Replay(left).totals.active_seconds < 1
    assert result.status == "completed"


def test_a_suspension_of_an_older_version_tells_no_time_of_thinking() -> None:
    assert decode_event(
        "run_suspended", b'{"reason":"cancelled","pending":[]}'
    ) == RunSuspended("cancelled")
