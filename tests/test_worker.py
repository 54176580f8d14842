"""Workers: runs whose process died, hung or let them go are taken up by others, once, and nothing is done twice."""

import asyncio
import contextlib
import dataclasses
import fcntl
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from pydantic import BaseModel

from forked_processes import DEVNULL, Forked, fork
from journal_positions import cut_after, kinds
from loopwright import (
    Completion,
    ConfigError,
    Fenced,
    Limits,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Request,
    Run,
    RunBusy,
    Runtime,
    Suspend,
    ToolCall,
    ToolContext,
    Worker,
    tool,
)
from loopwright.clock import Clock, SystemClock
from loopwright.errors import JournalError, ProviderError, UnknownRun
from loopwright.events import (
    CommandReceived,
    Entry,
    RunFinished,
    RunParked,
    RunResumed,
    RunRetried,
    RunSuspended,
    ToolFinished,
    encode_event,
)
from loopwright.events.entry import EVENT_VERSION, KINDS
from loopwright.journals import Command, Owner, SQLiteJournal, chain_hash
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.testing.contracts.entries import DEAD
from loopwright.testing.simulation.host import HostClock
from loopwright.testing.truncated_journal import NO_PROCESS
from loopwright.tools import CallCompleted
from loopwright.worker import RETRY_SECONDS
from virtual_time import in_virtual_time
from waiting import eventually

CHILD = Path(__file__).parent / "support" / "worker_child.py"
LOOKED: list[str] = []


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    LOOKED.append(what)
    return f"saw {what}"


@pytest.fixture(autouse=True)
def _nobody_looked() -> None:
    LOOKED.clear()


def runtime(
    *script: Any, journal: Any = None, lease: float | None = 30.0, **options: Any
) -> Runtime:
    return Runtime(
        ScriptedProvider(list(script)),
        tools=[look],
        journal=journal,
        lease=lease,
        **options,
    )


async def orphan(
    run_id: str = "r", journal: MemoryJournal | None = None
) -> MemoryJournal:
    """A journal with a run whose process died after its look was recorded."""
    parts = runtime(call("look", what="a"), "done", lease=None)
    await ReActEngine(parts).run("Look.", run_id=run_id)
    entries = parts.journal.read(run_id)
    LOOKED.clear()
    return crashed(
        entries, cut_after(entries, "tool_finished"), journal=journal, status="running"
    )


async def test_a_run_whose_process_died_is_claimed_and_ends():
    journal = await orphan()
    results = await Worker(runtime("done", journal=journal)).drain()

    assert [(result.run_id, result.answer) for result in results] == [("r", "done")]
    assert LOOKED == []
    assert journal.verify("r").ok


async def test_runs_that_ended_or_were_suspended_on_purpose_are_left_alone():
    parts = runtime("done")
    await ReActEngine(parts).run("Go.", run_id="ended")
    run = asyncio.ensure_future(
        ReActEngine(thinking(60, journal=parts.journal)).run("Go.", run_id="held")
    )
    await eventually(
        lambda: (
            {"held"} == {info.run_id for info in parts.journal.runs(unfinished=True)}
            and parts.journal.read("held")[-1].kind == "model_requested"
        )
    )
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run

    assert await Worker(runtime(journal=parts.journal)).drain() == []
    assert {info.run_id: info.status for info in parts.journal.runs()} == {
        "ended": "completed",
        "held": "suspended",
    }


class Thinking(ScriptedProvider):
    """A model that takes its time."""

    def __init__(self, seconds: float, *script: Any) -> None:
        super().__init__(list(script))
        self._seconds, self.asked = seconds, asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        self.asked.set()
        await asyncio.sleep(self._seconds)
        return await super().complete(request)


def thinking(
    seconds: float, *script: Any, journal: Any, lease: float | None = 30.0
) -> Runtime:
    return Runtime(
        Thinking(seconds, *script), tools=[look], journal=journal, lease=lease
    )


async def test_a_worker_that_is_stopped_releases_its_runs_to_the_next():
    journal = await orphan()
    serving = asyncio.ensure_future(
        Worker(thinking(60, journal=journal), poll=0.01).serve()
    )
    await eventually(lambda: journal.read("r")[-1].kind == "model_requested")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    [info] = journal.runs()
    assert (info.status, info.owner) == ("released", None)
    assert journal.read("r")[-1].event == RunSuspended("released")

    [result] = await Worker(runtime("done", journal=journal)).drain()

    assert (result.answer, LOOKED) == ("done", [])


class Gathering(LoopEngine):
    """Asks one thing, and does another that is over sooner."""

    name = "gathering"

    async def solve(self, run: Run) -> str:
        """Do both."""

        async def max_concurrency(branch: Run) -> str:
            return "over"

        return " ".join(
            await run.gather(lambda branch: branch.ask("What?"), max_concurrency)
        )


class Translating(LoopEngine):
    """Raises a cancellation of its own in place of the one that it gets."""

    name = "translating"

    async def solve(self, run: Run) -> str:
        """Ask."""
        try:
            return await run.ask("What?")
        except asyncio.CancelledError:
            raise asyncio.CancelledError from None


@pytest.mark.parametrize("engine", [Gathering, Translating])
async def test_a_run_is_released_whatever_its_engine_makes_of_its_cancellation(
    engine: Any,
):
    held = asyncio.ensure_future(
        engine(thinking(60, journal=(journal := MemoryJournal()))).run(
            "Go.", run_id="r"
        )
    )
    await eventually(
        lambda: bool(journal.runs()) and journal.read("r")[-1].kind == "model_requested"
    )
    journal = crashed(journal.read("r"), len(journal.read("r")), status="running")
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    parts = thinking(60, journal=journal)
    serving = asyncio.ensure_future(
        Worker(parts, engines=[engine(parts)], poll=0.01).serve()
    )
    await cast("Thinking", parts.provider).asked.wait()
    assert "run_resumed" in kinds(parts, "r")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert (journal.runs()[0].status, journal.read("r")[-1].event) == (
        "released",
        RunSuspended("released"),
    )
    parts = runtime(lambda request: "said", journal=journal)
    [result] = await Worker(parts, engines=[engine(parts)]).drain()
    assert (result.answer or "").startswith("said")


async def test_a_run_is_released_although_one_call_of_its_turn_has_ended_and_one_has_not():
    begun = asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Take long the first time."""
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(60)
        return "slow"

    def parts(journal: Any) -> Runtime:
        def model(request: Request) -> Any:
            ended = any(
                message.role == "tool" for message in request.conversation.messages
            )
            return "done" if ended else [call("slow"), call("look", what="a")]

        return Runtime(
            ScriptedProvider(model), tools=[look, slow], journal=journal, lease=30
        )

    whole = runtime("done")
    await ReActEngine(whole).run("Look.", run_id="r")
    journal = crashed(whole.journal.read("r"), 1, status="running")
    serving = asyncio.ensure_future(Worker(parts(journal), poll=0.01).serve())
    await eventually(lambda: begun.is_set() and LOOKED == ["a"])
    for _ in range(50):  # the result of the one call is observed
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert (journal.runs()[0].status, journal.read("r")[-1].event) == (
        "released",
        RunSuspended("released"),
    )

    [result] = await Worker(parts(journal)).drain()

    assert (result.answer, LOOKED) == ("done", ["a"])


async def test_a_waiting_run_is_claimed_when_its_question_is_answered():
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        LOOKED.append("paid")
        return "paid"

    first = Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay])
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_started"), status="running")
    LOOKED.clear()
    parts = Runtime(
        ScriptedProvider(["done"]),
        tools=[pay],
        journal=journal,
        on_unknown="ask",
        lease=30,
    )
    worker = Worker(parts)

    [waiting] = await worker.drain()
    assert (waiting.status, await worker.drain()) == ("waiting", [])
    await parts.resolve("r", "0#0", CallCompleted("paid, says the bank"))
    [result] = await worker.drain()

    assert (result.answer, LOOKED) == ("done", [])


async def test_a_waiting_run_whose_question_expired_is_claimed_and_denied():
    @tool(effect="destructive")
    async def erase() -> str:
        """Erase."""
        LOOKED.append("erased")
        return "erased"

    clock = FakeClock()
    journal = MemoryJournal(clock=clock)

    def parts(script: Any) -> Runtime:
        return Runtime(
            ScriptedProvider(script),
            tools=[erase, look],
            journal=journal,
            lease=30,
            clock=clock,
            approver=Suspend(),
        )

    await ReActEngine(parts([[call("erase"), call("erase")]])).run("Erase.", run_id="r")
    await ReActEngine(parts([[call("erase")]])).run("Erase.", run_id="late")

    def answer(request: Request) -> Any:
        denied = "it was not approved in time" in str(request.conversation.messages)
        return "not that, then" if denied else [call("erase")]

    worker = Worker(parts(answer))
    clock.advance(86_399)
    assert await worker.drain() == []
    await parts([]).control("late").approve("0#0")
    clock.advance(2)

    results = {result.run_id: result for result in await worker.drain()}

    assert {run_id: result.status for run_id, result in results.items()} == {
        "r": "completed",
        "late": "waiting",
    }
    assert LOOKED == ["erased"]
    told = [
        message.content
        for message in results["r"].conversation.messages
        if message.role == "tool"
    ]
    assert told == ["it was not approved in time"] * 2
    assert await worker.drain() == []


async def test_a_waiting_run_that_cannot_be_read_holds_up_no_other():
    @tool(effect="destructive")
    async def erase() -> str:
        """Erase."""
        return "erased"

    class Damaged(MemoryJournal):
        damaged = ""

        def read(self, run_id: str) -> list[Entry]:
            if run_id == self.damaged:
                raise JournalError("the page is torn")
            return super().read(run_id)

    clock = FakeClock()
    journal = Damaged(clock=clock)

    def parts(*script: Any) -> Runtime:
        return Runtime(
            ScriptedProvider(script),
            tools=[erase],
            journal=journal,
            lease=30,
            clock=clock,
            approver=Suspend(),
        )

    for name in ("first", "second"):
        await ReActEngine(parts([call("erase")])).run("Erase.", run_id=name)
    journal.damaged = "first"
    clock.advance(86_401)
    worker = Worker(parts("done", "done"))
    with structlog.testing.capture_logs() as logs:
        results = await worker.drain()
    assert [(result.run_id, result.answer) for result in results] == [
        ("second", "done")
    ]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_unreadable", "first")
    ]

    journal.damaged = ""
    clock.advance(RETRY_SECONDS)
    assert [result.run_id for result in await worker.drain()] == ["first"]


async def test_more_answered_runs_than_slots_are_all_claimed():
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    journal, names = MemoryJournal(), ["one", "two", "three"]
    for name in names:
        first = Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay])
        await ReActEngine(first).run("Pay.", run_id=name)
        entries = first.journal.read(name)
        crashed(
            entries,
            cut_after(entries, "tool_started"),
            journal=journal,
            status="running",
        )
    parts = Runtime(
        ScriptedProvider(["done"] * 3),
        tools=[pay],
        journal=journal,
        on_unknown="ask",
        lease=30,
    )
    worker = Worker(parts, max_concurrency=1)
    waiting = [result for _ in names for result in await worker.drain()]
    assert sorted((result.run_id, result.status) for result in waiting) == [
        (name, "waiting") for name in sorted(names)
    ]
    for name in names:
        await parts.resolve(name, "0#0", CallCompleted("paid, says the bank"))

    results = [result for _ in names for result in await worker.drain()]

    assert sorted((result.run_id, result.answer) for result in results) == [
        (name, "done") for name in sorted(names)
    ]


async def test_an_engine_of_others_that_breaks_holds_up_no_other_run():
    class Foreign(LoopEngine):
        """Written for another version: its `resume` takes other arguments."""

        name = "foreign"

        async def solve(self, run: Run) -> str:
            """Answer."""
            return "foreign"

        async def resume(self, run_id: str) -> Any:  # type: ignore[override]
            """Go on, in its own way."""
            return await super().resume(run_id)

    foreign = runtime(lease=None)
    await Foreign(foreign).run("Go.", run_id="foreign")
    journal = crashed(foreign.journal.read("foreign"), 1, status="running")
    await orphan("good", journal)
    parts = runtime("done", journal=journal)
    worker = Worker(parts, engines=[Foreign(parts)], max_concurrency=1)
    with structlog.testing.capture_logs() as logs:
        results = [result for _ in range(3) for result in await worker.drain()]

    assert [(result.run_id, result.answer) for result in results] == [("good", "done")]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_skipped", "foreign")
    ]


class Passing(MemoryJournal):
    """Does not give a run when it is told so, once."""

    trouble: Exception | None = None

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Any:
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble
        return await super().claim(run_id, owner, take_over=take_over, lease=lease)


async def test_a_run_that_the_journal_could_not_give_is_tried_again_later():
    passing, clock = Passing(), FakeClock()
    journal, passing.trouble = (
        await orphan(journal=passing),
        JournalError("another process held the lock for 5 s"),
    )
    worker = Worker(runtime("done", journal=journal, clock=clock))
    with structlog.testing.capture_logs() as logs:
        assert await worker.drain() == []
        assert await worker.drain() == []
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_not_claimed", "r")
    ]

    clock.advance(RETRY_SECONDS)
    [result] = await worker.drain()

    assert result.answer == "done"


@pytest.mark.parametrize(
    "trouble", [JournalError("locked"), RunBusy("run 'r' is at work")]
)
async def test_a_waiting_run_that_could_not_be_claimed_when_answered_is_claimed_later(
    trouble: Exception,
):
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    first, clock, journal = (
        Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay]),
        FakeClock(),
        Passing(),
    )
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    crashed(
        entries, cut_after(entries, "tool_started"), journal=journal, status="running"
    )
    provider = ScriptedProvider(["done"])
    parts = Runtime(
        provider, tools=[pay], journal=journal, on_unknown="ask", lease=30, clock=clock
    )
    worker = Worker(parts)
    await worker.drain()
    await parts.resolve("r", "0#0", CallCompleted("paid, says the bank"))
    journal.trouble = trouble
    with structlog.testing.capture_logs():
        assert await worker.drain() == []

    clock.advance(RETRY_SECONDS)
    [result] = await worker.drain()

    assert result.answer == "done"


async def test_an_unreadable_command_is_reported_to_the_run_that_waits_for_one():
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    class Damaged(MemoryJournal):
        damage: tuple[Command, ...] = ()

        def inbox(self, run_id: str, after: int = 0) -> list[Command]:
            return [command for command in self.damage if command.number > after]

    journal = Damaged()
    first = Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay])
    await ReActEngine(first).run("Pay.", run_id="r")
    entries = first.journal.read("r")
    crashed(
        entries, cut_after(entries, "tool_started"), journal=journal, status="running"
    )
    parts = Runtime(
        ScriptedProvider([]),
        tools=[pay],
        journal=journal,
        on_unknown="ask",
        lease=30,
        clock=FakeClock(),
    )
    worker = Worker(parts)
    [waiting] = await worker.drain()
    journal.damage = (Command(1, "r", 0.0, "damaged", {}, "command 1 was changed"),)
    journal._sent += 1  # so that the mark of the inbox moves

    [again] = await worker.drain()
    assert (waiting.status, again.status, again.pending) == (
        "waiting",
        "waiting",
        waiting.pending,
    )
    assert await worker.drain() == []  # once
    told = [
        entry.event
        for entry in journal.read("r")
        if isinstance(entry.event, CommandReceived)
    ]
    assert [(event.number, event.refused) for event in told] == [
        (1, "command 1 was changed")
    ]


@pytest.mark.parametrize(
    "trouble", [JournalError("command 1 was changed"), OSError("disk")]
)
async def test_a_waiting_run_whose_inbox_cannot_be_read_holds_up_no_other(
    trouble: Exception,
):
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    class Damaged(MemoryJournal):
        damaged = "first"

        def inbox(self, run_id: str, after: int = 0) -> Any:
            if run_id == self.damaged:
                raise trouble
            return super().inbox(run_id, after)

    journal, clock = Damaged(), FakeClock()
    for name in ("first", "second"):
        first = Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay])
        await ReActEngine(first).run("Pay.", run_id=name)
        entries = first.journal.read(name)
        crashed(
            entries,
            cut_after(entries, "tool_started"),
            journal=journal,
            status="running",
        )
    script = ["done", "done"]
    parts = Runtime(
        ScriptedProvider(script),
        tools=[pay],
        journal=journal,
        on_unknown="ask",
        lease=30,
        clock=clock,
    )
    worker, journal.damaged = Worker(parts), ""
    assert len(await worker.drain()) == 2
    for name in ("first", "second"):
        await parts.resolve(name, "0#0", CallCompleted("paid, says the bank"))

    journal.damaged = "first"
    with structlog.testing.capture_logs() as logs:
        results = [result for _ in range(2) for result in await worker.drain()]
    assert [(result.run_id, result.answer) for result in results] == [
        ("second", "done")
    ]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("inbox_unreadable", "first")
    ]

    journal.damaged = ""
    clock.advance(RETRY_SECONDS)
    [result] = await worker.drain()
    assert (result.run_id, result.answer) == ("first", "done")


async def test_a_run_that_cannot_resume_is_left_to_people_and_delays_no_other():
    journal = await orphan("bad")
    good = runtime("done", lease=None)
    await ReActEngine(good).run("Go.", run_id="good")
    entries = good.journal.read("good")
    crashed(entries, 1, journal=journal, status="running")
    parts = runtime("fine", journal=journal)

    class Either(LoopEngine):
        """One engine for both."""

        name = "react"

        async def solve(self, run: Run) -> str:
            """Diverge in one of them."""
            return await run.ask("another question" if run.run_id == "bad" else "fine?")

    worker = Worker(parts, engines=[Either(parts)])
    with structlog.testing.capture_logs() as logs:
        results = await worker.drain()
        assert await worker.drain() == []

    assert [(result.run_id, result.answer) for result in results] == [("good", "fine")]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_skipped", "bad")
    ]


class Mortal(MemoryJournal):
    """A journal whose owners can be made dead, as if their process had been killed."""

    def kill(self, run_id: str, keep: int) -> None:
        """Cut a run's entries off after `keep`, and let its owner be a process that is gone."""
        record = self._runs[run_id]
        del record.entries[keep:]
        dead = str(Owner(socket.gethostname(), NO_PROCESS, "", "dead"))
        record.info = dataclasses.replace(
            record.info,
            status="running",
            owner=dead,
            head_seq=keep,
            head_hash=record.entries[-1].hash,
        )


def lives(journal: MemoryJournal) -> list[tuple[str, bool]]:
    return [
        (entry.event.after, entry.event.alone)
        for entry in journal.read("r")
        if isinstance(entry.event, RunResumed)
    ]


async def test_a_run_that_kills_a_worker_of_its_own_is_parked_until_it_is_retried():
    journal = Mortal()
    await orphan(journal=journal)
    for _ in range(3):
        await Worker(runtime("done", journal=journal)).drain()
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal)))
        )
    assert lives(journal) == [("died", False), ("died", False), ("died", True)]

    parts = runtime("done", journal=journal)
    with structlog.testing.capture_logs() as logs:
        assert await Worker(parts).drain() == []
        assert await Worker(parts).drain() == []
    assert [line["event"] for line in logs] == ["run_parked"]
    [info] = journal.runs(unfinished=True)
    assert (info.status, info.owner) == ("parked", None)
    parked = journal.read("r")[-1].event
    assert isinstance(parked, RunParked)
    assert (parked.deaths, "it killed 1 of its processes" in parked.reason) == (4, True)
    with pytest.raises(ConfigError, match="is parked: it killed"):
        await ReActEngine(parts).resume("r")

    await parts.control("r").retry("the disk was full")
    assert (journal.runs()[0].status, journal.verify("r").ok) == ("released", True)
    [result] = await Worker(parts).drain()
    assert (result.answer, lives(journal)[-1]) == ("done", ("left", False))
    with pytest.raises(ConfigError, match="nothing to retry"):
        await parts.control("r").retry()


async def test_a_process_that_died_before_it_wrote_anything_is_no_death_of_the_run():
    """The work before it, alone in its worker and without an outcome, was released in order."""
    journal = Mortal()
    await orphan(journal=journal)
    for _ in range(2):
        await Worker(runtime("done", journal=journal)).drain()
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal)))
        )
    alone = asyncio.ensure_future(Worker(thinking(60, journal=journal)).drain())
    await eventually(lambda: journal.read("r")[-1].kind == "model_requested")
    alone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await alone
    for _ in range(2):
        await journal.claim("r", DEAD)
    [result] = await Worker(runtime("done", journal=journal)).drain()

    assert result.answer == "done"
    assert lives(journal)[2:] == [("died", True), ("left", False)]


async def test_a_run_that_makes_progress_alone_is_parked_after_its_third_death_alone():
    journal = Mortal()
    await orphan(journal=journal)
    script = [call("look", what="b")] * 9
    for _ in range(5):
        await Worker(runtime(*script, "done", journal=journal)).drain()
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal))) + 4
        )
    assert [alone for _, alone in lives(journal)] == [False, False, True, True, True]
    assert await Worker(runtime(journal=journal)).drain() == []
    assert journal.runs()[0].status == "parked"


@in_virtual_time
async def test_a_worker_sees_renewals_and_claims_no_run_that_is_at_work() -> None:
    """Also if the run writes nothing for longer than its lease."""
    clock = HostClock(asyncio.get_running_loop())
    await claim_nothing(MemoryJournal(clock=clock), 4.0, 20.0, clock)


@pytest.mark.faults
async def test_a_worker_sees_renewals_in_a_file(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await claim_nothing(journal, 2.0, 2.8, SystemClock())
    await journal.close()


def _count(claim: Any, claims: list[object]) -> Any:
    """Return a method that notes what is claimed by it."""

    def count(wanted: object, *given: Any, **options: Any) -> Any:
        claims.append(wanted)
        return claim(wanted, *given, **options)

    return count


async def claim_nothing(store: Any, lease: float, seconds: float, clock: Clock) -> None:
    """Have a run work for longer than its lease beside a worker that is to leave it alone."""
    claims = list[object]()
    store.claim = _count(store.claim, claims)
    batch = store.batch_claims
    batch.claim_next = _count(batch.claim_next, claims)

    @tool(effect="read")
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    parts = Runtime(
        ScriptedProvider([call("wait"), "done"]),
        tools=[wait],
        journal=store,
        lease=lease,
        clock=clock,
    )
    serving = asyncio.ensure_future(Worker(parts, poll=lease / 15).serve())
    result = await ReActEngine(parts).run("Wait.", run_id="r")
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert (result.answer, claims) == ("done", [])


async def test_a_lease_that_is_over_is_no_death_of_the_run():
    journal = Mortal()
    await orphan(journal=journal)
    clock = FakeClock()
    for _ in range(6):
        await Worker(runtime("done", journal=journal)).drain()
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal)))
        )
        elsewhere = dataclasses.replace(
            journal.runs()[0],
            owner="elsewhere|1||x",
            lease_until=1.0,
            lease_seconds=1.0,
            lease_beat=0,
        )
        journal._runs["r"].info = elsewhere
    assert lives(journal) == [("died", False)] + [("lost", False)] * 5
    [result] = await Worker(runtime("done", journal=journal, clock=clock)).drain()
    assert result.answer == "done"


async def test_a_run_whose_process_died_rests_longer_each_time():
    journal = Mortal()
    await orphan(journal=journal)
    for rest in (1.0, 2.0, 4.0):
        clock = FakeClock()
        parts = runtime("done", journal=journal, clock=clock)
        before, began = len(lives(journal)), clock.monotonic()
        looked = list[float]()
        worker = Worker(parts, poll=0.25)
        while len(lives(journal)) == before:
            looked.append(clock.monotonic() - began)
            await worker._start_runs()
            await asyncio.gather(*worker._tasks.values())
            clock.advance(0.25)
        await worker._release()
        assert looked[-1] == rest
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal)))
        )


async def test_a_run_to_be_taken_up_alone_has_its_worker_for_itself():
    journal, at_work, seen = Mortal(), set[str](), list[set[str]]()
    await orphan(journal=journal)
    for _ in range(2):
        await Worker(runtime("done", journal=journal)).drain()
        journal.kill(
            "r", cut_after(journal.read("r"), "run_resumed", len(lives(journal)))
        )
    for name in ("a", "b", "c"):
        await orphan(name, journal)

    together = asyncio.Barrier(3)

    class Watching(LoopEngine):
        """Notes which runs are at work at once."""

        name = "react"

        async def solve(self, run: Run) -> str:
            """Ask, while others may."""
            at_work.add(run.run_id)
            seen.append(set(at_work))
            if run.run_id == "r":
                await asyncio.sleep(0.02)
            else:
                async with asyncio.timeout(60):
                    await together.wait()
            at_work.discard(run.run_id)
            return "done"

    parts = runtime(journal=journal)
    with structlog.testing.capture_logs():
        await Worker(parts, engines=[Watching(parts)]).drain()

    assert {"r"} in seen
    assert not [names for names in seen if "r" in names and len(names) > 1]
    assert max(map(len, seen)) == 3


async def sleeping(clock: FakeClock, *wakes: float) -> MemoryJournal:
    """A journal with a run for each time, suspended until then; 0 is one that its host cancelled."""
    journal = MemoryJournal(clock=clock)
    for wake_at in wakes:
        first = runtime(call("look", what="a"), "done", lease=None, clock=clock)
        name = f"r{wake_at:.0f}"
        await ReActEngine(first).run("Look.", run_id=name)
        entries = first.journal.read(name)
        crashed(entries, cut_after(entries, "tool_finished"), journal, status="running")
        claim = await journal.claim(name, ME)
        body = encode_event(RunSuspended("cancelled", wake_at=wake_at))
        entry = Entry(
            name, claim.head_seq + 1, "", KINDS[RunSuspended], clock.wall(), EVENT_VERSION, claim.fence, body, ""
        )  # fmt: skip
        entry.__dict__["hash"] = chain_hash(claim.head_hash, entry)
        claim.wake_at = wake_at
        journal.append(claim, [entry], status="suspended")
    return journal


ME = str(Owner.of_this_process("me"))
NOW = 1_700_000_000.0


async def test_a_suspended_run_is_claimed_when_its_time_has_come():
    clock = FakeClock(wall=NOW)
    journal = await sleeping(clock, 0, NOW + 60)
    worker = Worker(runtime("done", "done", journal=journal, clock=clock))
    assert await worker.drain() == []
    clock.advance(59.9)
    assert await worker.drain() == []
    clock.advance(0.2)
    [result] = await worker.drain()

    assert (result.run_id, result.answer) == (f"r{NOW + 60:.0f}", "done")
    assert [info.status for info in journal.runs()] == ["completed", "suspended"]


async def test_a_run_that_was_woken_in_vain_for_a_day_is_parked():
    clock = FakeClock(wall=NOW)
    journal = await sleeping(clock, NOW + 60)
    [info] = journal.runs()
    for _ in range(12):
        clock.advance(8_000)
        claim = await journal.claim(info.run_id, ME)
        left = RunSuspended("provider_unavailable", waited=8_000, wake_at=clock.wall())
        body = encode_event(left)
        entry = Entry(
            info.run_id, claim.head_seq + 1, "", KINDS[RunSuspended], clock.wall(), EVENT_VERSION, claim.fence, body, ""
        )  # fmt: skip
        entry.__dict__["hash"] = chain_hash(claim.head_hash, entry)
        claim.wake_at = clock.wall()
        journal.append(claim, [entry], status="suspended")
    with structlog.testing.capture_logs() as logs:
        assert await Worker(runtime(journal=journal, clock=clock)).drain() == []

    assert [(line["event"], line["reason"]) for line in logs] == [
        ("run_parked", "its provider was not available for 27 h")
    ]
    assert journal.runs()[0].status == "parked"
    parts = runtime("done", journal=journal, clock=clock)
    await parts.control(info.run_id).retry()
    [result] = await Worker(parts).drain()
    assert result.answer == "done"


async def test_a_runtime_wakes_what_is_due_and_waits_for_what_comes():
    clock = FakeClock(wall=NOW)
    journal = await sleeping(clock, 0, NOW + 600_000, NOW + 1_200_000, NOW + 9_000_000)
    parts = runtime("done", "done", "done", journal=journal, clock=clock)
    assert await parts.drain() == []
    assert clock.wall() == NOW

    first, second = await parts.drain(until=NOW + 1_200_000)
    assert (first.answer, second.answer) == ("done", "done")
    assert clock.wall() == NOW + 1_200_000
    assert [info.status for info in journal.runs()] == [
        "suspended",
        "completed",
        "completed",
        "suspended",
    ]
    with pytest.raises(ConfigError, match="until: must be a wall time"):
        await parts.drain(until=float("nan"))


async def test_a_runtime_tells_of_a_run_that_it_cannot_wake_and_wakes_the_others():
    clock = FakeClock(wall=NOW)
    journal = await sleeping(clock, NOW - 1_000_000, NOW - 2_000_000)
    first = runtime("nothing", lease=None)
    await Vanished(first).run("Go.", run_id="gone")
    crashed(first.journal.read("gone"), 1, journal, status="released")
    parts = runtime("done", "done", journal=journal, clock=clock)
    with structlog.testing.capture_logs() as logs:
        results = await parts.drain()

    assert [result.answer for result in results] == ["done", "done"]
    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("run_not_resumed", "gone")
    ]


async def test_a_runtime_that_is_cancelled_leaves_what_it_woke_to_the_next():
    clock, asked = FakeClock(wall=NOW), asyncio.Event()
    journal = await sleeping(clock, NOW - 1_000_000)

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            asked.set()
            await asyncio.Event().wait()
            return await super().complete(request)

    slow = Runtime(Slow([]), journal=journal, clock=clock, lease=30.0)
    draining = asyncio.ensure_future(slow.drain())
    await asked.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining

    assert [info.status for info in journal.runs()] == ["released"]
    [result] = await runtime("done", journal=journal, clock=clock).drain()
    assert result.answer == "done"


class Plan(LoopEngine):
    """Asks twice."""

    name = "plan"
    question = "Where?"

    async def solve(self, run: Run) -> str:
        return await run.ask(self.question) + await run.ask("And then?")


class OtherPlan(Plan):
    """The code of today, which asks something else."""

    question = "When?"


async def test_a_runtime_stops_waking_what_its_code_cannot_replay():
    first = runtime("there", "home", lease=None)
    await first.agent("guide", engine=Plan(first)).run("Go.", run_id="r")
    entries = first.journal.read("r")
    cut = crashed(entries, cut_after(entries, "model_replied"), status="released")
    today = runtime(journal=cut)
    today.agent("guide", engine=OtherPlan(today))
    with structlog.testing.capture_logs() as logs:
        assert [await today.drain() for _ in range(7)] == [[]] * 7

    assert [line["event"] for line in logs] == ["run_not_resumed"] * 5
    assert [info.status for info in cut.runs()] == ["released"]
    before = runtime("home", journal=cut)
    before.agent("guide", engine=Plan(before))
    assert (await before.resume("r")).answer == "therehome"


class Vanished(LoopEngine):
    """Its package is uninstalled later."""

    name = "vanished"

    async def solve(self, run: Run) -> str:
        """Book, and then ask."""
        booking = run.propose(ToolCall("book", {"what": "hotel"}))
        await run.act(await run.gate(booking))
        return await run.ask("What now?")


async def test_a_run_whose_engine_is_gone_is_closed_once_and_names_what_is_not_undone():
    @tool(effect="write", compensate=lambda ctx, result: None)
    async def book(what: str) -> str:
        """Book."""
        return f"{what} booked"

    first = Runtime(ScriptedProvider(["nothing"]), tools=[book])
    await Vanished(first).run("Go.", run_id="r", saga=True)
    entries = first.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_finished"), status="running")
    parts = runtime(journal=journal)
    with structlog.testing.capture_logs() as logs:
        assert await Worker(parts).drain() == []
    assert [line["event"] for line in logs] == ["run_skipped"]

    closing = Worker(parts, orphans="close")
    with structlog.testing.capture_logs() as logs:
        assert await closing.drain() == []
        assert await closing.drain() == []
    assert [line["event"] for line in logs] == ["run_closed"]
    ended = journal.read("r")[-1].event
    assert isinstance(ended, RunFinished)
    assert (ended.status, ended.error and ended.error.type) == ("aborted", "UndoFailed")
    assert "could not undo: book (0#0)" in (ended.error.message if ended.error else "")
    assert [kind for kind in kinds(parts, "r") if kind == "run_finished"] == [
        "run_finished"
    ]
    assert journal.verify("r").ok
    with pytest.raises(ConfigError, match="has ended already as aborted"):
        await parts.control("r").close("again")


async def test_a_run_that_a_provider_ended_continues_where_it_failed():
    def refuse(request: Request) -> Any:
        raise ProviderError("the key is wrong", status=401)

    parts = runtime(call("look", what="a"), refuse)
    failed = await ReActEngine(parts).run("Look.", run_id="r")
    assert (failed.status, failed.stop_reason) == ("failed", "provider_error")
    LOOKED.clear()

    again = runtime("done", journal=parts.journal)
    await again.control("r").retry("the key is right now")
    retried = again.journal.read("r")[-1].event
    assert isinstance(retried, RunRetried)
    assert retried.forgets == ("1",)
    [result] = await Worker(again).drain()

    assert (result.answer, LOOKED) == ("done", [])
    assert again.journal.verify("r").ok
    assert await ReActEngine(again).resume("r") == result


async def test_what_a_run_was_started_with_is_handed_to_it_again():
    class City(BaseModel):
        """A city."""

        name: str

    @tool(effect="read")
    async def where(ctx: ToolContext[str]) -> str:
        """Where."""
        LOOKED.append(ctx.deps)
        return "there"

    first = Runtime(
        ScriptedProvider([call("where"), '{"name": "Paris"}']), tools=[where]
    )
    await ReActEngine(first).run("Where?", run_id="r", output=City, deps="the map")
    entries = first.journal.read("r")
    LOOKED.clear()
    journal = crashed(entries, cut_after(entries, "gate_decided"), status="running")
    parts = Runtime(
        ScriptedProvider(['{"name": "Paris"}']),
        tools=[where],
        journal=journal,
        lease=30,
    )

    [result] = await Worker(parts, outputs=[City], deps="the map").drain()

    assert (result.output, LOOKED) == (City(name="Paris"), ["the map"])


async def test_a_worker_gives_outputs_of_types_that_are_no_classes():
    first = runtime('["Paris"]')
    await ReActEngine(first).run("Where?", run_id="r", output=list[str])
    entries = first.journal.read("r")
    journal = crashed(entries, cut_after(entries, "run_started"), status="running")
    parts = runtime('["Paris"]', journal=journal)

    [result] = await Worker(parts, outputs=[dict[str, int], list[str]]).drain()

    assert (result.output, result.error) == (["Paris"], None)


@pytest.mark.parametrize(
    ("lease", "options", "named"),
    [
        (None, {}, "Runtime.lease="),
        (30.0, {"max_concurrency": 0}, "max_concurrency"),
        (30.0, {"poll": 0.0}, "poll"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_settings(
    lease: float | None, options: Any, named: str
):
    with pytest.raises(ConfigError, match=named):
        Worker(runtime(lease=lease), **options)


@pytest.mark.parametrize("lease", [0, -1, float("inf"), float("nan"), "30"])
def test_a_lease_is_a_number_of_seconds(lease: Any):
    with pytest.raises(ConfigError, match="lease"):
        runtime(lease=lease)


async def test_a_run_that_was_taken_over_stops_during_its_model_call(
    tmp_path: Path,
):
    """Its owner is alive and hangs beyond its lease; renewal, the moment it comes to itself, finds that out."""
    journal = SQLiteJournal(tmp_path / "runs.db")
    parts = thinking(3600, journal=journal, lease=3.0)
    run = asyncio.ensure_future(ReActEngine(parts).run("Go.", run_id="r"))
    await eventually(
        lambda: journal.runs() and journal.read("r")[-1].kind == "model_requested"
    )
    await journal.claim("r", "elsewhere|1||other", take_over=True, lease=30)

    with pytest.raises(Fenced):
        await asyncio.wait_for(run, 60)

    assert [
        kind for kind in kinds(parts, "r") if kind in ("run_suspended", "run_finished")
    ] == []
    await journal.close()


@in_virtual_time
async def test_a_run_with_an_expired_lease_starts_no_tool_and_stays_running():
    class Unreachable(MemoryJournal):
        """Cannot renew a lease, as long as that is so."""

        out_of_reach = True

        async def renew(self, claim: Any, lease: float) -> None:
            if self.out_of_reach:
                raise JournalError("the database is out of reach")
            await super().renew(claim, lease)

    clock = HostClock(asyncio.get_running_loop())
    journal = Unreachable(clock=clock)
    model = Thinking(20.0, call("look", what="a"))
    with structlog.testing.capture_logs():
        parts = Runtime(model, tools=[look], journal=journal, lease=10.0, clock=clock)
        result = await ReActEngine(parts).run("Look.", run_id="r")
    assert (result.stop_reason, LOOKED) == ("journal_error", [])
    assert [info.status for info in journal.runs(unfinished=True)] == ["running"]

    journal.out_of_reach = False
    [result] = await Worker(runtime("done", journal=journal, clock=clock)).drain()

    assert (result.answer, LOOKED) == ("done", ["a"])


@pytest.mark.parametrize("taken_over", [True, False])
async def test_a_call_queued_past_its_lease_starts_only_if_the_run_is_still_owned(
    taken_over: bool,
):
    """As in a process that was stopped while its calls waited, and woke up when the lease was over."""
    started, go_on, clock = list[int](), threading.Event(), FakeClock()
    journal = MemoryJournal(clock=clock)

    @tool
    def send(n: int) -> str:
        """Send."""
        started.append(n)
        go_on.wait(60)
        return "sent"

    def model(request: Request) -> Any:
        return (
            "done"
            if request.conversation.messages[-1].role == "tool"
            else [call("send", n=n) for n in range(40)]
        )

    limits = Limits(max_concurrent_tools=None, tool_timeout=None, timeout=None)
    parts = Runtime(
        ScriptedProvider(model),
        tools=[send],
        journal=journal,
        lease=30,
        clock=clock,
        limits=limits,
    )
    run = asyncio.ensure_future(ReActEngine(parts).run("Go.", run_id="r"))
    await eventually(lambda: len(started) == 32)  # as many as there are threads
    clock.advance(31)
    if taken_over:
        await journal.claim("r", "elsewhere|1||other", take_over=True, lease=30)
    go_on.set()

    if taken_over:
        with pytest.raises(Fenced):
            await run
        assert len(started) == 32
    else:
        assert (await run).answer == "done"
        assert sorted(started) == list(range(40))


@in_virtual_time
async def test_a_live_run_renews_its_lease_as_long_as_its_model_thinks() -> None:
    clock = HostClock(asyncio.get_running_loop())
    journal = MemoryJournal(clock=clock)
    parts = Runtime(
        Thinking(50.0, "done"), tools=[look], journal=journal, lease=10.0, clock=clock
    )
    run = asyncio.ensure_future(ReActEngine(parts).run("Go.", run_id="r"))
    other = Worker(runtime(journal=journal, clock=clock, lease=10.0), poll=0.7)
    serving = asyncio.ensure_future(other.serve())
    result = await run
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving

    assert result.answer == "done"
    assert not [
        entry for entry in journal.read("r") if isinstance(entry.event, RunResumed)
    ]


# --- real processes ---


def process(
    mode: str, folder: Path, *names: str, lease: float = 1.0, pause: float = 0.15
) -> Forked:
    return fork(
        CHILD,
        mode,
        folder / "runs.db",
        folder / "notes",
        lease,
        pause,
        *names,
        stderr=DEVNULL,
    )


def notes(folder: Path) -> list[tuple[str, ...]]:
    path = folder / "notes"
    return (
        [tuple(line.split()) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def statuses(folder: Path) -> Counter[str]:
    return Counter(info.status for info in SQLiteJournal(folder / "runs.db").runs())


def check(folder: Path, names: list[str]) -> None:
    """Every run ended as it should; nothing recorded was repeated; a write that was cut off is told as unknown."""
    journal = SQLiteJournal(folder / "runs.db")
    starts = Counter(
        (run, step) for _, what, run, step, *_ in notes(folder) if what == "start"
    )
    for name in names:
        entries = journal.read(name)
        assert journal.verify(name).ok
        assert [entry.kind for entry in entries].count("run_finished") == 1
        unknown = [
            e
            for e in entries
            if isinstance(e.event, ToolFinished) and e.event.status == "unknown"
        ]
        assert sum(run == name for run, _ in starts) + len(unknown) >= 4
    assert max(starts.values()) == 1, "a write was made twice"


@pytest.mark.faults
def test_runs_of_a_killed_process_resume_in_the_workers(tmp_path: Path):
    names = [f"run-{n}" for n in range(6)]
    with (
        process("begin", tmp_path, *names) as first,
        process("serve", tmp_path) as worker,
    ):
        until(lambda: sum(what == "end" for _, what, *_ in notes(tmp_path)) >= 6)
        first.send_signal(signal.SIGKILL)
        first.wait()
        with process("serve", tmp_path) as second:
            until(
                lambda: any(
                    int(pid) in (worker.pid, second.pid) for pid, *_ in notes(tmp_path)
                )
            )
            worker.send_signal(
                signal.SIGKILL
            )  # and the worker that took them up dies too
            worker.wait()
            until(lambda: statuses(tmp_path)["completed"] == 6)
    check(tmp_path, names)


def stop_between_writes(stopped: Forked, lock: Path) -> None:
    """Stop a process while it does not hold the journal: beside one that does, nobody writes until it wakes."""
    while True:
        stopped.send_signal(signal.SIGSTOP)
        until(lambda: read_state(stopped.pid) in ("T", ""))
        with lock.open("a") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        stopped.send_signal(signal.SIGCONT)


def read_state(pid: int) -> str:
    """Return the letter for what a process does, see proc(5), or nothing where no system tells."""
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(")")[2].split()[0] if path.exists() else ""


@pytest.mark.faults
def test_a_zombie_is_fenced_off_and_stops_when_it_wakes(tmp_path: Path):
    names = ["one", "two"]
    with process("begin", tmp_path, *names, lease=0.6) as zombie:
        until(lambda: sum(what == "start" for _, what, *_ in notes(tmp_path)) >= 2)
        stop_between_writes(zombie, tmp_path / "runs.db.lock")
        with process("serve", tmp_path, lease=0.6) as worker:
            until(lambda: statuses(tmp_path)["completed"] == 2)
            woken = len(notes(tmp_path))
            zombie.send_signal(signal.SIGCONT)
            assert zombie.wait(timeout=30) != 0
            after = [
                line for line in notes(tmp_path)[woken:] if line[0] == str(zombie.pid)
            ]
            assert worker.poll() is None
    assert [line for line in after if line[1] == "start"] == [], (
        "a zombie started a tool"
    )
    assert [line[2] for line in after if line[1] == "ended"] == ["Fenced"]
    check(tmp_path, names)
    journal = SQLiteJournal(tmp_path / "runs.db")
    for name in names:
        fences = [entry.fence for entry in journal.read(name)]
        assert fences == sorted(fences)
        assert set(fences) == {1, 2}


async def test_a_run_that_was_claimed_and_orphaned_again_is_claimed_again(
    tmp_path: Path,
):
    """Whatever it was when it was taken up: suspended, released, waiting."""
    for number, status in enumerate(("suspended", "released", "running")):
        journal = await orphan(f"r{number}")
        journal._runs[f"r{number}"].info = dataclasses.replace(
            journal.runs()[0], status=status, owner=None
        )
        await journal.claim(
            f"r{number}",
            str(Owner(socket.gethostname(), NO_PROCESS, "", "dead")),
            take_over=True,
        )
        assert journal.runs()[0].status == "running"

        [result] = await Worker(runtime("done", journal=journal)).drain()

        assert result.answer == "done"


async def test_a_waiting_run_that_is_gone_when_it_is_looked_at_holds_up_no_other():
    @tool(effect="destructive")
    async def erase() -> str:
        """Erase."""
        return "erased"

    class Shrinking(MemoryJournal):
        gone = ""

        def read(self, run_id: str) -> list[Entry]:
            if run_id == self.gone:
                raise UnknownRun(f"no run {run_id!r}")
            return super().read(run_id)

    clock = FakeClock()
    journal = Shrinking(clock=clock)
    parts = Runtime(
        ScriptedProvider([call("erase")] * 2 + ["done"]), tools=[erase], journal=journal, lease=30, clock=clock,
        approver=Suspend(),
    )  # fmt: skip
    for name in ("first", "second"):
        await ReActEngine(parts).run("Erase.", run_id=name)
    journal.gone = "first"
    clock.advance(86_401)

    assert [result.run_id for result in await Worker(parts).drain()] == ["second"]
