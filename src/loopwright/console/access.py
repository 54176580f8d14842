"""The access file beside a journal: who looked at secret entries or deleted a run, in a chain of hashes, signed."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pydantic_core import from_json, to_json

from .._internal import dataclasses
from ..errors import ConfigError, JournalError
from ..journals.base import Command
from ..security.signed_commands import CommandSigner
from ..storage.kind import FileKind
from ..storage.lock import ProcessLock

SUFFIX = ".access"
KIND = FileKind(
    "access file", "Console", JournalError, "MemoryJournal()", "runs.db.access"
)
PATIENCE = 5.0
"""Seconds to wait for another process that adds a line."""
COMMAND = "access"
"""The kind of the command as which a line is signed."""


class AccessFile:
    """Appends a line of JSON for each access, with the hash of the line before; `None` keeps none.

    A journal in memory has none. The file is private to its owner.

    Args:
        journal_path: the journal's file.
        signer: signs each line, `None` or one without a key none.
    """

    def __init__(
        self, journal_path: Path | None, signer: CommandSigner | None = None
    ) -> None:
        self._path = None if journal_path is None else _beside(journal_path, SUFFIX)
        self._signer = signer

    def add(self, at: float, by: str, run_id: str, action: str) -> None:
        """Record who asked for the hidden entries of a run, or deleted it; durable on return."""
        if self._path is None:
            return
        lock = ProcessLock(_beside(self._path, ".lock"), PATIENCE, KIND)
        try:
            with lock as opened, opened.held():
                self._append(self._path, at, by, run_id, action)
        except OSError as error:
            raise JournalError(
                f"{self._path}: the access cannot be recorded, so it is refused: {error}"
            ) from None

    def _append(self, path: Path, at: float, by: str, run_id: str, action: str) -> None:
        before = path.read_bytes() if path.exists() else b""
        line: dict[str, Any] = {"at": at, "by": by, "run_id": run_id, "action": action}
        line["previous"] = _find_last_hash(before)
        if self._signer is not None:
            line = dict(self._signer.sign(run_id, COMMAND, line))
        line["hash"] = _hash(line)
        # A line that another process did not finish stands alone, where the check names it.
        separator = b"\n" if before and not before.endswith(b"\n") else b""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        file = os.open(path, flags, 0o600)
        try:
            os.write(file, separator + to_json(line) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)


@dataclasses.dataclass(frozen=True)
class AccessReport:
    """What checking an access file found.

    Args:
        lines: how many accesses it records.
        problems: what is wrong, each with the number of its line; empty if nothing is.
    """

    lines: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_access(
    path: str | os.PathLike[str], signer: CommandSigner | None = None
) -> AccessReport:
    """Check that no line of an access file was changed, moved or left out, and with `signer` that each is signed.

    Lines that were cut off at the end are not found. Raises `ConfigError` for a file that cannot be read.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"access: {os.fspath(path)!r} cannot be read: {error}; name an access file"
        ) from None
    return AccessReport(len(lines), tuple(_find_problems(lines, signer)))


def _find_problems(lines: list[bytes], signer: CommandSigner | None) -> Iterator[str]:
    previous = ""
    for number, raw in enumerate(lines, 1):
        line = _parse(raw)
        if line is None:
            yield f"line {number}: cannot be read"
            continue
        stated = line.pop("hash", None)
        if stated != _hash(line):
            yield f"line {number}: was changed"
        if line.get("previous") != previous:
            yield f"line {number}: does not follow the line before"
        previous = str(stated)
        problem = "" if signer is None else _check_signature(line, signer)
        if problem:
            yield f"line {number}: {problem}"


def _check_signature(line: dict[str, Any], signer: CommandSigner) -> str:
    at = line.get("at")
    if not isinstance(at, (int, float)):
        return "has no time"
    sent = Command(0, str(line.get("run_id")), at, COMMAND, line)
    return signer.find_problem(sent)


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        found = from_json(raw)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _find_last_hash(before: bytes) -> str:
    """Return the hash of the last line that can be read; empty without one."""
    known = (_parse(raw) for raw in reversed(before.splitlines()))
    return next((str(one["hash"]) for one in known if one and "hash" in one), "")


def _hash(line: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(line)).hexdigest()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
