"""The inbox of the SQLite journal: a file of its own, private, recognised, and independent of the journal's writer."""

# ruff: noqa: ASYNC230, ASYNC240 - the files of a test are small, and its event loop has nothing else to do

import contextlib
import fcntl
import os
import re
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog.testing

from journal_entries import header, write
from loopwright.errors import JournalError, UnknownRun
from loopwright.journals import Command, SQLiteJournal
from loopwright.testing import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SQLiteJournal]:
    journal = SQLiteJournal(path, busy_timeout=0.2, clock=FakeClock())
    await write(journal, journal.create(header()), b"{}")
    yield journal
    await journal.close()


def change(path: Path, statement: str) -> None:
    """Change the inbox behind the journal's back."""
    with contextlib.closing(
        sqlite3.connect(f"{path}.inbox", isolation_level=None)
    ) as connection:
        connection.execute(statement)


def names(path: Path) -> list[str]:
    """The files of the inbox."""
    return sorted(file.name for file in path.parent.iterdir() if ".inbox" in file.name)


async def test_nothing_is_made_before_the_first_command(
    journal: SQLiteJournal, path: Path
) -> None:
    assert journal.inbox("r1") == []
    with pytest.raises(UnknownRun, match=r"nowhere.*runs\.db"):
        journal.send("nowhere", "steer", {})

    assert names(path) == []


async def test_it_tells_to_which_runs_something_was_sent_since_it_was_asked(
    journal: SQLiteJournal, path: Path
) -> None:
    await write(journal, journal.create(header("r2")), b"{}")
    assert journal.inbox_news(0) == (0, frozenset())

    journal.send("r1", "steer", {})
    journal.send("r2", "steer", {})
    assert journal.inbox_news(0) == (2, {"r1", "r2"})
    assert journal.inbox_news(1) == (2, {"r2"})
    assert journal.inbox_news(2) == (2, frozenset())
    assert journal.inbox_news(-1) == (
        2,
        frozenset(),
    )  # how far they go, and nothing else

    for file in names(path):  # another inbox lies there now
        (path.parent / file).unlink()
    journal.send("r2", "steer", {})
    assert journal.inbox_news(2) == (1, {"r2"})


async def test_the_inbox_is_private_whatever_the_umask(
    journal: SQLiteJournal, path: Path
) -> None:
    before = os.umask(0)
    try:
        journal.send("r1", "steer", {})
        journal.inbox("r1")
    finally:
        os.umask(before)

    assert {"runs.db.inbox", "runs.db.inbox.lock"} <= set(names(path))
    assert {
        stat.S_IMODE((path.parent / name).stat().st_mode) for name in names(path)
    } == {0o600}


async def test_a_command_has_the_journals_time(journal: SQLiteJournal) -> None:
    journal.send("r1", "steer", {"text": "left"})

    assert journal.inbox("r1") == [
        Command(1, "r1", 1_700_000_000.0, "steer", {"text": "left"})
    ]


async def test_who_sends_does_not_wait_for_a_journal_that_is_held(
    journal: SQLiteJournal, path: Path
) -> None:
    with (
        open(f"{path}.lock", "a") as lock,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection.execute("BEGIN EXCLUSIVE")

        assert [journal.send("r1", "steer", {}) for _ in range(3)] == [1, 2, 3]
        assert len(journal.inbox("r1")) == 3


async def test_the_journal_does_not_wait_for_an_inbox_that_is_held(
    journal: SQLiteJournal, path: Path
) -> None:
    journal.send("r1", "steer", {})
    with open(f"{path}.inbox.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await write(journal, journal.create(header("r2")), b"{}")
        with pytest.raises(
            JournalError, match=r"runs\.db\.inbox\.lock.*another process.*busy_timeout"
        ):
            journal.send("r1", "steer", {})

        assert len(journal.inbox("r1")) == 1
    assert journal.send("r1", "steer", {}) == 2


async def test_a_closed_journal_reads_its_inbox_and_sends_nothing(
    journal: SQLiteJournal,
) -> None:
    journal.send("r1", "steer", {})
    await journal.close()

    with pytest.raises(JournalError, match="is closed"):
        journal.send("r1", "steer", {})
    assert len(journal.inbox("r1")) == 1


async def test_an_inbox_needs_no_writer_thread(
    path: Path, journal: SQLiteJournal
) -> None:
    before = set(threading.enumerate())
    sender = SQLiteJournal(path)
    sender.send("r1", "steer", {})

    assert len(sender.inbox("r1")) == 1
    assert set(threading.enumerate()) <= before  # one of an earlier test may end


@pytest.mark.parametrize(
    ("change_of_2", "message"),
    [
        ("body = x'5b5d'", "not a JSON object"),
        ("body = x'7b'", "EOF"),
        ("body = x'7b2265223a496e66696e6974797d'", "expected value"),
        ("body = '{}'", "a column"),
        ("body = x'7b7d'", "it does not follow"),
        ("kind = 'pause'", "it does not follow"),
        ("kind = x'ff'", "a column"),
        ("at = 'now'", "a column"),
        ("at = 1", "it does not follow"),
    ],
)
async def test_a_changed_command_is_returned_with_its_damage_and_hides_no_other(
    journal: SQLiteJournal, path: Path, change_of_2: str, message: str
) -> None:
    for text in ("left", "right"):
        journal.send("r1", "steer", {"text": text})
    change(path, f"UPDATE commands SET {change_of_2} WHERE number = 2")
    journal.send("r1", "stop", {})

    before, changed, after = journal.inbox("r1")
    assert before == Command(1, "r1", 1_700_000_000.0, "steer", {"text": "left"})
    assert changed == Command(2, "r1", 0.0, "damaged", {}, changed.damage)
    assert re.search(rf"^command 2 was changed: .*{message}", changed.damage)
    assert after == Command(3, "r1", 1_700_000_000.0, "stop", {})
    assert journal.inbox("r1", 1) == [changed, after]


@pytest.mark.parametrize(
    ("statement", "damaged"),
    [
        ("DELETE FROM commands WHERE number = 1", [(2, True), (3, False)]),
        (
            "UPDATE commands SET number = 9 WHERE number = 3",
            [(1, False), (2, False), (9, True)],
        ),
        (
            "UPDATE commands SET hash = 'x' WHERE number = 1",
            [(1, True), (2, True), (3, False)],
        ),
        ("UPDATE commands SET run_id = 'r2' WHERE number = 2", [(1, False), (3, True)]),
    ],
)
async def test_a_command_that_follows_what_is_not_there_is_damaged(
    journal: SQLiteJournal, path: Path, statement: str, damaged: list[tuple[int, bool]]
) -> None:
    for _ in range(3):
        journal.send("r1", "steer", {})
    change(path, statement)

    assert [
        (command.number, bool(command.damage)) for command in journal.inbox("r1")
    ] == damaged


@pytest.mark.parametrize("number", ["'z'", "1.5", "0", "-3", "x'01'"])
async def test_a_command_without_a_number_is_left_out_and_said_once(
    journal: SQLiteJournal, path: Path, number: str
) -> None:
    journal.send("r1", "steer", {})
    columns = "number, run_id, at, kind, body, hash"
    change(
        path,
        f"INSERT INTO commands ({columns}) VALUES ({number}, 'r1', 1.0, 'stop', x'7b7d', '')",
    )
    assert journal.send("r1", "pause", {}) == 2

    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            assert [
                (command.kind, command.damage) for command in journal.inbox("r1")
            ] == [("steer", ""), ("pause", "")]
    assert [(line["event"], line["run_id"], line["commands"]) for line in logs] == [
        ("command_without_number", "r1", 1)
    ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA application_id = 7", "another program"),
        ("PRAGMA user_version = 2", r"format 2.*upgrade"),
        ("DROP TABLE commands", "no such table"),
    ],
)
async def test_a_file_that_is_no_inbox_of_this_version_is_a_journal_error(
    journal: SQLiteJournal, path: Path, statement: str, message: str
) -> None:
    journal.send("r1", "steer", {})
    change(path, statement)

    with pytest.raises(JournalError, match=rf"runs\.db\.inbox.*{message}"):
        journal.inbox("r1")


async def test_a_third_party_file_that_replaces_it_is_left_alone(
    journal: SQLiteJournal, path: Path
) -> None:
    inbox = Path(f"{path}.inbox")
    inbox.write_text("dear diary" * 500)

    for use in (lambda: journal.send("r1", "steer", {}), lambda: journal.inbox("r1")):
        with pytest.raises(
            JournalError, match=r"runs\.db\.inbox.*not a SQLite database"
        ):
            use()
    assert inbox.read_text() == "dear diary" * 500


async def test_a_directory_that_replaces_it_is_an_error(
    journal: SQLiteJournal, path: Path
) -> None:
    Path(f"{path}.inbox").mkdir()

    for use in (lambda: journal.send("r1", "steer", {}), lambda: journal.inbox("r1")):
        with pytest.raises(JournalError, match=r"runs\.db\.inbox"):
            use()
