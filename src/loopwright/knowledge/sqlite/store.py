"""SQLiteKnowledge and MemoryKnowledge: knowledge in one SQLite file, or in memory."""

import asyncio
import contextlib
import dataclasses
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, TypeVar

from ...clock import Clock, SystemClock
from ...errors import KnowledgeError
from ...storage.file import SQLiteFile, resolve_path
from ...storage.memory import MemoryConnection
from ...storage.rewrite import PAUSE
from ...storage.writer import WritingConnection
from ..base import (
    Embedder,
    Forget,
    Remembered,
    check_key,
    check_names,
    check_scope,
    check_search,
)
from .fusion import fuse
from .items import Items
from .search import Counts, Query, WordSearch
from .stemmer import shared_stemmer
from .tables import FORMAT, KNOWLEDGE, check_made_by
from .vectors import Vectors

T = TypeVar("T")
MEMORY = ":memory:"


class SQLiteKnowledge:
    """Knowledge in one SQLite file, private to its user, searched by words (FTS5 with the Porter stemmer).

    Several processes may use one file: an OS lock on `<path>.lock` lets one of them write at a time. A file that another
    user made, or may write, is refused. Texts that are forgotten are overwritten in the file, its index and its
    write-ahead log.

    Args:
        path: the file; it is made at first use, in a directory that exists.
        shared: whether items may be stored and found without a scope. Such items are found in every scope.
        busy_timeout: seconds to wait for another process that writes.
        clock: the source of time, for tests.
        embedder: makes vectors of texts, by which they are searched too, needs NumPy. A file keeps to one embedder.
        unrelated: the cosine of texts that have nothing in common, by that embedder; it is a score of 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        busy_timeout: float = 5.0,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        unrelated: float = 0.2,
    ) -> None:
        self._name = os.fspath(path)
        self._shared = shared
        self._clock = clock or SystemClock()
        self._lock, self._counts = threading.Lock(), Counts()
        self._connection: WritingConnection | MemoryConnection | None = None
        self._open_files = contextlib.ExitStack()
        self._vectors = None if embedder is None else Vectors(embedder, unrelated)
        self._process, self._is_closed = os.getpid(), False
        self._file: SQLiteFile | None = None
        if self._name != MEMORY:
            found = resolve_path(self._name, KNOWLEDGE)
            self._name = str(found)
            self._file = SQLiteFile(
                found, KNOWLEDGE, FORMAT, busy_timeout=busy_timeout, any_thread=True
            )

    async def search(
        self,
        query: str,
        *,
        kinds: Collection[str] = (),
        limit: int = 5,
        threshold: float = 0.3,
        scope: str = "",
        category: str = "",
        tags: Collection[str] = (),
    ) -> Sequence[Remembered]:
        """Return at most `limit` items that match, the best first; see `Knowledge`."""
        check_search(limit, threshold)
        check_names("kinds", kinds)
        check_names("tags", tags)
        scope = check_scope(scope, shared=self._shared)
        scopes = (scope, "") if self._shared and scope else (scope,)
        asked = Query(
            str(query), frozenset(kinds), limit, threshold, scopes, category, frozenset(tags)
        )  # fmt: skip
        vector = await self._embed(asked.text) if asked.text.strip() else None
        return await asyncio.to_thread(
            self._read, lambda cursor: self._find(cursor, asked, vector)
        )

    async def store(self, item: Remembered, *, key: str) -> str:
        """Store an item once for each key and return its id; see `Knowledge`."""
        check_key(key)
        scope = check_scope(item.scope, shared=self._shared)
        item, now = dataclasses.replace(item, scope=scope), self._clock.wall()
        vector = await self._embed_new(item, key)
        return await asyncio.to_thread(
            self._write, lambda cursor: self._keep(cursor, item, key, now, vector)
        )

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

    async def _embed(self, text: str) -> Any:
        """Return the vector of a text, `None` without an embedder."""
        return None if self._vectors is None else await self._vectors.embed(text)

    async def _embed_new(self, item: Remembered, key: str) -> Any:
        """Return the vector of an item that is to be stored, `None` for one that is not searched or is there."""
        if self._vectors is None or item.valid_to is not None:
            return None
        is_known = await asyncio.to_thread(
            self._read, lambda cursor: Items(cursor).has_key(key)
        )
        return None if is_known else await self._embed(item.text)

    # --- in a thread ---

    def _find(
        self, cursor: sqlite3.Cursor, query: Query, vector: Any
    ) -> list[Remembered]:
        lists = [WordSearch(cursor, shared_stemmer(), self._counts).search(query)]
        if self._vectors is not None and vector is not None:
            lists.append(self._vectors.search(cursor, query, vector))
        return [
            dataclasses.replace(one.item, score=round(min(one.score, 1.0), 4))
            for one in fuse(lists, query.threshold)[: query.limit]
        ]

    def _keep(
        self,
        cursor: sqlite3.Cursor,
        item: Remembered,
        key: str,
        now: float,
        vector: Any,
    ) -> str:
        id, number = Items(cursor).store(item, key, now)
        if number and self._vectors is not None and vector is not None:
            self._vectors.add(cursor, number, vector)
        return id

    def _forget(self, where: Forget) -> int:
        count = self._write(lambda cursor: Items(cursor).forget(where))
        if count and self._file is not None:
            self._rewrite(self._file)
        if self._vectors is not None:
            self._vectors.reset()
        return count

    def _rewrite(self, file: SQLiteFile) -> None:
        """Rewrite the file without what was forgotten, and empty its log; other tasks may search between two attempts."""
        rewrite = file.begin_rewrite("the items are forgotten")
        while True:
            with self._connected() as connection:
                if isinstance(connection, MemoryConnection) or rewrite.attempt(
                    connection
                ):
                    return
            rewrite.check_patience()
            time.sleep(PAUSE)

    def _read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        with (
            self._connected() as connection,
            contextlib.closing(connection.cursor()) as cursor,
        ):
            return work(cursor)

    def _write(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        with self._connected() as connection, connection.transaction() as cursor:
            return work(cursor)

    @contextlib.contextmanager
    def _connected(self) -> Generator[WritingConnection | MemoryConnection]:
        """Yield the one connection, which is opened at first use."""
        with self._explained(), self._lock:
            if self._is_closed:
                raise KnowledgeError(
                    f"knowledge {self._name!r}: is closed; make a new one"
                )
            if self._process != os.getpid():
                raise KnowledgeError(
                    f"knowledge {self._name!r}: was made in the process that this one was forked from; "
                    "make a new one in each process"
                )
            if self._connection is None:
                self._connection = self._open()
            yield self._connection

    def _open(self) -> WritingConnection | MemoryConnection:
        with contextlib.ExitStack() as files:
            connection: WritingConnection | MemoryConnection
            if self._file is None:
                connection = files.enter_context(
                    contextlib.closing(MemoryConnection(FORMAT))
                )
            else:
                connection = files.enter_context(self._file.writing())
            made_by = "" if self._vectors is None else self._vectors.made_by
            with connection.transaction() as cursor:
                check_made_by(cursor, self._name, made_by)
            self._open_files = files.pop_all()
        return connection

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._open_files.close()
            self._connection = None

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Raise `KnowledgeError` for what SQLite and the system raise."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            if self._file is not None:
                raise self._file.explain(error) from error
            raise KnowledgeError(f"knowledge {self._name!r}: {error}") from error


class MemoryKnowledge(SQLiteKnowledge):
    """Knowledge that is gone with the process, searched as in `SQLiteKnowledge`.

    Args:
        shared: whether items may be stored and found without a scope. Such items are found in every scope.
        clock: the source of time, for tests.
        embedder: makes vectors of texts, as for `SQLiteKnowledge`.
        unrelated: the cosine of texts that have nothing in common.
    """

    def __init__(
        self,
        *,
        shared: bool = False,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        unrelated: float = 0.2,
    ) -> None:
        super().__init__(
            MEMORY, shared=shared, clock=clock, embedder=embedder, unrelated=unrelated
        )
