"""The writer thread of a SQLite journal: all waiting jobs go into one transaction."""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time

from ..._internal.log import logger
from ...clock import Clock, read_boot_time
from ...errors import Fenced, JournalError, LoopwrightError, format_error
from ...storage.errors import is_passing
from ...storage.rewrite import Rewrite
from ...storage.writer import WritingConnection
from .file import JournalFile
from .jobs import INSERT_EVENT, Job, Row, copy_error

# Errors caused by one value: the other jobs of the same transaction are tried again alone.
_VALUE_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


FIRST_PAUSE, MAX_PAUSE = 0.02, 0.5
"""Seconds between two attempts: each pause is twice as long as the one before."""


class RewriteFile(Job):
    """Let the writer rewrite the file and empty its log, between two transactions."""

    def __init__(self, rewrite: Rewrite) -> None:
        super().__init__()
        self._rewrite = rewrite

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Write nothing: the file is rewritten after the transaction."""

    def attempt(self, connection: WritingConnection) -> None:
        """Attempt it once."""
        self._rewrite.attempt(connection)


class Writer:
    """Does jobs in order, in a thread that starts with the first job.

    It does not wait for more jobs: those that arrive while one transaction becomes durable form the next one. What
    fails because another program holds the file, or because the connection was lost, is tried again: for
    `retry_timeout` seconds since a job was submitted, and not beyond the lease under which it writes.
    """

    def __init__(self, file: JournalFile, clock: Clock, retry_timeout: float) -> None:
        self._file, self._clock, self._retry_timeout = file, clock, retry_timeout
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
                self._thread = self._start_thread()
                self._process = os.getpid()
            self._jobs.put(job)

    def _start_thread(self) -> threading.Thread:
        """Start the thread that writes; raise `JournalError` if the system has none left, so that another job may."""
        thread = threading.Thread(
            target=self._work, name="loopwright-journal", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise self._file.explain(
                error,
                "the system or the container allows no more: end some, or allow more",
            ) from error
        return thread

    async def complete(self, job: Job) -> None:
        """Queue a job, and wait until it is done; raise its failure."""
        waiter = job.waiter = asyncio.get_running_loop().create_future()
        self.submit(job)
        await waiter
        if job.failure is not None:
            raise copy_error(job.failure)

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
                    for together in _separate(jobs):
                        self._do(together)
                        _wake(together)
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
        """Do jobs in one transaction, tried again while the reason of its failure may pass."""
        pause = FIRST_PAUSE
        while jobs:
            try:
                self._transact(jobs)
            except JournalError as error:
                for job in jobs:
                    job.fail(copy_error(error))
            except (*_VALUE_ERRORS, sqlite3.Error, OSError) as error:
                if self._may_pass(error):
                    jobs = self._keep(jobs, error, pause)
                    pause = min(2 * pause, MAX_PAUSE)
                    continue
                self._fail(jobs, error)
            except Exception as error:  # noqa: BLE001 - each waiter must be told, also of an unforeseen error
                self._fail(jobs, error)
            return

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        """Let jobs fail for good; if one value may be the cause, do each alone."""
        is_of_file = isinstance(error, (sqlite3.Error, OSError))
        if len(jobs) > 1 and (isinstance(error, _VALUE_ERRORS) or not is_of_file):
            for job in jobs:
                self._do([job])
            return
        for job in jobs:
            job.fail(self._file.explain(error))

    def _may_pass(self, error: Exception) -> bool:
        """Return whether another attempt may succeed: the file was held, or the connection lost."""
        is_lost = self._connection is not None and self._connection.is_lost
        return is_lost or is_passing(error)

    def _keep(self, jobs: list[Job], error: Exception, pause: float) -> list[Job]:
        """Pause and return the jobs to try again; those whose time is over fail at once."""
        if pause == FIRST_PAUSE:
            logger().warning(
                "journal_retried", path=str(self._file.path), error=format_error(error)
            )
        time.sleep(max(min(pause, *map(self._compute_time_left, jobs)), 0.0))
        for job in jobs:
            job.is_repeated = True
            if job.failure is None and self._compute_time_left(job) <= 0:
                job.fail(self._build_final_error(job, error))
        _wake([job for job in jobs if job.failure is not None])
        return [job for job in jobs if job.failure is None]

    def _build_final_error(self, job: Job, error: Exception) -> LoopwrightError:
        """Return the error of a job whose time is over."""
        seconds = time.monotonic() - job.began
        tried = f"tried for {seconds:.1f} s"
        if self._compute_lease_left(job) <= 0:
            cure = f"{tried}, until the lease was over: another worker may have the run"
            return Fenced(*self._file.explain(error, cure).args)
        cure = f"{tried}: stop what holds it, or give a longer retry_timeout"
        return self._file.explain(error, cure)

    def _compute_lease_left(self, job: Job) -> float:
        return job.held_until - read_boot_time(self._clock)

    def _compute_time_left(self, job: Job) -> float:
        """Return for how many seconds a job may still be tried."""
        end = job.began + self._retry_timeout
        return min(end - time.monotonic(), self._compute_lease_left(job))

    def _choose_patience(self, jobs: list[Job]) -> float:
        """Return how long an attempt may wait for other programs."""
        held_until = min([job.held_until for job in jobs])
        left = min(self._file.busy_timeout, held_until - read_boot_time(self._clock))
        if jobs[0].is_repeated:
            left = min(left, *map(self._compute_time_left, jobs))
        return max(left, 0.0)

    def _transact(self, jobs: list[Job]) -> None:
        if self._connection is None:
            self._connection = self._files.enter_context(self._file.writing())
        rows: list[Row] = []
        with self._connection.transaction(self._choose_patience(jobs)) as cursor:
            for job in jobs:
                try:
                    job.write(cursor, rows)
                except LoopwrightError as error:
                    job.fail(error)
            cursor.executemany(INSERT_EVENT, rows)
        for job in jobs:
            if isinstance(job, RewriteFile):
                job.attempt(self._connection)

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


def _separate(jobs: list[Job]) -> list[list[Job]]:
    """Return the jobs of one transaction, and each rewriting alone, which takes long and may fail for itself."""
    rewrites: list[Job] = [job for job in jobs if isinstance(job, RewriteFile)]
    together = [job for job in jobs if job not in rewrites]
    parts = [together, *([one] for one in rewrites)]
    return [part for part in parts if part]


def _wake(jobs: list[Job]) -> None:
    """Wake the waiting tasks, with one call for each event loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in jobs:
        if job.waiter is not None:
            waiting.setdefault(job.waiter.get_loop(), []).append(job.waiter)
    for loop, futures in waiting.items():
        # A loop that was closed meanwhile has no waiting task.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, futures)


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # its task may have been cancelled
            future.set_result(None)
