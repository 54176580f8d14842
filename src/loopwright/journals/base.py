"""The port to a journal: an append-only, hash-chained list of entries for each run; and one kept in memory."""

import dataclasses
import datetime
import hashlib
import math
import re
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, cast

from pydantic_core import from_json, to_json

from ..clock import Clock, SystemClock
from ..errors import ConfigError, Fenced, JournalError, RunBusy, UnknownRun
from ..events.entry import Entry
from ..events.lifecycle import read_run_info
from ..messages import JsonObject
from .owner import Owner

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")
RESUMABLE = (
    "running",
    "released",
    "suspended",
    "waiting",
)  # the statuses of runs that have not ended
COMMAND_KIND = re.compile(r"[A-Za-z][A-Za-z0-9._:-]{0,63}")
COMMAND_BYTES = 64 * 1024
"""A command's body has at most so many bytes as JSON."""


def checked_id(run_id: Any) -> str | None:
    """The name of a run as it was given, if it was; raises `ConfigError` for one that cannot be a name."""
    if run_id is not None and not (
        isinstance(run_id, str) and RUN_ID.fullmatch(run_id)
    ):
        raise ConfigError(
            f"run_id {run_id!r}: use letters, digits and . _ : @ / -, at most 128"
        )
    return run_id


@dataclasses.dataclass(frozen=True)
class RunHeader:
    """What a journal keeps of a run beside its entries when it begins; `lease` is that of its first owner, seconds."""

    run_id: str
    engine: str
    options: str
    version: str
    owner: str
    created: float
    parent_run: str | None = None
    fork_seq: int | None = None
    lease: float | None = None

    def begun(self, now: float) -> "RunInfo":
        """The run as it is listed when it begins at `now` (wall clock, seconds), still without entries."""
        fields = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        until = lease_end(fields.pop("lease"), now)
        return RunInfo(
            **fields,
            status="running",
            fence=1,
            head_seq=0,
            head_hash="",
            lease_until=until,
        )


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """One run as a journal lists it. `status` is one of `RESUMABLE`, or the status of its result.

    A fork names the run it was copied from (`parent_run`) and the last entry that it shares with it (`fork_seq`).
    `lease_until` (wall clock, seconds) is when the owner loses the run unless it renews its lease; None is never.
    """

    run_id: str
    engine: str
    options: str
    version: str
    status: str
    owner: str | None
    fence: int
    head_seq: int
    head_hash: str
    created: float
    parent_run: str | None = None
    fork_seq: int | None = None
    lease_until: float | None = None


@dataclasses.dataclass
class Claim:
    """The right to write one run. `fence` grows with every owner; `head_*` is the last entry appended so far.

    `header` is set until the run's first entries are kept. `lease_until` (wall clock, seconds) is the end of the lease
    that the journal holds for this claim, None for one that has no end.
    """

    run_id: str
    fence: int
    head_seq: int = 0
    head_hash: str = ""
    header: RunHeader | None = None
    lease_until: float | None = None


@dataclasses.dataclass(frozen=True)
class Command:
    """What somebody tells a run from outside: `number` grows within the run, `at` is wall clock, seconds.

    `damage` says why it cannot be read, if it cannot: a run refuses such a command, and hears those around it.
    """

    number: int
    run_id: str
    at: float
    kind: str
    body: JsonObject
    damage: str = ""


@dataclasses.dataclass(frozen=True)
class Verification:
    """What a check of a run's chain found; `problem` is empty when all is well, `seq` the entry where it is not."""

    run_id: str
    entries: int
    head_hash: str
    problem: str = ""
    seq: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was changed, cut or lost."""
        return not self.problem


class Journal(Protocol):
    """Where runs are kept. `append` only hands over; what `barrier` has returned for survives the process.

    `read`, `runs`, `verify`, `send` and `inbox` are plain functions, so that scripts and debuggers can use them; the
    runtime calls them in a thread. Wrong arguments are a `ConfigError`, a run with an owner is `RunBusy`, all else a
    `JournalError` (or a subclass).
    """

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run. Nothing is kept before the first `append`; a taken id shows at the next `barrier`."""
        ...

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Take a run up: the old owner is fenced off, and the run is `running` again unless it has ended.

        Raises `UnknownRun`, or `RunBusy` if its owner may be at work. With `lease` the claim is good for so many
        seconds, and then for others to take unless it was renewed.
        """
        ...

    async def renew(self, claim: Claim, lease: float) -> None:
        """Let the claim's lease end `lease` seconds from now; durable when it returns, `Fenced` if another took over.

        Does nothing for a run that has no entry yet, whose lease begins with the first, or that was freed.
        """
        ...

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Hand over entries that follow the claim's head.

        `status` becomes the run's. Any but `running` frees it: it has no owner and no lease any more.
        """
        ...

    async def barrier(self, claim: Claim) -> None:
        """Wait until all that was handed over under this claim is durable; `Fenced` if another owner took over."""
        ...

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run, oldest first; raises `UnknownRun`."""
        ...

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """All runs, newest first; or only those that have not ended, which is quick however many have."""
        ...

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain, and that it ends in `head` if the caller kept that."""
        ...

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox and give its number; durable when it returns.

        Any process and thread may, whoever owns the run. Raises `UnknownRun`, or `ConfigError` for a body that is no
        JSON object of at most `COMMAND_BYTES`.
        """
        ...

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """The commands sent to a run whose numbers are greater than `after`, oldest first.

        One that was changed or cannot be read stands in its place with its `damage`, and hides no other.
        """
        ...

    def inbox_mark(self) -> object:
        """Something that compares differently once a command was sent to any run; costs microseconds.

        The runtime asks for it a few times a second, in its event loop; a journal without it has its inbox read then.
        A journal may have a method beside it that spares reading the inbox of every run at work when it has changed:
        `inbox_news(after: int)` gives a number, and the names of the runs to which something was sent since it gave
        the number `after` (0: ever; below 0: the number is all that is asked for); it is called in a thread.
        """
        ...

    async def close(self) -> None:
        """Make everything durable and let go of files and threads."""
        ...


def chain_hash(previous: str, entry: Entry) -> str:
    """The hash of an entry (hex SHA-256) over each field, with its length where it is text, and the hash before."""
    head = (
        f"{previous}|{len(entry.run_id)}:{entry.run_id}|{entry.seq}|{len(entry.key)}:{entry.key}"
        f"|{len(entry.kind)}:{entry.kind}|{entry.at!r}|{entry.v}|{entry.fence}|"
    )
    return hashlib.sha256(head.encode() + entry.body).hexdigest()


def verify_chain(
    run_id: str, entries: Sequence[Entry], info: RunInfo, head: str | None = None
) -> Verification:
    """Recompute a run's chain and compare it with what the journal (and the caller) remember of the run."""
    found = follow_chain(run_id, entries, info)
    if not found.ok:
        return found
    problem = check_row(info, entries)
    if head is not None and head != found.head_hash:
        problem = "the run does not end in the head hash that was given"
    return dataclasses.replace(
        found, problem=problem, seq=found.entries if problem else None
    )


def follow_chain(run_id: str, entries: Sequence[Entry], info: RunInfo) -> Verification:
    """Recompute a run's chain and compare it with the head that the journal remembers."""
    previous, count = "", 0
    for entry in entries:
        count += 1
        if entry.seq != count:
            return Verification(
                run_id,
                count,
                previous,
                f"entry {count} is missing: found number {entry.seq}",
                count,
            )
        if entry.run_id != run_id or chain_hash(previous, entry) != entry.hash:
            return Verification(
                run_id, count, previous, f"entry {count} was changed", count
            )
        previous = entry.hash
    if (info.head_seq, info.head_hash) != (count, previous):
        return Verification(
            run_id,
            count,
            previous,
            f"the run should have {info.head_seq} entries, found {count}",
            count,
        )
    return Verification(run_id, count, previous)


def check_row(info: RunInfo, entries: Sequence[Entry]) -> str:
    """What a journal says of a run beside its entries, and they do not; empty if all fits.

    Entries that no engine wrote, or a newer version, say nothing. A claim may come before the entry that tells of it.
    """
    if not entries or entries[0].kind != "run_started":
        return ""
    try:
        told = read_run_info(entries)
    except JournalError:
        return ""
    claimed = info.fence > entries[-1].fence
    if info.fence < entries[-1].fence:
        return f"the run has fence {info.fence}, its last entry {entries[-1].fence}"
    if claimed:
        told.pop("owner", None)
        told.pop("status" if info.status == "running" else "owner", None)
    wrong = [name for name, value in told.items() if getattr(info, name) != value]
    return (
        f"{wrong[0]} of the run is {getattr(info, wrong[0])!r}, its entries say {told[wrong[0]]!r}"
        if wrong
        else ""
    )


def ensure_free(info: RunInfo, take_over: bool, now: float) -> None:
    """Raise `RunBusy` if a run's owner may still be at work at `now` (wall clock, seconds)."""
    if take_over or _is_free(info, now):
        return
    end = ""
    if info.lease_until is not None:
        # No date is later than the year 9999.
        until = datetime.datetime.fromtimestamp(
            min(info.lease_until, 253_402_300_799), datetime.UTC
        )
        end = f" until {until:%Y-%m-%d %H:%M:%S} UTC, in {info.lease_until - now:.1f} s, unless it renews its lease"
    raise RunBusy(
        f"run {info.run_id!r} is being worked on by {info.owner}{end}: wait for it, "
        "or pass take_over=True to fence it off"
    )


def status_of_claimed(info: RunInfo) -> str:
    """What a run that is taken up is listed as: one that has ended stays so."""
    return "running" if info.status in RESUMABLE else info.status


def orphaned(info: RunInfo, now: float) -> bool:
    """Whether a run says that it is running and nobody can be at work on it at `now` (wall clock, seconds)."""
    try:
        return info.status == "running" and _is_free(info, now)
    except (
        ValueError,
        OverflowError,
    ):  # nobody can tell whose it is: somebody has to look
        return False


def _is_free(info: RunInfo, now: float) -> bool:
    """Whether a run has no owner, or one whose lease is over, or one that is dead."""
    if info.owner is None or (info.lease_until is not None and info.lease_until < now):
        return True
    owner = Owner.parse(info.owner)
    if (
        info.lease_until is not None and not owner.in_sight
    ):  # then its lease is all that tells
        return False
    return not owner.alive


def lease_end(lease: float | None, now: float) -> float | None:
    """When a lease of so many seconds that begins at `now` is over; raises `ConfigError` if it is no such number."""
    if lease is None:
        return None
    if not 0 < lease < math.inf:
        raise ConfigError(f"lease: must be seconds above 0, got {lease!r}")
    return now + lease


def command_body(kind: str, body: JsonObject) -> bytes:
    """A command's body as JSON; raises `ConfigError` if it or the kind cannot be sent."""
    if not COMMAND_KIND.fullmatch(kind):
        raise ConfigError(
            f"kind {kind!r}: use a letter, then letters, digits and . _ : -, at most 64"
        )
    try:
        encoded = to_json(dict(body))
        # NaN, bytes, keys that are no texts: they would come back as something else, or not at all
        if from_json(encoded, allow_inf_nan=False) != body:
            raise ValueError("what comes back from JSON is not the same")
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"body: the body of a command is a JSON object: {error}"
        ) from None
    if len(encoded) > COMMAND_BYTES:
        raise ConfigError(
            f"body: {len(encoded)} bytes are more than the {COMMAND_BYTES} of a command: send where to find it"
        )
    return encoded


def read_command_body(encoded: bytes) -> JsonObject:
    """What `command_body` wrote; raises ValueError for anything else."""
    body = from_json(encoded, allow_inf_nan=False)
    if not isinstance(body, dict):
        raise ValueError("no JSON object")
    return cast("dict[str, Any]", body)


@dataclasses.dataclass
class _Kept:
    info: RunInfo
    entries: list[Entry]
    commands: list[tuple[float, str, bytes]]  # time, kind, body


class MemoryJournal:
    """A journal that lives and dies with the process; forgets the oldest finished runs beyond `keep_runs`."""

    def __init__(self, *, keep_runs: int = 1000, clock: Clock | None = None) -> None:
        if keep_runs < 1:
            raise ConfigError(
                f"MemoryJournal: keep_runs must be at least 1, got {keep_runs}"
            )
        self._keep_runs = keep_runs
        self._clock = clock or SystemClock()
        self._runs: dict[str, _Kept] = {}
        self._ended: deque[str] = deque()  # in the order in which they ended
        self._sending = threading.Lock()
        self._sent = 0

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run; raises `ConfigError` if the id is taken."""
        if header.run_id in self._runs:
            raise ConfigError(taken(header.run_id))
        until = lease_end(header.lease, self._clock.wall())
        return Claim(header.run_id, fence=1, header=header, lease_until=until)

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Take a run up."""
        kept, now = self._kept(run_id), self._clock.wall()
        until = lease_end(lease, now)
        ensure_free(kept.info, take_over, now)
        status, fence = status_of_claimed(kept.info), kept.info.fence + 1
        info = dataclasses.replace(
            kept.info, fence=fence, owner=owner, lease_until=until, status=status
        )
        kept.info = info
        return Claim(
            run_id, info.fence, info.head_seq, info.head_hash, lease_until=until
        )

    async def renew(self, claim: Claim, lease: float) -> None:
        """Put the end of the claim's lease off."""
        until = lease_end(lease, self._clock.wall())
        if claim.header is not None:
            return
        kept = self._owned(claim)
        if kept.info.owner is not None:
            kept.info = dataclasses.replace(kept.info, lease_until=until)
        claim.lease_until = kept.info.lease_until

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Keep entries."""
        if claim.header is not None:
            self._begin(claim.header)
            claim.header, claim.lease_until = (
                None,
                self._kept(claim.run_id).info.lease_until,
            )
        kept = self._owned(claim)
        kept.entries.extend(entries)
        head, had_ended = (
            entries[-1] if entries else None,
            kept.info.status not in RESUMABLE,
        )
        kept.info = dataclasses.replace(
            kept.info,
            head_seq=head.seq if head else kept.info.head_seq,
            head_hash=head.hash if head else kept.info.head_hash,
            status=status or kept.info.status,
        )
        if status not in (None, "running"):
            kept.info = dataclasses.replace(kept.info, owner=None, lease_until=None)
            claim.lease_until = None
        if status not in (None, *RESUMABLE) and not had_ended:
            self._ended.append(claim.run_id)
            if len(self._ended) > self._keep_runs:
                del self._runs[self._ended.popleft()]

    async def barrier(self, claim: Claim) -> None:
        """Check that nobody took over; memory has nothing to wait for."""
        self._owned(claim)

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run, oldest first."""
        return list(self._kept(run_id).entries)

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """All runs, newest first; or those that have not ended."""
        infos = [kept.info for kept in reversed(list(self._runs.values()))]
        return (
            [info for info in infos if info.status in RESUMABLE]
            if unfinished
            else infos
        )

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        kept = self._kept(run_id)
        return verify_chain(run_id, kept.entries, kept.info, head)

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox."""
        encoded, commands = command_body(kind, body), self._kept(run_id).commands
        with self._sending:
            commands.append((self._clock.wall(), kind, encoded))
            self._sent += 1
            return len(commands)

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """The commands sent to a run, oldest first."""
        kept = self._runs.get(run_id)
        return [
            Command(number, run_id, at, kind, read_command_body(encoded))
            for number, (at, kind, encoded) in enumerate(
                list(kept.commands) if kept else (), 1
            )
            if number > after
        ]

    def inbox_mark(self) -> object:
        """How many commands were sent so far."""
        return self._sent

    async def close(self) -> None:
        """Nothing to let go of."""

    def _begin(self, header: RunHeader) -> None:
        if header.run_id in self._runs:
            raise ConfigError(taken(header.run_id))
        self._runs[header.run_id] = _Kept(header.begun(self._clock.wall()), [], [])

    def _kept(self, run_id: str) -> _Kept:
        try:
            return self._runs[run_id]
        except KeyError:
            raise UnknownRun(f"no run {run_id!r} in this journal") from None

    def _owned(self, claim: Claim) -> _Kept:
        kept = self._kept(claim.run_id)
        if kept.info.fence != claim.fence:
            raise Fenced(f"run {claim.run_id!r} was taken over by {kept.info.owner}")
        return kept


def taken(run_id: str) -> str:
    """What to say of a run id that exists already."""
    return f"run_id {run_id!r} exists already: resume it, or choose another id"
