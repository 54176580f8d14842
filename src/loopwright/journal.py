"""The port to a journal: an append-only, hash-chained list of entries for each run; and one kept in memory."""

import dataclasses
import functools
import hashlib
import os
import re
import socket
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .errors import ConfigError, Fenced, RunBusy, UnknownRun
from .events import Entry

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")
RESUMABLE = ("running", "suspended", "waiting")  # the statuses of runs that have not ended
AT_WORK: set[str] = set()  # tokens of the runs that this process is working on


@dataclasses.dataclass(frozen=True)
class Owner:
    """Who writes a run: a host, a process on it (with its start time, since numbers come again), and one run of it."""

    host: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}|{self.token}"

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Read what `str(owner)` wrote."""
        host, pid, started, token = text.split("|")
        return cls(host, int(pid), started, token)

    @classmethod
    def of_this_process(cls, token: str) -> "Owner":
        """This process as an owner; `token` tells its runs apart."""
        return cls(*_identity(os.getpid()), token)

    @property
    def alive(self) -> bool:
        """Whether that owner may still be at work; one on another host counts as alive."""
        if self.host != socket.gethostname():
            return True
        if self.pid == os.getpid():
            return self.token in AT_WORK
        if sys.platform == "win32":
            return True  # signal 0 is no question there: a take-over must be asked for
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return process_start(self.pid) == self.started


@functools.cache
def _identity(pid: int) -> tuple[str, int, str]:
    """Host, number and start of this process; the number is an argument because a fork changes it."""
    return socket.gethostname(), pid, process_start(pid)


def process_start(pid: int) -> str:
    """When a process started, in the system's own unit; empty where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def checked_id(run_id: Any) -> str | None:
    """The name of a run as it was given, if it was; raises `ConfigError` for one that cannot be a name."""
    if run_id is not None and not (isinstance(run_id, str) and RUN_ID.fullmatch(run_id)):
        raise ConfigError(f"run_id {run_id!r}: use letters, digits and . _ : @ / -, at most 128")
    return run_id


@dataclasses.dataclass(frozen=True)
class RunHeader:
    """What a journal keeps of a run beside its entries when it begins."""

    run_id: str
    engine: str
    options: str
    version: str
    owner: str
    created: float
    parent_run: str | None = None
    fork_seq: int | None = None


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """One run as a journal lists it. `status` is `running`, `suspended`, `waiting` or the status of its result.

    A fork names the run it was copied from (`parent_run`) and the last entry that it shares with it (`fork_seq`).
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


@dataclasses.dataclass
class Claim:
    """The right to write one run. `fence` grows with every owner; `head_*` is the last entry appended so far.

    `header` is set until the run's first entries are kept.
    """

    run_id: str
    fence: int
    head_seq: int = 0
    head_hash: str = ""
    header: RunHeader | None = None


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

    `read`, `runs` and `verify` are plain functions, so that scripts and debuggers can use them; the runtime calls
    them in a thread. All raise `JournalError` (or a subclass) and nothing else.
    """

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run. Nothing is kept before the first `append`; a taken id shows at the next `barrier`."""
        ...

    async def claim(self, run_id: str, owner: str, *, take_over: bool = False) -> Claim:
        """Take a run up: the old owner is fenced off. Raises `UnknownRun`, or `RunBusy` if its owner may be alive."""
        ...

    def append(self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None) -> None:
        """Hand over entries that follow the claim's head; `status` becomes the run's, and frees it unless `running`."""
        ...

    async def barrier(self, claim: Claim) -> None:
        """Wait until all that was handed over under this claim is durable; `Fenced` if another owner took over."""
        ...

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run, oldest first; raises `UnknownRun`."""
        ...

    def runs(self) -> list[RunInfo]:
        """All runs, newest first."""
        ...

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain, and that it ends in `head` if the caller kept that."""
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


def verify_chain(run_id: str, entries: Iterable[Entry], info: RunInfo, head: str | None = None) -> Verification:
    """Recompute a run's chain and compare it with the head that the journal (and the caller) remember."""
    previous, count = "", 0
    for entry in entries:
        count += 1
        if entry.seq != count:
            return Verification(run_id, count, previous, f"entry {count} is missing: found number {entry.seq}", count)
        if entry.run_id != run_id or chain_hash(previous, entry) != entry.hash:
            return Verification(run_id, count, previous, f"entry {count} was changed", count)
        previous = entry.hash
    if (info.head_seq, info.head_hash) != (count, previous):
        return Verification(
            run_id, count, previous, f"the run should have {info.head_seq} entries, found {count}", count
        )
    if head is not None and head != previous:
        return Verification(run_id, count, previous, "the run does not end in the head hash that was given", count)
    return Verification(run_id, count, previous)


def ensure_free(info: RunInfo, take_over: bool) -> None:
    """Raise `RunBusy` if a run's owner may still be at work."""
    if info.owner is not None and not take_over and Owner.parse(info.owner).alive:
        raise RunBusy(
            f"run {info.run_id!r} is being worked on by {info.owner}: wait for it, "
            "or pass take_over=True to fence it off"
        )


@dataclasses.dataclass
class _Kept:
    info: RunInfo
    entries: list[Entry]


class MemoryJournal:
    """A journal that lives and dies with the process; forgets the oldest finished runs beyond `keep_runs`."""

    def __init__(self, *, keep_runs: int = 1000) -> None:
        if keep_runs < 1:
            raise ConfigError(f"MemoryJournal: keep_runs must be at least 1, got {keep_runs}")
        self._keep_runs = keep_runs
        self._runs: dict[str, _Kept] = {}
        self._ended: deque[str] = deque()  # in the order in which they ended

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run; raises `ConfigError` if the id is taken."""
        if header.run_id in self._runs:
            raise ConfigError(taken(header.run_id))
        return Claim(header.run_id, fence=1, header=header)

    async def claim(self, run_id: str, owner: str, *, take_over: bool = False) -> Claim:
        """Take a run up."""
        kept = self._kept(run_id)
        ensure_free(kept.info, take_over)
        info = dataclasses.replace(kept.info, fence=kept.info.fence + 1, owner=owner)
        kept.info = info
        return Claim(run_id, info.fence, info.head_seq, info.head_hash)

    def append(self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None) -> None:
        """Keep entries."""
        if claim.header is not None:
            self._begin(claim.header)
            claim.header = None
        kept = self._kept(claim.run_id)
        if kept.info.fence != claim.fence:
            raise Fenced(f"run {claim.run_id!r} was taken over by {kept.info.owner}")
        kept.entries.extend(entries)
        head = entries[-1] if entries else None
        kept.info = dataclasses.replace(
            kept.info,
            head_seq=head.seq if head else kept.info.head_seq,
            head_hash=head.hash if head else kept.info.head_hash,
            status=status or kept.info.status,
            owner=kept.info.owner if status in (None, "running") else None,
        )
        if status not in (None, *RESUMABLE):
            self._ended.append(claim.run_id)
            if len(self._ended) > self._keep_runs:
                del self._runs[self._ended.popleft()]

    async def barrier(self, claim: Claim) -> None:
        """Check that nobody took over; memory has nothing to wait for."""
        if self._kept(claim.run_id).info.fence != claim.fence:
            raise Fenced(f"run {claim.run_id!r} was taken over")

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run, oldest first."""
        return list(self._kept(run_id).entries)

    def runs(self) -> list[RunInfo]:
        """All runs, newest first."""
        return [kept.info for kept in reversed(self._runs.values())]

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        kept = self._kept(run_id)
        return verify_chain(run_id, kept.entries, kept.info, head)

    async def close(self) -> None:
        """Nothing to let go of."""

    def _begin(self, header: RunHeader) -> None:
        if header.run_id in self._runs:
            raise ConfigError(taken(header.run_id))
        fields = {f.name: getattr(header, f.name) for f in dataclasses.fields(header)}
        self._runs[header.run_id] = _Kept(RunInfo(**fields, status="running", fence=1, head_seq=0, head_hash=""), [])

    def _kept(self, run_id: str) -> _Kept:
        try:
            return self._runs[run_id]
        except KeyError:
            raise UnknownRun(f"no run {run_id!r} in this journal") from None


def taken(run_id: str) -> str:
    """What to say of a run id that exists already."""
    return f"run_id {run_id!r} exists already: resume it, or choose another id"
