"""The journal port: an append-only, hash-chained list of entries for each run."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from pydantic_core import from_json, to_json

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..clock import ClockReading
from ..errors import ConfigError, JournalError
from ..events.entry import Entry
from ..events.entry import chain_hash as chain_hash
from ..events.lifecycle import read_run_info
from ..events.payloads import Codec
from ..events.run import Ending, Follows, RunStarted
from ..messages import JsonObject
from .leases import Lease

RUN_ID = compile_late(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")
RESUMABLE = ("running", "released", "suspended", "waiting", "parked")
"""The statuses of runs that have not ended."""
COMMAND_KIND = compile_late(r"[A-Za-z][A-Za-z0-9._:-]{0,63}")
COMMAND_BYTES = 64 * 1024
"""The maximum size of a command's body as JSON."""


def check_run_id(run_id: Any) -> str | None:
    """Return a run id, or `None` for none; raise `ConfigError` if it cannot be one."""
    if run_id is None:
        return None
    if not (isinstance(run_id, str) and RUN_ID.fullmatch(run_id)):
        raise ConfigError(
            f"run_id {run_id!r}: use letters, digits and . _ : @ / -, at most 128"
        )
    return run_id


def format_id_taken(run_id: str) -> str:
    """Return the error text for a run id that exists already."""
    return f"run_id {run_id!r} exists already: resume it, or choose another id"


TURN_PREFIX = "t:"
"""What the ids of the turns of threads begin with."""


def is_turn_id(run_id: str) -> bool:
    """Whether a run is a turn of a thread, by its id."""
    return run_id.startswith(TURN_PREFIX)


def format_thread_taken(thread: str) -> str:
    """Return the error text for the first turn of a thread that has turns."""
    return f"thread {thread!r} exists already: continue it, delete it, or choose another id"


class RunIdDeleted(ConfigError):
    """A new run would have the id of one that was deleted; nothing was stored."""


class EarlierRunGone(JournalError):
    """The run that a new one continues is not in the journal, or not as it was; nothing was stored."""


def format_earlier_gone(run_id: str) -> str:
    """Return the error text for a run that is continued and is not there."""
    return f"run {run_id!r}, which is continued, was deleted or changed"


@dataclasses.dataclass(frozen=True)
class RunHeader:
    """What a journal stores of a new run beside its entries; `lease` is the first owner's, in seconds.

    The other fields are those of `RunInfo`, except that `follows_entry` is the number and the hash of the entry of the run
    `follows` that must be there when the first entries are stored; else that fails with `EarlierRunGone`. With
    `first_turn`, that is a `ConfigError` where the journal has a turn of the same `thread` (`is_turn_id`).
    """

    run_id: str
    engine: str
    options: str
    version: str
    owner: str
    created: float
    parent_run: str | None = None
    fork_seq: int | None = None
    lease: float | None = None
    app_version: str = ""
    tags: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    thread: str = ""
    agent: str = ""
    follows: str | None = None
    follows_entry: tuple[int, str] | None = None
    first_turn: bool = False

    def to_run_info(self, now: ClockReading) -> "RunInfo":
        """Return the new run, without entries, with a lease that begins now."""
        fields = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        lease = Lease.begin(fields.pop("lease"), now)
        del fields["follows_entry"], fields["first_turn"]
        return RunInfo(
            **fields,
            status="running",
            fence=1,
            head_seq=0,
            head_hash="",
            **lease.fields,
        )


@dataclasses.dataclass(frozen=True)
class NewRun:
    """A run that is stored whole, with all its entries, and `released` at once: any process may resume it."""

    header: RunHeader
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """One run as a journal lists it. `status` is one of `RESUMABLE`, or the status of its result.

    A fork names the run it was copied from (`parent_run`) and the last entry that both share (`fork_seq`).
    `lease_until` (the owner's wall clock, seconds) is when the owner loses the run unless it renews the lease; `None` is
    never. What decides is that the lease is `lease_seconds` long and was last renewed at `lease_beat` of the boot
    `boot_id`, as `Lease` describes them. `wake_at` (wall clock, seconds) is when a suspended run continues by itself; 0 is
    never. `app_version`, `tags`, `thread` and `agent` are what the application said of the run; `follows` is the run
    whose conversation it continues. `options` are those of the engine as JSON, empty where the journal has a codec and
    lacks the key. `damage` says why the row is unreadable; then the status is `damaged`.
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
    wake_at: float = 0.0
    app_version: str = ""
    tags: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    thread: str = ""
    agent: str = ""
    lease_seconds: float | None = None
    lease_beat: int = dataclasses.field(default=0, compare=False)
    boot_id: str = dataclasses.field(default="", compare=False)
    follows: str | None = None
    damage: str = ""


@dataclasses.dataclass
class Claim:
    """The right to write one run. `fence` grows with every owner; `head_*` is the last entry appended so far.

    `header` is set until the run's first entries are stored. `lease_until` (wall clock, seconds) is the end of the
    lease that the journal holds for this claim, `None` without a lease; it is shown and decides nothing. `wake_at` is
    stored with the status that releases the run. `after` says how the work of the owner before ended (`find_ending`);
    `began` is what the clocks of the owner showed before the claim was made. `codec` encodes the bodies of the run's
    entries (`encode_body`), for the tenant `tenant`.
    """

    run_id: str
    fence: int
    head_seq: int = 0
    head_hash: str = ""
    header: RunHeader | None = None
    lease_until: float | None = None
    wake_at: float = 0.0
    after: Ending = ""
    began: ClockReading | None = None
    codec: Codec | None = None
    tenant: str = ""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command sent to a run: `number` grows within the run, `at` is wall clock, seconds.

    `damage` says why a command is unreadable, if it is: a run refuses it, and receives the others.
    """

    number: int
    run_id: str
    at: float
    kind: str
    body: JsonObject
    damage: str = ""


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of verifying a run's chain; `problem` is empty if it is intact, `seq` is the wrong entry."""

    run_id: str
    entries: int
    head_hash: str
    problem: str = ""
    seq: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was changed, cut off or lost."""
        return not self.problem

    def with_history(self, problem: str) -> "Verification":
        """Return it with a problem of the runs that the run continues, which its first entry names."""
        if self.problem or not problem:
            return self
        return dataclasses.replace(self, problem=problem, seq=1)


class Journal(Protocol):
    """Stores runs. `append` only queues entries; they are durable when `barrier` has returned.

    `read`, `runs`, `verify`, `send` and `inbox` are plain functions, so that scripts and debuggers can use them; the
    runtime calls them in a thread. Invalid arguments raise `ConfigError`, a run with an owner `RunBusy`, everything
    else a `JournalError` (or a subclass).
    """

    def create(self, header: RunHeader) -> Claim:
        """Return the claim to a new run.

        Nothing is stored before the first `append`; the next `barrier` refuses an id that exists already.
        """
        ...

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Claim a run for an owner: its old owner is fenced off, and its status is `running` unless it has ended.

        Raises `UnknownRun`, or `RunBusy` if its owner may be at work. With `lease` the claim expires after that many
        seconds unless it is renewed; then others may claim the run.
        """
        ...

    async def renew(self, claim: Claim, lease: float) -> None:
        """Let the claim's lease end `lease` seconds from now; durable on return, `Fenced` if another took over.

        Does nothing for a run without an entry, whose lease begins with the first one, or for a released run.
        """
        ...

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Queue entries that follow the claim's head.

        `status` becomes the run's. Any status but `running` releases the run: it has no owner and no lease.
        """
        ...

    async def barrier(self, claim: Claim) -> None:
        """Wait until all entries queued under this claim are durable; `Fenced` if another owner took over."""
        ...

    def read(self, run_id: str) -> list[Entry]:
        """Return all entries of a run, oldest first; raise `UnknownRun`."""
        ...

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """Return all runs, newest first; or those that have not ended, in a time that does not grow with the others."""
        ...

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain, and that it ends in `head` if the caller kept that hash."""
        ...

    def send(self, run_id: str, kind: str, body: JsonObject) -> int:
        """Put a command into a run's inbox and return its number; durable on return.

        Any process and thread may send, not only the owner of the run. Raises `UnknownRun`, or `ConfigError` for a body
        that is not a JSON object of at most `COMMAND_BYTES`.
        """
        ...

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """Return the commands sent to a run whose numbers are greater than `after`, oldest first.

        A changed or unreadable command is returned with its `damage`, and hides no other.
        """
        ...

    def inbox_mark(self) -> object:
        """Return a value that compares differently once a command was sent to any run; costs microseconds.

        The runtime calls it several times a second in its event loop; without it, the runtime reads the inbox then.
        A journal may also have a method `inbox_news(after: int)`, called in a thread when that value has changed, which
        spares reading the inbox of every run at work: it returns a number, and the ids of the runs to which something
        was sent since it returned the number `after` (0: ever; below 0: only the number is needed). If it judges claims
        by a `LeaseWatch`, an attribute `lease_watch` lets workers judge by the same one.
        """
        ...

    async def close(self) -> None:
        """Make everything durable, and close files and threads."""
        ...


def verify_chain(
    run_id: str, entries: Sequence[Entry], info: RunInfo, head: str | None = None
) -> Verification:
    """Recompute a run's chain and compare it with the journal's row of the run and the caller's `head`."""
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
    """Recompute a run's chain and compare it with the head in the journal's row of the run."""
    previous, count = "", 0

    def report(problem: str, seq: int | None) -> Verification:
        return Verification(run_id, count, previous, problem, seq)

    for entry in entries:
        count += 1
        problem = _check_link(run_id, entry, count, previous)
        if problem:
            return report(problem, count)
        previous = entry.hash
    if (info.head_seq, info.head_hash) != (count, previous):
        return report(
            f"the run should have {info.head_seq} entries, found {count}", count
        )
    return report("", None)


def check_history(
    entries: Sequence[Entry], read: Callable[[str], Sequence[Entry]]
) -> str:
    """Return what is wrong with the runs that a run continues; an empty text if nothing is.

    `read` returns the entries of a run, up to the first one that cannot be read, or none.
    """
    follows = find_follows(entries)
    while follows is not None:
        earlier = read(follows.run_id)[: follows.seq]
        problem = _check_earlier(follows, earlier)
        if problem:
            return f"run {follows.run_id!r}, which is continued: {problem}"
        follows = find_follows(earlier)
    return ""


def find_follows(entries: Sequence[Entry]) -> Follows | None:
    """Return what a run continues; `None` also where a newer version wrote it, whose words are not judged."""
    if not entries or entries[0].kind != RunStarted.kind:
        return None
    with contextlib.suppress(JournalError):
        started = entries[0].event
        return started.follows if isinstance(started, RunStarted) else None
    return None


def _check_earlier(follows: Follows, entries: Sequence[Entry]) -> str:
    """Return what is wrong with the entries of a run that is continued."""
    if len(entries) < follows.seq:
        return f"it should have {follows.seq} entries, found {len(entries)}"
    previous = ""
    for seq, entry in enumerate(entries, 1):
        problem = _check_link(follows.run_id, entry, seq, previous)
        if problem:
            return problem
        previous = entry.hash
    return "" if previous == follows.hash else "it is another one"


def follow_range(
    info: RunInfo, entries: Sequence[Entry], after: int, previous: str, count: int
) -> str:
    """Return what is wrong with `count` entries after the number `after`, whose hash is `previous`; "" for nothing."""
    for seq, entry in enumerate(entries, after + 1):
        problem = _check_link(info.run_id, entry, seq, previous)
        if problem:
            return problem
        previous = entry.hash
    last = after + len(entries)
    is_whole = len(entries) == count
    if is_whole and last == info.head_seq:
        is_whole = previous == info.head_hash
    return (
        "" if is_whole else f"the run should have {info.head_seq} entries, found {last}"
    )


def _check_link(run_id: str, entry: Entry, seq: int, previous: str) -> str:
    """Return what is wrong with one entry of a chain, or an empty text."""
    if entry.seq != seq:
        return f"entry {seq} is missing: found number {entry.seq}"
    if entry.run_id != run_id or chain_hash(previous, entry) != entry.hash:
        return f"entry {seq} was changed"
    return ""


def check_row(info: RunInfo, entries: Sequence[Entry]) -> str:
    """Return how the journal's row of a run contradicts its entries; an empty text if it does not.

    Entries that no engine wrote, or a newer version, are not compared. A claim may precede its entry.
    """
    if not entries or entries[0].kind != "run_started":
        return ""
    try:
        recorded = read_run_info(entries)
    except JournalError:
        return ""
    last_fence = entries[-1].fence
    if info.fence < last_fence:
        return f"the run has fence {info.fence}, its last entry {last_fence}"
    if info.fence > last_fence:  # claimed, without an entry of the new owner
        recorded.pop("owner", None)
        recorded.pop("wake_at", None)
        if info.status == "running":
            recorded.pop("status", None)
    for name, value in recorded.items():
        found = getattr(info, name)
        if found != value:
            return f"{name} of the run is {found!r}, its entries say {value!r}"
    return ""


def encode_command_body(kind: str, body: JsonObject) -> bytes:
    """Return a command's body as JSON; raise `ConfigError` if the body or the kind is invalid."""
    if not _is_command_kind(kind):
        raise ConfigError(
            f"kind {kind!r:.200}: use a letter, then letters, digits and . _ : -, at most 64"
        )
    try:
        encoded = to_json(dict(body))
        # NaN, bytes and keys that are not texts would be read back differently, or not at all.
        if from_json(encoded, allow_inf_nan=False) != body:
            raise ValueError("what is read back from JSON is not equal")
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"body: must be a JSON object: {error}") from None
    if len(encoded) > COMMAND_BYTES:
        raise ConfigError(
            f"body: must be at most {COMMAND_BYTES} bytes, got {len(encoded)}; "
            "store the data outside the command and send where to find it"
        )
    return encoded


def _is_command_kind(kind: object) -> bool:
    return isinstance(kind, str) and COMMAND_KIND.fullmatch(kind) is not None


def decode_command_body(encoded: bytes) -> JsonObject:
    """Return the body that `encode_command_body` wrote; raise ValueError for anything else."""
    body = from_json(encoded, allow_inf_nan=False)
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    return cast("dict[str, Any]", body)
