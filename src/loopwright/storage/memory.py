"""The tables of a file in memory, with the transactions of one."""

import contextlib
import sqlite3
import weakref
from collections.abc import Generator

from .formats import Format


class MemoryConnection:
    """A connection to tables that are gone with it; used by one thread at a time."""

    def __init__(self, format: Format) -> None:
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        # Python 3.13 warns of a connection that is dropped unclosed, and tables in memory need no close.
        weakref.finalize(self, self._connection.close).atexit = False
        format.upgrade(self._connection, 0, "")

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor that reads."""
        return self._connection.cursor()

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Cursor]:
        """Yield a cursor whose writes happen together or not at all."""
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            cursor.execute("COMMIT")
        finally:
            # A failing rollback must not hide the original error.
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Drop the tables."""
        self._connection.close()
