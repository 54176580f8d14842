"""The durable journal: the contract, what it keeps through kills, full disks and locks, and the changes it finds."""

# ruff: noqa: ASYNC240 - the files of a test are small, and its event loop has nothing else to do

import asyncio
import contextlib
import dataclasses
import errno
import fcntl
import gc
import os
import random
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import journal_child
from forked_processes import PIPE, Forked, fork
from journal_contract import HypothesisContract
from journal_entries import ME, follow, header, write
from loopwright import Runtime
from loopwright.agents import Thread
from loopwright.clock import SystemClock
from loopwright.errors import ConfigError, Fenced, JournalError, UnknownRun
from loopwright.events.entry import Entry
from loopwright.journals import Claim, Journal, NewRun, RunInfo, chain_hash
from loopwright.journals.sqlite.file import JournalFile
from loopwright.journals.sqlite.jobs import (
    MAX_INLINE_BYTES,
    Append,
    SQLiteClaim,
)
from loopwright.journals.sqlite.journal import MAX_QUEUED, SQLiteJournal
from loopwright.journals.sqlite.writer import Writer
from loopwright.storage import lock
from loopwright.testing import DurableJournalContract, ScriptedProvider
from users import another_user

CHILD = Path(journal_child.__file__)
TABLES_1 = {
    "runs": "run_id engine options version status owner fence lease_until head_seq head_hash parent_run fork_seq "
    "created",
    "events": "id run_id seq key kind at v fence body hash",
    "blobs": "sha256 bytes",
}
TABLES = {
    **TABLES_1,
    "runs": f"{TABLES_1['runs']} wake_at app_version tags thread agent lease_seconds lease_beat boot_id follows",
    "run_tags": "id run_id name value",
    "tombstones": "name_hash head_hash deleted_by deleted_at",
    "facts": "name value",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SQLiteJournal]:
    journal = SQLiteJournal(path, busy_timeout=0.2, retry_timeout=0.2)
    yield journal
    await journal.close()


class TestSQLiteJournal(DurableJournalContract, HypothesisContract):
    def journal(self, folder: Path) -> Journal:
        return SQLiteJournal(folder / "runs.db")


class TestSQLiteJournalWithoutAFlushEachTime(
    DurableJournalContract, HypothesisContract
):
    def journal(self, folder: Path) -> Journal:
        return SQLiteJournal(folder / "runs.db", synchronous="NORMAL")


def child(*arguments: object, **streams: int) -> Forked:
    """Another process that does what child.py calls by the first argument; `-X dev` shows what it leaves open."""
    return fork(
        CHILD, *arguments, options=("-X", "dev", "-W", "error"), stdout=PIPE, **streams
    )


def acknowledged(lines: list[str]) -> dict[str, int]:
    """The last number that each run was told to be durable; a line cut off by a kill says nothing."""
    told: dict[str, int] = {}
    for line in lines:
        if line.endswith("\n") and not line.startswith("error"):
            run_id, seq = line.split()
            told[run_id] = int(seq)
    return told


@contextlib.contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """What another process does for the time of a transaction."""
    with open(f"{path}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def change(path: Path, *statements: str) -> None:
    """Change a closed journal behind its back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# Durable means durable


@pytest.mark.faults
async def test_no_acknowledged_entry_is_lost_when_the_process_is_killed_at_any_moment(
    path: Path,
) -> None:
    chance, lost, kept = random.Random(20), [], 0
    for _ in range(10):
        writer = child("several", path, 100_000, "a", "b", "c")
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(chance.randrange(1, 90))]
        writer.kill()
        lines += writer.stdout.readlines()
        writer.stdout.close()
        writer.wait()

        journal = SQLiteJournal(path)
        for run_id, seq in acknowledged(lines).items():
            kept = len(journal.read(run_id))
            lost += [(run_id, seq, kept)] if kept < seq else []
            assert journal.verify(run_id).ok

    assert lost == []
    assert kept > 20


@pytest.mark.faults
async def test_two_processes_and_this_one_write_different_runs_into_one_file(
    path: Path,
) -> None:
    writers = [child("several", path, 60, name, name + "2") for name in ("a", "b")]
    journal = SQLiteJournal(path)
    claim = journal.create(header("mine"))
    for _ in range(60):
        await write(journal, claim, b"1", b"2")
    told = [
        acknowledged(writer.communicate(timeout=60)[0].splitlines(keepends=True))
        for writer in writers
    ]

    assert told == [{"a": 120, "a2": 120}, {"b": 120, "b2": 120}]
    assert [len(journal.read(run_id)) for run_id in ("mine", "a", "a2", "b", "b2")] == [
        120
    ] * 5
    assert all(journal.verify(info.run_id).ok for info in journal.runs())
    await journal.close()


async def test_a_full_disk_loses_nothing_acknowledged_and_says_so(path: Path) -> None:
    writer = child("fill", path, 300_000)
    lines = writer.communicate(timeout=60)[0].splitlines(keepends=True)

    errors = [line for line in lines if line.startswith("error")]
    assert len(errors) == 2
    assert all(str(path) in line and "disk" in line for line in errors)
    journal = SQLiteJournal(path)
    assert len(journal.read("full")) >= acknowledged(lines)["full"] > 10
    assert journal.verify("full").ok
    with pytest.raises(UnknownRun):
        journal.read("after")


async def test_a_process_that_ends_without_closing_ends_quietly(path: Path) -> None:
    writer = child("several", path, 3, "a")
    lines = writer.communicate(timeout=60)[0].splitlines(keepends=True)

    assert (writer.returncode, acknowledged(lines)) == (0, {"a": 6})
    assert len(SQLiteJournal(path).read("a")) == 6


async def test_a_log_cut_short_leaves_a_valid_beginning_and_the_kept_head_tells(
    journal: SQLiteJournal, path: Path, tmp_path: Path
) -> None:
    claim = journal.create(header())
    for _ in range(8):
        await write(journal, claim, b"x" * 500)
    whole = Path(f"{path}-wal").read_bytes()
    seen: set[int] = set()
    for number, size in enumerate(range(0, len(whole) + 1, 1999)):
        copy = tmp_path / f"copy-{number}.db"
        shutil.copy(path, copy)
        Path(f"{copy}-wal").write_bytes(whole[:size])
        cut = SQLiteJournal(copy)
        if not cut.runs():
            continue
        found = cut.verify("r1", claim.head_hash)
        assert cut.verify("r1").ok
        assert found.ok == (found.entries == 8)
        seen.add(found.entries)

    assert len(seen) > 4


# Errors say what to do


async def test_a_journal_that_another_program_holds_is_an_error_after_the_timeout(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(
                JournalError, match=r"locked.*longer retry_timeout"
            ) as caught:
                await write(journal, claim, b"2")
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)

    with pytest.raises(JournalError, match="locked"):
        await journal.barrier(claim)
    assert journal.read("r1") == entries
    await write(journal, await journal.claim("r1", ME), b"goes on")


async def test_a_lock_that_another_process_never_gives_back_is_an_error_after_the_timeout(
    journal: SQLiteJournal, path: Path
) -> None:
    with (
        held_lock(path),
        pytest.raises(JournalError, match=r"runs\.db\.lock.*another process"),
    ):
        await write(journal, journal.create(header()), b"1")

    await write(journal, journal.create(header()), b"1")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
async def test_a_file_system_without_locks_is_named_with_its_cure(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(lock, "_flock", refuse)
    journal = SQLiteJournal(path)
    with pytest.raises(JournalError, match="put the file on a local disk"):
        await write(journal, journal.create(header()), b"1")


async def test_a_read_only_journal_can_be_read_and_says_that_it_cannot_be_written() -> (
    None
):
    folder = Path(
        tempfile.mkdtemp()
    )  # it can be opened to others, while tmp_path lies in a private folder
    try:
        path = folder / "runs.db"
        journal = SQLiteJournal(path)
        await write(journal, journal.create(header()), b"1")
        await journal.close()
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        lines = child("as_nobody", path).communicate(timeout=60)[0].splitlines()
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)

    assert "run_id='r1'" in lines[0]
    assert lines[1].startswith("error")
    assert str(path) in lines[1]
    assert "writable" in lines[1]


@pytest.mark.parametrize(
    "leave", [0o555, 0o755], ids=["read-only", "writable for its owner"]
)
async def test_a_folder_that_this_user_cannot_write_into_does_not_hide_the_journal(
    leave: int,
) -> None:
    folder = Path(
        tempfile.mkdtemp()
    )  # it can be opened to others, while tmp_path lies in a private folder
    try:
        journal = SQLiteJournal(folder / "runs.db")
        entries = await write(journal, journal.create(header()), b"1")
        await journal.close()
        (folder / "runs.db").chmod(0o444)
        folder.chmod(leave)
        with another_user():
            assert SQLiteJournal(folder / "runs.db").read("r1") == entries
        assert sorted(file.name for file in folder.iterdir()) == [
            "runs.db",
            "runs.db.lock",
        ]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def test_a_disk_where_sqlite_can_keep_no_log_is_refused_in_words(
    path: Path,
) -> None:
    class OnAnotherDisk(JournalFile):
        """A file on a disk where processes can share no memory, as on a network."""

        def _connect(self, mode: str) -> sqlite3.Connection:
            return sqlite3.connect(
                f"{self.path.as_uri()}?mode={mode}&vfs=unix-none",
                uri=True,
                isolation_level=None,
            )

    with (
        pytest.raises(
            JournalError,
            match=r"runs\.db.*no write-ahead log possible here: use a local disk",
        ),
        OnAnotherDisk(path, "FULL", 1.0).writing(),
    ):
        pass


async def test_a_file_whose_making_broke_off_is_empty_for_who_only_reads(
    journal: SQLiteJournal, path: Path
) -> None:
    """A kill in the middle of the first transaction leaves a file and what is to be undone of it beside it."""
    making = path.with_name("making.db")
    with contextlib.closing(
        sqlite3.connect(making, isolation_level=None)
    ) as connection:
        connection.execute(
            "PRAGMA cache_size = 1"
        )  # so that pages of the transaction go to the file before its end
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE runs (body BLOB)")
        for _ in range(50):
            connection.execute("INSERT INTO runs VALUES (zeroblob(10000))")
        shutil.copy(making, path)
        shutil.copy(f"{making}-journal", f"{path}-journal")

    assert path.stat().st_size > 0
    assert journal.runs() == []
    assert not Path(f"{path}-journal").exists()
    await write(journal, journal.create(header()), b"1")
    assert [info.run_id for info in journal.runs()] == ["r1"]


def read_unknown(journal: SQLiteJournal) -> None:
    """Read a run that is not there."""
    journal.read("another")


def verify_unknown(journal: SQLiteJournal) -> None:
    """Verify a run that is not there."""
    journal.verify("another")


def send_to_unknown(journal: SQLiteJournal) -> None:
    """Send a command to a run that is not there."""
    journal.send("another", "steer", {})


@pytest.mark.parametrize("has_tables", [False, True], ids=["empty", "copied"])
@pytest.mark.parametrize("use", [read_unknown, verify_unknown, send_to_unknown])
async def test_a_reader_that_finds_no_run_lets_a_writer_begin(
    use: Callable[[SQLiteJournal], None],
    has_tables: bool,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer that gives a file its write-ahead log waits for readers, and while it waits no other may begin."""
    if has_tables:  # as in a copy, which has no write-ahead log
        original = SQLiteJournal(path.with_name("original.db"))
        await write(original, original.create(header()), b"1")
        await original.backup(path)
        await original.close()
    else:
        path.touch(0o600)
    journal = SQLiteJournal(path, busy_timeout=0.2)
    began: list[str] = []

    def begin_to_write(file: JournalFile, run_id: str) -> UnknownRun:
        with file.writing():
            began.append(run_id)
        return UnknownRun(run_id)

    name = "loopwright.journals.sqlite.journal.build_unknown_run"
    monkeypatch.setattr(name, begin_to_write)

    with pytest.raises(UnknownRun):
        use(journal)

    assert began == ["another"]


async def test_an_export_of_no_run_lets_a_writer_begin(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch(0o600)
    journal = SQLiteJournal(path, busy_timeout=0.2)

    def begin_to_write(file: JournalFile, run_id: str) -> UnknownRun:
        with file.writing():
            return UnknownRun(run_id)

    name = "loopwright.journals.sqlite.upkeep.build_unknown_run"
    monkeypatch.setattr(name, begin_to_write)

    with pytest.raises(UnknownRun):
        await journal.export(path.with_name("exported"), ["another"])


async def test_a_file_that_is_no_database_is_left_alone(
    journal: SQLiteJournal, path: Path
) -> None:
    path.write_text("dear diary" * 500)

    with pytest.raises(JournalError, match=r"runs\.db.*not a SQLite database"):
        await write(journal, journal.create(header()), b"1")
    with pytest.raises(JournalError, match="not a SQLite database"):
        journal.runs()
    assert path.read_text() == "dear diary" * 500


async def test_a_database_of_another_program_is_left_alone(
    journal: SQLiteJournal, path: Path
) -> None:
    change(path, "CREATE TABLE contacts (name TEXT)")
    before = path.read_bytes()

    with pytest.raises(JournalError, match="another program"):
        await write(journal, journal.create(header()), b"1")
    with pytest.raises(JournalError, match="another program"):
        journal.runs()
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_asks_for_an_upgrade(path: Path) -> None:
    first = SQLiteJournal(path)
    await write(first, first.create(header()), b"1")
    await first.close()
    change(path, "PRAGMA user_version = 3")

    journal = SQLiteJournal(path)
    with pytest.raises(JournalError, match=r"format 3.*upgrade"):
        await journal.claim("r1", ME, take_over=True)
    with pytest.raises(JournalError, match=r"format 3.*upgrade"):
        journal.read("r1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "MemoryJournal"),
        (":memory:", "MemoryJournal"),
        (".", "is a directory"),
        ("missing/runs.db", "create it first"),
        ("runs\0.db", "cannot be used"),
        ("pipe", "not an ordinary file"),
    ],
)
def test_a_path_where_no_file_can_be_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")

    with pytest.raises(ConfigError, match=message):
        SQLiteJournal(name)


@pytest.mark.parametrize(
    "options",
    [
        {"synchronous": "OFF"},
        {"busy_timeout": 0},
        {"busy_timeout": -1},
        {"busy_timeout": float("nan")},
        {"retry_timeout": -1},
    ],
)
def test_a_wrong_option_is_named(path: Path, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        SQLiteJournal(path, **options)  # type: ignore[arg-type]


@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="/proc is a directory in which no file can be created",
)
async def test_a_folder_where_no_file_can_be_made_is_an_error_at_first_use() -> None:
    journal = SQLiteJournal("/proc/loopwright-runs.db")

    with pytest.raises(JournalError, match="loopwright-runs"):
        await write(journal, journal.create(header()), b"1")
    assert journal.runs() == []


# One run's trouble is its own


async def test_a_value_that_cannot_be_stored_fails_its_own_run_only(
    journal: SQLiteJournal, path: Path
) -> None:
    good, bad = journal.create(header("good")), journal.create(header("bad"))
    await write(journal, good, b"1")
    bad.fence = 2**63  # no column holds it
    with held_lock(path):  # so that both wait for the same transaction
        waiting = [
            asyncio.create_task(write(journal, claim, b"2")) for claim in (good, bad)
        ]
        await asyncio.sleep(0.02)
    ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert isinstance(ends[1], JournalError)
    assert [(info.run_id, info.head_seq) for info in journal.runs()] == [("good", 2)]


async def test_entries_that_do_not_follow_the_head_are_refused_before_they_are_written(
    journal: SQLiteJournal,
) -> None:
    claim = journal.create(header())
    entries = follow(claim, b"1", b"2", b"3")
    journal.append(claim, entries[:1])

    with pytest.raises(JournalError, match="entry 2 must follow, got 3"):
        journal.append(claim, entries[2:])


async def test_a_run_whose_head_was_moved_behind_the_worker_stops_it(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    await write(journal, claim, b"1")
    change(path, "UPDATE runs SET head_seq = 7")

    with pytest.raises(Fenced, match="7 entries where this worker left 1"):
        await write(journal, claim, b"2")


@pytest.mark.parametrize(
    "another", [False, True], ids=["removed", "another in its place"]
)
async def test_nothing_is_written_into_a_file_that_nobody_finds(
    journal: SQLiteJournal, path: Path, another: bool
) -> None:
    claim = journal.create(header())
    await write(journal, claim, b"1")
    away = path.rename(path.with_name("away.db"))
    if another:
        path.touch()

    with pytest.raises(JournalError, match=r"runs\.db.*was removed or replaced"):
        await write(journal, claim, b"2")
    path.unlink(missing_ok=True)
    away.rename(path)
    assert [entry.body for entry in journal.read("r1")] == [b"1"]


async def test_a_run_that_was_removed_stops_its_worker(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    await write(journal, claim, b"1")
    change(path, "DELETE FROM runs")

    with pytest.raises(Fenced, match="gone"):
        await write(journal, claim, b"2")


async def test_nothing_is_kept_after_a_refused_entry_and_the_first_error_is_raised(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    kept = await write(journal, claim, b"1")
    with held_lock(path):  # so that both wait for the same transaction
        journal.append(
            claim, follow(claim, *[b"{}"] * MAX_QUEUED, at=2**63)
        )  # no column holds it
        journal.append(claim, follow(claim, b"last"))
        waiting = asyncio.create_task(journal.barrier(claim))
        await asyncio.sleep(0.02)

    with pytest.raises(JournalError, match="too large") as raised:
        await waiting
    assert not isinstance(raised.value, Fenced)
    assert journal.read("r1") == kept


async def test_a_run_that_the_journal_does_not_hold_cannot_be_claimed(
    journal: SQLiteJournal,
) -> None:
    await write(journal, journal.create(header()), b"1")

    with pytest.raises(UnknownRun, match="no run 'nowhere'"):
        await journal.claim("nowhere", ME)


async def test_a_claim_of_another_journal_is_refused(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    foreign = SQLiteJournal(tmp_path / "other.db").create(header())

    with pytest.raises(JournalError, match="another journal"):
        journal.append(foreign, follow(foreign, b"1"))
    with pytest.raises(JournalError, match="another journal"):
        await journal.barrier(foreign)


async def test_a_second_run_of_the_same_name_never_writes_into_the_first(
    journal: SQLiteJournal,
) -> None:
    first, second = journal.create(header()), journal.create(header())
    await write(journal, first, b"1")
    journal.append(second, follow(second, b"a"))
    with pytest.raises(ConfigError, match="exists already"):
        await journal.barrier(second)
    with pytest.raises(ConfigError, match="exists already"):
        journal.append(second, follow(second, b"b"))

    assert [entry.body for entry in journal.read("r1")] == [b"1"]


async def test_an_owner_that_nobody_can_read_needs_a_take_over(
    journal: SQLiteJournal,
) -> None:
    await write(journal, journal.create(header(owner="somebody")), b"1")

    with pytest.raises(JournalError, match=r"'somebody'.*take_over"):
        await journal.claim("r1", ME)
    assert (await journal.claim("r1", ME, take_over=True)).fence == 2


# Loops, threads and the end


async def test_one_journal_serves_event_loops_in_several_threads(
    journal: SQLiteJournal,
) -> None:
    async def run(name: str) -> None:
        claim = journal.create(header(name))
        for _ in range(50):
            await write(journal, claim, b"1", b"2")

    threads = [
        threading.Thread(target=lambda name=name: asyncio.run(run(name)))
        for name in "abc"
    ]
    for thread in threads:
        thread.start()
    await run("mine")
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])

    assert {info.run_id: info.head_seq for info in journal.runs()} == dict.fromkeys(
        ["a", "b", "c", "mine"], 100
    )


async def test_a_cancelled_barrier_leaves_the_journal_at_work(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: problems.append(context)
    )
    with held_lock(path):
        waiting = asyncio.create_task(write(journal, claim, b"1"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await write(journal, claim, b"2")

    assert [entry.body for entry in journal.read("r1")] == [b"1", b"2"]
    assert problems == []


def test_an_event_loop_that_is_gone_when_its_barrier_comes_affects_no_other(
    path: Path,
) -> None:
    journal = SQLiteJournal(path)
    claim = journal.create(header())

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write(journal, claim, b"1"), 0.01)

    with held_lock(path):
        asyncio.run(give_up())

    async def go_on() -> None:
        await write(journal, claim, b"2")
        await journal.close()

    asyncio.run(go_on())
    assert len(journal.read("r1")) == 2


async def test_closing_keeps_what_was_handed_over_and_leaves_one_file(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    journal.append(claim, follow(claim, b"1"), status="suspended")
    await journal.close()

    assert sorted(file.name for file in path.parent.iterdir()) == [
        "runs.db",
        "runs.db.lock",
    ]
    assert [(info.head_seq, info.status) for info in journal.runs()] == [
        (1, "suspended")
    ]


async def test_a_closed_journal_reads_and_refuses_to_write(
    journal: SQLiteJournal,
) -> None:
    claim = journal.create(header())
    entries = await write(journal, claim, b"1")
    await journal.close()
    await journal.close()

    for use in (
        write(journal, claim, b"2"),
        journal.barrier(claim),
        journal.claim("r1", ME),
    ):
        with pytest.raises(JournalError, match="is closed"):
            await use
    assert journal.read("r1") == entries


def awaited_append(name: str) -> Append:
    """Return a job that creates a run, and that a task waits for."""
    job = Append(SQLiteClaim(name, 1, header=header(name)))
    job.waiter = asyncio.get_running_loop().create_future()
    return job


async def test_what_comes_after_the_end_is_refused_and_not_left_waiting(
    path: Path,
) -> None:
    writer = Writer(JournalFile(path, "FULL", 1.0), SystemClock(), 30.0)
    first, late = map(awaited_append, ("first", "late"))
    with held_lock(path):
        writer.submit(first)
        await asyncio.sleep(0.02)
        writer.end()
        writer.submit(late)
    for job in (first, late):
        assert job.waiter is not None
        await job.waiter

    assert first.failure is None
    assert isinstance(late.failure, JournalError)
    with pytest.raises(JournalError, match="is closed"):
        writer.submit(late)


async def test_an_end_that_is_asked_for_twice_is_one_end(path: Path) -> None:
    """By a closing and a finalizer, say."""
    writer = Writer(JournalFile(path, "FULL", 1.0), SystemClock(), 30.0)
    first, late = map(awaited_append, ("first", "late"))
    with held_lock(path):
        writer.submit(first)
        await asyncio.sleep(0.02)
        writer.end()
        writer.end()
        writer.submit(late)
    for job in (first, late):
        assert job.waiter is not None
        await job.waiter

    assert (first.failure, str(late.failure)) == (
        None,
        str(writer.build_closed_error()),
    )


async def test_closing_says_what_could_not_be_kept(journal: SQLiteJournal) -> None:
    old = journal.create(header())
    await write(journal, old, b"1")
    await journal.claim("r1", ME, take_over=True)
    journal.append(old, follow(old, b"2"))

    with pytest.raises(Fenced):
        await journal.close()


async def test_a_journal_that_nobody_uses_opens_and_makes_nothing(
    journal: SQLiteJournal, path: Path
) -> None:
    before = set(threading.enumerate())
    journal.create(header())
    with pytest.raises(UnknownRun, match=r"runs\.db"):
        await journal.claim("r1", ME)
    assert journal.runs() == []
    await journal.close()

    assert set(threading.enumerate()) <= before  # one of an earlier test may end
    assert list(path.parent.iterdir()) == []


async def test_a_forgotten_journal_lets_its_thread_end(path: Path) -> None:
    journal = SQLiteJournal(path)
    before = set(threading.enumerate())
    await write(journal, journal.create(header()), b"1")
    (thread,) = set(threading.enumerate()) - before
    del journal
    gc.collect()
    await asyncio.to_thread(thread.join, 60)

    assert not thread.is_alive()
    assert len(SQLiteJournal(path).read("r1")) == 1


# The file


async def test_the_files_are_private_whatever_the_umask(
    journal: SQLiteJournal, path: Path
) -> None:
    before = os.umask(0)
    try:
        await write(journal, journal.create(header()), b"1")
        journal.runs()
    finally:
        os.umask(before)

    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()
    }
    assert modes == dict.fromkeys(
        ["runs.db", "runs.db-wal", "runs.db-shm", "runs.db.lock"], 0o600
    )


async def test_the_tables_have_the_documented_columns(
    journal: SQLiteJournal, path: Path
) -> None:
    await write(journal, journal.create(header()), b"1")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for (table,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        kept_free = connection.execute(
            "SELECT lease_until, fork_seq FROM runs"
        ).fetchall()

    assert found == {table: columns.split() for table, columns in TABLES.items()}
    assert kept_free == [(None, None)]


def make_format_1(path: Path) -> Entry:
    """Write a file as the first release did, with one run, and return its entry."""
    (entry,) = follow(Claim("r1", 1), b'{"a":1}')
    change(
        path,
        *(
            f"CREATE TABLE {table} ({columns.replace(' ', ', ')})"
            for table, columns in TABLES_1.items()
        ),
        "CREATE UNIQUE INDEX one_of_a_name ON runs (run_id)",
        f"INSERT INTO runs VALUES ('r1','react','{{}}','1','suspended',NULL,1,NULL,1,'{entry.hash}',NULL,NULL,5.5)",
        f"INSERT INTO events VALUES (1,'r1',1,'0','fact_noted',1.5,1,1,CAST('{{\"a\":1}}' AS BLOB),'{entry.hash}')",
        f"PRAGMA application_id = {0x4C6F7057}",
        "PRAGMA user_version = 1",
    )
    return entry


async def test_a_file_of_format_1_is_read_for_ever(
    journal: SQLiteJournal, path: Path
) -> None:
    entry = make_format_1(path)
    before = path.read_bytes()

    assert journal.read("r1") == [entry]
    assert journal.verify("r1").ok
    assert journal.runs() == [
        RunInfo("r1", "react", "{}", "1", "suspended", None, 1, 1, entry.hash, 5.5)
    ]
    assert path.read_bytes() == before


async def test_a_file_of_format_1_is_migrated_by_the_first_write(
    journal: SQLiteJournal, path: Path
) -> None:
    entry = make_format_1(path)
    claim = await journal.claim("r1", ME)
    more = await write(journal, claim, b"2")
    new = dataclasses.replace(header("r2"), tags={"user": "42"}, thread="t")
    await write(journal, journal.create(new), b"1")

    assert journal.read("r1") == [entry, *more]
    assert journal.verify("r1").ok
    assert [(info.tags, info.thread) for info in journal.runs()] == [
        ({"user": "42"}, "t"),
        ({}, ""),
    ]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        columns = connection.execute("PRAGMA table_info(runs)").fetchall()
    assert [row[1] for row in columns] == TABLES["runs"].split()


async def test_bodies_above_the_limit_are_kept_once_and_beside_the_entries(
    journal: SQLiteJournal, path: Path
) -> None:
    bodies = [
        b"a" * MAX_INLINE_BYTES,
        b"b" * (MAX_INLINE_BYTES + 1),
        b"c",
        b"b" * (MAX_INLINE_BYTES + 1),
        b"sha256:" + b"0" * 64,
    ]
    claim = journal.create(header())
    await write(journal, claim, *bodies)

    assert [entry.body for entry in journal.read("r1")] == bodies
    assert journal.verify("r1").ok
    with contextlib.closing(sqlite3.connect(path)) as connection:
        kinds = [
            kind
            for (kind,) in connection.execute(
                "SELECT typeof(body) FROM events ORDER BY seq"
            )
        ]
        assert kinds == ["blob", "text", "blob", "text", "blob"]
        assert connection.execute(
            "SELECT count(*), sum(length(bytes)) FROM blobs"
        ).fetchone() == (1, MAX_INLINE_BYTES + 1)


# Whatever is changed is found

FORGED = "UPDATE events SET {} WHERE run_id = 'r1' AND seq = 2"


@pytest.mark.parametrize(
    "statement",
    [
        *map(
            FORGED.format,
            [
                "run_id = 'r2'", "run_id = 'r0'", "run_id = CAST(run_id AS BLOB)", "seq = 9", "seq = -1", "seq = 'two'",
                "seq = 2.5", "key = key || ' '", "key = CAST(key AS BLOB)", "key = CAST(x'ff' AS TEXT)", "kind = ''",
                "kind = x'00'", "at = at + 1", "at = 'now'", "at = CAST(at AS TEXT)", "v = 2", "v = 'one'", "fence = 2",
                "fence = x''", "body = x''", "body = CAST(body AS TEXT)", "body = 'sha256:'", "body = 7",
                "hash = upper(hash)", "hash = ''", "hash = 1",
            ],
        ),
        "DELETE FROM events WHERE run_id = 'r1' AND seq = 2",
        "DELETE FROM events WHERE run_id = 'r1' AND seq = 4",
        "DELETE FROM events WHERE run_id = 'r1'",
        "UPDATE events SET seq = CASE seq WHEN 2 THEN -3 WHEN 3 THEN -2 END WHERE run_id = 'r1' AND seq IN (2, 3)",
        "INSERT INTO events SELECT 99, run_id, 5, key, kind, at, v, fence, body, hash FROM events WHERE id = 4",
        "UPDATE runs SET head_seq = head_seq - 1 WHERE run_id = 'r1'",
        "UPDATE runs SET head_seq = 'four' WHERE run_id = 'r1'",
        "UPDATE runs SET head_hash = '' WHERE run_id = 'r1'",
        "UPDATE runs SET head_hash = x'00' WHERE run_id = 'r1'",
        "UPDATE runs SET fence = 'x', status = x'00' WHERE run_id = 'r1'",
        "DELETE FROM runs WHERE run_id = 'r1'",
        "DELETE FROM blobs",
        "UPDATE blobs SET bytes = x'00'",
        "UPDATE blobs SET bytes = 'text'",
        "UPDATE blobs SET sha256 = 'x'",
    ],
)  # fmt: skip
async def test_verify_finds(journal: SQLiteJournal, path: Path, statement: str) -> None:
    claim = journal.create(header())
    await write(journal, claim, b"1", b"2", b"3" * (MAX_INLINE_BYTES + 1), b"4")
    other = journal.create(header("r2"))
    await write(journal, other, b"1")
    await journal.close()
    assert journal.verify("r1", claim.head_hash).ok

    change(path, statement, "UPDATE events SET seq = -seq WHERE seq < -1")

    found = journal.verify("r1")
    assert not found.ok
    assert found.problem
    if "r2" not in statement:
        assert journal.verify("r2", other.head_hash).ok


@pytest.mark.parametrize(
    ("statement", "problem", "seq"),
    [
        ("UPDATE events SET key = 'x' WHERE seq = 1", "entry 1 was changed", 1),
        ("UPDATE events SET v = 'x' WHERE seq = 2", "entry 2 cannot be read", 2),
        ("DELETE FROM blobs", "entry 3 cannot be read", 3),
        (
            "UPDATE events SET v = 'x', key = 'x' WHERE seq IN (2, 3)",
            "entry 2 cannot be read",
            2,
        ),
        (
            "UPDATE events SET key = iif(seq = 1, 'x', x'00') WHERE seq < 3",
            "entry 1 was changed",
            1,
        ),
        (
            "DELETE FROM events WHERE seq = 3",
            "the run should have 3 entries, found 2",
            2,
        ),
    ],
)
async def test_verify_names_the_first_entry_that_is_wrong(
    journal: SQLiteJournal, path: Path, statement: str, problem: str, seq: int
) -> None:
    await write(
        journal, journal.create(header()), b"1", b"2", b"3" * (MAX_INLINE_BYTES + 1)
    )
    await journal.close()
    change(path, statement)

    found = journal.verify("r1")
    assert (found.problem[: len(problem)], found.seq) == (problem, seq)


@pytest.mark.parametrize("kind", ["run_started", "run_moved"])
async def test_what_a_newer_version_says_of_a_run_is_not_held_against_it(
    journal: SQLiteJournal, kind: str
) -> None:
    claim = journal.create(header())
    journal.append(
        claim, follow(claim, b'{"engine": {"of": "a later kind"}}', key="", kind=kind)
    )
    await journal.barrier(claim)

    assert journal.verify("r1", claim.head_hash).ok


@pytest.mark.faults
async def test_a_run_that_is_written_just_now_verifies(journal: SQLiteJournal) -> None:
    claim = journal.create(header())
    await write(journal, claim, b"{}")
    ended = threading.Event()

    def look() -> list[str]:
        problems: list[str] = []
        while not ended.is_set():
            problems.append(journal.verify("r1").problem)
        return problems

    looking = asyncio.create_task(asyncio.to_thread(look))
    for _ in range(300):
        await write(journal, claim, b"{}")
    ended.set()

    assert set(await looking) == {""}


async def test_a_tail_cut_off_with_its_head_is_found_by_the_head_that_the_caller_kept(
    journal: SQLiteJournal, path: Path
) -> None:
    claim = journal.create(header())
    entries = await write(journal, claim, b"1", b"2", b"3")
    await journal.close()
    change(
        path,
        "DELETE FROM events WHERE seq = 3",
        f"UPDATE runs SET head_seq = 2, head_hash = '{entries[1].hash}'",
    )

    assert journal.verify("r1").ok
    assert not journal.verify("r1", claim.head_hash).ok


async def test_reading_a_damaged_entry_is_a_journal_error(
    journal: SQLiteJournal, path: Path
) -> None:
    await write(journal, journal.create(header()), b"1", b"2" * (MAX_INLINE_BYTES + 1))
    await journal.close()
    change(path, "DELETE FROM blobs")

    with pytest.raises(JournalError, match="entry 2 cannot be read"):
        journal.read("r1")


async def test_a_journal_without_its_entries_is_a_journal_error(
    journal: SQLiteJournal, path: Path
) -> None:
    await write(journal, journal.create(header()), b"1")
    await journal.close()
    change(path, "DROP TABLE events")

    for look in (journal.read, journal.verify):
        with pytest.raises(JournalError, match=r"runs\.db.*no such table: events"):
            look("r1")


@pytest.mark.faults
async def test_a_flipped_bit_anywhere_in_the_file_never_gives_a_wrong_entry(
    path: Path, tmp_path: Path
) -> None:
    journal = SQLiteJournal(path)
    claim = journal.create(header())
    entries = await write(
        journal, claim, *(b"%d" % number * 90 for number in range(240))
    )
    await journal.close()
    whole, chance, copy = path.read_bytes(), random.Random(7), tmp_path / "copy.db"
    found = 0
    for _ in range(400):
        place, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        copy.write_bytes(
            whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
        )
        damaged = SQLiteJournal(copy)
        try:
            verified = damaged.verify("r1", claim.head_hash)
        except (JournalError, UnknownRun):
            found += 1
            continue
        found += not verified.ok
        if verified.ok:
            assert damaged.read("r1") == entries

    assert found > 100


async def test_the_hash_of_an_entry_covers_the_whole_body_though_it_is_kept_elsewhere(
    journal: SQLiteJournal,
) -> None:
    claim = journal.create(header())
    (entry,) = await write(journal, claim, b"x" * (MAX_INLINE_BYTES + 1))

    assert chain_hash("", journal.read("r1")[0]) == entry.hash


async def test_an_end_whose_follow_up_cannot_be_stored_is_not_stored_either(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    claim = journal.create(header())
    await write(journal, claim, b"1")
    first, second = follow(Claim("due", 1), b"1", b"2")
    again = dataclasses.replace(second, seq=1)  # the same place twice
    due = NewRun(header("due"), (first, again))

    journal.append_end(claim, follow(claim, b"end"), status="completed", due=[due])
    with pytest.raises(JournalError, match="UNIQUE"):
        await journal.barrier(claim)

    assert [(info.run_id, info.status) for info in journal.runs()] == [
        ("r1", "running")
    ]
    assert len(journal.read("r1")) == 1
    await journal.close()


async def test_reads_together_use_one_connection_and_those_after_see_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened, connect = tmp_path / "runs.db", list[str](), sqlite3.connect

    def count(name: str, **options: Any) -> sqlite3.Connection:
        opened.append(name)
        return connect(name, **options)

    def build() -> Thread[None]:
        model = ScriptedProvider(lambda asked: f"Heard {asked.conversation.task}")
        runtime = Runtime(model, journal=SQLiteJournal(path))
        return runtime.agent("desk").thread("ada")

    for number in range(8):
        await build().run(str(number))
    monkeypatch.setattr(sqlite3, "connect", count)
    history = await build().history()
    few = len(opened)
    journal = SQLiteJournal(path)
    with journal.reading_together():
        before = journal.runs()
        with pytest.raises(UnknownRun):
            journal.read("none")
        await build().run("8")
        assert journal.runs() == before
    with SQLiteJournal(tmp_path / "none.db").reading_together():
        assert journal.runs() != before

    assert [one.content for one in history][-2:] == ["7", "Heard 7"]
    assert len(history) == 16
    assert few < 8
    assert len(journal.runs()) == 9


async def test_reads_together_say_what_is_wrong_with_the_file_and_nothing_of_their_caller(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await write(journal, journal.create(header("r1")), b"1")

    def read_none() -> None:
        with journal.reading_together():
            assert len(journal.read("r1")) == 1
            int("none")

    with pytest.raises(ValueError, match="invalid literal"):
        read_none()
    await journal.close()
    with contextlib.closing(sqlite3.connect(journal.path)) as connection:
        connection.execute("ALTER TABLE events RENAME TO gone")
    reader = SQLiteJournal(journal.path)
    with reader.reading_together():
        with pytest.raises(JournalError, match="no such table"):
            reader.read("r1")
        assert [info.run_id for info in reader.runs()] == ["r1"]
