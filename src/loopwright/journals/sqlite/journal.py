"""SQLiteJournal: a durable journal in one SQLite file, written by one thread."""

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ...clock import Clock, ClockReading, SystemClock
from ...errors import ConfigError, JournalError, LoopwrightError
from ...events.entry import Entry
from ...events.payloads import MARK, Codec
from ...messages import JsonObject
from ...principals import TENANT_TAG
from ...storage.file import Synchronous
from ..arguments import (
    check_claim_arguments,
    check_flags,
    check_run_id,
    check_verify,
    check_whole,
)
from ..base import (
    Claim,
    Command,
    NewRun,
    RunHeader,
    RunInfo,
    Verification,
    encode_command_body,
)
from ..claims import LeaseWatch
from ..leases import Lease
from ..listing import RunFilter, check_page, check_range
from ..recorded_requests import RequestReader
from .batch_claims import SQLiteBatchClaims
from .codec import encode_due, encode_header, refuse_plain, show_options
from .file import JournalFile, resolve_path
from .inbox import Inbox, mark_files
from .jobs import Append, ClaimRun, Renew, SQLiteClaim, check_claim
from .listing import RunQuery
from .reader import (
    find_tags,
    read_info,
    read_news,
    read_range,
    verify_run,
)
from .schedules import SQLiteSchedules
from .search import SQLiteSearch
from .statistics import SQLiteStatistics
from .upkeep import Upkeep, build_unknown_run
from .writer import Writer

MAX_QUEUED = 256
"""Entries queued without a barrier, after which they are submitted to the writer to bound the memory."""


class SQLiteJournal(RequestReader):
    """Keeps runs in one SQLite file, which survives the process and can be read while it is written.

    A thread that starts with the first write stores entries in groups; nothing is opened before. Several processes may
    use one file: an OS lock on `<path>.lock` lets one of them write at a time, one transaction each. New files are
    private to their owner (mode 0600). Queued entries become durable with the next barrier or `close`. Commands are
    stored in a separate file, `<path>.inbox`, created with the first command, so that a sender waits for no writer.

    Args:
        path: the file; its directory must exist. A path where no file can be created is a `ConfigError`.
        synchronous: `FULL` survives a power failure. `NORMAL` survives the end of the process, but a power failure may
            lose the last moments; it saves a disk flush for each barrier.
        busy_timeout: seconds that one attempt waits for another process that holds the file.
        retry_timeout: seconds for which a write is tried again, with pauses, if another program holds the file or the
            connection is lost, but never longer than the run's lease, after which it is `Fenced`; then `JournalError`.
            A write that had become durable unseen is not made again. Reads and commands are not tried again, and other
            errors, such as a full disk, are final at once.
        clock: the clock of leases and commands; by default the system's.
        codec: encodes what entries, commands and schedules hold, for example to encrypt it (`AESCodec`). What was stored
            without it stays readable. Ids, tags, kinds, keys and times are stored as they are, so that runs are found, and
            their chains verified, without a key.
    """

    reading_together: Callable[[], AbstractContextManager[None]]
    """A context in which the reads of its thread use one connection, as a conversation of many runs needs."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout: float = 5.0,
        retry_timeout: float = 30.0,
        clock: Clock | None = None,
        codec: Codec | None = None,
    ) -> None:
        _check_options(synchronous, busy_timeout, retry_timeout)
        self._file = JournalFile(resolve_path(path), synchronous, busy_timeout)
        self.reading_together = self._file.reading_together
        self.path: Path = self._file.path
        """The absolute path of the file."""
        self._codec = codec
        self._inbox = Inbox(self._file.path, busy_timeout, codec)
        self._clock = clock or SystemClock()
        self.lease_watch = LeaseWatch(self._clock)
        """Judges the leases of runs that are claimed."""
        self._writer = Writer(self._file, self._clock, retry_timeout)
        self._upkeep = Upkeep(self._file, self._inbox, self._writer, self._clock, self.lease_watch, codec)  # fmt: skip
        self.schedules = SQLiteSchedules(self._file, self._writer, codec)
        """The schedules of the journal, for `Runtime.schedules`."""
        self.statistics = SQLiteStatistics(self._file, codec)
        """What `Runtime.metrics` reads."""
        self.search = SQLiteSearch(self._file, codec)
        """What the console looks for in long runs."""
        self.batch_claims = SQLiteBatchClaims(self._file, self._writer, self._clock, self.lease_watch, codec)  # fmt: skip
        """Claims many runs in one transaction."""
        self._queued: dict[int, SQLiteClaim] = {}
        self._closed = False
        # The thread ends with the last reference to the journal; at the end of the process it needs no finalizer.
        weakref.finalize(self, self._writer.end).atexit = False

    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run; nothing is written before its first `append`."""
        tenant = header.tags.get(TENANT_TAG, "")
        stored = encode_header(self._codec, header)
        claim = SQLiteClaim(
            header.run_id, 1, header=stored, file=self._file, codec=self._codec, tenant=tenant
        )  # fmt: skip
        _begin_lease(claim, header, self._clock)
        return claim

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run for an owner; durable on return."""
        check_claim_arguments(run_id, owner, take_over, lease)
        if not self._file.exists():  # a wrong path must not leave an empty file
            raise build_unknown_run(self._file, run_id)
        job = ClaimRun(
            SQLiteClaim(run_id, fence=0, file=self._file, codec=self._codec),
            owner,
            take_over,
            lease,
            self._clock,
            self.lease_watch,
        )
        await self._writer.complete(job)
        return job.claim

    async def renew(self, claim: Claim, lease: float) -> None:
        """Extend the claim's lease; durable on return."""
        held = check_claim(self._file, claim)
        if held.header is not None:
            return
        job = Renew(held, lease, self._clock)
        await self._writer.complete(job)
        held.given, held.lease_until = job.given, job.given.lease_until

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Queue entries that follow those queued before; makes no system call."""
        held = check_claim(self._file, claim)
        if self._closed:
            raise self._writer.build_closed_error()
        if entries:
            if entries[0].seq != held.tail + 1:
                raise JournalError(
                    f"run {claim.run_id!r}: entry {held.tail + 1} must follow, got {entries[0].seq}"
                )
            if self._codec is not None:
                _check_encoded(entries)
            held.tail = entries[-1].seq
            held.pending.extend(entries)
        if status is not None:
            held.status = status
            held.releases = held.releases or status != "running"
        self._queued[id(held)] = held
        if len(held.pending) >= MAX_QUEUED:
            if held.header is not None:
                _begin_lease(held, held.header, self._clock)
            self._queued.pop(id(held), None)
            self._writer.submit(Append(held))

    def append_end(
        self,
        claim: Claim,
        entries: Sequence[Entry],
        *,
        status: str,
        due: Sequence[NewRun],
    ) -> None:
        """Queue the last entries of a run, and the runs that are due after it, for one transaction."""
        if self._codec is not None:
            _check_encoded([entry for new in due for entry in new.entries])
        check_claim(self._file, claim).due = encode_due(self._codec, due)
        self.append(claim, entries, status=status)

    async def barrier(self, claim: Claim) -> None:
        """Wait until all entries queued under this claim are on disk."""
        held = check_claim(self._file, claim)
        if held.header is not None:
            _begin_lease(held, held.header, self._clock)
        self._queued.pop(id(held), None)
        await self._writer.complete(Append(held))

    def read(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return durable entries of a run, oldest first: all, or `limit` of them after a number, or the `last`."""
        check_range(run_id, after, limit, last)
        found = None
        with self._file.reading() as connection:
            info = None if connection is None else read_info(connection, run_id)
            if connection is not None and info is not None:
                if last is not None:
                    after = max(after, info.head_seq - last)
                found = read_range(connection, info, after, limit, self._codec)
        if found is None:
            raise build_unknown_run(self._file, run_id)
        entries, damage = found
        if damage:  # changed entries must not be acted on
            raise JournalError(
                f"journal {str(self._file.path)!r}: run {run_id!r}: {damage}; verify it for more"
            )
        return entries

    def runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first: `limit` of them that began before the run `before`.

        A run whose row was damaged is listed with its `damage`. Raises `UnknownRun` for a `before` that is not there.
        """
        check_page(limit, before, where)
        check_flags(unfinished=unfinished)
        query = RunQuery(where, unfinished=unfinished)
        with self._file.reading() as connection:
            found = [] if connection is None else query.read(connection, limit, before)
        return [show_options(self._codec, info) for info in found]

    def count_runs(self, where: RunFilter | None = None) -> dict[str, int]:
        """Return the number of runs by status."""
        check_page(None, None, where)
        with self._file.reading() as connection:
            return {} if connection is None else RunQuery(where).count(connection)

    def head_mark(self) -> object:
        """Return a value that compares differently once an entry or a renewal was written to any run; costs microseconds."""
        return mark_files(self._file.path)

    def news(self, after: int) -> tuple[int, frozenset[str]]:
        """Return the number of the last entry, and the runs that got one since this returned the number `after`."""
        check_whole("after", after)
        with self._file.reading() as connection:
            found = None if connection is None else read_news(connection, after)
        return found or (0, frozenset())

    def verify(
        self, run_id: str, head: str | None = None, *, policy: bool = False
    ) -> Verification:
        """Check every field of a run's entries, that none is missing, and that the chain ends in its head.

        With `policy`, also that the last decision about each call that was started allows it: the same tool with the
        same arguments.
        """
        check_verify(run_id, head, policy)
        with self._file.reading() as connection:
            found = None
            if connection is not None:
                found = verify_run(
                    connection, run_id, head, policy=policy, codec=self._codec
                )
        if found is None:
            raise build_unknown_run(self._file, run_id)
        return found

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox; durable on return, also with `synchronous="NORMAL"`."""
        check_run_id(run_id)
        encoded = encode_command_body(kind, body)
        if self._closed:
            raise self._writer.build_closed_error()
        with self._file.reading() as connection:
            tags = None if connection is None else find_tags(connection, run_id)
            if connection is not None and self._codec is None:
                refuse_plain(connection)
        if tags is None:
            raise build_unknown_run(self._file, run_id)
        tenant = tags.get(TENANT_TAG, "")
        return self._inbox.add(run_id, self._clock.wall(), kind, encoded, tenant)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the durable commands to a run, oldest first."""
        check_run_id(run_id)
        check_whole("after", after)
        return self._inbox.read(run_id, after)

    def inbox_mark(self) -> object:
        """Return the times and sizes of the inbox file and its log."""
        return self._inbox.mark()

    def inbox_news(self, after: int) -> tuple[int, frozenset[str]]:
        """Return the id of the last command to any run, and the runs that got a command after the id `after`."""
        check_whole("after", after)
        return self._inbox.news(after)

    # --- upkeep ---

    @property
    def id(self) -> str:
        """Return the id of this journal, which its copies share and the idempotency keys of its runs begin with."""
        return self._upkeep.read_id()

    async def new_id(self) -> str:
        """Give the journal a new id, as a copy needs that continues as a second journal; return it."""
        return await self._upkeep.change_id()

    async def delete(
        self,
        run_id: str,
        *,
        cascade: bool = False,
        abort: bool = False,
        deleted_by: str = "",
    ) -> list[str]:
        """Delete a run with its entries, commands and tags; return the ids that are gone.

        A tombstone keeps the hash of the name, the run's head, who deleted it and when, so that the name is not used
        again. What the run occupied in the files is overwritten.

        Args:
            run_id: the run. One at work is `RunBusy`.
            cascade: whether to delete the runs that continue it too; without, they are named in a `ConfigError`.
            abort: whether to abort a run at work first, and wait for its end.
            deleted_by: who deletes it; by default this process.
        """
        check_run_id(run_id)
        check_flags(cascade=cascade, abort=abort)
        return await self._upkeep.delete(
            run_id, cascade=cascade, abort=abort, deleted_by=deleted_by
        )

    async def prune(
        self,
        *,
        older_than: float | None = None,
        status: str | Sequence[str] | None = None,
        keep: int | None = None,
        deleted_by: str = "",
    ) -> list[str]:
        """Delete runs that have ended; return their ids. A thread is deleted as a whole or not at all.

        Args:
            older_than: seconds since a run began, at least.
            status: one status or several; by default all of ended runs. A status of runs that have not ended is a
                `ConfigError`.
            keep: the number of the newest threads that are kept, whatever their age.
            deleted_by: who deletes them; by default this process.
        """
        return await self._upkeep.prune(older_than, status, keep, deleted_by)

    async def export(
        self,
        path: str | os.PathLike[str],
        run_ids: Sequence[str] = (),
        *,
        where: RunFilter | None = None,
    ) -> list[str]:
        """Write runs into a new file of JSON Lines, with those that they continue; return their ids.

        Give the runs' ids or a filter. A run at work is `RunBusy`.
        """
        return await self._upkeep.export(path, run_ids, where)

    async def import_(self, path: str | os.PathLike[str]) -> list[str]:
        """Put the runs of an export into this journal, all of them or none; return their ids.

        Raises `JournalError` for a damaged export, and `ConfigError` if a name is taken or was deleted, or if the run
        that one of them continues is missing. Idempotency keys stay those of the journal that the runs began in.
        """
        return await self._upkeep.import_(path)

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy one state of the journal and of its inbox to a new path, while runs are at work."""
        await self._upkeep.backup(path)

    async def close(self) -> None:
        """Make all queued entries durable, close file and thread; a closed journal is read-only."""
        failure: LoopwrightError | None = None
        self._closed = True
        for claim in list(self._queued.values()):
            try:
                await self.barrier(claim)
            except LoopwrightError as error:
                failure = failure or error
        await self._writer.close()
        if failure is not None:
            raise failure


def _check_options(synchronous: str, busy_timeout: float, retry_timeout: float) -> None:
    if synchronous not in ("FULL", "NORMAL"):
        raise ConfigError(
            f"SQLiteJournal: synchronous must be 'FULL' or 'NORMAL', got {synchronous!r}"
        )
    if not 0 < busy_timeout <= 86_400:
        raise ConfigError(
            f"SQLiteJournal: busy_timeout must be seconds above 0 up to a day, got {busy_timeout!r}"
        )
    is_time = isinstance(retry_timeout, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (is_time and 0 <= retry_timeout <= 86_400):
        raise ConfigError(
            f"SQLiteJournal: retry_timeout must be seconds from 0 up to a day, got {retry_timeout!r}"
        )


def _check_encoded(entries: Sequence[Entry]) -> None:
    """Raise `JournalError` for entries that would be stored as they are, though a codec is to encode them."""
    for entry in entries:
        if not entry.body.startswith(MARK):
            raise JournalError(
                f"run {entry.run_id!r}: entry {entry.seq} is not encoded; make its body with encode_body(claim.codec, ...)"
            )


def _begin_lease(claim: SQLiteClaim, header: RunHeader, clock: Clock) -> None:
    """Let the lease of a new run begin, with its first entries."""
    claim.given = Lease.begin(header.lease, ClockReading.take(clock))
    claim.lease_until = claim.given.lease_until
