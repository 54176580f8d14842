"""The inbox of a SQLite journal: a second file beside it, into which any process may put commands at any time."""

import sqlite3
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..journal import Command, read_command_body
from .sqlite_file import Format, JournalFile, beside

# As in the journal no column type for `at`. The file is never opened by a writer of the journal, so neither waits.
INBOX = Format(
    0x4C6F7049,  # "LopI"
    1,
    (
        """CREATE TABLE commands (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, at NOT NULL, kind TEXT NOT NULL,
            body BLOB NOT NULL, UNIQUE (run_id, number))""",
    ),
)
_NEXT = "SELECT coalesce(max(number), 0) + 1 FROM commands WHERE run_id = ?"
_INSERT = "INSERT INTO commands (run_id, number, at, kind, body) VALUES (?, ?, ?, ?, ?)"
_COMMANDS = "SELECT number, run_id, at, kind, body FROM commands WHERE run_id = ? AND number > ? ORDER BY number"


class Inbox:
    """Keeps commands in `<path>.inbox`, opened for each use: they are few, and their senders come and go."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self._file = JournalFile(beside(path, ".inbox"), "FULL", busy_timeout, INBOX)

    def add(self, run_id: str, at: float, kind: str, body: bytes) -> int:
        """Keep a command and give its number; durable when this returns."""
        try:
            with self._file.writing() as connection, connection.transaction() as cursor:
                number: int = cursor.execute(_NEXT, (run_id,)).fetchone()[0]
                cursor.execute(_INSERT, (run_id, number, at, kind, body))
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._file.explain(error) from error
        return number

    def read(self, run_id: str, after: int) -> list[Command]:
        """The commands to a run with numbers above `after`, oldest first."""
        with self._file.reading() as connection:
            rows = [] if connection is None else connection.execute(_COMMANDS, (run_id, after)).fetchall()
        return [self._command(row) for row in rows]

    def _command(self, row: tuple[Any, ...]) -> Command:
        number, run_id, at, kind, body = row
        try:
            if tuple(map(type, row)) not in _ROWS:
                raise ValueError("a column holds a value of another type")
            return Command(number, run_id, at, kind, read_command_body(body))
        except ValueError as error:
            raise JournalError(
                f"journal {str(self._file.path)!r}: run {run_id!r}: command {number!r} was changed: {error}"
            ) from error


_ROWS = ((int, str, float, str, bytes), (int, str, int, str, bytes))
