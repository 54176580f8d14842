"""Workers take the runs whose code they have, and release those that their code cannot replay."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from function_engine import FunctionEngine
from loopwright import MemoryJournal, Run, Runtime, Suspend, ToolCall, Worker, tool
from loopwright.errors import ConfigError
from loopwright.events import RunResumed, RunStarted, RunSuspended
from loopwright.events.lifecycle import find_diverged_versions, read_app_version
from loopwright.journals import Journal, SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from waiting import eventually

Body = Callable[[Run], Awaitable[object]]


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase."""
    return "gone"


async def old(run: Run) -> object:
    """Ask one, wait for a person, answer."""
    await run.ask("one")
    return (await run.call(ToolCall("erase", {"what": "x"}))).content


async def new(run: Run) -> object:
    """Ask something else, as the next release does."""
    await run.ask("uno")
    return (await run.call(ToolCall("erase", {"what": "x"}))).content


def runtime(journal: Journal, version: str, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(["a reply"] * 9), tools=[erase], journal=journal, approver=Suspend(),
        lease=30.0, app_version=version, **options,
    )  # fmt: skip


def engine(journal: Journal, version: str, body: Body = old) -> FunctionEngine:
    return FunctionEngine(runtime(journal, version), body=body)


def worker(
    journal: Journal,
    version: str,
    body: Body = old,
    accepts: tuple[str, ...] = (),
    **options: Any,
) -> Worker:
    services = runtime(journal, version, **options)
    code = FunctionEngine(services, body=body)
    return Worker(services, engines=[code], accepts=accepts, poll=0.01)


async def orphan(version: str) -> MemoryJournal:
    """Return a journal in which a run of a version lost its process after its first reply."""
    journal = MemoryJournal()
    await engine(journal, version).run("Go.", run_id="r")
    return crashed(journal.read("r"), 3, status="running")


def status(journal: Journal) -> str:
    [info] = journal.runs()
    return info.status


async def test_a_run_records_the_version_of_the_code_that_began_it() -> None:
    journal = MemoryJournal()
    await engine(journal, "1").run("Go.", run_id="r")
    later = engine(journal, "2")
    await runtime(journal, "2").control("r").deny("1#0", reason="no")
    await later.resume("r")
    entries = journal.read("r")

    assert read_app_version(entries) == "1"
    [started] = [e.event for e in entries if isinstance(e.event, RunStarted)]
    [resumed] = [e.event for e in entries if isinstance(e.event, RunResumed)]
    assert (started.app_version, resumed.app_version) == ("1", "2")


async def test_a_fork_has_the_version_of_its_maker() -> None:
    journal = await orphan("1")
    made_by_new = await engine(journal, "2").fork("r", at=3)
    made_by_none = await engine(journal, "").fork("r", at=3)

    assert read_app_version(journal.read(made_by_new)) == "2"
    assert read_app_version(journal.read(made_by_none)) == "1"


@pytest.mark.parametrize(
    ("of_run", "of_worker", "accepts", "takes"),
    [
        ("1", "1", (), True),
        ("1", "2", (), False),
        ("1", "2", ("1",), True),
        ("1", "2", ("0", "3"), False),
        ("1", "", (), True),
        ("", "2", (), False),
        ("", "2", ("",), True),
        ("", "", (), True),
    ],
)
async def test_a_worker_takes_runs_of_its_version_and_of_those_it_accepts(
    of_run: str, of_worker: str, accepts: tuple[str, ...], takes: bool
) -> None:
    journal = await orphan(of_run)
    results = await worker(journal, of_worker, accepts=accepts).drain()

    assert [result.status for result in results] == (["waiting"] if takes else [])
    assert len(journal.read("r")) > 3 if takes else len(journal.read("r")) == 3


async def test_a_run_that_diverged_is_taken_by_the_code_that_wrote_it() -> None:
    journal = await orphan("1")
    assert await worker(journal, "2", new, accepts=("1",)).drain() == []
    assert status(journal) == "released"
    assert [e.kind for e in journal.read("r")[3:]] == ["run_resumed", "run_suspended"]

    [result] = await worker(journal, "1").drain()
    assert result.status == "waiting"


async def test_a_run_that_diverged_is_not_taken_again_by_the_same_version() -> None:
    journal = await orphan("1")
    for _ in range(3):  # processes of the new version, one after the other
        await worker(journal, "2", new, accepts=("1",)).drain()

    assert len(journal.read("r")) == 3 + 2
    assert find_diverged_versions(journal.read("r")) == {"2"}
    assert status(journal) == "released"


async def test_a_worker_that_serves_on_tries_a_run_that_diverged_once() -> None:
    journal = await orphan("")
    clock = FakeClock()  # its process died, so it rests for a second first
    serving = asyncio.ensure_future(worker(journal, "", new, clock=clock).serve())
    await eventually(lambda: len(journal.read("r")) >= 3 + 2)
    looked = len(clock.slept)
    await eventually(lambda: len(clock.slept) >= looked + 1000)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert len(journal.read("r")) == 3 + 2


async def test_workers_without_a_version_try_a_run_that_diverges_five_times() -> None:
    journal = await orphan("")
    for _ in range(9):
        await worker(journal, "", new).drain()

    assert [e.kind for e in journal.read("r")[3:]] == [
        "run_resumed",
        "run_suspended",
    ] * 5
    assert (await engine(journal, "").resume("r")).status == "waiting"


async def test_a_message_to_a_run_of_another_version_waits_in_its_inbox() -> None:
    journal = await orphan("1")
    [waiting] = await worker(journal, "1").drain()
    [question] = waiting.pending
    before = len(journal.read("r"))
    await runtime(journal, "2").control("r").approve(question.id)

    assert await worker(journal, "2", new).drain() == []
    assert len(journal.read("r")) == before
    assert [command.kind for command in journal.inbox("r")] == ["approve"]
    [result] = await worker(journal, "1").drain()
    assert (result.status, result.answer) == ("completed", "gone")


async def test_a_released_run_that_diverged_verifies_in_a_file(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    first = engine(journal, "1")
    await first.run("Go.", run_id="r")
    await runtime(journal, "1").control("r").deny("1#0", reason="no")
    await worker(journal, "2", new, accepts=("1",)).drain()

    assert status(journal) == "released"
    assert journal.verify("r").ok
    last = journal.read("r")[-1].event
    assert isinstance(last, RunSuspended)
    assert (last.reason, last.released) == ("diverged", True)
    [result] = await worker(journal, "1").drain()
    assert result.status == "completed"
    await journal.close()


async def test_a_resume_by_hand_that_diverges_leaves_the_run_suspended() -> None:
    journal = await orphan("1")
    with pytest.raises(Exception, match="recorded: ask 'one'; now: ask 'uno'"):
        await engine(journal, "2", new).resume("r")

    assert status(journal) == "suspended"


@pytest.mark.parametrize("accepts", [7, None, [7], ["a b"], ["x" * 129]])
def test_versions_that_cannot_be_are_refused_by_name(accepts: Any) -> None:
    with pytest.raises(ConfigError, match=r"^accepts: must be"):
        Worker(runtime(MemoryJournal(), "1"), accepts=accepts)


@pytest.mark.parametrize("version", [7, None, "a b", "x" * 129, "ä"])
def test_a_version_that_cannot_be_is_refused_by_name(version: Any) -> None:
    with pytest.raises(ConfigError, match=r"^app_version: must be"):
        runtime(MemoryJournal(), version)


def test_accepts_needs_a_version_of_the_worker_itself() -> None:
    with pytest.raises(ConfigError, match="accepts: a worker without a version"):
        worker(MemoryJournal(), "", accepts=("1",))


@pytest.mark.parametrize("version", ["a b", "x" * 129, 3, "é"])
def test_a_version_is_a_short_printable_text(version: object) -> None:
    with pytest.raises(ConfigError, match="app_version: must be at most 128"):
        Runtime(ScriptedProvider([]), app_version=version)  # type: ignore[arg-type]
