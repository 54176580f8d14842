"""The jobs of a SQLite journal's writer: append to a run, claim one, or renew a lease."""

import abc
import asyncio
import contextlib
import hashlib
import math
import operator
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from ..._internal import dataclasses
from ...clock import Clock, ClockReading
from ...errors import ConfigError, Fenced, JournalError, LoopwrightError, UnknownRun
from ...events.entry import Entry
from ...events.request_records import ContentStored
from ...principals import TENANT_TAG
from ..base import (
    TURN_PREFIX,
    Claim,
    EarlierRunGone,
    NewRun,
    RunHeader,
    RunIdDeleted,
    RunInfo,
    format_earlier_gone,
    format_id_taken,
    format_thread_taken,
)
from ..claims import LeaseWatch, ensure_claimable, find_ending, get_claimed_status
from ..leases import Lease
from ..listing import encode_tags
from ..retention import format_name_deleted, hash_name
from .codec import guard_file
from .reader import REFERENCE, read_info

MAX_INLINE_BYTES = 64 * 1024
"""Longer bodies go to the table `blobs`."""
MAX_INLINE_CONTENT = 256
"""The same for what requests refer to, such as the tools, which many runs hold."""

Row: TypeAlias = tuple[object, ...]

INSERT_EVENT = """INSERT INTO events (run_id, seq, key, kind, at, v, fence, body, hash)
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_RUN = """INSERT INTO runs (run_id, engine, options, version, owner, created, parent_run, fork_seq,
                                   app_version, thread, agent, follows, tags, fence,
                                   lease_until, lease_seconds, lease_beat, boot_id, status, head_seq, head_hash)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 0, '')
                 ON CONFLICT (run_id) DO NOTHING"""
_INSERT_TAG = "INSERT INTO run_tags (run_id, name, value) VALUES (?, ?, ?)"
_IS_DELETED = "SELECT 1 FROM tombstones WHERE name_hash = ?"
_MOVE_HEAD = "UPDATE runs SET head_seq = ?, head_hash = ? WHERE run_id = ? AND fence = ? AND head_seq = ?"
_SET_STATUS = "UPDATE runs SET status = ? WHERE run_id = ?"
_RELEASE = """UPDATE runs SET status = ?, owner = NULL, lease_until = NULL, lease_seconds = NULL, wake_at = ?
              WHERE run_id = ?"""
_FENCE = "SELECT fence, owner, head_seq FROM runs WHERE run_id = ?"
# A blob that exists has the right bytes unless they were tampered with: then this restores them.
_INSERT_BLOB = """INSERT INTO blobs (sha256, bytes) VALUES (?, ?)
                  ON CONFLICT (sha256) DO UPDATE SET bytes = excluded.bytes WHERE bytes IS NOT excluded.bytes"""
_CLAIM = """UPDATE runs SET fence = fence + 1, wake_at = 0, owner = ?, lease_until = ?, lease_seconds = ?,
                   lease_beat = ?, boot_id = ?, status = ? WHERE run_id = ?"""
_RENEW = """UPDATE runs SET lease_until = ?, lease_seconds = ?, lease_beat = ?, boot_id = ?
            WHERE run_id = ? AND fence = ? AND owner IS NOT NULL"""

_HAS_ENTRY = "SELECT 1 FROM events WHERE run_id = ? AND seq = ? AND hash = ?"
_HAS_TURN = f"SELECT 1 FROM runs WHERE thread = ? AND thread != '' AND run_id GLOB '{TURN_PREFIX}*'"  # noqa: S608 - a constant
_HAS_RUN = "SELECT 1 FROM runs WHERE run_id = ? AND owner = ?"

_columns = operator.attrgetter(
    "run_id", "seq", "key", "kind", "at", "v", "fence", "body", "hash"
)
_body, _kind = operator.attrgetter("body"), operator.attrgetter("kind")


@dataclasses.dataclass(eq=False)
class SQLiteClaim(Claim):
    """A claim with the entries that are queued under it and not yet submitted to the writer.

    `file` is the journal it belongs to, `tail` the number of the last queued entry, `failure` the error that every
    later use raises. `given` is its lease. `due` are the runs to store with these entries.
    """

    file: object = None
    given: Lease = dataclasses.field(default_factory=Lease)
    tail: int = 0
    pending: list[Entry] = dataclasses.field(default_factory=list[Entry])
    status: str | None = None
    releases: bool = False
    due: Sequence[NewRun] = ()
    failure: LoopwrightError | None = None


class Job(abc.ABC):
    """A write. `failure` is set if it fails; `waiter`, if a task waits for it, is woken in either case."""

    waiter: asyncio.Future[None] | None = None

    def __init__(self) -> None:
        self.failure: LoopwrightError | None = None
        self.began = time.monotonic()
        self.is_repeated = False
        """Whether it was tried before, so that its transaction may be durable although its end was not seen."""

    @property
    def held_until(self) -> float:
        """Return the end of the lease under which it writes (boot clock, seconds); infinite without one."""
        return math.inf

    @abc.abstractmethod
    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Write inside the open transaction and add the rows for `events`; raise before changing anything.

        Do nothing if the job is repeated and was durable already.
        """

    def fail(self, failure: LoopwrightError) -> None:
        """Record that the write failed."""
        self.failure = failure


class Append(Job):
    """Append the queued entries of a claim and set the run's new status; without both, check the fence."""

    def __init__(self, claim: SQLiteClaim) -> None:
        super().__init__()
        self._claim = claim
        self._entries, self._header = claim.pending, claim.header
        self._status, self._releases = claim.status, claim.releases
        # The current tail: the event loop may queue more before the thread starts this job.
        self._tail = claim.tail
        self._wake_at, self._due = claim.wake_at, claim.due
        self._given = claim.given
        if claim.releases:
            claim.lease_until = None
        claim.pending, claim.header = [], None
        claim.status, claim.releases, claim.due = None, False, ()

    @property
    def held_until(self) -> float:
        """Return the end of the claim's lease."""
        return self._claim.given.boot_end

    def fail(self, failure: LoopwrightError) -> None:
        """Refuse everything that follows under this claim."""
        self.failure = failure
        self._claim.failure = self._claim.failure or failure

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Check fence and head, move the head, and add the rows."""
        claim, entries = self._claim, self._entries
        if claim.failure is not None:
            raise copy_error(claim.failure)
        if self.is_repeated and self._is_made(cursor):
            return
        if self._header is not None:
            guard_file(claim.codec, cursor)
            _insert_run(cursor, self._header, claim.fence, self._given)
        if not entries:
            _check_head(cursor, claim, self._tail)
        else:
            guard_file(claim.codec, cursor)
            last, before = entries[-1], entries[0].seq - 1
            cursor.execute(
                _MOVE_HEAD, (last.seq, last.hash, claim.run_id, claim.fence, before)
            )
            if cursor.rowcount != 1:
                _check_head(cursor, claim, before)
            rows.extend(_to_rows(cursor, entries))
        if self._releases:
            cursor.execute(_RELEASE, (self._status, self._wake_at, claim.run_id))
        elif self._status is not None:
            cursor.execute(_SET_STATUS, (self._status, claim.run_id))
        insert_due(cursor, self._due, rows)

    def _is_made(self, cursor: sqlite3.Cursor) -> bool:
        """Return whether the chain holds the last entry, with its hash, or a run without entries its owner.

        Raise `Fenced` if another owner took over since, unless the run was released.
        """
        run_id = self._claim.run_id
        if self._entries:
            last = self._entries[-1]
            is_made = has_entry(cursor, run_id, last.seq, last.hash)
        else:
            owner = self._header.owner if self._header else None
            found = cursor.execute(_HAS_RUN, (run_id, owner))
            is_made = found.fetchone() is not None
        if is_made and not self._releases:
            _read_head(cursor, self._claim)
        return is_made


def _insert_run(
    cursor: sqlite3.Cursor, header: RunHeader, fence: int, lease: Lease
) -> None:
    refuse_deleted_name(cursor, header.run_id)
    if header.follows and header.follows_entry:
        _check_earlier(cursor, header.follows, *header.follows_entry)
    if header.first_turn and cursor.execute(_HAS_TURN, (header.thread,)).fetchone():
        raise ConfigError(format_thread_taken(header.thread))
    row = (
        header.run_id,
        header.engine,
        header.options,
        header.version,
        header.owner,
        header.created,
        header.parent_run,
        header.fork_seq,
        header.app_version,
        header.thread,
        header.agent,
        header.follows,
        encode_tags(header.tags),
        fence,
        *lease.fields.values(),
    )
    cursor.execute(_INSERT_RUN, row)
    if cursor.rowcount != 1:
        raise ConfigError(format_id_taken(header.run_id))
    insert_tags(cursor, header.run_id, header.tags)


def _check_earlier(cursor: sqlite3.Cursor, run_id: str, seq: int, hash: str) -> None:
    if not has_entry(cursor, run_id, seq, hash):
        raise EarlierRunGone(format_earlier_gone(run_id))


def insert_due(cursor: sqlite3.Cursor, due: Sequence[NewRun], rows: list[Row]) -> None:
    """Insert the runs that are due after a run, unless their ids are taken."""
    for new in due:
        # A run that a person had retried ends twice.
        with contextlib.suppress(ConfigError):
            _insert_released(cursor, new, rows)


def _insert_released(cursor: sqlite3.Cursor, new: NewRun, rows: list[Row]) -> None:
    """Insert a whole run that no process works on; raise `ConfigError` if its id is taken or was deleted."""
    header, last = new.header, new.entries[-1]
    # The entry that it follows is one of those that are stored with it.
    _insert_run(cursor, dataclasses.replace(header, follows_entry=None), 1, Lease())
    cursor.execute(_MOVE_HEAD, (last.seq, last.hash, header.run_id, 1, 0))
    cursor.execute(_RELEASE, ("released", 0.0, header.run_id))
    rows.extend(_to_rows(cursor, new.entries))


def has_entry(cursor: sqlite3.Cursor, run_id: str, seq: int, hash: str) -> bool:
    """Return whether a run has an entry with that number and that hash."""
    return cursor.execute(_HAS_ENTRY, (run_id, seq, hash)).fetchone() is not None


def insert_tags(cursor: sqlite3.Cursor, run_id: str, tags: Mapping[str, str]) -> None:
    """Insert the tags of a run, by which it is found."""
    rows = [(run_id, name, value) for name, value in tags.items()]
    cursor.executemany(_INSERT_TAG, rows)


def refuse_deleted_name(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Raise `RunIdDeleted` if a run of that id was deleted."""
    if cursor.execute(_IS_DELETED, (hash_name(run_id),)).fetchone() is not None:
        raise RunIdDeleted(format_name_deleted(run_id))


def _check_head(cursor: sqlite3.Cursor, claim: SQLiteClaim, head_seq: int) -> None:
    """Raise `Fenced` unless the run belongs to this claim and its head has not moved."""
    head = _read_head(cursor, claim)
    if head != head_seq:
        raise Fenced(
            f"run {claim.run_id!r} has {head} entries where this worker left {head_seq}: another one wrote it"
        )


def _read_head(cursor: sqlite3.Cursor, claim: Claim) -> int:
    """Return the number of the run's last entry; raise `Fenced` unless the run belongs to this claim."""
    found: tuple[int, str | None, int] | None = cursor.execute(
        _FENCE, (claim.run_id,)
    ).fetchone()
    if found is None:
        raise Fenced(f"run {claim.run_id!r} is gone from the journal: it was removed")
    fence, owner, head = found
    if fence != claim.fence:
        raise Fenced(f"run {claim.run_id!r} was taken over by {owner}")
    return head


def _to_rows(cursor: sqlite3.Cursor, entries: Sequence[Entry]) -> Iterable[Row]:
    largest = max(map(len, map(_body, entries)))
    if largest <= MAX_INLINE_BYTES and ContentStored.kind not in map(_kind, entries):
        return map(_columns, entries)
    return [to_row(cursor, entry) for entry in entries]


def to_row(cursor: sqlite3.Cursor, entry: Entry) -> Row:
    """Return the row of an entry; a large body, and what many runs may hold, is stored by its hash."""
    row: Row = _columns(entry)
    limit = MAX_INLINE_BYTES
    if entry.kind == ContentStored.kind:
        limit = MAX_INLINE_CONTENT
    if len(entry.body) <= limit:
        return row
    digest = hashlib.sha256(entry.body).hexdigest()
    cursor.execute(_INSERT_BLOB, (digest, entry.body))
    return (*row[:7], REFERENCE + digest, row[8])


class ClaimRun(Job):
    """Claim a run for an owner; `claim` is valid once the job is durable."""

    def __init__(
        self,
        claim: SQLiteClaim,
        owner: str,
        take_over: bool,
        lease: float | None,
        clock: Clock,
        watch: LeaseWatch,
    ) -> None:
        super().__init__()
        self.claim, self._watch = claim, watch
        self._owner, self._take_over = owner, take_over
        self._lease, self._clock = lease, clock

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Fence the old owner off unless it may be at work."""
        claim = self.claim
        info = read_info(cursor.connection, claim.run_id)
        if info is None:
            raise UnknownRun(f"no run {claim.run_id!r} in this journal")
        is_made = (info.owner, info.fence) == (self._owner, claim.fence)
        if self.is_repeated and is_made:
            return
        ensure_claimable(info, self._take_over, self._watch)
        given = Lease.begin(self._lease, ClockReading.take(self._clock))
        claim.after = find_ending(info, self._watch)
        store_claim(cursor, claim, info, self._owner, given)


def store_claim(
    cursor: sqlite3.Cursor, claim: SQLiteClaim, info: RunInfo, owner: str, given: Lease
) -> None:
    """Give a run to an owner, with that lease; `claim` is then the right to write it."""
    status = get_claimed_status(info)
    cursor.execute(_CLAIM, (owner, *given.fields.values(), status, claim.run_id))
    claim.fence, claim.lease_until = info.fence + 1, given.lease_until
    claim.given = given
    claim.head_seq, claim.head_hash = info.head_seq, info.head_hash
    claim.tail, claim.tenant = info.head_seq, info.tags.get(TENANT_TAG, "")


class Renew(Job):
    """Extend a lease; `given` is the new one, without an end if the run was released.

    The claim stays valid if the job fails.
    """

    def __init__(self, claim: SQLiteClaim, lease: float, clock: Clock) -> None:
        super().__init__()
        self._claim, self._lease, self._clock = claim, lease, clock
        self.given = Lease()

    @property
    def held_until(self) -> float:
        """Return the end of the lease that is renewed."""
        return self._claim.given.boot_end

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Move the end of the lease if the claim still has the run."""
        claim = self._claim
        given = Lease.begin(self._lease, ClockReading.take(self._clock))
        cursor.execute(_RENEW, (*given.fields.values(), claim.run_id, claim.fence))
        if cursor.rowcount != 1:
            _read_head(cursor, claim)
            given = Lease()
        self.given = given


def copy_error(failure: LoopwrightError) -> LoopwrightError:
    """Return a copy to raise: one object raised in many tasks would collect all their tracebacks."""
    copy = type(failure)(*failure.args)
    copy.__cause__ = failure.__cause__
    return copy


def check_claim(file: object, claim: Claim) -> SQLiteClaim:
    """Return a claim to a run of that file; raise `JournalError` for any other, and the error of one that failed."""
    if not isinstance(claim, SQLiteClaim) or claim.file is not file:
        raise JournalError(
            f"run {claim.run_id!r}: this claim was given by another journal"
        )
    if claim.failure is not None:
        raise copy_error(claim.failure)
    return claim
