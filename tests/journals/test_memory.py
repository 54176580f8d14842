"""The journal in memory: the contract, and what it forgets."""

import dataclasses
from pathlib import Path

import pytest

from journal_contract import HypothesisContract
from journal_entries import header, write
from loopwright.errors import ConfigError
from loopwright.journals import MemoryJournal, RunHeader


class TestMemoryJournal(HypothesisContract):
    def journal(self, folder: Path) -> MemoryJournal:
        return MemoryJournal()


async def test_the_oldest_finished_runs_are_forgotten_first() -> None:
    journal = MemoryJournal(keep_runs=2)
    for run_id in ("a", "b", "c"):
        await write(journal, journal.create(header(run_id)), b"{}", status="completed")

    assert [info.run_id for info in journal.runs()] == ["c", "b"]


@pytest.mark.parametrize("status", [None, "running", "suspended", "waiting"])
async def test_a_run_that_can_continue_is_never_forgotten(status: str | None) -> None:
    journal = MemoryJournal(keep_runs=2)
    entries = await write(
        journal, journal.create(header("live")), b"1", b"2", status=status
    )
    for run_id in ("a", "b"):
        await write(journal, journal.create(header(run_id)), b"{}", status="completed")

    assert journal.read("live") == entries


async def test_a_thread_whose_open_run_is_deleted_is_forgotten_in_its_turn() -> None:
    journal = MemoryJournal(keep_runs=2)
    for name in ("a", "b", "c"):
        ended = journal.create(header(name))
        await write(journal, ended, b"{}", status="completed")
        begun = dataclasses.replace(header(f"{name}2"), follows=name)
        await write(journal, journal.create(begun), b"{}", status="waiting")
    for name in ("a2", "b2", "c2"):
        assert await journal.delete(name) == [name]

    assert [info.run_id for info in journal.runs()] == ["c", "b"]


def test_room_for_no_run_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="keep_runs"):
        MemoryJournal(keep_runs=0)


async def test_what_is_read_is_a_copy() -> None:
    journal = MemoryJournal()
    entries = await write(journal, journal.create(header()), b"{}")
    journal.read("r1").clear()

    assert journal.read("r1") == entries


async def test_a_run_that_ends_twice_counts_once_when_runs_are_forgotten() -> None:
    journal = MemoryJournal(keep_runs=2)
    for name in ("a", "b"):
        journal.append(
            journal.create(RunHeader(name, "e", "{}", "1", "o", 1.0)),
            [],
            status="completed",
        )
    claim = await journal.claim("a", "elsewhere|1||me", take_over=True)
    journal.append(claim, [], status="completed")
    journal.append(
        journal.create(RunHeader("c", "e", "{}", "1", "o", 1.0)), [], status="completed"
    )

    assert [info.run_id for info in journal.runs()] == ["c", "b"]
