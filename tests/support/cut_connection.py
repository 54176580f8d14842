"""A SQLite journal whose connection to its file is lost at its commits, before or after them."""

import functools
import sqlite3
from pathlib import Path
from typing import Any, Literal

from loopwright.journals import SQLiteJournal
from loopwright.storage import file as file_module

Moment = Literal["before", "after"]


class CutCursor(sqlite3.Cursor):
    """Closes its connection at the next commit, if that is asked for."""

    def execute(self, sql: str, *arguments: Any) -> "CutCursor":
        """Execute, or lose the connection."""
        connection = self.connection
        assert isinstance(connection, CutConnection)
        if sql == "COMMIT" and connection.cuts:
            if connection.cuts.pop(0) == "after":
                super().execute(sql)
            connection.close()
        return super().execute(sql, *arguments)


class CutConnection(sqlite3.Connection):
    """A connection; `cuts` says what happens at its next commits, and those of the journal's next connections."""

    cuts: list[Moment]

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor that may lose the connection."""
        return super().cursor(CutCursor)


class CutJournal(SQLiteJournal):
    """A journal whose connection is lost at each commit for which `cuts` has a moment."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.cuts: list[Moment] = []
        self._file._connect = functools.partial(_connect, self._file, self.cuts)  # type: ignore[method-assign]


def _connect(
    file: file_module.SQLiteFile, cuts: list[Moment], mode: Literal["ro", "rw"]
) -> sqlite3.Connection:
    if mode == "ro":
        return file_module.SQLiteFile._connect(file, mode)
    connection = sqlite3.connect(
        file.path,
        timeout=file.busy_timeout,
        isolation_level=None,
        factory=CutConnection,
    )
    connection.text_factory = file_module._decode
    connection.cuts = cuts
    return connection
