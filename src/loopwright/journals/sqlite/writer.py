"""The writer thread of a SQLite journal: all waiting jobs go into one transaction."""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading

from ...errors import JournalError, LoopwrightError
from .file import JournalFile, WritingConnection
from .jobs import INSERT_EVENT, Job, Row, Waiter, copy_error

# Errors caused by one value: the other jobs of the same transaction are tried again alone.
_VALUE_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


class EmptyLog:
    """Let the writer cut the write-ahead log to nothing, between two transactions."""

    def __init__(self, waiter: Waiter) -> None:
        self.is_empty = False
        self.waiter: Waiter | None = waiter
        self.failure: LoopwrightError | None = None

    def fail(self, failure: LoopwrightError) -> None:
        """Record that it was not possible."""
        self.failure = failure

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Write nothing: the log is emptied after the transaction."""

    def empty(self, connection: WritingConnection) -> None:
        """Empty the log."""
        self.is_empty = connection.empty_log()


class Writer:
    """Does jobs in order, in a thread that starts with the first job.

    It does not wait for more jobs: those that arrive while one transaction becomes durable form the next one.
    """

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = True
        self._thread: threading.Thread | None = None
        self._process: int | None = None
        self._files = contextlib.ExitStack()
        self._connection: WritingConnection | None = None

    def submit(self, job: Job) -> None:
        """Queue a job; raise `JournalError` once the writer is closed."""
        if self._process not in (None, os.getpid()):
            raise JournalError(
                f"journal {str(self._file.path)!r} was in use before this process was forked from its parent, and "
                "SQLite does not support that: make a new SQLiteJournal in each process"
            )
        with self._lock:
            if not self._open:
                raise self.build_closed_error()
            if self._thread is None:
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=self._work, name="loopwright-journal", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)

    def end(self) -> None:
        """Stop after the queued jobs. Takes no lock, so that a finalizer may call it."""
        self._jobs.put(None)

    async def close(self) -> None:
        """Stop and wait for the end; later jobs are refused."""
        with self._lock:
            self._open = False
        if self._thread is not None:
            self.end()
            await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        try:
            with self._files:
                is_open = True
                while is_open:
                    jobs, is_open = self._take_jobs()
                    if jobs:
                        self._do(jobs)
                        _wake(jobs)
        finally:
            self._refuse_rest()

    def _take_jobs(self) -> tuple[list[Job], bool]:
        """Wait for a job and return all that are queued, and whether more may follow."""
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
        except _VALUE_ERRORS as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._do([job])
            else:
                jobs[0].fail(self._file.explain(error))
        except (sqlite3.Error, OSError) as error:
            for job in jobs:
                job.fail(self._file.explain(error))
        except JournalError as error:
            for job in jobs:
                job.fail(copy_error(error))

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
        for job in jobs:
            if isinstance(job, EmptyLog):
                job.empty(self._connection)

    def _refuse_rest(self) -> None:
        with self._lock:
            self._open = False
        rest: list[Job] = []
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job.fail(self.build_closed_error())
                rest.append(job)
        _wake(rest)

    def build_closed_error(self) -> JournalError:
        """Return the error for a use after the end."""
        return JournalError(
            f"journal {str(self._file.path)!r} is closed: make a new SQLiteJournal to continue"
        )


def _wake(jobs: list[Job]) -> None:
    """Wake the waiting tasks, with one call for each event loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in jobs:
        if job.waiter is not None:
            waiting.setdefault(job.waiter.loop, []).append(job.waiter.future)
    for loop, futures in waiting.items():
        # A loop that was closed meanwhile has no waiting task.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, futures)


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its task may have been cancelled
            future.set_result(None)
