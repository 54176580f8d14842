"""What is counted over all runs of a SQLite journal, in one query."""

from collections.abc import Sequence

from ...errors import CodecError
from ...events.entry import name_entry
from ...events.payloads import Codec, decode_payload
from ..metrics import UNREADABLE, StoredEvent
from .file import JournalFile
from .reader import REFERENCE

# A large body stands in `blobs`, by its hash.
_READ = """SELECT events.run_id, events.kind, events.at, coalesce(blobs.bytes, events.body), events.seq FROM events
           LEFT JOIN blobs ON typeof(events.body) = 'text' AND blobs.sha256 = substr(events.body, ?)
           WHERE events.run_id != '' AND events.kind IN ({marks}) ORDER BY events.id"""


class SQLiteStatistics:
    """Reads the entries of some kinds, of all runs; see `EventStatistics`."""

    def __init__(self, file: JournalFile, codec: Codec | None) -> None:
        self._file, self._codec = file, codec

    def read(self, kinds: Sequence[str]) -> list[StoredEvent]:
        """Return them in the order in which they were written."""
        statement = _READ.format(marks=", ".join("?" * len(kinds)))
        with self._file.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(statement, (len(REFERENCE) + 1, *kinds))
            return [self._decode(*row) for row in rows]

    def _decode(
        self, run_id: str, kind: str, at: float, body: bytes, seq: int
    ) -> StoredEvent:
        place = name_entry(run_id, seq, kind)
        try:
            payload = decode_payload(self._codec, body, place)
        except CodecError:
            payload = UNREADABLE
        return StoredEvent(run_id, kind, at, payload)
