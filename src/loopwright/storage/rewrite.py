"""Rewrite a file and empty its log, so that nothing is left of deleted rows; other processes may delay it."""

import sqlite3
import time
from pathlib import Path

from .errors import is_passing
from .kind import FileKind
from .writer import WritingConnection

PATIENCE = 10.0
"""Seconds to wait for readers that keep old pages in the log."""
PAUSE = 0.05
"""Seconds between two attempts."""


class Rewrite:
    """The rewriting of one file, attempted until no other process prevents it.

    Args:
        path: the file.
        kind: what it holds.
        done: what has happened already, for the error, such as `the runs are deleted`.
    """

    def __init__(self, path: Path, kind: FileKind, done: str) -> None:
        self._path, self._kind, self._done = path, kind, done
        self._end = time.monotonic() + PATIENCE
        self._is_rewritten = self.is_complete = False

    def attempt(self, connection: WritingConnection) -> bool:
        """Rewrite the file unless that is done, and cut its log; return whether nothing is left to do."""
        try:
            if not self._is_rewritten:
                connection.rewrite()
                self._is_rewritten = True
            self.is_complete = connection.empty_log()
        except (sqlite3.OperationalError, OSError) as error:
            if not is_passing(error):
                raise
        return self.is_complete

    def check_patience(self) -> None:
        """Raise the error of the kind once other processes have prevented it for too long."""
        if time.monotonic() > self._end:
            raise self._kind.error(
                f"{self._kind.noun} {str(self._path)!r}: {self._done}, but another process keeps old pages in the "
                "file or its log: close that process and delete again"
            )

    def complete(self, connection: WritingConnection) -> None:
        """Attempt it, in a thread that may wait, until nothing is left to do."""
        while not self.attempt(connection):
            self.check_patience()
            time.sleep(PAUSE)
