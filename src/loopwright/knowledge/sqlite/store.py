"""SQLiteKnowledge and MemoryKnowledge: knowledge in one SQLite file, or in memory."""

import asyncio
import contextlib
import dataclasses
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from ...clock import Clock, SystemClock
from ...errors import ConfigError, KnowledgeError
from ..base import Forget, Remembered, check_scope, check_search
from .items import Items
from .search import Counts, Query, WordSearch
from .stemmer import shared_stemmer
from .tables import prepare

T = TypeVar("T")
MEMORY = ":memory:"


class SQLiteKnowledge:
    """Knowledge in one SQLite file, private to its user, searched by words (FTS5 with the Porter stemmer).

    Several processes may use one file. Texts that are forgotten are overwritten in the file, its index and its
    write-ahead log.

    Args:
        path: the file; it is made at first use, in a directory that exists.
        shared: whether items may be stored and found without a scope. Such items are found in every scope.
        busy_timeout: seconds to wait for another process that writes.
        clock: the source of time, for tests.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        busy_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        self._name = os.fspath(path)
        self._shared, self._busy_timeout = shared, busy_timeout
        self._clock = clock or SystemClock()
        self._lock, self._counts = threading.Lock(), Counts()
        self._connection: sqlite3.Connection | None = None
        self._process, self._is_closed = os.getpid(), False
        if self._name != MEMORY:
            self._name = str(_resolve(self._name))

    async def search(
        self,
        query: str,
        *,
        kinds: Collection[str] = (),
        limit: int = 5,
        threshold: float = 0.3,
        scope: str = "",
    ) -> Sequence[Remembered]:
        """Return at most `limit` items that match, the best first; see `Knowledge`."""
        check_search(limit, threshold)
        scope = check_scope(scope, shared=self._shared)
        scopes = (scope, "") if self._shared and scope else (scope,)
        asked = Query(str(query), frozenset(kinds), limit, threshold, scopes)
        return await asyncio.to_thread(
            self._read, lambda cursor: _search(cursor, asked, self._counts)
        )

    async def store(self, item: Remembered, *, key: str) -> str:
        """Store an item once for each key and return its id; see `Knowledge`."""
        if not key:
            raise ConfigError(
                "key: is empty, got ''; name what is stored, such as 'RUN_ID:KEY', so that it is stored once"
            )
        scope = check_scope(item.scope, shared=self._shared)
        item, now = dataclasses.replace(item, scope=scope), self._clock.wall()
        stored = await asyncio.to_thread(
            self._write, lambda cursor: Items(cursor).store(item, key, now)
        )
        return stored[0]

    async def forget(
        self,
        *,
        id: str = "",
        scope: str = "",
        kind: str = "",
        topic: str = "",
        source_run: str = "",
    ) -> int:
        """Forget items for good and return how many; see `Knowledge`."""
        where = Forget(id, scope, kind, topic, source_run)
        return await asyncio.to_thread(self._forget, where)

    async def history(self, id: str) -> Sequence[Remembered]:
        """Return all versions of an item, the oldest first."""
        return await asyncio.to_thread(
            self._read, lambda cursor: Items(cursor).history(id)
        )

    async def close(self) -> None:
        """Close the file; the store can be used no more."""
        await asyncio.to_thread(self._close)

    # --- in a thread ---

    def _forget(self, where: Forget) -> int:
        count = self._write(lambda cursor: Items(cursor).forget(where))
        if count:
            self._empty_log()
        return count

    def _empty_log(self) -> None:
        """Cut the write-ahead log to nothing, since it may hold what was forgotten."""

        def empty(cursor: sqlite3.Cursor) -> int:
            (is_busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return int(is_busy)

        if self._name != MEMORY and self._read(empty):
            raise KnowledgeError(
                f"knowledge {self._name!r}: the items are forgotten, but another process reads the file, so its "
                "write-ahead log still holds them; forget anything once more when it has ended"
            )

    def _read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        with self._explained(), self._lock, contextlib.closing(self._cursor()) as at:
            return work(at)

    def _write(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        with self._explained(), self._lock, contextlib.closing(self._cursor()) as at:
            at.execute("BEGIN IMMEDIATE")
            try:
                value = work(at)
                at.execute("COMMIT")
            except BaseException:
                # A failing rollback must not hide the original error.
                with contextlib.suppress(sqlite3.Error):
                    at.execute("ROLLBACK")
                raise
            return value

    def _cursor(self) -> sqlite3.Cursor:
        """Return a cursor of the one connection, which is opened at first use."""
        if self._is_closed:
            raise KnowledgeError(f"knowledge {self._name!r}: is closed; make a new one")
        if self._process != os.getpid():
            raise KnowledgeError(
                f"knowledge {self._name!r}: was made in the process that this one was forked from; "
                "make a new one in each process"
            )
        if self._connection is None:
            self._connection = self._open()
        return self._connection.cursor()

    def _open(self) -> sqlite3.Connection:
        if self._name != MEMORY:
            # Created before SQLite opens it, because SQLite gives the files beside it the same mode.
            with contextlib.suppress(FileExistsError):
                flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
                os.close(os.open(self._name, flags, 0o600))
        connection = sqlite3.connect(
            self._name, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )  # fmt: skip
        try:
            prepare(connection, self._name)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA secure_delete = ON").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Raise `KnowledgeError` for what SQLite and the system raise."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise KnowledgeError(
                f"knowledge {self._name!r}: {error}; check that the file is a store of knowledge, can be written, "
                "and that its disk has space"
            ) from error


class MemoryKnowledge(SQLiteKnowledge):
    """Knowledge that is gone with the process, searched as in `SQLiteKnowledge`.

    Args:
        shared: whether items may be stored and found without a scope. Such items are found in every scope.
        clock: the source of time, for tests.
    """

    def __init__(self, *, shared: bool = False, clock: Clock | None = None) -> None:
        super().__init__(MEMORY, shared=shared, clock=clock)


def _search(cursor: sqlite3.Cursor, query: Query, counts: Counts) -> list[Remembered]:
    found = WordSearch(cursor, shared_stemmer(), counts).search(query)
    return [
        dataclasses.replace(one.item, score=round(min(one.score, 1.0), 4))
        for one in found
        if one.score >= query.threshold
    ][: query.limit]


def _resolve(path: str) -> Path:
    """Return the absolute path of a store; raise `ConfigError` if no file can be there."""
    if not path:
        raise ConfigError(
            "path: must name a file, got ''; use MemoryKnowledge() to keep nothing"
        )
    found = Path(path).resolve()
    if found.is_dir():
        raise ConfigError(f"path: {path!r} is a directory; name a file in it")
    if not found.parent.is_dir():
        raise ConfigError(
            f"path: the directory of {path!r} does not exist; create it first"
        )
    return found
