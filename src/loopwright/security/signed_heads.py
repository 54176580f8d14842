"""Signed heads of runs, exported from a journal as anchors: what was rewritten behind one is found."""

import base64
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from .._internal import dataclasses
from .._internal.log import logger
from ..clock import Clock, SystemClock
from ..errors import ConfigError, JournalError, LoopwrightError, UnknownRun
from ..events.entry import Entry
from ..events.run import RunFinished, RunSuspended
from ..journals.base import RunInfo, Verification
from ..messages import canonical_json
from .signatures import KeyFile, Signer, is_signed

ANCHOR_VERSION = 1


class AnchoredJournal(Protocol):
    """What anchors need of a journal; `SQLiteJournal` and `MemoryJournal` have it."""

    def read(self, run_id: str, /) -> Sequence[Entry]:
        """Return the entries of a run; raise `UnknownRun`."""
        ...

    def runs(self) -> Sequence[RunInfo]:
        """Return all runs."""
        ...

    def verify(self, run_id: str, /) -> Verification:
        """Check the chain of a run."""
        ...


@dataclasses.dataclass(frozen=True)
class Anchor:
    """The heads of the runs that changed since the anchor before, signed.

    Args:
        number: from 1, without gaps.
        at: wall clock, in seconds, when it was signed.
        journal: the id of the journal; empty for one without an id.
        previous: the SHA-256 (hex) of the anchor before; empty for the first.
        heads: for each run the number and the hash of its last entry.
        deleted: runs of earlier anchors that were deleted since.
        key_id: the key that signed it.
        signature: of all the others as canonical JSON, in base64.
        version: of this form.
    """

    number: int
    at: float
    journal: str
    previous: str
    heads: Mapping[str, tuple[int, str]]
    deleted: tuple[str, ...]
    key_id: str
    signature: str = ""
    version: int = ANCHOR_VERSION

    @property
    def signed(self) -> bytes:
        """Return the bytes that are signed."""
        fields = dataclasses.asdict(self)
        del fields["signature"]
        fields["heads"] = {run: list(head) for run, head in self.heads.items()}
        fields["deleted"] = list(self.deleted)
        return canonical_json(fields)

    @property
    def digest(self) -> str:
        """Return the hash by which the next anchor names it."""
        return hashlib.sha256(self.signed + self.signature.encode()).hexdigest()

    def to_line(self) -> bytes:
        """Return it as a line of JSON."""
        return canonical_json(from_json(self.signed) | {"signature": self.signature})


_ANCHOR = TypeAdapter(Anchor)


@dataclasses.dataclass(frozen=True)
class AnchorReport:
    """What checking a journal against anchors found; each problem names its run or anchor.

    Args:
        anchors: how many were checked.
        runs: how many runs they name that were not deleted.
        problems: what is wrong, in words; empty if nothing is.
    """

    anchors: int
    runs: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


class SignedHeads:
    """Signs the heads of a journal's runs and exports them: call `anchor`, or pass it among a runtime's observers.

    Keep the anchors where a person who can write the journal cannot write: what is cut off or rewritten behind an exported
    head is found, and what no anchor names is not. As an observer it signs in a thread once `every` runs have ended or
    stopped, or `seconds` after the last anchor when a run does.

    Args:
        journal: the journal.
        signer: signs; its key comes from a secrets manager.
        export: a file that lines are added to (created with mode 0600), or a function of an `Anchor`.
        every: ended runs between two anchors.
        seconds: the time after which one ended run is enough.
        known: the anchors that were exported before, where `export` is a function.
        clock: the clock.

    Raises `ConfigError` if the anchors are of another journal or cannot be read.
    """

    def __init__(
        self,
        journal: AnchoredJournal,
        signer: Signer,
        export: str | os.PathLike[str] | Callable[[Anchor], None],
        *,
        every: int = 20,
        seconds: float = 300.0,
        known: Iterable[Anchor] = (),
        clock: Clock | None = None,
    ) -> None:
        if every < 1 or not seconds > 0:
            raise ConfigError(
                f"every, seconds: must be above 0, got {every!r}, {seconds!r}"
            )
        self._journal, self._signer, self._export = journal, signer, export
        self._every, self._seconds = every, seconds
        self._clock = clock or SystemClock()
        before = list(known)
        if not callable(export) and os.path.lexists(export):
            before = read_anchors(export)
        check_journal_id(before, journal)
        self._last = before[-1] if before else None
        self._heads = fold_heads(before)
        self._deleted: set[str] = set()
        self._lock = threading.Lock()
        self._ended, self._signed_at = 0, time.monotonic()

    def __call__(self, entry: Entry) -> None:
        """Count the end of a run, as an observer; sign in a thread when an anchor is due."""
        if not isinstance(entry.event, RunFinished | RunSuspended):
            return
        self._ended += 1
        is_old = time.monotonic() - self._signed_at >= self._seconds
        if self._ended >= self._every or is_old:
            self._ended, self._signed_at = 0, time.monotonic()
            threading.Thread(target=self._anchor_or_warn, daemon=True).start()

    def _anchor_or_warn(self) -> None:
        try:
            self.anchor()
        except (LoopwrightError, OSError) as error:
            logger().error("heads_not_signed", error=str(error))

    def forget(self, *run_ids: str) -> None:
        """Note that the application deleted runs; the next anchor says so."""
        self._deleted |= set(run_ids)

    def anchor(self) -> Anchor | None:
        """Sign and export the heads that changed since the last anchor; `None` if none did.

        Raises `JournalError` if the journal does not continue what the last anchors say: then nothing is signed.
        """
        with self._lock:
            heads, deleted = self._find_changes()
            if not heads and not deleted:
                return None
            last = self._last
            number, previous = (
                (1, "") if last is None else (last.number + 1, last.digest)
            )
            unsigned = Anchor(
                number,
                self._clock.wall(),
                str(getattr(self._journal, "id", "")),
                previous,
                heads,
                deleted,
                self._signer.key_id,
            )
            signature = base64.b64encode(self._signer.sign(unsigned.signed)).decode()
            made = dataclasses.replace(unsigned, signature=signature)
            self._write(made)
            self._last = made
            self._heads = fold_heads([made], self._heads)
            return made

    def _find_changes(self) -> tuple[dict[str, tuple[int, str]], tuple[str, ...]]:
        """Return the heads that changed, and the runs that were deleted."""
        now = {info.run_id: info for info in self._journal.runs()}
        changed: dict[str, tuple[int, str]] = {}
        for run_id, info in now.items():
            head = info.head_seq, info.head_hash
            before = self._heads.get(run_id)
            if info.damage or (before != head and before is not None):
                problem = info.damage or check_head(self._journal, run_id, before)
                if problem:
                    raise JournalError(f"nothing is signed: run {run_id!r}: {problem}")
            if before != head:
                changed[run_id] = head
        gone = self._heads.keys() - now.keys()
        if gone - self._deleted:
            raise JournalError(
                f"nothing is signed: {sorted(gone - self._deleted)} are gone; if you deleted them, say so with forget()"
            )
        return changed, tuple(sorted(gone))

    def _write(self, anchor: Anchor) -> None:
        if callable(self._export):
            self._export(anchor)
            return
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self._export, flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise JournalError(
                    f"anchors: {os.fspath(self._export)!r} is not a regular file"
                )
            file.write(anchor.to_line() + b"\n")
            file.flush()
            os.fsync(descriptor)


def read_anchors(path: str | os.PathLike[str]) -> list[Anchor]:
    """Return the anchors in a file; raise `ConfigError` naming the line that is none."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"anchors {os.fspath(path)!r}: {error.strerror}") from error
    found: list[Anchor] = []
    for number, line in enumerate(lines, 1):
        try:
            anchor = _ANCHOR.validate_python(from_json(line))
            if anchor.to_line() != line:  # a field left out, or added
                raise ValueError("it is not written as an anchor is")
        except (ValueError, ValidationError):
            raise ConfigError(
                f"anchors {os.fspath(path)!r}: line {number} is not an anchor; use the file that SignedHeads wrote"
            ) from None
        found.append(anchor)
    return found


def check_journal_id(anchors: Sequence[Anchor], journal: AnchoredJournal) -> None:
    """Raise `ConfigError` if anchors are of another journal."""
    own = str(getattr(journal, "id", ""))
    for anchor in anchors:
        if anchor.journal != own:
            raise ConfigError(
                f"anchors: number {anchor.number} is of the journal {anchor.journal!r}, this one is {own!r}; "
                "name the anchors of this journal"
            )


def fold_heads(
    anchors: Iterable[Anchor], before: Mapping[str, tuple[int, str]] | None = None
) -> dict[str, tuple[int, str]]:
    """Return the last head that anchors name for each run that they do not call deleted."""
    heads = dict(before or {})
    for anchor in anchors:
        heads |= anchor.heads
        for run_id in anchor.deleted:
            heads.pop(run_id, None)
    return heads


def check_anchors(
    journal: AnchoredJournal,
    anchors: Sequence[Anchor],
    keys: KeyFile,
    *,
    at_least: int = 0,
) -> AnchorReport:
    """Check a journal against anchors that were signed with keys of the key file.

    Anchors of another journal raise `ConfigError`. `at_least` is the number of the last anchor, where you kept it: it
    finds anchors that were cut off.
    """
    check_journal_id(anchors, journal)
    problems = list(_check_signatures(anchors, keys))
    if len(anchors) < at_least:
        problems.append(f"anchors {len(anchors) + 1} to {at_least} are missing")
    heads = fold_heads(anchors)
    for run_id, head in heads.items():
        problem = check_head(journal, run_id, head)
        if problem:
            problems.append(f"run {run_id!r}: {problem}")
    return AnchorReport(len(anchors), len(heads), tuple(problems))


def _check_signatures(anchors: Sequence[Anchor], keys: KeyFile) -> Iterable[str]:
    """Return what is wrong with anchors themselves."""
    previous = ""
    for number, anchor in enumerate(anchors, 1):
        where = f"anchor {number}"
        if anchor.number != number or anchor.previous != previous:
            yield f"{where} does not follow the one before it"
        previous = anchor.digest
        key = keys.find(anchor.key_id)
        if key is None:
            yield f"{where}: the key {anchor.key_id!r} is not in the key file"
        elif not key.counts_at(anchor.at):
            yield f"{where}: the key {anchor.key_id!r} did not count when it was signed"
        elif not is_signed(key.public_key, anchor.signed, _decode(anchor.signature)):
            yield f"{where}: its signature is not of the key {anchor.key_id!r}"


def _decode(text: str) -> bytes:
    """Return the bytes of a signature; none if it is not in the one form that base64 gives them."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    return raw if base64.b64encode(raw).decode() == text else b""


def check_head(
    journal: AnchoredJournal, run_id: str, head: tuple[int, str] | None
) -> str:
    """Return what is wrong with a run whose entries must continue from a head; "" if nothing is."""
    seq, expected = head or (0, "")
    try:
        found: Any = journal.verify(run_id)
        if not found.ok:
            return str(found.problem)
        entries = journal.read(run_id)
    except UnknownRun:
        return "it is gone, and no anchor says that it was deleted"
    except JournalError as error:
        return str(error)
    if len(entries) < seq:
        return f"entries {len(entries) + 1} to {seq} are cut off"
    if seq and entries[seq - 1].hash != expected:
        return f"entry {seq} is another one than was signed"
    return ""
