"""What the writer of a SQLite journal is asked to do: append to a run, take one up, or renew a lease."""

import asyncio
import dataclasses
import hashlib
import operator
import sqlite3
from typing import Protocol, TypeAlias

from ...clock import Clock
from ...errors import ConfigError, Fenced, JournalError, LoopwrightError, UnknownRun
from ...events.entry import Entry
from ..base import Claim, RunHeader, ensure_free, lease_end, status_of_claimed, taken
from .reader import REFERENCE, read_info

BLOB_BYTES = 64 * 1024
"""Bodies longer than this go to the table `blobs`."""

Row: TypeAlias = tuple[object, ...]

INSERT_EVENT = """INSERT INTO events (run_id, seq, key, kind, at, v, fence, body, hash)
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_RUN = """INSERT INTO runs (run_id, engine, options, version, owner, created, parent_run, fork_seq,
                                   fence, lease_until, status, head_seq, head_hash)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 0, '') ON CONFLICT (run_id) DO NOTHING"""
_MOVE_HEAD = "UPDATE runs SET head_seq = ?, head_hash = ? WHERE run_id = ? AND fence = ? AND head_seq = ?"
_SET_STATUS = "UPDATE runs SET status = ? WHERE run_id = ?"
_FREE = "UPDATE runs SET status = ?, owner = NULL, lease_until = NULL WHERE run_id = ?"
_FENCE = "SELECT fence, owner, head_seq FROM runs WHERE run_id = ?"
# A blob that is there already has the right bytes, unless somebody changed them: then this makes it whole again.
_INSERT_BLOB = """INSERT INTO blobs (sha256, bytes) VALUES (?, ?)
                  ON CONFLICT (sha256) DO UPDATE SET bytes = excluded.bytes WHERE bytes IS NOT excluded.bytes"""
_TAKE_UP = "UPDATE runs SET fence = fence + 1, owner = ?, lease_until = ?, status = ? WHERE run_id = ?"
_RENEW = "UPDATE runs SET lease_until = ? WHERE run_id = ? AND fence = ? AND owner IS NOT NULL"

_columns = operator.attrgetter(
    "run_id", "seq", "key", "kind", "at", "v", "fence", "body", "hash"
)
_body = operator.attrgetter("body")


@dataclasses.dataclass(eq=False)
class SQLiteClaim(Claim):
    """A claim with what was handed over under it and is not yet on its way to the file.

    `file` is the journal it belongs to, `tail` the number of the last entry handed over, `failure` what every
    later use meets.
    """

    file: object = None
    tail: int = 0
    pending: list[Entry] = dataclasses.field(default_factory=list[Entry])
    status: str | None = None
    frees: bool = False
    failure: LoopwrightError | None = None


class Waiter:
    """A task that waits in an event loop, which may be gone when the time comes."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()


class Job(Protocol):
    """Something to write. `failure` is set once it cannot be done; `waiter`, if any, is woken either way."""

    waiter: Waiter | None
    failure: LoopwrightError | None

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Write inside the open transaction, gathering the rows for `events`; raises before anything is changed."""
        ...

    def fail(self, failure: LoopwrightError) -> None:
        """It could not be done."""
        ...


class Append:
    """The entries that a claim has gathered, and the run's new status if any; with neither, a check of the fence."""

    __slots__ = (
        "_claim",
        "_entries",
        "_frees",
        "_header",
        "_lease_until",
        "_status",
        "_tail",
        "failure",
        "waiter",
    )

    def __init__(self, claim: SQLiteClaim, waiter: Waiter | None) -> None:
        self._claim, self.waiter = claim, waiter
        self._entries, self._status, self._frees, self._header = (
            claim.pending,
            claim.status,
            claim.frees,
            claim.header,
        )
        self._tail = claim.tail  # as it is now: the loop may hand over more before the thread comes to this job
        self._lease_until = claim.lease_until
        if claim.frees:
            claim.lease_until = None
        claim.pending, claim.status, claim.frees, claim.header = [], None, False, None
        self.failure: LoopwrightError | None = None

    def fail(self, failure: LoopwrightError) -> None:
        """From now on nothing can follow under this claim."""
        self.failure = failure
        self._claim.failure = self._claim.failure or failure

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Check fence and head, move the head, gather the rows."""
        claim, entries = self._claim, self._entries
        if claim.failure is not None:
            raise again(claim.failure)
        if self._header is not None:
            _begin(cursor, self._header, claim.fence, self._lease_until)
        if not entries:
            _check(cursor, claim, self._tail)
        else:
            last, before = entries[-1], entries[0].seq - 1
            cursor.execute(
                _MOVE_HEAD, (last.seq, last.hash, claim.run_id, claim.fence, before)
            )
            if cursor.rowcount != 1:
                _check(cursor, claim, before)
            large = max(map(len, map(_body, entries))) > BLOB_BYTES
            rows.extend(
                [_with_blob(cursor, entry) for entry in entries]
                if large
                else map(_columns, entries)
            )
        if self._status is not None:
            cursor.execute(
                _FREE if self._frees else _SET_STATUS, (self._status, claim.run_id)
            )


def _begin(
    cursor: sqlite3.Cursor, header: RunHeader, fence: int, lease_until: float | None
) -> None:
    fields = (
        header.run_id,
        header.engine,
        header.options,
        header.version,
        header.owner,
        header.created,
    )
    cursor.execute(
        _INSERT_RUN, (*fields, header.parent_run, header.fork_seq, fence, lease_until)
    )
    if cursor.rowcount != 1:
        raise ConfigError(taken(header.run_id))


def _check(cursor: sqlite3.Cursor, claim: SQLiteClaim, head_seq: int) -> None:
    """Raise `Fenced` unless the run is still this claim's, with its head where the claim left it."""
    head = _head(cursor, claim)
    if head != head_seq:
        raise Fenced(
            f"run {claim.run_id!r} has {head} entries where this worker left {head_seq}: another one wrote it"
        )


def _head(cursor: sqlite3.Cursor, claim: Claim) -> int:
    """The number of the run's last entry; raises `Fenced` unless the run is still this claim's."""
    found: tuple[int, str | None, int] | None = cursor.execute(
        _FENCE, (claim.run_id,)
    ).fetchone()
    if found is None:
        raise Fenced(
            f"run {claim.run_id!r} is gone from the journal: somebody removed it"
        )
    fence, owner, head = found
    if fence != claim.fence:
        raise Fenced(f"run {claim.run_id!r} was taken over by {owner}")
    return head


def _with_blob(cursor: sqlite3.Cursor, entry: Entry) -> Row:
    row: Row = _columns(entry)
    if len(entry.body) <= BLOB_BYTES:
        return row
    digest = hashlib.sha256(entry.body).hexdigest()
    cursor.execute(_INSERT_BLOB, (digest, entry.body))
    return (*row[:7], REFERENCE + digest, row[8])


class TakeUp:
    """A run to take up for a new owner; `claim` is the right to it once that is durable."""

    def __init__(
        self,
        claim: SQLiteClaim,
        owner: str,
        take_over: bool,
        lease: float | None,
        clock: Clock,
        waiter: Waiter,
    ) -> None:
        self.claim = claim
        self._owner, self._take_over, self._lease, self._clock = (
            owner,
            take_over,
            lease,
            clock,
        )
        self.waiter: Waiter | None = waiter
        self.failure: LoopwrightError | None = None

    def fail(self, failure: LoopwrightError) -> None:
        """There is no claim."""
        self.failure = failure

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Fence the old owner off, unless it may be at work."""
        claim, now = self.claim, self._clock.wall()
        lease_until = lease_end(self._lease, now)
        info = read_info(cursor.connection, claim.run_id)
        if info is None:
            raise UnknownRun(f"no run {claim.run_id!r} in this journal")
        try:
            ensure_free(info, self._take_over, now)
        except ValueError as error:
            raise JournalError(
                f"run {claim.run_id!r} has an owner that cannot be read, {info.owner!r}: pass take_over=True"
            ) from error
        cursor.execute(
            _TAKE_UP, (self._owner, lease_until, status_of_claimed(info), claim.run_id)
        )
        claim.fence, claim.head_seq, claim.head_hash = (
            info.fence + 1,
            info.head_seq,
            info.head_hash,
        )
        claim.tail, claim.lease_until = info.head_seq, lease_until


class Renew:
    """A lease to be put off; `lease_until` is its new end, None if the run was freed. The claim goes on if it fails."""

    def __init__(
        self, claim: SQLiteClaim, lease: float, clock: Clock, waiter: Waiter
    ) -> None:
        self._claim, self._lease, self._clock = claim, lease, clock
        self.lease_until: float | None = None
        self.waiter: Waiter | None = waiter
        self.failure: LoopwrightError | None = None

    def fail(self, failure: LoopwrightError) -> None:
        """The lease ends when it would have."""
        self.failure = failure

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Move the end of the lease, if the fence is still the claim's."""
        claim, until = self._claim, lease_end(self._lease, self._clock.wall())
        cursor.execute(_RENEW, (until, claim.run_id, claim.fence))
        if cursor.rowcount != 1:
            _head(cursor, claim)
            until = None
        self.lease_until = until


def again(failure: LoopwrightError) -> LoopwrightError:
    """The same error to raise once more: one object raised in many tasks would gather all their tracebacks."""
    fresh = type(failure)(*failure.args)
    fresh.__cause__ = failure.__cause__
    return fresh
