"""The connection that writes a SQLite file, one transaction of one process at a time."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path

from .kind import FileKind
from .lock import ProcessLock


class WritingConnection:
    """The connection that writes; its transactions hold the process lock.

    Args:
        open: makes a connection that can write.
        lock: the lock between processes, which is held when this is made.
        path: the file.
        log: its write-ahead log.
        kind: what the file holds.
    """

    def __init__(
        self,
        open: Callable[[], sqlite3.Connection],
        lock: ProcessLock,
        path: Path,
        log: Path,
        kind: FileKind,
    ) -> None:
        self._open, self._lock, self._kind = open, lock, kind
        self._path, self._log = path, log
        self._files: dict[Path, tuple[int, int]] = {}
        self._patience: float | None = None
        self._connect()

    @property
    def is_lost(self) -> bool:
        """Whether the connection was closed behind the back of this object."""
        try:
            self._connection.total_changes  # noqa: B018 - it asks the connection
        except sqlite3.ProgrammingError:
            return True
        return False

    @contextlib.contextmanager
    def transaction(self, patience: float | None = None) -> Generator[sqlite3.Cursor]:
        """Yield a cursor whose writes become durable together or not at all.

        `patience` is how many seconds to wait for other programs, by default the timeout of the file.
        """
        self._lock.acquire(patience)
        try:
            if self.is_lost:
                self._reconnect()
            self._set_patience(patience)
            cursor = self._cursor
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            self._check_files()
            cursor.execute("COMMIT")
        finally:
            # A failing rollback must not hide the original error.
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._cursor.execute("ROLLBACK")
            self._lock.release()

    def _set_patience(self, patience: float | None) -> None:
        """Let SQLite wait for other programs for some seconds, by default for the timeout of the file."""
        if patience == self._patience:
            return
        milliseconds = int(
            1000 * (self._lock.timeout if patience is None else patience)
        )
        self._cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        self._patience = patience

    def cursor(self) -> sqlite3.Cursor:
        """Return a cursor that reads; what is written belongs in a transaction."""
        return self._connection.cursor()

    def empty_log(self) -> bool:
        """Copy the write-ahead log into the file and cut it to nothing; return whether no reader prevented it."""
        with self._lock.held():
            (is_busy, *_) = self._cursor.execute(
                "PRAGMA wal_checkpoint(TRUNCATE)"
            ).fetchone()
        return not is_busy

    def rewrite(self) -> None:
        """Write the file anew, without copies of rows that SQLite once moved.

        `secure_delete` overwrites a row where it is, and not where it was before its page was split or joined.
        """
        with self._lock.held():
            self._cursor.execute("VACUUM")

    def close(self) -> None:
        """Close it, with the log copied into the file."""
        # Durable entries are safe in the write-ahead log, so a failed checkpoint loses nothing.
        with contextlib.suppress(sqlite3.Error, OSError), self._lock.held():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._connection.close()
        self._connection.close()

    def _connect(self) -> None:
        self._connection = self._open()
        self._cursor, self._patience = self._connection.cursor(), None
        found = ((file, _identity(file)) for file in (self._path, self._log))
        self._files = {file: known for file, known in found if known is not None}

    def _reconnect(self) -> None:
        """Connect to the same file again; its log may be a new one, since the last connection takes it along."""
        self._files.pop(self._log, None)
        self._check_files()
        self._connect()

    def _check_files(self) -> None:
        """Raise the error of the kind if a file was removed or replaced, so that writes would be lost."""
        for file, identity in self._files.items():
            if _identity(file) != identity:
                raise self._kind.error(
                    f"{self._kind.noun} file {str(file)!r} was removed or replaced: nothing more is written; "
                    f"restore it and make a new {self._kind.owner}"
                )


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
