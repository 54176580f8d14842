"""Reads what a SQLite journal holds, and tells rows that nobody could have written from those that were."""

import itertools
import sqlite3
from typing import Any

from ...errors import JournalError
from ...events.entry import Entry
from ..base import RESUMABLE, RunInfo, Verification, verify_chain

REFERENCE = "sha256:"
"""Begins the text that stands in `events.body` for a body kept in `blobs`."""

_INFO = """SELECT run_id, engine, options, version, status, owner, fence, head_seq, head_hash, created, parent_run,
                  fork_seq, lease_until
           FROM runs"""
_UNFINISHED = f"WHERE status IN ({', '.join(map(repr, RESUMABLE))})"
_ENTRIES = "SELECT run_id, seq, key, kind, at, v, fence, body, hash FROM events WHERE run_id = ? ORDER BY seq"
_BLOB = "SELECT bytes FROM blobs WHERE sha256 = ?"

_TEXT_OR_NOTHING = (str, type(None))
_INFO_TYPES: tuple[Any, ...] = (
    str, str, str, str, str, _TEXT_OR_NOTHING, int, int, str, (float, int), _TEXT_OR_NOTHING,
    (int, type(None)), (float, int, type(None)),
)  # fmt: skip
_ENTRY_TYPES = frozenset(
    (str, int, str, str, at, int, int, body, str)
    for at, body in itertools.product((float, int), (bytes, str))
)


def read_info(connection: sqlite3.Connection, run_id: str) -> RunInfo | None:
    """What the table `runs` says of a run; raises `JournalError` if its row was changed to something unreadable."""
    row = connection.execute(f"{_INFO} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _info(row)


def read_infos(connection: sqlite3.Connection, unfinished: bool) -> list[RunInfo]:
    """All runs, or those that have not ended, the one begun last first."""
    which = _UNFINISHED if unfinished else ""
    return [
        _info(row) for row in connection.execute(f"{_INFO} {which} ORDER BY rowid DESC")
    ]


def is_kept(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether there is such a run."""
    return (
        connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        is not None
    )


def _info(row: tuple[Any, ...]) -> RunInfo:
    for position, (value, types) in enumerate(zip(row, _INFO_TYPES, strict=True)):
        if not isinstance(value, types):
            raise JournalError(
                f"run {row[0]!r}: its row in the table runs was changed: column {position} is {value!r}"
            )
    return RunInfo(*row)


def read_entries(
    connection: sqlite3.Connection, run_id: str
) -> tuple[list[Entry], str]:
    """A run's entries, oldest first, up to the first that cannot be read; and what is wrong with that one, or ""."""
    entries: list[Entry] = []
    try:
        for row in connection.execute(_ENTRIES, (run_id,)):
            found = _entry(connection, row)
            if isinstance(found, str):
                return entries, f"entry {len(entries) + 1} cannot be read: {found}"
            entries.append(found)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return entries, f"entry {len(entries) + 1} cannot be read: {error}"
    return entries, ""


def _entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Entry | str:
    if tuple(map(type, row)) not in _ENTRY_TYPES:
        return "a column holds a value of another type"
    body = row[7]
    if isinstance(body, str):
        blob = connection.execute(_BLOB, (body.removeprefix(REFERENCE),)).fetchone()
        if (
            blob is None
            or not body.startswith(REFERENCE)
            or not isinstance(blob[0], bytes)
        ):
            return f"its body {body[:80]!r} is not in the table blobs"
        body = blob[0]
    fields: list[Any] = [*row]
    fields[7] = body
    return Entry(*fields)


def verify_run(
    connection: sqlite3.Connection, run_id: str, head: str | None
) -> Verification | None:
    """Check a run's chain, rows and head; None if nothing was ever kept of it."""
    entries, damage = read_entries(connection, run_id)
    last = entries[-1].hash if entries else ""
    try:
        info = read_info(connection, run_id)
    except JournalError as error:
        return Verification(run_id, len(entries), last, str(error))
    if info is None:
        missing = "its row in the table runs is gone"
        return (
            Verification(run_id, len(entries), last, missing)
            if entries or damage
            else None
        )
    found = verify_chain(run_id, entries, info, head)
    # A change before the damage is the earlier find; else the damage is why the chain ends too soon.
    if damage and found.head_hash == last:
        return Verification(run_id, len(entries), last, damage, len(entries) + 1)
    return found
