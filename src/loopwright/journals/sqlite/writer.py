"""The thread that writes a SQLite journal: whatever waits when it comes by goes into one transaction."""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading

from ...errors import JournalError, LoopwrightError
from .file import JournalFile, WritingConnection
from .jobs import INSERT_EVENT, Job, Row, again

# What is refused because of one value: the other runs in the same transaction are not to blame.
_REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


class Writer:
    """Does jobs in the order in which they come, in a thread that starts with the first of them.

    There is no waiting for more jobs: those that come while one transaction is being made durable are the next one.
    """

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._open = True
        self._thread: threading.Thread | None = None
        self._process: int | None = None
        self._files = contextlib.ExitStack()
        self._connection: WritingConnection | None = None

    def submit(self, job: Job) -> None:
        """Hand a job over; raises `JournalError` after the end."""
        if self._process not in (None, os.getpid()):
            raise JournalError(
                f"journal {str(self._file.path)!r} was at work before this process was forked from its parent, and "
                "SQLite does not survive that: make a new SQLiteJournal in each process"
            )
        with self._door:
            if not self._open:
                raise self.closed()
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=self._work, name="loopwright-journal", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)

    def end(self) -> None:
        """Stop when all that was handed over is done. Takes no lock, so that a finalizer may call it."""
        self._jobs.put(None)

    async def close(self) -> None:
        """Stop, and wait for it; nothing is taken from now on."""
        with self._door:
            self._open = False
        if self._thread is not None:
            self.end()
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        try:
            with self._files:
                more = True
                while more:
                    jobs, more = self._waiting()
                    if jobs:
                        self._do(jobs)
                        _wake(jobs)
        finally:
            self._refuse_the_rest()

    def _waiting(self) -> tuple[list[Job], bool]:
        """All jobs that are there, at least one; and whether more may come."""
        jobs: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if self._jobs.empty():
                return jobs, True
            job = self._jobs.get()
        return jobs, False

    def _do(self, jobs: list[Job]) -> None:
        try:
            self._transact(jobs)
        except _REFUSED as error:
            if len(jobs) == 1:
                jobs[0].fail(self._file.explain(error))
            else:
                for job in jobs:
                    self._do([job])
        except (sqlite3.Error, OSError) as error:
            for job in jobs:
                job.fail(self._file.explain(error))
        except JournalError as error:
            for job in jobs:
                job.fail(again(error))

    def _transact(self, jobs: list[Job]) -> None:
        if self._connection is None:
            self._connection = self._files.enter_context(self._file.writing())
        rows: list[Row] = []
        with self._connection.transaction() as cursor:
            for job in jobs:
                try:
                    job.write(cursor, rows)
                except LoopwrightError as error:
                    job.fail(error)
            cursor.executemany(INSERT_EVENT, rows)

    def _refuse_the_rest(self) -> None:
        with self._door:
            self._open = False
        rest: list[Job] = []
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job.fail(self.closed())
                rest.append(job)
        _wake(rest)

    def closed(self) -> JournalError:
        """What to say to one who comes too late."""
        return JournalError(
            f"journal {str(self._file.path)!r} is closed: make a new SQLiteJournal to go on"
        )


def _wake(jobs: list[Job]) -> None:
    """Tell those who wait, with one call for each of their event loops."""
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in jobs:
        if job.waiter is not None:
            waiting.setdefault(job.waiter.loop, []).append(job.waiter.future)
    for loop, futures in waiting.items():
        # A loop that was closed meanwhile has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, futures)


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its task may have been cancelled
            future.set_result(None)
