"""Claim the next of many runs of a SQLite journal in one transaction, and return such a claim."""

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from ...clock import Clock, ClockReading
from ...errors import JournalError
from ...events.payloads import Codec
from ..base import Claim, RunInfo
from ..batch_claims import is_as_listed
from ..claims import LeaseWatch, find_ending, is_claimable
from ..leases import Lease
from .file import JournalFile
from .jobs import Job, Row, SQLiteClaim, check_claim, store_claim
from .reader import read_info
from .writer import Writer

_RETURN = """UPDATE runs SET fence = fence + 1, status = ?, owner = ?, wake_at = ?, lease_until = ?, lease_seconds = ?,
                   lease_beat = ?, boot_id = ? WHERE run_id = ? AND fence = ? AND head_seq = ?"""


class SQLiteBatchClaims:
    """Claims many runs of a file in one transaction; see `BatchClaims`."""

    def __init__(
        self,
        file: JournalFile,
        writer: Writer,
        clock: Clock,
        watch: LeaseWatch,
        codec: Codec | None,
    ) -> None:
        self._file, self._writer, self._clock = file, writer, clock
        self._watch, self._codec = watch, codec

    async def claim_next(
        self,
        runs: Sequence[RunInfo],
        owners: Sequence[str],
        *,
        lease: float | None = None,
    ) -> list[SQLiteClaim]:
        """Claim the first runs that are free and as they were listed, one for each owner; durable on return."""
        if not self._file.exists():
            return []
        build = functools.partial(SQLiteClaim, file=self._file, codec=self._codec)
        job = ClaimNext(runs, owners, lease, self._clock, self._watch, build)
        try:
            await self._writer.complete(job)
        except asyncio.CancelledError:
            # Its caller cannot know of the claims. The writer does this behind them.
            with contextlib.suppress(JournalError):
                self._writer.submit(UndoClaims(job))
            raise
        return job.claims

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        """Return a claim under which nothing was written, so that the run is as it was listed but for its fence."""
        job = ReturnClaim(check_claim(self._file, claim), run)
        await self._writer.complete(job)


class ClaimNext(Job):
    """Claim the first runs that are free and as they were listed; `claims` are valid once the job is durable."""

    def __init__(
        self,
        runs: Sequence[RunInfo],
        owners: Sequence[str],
        lease: float | None,
        clock: Clock,
        watch: LeaseWatch,
        build_claim: Callable[..., SQLiteClaim],
    ) -> None:
        super().__init__()
        self.claims: list[SQLiteClaim] = []
        self._runs, self._owners, self._lease = runs, owners, lease
        self._clock, self._watch, self._build_claim = clock, watch, build_claim

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Claim one run after the other until each owner has one."""
        if self.is_repeated and self._is_made(cursor):
            return
        self.claims = []
        given = Lease.begin(self._lease, ClockReading.take(self._clock))
        for listed in self._runs:
            if len(self.claims) == len(self._owners):
                break
            info = _read_readable(cursor, listed.run_id)
            if info is None or not self._is_free(info, listed):
                continue
            claim = self._build_claim(info.run_id, fence=0)
            claim.after = find_ending(info, self._watch)
            owner = self._owners[len(self.claims)]
            store_claim(cursor, claim, info, owner, given)
            self.claims.append(claim)

    def _is_free(self, info: RunInfo, listed: RunInfo) -> bool:
        return is_as_listed(info, listed) and is_claimable(info, self._watch)

    def _is_made(self, cursor: sqlite3.Cursor) -> bool:
        """Return whether a transaction of this job is durable: then it made all of its claims."""
        return next(self.find_made(cursor), None) is not None

    def find_made(
        self, cursor: sqlite3.Cursor
    ) -> Iterator[tuple[SQLiteClaim, RunInfo]]:
        """Yield the claims that still have their runs, each with the run as it was listed."""
        listed = {info.run_id: info for info in self._runs}
        for claim, owner in zip(self.claims, self._owners, strict=False):
            info = _read_readable(cursor, claim.run_id)
            if info is not None and (info.owner, info.fence) == (owner, claim.fence):
                yield claim, listed[claim.run_id]


class UndoClaims(Job):
    """Return the claims of a job whose task was cancelled, if it made any."""

    def __init__(self, job: ClaimNext) -> None:
        super().__init__()
        self._job = job

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Set the rows to what they were."""
        for claim, run in self._job.find_made(cursor):
            ReturnClaim(claim, run).write(cursor, rows)


class ReturnClaim(Job):
    """Return a claim under which nothing was written; do nothing if another owner has the run."""

    def __init__(self, claim: SQLiteClaim, run: RunInfo) -> None:
        super().__init__()
        self._claim, self._run = claim, run

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Set the row to what it was; the fence grows, so that a repeated job finds another one."""
        run, claim = self._run, self._claim
        lease = run.lease_until, run.lease_seconds, run.lease_beat, run.boot_id
        before = run.status, run.owner, run.wake_at, *lease
        cursor.execute(_RETURN, (*before, claim.run_id, claim.fence, run.head_seq))


def _read_readable(cursor: sqlite3.Cursor, run_id: str) -> RunInfo | None:
    """Return the row of a run; `None` if it is gone or was made unreadable, since others are to be claimed."""
    with contextlib.suppress(JournalError):
        return read_info(cursor.connection, run_id)
    return None
