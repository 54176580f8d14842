"""SQLiteSettings: settings in one SQLite file, of which every version is kept."""

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Generator, Mapping, Sequence

from ..errors import SettingsError
from ..events.run_settings import RunSettings
from ..messages import Json
from ..storage.file import SQLiteFile, resolve_path
from ..storage.formats import Format
from ..storage.kind import FileKind
from .base import SettingChange
from .memory import check_expected

APPLICATION_ID = 0x4C6F7053  # "LopS"
TABLES = (
    """CREATE TABLE changes (
        version INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, before TEXT NOT NULL, "by" TEXT NOT NULL,
        at REAL NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (name, version)) WITHOUT ROWID""",
)
FORMAT = Format(APPLICATION_ID, 1, TABLES)
KIND = FileKind(
    "settings", "SQLiteSettings", SettingsError, "MemorySettings()", "settings.db"
)
VERSION = "SELECT coalesce(max(version), 0) FROM changes"
# With max() in the list, SQLite takes the other columns from the row that has it.
CURRENT = "SELECT name, value, max(version) FROM changes GROUP BY name"
HISTORY = """SELECT version, name, value, before, "by", at, reason FROM changes WHERE ? IN ('', name)
    ORDER BY version, name"""


class SQLiteSettings:
    """Settings in one SQLite file, private to its user, which several processes may read and write.

    Args:
        path: the file; it is made when something is written, in a directory that exists.
        busy_timeout: seconds to wait for another process that writes.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0
    ) -> None:
        found = resolve_path(path, KIND)
        self._file = SQLiteFile(found, KIND, FORMAT, busy_timeout=busy_timeout)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"SQLiteSettings({str(self._file.path)!r})"

    def read(self) -> RunSettings:
        """Return all settings as they are now; see `Settings`."""
        with self._explained(), self._file.reading() as connection:
            if connection is None:
                return RunSettings(0)
            return _read(connection.cursor())

    def write(
        self,
        changes: Mapping[str, Json],
        *,
        by: str,
        at: float,
        reason: str = "",
        expected: int | None = None,
    ) -> int:
        """Write changes together and return the new version; see `Settings`."""
        with (
            self._explained(),
            self._lock,
            self._file.writing() as connection,
            connection.transaction() as cursor,
        ):
            now = _read(cursor)
            check_expected(now.version, expected)
            version = now.version + 1 if changes else now.version
            rows = [
                (version, name, json.dumps(value), json.dumps(now.values.get(name)), by, at, reason)
                for name, value in changes.items()
            ]  # fmt: skip
            cursor.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            return version

    def history(self, name: str = "") -> Sequence[SettingChange]:
        """Return the changes of a setting, or of all, the oldest first."""
        with self._explained(), self._file.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(HISTORY, (name,)).fetchall()
        return [
            SettingChange(version, one, json.loads(value), json.loads(before), by, at, reason)
            for version, one, value, before, by, at, reason in rows
        ]  # fmt: skip

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Raise `SettingsError` for what SQLite and the system raise, and for rows that are damaged."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise self._file.explain(error) from error
        except (ValueError, TypeError) as error:
            raise SettingsError(f"settings {str(self._file.path)!r}: is damaged: {error}") from error  # fmt: skip


def _read(cursor: sqlite3.Cursor) -> RunSettings:
    (version,) = cursor.execute(VERSION).fetchone()
    found = {name: json.loads(value) for name, value, _ in cursor.execute(CURRENT)}
    values = {name: value for name, value in found.items() if value is not None}
    return RunSettings(version, values)
