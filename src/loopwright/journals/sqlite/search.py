"""Search of the entries of a SQLite journal by their kind and by texts of their bodies."""

from ...events.payloads import Codec
from .file import JournalFile
from .reader import REFERENCE

# A large body stands in `blobs`, by its hash.
_FIND = f"""SELECT events.seq FROM events
            LEFT JOIN blobs ON typeof(events.body) = 'text' AND blobs.sha256 = substr(events.body, {len(REFERENCE) + 1})
            WHERE events.run_id = ? AND (events.kind = ? OR instr(coalesce(blobs.bytes, events.body), ?) > 0)
            ORDER BY events.seq"""  # noqa: S608 - constants


class SQLiteSearch:
    """Finds entries without reading them."""

    def __init__(self, file: JournalFile, codec: Codec | None) -> None:
        self._file, self._codec = file, codec

    def find(self, run_id: str, text: bytes, kind: str) -> list[int] | None:
        """Return the numbers of a run's entries that are of a kind or have a text in their bodies.

        `None` where a codec encodes bodies. The entries are not checked.
        """
        if self._codec is not None:
            return None
        with self._file.reading() as connection:
            if connection is None:
                return []
            found = connection.execute(_FIND, (run_id, kind, text))
            return [seq for (seq,) in found]
