"""A journal over an asynchronous driver: the contract, which event loop awaits it, and what is refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from async_journal import DelayedJournal
from loopwright import ConfigError, MemoryJournal, ReActEngine, Runtime, Worker
from loopwright.journals import Journal
from loopwright.journals.access import consult
from loopwright.testing import AsyncJournalContract, JournalContract, ScriptedProvider


class TestDelayedJournal(AsyncJournalContract):
    def journal(self, folder: Path) -> Journal:
        return DelayedJournal()


def test_the_contract_of_any_journal_is_part_of_that_of_asynchronous_ones() -> None:
    assert issubclass(AsyncJournalContract, JournalContract)


def build(*lines: str, journal: Journal) -> Runtime:
    return Runtime(ScriptedProvider(list(lines)), journal=journal, lease=30.0)


async def test_threads_metrics_and_workers_read_in_the_loop_of_the_caller() -> None:
    journal = DelayedJournal()
    runtime = build("One.", "Two.", "Three.", journal=journal)
    agent = runtime.agent("helper")
    thread = agent.thread("t")
    for text in ("Begin.", "Go on."):
        await thread.run(text)
    fresh = build("Three.", journal=journal)
    third = await fresh.agent("helper").thread("t").run("Once more.")

    assert len(third.conversation) == 6
    assert [info.turns for info in await runtime.threads()] == [3]
    assert (await runtime.metrics()).total == 3
    assert await Worker(runtime).drain() == []
    assert set(journal.loops) == {asyncio.get_running_loop()}


async def test_a_function_in_a_thread_reads_in_the_loop_that_waits_for_it() -> None:
    journal = DelayedJournal()
    await ReActEngine(build("Yes.", journal=journal)).run("Go.", run_id="r")
    journal.loops.clear()
    entries = await consult(journal.read, "r")

    assert entries[-1].kind == "run_finished"
    assert journal.loops == [asyncio.get_running_loop()]


def test_a_script_reads_it_by_plain_functions() -> None:
    journal = DelayedJournal()
    ReActEngine(build("Yes.", journal=journal)).run_sync("Go.", run_id="r")

    assert [info.run_id for info in journal.runs()] == ["r"]
    assert journal.verify("r").ok
    assert journal.inbox("r") == []


async def test_a_plain_read_inside_an_event_loop_does_not_block_for_ever() -> None:
    journal = DelayedJournal()
    await ReActEngine(build("Yes.", journal=journal)).run("Go.", run_id="r")

    assert journal.read("r")[-1].kind == "run_finished"


def test_a_plain_read_in_the_loop_of_synchronous_callers_returns() -> None:
    journal = DelayedJournal()
    runtime = build("Yes.", journal=journal)
    seen: list[int] = []
    watched = Runtime(
        runtime.provider,
        journal=journal,
        observers=[lambda entry: seen.append(len(journal.runs()))],
    )
    ReActEngine(watched).run_sync("Go.", run_id="r")

    assert seen[-1] == 1


# --- what is refused, and what works as before ---


class Coroutine(MemoryJournal):
    async def read(self, run_id: str) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - what is refused
        return super().read(run_id)


class Half(DelayedJournal):
    store_command = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - what is refused


class Plain:
    """A journal of the port without its extensions, made for an earlier version."""

    def __init__(self) -> None:
        self._inner = MemoryJournal()
        for name in (
            "create", "claim", "renew", "append", "barrier", "read", "runs", "verify", "send", "inbox",
            "inbox_mark", "close",
        ):  # fmt: skip
            setattr(self, name, getattr(self._inner, name))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Coroutine, r"journal: Coroutine\.read is a coroutine function.*AsyncJournal"),
        (Half, "journal: Half awaits some of its reads and lacks store_command"),
    ],
    ids=["coroutine", "half"],
)
def test_a_journal_that_mixes_plain_functions_and_coroutines_is_refused(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build("Yes.", journal=make())


async def test_a_journal_without_any_extension_works_as_before() -> None:
    plain: Any = Plain()
    runtime = build("Yes.", "Again.", journal=plain)
    result = await ReActEngine(runtime).run("Go.", run_id="r")
    fork = await ReActEngine(runtime).fork("r", at=1)
    again = await runtime.resume(fork)

    assert (result.answer, again.answer) == ("Yes.", "Again.")
    assert len(await runtime.runs()) == 2
    assert await Worker(runtime).drain() == []
