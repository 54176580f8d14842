"""What is counted over the runs of a SQLite journal, read in pages."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from ...errors import CodecError, JournalError
from ...events.entry import name_entry
from ...events.payloads import Codec, decode_payload
from ..listing import RunFilter
from ..metrics import DAMAGED, UNREADABLE, CountedRun, StoredEvent
from .file import JournalFile
from .formats import COUNTED_EVENTS
from .listing import RunQuery
from .reader import REFERENCE, read_tags

_RUN = "runs.run_id, engine, status, created, wake_at, tags"
_TYPES: tuple[Any, ...] = (str, str, str, (float, int), (float, int))
# A large body stands in `blobs`, by its hash.
READ_EVENTS = f"""SELECT events.run_id, kind, at, coalesce(blobs.bytes, events.body), seq FROM events
            LEFT JOIN blobs ON typeof(events.body) = 'text' AND blobs.sha256 = substr(events.body, {len(REFERENCE) + 1})
            WHERE ({COUNTED_EVENTS}) AND events.run_id IN (SELECT value FROM json_each(?))
            ORDER BY events.run_id, events.id"""  # noqa: S608 - constants
_PAGE = 2_000
"""Runs of which the entries are read at once."""


class SQLiteStatistics:
    """Reads what metrics are made of; see `RunStatistics`."""

    def __init__(self, file: JournalFile, codec: Codec | None) -> None:
        self._file, self._codec = file, codec

    def list_runs(self, where: RunFilter | None) -> Iterator[CountedRun]:
        """Return the runs that a filter selects."""
        statement, values = RunQuery(where).select(_RUN)
        for row in self._read(statement, values):
            yield _read_run(row)

    def read_events(self, where: RunFilter | None) -> Iterator[StoredEvent]:
        """Return the counted entries of the runs that a filter selects, those of a run as they were written."""
        statement, values = RunQuery(where).select("runs.run_id")
        found = self._read(statement, values)
        run_ids = [one for (one,) in found if isinstance(one, str)]
        for first in range(0, len(run_ids), _PAGE):
            page = json.dumps(run_ids[first : first + _PAGE])
            for row in self._read(READ_EVENTS, [page]):
                yield self._decode(*row)

    def _read(self, statement: str, values: list[Any]) -> list[tuple[Any, ...]]:
        """Return all rows of a query, read to the end before the first is used."""
        # A file without a write-ahead log, as a copy, gets it from its first writer, which waits for all readers: a
        # caller that takes its time between two rows must not be one of them.
        with self._file.reading() as connection:
            if connection is None:
                return []
            return connection.execute(statement, values).fetchall()

    def _decode(
        self, run_id: str, kind: str, at: float, body: bytes, seq: int
    ) -> StoredEvent:
        if not isinstance(body, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - a damaged file may hold any value
            return StoredEvent(run_id, kind, at, UNREADABLE)
        if self._codec is not None or not body.startswith(b"{"):
            place = name_entry(run_id, seq, kind)
            try:
                body = decode_payload(self._codec, body, place)
            except CodecError:
                body = UNREADABLE
        return StoredEvent(run_id, kind, at, body)


def _read_run(row: tuple[Any, ...]) -> CountedRun:
    """Return a row; of one that no journal could have written, that it is damaged."""
    *fields, tags = row
    if all(map(isinstance, fields, _TYPES)):
        with contextlib.suppress(JournalError):
            read_tags(row[0], tags)
            return CountedRun(*fields)
    return CountedRun(str(row[0]), "", DAMAGED, 0.0, 0.0)
