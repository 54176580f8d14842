"""A journal of plain text: a file of JSON lines for each run."""

import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loopwright import ConfigError, Entry, Fenced
from loopwright.clock import ClockReading, SystemClock
from loopwright.errors import JournalError, UnknownRun
from loopwright.journals import (
    RESUMABLE,
    Claim,
    Command,
    EarlierRunGone,
    Lease,
    LeaseWatch,
    RunHeader,
    RunInfo,
    Verification,
    decode_command_body,
    encode_command_body,
    ensure_claimable,
    find_ending,
    format_id_taken,
    get_claimed_status,
    verify_chain,
)
from loopwright.messages import JsonObject


@dataclasses.dataclass
class LinesClaim(Claim):
    """A claim, and what was handed over under it since the last barrier."""

    entries: list[Entry] = dataclasses.field(default_factory=list)
    status: str | None = None
    changed: bool = False


@dataclasses.dataclass
class Kept:
    """What a file says of its run."""

    info: RunInfo
    entries: list[Entry]


class JSONLinesJournal:
    """Keeps runs in a folder. Each barrier adds one line and flushes it to the disk; a line cut off by a crash is none.

    A lock file lets one process write at a time.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"folder: {folder} cannot be made: {error.strerror}"
            ) from error
        self._claims: dict[int, LinesClaim] = {}
        self._clock = SystemClock()
        self.lease_watch = LeaseWatch(self._clock)

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run."""
        return LinesClaim(
            header.run_id,
            fence=1,
            header=header,
            lease_until=self._lease(header.lease).lease_until,
        )

    def _lease(self, seconds: float | None) -> Lease:
        return Lease.begin(seconds, ClockReading.take(self._clock))

    async def claim(
        self,
        run_id: str,
        owner: str,
        *,
        take_over: bool = False,
        lease: float | None = None,
    ) -> Claim:
        """Take a run up."""
        with self._writing():
            info, given = self._kept(run_id).info, self._lease(lease)
            ensure_claimable(info, take_over, self.lease_watch)
            self._add(run_id, {
                "fence": info.fence + 1, "owner": owner, "status": get_claimed_status(info), "wake_at": 0.0,
                **given.fields,
            })  # fmt: skip
            return LinesClaim(
                run_id, info.fence + 1, info.head_seq, info.head_hash, lease_until=given.lease_until,
                after=find_ending(info, self.lease_watch),
            )  # fmt: skip

    async def renew(self, claim: Claim, lease: float) -> None:
        """Put the end of the claim's lease off."""
        with self._writing():
            given = self._lease(lease)
            if claim.header is not None:
                return
            info = self._owned(claim)
            if info.owner is None:
                claim.lease_until = None
            else:
                self._add(
                    claim.run_id,
                    {"fence": info.fence, "owner": info.owner, **given.fields},
                )
                claim.lease_until = given.lease_until

    def append(
        self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None
    ) -> None:
        """Hand over entries."""
        mine = self._mine(claim)
        mine.entries += entries
        mine.status = status or mine.status
        mine.changed = True
        self._claims[id(mine)] = mine

    async def barrier(self, claim: Claim) -> None:
        """Write what was handed over."""
        self._write(self._mine(claim))

    def read(self, run_id: str) -> list[Entry]:
        """All entries of a run."""
        return self._kept(run_id).entries

    def runs(self, *, unfinished: bool = False) -> list[RunInfo]:
        """All runs, newest first; or those that have not ended."""
        numbered = [
            (json.loads(lines[0])["number"], self._folded(lines).info)
            for lines in self._all()
        ]
        infos = [info for _, info in sorted(numbered, key=lambda pair: -pair[0])]
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
        text = encode_command_body(kind, body).decode()
        self._kept(run_id)
        with self._writing():
            path = self._path(run_id, ".inbox")
            number = len(_whole_lines(path)) + 1
            _write_line(
                path,
                {
                    "number": number,
                    "run_id": run_id,
                    "at": time.time(),
                    "kind": kind,
                    "body": text,
                },
            )
            self._flush_folder()
        return number

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        """The commands sent to a run."""
        told = [json.loads(line) for line in _whole_lines(self._path(run_id, ".inbox"))]
        commands = [
            Command(**{**line, "body": decode_command_body(line["body"].encode())})
            for line in told
        ]
        return [command for command in commands if command.number > after]

    def inbox_mark(self) -> object:
        """The sizes of all inboxes together, which only grow."""
        return sum(path.stat().st_size for path in self._folder.glob("*.inbox"))

    async def close(self) -> None:
        """Write what nobody waited for."""
        for claim in list(self._claims.values()):
            with contextlib.suppress(Fenced):
                self._write(claim)

    def _mine(self, claim: Claim) -> LinesClaim:
        if not isinstance(claim, LinesClaim):
            raise JournalError("this claim is another journal's")
        return claim

    def _write(self, claim: LinesClaim) -> None:
        entries, status, changed = claim.entries, claim.status, claim.changed
        claim.entries, claim.status, claim.changed = [], None, False
        self._claims.pop(id(claim), None)
        with self._writing():
            if claim.header is not None and changed:
                self._begin(claim.header)
                claim.header = None
            if claim.header is None:
                self._owned(claim)
            if changed:
                self._add(
                    claim.run_id,
                    {
                        "entries": [_plain(entry) for entry in entries],
                        "status": status,
                        "wake_at": claim.wake_at,
                    },
                )
                claim.lease_until = self._kept(claim.run_id).info.lease_until

    def _owned(self, claim: Claim) -> RunInfo:
        info = self._kept(claim.run_id).info
        if info.fence != claim.fence:
            raise Fenced(f"run {claim.run_id!r} was taken over")
        return info

    def _check_earlier(self, run_id: str, seq: int, hash: str) -> None:
        """Raise `EarlierRunGone` unless a run has an entry with that hash."""
        is_there = self._path(run_id).exists()
        entries = self._kept(run_id).entries[seq - 1 : seq] if is_there else []
        if [entry.hash for entry in entries] != [hash]:
            raise EarlierRunGone(f"run {run_id!r}, which is continued, is gone")

    def _begin(self, header: RunHeader) -> None:
        if self._path(header.run_id).exists():
            raise ConfigError(format_id_taken(header.run_id))
        if header.follows and header.follows_entry:
            self._check_earlier(header.follows, *header.follows_entry)
        number = sum(1 for _ in self._folder.glob("*.jsonl"))
        self._add(
            header.run_id,
            {
                "number": number,
                "info": dataclasses.asdict(
                    header.to_run_info(ClockReading.take(self._clock))
                ),
            },
        )

    def _path(self, run_id: str, ending: str = ".jsonl") -> Path:
        return self._folder / f"{hashlib.sha256(run_id.encode()).hexdigest()}{ending}"

    def _add(self, run_id: str, line: dict[str, Any]) -> None:
        path = self._path(run_id)
        new = not path.exists()
        _write_line(path, line)
        if new:
            self._flush_folder()

    def _flush_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with (self._folder / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise JournalError(f"{self._folder}: {error.strerror or error}") from error

    def _all(self) -> Iterator[list[str]]:
        for path in self._folder.glob("*.jsonl"):
            lines = _whole_lines(path)
            if len(lines) > 1:
                yield lines

    def _kept(self, run_id: str) -> Kept:
        path = self._path(run_id)
        lines = _whole_lines(path)
        if not lines:
            raise UnknownRun(f"no run {run_id!r} in {self._folder}")
        return self._folded(lines)

    def _folded(self, lines: list[str]) -> Kept:
        """A run as its lines tell, one after the other."""
        kept = Kept(RunInfo(**json.loads(lines[0])["info"]), [])
        for line in map(json.loads, lines[1:]):
            if "fence" in line:
                kept.info = dataclasses.replace(kept.info, **line)
                continue
            kept.entries += [
                Entry(**{**e, "body": base64.b64decode(e["body"])})
                for e in line["entries"]
            ]
            status = line["status"]
            freed = status not in (None, "running")
            wake_at = line.get("wake_at", 0.0) if freed else kept.info.wake_at
            last = kept.entries[-1] if kept.entries else None
            kept.info = dataclasses.replace(
                kept.info,
                status=status or kept.info.status,
                head_seq=last.seq if last else 0,
                head_hash=last.hash if last else "",
                owner=None if freed else kept.info.owner,
                lease_until=None if freed else kept.info.lease_until,
                wake_at=wake_at,
            )
        return kept


def _whole_lines(path: Path) -> list[str]:
    """The lines that were written to their end."""
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _write_line(path: Path, line: dict[str, Any]) -> None:
    """Write one line, after what was whole of the file."""
    with path.open("a+b") as file:
        file.truncate(len("".join(_whole_lines(path)).encode()))
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _plain(entry: Entry) -> dict[str, Any]:
    fields = {
        field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)
    }
    return {**fields, "body": base64.b64encode(entry.body).decode()}
