"""Rewriting a file: other processes that read it delay it, and what they keep is named in the end."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journal_entries import header, write
from loopwright.errors import JournalError, KnowledgeError
from loopwright.journals import SQLiteJournal
from loopwright.knowledge import Remembered, SQLiteKnowledge
from loopwright.storage import rewrite as rewrite_module

SECRET = b"Ada-Lovelace-1815"


@contextlib.contextmanager
def reader(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """Another program that reads one state of a file, so that its log keeps it."""
    with contextlib.closing(
        sqlite3.connect(path, check_same_thread=False)
    ) as connection:
        connection.execute("BEGIN")
        connection.execute(f"SELECT * FROM {table}").fetchall()
        yield connection


def release_at_second_attempt(
    connection: sqlite3.Connection,
) -> Callable[[object, object], bool]:
    """Return the attempt of a rewriting, whose second time finds that the reader has gone."""
    attempt, seen = rewrite_module.Rewrite.attempt, threading.Event()

    def attempt_and_release(
        rewrite: rewrite_module.Rewrite, writing: rewrite_module.WritingConnection
    ) -> bool:
        if seen.is_set():
            connection.rollback()
        is_complete = attempt(rewrite, writing)
        seen.set()
        return is_complete

    return attempt_and_release  # type: ignore[return-value]


def files_with_the_secret(folder: Path) -> list[str]:
    return [
        file.name for file in sorted(folder.iterdir()) if SECRET in file.read_bytes()
    ]


async def journal_with_a_command(path: Path) -> SQLiteJournal:
    journal = SQLiteJournal(path, busy_timeout=0.05)
    await write(journal, journal.create(header("r1")), b"{}", status="completed")
    journal.send("r1", "steer", {"text": SECRET.decode()})
    return journal


async def test_a_deletion_waits_for_a_reader_of_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = await journal_with_a_command(tmp_path / "runs.db")
    with reader(tmp_path / "runs.db.inbox", "commands") as connection:
        monkeypatch.setattr(
            rewrite_module.Rewrite, "attempt", release_at_second_attempt(connection)
        )
        await journal.delete("r1")

        assert files_with_the_secret(tmp_path) == []
    await journal.close()


async def test_a_deletion_says_that_a_reader_keeps_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite_module, "PATIENCE", 0.1)
    journal = await journal_with_a_command(tmp_path / "runs.db")
    with (
        reader(tmp_path / "runs.db.inbox", "commands"),
        pytest.raises(
            JournalError,
            match=r"runs\.db\.inbox.*the commands are deleted, but another process keeps old pages",
        ),
    ):
        await journal.delete("r1")

    assert journal.runs() == []
    await journal.close()


async def test_forgetting_waits_for_a_reader_and_says_what_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db", busy_timeout=0.05)
    for key in ("1", "2"):
        item = Remembered(f"{SECRET.decode()} {key}", "fact", scope=key)
        await store.store(item, key=key)
    with reader(tmp_path / "k.db", "items") as connection:
        with monkeypatch.context() as patch:
            patch.setattr(rewrite_module, "PATIENCE", 0.1)
            with pytest.raises(KnowledgeError, match="the items are forgotten, but"):
                await store.forget(scope="1")
        monkeypatch.setattr(
            rewrite_module.Rewrite, "attempt", release_at_second_attempt(connection)
        )
        await store.forget(scope="2")

        assert files_with_the_secret(tmp_path) == []
    await store.close()
