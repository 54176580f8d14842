"""Counts of recent calls that all processes with a journal share, in a file beside it."""

import contextlib
import os
import sqlite3
import threading
import weakref

from ...clock import Clock, SystemClock
from ...storage.file import SQLiteFile
from ...storage.formats import Format
from ...storage.modes import add_suffix
from ...storage.writer import WritingConnection
from .file import JOURNAL, resolve_path

RATES = Format(
    0x4C6F7052,  # "LopR"
    1,
    ("CREATE TABLE calls (id INTEGER PRIMARY KEY, key TEXT NOT NULL, until NOT NULL)",),
    (
        "CREATE INDEX IF NOT EXISTS calls_by_key ON calls (key)",
        "CREATE INDEX IF NOT EXISTS calls_by_end ON calls (until)",
    ),
)
_FORGET = "DELETE FROM calls WHERE until <= ?"
_COUNT = "SELECT count(*) FROM calls WHERE key = ?"
_ADD = "INSERT INTO calls (key, until) VALUES (?, ?)"


class SQLiteRates:
    """Counts calls in `<path>.rates`, so that all processes with that journal keep a limit together.

    The file is opened with the first call that is counted, and private to its owner. It counts by the wall clock, and is
    not copied or kept with the journal: without it, counting begins anew. Threads may share one.

    Args:
        path: that of the journal.
        busy_timeout: seconds to wait for another process that counts; then it raises `JournalError`.
        clock: the source of time, for tests.

    Raises `ConfigError` for a path where no file can be.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._file = SQLiteFile(
            add_suffix(resolve_path(path), ".rates"), JOURNAL, RATES,
            synchronous="NORMAL", busy_timeout=busy_timeout, any_thread=True,
        )  # fmt: skip
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._pid = 0
        self._opened: contextlib.ExitStack | None = None
        self._connection: WritingConnection | None = None

    def take(self, key: str, at_most: int, every: float) -> bool:
        """Count one more call, and return whether it was counted: at most so many in `every` seconds.

        Raises `JournalError` if the file cannot be written.
        """
        now = self._clock.wall()
        try:
            with self._lock, self._connect().transaction() as cursor:
                cursor.execute(_FORGET, (now,))
                (known,) = cursor.execute(_COUNT, (key,)).fetchone()
                if known < at_most:
                    cursor.execute(_ADD, (key, now + every))
                return bool(known < at_most)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise self._file.explain(error) from error

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            opened, self._opened, self._connection = self._opened, None, None
            if opened is not None and self._pid == os.getpid():
                opened.close()

    def _connect(self) -> WritingConnection:
        """Return the connection of this process, which a fork cannot use."""
        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        with contextlib.ExitStack() as stack:
            self._connection = stack.enter_context(self._file.writing())
            self._opened, self._pid = stack.pop_all(), os.getpid()
            weakref.finalize(self, self._opened.close)
        return self._connection
