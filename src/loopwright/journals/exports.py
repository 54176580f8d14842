"""The file of exported runs: JSON Lines, whose last line is the SHA-256 of those before it."""

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from .._internal import dataclasses
from ..errors import ConfigError, JournalError
from ..events.entry import Entry
from ..storage.drafts import drafting, publish
from ..storage.modes import create_file
from .base import RunInfo, verify_chain

EXPORT_VERSION = 1
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading a file raises that no export is."""
_OF_AN_OWNER = ("lease_until", "lease_seconds", "lease_beat", "boot_id", "damage")


StoredCommand: TypeAlias = tuple[int, float, str, bytes, str]
"""A command as an inbox stores it: its number, time and kind, its body, and its hash."""


@dataclasses.dataclass(frozen=True)
class ExportedRun:
    """A run in an export: its row, its entries with their chain, and the commands that were sent to it with theirs."""

    info: RunInfo
    entries: Sequence[Entry]
    commands: Sequence[StoredCommand] = ()


def write_export(path: str | os.PathLike[str], runs: Iterable[ExportedRun]) -> int:
    """Write runs into a new file, private to its owner, and return their number."""
    target = check_new_path(path)
    try:
        with drafting(target) as folder:
            draft = folder / target.name
            create_file(draft)
            count = _write_runs(draft, runs)
            publish({draft: target})
    except FileExistsError:
        raise ConfigError(format_path_taken(target)) from None
    return count


def _write_runs(draft: Path, runs: Iterable[ExportedRun]) -> int:
    digest, count = hashlib.sha256(), 0
    with draft.open("wb") as file:
        _write_line(file, digest, {"loopwright_export": EXPORT_VERSION})
        for run in runs:
            count += 1
            for line in _encode_run(run):
                _write_line(file, digest, line)
        file.write(json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return count


def _write_line(file: Any, digest: Any, line: Mapping[str, Any]) -> None:
    encoded = json.dumps(line).encode() + b"\n"
    digest.update(encoded)
    file.write(encoded)


def _encode_run(run: ExportedRun) -> Iterator[dict[str, Any]]:
    row = dataclasses.asdict(run.info)
    yield {
        "run": {name: value for name, value in row.items() if name not in _OF_AN_OWNER}
    }
    for entry in run.entries:
        fields = {
            field.name: getattr(entry, field.name)
            for field in dataclasses.fields(entry)
        }
        yield {"entry": {**fields, "body": _encode_body(entry.body)}}
    for number, at, kind, body, hash in run.commands:
        yield {"command": [number, at, kind, _encode_body(body), hash]}


def _encode_body(body: bytes) -> str | list[str]:
    """Return a body as text, or in a list as base64 if it is not text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return [base64.b64encode(body).decode()]


def read_export(path: str | os.PathLike[str]) -> list[ExportedRun]:
    """Return the runs of an export; raise `JournalError` unless it is whole and every chain is intact."""
    place = check_path(path)
    try:
        lines = place.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"path: {os.fspath(path)!r}: {error.strerror}") from error
    try:
        runs = _decode_runs(_check_digest(lines))
    except _MALFORMED as error:
        raise JournalError(
            f"export {os.fspath(path)!r} is damaged, so nothing was imported: {error}"
        ) from error
    for run in runs:
        found = verify_chain(run.info.run_id, run.entries, run.info)
        if not found.ok:
            raise JournalError(
                f"export {os.fspath(path)!r}: run {run.info.run_id!r}: {found.problem}; nothing was imported"
            )
    return runs


def _check_digest(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the lines between the first and the last one, which says what they must be."""
    if len(lines) < 2:
        raise ValueError("it has no end")
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    if json.loads(lines[-1]) != {"sha256": digest}:
        raise ValueError("its last line is not the hash of the others")
    if json.loads(lines[0]) != {"loopwright_export": EXPORT_VERSION}:
        raise ValueError("its first line is not that of an export of this version")
    return [json.loads(line) for line in lines[1:-1]]


def _decode_runs(lines: Iterable[Mapping[str, Any]]) -> list[ExportedRun]:
    runs: list[tuple[RunInfo, list[Entry], list[StoredCommand]]] = []
    for line in lines:
        if "run" in line:
            runs.append((RunInfo(**line["run"]), [], []))
        elif "command" in line:
            runs[-1][2].append(_decode_command(*line["command"]))
        else:
            fields: dict[str, Any] = dict(line["entry"])
            fields["body"] = _decode_body(fields["body"])
            runs[-1][1].append(Entry(**fields))
    if len({info.run_id for info, _, _ in runs}) < len(runs):
        raise ValueError("it has a run twice")
    return [ExportedRun(*run) for run in runs]


def _decode_command(
    number: Any, at: Any, kind: Any, body: Any, hash: Any
) -> StoredCommand:
    is_time = type(at) in (int, float)
    if not is_time or [type(one) for one in (number, kind, hash)] != [int, str, str]:
        raise ValueError("a command has a value of another type")
    return number, at, kind, _decode_body(body), hash


def _decode_body(body: str | list[str]) -> bytes:
    return body.encode() if isinstance(body, str) else base64.b64decode(body[0])


def check_path(path: Any) -> Path:
    """Return a path; raise `ConfigError` for a value that cannot be one."""
    if isinstance(path, (str, os.PathLike)) and path != "":
        found = Path(cast("str", path))
        if is_file_name(str(found)):
            return found
    raise ConfigError(f"path: must be the path of a file, got {path!r}")


def is_file_name(name: str) -> bool:
    """Return whether the system can have a file of that name."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def check_new_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a file that does not exist; raise `ConfigError` if none can be made there."""
    target = check_path(path).absolute()
    if target.exists():
        raise ConfigError(format_path_taken(target))
    if not target.parent.is_dir():
        raise ConfigError(
            f"path: directory {str(target.parent)!r} does not exist; create it first"
        )
    return target


def format_path_taken(path: Path) -> str:
    """Return the error text for a path where a file is already."""
    return f"path: {str(path)!r} exists already; choose another one"
