"""The SQLite file of a journal."""

import os
from pathlib import Path

from ...errors import JournalError
from ...storage.file import SQLiteFile, Synchronous
from ...storage.file import resolve_path as resolve_file_path
from ...storage.formats import Format
from ...storage.kind import FileKind
from .formats import RUNS

JOURNAL = FileKind(
    "journal", "SQLiteJournal", JournalError, "MemoryJournal()", "runs.db"
)


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
