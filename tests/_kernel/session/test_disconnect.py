"""What becomes of a run whose watcher goes away, and handles of runs that are resumed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from held_tool import HeldTool
from loopwright import (
    ConfigError,
    Delta,
    Entry,
    MemoryJournal,
    ReActEngine,
    RunBusy,
    RunHandle,
    Runtime,
    Suspend,
    tool,
)
from loopwright.events import RunFinished, RunSuspended
from loopwright.journals import Journal, SQLiteJournal
from loopwright.testing import ScriptedProvider, call, crashed

UNWATCHED = "the run was aborted: its watcher went away"


class Host:
    """An application with a run that a tool holds."""

    def __init__(self, journal: Journal | None = None, **options: Any) -> None:
        self.held = HeldTool()
        script = [call("hold", what="it"), "done"]
        self.runtime = Runtime(
            ScriptedProvider(script),
            tools=self.held.tools(),
            journal=journal or MemoryJournal(),
            **options,
        )
        self.engine = ReActEngine(self.runtime)

    @property
    def status(self) -> str:
        return self.runtime.journal.runs()[0].status

    @property
    def last(self) -> Any:
        return self.runtime.journal.read("r")[-1].event

    async def follow(self, **options: Any) -> None:
        """Watch the run to its end, as a handler of a web server does."""
        async with self.engine.start("Go.", run_id="r", **options) as run:
            async for _ in run:
                pass

    async def wait(self, **options: Any) -> None:
        async with self.engine.start("Go.", run_id="r", **options) as run:
            await run.result()

    async def serve(self, **options: Any) -> AsyncIterator[Entry]:
        """Give the run's entries, as the generator of a streamed response does."""
        async with self.engine.start("Go.", run_id="r", **options) as run:
            async for entry in run:
                yield entry

    async def cut(self, work: Callable[..., Any], **options: Any) -> None:
        """Cancel a handler while the tool holds the run."""
        task = asyncio.ensure_future(work(**options))
        await self.held.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def close_generator(self, **options: Any) -> None:
        """Close the generator of a response whose client went away."""
        stream: Any = self.serve(**options)
        async for entry in stream:
            if entry.kind == "tool_started":
                break
        await stream.aclose()

    async def leave(self, **options: Any) -> None:
        """Leave the block of a handle."""
        async with self.engine.start("Go.", run_id="r", **options):
            await self.held.reached.wait()


async def leave_cancelled(host: Host, **options: Any) -> None:
    await host.cut(host.follow, **options)


async def leave_cancelled_result(host: Host, **options: Any) -> None:
    await host.cut(host.wait, **options)


async def leave_cancelled_run(host: Host, **options: Any) -> None:
    async def run(**options: Any) -> None:
        await host.engine.run("Go.", run_id="r", **options)

    await host.cut(run, **options)


WAYS = {
    "its handler is cancelled": leave_cancelled,
    "its handler is cancelled while it waits": leave_cancelled_result,
    "its generator is closed": Host.close_generator,
    "it leaves the block": Host.leave,
}
Leave = Callable[..., Any]


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def leave(request: Any) -> Leave:
    chosen: Leave = request.param
    return chosen


async def test_a_run_whose_watcher_goes_away_is_aborted(leave: Leave) -> None:
    host = Host()
    await leave(host)

    assert isinstance(host.last, RunFinished)
    assert (host.last.status, host.last.error.message) == ("aborted", UNWATCHED)
    assert host.status == "aborted"


async def test_a_run_may_continue_without_its_watcher(leave: Leave) -> None:
    host = Host()
    await leave(host, on_disconnect="continue")
    assert host.status == "running"
    host.held.go.set()
    results = await host.runtime.drain()

    assert [(result.run_id, result.answer) for result in results] == [("r", "done")]
    assert host.status == "completed"


@pytest.mark.parametrize(
    ("chosen", "status"), [("abort", "aborted"), ("continue", "running")]
)
async def test_a_run_that_is_awaited_does_what_was_chosen(
    chosen: str, status: str
) -> None:
    host = Host()
    await leave_cancelled_run(host, on_disconnect=chosen)

    assert host.status == status
    host.held.go.set()
    await host.runtime.drain()


async def test_a_run_that_is_awaited_is_suspended_without_a_choice() -> None:
    host = Host()
    await leave_cancelled_run(host)

    assert (host.status, host.last.reason) == ("suspended", "cancelled")


async def test_no_way_to_go_away_leaves_a_suspended_run(leave: Leave) -> None:
    for chosen in ({}, {"on_disconnect": "abort"}, {"on_disconnect": "continue"}):
        host = Host()
        await leave(host, **chosen)
        host.held.go.set()
        await host.runtime.drain()

        assert host.status in ("aborted", "completed")
        entries = host.runtime.journal.read("r")
        assert not any(isinstance(entry.event, RunSuspended) for entry in entries)


async def test_a_runtime_that_closes_waits_for_runs_in_the_background() -> None:
    host = Host()
    async with host.runtime:
        await leave_cancelled(host, on_disconnect="continue")
        asyncio.get_running_loop().call_later(0.05, host.held.go.set)

    assert host.status == "completed"


async def test_a_close_that_is_cancelled_releases_the_runs_of_the_background() -> None:
    journal = MemoryJournal()
    host = Host(journal)
    await leave_cancelled(host, on_disconnect="continue")
    closing = asyncio.ensure_future(host.runtime.aclose())
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert (host.status, host.last.reason) == ("released", "released")

    other = Host(journal)
    other.held.go.set()
    results = await other.runtime.drain()

    assert [(result.run_id, result.status) for result in results] == [
        ("r", "completed")
    ]


def test_a_process_that_stops_releases_the_runs_of_the_background(
    tmp_path: Path,
) -> None:
    async def serve() -> None:
        journal = SQLiteJournal(tmp_path / "runs.db")
        await leave_cancelled(Host(journal), on_disconnect="continue")

    asyncio.run(serve())
    journal = SQLiteJournal(tmp_path / "runs.db")

    async def continue_it() -> list[str]:
        host = Host(journal)
        host.held.go.set()
        results = await host.runtime.drain()
        await journal.close()
        return [result.status for result in results]

    assert journal.runs()[0].status == "released"
    assert asyncio.run(continue_it()) == ["completed"]


async def test_a_run_in_the_background_that_is_lost_is_logged() -> None:
    journal = MemoryJournal()
    host = Host(journal)
    await leave_cancelled(host, on_disconnect="continue")
    await journal.claim("r", "another:1:x", take_over=True)
    with structlog.testing.capture_logs() as logs:
        host.held.go.set()
        assert await host.runtime.drain() == []

    assert [(line["event"], line["run_id"]) for line in logs] == [
        ("unwatched_run_lost", "r")
    ]


async def test_an_abort_is_finished_however_often_the_handler_is_cancelled() -> None:
    host = Host()
    task = asyncio.ensure_future(host.follow())
    await host.held.reached.wait()
    while not task.done():  # as anyio does, which Starlette uses
        task.cancel()
        await asyncio.sleep(0)

    assert task.cancelled()
    assert host.status == "aborted"


async def test_a_handle_suspends_its_run() -> None:
    host = Host()
    async with host.engine.start("Go.", run_id="r") as run:
        await host.held.reached.wait()
        await run.suspend()
        await run.suspend()

    assert host.status == "suspended"
    host.held.go.set()
    assert (await host.engine.resume("r")).answer == "done"


async def test_an_unknown_choice_is_refused_before_anything_runs() -> None:
    host = Host()
    wrong: Any = "ignore"

    with pytest.raises(ConfigError, match=r"^on_disconnect: must be \"abort\" or"):
        host.engine.start("Go.", run_id="r", on_disconnect=wrong)
    with pytest.raises(ConfigError, match=r"^on_disconnect: .* got 'ignore'"):
        await host.engine.run("Go.", run_id="r", on_disconnect=wrong)
    with pytest.raises(ConfigError, match=r"^on_disconnect:"):
        await host.engine.resume("r", on_disconnect=wrong)
    assert host.runtime.journal.runs() == []


# --- resumed with a handle ---


@tool(effect="destructive")
async def wipe() -> str:
    """Wipe."""
    return "wiped"


async def suspended() -> tuple[Runtime, MemoryJournal]:
    """A run that was cut off after its first reply."""
    journal = MemoryJournal()
    host = Host(journal)
    host.held.go.set()
    await host.engine.run("Go.", run_id="r")
    cut = crashed(journal.read("r"), 6)
    return Runtime(
        ScriptedProvider(["done"]), tools=Host().held.tools(), journal=cut
    ), cut


async def resume_by_engine(runtime: Runtime) -> RunHandle[Entry | Delta, Any]:
    return await ReActEngine(runtime).resume("r", deltas=True)


async def resume_by_runtime(runtime: Runtime) -> RunHandle[Entry | Delta, Any]:
    return await runtime.resume("r", deltas=True)


@pytest.mark.parametrize("resume", [resume_by_engine, resume_by_runtime])
async def test_a_resumed_run_is_watched_word_by_word(resume: Any) -> None:
    runtime, journal = await suspended()
    before = len(journal.read("r"))
    async with await resume(runtime) as run:
        items = [item async for item in run]
        result = await run.result()

    assert result.answer == "done"
    entries = [item for item in items if isinstance(item, Entry)]
    assert entries == journal.read("r")[before:]
    assert entries[0].kind == "run_resumed"
    texts = [item.text for item in items if isinstance(item, Delta)]
    assert "".join(texts) == "done"


async def test_a_run_of_an_agent_is_resumed_with_a_handle() -> None:
    script = [call("wipe"), "wiped it"]
    runtime = Runtime(ScriptedProvider(script), tools=[wipe], approver=Suspend())
    agent = runtime.agent("cleaner", instructions="You clean.")
    waiting = await agent.run("Wipe.", run_id="r")
    await runtime.control("r").approve(waiting.pending[0].key)
    async with await agent.resume("r", deltas=True) as run:
        words = [item.text async for item in run if isinstance(item, Delta)]
        result = await run.result()

    assert ("".join(words), result.status) == ("wiped it", "completed")


async def test_a_handle_of_a_run_that_has_ended_gives_its_result() -> None:
    host = Host()
    host.held.go.set()
    first = await host.engine.run("Go.", run_id="r")
    async with await host.engine.resume("r", deltas=True) as run:
        items = [item async for item in run]
        result = await run.result()
        with pytest.raises(ConfigError, match="has ended"):
            await run.steer("Be quick.")

    assert (items, result) == ([], first)
    assert host.runtime.journal.read("r")[-1].hash == first.head_hash


async def test_a_resumed_run_is_at_work_once_there_is_a_handle() -> None:
    host = Host()
    async with host.engine.start("Go.", run_id="r") as run:
        await host.held.reached.wait()
        await run.suspend()
    handle = await host.runtime.resume("r", deltas=True)
    with pytest.raises(RunBusy):
        await host.runtime.resume("r")
    host.held.go.set()

    assert (await handle.result()).answer == "done"


async def test_the_task_of_a_run_shows_where_its_engine_is() -> None:
    host = Host()
    async with host.engine.start("Go.", run_id="r") as run:
        await host.held.reached.wait()
        works = [task.get_coro() for task in asyncio.all_tasks()]
        run_work: Any = next(one for one in works if "Execution.run" in get_name(one))
        awaited = run_work.cr_await
        host.held.go.set()
        assert (await run.result()).answer == "done"

    assert "_finish_solving" in awaited.__qualname__


def get_name(work: Any) -> str:
    return str(getattr(work, "__qualname__", ""))


@pytest.mark.parametrize("begin", ["started", "resumed"])
async def test_a_run_stopped_before_its_first_step_is_left_for_others(
    begin: str,
) -> None:
    runtime, journal = await suspended()
    if begin == "started":
        runtime = Runtime(
            ScriptedProvider(["done"]), journal=(journal := MemoryJournal())
        )
        run: Any = ReActEngine(runtime).start("Go.", run_id="r")
    else:
        run = await resume_by_engine(runtime)
    await run.suspend()
    info = journal.runs()[0]

    assert (info.status, info.owner) == ("suspended", None)
    assert journal.read("r")[-1].kind == "run_suspended"
    assert (await runtime.resume("r")).answer == "done"


async def test_a_resumed_run_whose_watcher_goes_away_does_what_was_chosen() -> None:
    for chosen, status in (("abort", "aborted"), ("continue", "completed")):
        journal = MemoryJournal()
        host = Host(journal)
        async with host.engine.start("Go.", run_id="r") as run:
            await host.held.reached.wait()
            await run.suspend()
        options: Any = {"on_disconnect": chosen}
        async with await host.runtime.resume("r", deltas=True, **options) as run:
            pass
        host.held.go.set()
        await host.runtime.drain()

        assert host.status == status
