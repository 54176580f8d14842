"""A journal of plain text: a file of JSON lines for each run."""

import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loopwright import ConfigError, Entry, Fenced, JournalError, UnknownRun
from loopwright.journal import Claim, RunHeader, RunInfo, Verification, ensure_free, taken, verify_chain


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
            raise ConfigError(f"folder: {folder} cannot be made: {error.strerror}") from error
        self._claims: dict[int, LinesClaim] = {}

    def create(self, header: RunHeader) -> Claim:
        """The claim to a new run."""
        return LinesClaim(header.run_id, fence=1, header=header)

    async def claim(self, run_id: str, owner: str, *, take_over: bool = False) -> Claim:
        """Take a run up."""
        with self._writing():
            info = self._kept(run_id).info
            ensure_free(info, take_over)
            self._add(run_id, {"fence": info.fence + 1, "owner": owner})
            return LinesClaim(run_id, info.fence + 1, info.head_seq, info.head_hash)

    def append(self, claim: Claim, entries: Sequence[Entry], *, status: str | None = None) -> None:
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

    def runs(self) -> list[RunInfo]:
        """All runs, newest first."""
        numbered = [(json.loads(lines[0])["number"], self._folded(lines).info) for lines in self._all()]
        return [info for _, info in sorted(numbered, key=lambda pair: -pair[0])]

    def verify(self, run_id: str, head: str | None = None) -> Verification:
        """Check a run's chain."""
        kept = self._kept(run_id)
        return verify_chain(run_id, kept.entries, kept.info, head)

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
            if claim.header is None and self._kept(claim.run_id).info.fence != claim.fence:
                raise Fenced(f"run {claim.run_id!r} was taken over")
            if changed:
                self._add(claim.run_id, {"entries": [_plain(entry) for entry in entries], "status": status})

    def _begin(self, header: RunHeader) -> None:
        if self._path(header.run_id).exists():
            raise ConfigError(taken(header.run_id))
        number = sum(1 for _ in self._folder.glob("*.jsonl"))
        self._add(header.run_id, {"number": number, "header": dataclasses.asdict(header)})

    def _path(self, run_id: str) -> Path:
        return self._folder / f"{hashlib.sha256(run_id.encode()).hexdigest()}.jsonl"

    def _add(self, run_id: str, line: dict[str, Any]) -> None:
        """Write one line, after what was whole of the file."""
        path = self._path(run_id)
        new = not path.exists()
        with path.open("a+b") as file:
            file.truncate(len("".join(_whole_lines(path)).encode()))
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
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
        lines = _whole_lines(path) if path.exists() else []
        if not lines:
            raise UnknownRun(f"no run {run_id!r} in {self._folder}")
        return self._folded(lines)

    def _folded(self, lines: list[str]) -> Kept:
        """A run as its lines tell, one after the other."""
        header = json.loads(lines[0])["header"]
        kept = Kept(RunInfo(**header, status="running", fence=1, head_seq=0, head_hash=""), [])
        for line in map(json.loads, lines[1:]):
            if "fence" in line:
                kept.info = dataclasses.replace(kept.info, fence=line["fence"], owner=line["owner"])
                continue
            kept.entries += [Entry(**{**e, "body": base64.b64decode(e["body"])}) for e in line["entries"]]
            status = line["status"]
            last = kept.entries[-1] if kept.entries else None
            kept.info = dataclasses.replace(
                kept.info,
                status=status or kept.info.status,
                owner=kept.info.owner if status in (None, "running") else None,
                head_seq=last.seq if last else 0,
                head_hash=last.hash if last else "",
            )
        return kept


def _whole_lines(path: Path) -> list[str]:
    """The lines that were written to their end."""
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _plain(entry: Entry) -> dict[str, Any]:
    fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    return {**fields, "body": base64.b64encode(entry.body).decode()}
