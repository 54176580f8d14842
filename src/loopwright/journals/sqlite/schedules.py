"""The schedules of a SQLite journal, in its file."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from ..._internal.log import logger
from ...errors import CodecError
from ...events.payloads import Codec, PayloadPlace, decode_payload, encode_payload
from ...principals import read_principal
from ...schedules.base import Schedule
from ..base import NewRun
from .codec import encode_due, guard_file
from .file import JournalFile
from .jobs import Job, Row, insert_due
from .writer import Writer

_ALL = "SELECT name, body FROM schedules ORDER BY name"
_NAMED = "SELECT name, body FROM schedules WHERE name = ?"
_FIND = "SELECT revision, body FROM schedules WHERE name = ?"
_STORE = "INSERT OR REPLACE INTO schedules (name, revision, body) VALUES (?, ?, ?)"
_CREATE = """CREATE TABLE IF NOT EXISTS schedules (
    name TEXT PRIMARY KEY, revision INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID"""
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'schedules'"


class SQLiteSchedules:
    """Keeps schedules; see `ScheduleStore`."""

    def __init__(self, file: JournalFile, writer: Writer, codec: Codec | None) -> None:
        self._file, self._writer, self._codec = file, writer, codec
        self._skipped: dict[str, str] = {}
        """Why a schedule was left out, by its name, so that it is logged once."""

    def read(self) -> list[Schedule]:
        """Return all schedules by name, those that were deleted too.

        One that was damaged, or that the codec cannot decode, is left out and logged: it holds up no other.
        """
        found: list[Schedule] = []
        for name, body in self._select(_ALL):
            try:
                found.append(self._decode(name, body))
            except CodecError as error:
                self._log_once(name, str(error))
        return found

    def find(self, name: str) -> Schedule | None:
        """Return one schedule, also a deleted one; raise `CodecError` if it cannot be decoded."""
        for row in self._select(_NAMED, name):
            return self._decode(*row)
        return None

    def find_revision(self, name: str) -> int:
        """Return the revision of a schedule, which needs no codec; 0 if there is none."""
        for revision, _ in self._select(_FIND, name):
            return int(revision)
        return 0

    def _select(self, query: str, *values: str) -> list[Any]:
        with self._file.reading() as connection:
            # The table is made with the first schedule.
            if connection is None or connection.execute(_HAS_TABLE).fetchone() is None:
                return []
            return connection.execute(query, values).fetchall()

    def _log_once(self, name: str, problem: str) -> None:
        if self._skipped.get(name) != problem:
            self._skipped[name] = problem
            logger().warning("schedule_skipped", schedule=name, error=problem)

    async def store(self, schedule: Schedule, due: NewRun | None = None) -> bool:
        """Store the next revision of a schedule, with the run that is due; durable on return."""
        body = self._encode(schedule)
        runs = encode_due(self._codec, () if due is None else (due,))
        job = StoreSchedule(schedule, body, runs, self._codec)
        await self._writer.complete(job)
        return job.is_stored

    def _encode(self, schedule: Schedule) -> str | bytes:
        """Return what is stored of a schedule: a text, or the bytes of a codec."""
        text = schedule.encode()
        if self._codec is None:
            return text
        principal = read_principal(schedule.principal)
        tenant = "" if principal is None else principal.tenant
        place = PayloadPlace("", f"schedule {schedule.name}", tenant)
        return encode_payload(self._codec, text.encode(), place)

    def _decode(self, name: str, body: str | bytes) -> Schedule:
        try:
            if isinstance(body, bytes):
                place = PayloadPlace("", f"schedule {name}")
                body = decode_payload(self._codec, body, place).decode()
            return Schedule.decode(body)
        except CodecError:
            raise
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CodecError(
                f"journal {str(self._file.path)!r}: schedule {name!r} was changed: {error}; "
                f"delete it (loopwright schedule delete {name}) and add it again"
            ) from error


class StoreSchedule(Job):
    """Store the next revision of a schedule, and the runs that are due, unless another process was faster."""

    def __init__(
        self,
        schedule: Schedule,
        body: str | bytes,
        due: Sequence[NewRun],
        codec: Codec | None,
    ) -> None:
        super().__init__()
        self._schedule, self._body, self._due = schedule, body, due
        self._codec = codec
        self.is_stored = False

    def write(self, cursor: sqlite3.Cursor, rows: list[Row]) -> None:
        """Compare the revision, and store the schedule with its runs in the open transaction."""
        schedule, body = self._schedule, self._body
        if not schedule.deleted:  # of one that is, only its name stays
            guard_file(self._codec, cursor)
        cursor.execute(_CREATE)
        found = cursor.execute(_FIND, (schedule.name,)).fetchone() or (0, "")
        if self.is_repeated and found == (schedule.revision, body):
            self.is_stored = True
            return
        self.is_stored = found[0] == schedule.revision - 1
        if self.is_stored:
            cursor.execute(_STORE, (schedule.name, schedule.revision, body))
            insert_due(cursor, self._due, rows)
