"""MemoryJournal: a journal that exists as long as the process."""

import contextlib
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence

from .._internal import dataclasses
from ..clock import Clock, ClockReading, SystemClock
from ..errors import ConfigError, Fenced, RunBusy, UnknownRun
from ..events.entry import Entry
from ..messages import JsonObject
from ..schedules.base import Schedule
from .arguments import (
    check_claim_arguments,
    check_flags,
    check_run_id,
    check_verify,
    check_whole,
)
from .base import (
    RESUMABLE,
    Claim,
    Command,
    EarlierRunGone,
    NewRun,
    RunHeader,
    RunInfo,
    Verification,
    check_history,
    decode_command_body,
    encode_command_body,
    format_earlier_gone,
    format_id_taken,
    format_thread_taken,
    is_turn_id,
    verify_chain,
)
from .batch_claims import is_as_listed
from .claims import LeaseWatch, ensure_claimable, find_ending, get_claimed_status
from .leases import Lease
from .listing import RunFilter, check_page, check_range, take_page
from .policy_check import check_policy
from .recorded_requests import RequestReader
from .retention import format_followed


@dataclasses.dataclass
class _Record:
    """A run in memory: a command is its time, kind and body, `changed_at` numbers its last append.

    `root` is the first of the runs that continue each other.
    """

    info: RunInfo
    entries: list[Entry] = dataclasses.field(default_factory=list[Entry])
    commands: list[tuple[float, str, bytes]] = dataclasses.field(
        default_factory=list[tuple[float, str, bytes]]
    )
    changed_at: int = 0
    root: str = ""


class MemorySchedules:
    """Keeps schedules in memory; see `ScheduleStore`."""

    def __init__(self, journal: "MemoryJournal") -> None:
        self._journal = journal
        self._known: dict[str, Schedule] = {}

    def read(self) -> list[Schedule]:
        """Return all schedules by name, those that were deleted too."""
        return [self._known[name] for name in sorted(self._known)]

    async def store(self, schedule: Schedule, due: NewRun | None = None) -> bool:
        """Store the next revision of a schedule, with the run that is due."""
        known = self._known.get(schedule.name)
        if schedule.revision != (known.revision if known else 0) + 1:
            return False
        self._known[schedule.name] = schedule
        _insert_due(self._journal, () if due is None else (due,))
        return True


class MemoryBatchClaims:
    """Claims many runs in memory in one step; see `BatchClaims`."""

    def __init__(self, journal: "MemoryJournal") -> None:
        self._journal = journal

    async def claim_next(
        self,
        runs: Sequence[RunInfo],
        owners: Sequence[str],
        *,
        lease: float | None = None,
    ) -> list[Claim]:
        """Claim the first runs that are free and as they were listed, one for each owner."""
        known = {info.run_id: info for info in self._journal.runs()}
        claims: list[Claim] = []
        for listed in runs:
            info = known.get(listed.run_id)
            if info is None or not is_as_listed(info, listed):
                continue
            if len(claims) == len(owners):
                break
            owner = owners[len(claims)]
            with contextlib.suppress(RunBusy):
                claim = await self._journal.claim(listed.run_id, owner, lease=lease)
                claims.append(claim)
        return claims

    async def return_claim(self, claim: Claim, run: RunInfo) -> None:
        """Return a claim under which nothing was written, so that the run is as it was listed but for its fence."""
        self._journal.restore(claim, run)


class MemoryJournal(RequestReader):
    """Keeps runs in the memory of the process; forgets the oldest finished ones beyond `keep_runs`.

    Runs that continue each other count as one, and are forgotten together.
    """

    def __init__(self, *, keep_runs: int = 1000, clock: Clock | None = None) -> None:
        is_count = type(keep_runs) is int
        if not is_count or keep_runs < 1:
            raise ConfigError(
                f"MemoryJournal: keep_runs must be at least 1, got {keep_runs!r}"
            )
        self._keep_runs = keep_runs
        self._clock = clock or SystemClock()
        self.lease_watch = LeaseWatch(self._clock)
        """Judges the leases of runs that are claimed."""
        self._runs: dict[str, _Record] = {}
        self._threads: dict[str, list[str]] = {}
        """The runs that continue each other, by the first of them."""
        self._ended: dict[str, None] = {}
        """The threads of which all runs have ended, in the order in which they did."""
        self.schedules = MemorySchedules(weakref.proxy(self))
        """The schedules of the journal, for `Runtime.schedules`."""
        self.batch_claims = MemoryBatchClaims(weakref.proxy(self))
        """Claims many runs in one step."""
        self._inbox_lock = threading.Lock()
        self._sent = self._appended = self._renewed = 0

    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run; raise `ConfigError` if the id exists already."""
        if header.run_id in self._runs:
            raise ConfigError(format_id_taken(header.run_id))
        until = self._begin_lease(header.lease).lease_until
        return Claim(header.run_id, fence=1, header=header, lease_until=until)

    def _begin_lease(self, seconds: float | None) -> Lease:
        return Lease.begin(seconds, ClockReading.take(self._clock))

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run for an owner."""
        check_claim_arguments(run_id, owner, take_over, lease)
        record, given = self._find(run_id), self._begin_lease(lease)
        ensure_claimable(record.info, take_over, self.lease_watch)
        after = find_ending(record.info, self.lease_watch)
        info = dataclasses.replace(
            record.info,
            fence=record.info.fence + 1,
            owner=owner,
            wake_at=0.0,
            status=get_claimed_status(record.info),
            **given.fields,
        )
        record.info = info
        self._renewed += 1
        return Claim(
            run_id,
            info.fence,
            info.head_seq,
            info.head_hash,
            lease_until=info.lease_until,
            after=after,
        )

    async def renew(self, claim: Claim, lease: float) -> None:
        """Extend the claim's lease."""
        given = self._begin_lease(lease)
        if claim.header is not None:
            return
        record = self._find_owned(claim)
        if record.info.owner is not None:
            record.info = dataclasses.replace(record.info, **given.fields)
            self._renewed += 1
        claim.lease_until = record.info.lease_until

    def restore(self, claim: Claim, run: RunInfo) -> None:
        """Let a run be as it was listed but for its fence, if it has that claim and nothing was written under it."""
        record = self._runs.get(claim.run_id)
        place = None if record is None else (record.info.fence, record.info.head_seq)
        if record is not None and place == (claim.fence, run.head_seq):
            record.info = dataclasses.replace(run, fence=claim.fence + 1)
            self._renewed += 1

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Store entries and the status."""
        if claim.header is not None:
            self._begin(claim, claim.header)
        record = self._find_owned(claim)
        if entries:
            self._appended += 1
            record.changed_at = self._appended
            head = entries[-1]
            record.entries.extend(entries)
            record.info = dataclasses.replace(
                record.info, head_seq=head.seq, head_hash=head.hash
            )
        if status is not None:
            self._set_status(record, claim, status)

    def append_end(
        self,
        claim: Claim,
        entries: Sequence[Entry],
        *,
        status: str,
        due: Sequence[NewRun],
    ) -> None:
        """Store the last entries of a run, and the runs that are due after it."""
        self.append(claim, entries, status=status)
        _insert_due(self, due)

    def _begin(self, claim: Claim, header: RunHeader) -> None:
        """Add the run of a claim."""
        if header.run_id in self._runs:
            raise ConfigError(format_id_taken(header.run_id))
        if header.first_turn:
            _check_first_turn(header.thread, self._runs)
        if header.follows and header.follows_entry:
            _check_earlier(self._runs, header.follows, *header.follows_entry)
        info = header.to_run_info(ClockReading.take(self._clock))
        earlier = self._runs.get(header.follows or "")
        root = header.run_id if earlier is None else earlier.root
        self._runs[header.run_id] = _Record(info, root=root)
        self._threads.setdefault(root, []).append(header.run_id)
        self._ended.pop(root, None)
        claim.header, claim.lease_until = None, info.lease_until

    def _set_status(self, record: _Record, claim: Claim, status: str) -> None:
        """Set the status; any but `running` releases the run, and too many ended runs are forgotten."""
        had_ended = record.info.status not in RESUMABLE
        record.info = dataclasses.replace(record.info, status=status)
        if status != "running":
            record.info = dataclasses.replace(
                record.info,
                owner=None,
                lease_until=None,
                lease_seconds=None,
                wake_at=claim.wake_at,
            )
            claim.lease_until = None
        is_over = status not in RESUMABLE
        if had_ended and not is_over:  # a person had it retried
            self._ended.pop(record.root, None)
        elif is_over and not had_ended:
            self._end(record.root)

    def _end(self, root: str) -> None:
        """Note that a run of a thread has ended or is gone, and forget the oldest thread of which all runs have."""
        thread = self._threads.get(root, [])
        if not thread:
            self._threads.pop(root, None)
            self._ended.pop(root, None)
            return
        if any(self._runs[one].info.status in RESUMABLE for one in thread):
            return
        self._ended[root] = None
        if len(self._ended) > self._keep_runs:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            for run_id in self._threads.pop(oldest):
                del self._runs[run_id]

    async def barrier(self, claim: Claim) -> None:
        """Raise `Fenced` if another owner took over; memory has nothing to wait for."""
        self._find_owned(claim)

    def read(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return entries of a run, oldest first: all, or `limit` of them after a number, or the `last`."""
        check_range(run_id, after, limit, last)
        entries = self._find(run_id).entries
        if last is not None:
            after = max(after, len(entries) - last)
        return entries[after : None if limit is None else after + limit]

    def runs(
        self,
        *,
        unfinished: bool = False,
        where: RunFilter | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[RunInfo]:
        """Return the runs that a filter selects, newest first: `limit` of them that began before the run `before`."""
        check_page(limit, before, where)
        check_flags(unfinished=unfinished)
        infos = [record.info for record in reversed(list(self._runs.values()))]
        if unfinished:
            infos = [info for info in infos if info.status in RESUMABLE]
        return take_page(infos, where, limit, before)

    def count_runs(self, where: RunFilter | None = None) -> dict[str, int]:
        """Return the number of runs by status."""
        return Counter(info.status for info in self.runs(where=where))

    def head_mark(self) -> object:
        """Return the numbers of appends, and of claims and renewals so far."""
        return self._appended, self._renewed

    def news(self, after: int) -> tuple[int, frozenset[str]]:
        """Return the number of the last append, and the runs that got entries since this returned the number `after`."""
        check_whole("after", after)
        changed = {
            run_id
            for run_id, record in list(self._runs.items())
            if record.changed_at > after
        }
        return self._appended, frozenset(changed)

    def verify(
        self, run_id: str, head: str | None = None, *, policy: bool = False
    ) -> Verification:
        """Check a run's chain; with `policy`, also that each call that was started was allowed as it is."""
        check_verify(run_id, head, policy)
        record = self._find(run_id)
        found = verify_chain(run_id, record.entries, record.info, head)

        def read(earlier: str) -> list[Entry]:
            known = self._runs.get(earlier)
            return [] if known is None else known.entries

        found = found.with_history(check_history(record.entries, read))
        return check_policy(found, record.entries) if policy else found

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox."""
        check_run_id(run_id)
        encoded, commands = encode_command_body(kind, body), self._find(run_id).commands
        with self._inbox_lock:
            commands.append((self._clock.wall(), kind, encoded))
            self._sent += 1
            return len(commands)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands sent to a run, oldest first."""
        check_run_id(run_id)
        check_whole("after", after)
        record = self._runs.get(run_id)
        if record is None:
            return []
        return [
            Command(number, run_id, at, kind, decode_command_body(encoded))
            for number, (at, kind, encoded) in enumerate(list(record.commands), 1)
            if number > after
        ]

    def inbox_mark(self) -> object:
        """Return the number of commands sent so far."""
        return self._sent

    async def delete(
        self,
        run_id: str,
        *,
        cascade: bool = False,
        abort: bool = False,
        deleted_by: str = "",
    ) -> list[str]:
        """Delete a run, with the runs that continue it if `cascade`; return the ids that are gone.

        Of a deleted run nothing is kept, so `deleted_by` is not, and its id can be used again. `abort` is refused.
        """
        check_run_id(run_id)
        check_flags(cascade=cascade, abort=abort)
        if abort:
            raise ConfigError("abort: abort the run by its control first")
        self._find(run_id)
        gone = [run_id]
        for name, record in self._runs.items():  # a run is behind the one it continues
            if record.info.follows in gone:
                gone.append(name)
        if len(gone) > 1 and not cascade:
            raise ConfigError(format_followed(run_id, gone[1:]))
        for name in gone:
            ensure_claimable(self._runs[name].info, False, self.lease_watch)
        roots = [self._runs.pop(name).root for name in gone]
        for name, root in zip(gone, roots, strict=True):
            self._threads[root].remove(name)
        for root in roots:
            self._end(root)
        return gone

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _find(self, run_id: str) -> _Record:
        try:
            return self._runs[run_id]
        except KeyError:
            raise UnknownRun(f"no run {run_id!r} in this journal") from None

    def _find_owned(self, claim: Claim) -> _Record:
        record = self._find(claim.run_id)
        if record.info.fence != claim.fence:
            raise Fenced(f"run {claim.run_id!r} was taken over by {record.info.owner}")
        return record


def _insert_due(journal: MemoryJournal, due: Sequence[NewRun]) -> None:
    """Store runs that are due, unless their ids are taken."""
    for new in due:
        with contextlib.suppress(ConfigError):
            begun = journal.create(dataclasses.replace(new.header, follows_entry=None))
            journal.append(begun, new.entries, status="released")


def _check_first_turn(thread: str, runs: Mapping[str, _Record]) -> None:
    """Raise `ConfigError` if a thread has turns."""
    turns = filter(is_turn_id, runs)
    if any(runs[one].info.thread == thread for one in turns):
        raise ConfigError(format_thread_taken(thread))


def _check_earlier(
    runs: Mapping[str, _Record], run_id: str, seq: int, hash: str
) -> None:
    """Raise `EarlierRunGone` unless a run has an entry with that hash."""
    record = runs.get(run_id)
    entries = [] if record is None else record.entries[seq - 1 : seq]
    if [entry.hash for entry in entries] != [hash]:
        raise EarlierRunGone(format_earlier_gone(run_id))
