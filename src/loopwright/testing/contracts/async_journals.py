"""AsyncJournalContract: what a journal guarantees whose reads are coroutines."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ...engines.react import ReActEngine
from ...errors import UnknownRun
from ...events.control import CommandReceived
from ...gates.base import Suspend
from ...journals.access import AwaitableReads, find_reads
from ...journals.base import Journal
from ...journals.capabilities import list_page
from ...journals.listing import RunFilter
from ...runtime import Runtime
from ...tools.base import tool
from ..assertions import assert_equal, assert_true, expect_error
from ..scripted import ScriptedProvider, call
from .entries import header, with_journal, write
from .journals import JournalContract

T = TypeVar("T")


@tool(effect="destructive")
async def _remove(name: str) -> str:
    """Remove something."""
    return f"{name} is gone"


class _NoThreads(ThreadPoolExecutor):
    """Refuses to begin a thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Refuse it."""
        raise AssertionError(f"a thread was asked for, to call {fn} with {args}")


class AsyncJournalContract(JournalContract):
    """The additional guarantees of a journal with the coroutines of `AwaitableReads`.

    A durable one has `DurableJournalContract` as a second base.
    """

    @with_journal
    async def test_coroutines_return_what_the_plain_functions_do(
        self, journal: Journal
    ) -> None:
        """Entries, also after a number; runs, also of a filter; commands; and what is verified."""
        reads = _get_reads(journal)
        entries = await write(journal, journal.create(header()), b"1", b"2", b"3")
        await write(journal, journal.create(header("r2")), b"1", status="completed")
        number = await reads.store_command("r1", "steer", {"text": "hello"})
        second = await reads.store_command("r1", "steer", {"text": "again"})

        assert_true(second > number, "the numbers of commands do not grow")
        assert_equal(await reads.fetch_entries("r1"), entries, "the entries")
        found = await reads.fetch_entries("r1", after=2)
        assert_equal(found, entries[2:], "the entries after number 2")
        listed = await reads.fetch_runs()
        assert_equal(listed, journal.runs(), "all runs")
        unfinished = await reads.fetch_runs(unfinished=True)
        assert_equal(unfinished, journal.runs(unfinished=True), "the unfinished runs")
        ended = RunFilter(status="completed")
        page = list_page(journal, ended, 1)
        selected = await reads.fetch_runs(where=ended, limit=1)
        assert_equal(selected, page, "the runs of a filter")
        commands = await reads.fetch_commands("r1", number)
        assert_equal(commands, journal.inbox("r1", number), "the commands")
        head = entries[-1].hash
        assert_equal(
            await reads.verify_run("r1", head), journal.verify("r1", head), "the chain"
        )

    @with_journal
    async def test_coroutines_name_a_run_that_is_not_there(
        self, journal: Journal
    ) -> None:
        """Reading and sending raise `UnknownRun`; an inbox that is not there is empty."""
        reads = _get_reads(journal)
        with expect_error(UnknownRun, "reading a run that is not there"):
            await reads.fetch_entries("none")
        with expect_error(UnknownRun, "sending to a run that is not there"):
            await reads.store_command("none", "steer", {})
        assert_equal(await reads.fetch_commands("none"), [], "the inbox of no run")

    def test_a_run_needs_no_thread(self, tmp_path: Path) -> None:
        """One that waits for a person, is steered, approved, resumed, watched, listed and forked."""
        _run_without_threads(lambda: self._work(tmp_path))

    async def _work(self, folder: Path) -> None:
        journal = self.journal(folder)
        model = ScriptedProvider([call("_remove", name="a"), "Done.", "Forked."])
        runtime = Runtime(
            model, tools=[_remove], journal=journal, approver=Suspend(), lease=30.0
        )
        engine = ReActEngine(runtime)
        waiting = await engine.run("Remove a.", run_id="r")
        control = runtime.control("r")
        await control.steer("Be quick.")
        await control.approve(waiting.pending[0].key)
        result = await runtime.resume("r")

        assert_equal(waiting.status, "waiting", "the status before the approval")
        assert_equal((result.status, result.answer), ("completed", "Done."), "the end")
        entries = [entry async for entry in runtime.attach("r")]
        received = [one for one in entries if one.kind == CommandReceived.kind]
        assert_equal(len(received), 2, "commands received")
        fork = await engine.fork("r", at=len(entries) - 2)
        listed = [run.info.run_id for run in await runtime.runs()]
        assert_equal(listed, [fork, "r"], "the runs")
        await journal.close()


def _get_reads(journal: Journal) -> AwaitableReads:
    """Return the journal as one with coroutines."""
    reads = find_reads(journal)
    if reads is None:
        raise AssertionError("the journal has no fetch_entries")
    return reads


def _run_without_threads(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in an event loop that has no threads."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(_NoThreads())
        await work()

    asyncio.run(main())
