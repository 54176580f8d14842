"""The inbox of a SQLite journal: a second file beside it, into which any process may put commands at any time."""

import hashlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from ..._internal.log import logger
from ..base import Command, read_command_body
from .file import Format, JournalFile, beside

# As in the journal no column type for `at`. The file is never opened by a writer of the journal, so neither waits.
INBOX = Format(
    0x4C6F7049,  # "LopI"
    1,
    (
        """CREATE TABLE commands (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, at NOT NULL, kind TEXT NOT NULL,
            body BLOB NOT NULL, hash TEXT NOT NULL, UNIQUE (run_id, number))""",
    ),
)
# SQLite keeps a text or a fraction in the place of a number: no command has such a one.
_LAST = """SELECT number, hash FROM commands WHERE run_id = ? AND typeof(number) = 'integer' AND number > 0
           ORDER BY number DESC LIMIT 1"""
_INSERT = "INSERT INTO commands (number, run_id, at, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?)"
_LAST_OF_ALL = "SELECT coalesce(max(id), 0) FROM commands"
_TOLD = "SELECT DISTINCT run_id FROM commands WHERE id > ? AND id <= ?"
_COMMANDS = """SELECT number, run_id, at, kind, body, hash FROM commands
               WHERE run_id = ? AND typeof(number) = 'integer' AND number > 0 ORDER BY number"""
_OTHERS = "SELECT count(*) FROM commands WHERE run_id = ? AND (typeof(number) != 'integer' OR number < 1)"

COARSE = 100_000_000  # nanoseconds: two changes that are nearer to each other may leave a file with the same time


class Inbox:
    """Keeps commands in `<path>.inbox`, opened for each use: they are few, and their senders come and go."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._file = JournalFile(beside(path, ".inbox"), "FULL", busy_timeout, INBOX)
        self._told: set[str] = (
            set()
        )  # the runs of which it was said that a command has no number
        self._paths = (beside(path, ".inbox"), beside(path, ".inbox-wal"))

    def add(self, run_id: str, at: float, kind: str, body: bytes) -> int:
        """Keep a command and give its number; durable when this returns."""
        try:
            with self._file.writing() as connection, connection.transaction() as cursor:
                last, before = cursor.execute(_LAST, (run_id,)).fetchone() or (0, "")
                row = (last + 1, run_id, at, kind, body)
                cursor.execute(_INSERT, (*row, _hash(before, *row)))
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._file.explain(error) from error
        return row[0]

    def read(self, run_id: str, after: int) -> list[Command]:
        """The commands to a run with numbers above `after`, oldest first; what was changed is told in its place."""
        with self._file.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(_COMMANDS, (run_id,)).fetchall()
            (others,) = connection.execute(_OTHERS, (run_id,)).fetchone()
        if others and run_id not in self._told:
            self._told.add(run_id)
            logger().warning(
                "command_without_number",
                run_id=run_id,
                inbox=str(self._file.path),
                commands=others,
            )
        pairs = zip([(0, ""), *rows], rows, strict=False)
        return [
            self._command(before, row, run_id)
            for before, row in pairs
            if row[0] > after
        ]

    def news(self, after: int) -> tuple[int, frozenset[str]]:
        """The last command of all, and the runs to which any of those behind `after` were sent; none if below 0."""
        with self._file.reading() as connection:
            if connection is None:
                return 0, frozenset()
            last: int = connection.execute(_LAST_OF_ALL).fetchone()[0]
            if after < 0:  # who begins to listen reads what was sent before anyway
                return last, frozenset()
            since = after if after <= last else 0  # another file may lie there now
            return last, frozenset(
                row[0] for row in connection.execute(_TOLD, (since, last))
            )

    def mark(self) -> object:
        """What changes with the files. Of files that changed just now a new thing each time: their clock is coarse."""
        found = tuple(map(_stamp, self._paths))
        newest = max(stamp[0] for stamp in found)
        return object() if abs(time.time_ns() - newest) < COARSE else found

    def _command(
        self, before: tuple[Any, ...], row: tuple[Any, ...], of: str
    ) -> Command:
        number, run_id, at, kind, body, hashed = row
        try:
            if tuple(map(type, row)) not in _ROWS:
                raise ValueError("a column holds a value of another type")
            command = Command(number, run_id, at, kind, read_command_body(body))
            if number != before[0] + 1 or hashed != _hash(
                before[-1], number, run_id, at, kind, body
            ):
                raise ValueError(
                    "it does not follow the one before, or another hash was made of it"
                )
            return command
        except ValueError as error:
            return Command(
                number, of, 0.0, "damaged", {}, f"command {number} was changed: {error}"
            )


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hash(
    before: str, number: int, run_id: str, at: float, kind: str, body: bytes
) -> str:
    """The hash of a command (hex SHA-256) over each field, with its length where it is text, and the hash before."""
    head = f"{before}|{number}|{len(run_id)}:{run_id}|{at!r}|{len(kind)}:{kind}|"
    return hashlib.sha256(head.encode() + body).hexdigest()


_ROWS = ((int, str, float, str, bytes, str), (int, str, int, str, bytes, str))
