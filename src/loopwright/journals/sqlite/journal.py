"""The durable journal: one SQLite file, written by one thread, every entry on disk before a barrier returns."""

import os
import weakref
from collections.abc import Sequence

from ...clock import Clock, SystemClock
from ...errors import ConfigError, JournalError, LoopwrightError, UnknownRun
from ...events.entry import Entry
from ...messages import JsonObject
from ..base import (
    Claim,
    Command,
    RunHeader,
    RunInfo,
    Verification,
    command_body,
    follow_chain,
    lease_end,
)
from .file import JournalFile, Synchronous, checked_path
from .inbox import Inbox
from .jobs import Append, Job, Renew, SQLiteClaim, TakeUp, Waiter, again
from .reader import is_kept, read_entries, read_info, read_infos, verify_run
from .writer import Writer

HAND_OVER = 256
"""So many entries without a barrier are given to the writer anyway, so that they do not gather in memory."""


class SQLiteJournal:
    """Keeps runs in one SQLite file that survives the process, and can be read while it is written.

    Entries are written in groups by a thread that starts with the first write; nothing is opened before. Several
    processes may use one file: an OS lock on `<path>.lock` lets one of them write at a time, one transaction each. New
    files are private to their owner (mode 0600). What is handed over becomes durable with the next barrier or `close`.
    Commands are kept in a file of their own, `<path>.inbox`, made with the first: who sends one waits for no writer.

    Args:
        path: the file; its folder must exist. A file that cannot be made there is a `ConfigError`.
        synchronous: `FULL` survives a power cut. `NORMAL` survives the end of the process, but a power cut may take the
            last moments; it spares a disk flush for each barrier.
        busy_timeout: seconds to wait for another process that holds the file; then `JournalError`.
        clock: where leases and commands read the time; by default the machine's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise ConfigError(
                f"SQLiteJournal: synchronous must be 'FULL' or 'NORMAL', got {synchronous!r}"
            )
        if not 0 < busy_timeout <= 86_400:
            raise ConfigError(
                f"SQLiteJournal: busy_timeout must be seconds above 0 up to a day, got {busy_timeout!r}"
            )
        self._file = JournalFile(checked_path(path), synchronous, busy_timeout)
        self._inbox = Inbox(self._file.path, busy_timeout)
        self._writer = Writer(self._file)
        self._clock = clock or SystemClock()
        self._gathering: dict[int, SQLiteClaim] = {}
        self._closed = False
        # A journal that is forgotten lets its thread end; at the end of the process nothing is left to do.
        weakref.finalize(self, self._writer.end).atexit = False

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run; nothing is written before its first `append`."""
        until = lease_end(header.lease, self._clock.wall())
        return SQLiteClaim(
            header.run_id, fence=1, header=header, file=self._file, lease_until=until
        )

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Take a run up; durable when this returns."""
        if (
            not self._file.exists()
        ):  # a mistyped path must not leave an empty file behind
            raise self._unknown(run_id)
        waiter = Waiter()
        job = TakeUp(
            SQLiteClaim(run_id, fence=0, file=self._file),
            owner,
            take_over,
            lease,
            self._clock,
            waiter,
        )
        self._writer.submit(job)
        await _done(job, waiter)
        return job.claim

    async def renew(self, claim: Claim, lease: float) -> None:
        """Put the end of the claim's lease off; durable when this returns."""
        held = self._held(claim)
        if held.header is not None:
            return
        waiter = Waiter()
        job = Renew(held, lease, self._clock, waiter)
        self._writer.submit(job)
        await _done(job, waiter)
        held.lease_until = job.lease_until

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Hand over entries that follow those handed over before; costs no system call."""
        held = self._held(claim)
        if self._closed:
            raise self._writer.closed()
        if entries:
            if entries[0].seq != held.tail + 1:
                raise JournalError(
                    f"run {claim.run_id!r}: entry {held.tail + 1} must follow, got {entries[0].seq}"
                )
            held.tail = entries[-1].seq
            held.pending.extend(entries)
        if status is not None:
            held.status = status
            held.frees = held.frees or status != "running"
        self._gathering[id(held)] = held
        if len(held.pending) >= HAND_OVER:
            self._hand_over(held, None)

    async def barrier(self, claim: Claim) -> None:
        """Wait until all that was handed over under this claim is on disk."""
        held = self._held(claim)
        waiter = Waiter()
        await _done(self._hand_over(held, waiter), waiter)

    def read(self, run_id: str) -> list[Entry]:
        """All durable entries of a run, oldest first."""
        with self._file.reading() as connection:
            info = None if connection is None else read_info(connection, run_id)
            if connection is None or info is None:
                raise self._unknown(run_id)
            entries, damage = read_entries(connection, run_id)
        damage = (
            damage or follow_chain(run_id, entries, info).problem
        )  # nobody may act on what was changed
        if damage:
            raise JournalError(
                f"journal {str(self._file.path)!r}: run {run_id!r}: {damage}; verify it for more"
            )
        return entries

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """All runs, newest first; or those that have not ended, found by an index."""
        with self._file.reading() as connection:
            return [] if connection is None else read_infos(connection, unfinished)

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check every field of a run's entries, that none is missing, and that they end where they should."""
        with self._file.reading() as connection:
            found = None if connection is None else verify_run(connection, run_id, head)
        if found is None:
            raise self._unknown(run_id)
        return found

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox; durable when this returns, also with `synchronous="NORMAL"`."""
        encoded = command_body(kind, body)
        if self._closed:
            raise self._writer.closed()
        with self._file.reading() as connection:
            if connection is None or not is_kept(connection, run_id):
                raise self._unknown(run_id)
        return self._inbox.add(run_id, self._clock.wall(), kind, encoded)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """The durable commands to a run, oldest first."""
        return self._inbox.read(run_id, after)

    def inbox_mark(self) -> object:
        """The times and sizes of the inbox file and its log."""
        return self._inbox.mark()

    def inbox_news(self, after: int) -> tuple[int, frozenset[str]]:
        """The number of the last command to any run, and the runs to which any behind the number `after` was sent."""
        return self._inbox.news(after)

    async def close(self) -> None:
        """Make all that was handed over durable, let go of file and thread; a closed journal only reads."""
        failure: LoopwrightError | None = None
        self._closed = True
        for claim in list(self._gathering.values()):
            try:
                await self.barrier(claim)
            except LoopwrightError as error:
                failure = failure or error
        await self._writer.close()
        if failure is not None:
            raise failure

    def _held(self, claim: Claim) -> SQLiteClaim:
        if not isinstance(claim, SQLiteClaim) or claim.file is not self._file:
            raise JournalError(
                f"run {claim.run_id!r}: this claim was given by another journal"
            )
        if claim.failure is not None:
            raise again(claim.failure)
        return claim

    def _hand_over(self, claim: SQLiteClaim, waiter: Waiter | None) -> Append:
        self._gathering.pop(id(claim), None)
        if claim.header is not None:  # a new run's lease begins with its first entries
            claim.lease_until = lease_end(claim.header.lease, self._clock.wall())
        job = Append(claim, waiter)
        self._writer.submit(job)
        return job

    def _unknown(self, run_id: str) -> UnknownRun:
        return UnknownRun(f"no run {run_id!r} in journal {str(self._file.path)!r}")


async def _done(job: Job, waiter: Waiter) -> None:
    """Wait until a job is done; raises its failure."""
    await waiter.future
    if job.failure is not None:
        raise again(job.failure)
