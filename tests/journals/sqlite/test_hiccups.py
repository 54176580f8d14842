"""A file that is held for a moment, or a connection that is lost: nothing is lost or made twice, and runs continue."""

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cut_connection import CutJournal, Moment
from journal_entries import ME, follow, header, write
from loopwright import ReActEngine, Runtime
from loopwright.errors import ConfigError, Fenced, JournalError
from loopwright.journals import Journal, SQLiteJournal
from loopwright.journals.sqlite import writer as writer_module
from loopwright.testing import ConnectedJournalContract, ScriptedProvider

pytestmark = pytest.mark.faults

MOMENTS: tuple[Moment, ...] = ("before", "after")
RETRY_SECONDS = 30.0
"""How long a write is tried again where a journal says nothing else."""


class TestJournalThatLosesItsConnection(ConnectedJournalContract):
    def journal(self, folder: Path) -> Journal:
        return CutJournal(folder / "runs.db")

    def lose_connection(self, journal: Journal, moment: Moment) -> None:
        assert isinstance(journal, CutJournal)
        journal.cuts.append(moment)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@contextlib.contextmanager
def held_file(path: Path) -> Iterator[None]:
    """What a program does that wants the file for itself."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """What a process does that hangs in a transaction."""
    with open(f"{path}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def hold(
    held: Callable[[Path], contextlib.AbstractContextManager[None]],
    path: Path,
    seconds: float,
    *,
    until: threading.Event | None = None,
) -> threading.Thread:
    """Hold a file for some seconds from now on, or until something has happened."""
    is_held = threading.Event()

    def work() -> None:
        with held(path):
            is_held.set()
            (until or threading.Event()).wait(seconds)

    thread = threading.Thread(target=work)
    thread.start()
    is_held.wait()
    return thread


@pytest.mark.parametrize("held", [held_file, held_lock])
async def test_a_file_that_is_held_longer_than_an_attempt_waits_delays_a_write(
    path: Path, held: Callable[[Path], contextlib.AbstractContextManager[None]]
) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1)
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    began = time.monotonic()
    holder = hold(held, path, 0.8)
    entries += await write(journal, claim, b"2", status="suspended")

    assert time.monotonic() - began >= 0.8
    assert journal.read("r1") == entries
    assert (await journal.claim("r1", ME)).fence == 2
    holder.join()
    await journal.close()


@pytest.mark.parametrize("held", [held_file, held_lock])
async def test_a_write_fails_when_its_time_is_over(
    path: Path, held: Callable[[Path], contextlib.AbstractContextManager[None]]
) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1, retry_timeout=0.5)
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    with held(path):
        began = time.monotonic()
        with pytest.raises(JournalError, match=r"tried for .* longer retry_timeout"):
            await write(journal, claim, b"2")
        took = time.monotonic() - began
        assert 0.5 <= took < RETRY_SECONDS / 2

    with pytest.raises(JournalError, match="tried for"):
        await journal.barrier(claim)
    assert journal.read("r1") == entries
    await journal.close()


async def test_no_attempt_is_repeated_without_time_for_it(path: Path) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1, retry_timeout=0)
    with held_lock(path):
        began = time.monotonic()
        with pytest.raises(JournalError, match="tried for"):
            await write(journal, journal.create(header()), b"1")
    assert time.monotonic() - began < RETRY_SECONDS / 2
    await journal.close()


async def test_attempts_end_with_the_lease_and_then_the_owner_is_fenced(
    path: Path,
) -> None:
    journal = SQLiteJournal(path, busy_timeout=60.0, retry_timeout=60.0)
    began, is_fenced = time.monotonic(), threading.Event()
    free, held = (
        journal.create(dataclasses.replace(header(run_id), lease=lease))
        for run_id, lease in (("free", None), ("held", 0.6))
    )
    for claim in (free, held):
        await write(journal, claim, b"1")
    holder = hold(held_lock, path, 60.0, until=is_fenced)
    both = asyncio.gather(
        write(journal, free, b"2"), write(journal, held, b"2"), return_exceptions=True
    )
    with pytest.raises(Fenced, match="until the lease was over"):
        await write(journal, held)
    fenced_after = time.monotonic() - began
    assert not is_fenced.is_set()
    assert holder.is_alive(), "the file is still held"
    is_fenced.set()
    written, fenced = await both

    assert 0.6 <= fenced_after < 30
    assert isinstance(fenced, Fenced)
    assert [entry.body for entry in written] == [b"2"]
    assert [len(journal.read(run_id)) for run_id in ("free", "held")] == [2, 1]
    holder.join()
    await journal.close()


async def test_a_renewed_lease_gives_attempts_more_time(path: Path) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1)
    claim = journal.create(dataclasses.replace(header(), lease=0.3))
    await write(journal, claim, b"1")
    await journal.renew(claim, 60.0)
    holder = hold(held_lock, path, 0.8)

    await write(journal, claim, b"2")
    assert len(journal.read("r1")) == 2
    holder.join()
    await journal.close()


async def test_a_permanent_error_is_final_at_once(path: Path) -> None:
    journal = SQLiteJournal(path)
    claim = journal.create(header())
    await write(journal, claim, b"1")
    os.replace(path, path.with_name("elsewhere.db"))
    began = time.monotonic()
    with pytest.raises(JournalError, match="was removed or replaced"):
        await write(journal, claim, b"2")

    assert time.monotonic() - began < RETRY_SECONDS / 2
    await journal.close()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_file_that_was_replaced_is_not_connected_to_again(
    path: Path, moment: Moment
) -> None:
    journal = CutJournal(path)
    claim = journal.create(header())
    await write(journal, claim, b"1")
    another = SQLiteJournal(path.with_name("another.db"))
    await write(another, another.create(header()), b"1")
    await another.close()

    with pytest.MonkeyPatch.context() as patch:
        keep = writer_module.Writer._keep

        def replace_and_keep(
            writer: writer_module.Writer, *arguments: object
        ) -> object:
            os.replace(another.path, path)
            return keep(writer, *arguments)  # type: ignore[arg-type]

        patch.setattr(writer_module.Writer, "_keep", replace_and_keep)
        journal.cuts.append(moment)
        with pytest.raises(JournalError, match="was removed or replaced"):
            await write(journal, claim, b"2")

    assert len(SQLiteJournal(path).read("r1")) == 1
    await journal.close()


async def test_an_owner_that_lost_the_run_between_two_attempts_is_fenced(
    path: Path,
) -> None:
    journal, beside = CutJournal(path), SQLiteJournal(path)
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    is_lost, goes_on = threading.Event(), threading.Event()
    keep = writer_module.Writer._keep

    def keep_later(writer: writer_module.Writer, *arguments: object) -> object:
        is_lost.set()
        goes_on.wait()
        return keep(writer, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module.Writer, "_keep", keep_later)
        journal.cuts.append("after")
        entries += follow(claim, b"2")
        journal.append(claim, entries[1:])
        written = asyncio.ensure_future(journal.barrier(claim))
        assert await asyncio.to_thread(is_lost.wait, 10)
        await beside.claim("r1", ME, take_over=True)
        goes_on.set()
        with pytest.raises(Fenced):
            await written

    assert beside.read("r1") == entries
    await journal.close()
    await beside.close()


async def test_a_release_that_was_durable_is_known_after_another_claimed_the_run(
    path: Path,
) -> None:
    journal, beside = CutJournal(path), SQLiteJournal(path)
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    is_lost, goes_on = threading.Event(), threading.Event()
    keep = writer_module.Writer._keep

    def keep_later(writer: writer_module.Writer, *arguments: object) -> object:
        is_lost.set()
        goes_on.wait()
        return keep(writer, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module.Writer, "_keep", keep_later)
        journal.cuts.append("after")
        entries += follow(claim, b"2")
        journal.append(claim, entries[1:], status="suspended")
        written = asyncio.ensure_future(journal.barrier(claim))
        assert await asyncio.to_thread(is_lost.wait, 10)
        other = await beside.claim("r1", ME)
        entries += await write(beside, other, b"3")
        goes_on.set()
        await written

    assert beside.read("r1") == entries
    assert beside.verify("r1").ok
    await journal.close()
    await beside.close()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_upkeep_is_done_once(path: Path, tmp_path: Path, moment: Moment) -> None:
    journal = CutJournal(path)
    for run_id in ("r1", "r2", "r3"):
        await write(journal, journal.create(header(run_id)), b"{}", status="completed")
    await journal.export(tmp_path / "runs.jsonl", ["r1", "r2"])
    journal.cuts.append(moment)
    assert await journal.delete("r3") == ["r3"]
    journal.cuts.append(moment)
    new = await journal.new_id()
    await journal.close()
    copy = CutJournal(tmp_path / "copy.db")
    copy.cuts.append(moment)

    assert await copy.import_(tmp_path / "runs.jsonl") == ["r1", "r2"]
    assert [info.run_id for info in copy.runs()] == ["r2", "r1"]
    assert all(copy.verify(run_id).ok for run_id in ("r1", "r2"))
    assert [info.run_id for info in SQLiteJournal(path).runs()] == ["r2", "r1"]
    assert SQLiteJournal(path).id == new
    await copy.close()


async def test_closing_waits_for_what_is_tried_again(path: Path) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1)
    claim = journal.create(header())
    await write(journal, claim, b"1")
    holder = hold(held_lock, path, 0.6)
    journal.append(claim, follow(claim, b"2"))
    await journal.close()

    assert len(journal.read("r1")) == 2
    holder.join()


@pytest.mark.parametrize("seconds", [-1, float("nan"), 86_401])
def test_a_retry_timeout_that_cannot_be_is_named(path: Path, seconds: float) -> None:
    with pytest.raises(ConfigError, match="retry_timeout"):
        SQLiteJournal(path, retry_timeout=seconds)


class UnforeseenLease(float):
    """A lease that fails in the writer thread, which no check has foreseen."""

    def __radd__(self, other: float) -> float:
        """Fail where the end of the lease is worked out."""
        raise TypeError("not supported between wall clock and lease")


async def test_an_unforeseen_failure_is_that_of_its_job_alone(
    path: Path,
) -> None:
    journal = SQLiteJournal(path)
    claim = journal.create(header())
    await write(journal, claim, b"1", status="suspended")
    fails = asyncio.ensure_future(journal.claim("r1", ME, lease=UnforeseenLease(5)))
    others = [
        asyncio.ensure_future(write(journal, journal.create(header(f"o{n}")), b"1"))
        for n in range(5)
    ]

    with pytest.raises(JournalError, match="not supported between"):
        await asyncio.wait_for(fails, 10)
    assert [len(entries) for entries in await asyncio.gather(*others)] == [1] * 5
    assert (await journal.claim("r1", ME)).fence == 2
    await journal.close()


async def test_a_journal_that_could_get_no_thread_works_once_it_can(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "loopwright-journal":
            raise RuntimeError("can't start new thread")
        start(thread)

    engine = ReActEngine(
        Runtime(ScriptedProvider(["done"]), journal=SQLiteJournal(path))
    )
    async with asyncio.timeout(30):
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            refused = await engine.run("Go.", run_id="r")
        result = await engine.run("Go.", run_id="r")

    assert (refused.status, refused.stop_reason) == ("failed", "journal_error")
    assert "can't start new thread" in str(refused.error)
    assert result.answer == "done"
