"""Reader of a SQLite journal, which detects rows that no journal could have written."""

import contextlib
import functools
import itertools
import sqlite3
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ...errors import JournalError
from ...events.entry import Entry, with_codec
from ...events.lifecycle import restore_answer
from ...events.payloads import Codec
from ..base import RunInfo, Verification, check_history, follow_range, verify_chain
from ..listing import encode_tags
from ..policy_check import check_policy
from .codec import show_options

REFERENCE = "sha256:"
"""Prefix of the text in `events.body` for a body that is stored in `blobs`."""

INFO_COLUMNS = """runs.run_id, engine, options, version, status, owner, fence, head_seq, head_hash, created, parent_run,
                  fork_seq, lease_until, wake_at, app_version, tags, thread, agent, lease_seconds, lease_beat, boot_id,
                  follows"""
"""The columns of `RunInfo`."""
_INFO = f"SELECT {INFO_COLUMNS} FROM runs"  # noqa: S608 - constants
_ENTRIES = """SELECT run_id, seq, key, kind, at, v, fence, body, hash FROM events WHERE run_id = ? AND seq > ?
              ORDER BY seq LIMIT ?"""
_REPLY = """SELECT run_id, seq, key, kind, at, v, fence, body, hash FROM events
            WHERE run_id = ? AND key = ? AND kind = 'model_replied' ORDER BY seq DESC LIMIT 1"""
_JOURNAL_ID = "SELECT value FROM facts WHERE name = 'journal_id'"
_HASH = "SELECT hash FROM events WHERE run_id = ? AND seq = ?"
_LAST_ID = "SELECT coalesce(max(id), 0) FROM events"
_CHANGED_RUNS = "SELECT DISTINCT run_id FROM events WHERE id > ? AND id <= ?"
_BLOB = "SELECT bytes FROM blobs WHERE sha256 = ?"

_OPTIONAL_TEXT = (str, type(None))
_INFO_TYPES: tuple[Any, ...] = (
    str, str, str, str, str, _OPTIONAL_TEXT, int, int, str, (float, int), _OPTIONAL_TEXT,
    (int, type(None)), (float, int, type(None)), (float, int), str, str, str, str, (float, int, type(None)), int, str,
    _OPTIONAL_TEXT,
)  # fmt: skip
_TAGS = 15
"""The position of the tags in a row."""
_TAG_READER = TypeAdapter(dict[str, str], config=ConfigDict(defer_build=True))
_ENTRY_TYPES = frozenset(
    (str, int, str, str, at, int, int, body, str)
    for at, body in itertools.product((float, int), (bytes, str))
)


def read_info(connection: sqlite3.Connection, run_id: str) -> RunInfo | None:
    """Return the row of a run in the table `runs`; raise `JournalError` if it was made unreadable."""
    row = connection.execute(f"{_INFO} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _to_info(row)


def read_listed_row(row: tuple[Any, ...]) -> RunInfo:
    """Return the row of a run, or what is readable of it: one damaged row does not hide the others."""
    try:
        return _to_info(row)
    except JournalError as error:
        name = row[0] if isinstance(row[0], str) else repr(row[0])
        return RunInfo(
            name, "", "", "", "damaged", None, 0, 0, "", 0.0, damage=str(error)
        )


def read_journal_id(connection: sqlite3.Connection) -> str:
    """Return the id of the journal, empty in a file of format 1."""
    row = connection.execute(_JOURNAL_ID).fetchone()
    return "" if row is None else str(row[0])


def find_tags(connection: sqlite3.Connection, run_id: str) -> Mapping[str, str] | None:
    """Return the tags of a run, none where they were changed; `None` if the journal does not have it."""
    query = "SELECT run_id, tags FROM runs WHERE run_id = ?"
    row = connection.execute(query, (run_id,)).fetchone()
    if row is None:
        return None
    with contextlib.suppress(JournalError):
        return read_tags(row[0], row[1])
    return {}


def _to_info(row: tuple[Any, ...]) -> RunInfo:
    position = _find_misfit(tuple(map(type, row)))
    if position is not None:
        raise JournalError(
            f"run {row[0]!r}: its row in the table runs was changed: column {position} is {row[position]!r}"
        )
    fields = list(row)
    fields[_TAGS] = read_tags(row[0], row[_TAGS])
    return RunInfo(*fields)


@functools.lru_cache(maxsize=256)
def _find_misfit(types: tuple[type, ...]) -> int | None:
    """Return the first column whose value has a type that no journal writes; a list of runs has few kinds of rows."""
    for position, (found, known) in enumerate(zip(types, _INFO_TYPES, strict=True)):
        if not issubclass(found, known):
            return position
    return None


def read_tags(run_id: object, found: Any) -> dict[str, str]:
    """Return the tags of a row; raise `JournalError` unless they are as a journal writes them."""
    if found == "{}":
        return {}
    with contextlib.suppress(ValidationError):
        tags = _TAG_READER.validate_json(found)
        if encode_tags(tags) == found:
            return tags
    raise JournalError(
        f"run {run_id!r}: its row in the table runs was changed: its tags are {found!r}"
    )


def read_entries(
    connection: sqlite3.Connection,
    run_id: str,
    after: int = 0,
    limit: int | None = None,
    codec: Codec | None = None,
) -> tuple[list[Entry], str]:
    """Return a run's entries, oldest first, up to the first unreadable one, and its problem or an empty text.

    `codec` decodes their bodies when their events are asked for, so that the chain can be read without a key.
    """
    entries: list[Entry] = []
    try:
        for row in connection.execute(
            _ENTRIES, (run_id, after, -1 if limit is None else limit)
        ):
            entries.append(with_codec(_read_entry(connection, row), codec))
    except ValueError as error:
        return entries, f"entry {after + len(entries) + 1} cannot be read: {error}"
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return entries, f"entry {after + len(entries) + 1} cannot be read: {error}"
    return entries, ""


def read_range(
    connection: sqlite3.Connection,
    info: RunInfo,
    after: int,
    limit: int | None,
    codec: Codec | None = None,
) -> tuple[list[Entry], str]:
    """Return the entries of a range whose chain is intact, and what is wrong with it or an empty text."""
    entries, damage = read_entries(connection, info.run_id, after, limit, codec)
    found = connection.execute(_HASH, (info.run_id, after)).fetchone()
    previous = found[0] if found else ""
    wanted = max(info.head_seq - after, 0)
    count = wanted if limit is None else min(limit, wanted)
    problem = damage or follow_range(info, entries, after, previous, count)
    if not problem:
        with contextlib.suppress(JournalError):  # it is said where the event is read
            find = functools.partial(_find_reply, connection, codec, info.run_id)
            restore_answer(entries, find)
    return entries, problem


def _find_reply(
    connection: sqlite3.Connection, codec: Codec | None, run_id: str, key: str
) -> Entry | None:
    """Return the last reply of a model at a key."""
    row = connection.execute(_REPLY, (run_id, key)).fetchone()
    return None if row is None else with_codec(_read_entry(connection, row), codec)


def read_news(connection: sqlite3.Connection, after: int) -> tuple[int, frozenset[str]]:
    """Return the number of the last entry of the file, and the runs that got one after the number `after`.

    Below 0 only the number is wanted.
    """
    last: int = connection.execute(_LAST_ID).fetchone()[0]
    if after < 0:
        return last, frozenset()
    since = after if 0 <= after <= last else 0
    changed = connection.execute(_CHANGED_RUNS, (since, last)).fetchall()
    return last, frozenset(run_id for (run_id,) in changed if run_id)


def _read_entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Entry:
    """Return the entry of a row; raise ValueError if it is unreadable."""
    if tuple(map(type, row)) not in _ENTRY_TYPES:
        raise ValueError("a column holds a value of another type")
    body = row[7]
    if isinstance(body, str):
        body = _read_blob(connection, body)
    fields: list[Any] = [*row]
    fields[7] = body
    return Entry(*fields)


def _read_blob(connection: sqlite3.Connection, reference: str) -> bytes:
    digest = reference.removeprefix(REFERENCE)
    found: tuple[object] | None = connection.execute(_BLOB, (digest,)).fetchone()
    body = None if found is None else found[0]
    if not isinstance(body, bytes) or not reference.startswith(REFERENCE):
        raise ValueError(f"its body {reference[:80]!r} is not in the table blobs")
    return body


def verify_run(
    connection: sqlite3.Connection,
    run_id: str,
    head: str | None,
    *,
    policy: bool = False,
    codec: Codec | None = None,
) -> Verification | None:
    """Check a run's chain, rows, head and policy; return `None` if the journal has nothing of it."""
    entries, damage = read_entries(connection, run_id, codec=codec)
    last = entries[-1].hash if entries else ""
    try:
        info = read_info(connection, run_id)
    except JournalError as error:
        return Verification(run_id, len(entries), last, str(error))
    if info is None:
        missing = "its row in the table runs is gone"
        was_kept = bool(entries or damage)
        return Verification(run_id, len(entries), last, missing) if was_kept else None
    found = verify_chain(run_id, entries, show_options(codec, info), head)
    # Report a change before the damage; otherwise the damage is why the chain ends early.
    if damage and found.head_hash == last:
        return Verification(run_id, len(entries), last, damage, len(entries) + 1)
    found = found.with_history(
        check_history(
            entries, lambda earlier: read_entries(connection, earlier, codec=codec)[0]
        )
    )
    return check_policy(found, entries) if policy else found
