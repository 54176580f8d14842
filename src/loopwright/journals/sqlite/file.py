"""The SQLite file of a journal."""

import os
import sqlite3
from pathlib import Path
from typing import Literal

from ...errors import JournalError
from ...storage.file import SQLiteFile, Synchronous
from ...storage.file import resolve_path as resolve_file_path
from ...storage.formats import Format
from ...storage.kind import FileKind
from ..listing import contains_text
from .formats import RUNS

JOURNAL = FileKind(
    "journal", "SQLiteJournal", JournalError, "MemoryJournal()", "runs.db"
)

CONTAINS_TEXT = "contains_text"
"""The function of SQL by which runs are found that have a text, in capitals or not."""


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a journal file; raise `ConfigError` if no file can be there."""
    return resolve_file_path(path, JOURNAL)


class JournalFile(SQLiteFile):
    """The file of a journal, or the one of its inbox."""

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        busy_timeout: float,
        format: Format = RUNS,
    ) -> None:
        super().__init__(
            path, JOURNAL, format, synchronous=synchronous, busy_timeout=busy_timeout
        )

    def _connect(self, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        connection = super()._connect(mode)
        # The functions of SQLite know the capitals of ASCII alone.
        connection.create_function(CONTAINS_TEXT, -1, contains_text)
        return connection
