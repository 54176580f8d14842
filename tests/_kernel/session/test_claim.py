"""A run that is taken up and not gone on with is nobody's again: stopped at every point, it stays what it was."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from fault_sizes import LONG
from interruptions import SteppingLoop, WaitingJournal
from loopwright import (
    Entry,
    Journal,
    MemoryJournal,
    ReActEngine,
    Request,
    Runtime,
    Suspend,
    Worker,
    tool,
)
from loopwright._kernel.durability.replay import Replay
from loopwright.errors import JournalError
from loopwright.events import RunResumed, RunSuspended
from loopwright.journals import SQLiteJournal
from loopwright.journals.owner import ACTIVE_TOKENS
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed

Host = Callable[[Runtime], Awaitable[object]]
IN_FILES = [("sqlite", "all tasks")] if LONG else []
"""What is stopped in a file beside the host alone: it takes as long as all others together."""


@tool(effect="destructive")
async def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def model(request: Request) -> Any:
    return (
        "done"
        if request.conversation.messages[-1].role == "tool"
        else call("pay", cents=1)
    )


def runtime(journal: Journal) -> Runtime:
    return Runtime(
        ScriptedProvider(model),
        tools=[pay],
        journal=journal,
        approver=Suspend(),
        lease=60,
    )


async def written() -> list[Entry]:
    parts = runtime(MemoryJournal())
    await ReActEngine(parts).run("Pay.", run_id="r")
    return parts.journal.read("r")


async def kept(opened: Callable[[], Journal], left: str) -> Journal:
    """The journal with a run that waits for leave, or whose process died when it had asked for that."""
    journal, entries = opened(), await written()
    status, keep = (
        ("waiting", len(entries))
        if left == "waiting"
        else ("running", len(entries) - 1)
    )
    crashed(entries, keep, cast("MemoryJournal", journal), status=status)
    await journal.close()  # makes it durable
    return opened()


async def resumed(parts: Runtime) -> object:
    return await ReActEngine(parts).resume("r")


async def served(parts: Runtime) -> object:
    if parts.journal.runs()[0].status == "waiting":
        await parts.control("r").approve("0#0")
    return await Worker(parts).drain()


def stopped(
    opened: Callable[[], Journal], left: str, host: Host, struck: str, at: int
) -> bool:
    """Whether a host that is stopped before the callback of its loop with that number had not begun to go on."""
    loop, active = SteppingLoop(), len(ACTIVE_TOKENS)

    def cancel_all(kept: asyncio.Task[Any] | None) -> None:
        for task in asyncio.all_tasks(loop) - {kept}:
            task.cancel()

    async def work() -> bool:
        journal = await kept(opened, left)
        parts, dead = runtime(journal), journal.runs()[0].owner
        task = asyncio.ensure_future(host(parts))
        cancel = functools.partial(cancel_all, asyncio.current_task())
        loop.plan = {at: task.cancel if struck == "host" else cancel}
        loop.counting = True
        await asyncio.wait((task,))
        loop.counting = False
        info = journal.runs()[0]
        assert info.owner == (dead if info.status == "running" else None)
        assert journal.verify("r").ok
        assert len(ACTIVE_TOKENS) == active
        begun = any(isinstance(entry.event, RunResumed) for entry in journal.read("r"))
        await journal.close()
        return not begun

    try:
        return loop.run_until_complete(work())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.faults
@pytest.mark.parametrize("left", ["waiting", "dead"])
@pytest.mark.parametrize("host", [resumed, served])
@pytest.mark.parametrize(
    ("kind", "struck"),
    [("memory", "host"), ("memory", "all tasks"), ("sqlite", "host"), *IN_FILES],
)
def test_a_host_that_is_stopped_anywhere_while_it_takes_a_run_up_leaves_it_to_others(
    kind: str, host: Host, left: str, struck: str, tmp_path: Path
) -> None:
    at, more = 1, True
    while more:
        memory, path = WaitingJournal(), tmp_path / f"{at}.db"
        more = stopped(
            lambda: memory if kind == "memory" else SQLiteJournal(path),  # noqa: B023
            left,
            host,
            struck,
            at,
        )
        at += 1

    assert at > 10


@pytest.mark.parametrize(
    ("left", "status"), [("waiting", "waiting"), ("dead", "suspended")]
)
async def test_a_run_whose_inbox_cannot_be_read_is_taken_up_once_it_can(
    left: str, status: str, tmp_path: Path
) -> None:
    journal, inbox = (
        await kept(lambda: SQLiteJournal(tmp_path / "runs.db"), left),
        tmp_path / "runs.db.inbox",
    )
    inbox.write_bytes(b"no inbox at all")
    with pytest.raises(JournalError, match="not a database"):
        await runtime(journal).resume("r")
    info = journal.runs()[0]
    suspended = [
        entry.event
        for entry in journal.read("r")
        if isinstance(entry.event, RunSuspended)
    ]
    inbox.unlink()
    result = await runtime(journal).resume("r")

    assert (info.status, info.owner, info.lease_until) == (status, None, None)
    assert [known.reason for known in suspended] == [
        "waiting" if left == "waiting" else "cancelled"
    ]
    assert (result.status, [question.tool for question in result.pending]) == (
        "waiting",
        ["pay"],
    )
    await journal.close()


async def test_the_time_of_a_dead_run_does_not_count_after_a_claim_without_resume() -> (
    None
):
    clock = FakeClock(wall=time.time())
    journal = MemoryJournal(clock=clock)
    entries = await written()
    crashed(entries, len(entries) - 1, journal, status="running")
    clock.advance(3600)
    parts = Runtime(
        ScriptedProvider(model),
        tools=[pay],
        journal=journal,
        approver=Suspend(),
        clock=clock,
    )
    taking = asyncio.ensure_future(ReActEngine(parts).resume("r"))
    for _ in range(1000):
        await asyncio.sleep(0)
        if "dead" not in (journal.runs()[0].owner or "dead"):  # it is claimed
            break
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert journal.read("r")[-1].kind == "run_suspended"
    assert Replay(journal.read("r")).totals.active_seconds < 60


async def test_a_claim_that_raises_a_cancellation_by_itself_is_not_made_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = ReActEngine(Runtime(ScriptedProvider(["Done."])))
    await begun.run("Go.", run_id="r")
    journal = crashed(begun.runtime.journal.read("r"), 1)
    made: list[str] = []

    async def claim(run_id: str, *_: object, **__: object) -> NoReturn:
        made.append(run_id)
        if len(made) == 10:
            raise AssertionError("it is claimed again and again")
        raise asyncio.CancelledError

    engine = ReActEngine(Runtime(ScriptedProvider(["Done."]), journal=journal))
    with monkeypatch.context() as broken:
        broken.setattr(journal, "claim", claim)
        with pytest.raises(JournalError, match="CancelledError"):
            await engine.resume("r")

    assert made == ["r"]
    assert (await engine.resume("r")).answer == "Done."
