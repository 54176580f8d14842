"""The jobs that take runs out of a SQLite journal, or put exported ones in; each is one transaction."""

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence

from ...clock import Clock
from ...errors import ConfigError, JournalError, LoopwrightError, UnknownRun
from ...events.entry import with_codec
from ...events.followups import FOLLOW_UP
from ...events.payloads import MARK, Codec
from ..base import TURN_PREFIX, RunInfo, find_follows, format_id_taken, is_turn_id
from ..claims import LeaseWatch, ensure_claimable
from ..exports import ExportedRun, StoredCommand
from ..listing import encode_tags
from ..retention import format_deleted, format_followed, hash_name
from .codec import refuse_plain
from .jobs import (
    INSERT_EVENT,
    Job,
    Row,
    has_entry,
    insert_tags,
    refuse_deleted_name,
    to_row,
)
from .reader import read_info, read_range

_FOLLOWERS = """WITH RECURSIVE gone(run_id) AS (
                  SELECT ? UNION SELECT runs.run_id FROM runs JOIN gone
                  ON runs.follows = gone.run_id)
                SELECT run_id FROM gone"""
_BLOBS_OF = (
    "SELECT DISTINCT body FROM events WHERE run_id = ? AND typeof(body) = 'text'"
)
_USES_BLOB = "SELECT 1 FROM events WHERE body = ? AND typeof(body) = 'text' LIMIT 1"
_BURY = "INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?)"
_TOMBSTONE = (
    "SELECT deleted_by, deleted_at, head_hash FROM tombstones WHERE name_hash = ?"
)
# The last row of a table keeps its number, which tells readers what is new.
_LAST_ID = "SELECT coalesce(max(id), 0) FROM events"
_BLANK = """UPDATE events SET run_id = '', seq = id, key = '', kind = '', at = 0, body = x'', hash = ''
            WHERE id = ? AND run_id = ?"""
# Each deletion has a mark of its own, so that one which ends does not take the mark of another process along.
_NOTE_ERASURE = "INSERT OR REPLACE INTO facts VALUES ('erasure', ?)"
_DUE_ERASURE = "SELECT value FROM facts WHERE name = 'erasure'"
FORGET_ERASURE = "DELETE FROM facts WHERE name = 'erasure' AND value = ?"
NOTHING = "nothing was imported"
_HAS_OTHER_TURN = (
    "SELECT 1 FROM runs WHERE thread = ? AND run_id GLOB ? AND run_id NOT GLOB ?"
)
_COLUMNS = (
    "run_id", "engine", "options", "version", "status", "owner", "fence", "head_seq", "head_hash", "created",
    "parent_run", "fork_seq", "wake_at", "app_version", "thread", "agent", "follows",
)  # fmt: skip
_IMPORT = f"INSERT INTO runs ({', '.join(_COLUMNS)}, tags) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"  # noqa: S608


class DeleteRuns(Job):
    """Delete runs with all that is stored of them; `deleted` holds their ids once the job is durable."""

    def __init__(
        self,
        run_ids: Sequence[str],
        *,
        cascade: bool,
        deleted_by: str,
        clock: Clock,
        watch: LeaseWatch,
    ) -> None:
        super().__init__()
        self._run_ids, self._cascade = run_ids, cascade
        self._deleted_by, self._clock, self._watch = deleted_by, clock, watch
        self.deleted: list[str] = []

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Delete the runs unless one of them is unknown, at work or continued by others."""
        if self.is_repeated and self._is_made(cursor):
            return
        # An entry of one of these runs may be queued before this job in the same transaction.
        cursor.executemany(INSERT_EVENT, rows)
        rows.clear()
        found = self._choose(cursor)
        now = self._clock.wall()
        for info in found.values():
            _delete_run(cursor, info, self._deleted_by, now)
        if found:
            cursor.execute(_NOTE_ERASURE, (secrets.token_hex(8),))
        self.deleted = list(found)

    def _choose(self, cursor: sqlite3.Cursor) -> dict[str, RunInfo]:
        """Return the runs to delete, by their ids."""
        found = {
            info.run_id: info
            for one in self._run_ids
            for info in self._find(cursor, one)
        }
        for info in found.values():
            ensure_claimable(info, False, self._watch)
        return found

    def _is_made(self, cursor: sqlite3.Cursor) -> bool:
        """Return whether the runs are gone that the earlier attempt chose."""
        names = [(hash_name(run_id),) for run_id in self.deleted]
        found = [cursor.execute(_TOMBSTONE, name).fetchone() for name in names]
        return bool(found) and None not in found

    def _find(self, cursor: sqlite3.Cursor, run_id: str) -> list[RunInfo]:
        """Return the run with all that follow it."""
        followers = [
            name for (name,) in cursor.execute(_FOLLOWERS, (run_id,)).fetchall()
        ]
        infos = [read_info(cursor.connection, name) for name in followers]
        if infos[0] is None:
            raise _build_gone(cursor.connection, run_id)
        found = [info for info in infos if info is not None]
        # Its follow-ups go along: they are work about this run and nothing else.
        others = {info.run_id for info in found if info.engine != FOLLOW_UP}
        others -= {run_id, *self._run_ids}
        if others and not self._cascade:
            raise ConfigError(format_followed(run_id, others))
        return found


class PruneThreads(DeleteRuns):
    """Delete whole threads; one that was continued, retried or deleted since it was chosen stays as it is."""

    def __init__(
        self,
        threads: Sequence[Sequence[str]],
        *,
        statuses: Sequence[str],
        deleted_by: str,
        clock: Clock,
        watch: LeaseWatch,
    ) -> None:
        super().__init__(
            (), cascade=False, deleted_by=deleted_by, clock=clock, watch=watch
        )
        self._threads, self._statuses = threads, statuses

    def _choose(self, cursor: sqlite3.Cursor) -> dict[str, RunInfo]:
        """Return the runs of the threads of which all runs have still ended."""
        chosen: dict[str, RunInfo] = {}
        for thread in self._threads:
            self._run_ids = thread
            with contextlib.suppress(LoopwrightError):
                found = super()._choose(cursor)
                if all(info.status in self._statuses for info in found.values()):
                    chosen |= found
        return chosen


class RunGone(UnknownRun):
    """The run was deleted."""


def _build_gone(connection: sqlite3.Connection, run_id: str) -> UnknownRun:
    deleted = read_tombstone(connection, run_id)
    if deleted:
        return RunGone(deleted)
    return UnknownRun(f"no run {run_id!r} in this journal")


def _delete_run(
    cursor: sqlite3.Cursor, info: RunInfo, deleted_by: str, now: float
) -> None:
    run_id = info.run_id
    blobs = cursor.execute(_BLOBS_OF, (run_id,)).fetchall()
    (last,) = cursor.execute(_LAST_ID).fetchone()
    cursor.execute("DELETE FROM events WHERE run_id = '' AND id < ?", (last,))
    cursor.execute(_BLANK, (last, run_id))
    for table in ("events", "run_tags", "runs"):
        cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
    for (reference,) in blobs:
        if cursor.execute(_USES_BLOB, (reference,)).fetchone() is None:
            digest = reference.partition(":")[2]
            cursor.execute("DELETE FROM blobs WHERE sha256 = ?", (digest,))
    cursor.execute(_BURY, (hash_name(run_id), info.head_hash, deleted_by, now))


def read_tombstone(connection: sqlite3.Connection, run_id: object) -> str:
    """Return that a run was deleted, by whom and when; empty if it was not, or if this can be no id of a run."""
    if not isinstance(run_id, str):
        return ""
    row = connection.execute(_TOMBSTONE, (hash_name(run_id),)).fetchone()
    if row is None:
        return ""
    deleted_by, deleted_at, head_hash = row
    day = time.strftime("%Y-%m-%d", time.gmtime(deleted_at))
    return format_deleted(run_id, deleted_by, day, head_hash)


def read_due_erasure(connection: sqlite3.Connection) -> str:
    """Return the mark of the last deletion whose rows the file may still hold; empty if there is none."""
    row = connection.execute(_DUE_ERASURE).fetchone()
    return "" if row is None else str(row[0])


def collect_exported(
    connection: sqlite3.Connection, run_ids: Sequence[str], watch: LeaseWatch
) -> list[RunInfo]:
    """Return the rows of runs and of those that they continue, each after the one that it continues."""
    found: dict[str, RunInfo] = {}
    for run_id in run_ids:
        thread: list[RunInfo] = []
        wanted: str | None = run_id
        while wanted is not None and wanted not in found:
            info = read_info(connection, wanted)
            if info is None:
                raise _build_gone(connection, wanted)
            ensure_claimable(info, False, watch)
            thread.append(info)
            wanted = info.follows
        found |= {info.run_id: info for info in reversed(thread)}
    return list(found.values())


def read_exported(
    connection: sqlite3.Connection, info: RunInfo, commands: Sequence[StoredCommand]
) -> ExportedRun:
    """Return a run with its entries and commands; raise `JournalError` if they were changed."""
    entries, damage = read_range(connection, info, 0, None)
    if damage:
        raise JournalError(f"run {info.run_id!r}: {damage}; verify it for more")
    return ExportedRun(info, entries, commands)


class ImportRuns(Job):
    """Put exported runs into the journal, all of them or none.

    Their commands are stored just before they are, so that no process begins one without what was sent to it.
    """

    def __init__(
        self,
        runs: Sequence[ExportedRun],
        codec: Codec | None,
        store_commands: Callable[[Sequence[ExportedRun]], None],
    ) -> None:
        super().__init__()
        self._runs, self._codec = runs, codec
        self._store_commands = store_commands

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Insert the runs unless a name is taken or the run that one of them follows is missing."""
        if self.is_repeated and self._is_made(cursor):
            return
        if self._codec is None and not all(map(_is_encoded, self._runs)):
            refuse_plain(cursor)
        given = {run.info.run_id: run for run in self._runs}
        for run in self._runs:
            _check_new(cursor, run.info)
            _check_thread(cursor, run.info)
            self._check_earlier(cursor, run, given)
        self._store_commands(self._runs)
        for run in self._runs:
            info = run.info
            values = [getattr(info, column) for column in _COLUMNS]
            cursor.execute(_IMPORT, (*values, encode_tags(info.tags)))
            insert_tags(cursor, info.run_id, info.tags)
            rows.extend(to_row(cursor, entry) for entry in run.entries)

    def _check_earlier(
        self, cursor: sqlite3.Cursor, run: ExportedRun, given: Mapping[str, ExportedRun]
    ) -> None:
        """Raise `ConfigError` unless the run that a run continues is there as it was."""
        earlier, run_id = run.info.follows, run.info.run_id
        if earlier is None:
            return
        if earlier not in given and read_info(cursor.connection, earlier) is None:
            raise ConfigError(
                f"path: run {run_id!r} continues {earlier!r}, which is neither in the export nor in this journal; {NOTHING}"
            )
        first = [with_codec(entry, self._codec) for entry in run.entries[:1]]
        follows = find_follows(first)
        if follows is None:  # its codec is not here
            return
        place = follows.seq, follows.hash
        if earlier in given:
            is_there = place in [(one.seq, one.hash) for one in given[earlier].entries]
        else:
            is_there = has_entry(cursor, earlier, *place)
        if not is_there:
            raise ConfigError(
                f"path: run {run_id!r} continues another {earlier!r} than the one that is there; {NOTHING}"
            )

    def _is_made(self, cursor: sqlite3.Cursor) -> bool:
        """Return whether the runs are there as they were exported."""
        infos = [read_info(cursor.connection, run.info.run_id) for run in self._runs]
        heads = [info.head_hash for info in infos if info is not None]
        return heads == [run.info.head_hash for run in self._runs]


def _is_encoded(run: ExportedRun) -> bool:
    return all(entry.body.startswith(MARK) for entry in run.entries)


def _check_new(cursor: sqlite3.Cursor, info: RunInfo) -> None:
    if read_info(cursor.connection, info.run_id) is not None:
        raise ConfigError(f"{format_id_taken(info.run_id)}; {NOTHING}")
    refuse_deleted_name(cursor, info.run_id)


def _check_thread(cursor: sqlite3.Cursor, info: RunInfo) -> None:
    """Raise `ConfigError` if a turn would become one of another thread with the name of its own."""
    if not (info.thread and is_turn_id(info.run_id)):
        return
    incarnation = info.run_id.rpartition(":")[0]
    values = info.thread, f"{TURN_PREFIX}*", f"{incarnation}:*"
    if cursor.execute(_HAS_OTHER_TURN, values).fetchone() is not None:
        raise ConfigError(
            f"path: thread {info.thread!r} of the export is another one than that of this name in this journal; {NOTHING}"
        )


class Execute(Job):
    """Execute one statement, such as the rebuilding of an index."""

    def __init__(self, statement: str, values: Sequence[object] = ()) -> None:
        super().__init__()
        self._statement, self._values = statement, values

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Execute it in the open transaction."""
        cursor.execute(self._statement, self._values)
