"""The inbox of a SQLite journal: a second file, into which any process may put commands at any time."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._internal.log import logger
from ...errors import CodecError, JournalError
from ...events.payloads import MARK, Codec, PayloadPlace, decode_payload, encode_payload
from ...messages import JsonObject
from ...storage.formats import Format
from ...storage.modes import add_suffix
from ..base import Command, decode_command_body
from ..exports import ExportedRun, StoredCommand
from .file import JournalFile

# As in the journal, `at` has no column type. The journal's writer never opens this file, so neither waits.
INBOX = Format(
    0x4C6F7049,  # "LopI"
    1,
    (
        """CREATE TABLE commands (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, at NOT NULL, kind TEXT NOT NULL,
            body BLOB NOT NULL, hash TEXT NOT NULL, UNIQUE (run_id, number))""",
    ),
)
# SQLite accepts a text or a fraction in an integer column, but no command has such a number.
_LAST = """SELECT number, hash FROM commands WHERE run_id = ? AND typeof(number) = 'integer' AND number > 0
           ORDER BY number DESC LIMIT 1"""
_INSERT = "INSERT INTO commands (number, run_id, at, kind, body, hash) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM commands WHERE run_id = ?"
# The last row keeps its number, which tells readers what is new.
_BLANK = "UPDATE commands SET run_id = '', number = 0, at = 0, kind = '', body = x'', hash = '' WHERE id = ? AND run_id = ?"
_DELETE_BLANK = "DELETE FROM commands WHERE run_id = '' AND id < ?"
_LAST_ID = "SELECT coalesce(max(id), 0) FROM commands"
_CHANGED_RUNS = "SELECT DISTINCT run_id FROM commands WHERE id > ? AND id <= ?"
_RUNS = "SELECT DISTINCT run_id FROM commands WHERE run_id != ''"
_COMMANDS = """SELECT number, run_id, at, kind, body, hash FROM commands
               WHERE run_id = ? AND typeof(number) = 'integer' AND number > 0 ORDER BY number"""
_UNNUMBERED = "SELECT count(*) FROM commands WHERE run_id = ? AND (typeof(number) != 'integer' OR number < 1)"

_HELD = "the runs are deleted, the commands to them may be not: free the file and delete again"

REVOKING = ("deny", "stop", "abort")
"""The kinds of commands that may revoke an approval, as their rows say them."""
CLOCK_RESOLUTION = 100_000_000  # nanoseconds within which two changes may leave a file with the same time


def name_inbox(path: Path) -> Path:
    """Return the path of the inbox of a journal."""
    return add_suffix(path, ".inbox")


class Inbox:
    """Stores commands in `<path>.inbox`, which is opened for each use, because commands are rare."""

    def __init__(self, path: Path, busy_timeout: float, codec: Codec | None) -> None:
        self._codec = codec
        self._file = JournalFile(name_inbox(path), "FULL", busy_timeout, INBOX)
        self._warned: set[object] = set()
        """Runs with a logged command without a number, and the places of logged commands that cannot be decoded."""

    def add(
        self, run_id: str, at: float, kind: str, body: bytes, tenant: str = ""
    ) -> int:
        """Store a command and return its number; durable on return."""
        try:
            with self._file.writing() as connection, connection.transaction() as cursor:
                last, before = cursor.execute(_LAST, (run_id,)).fetchone() or (0, "")
                place = _name_command(run_id, last + 1, kind, tenant)
                stored = encode_payload(self._codec, body, place)
                row = (last + 1, run_id, at, kind, stored)
                cursor.execute(_INSERT, (*row, _hash(before, *row)))
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._file.explain(error) from error
        return row[0]

    def read(self, run_id: str, after: int) -> list[Command]:
        """Return the commands to a run above the number `after`, oldest first; changed ones with their damage.

        One that the codec cannot decode is left out and logged, so that it hides none that comes after it. One that may
        revoke an approval is returned as damaged: what was approved before must not run as if it were not there.
        """
        with self._file.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(_COMMANDS, (run_id,)).fetchall()
            (unnumbered,) = connection.execute(_UNNUMBERED, (run_id,)).fetchone()
        if unnumbered:
            self._log_once(
                run_id, "command_without_number", run_id=run_id, commands=unnumbered
            )
        found: list[Command] = []
        for previous, row in zip([(0, ""), *rows], rows, strict=False):
            if row[0] <= after:
                continue
            try:
                found.append(_read_command(previous, row, run_id, self._codec))
            except CodecError as error:
                self._log_skipped(run_id, row[0], error)
                if row[3] in REVOKING:
                    problem = (
                        f"{error}; send it again under a key that the run's process has"
                    )
                    found.append(Command(row[0], run_id, row[2], row[3], {}, problem))
        return found

    def _log_skipped(self, run_id: str, number: int, error: CodecError) -> None:
        problem = (
            f"{error}; let a process with that key continue the run, or send it again"
        )
        self._log_once(
            (run_id, number), "command_skipped", run_id=run_id, number=number, error=problem
        )  # fmt: skip

    def _log_once(self, about: object, event: str, **fields: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            logger().warning(event, inbox=str(self._file.path), **fields)

    def news(self, after: int) -> tuple[int, frozenset[str]]:
        """Return the id of the last command, and the runs that got a command after the id `after`.

        Below 0, no runs are returned: a reader that starts reads the earlier commands in any case.
        """
        with self._file.reading() as connection:
            if connection is None:
                return 0, frozenset()
            last: int = connection.execute(_LAST_ID).fetchone()[0]
            if after < 0:
                return last, frozenset()
            since = after if after <= last else 0  # the file may have been replaced
            return last, frozenset(
                row[0]
                for row in connection.execute(_CHANGED_RUNS, (since, last))
                if row[0]
            )

    def list_runs(self) -> list[str]:
        """Return the runs to which there are commands."""
        with self._file.reading() as connection:
            rows = [] if connection is None else connection.execute(_RUNS).fetchall()
        return [run_id for (run_id,) in rows]

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete the commands to some runs, overwrite what they occupied, and empty the log."""
        if not self._file.exists():
            return
        rewrite = self._file.begin_rewrite("the commands are deleted")
        try:
            with self._file.writing() as connection:
                with connection.transaction() as cursor:
                    (last,) = cursor.execute(_LAST_ID).fetchone()
                    cursor.execute(_DELETE_BLANK, (last,))
                    for run_id in run_ids:
                        cursor.execute(_BLANK, (last, run_id))
                        cursor.execute(_DELETE, (run_id,))
                rewrite.complete(connection)
        except (sqlite3.Error, OSError) as error:
            raise self._file.explain(error, _HELD) from error

    def read_stored(self, run_id: str) -> list[StoredCommand]:
        """Return the commands to a run as they are stored, for an export; raise `JournalError` if one was changed."""
        with self._file.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(_COMMANDS, (run_id,)).fetchall()
        for row in rows:
            if tuple(map(type, row)) not in _ROW_TYPES:
                raise JournalError(f"run {run_id!r}: command {row[0]} was changed")
        return [(number, *rest) for number, _, *rest in rows]

    def restore(self, runs: Sequence[ExportedRun]) -> None:
        """Store the commands of runs that were imported."""
        if not any(run.commands for run in runs):
            return
        try:
            with self._file.writing() as connection, connection.transaction() as cursor:
                for run in runs:
                    run_id = run.info.run_id
                    cursor.execute(_DELETE, (run_id,))
                    rows = [(one[0], run_id, *one[1:]) for one in run.commands]
                    cursor.executemany(_INSERT, rows)
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._file.explain(error) from error

    def copy(self, target: Path) -> None:
        """Copy the inbox to a new path, if there is one."""
        if self._file.exists():
            self._file.copy(name_inbox(target))

    def mark(self) -> object:
        """Return a value that changes with the files."""
        return mark_files(self._file.path)


def _read_command(
    previous: tuple[Any, ...], row: tuple[Any, ...], owner: str, codec: Codec | None
) -> Command:
    """Return the command of a row, with its damage if it does not follow the previous row.

    Raises `CodecError` for one without its key, which another process may have: it is not refused.
    """
    number, run_id, at, kind, body, found_hash = row
    try:
        if tuple(map(type, row)) not in _ROW_TYPES:
            raise ValueError("a column holds a value of another type")
        decoded: JsonObject = {}
        is_encoded = body.startswith(MARK)
        if not is_encoded:
            decoded = decode_command_body(body)
        expected = _hash(previous[-1], number, run_id, at, kind, body)
        if number != previous[0] + 1 or found_hash != expected:
            raise ValueError(
                "it does not follow the one before, or another hash was made of it"
            )
        if is_encoded:
            place = _name_command(run_id, number, kind)
            decoded = decode_command_body(decode_payload(codec, body, place))
        return Command(number, run_id, at, kind, decoded)
    except ValueError as error:
        damage = f"command {number} was changed: {error}"
        return Command(number, owner, 0.0, "damaged", {}, damage)


def _name_command(
    run_id: str, number: int, kind: str, tenant: str = ""
) -> PayloadPlace:
    return PayloadPlace(run_id, f"command {number} {kind}", tenant)


def mark_files(path: Path) -> object:
    """Return the times and sizes of a SQLite file and its log.

    It is new each time for files that changed just now, because their clock is coarse.
    """
    found = (_stat(path), _stat(add_suffix(path, "-wal")))
    newest = max(stamp[0] for stamp in found)
    return object() if abs(time.time_ns() - newest) < CLOCK_RESOLUTION else found


def _stat(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hash(
    previous: str, number: int, run_id: str, at: float, kind: str, body: bytes
) -> str:
    """Return the hash of a command (hex SHA-256) over the previous hash and each field, texts with their length."""
    head = f"{previous}|{number}|{len(run_id)}:{run_id}|{at!r}|{len(kind)}:{kind}|"
    return hashlib.sha256(head.encode() + body).hexdigest()


_ROW_TYPES = ((int, str, float, str, bytes, str), (int, str, int, str, bytes, str))
