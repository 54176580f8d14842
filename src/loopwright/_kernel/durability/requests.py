"""The requests of model calls that a journal holds, and the contents that they refer to."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from pydantic_core import to_json

from ...events.effect_key import EffectKey
from ...events.effects import ModelRequested
from ...events.entry import Entry
from ...events.request_records import (
    AidsRecord,
    ContentStored,
    RequestChanged,
    RequestRecord,
    ViewRecord,
    add_aids,
)
from ...messages import Json
from .effects import Readers


class RecordedRequests:
    """What the model calls of a run sent."""

    def __init__(self) -> None:
        self.by_seq: dict[int, RequestRecord] = {}
        """The requests by the numbers of their entries."""
        self.last: dict[str, tuple[int, RequestRecord]] = {}
        """The last request of each call, by its key, with the number of its entry."""
        self.codes: dict[bytes, str] = {}
        """The codes of contents, by the hash of these."""
        self.contents: dict[str, Json] = {}
        """The contents by their codes."""
        self.views: dict[str, ViewRecord] = {}
        """The view that was recorded last in each scope."""
        self.aids: dict[str, tuple[AidsRecord, ...]] = {}
        """What was recorded of each scope as sent beside its conversations, the newest at the end."""
        self.trimmed: set[str] = set()
        """The keys of the calls that did not send all of their conversation."""

    @classmethod
    def read(cls, entries: Iterable[Entry]) -> "RecordedRequests":
        """Return what the model calls of a run sent, from its entries alone."""
        recorded = cls()
        readers = defaultdict(lambda: _skip, recorded.readers())
        for entry in entries:
            readers[type(entry.event)](entry, entry.event)
        return recorded

    def readers(self) -> Readers:
        """Return what reads each type of event."""
        return {
            ModelRequested: self._read_request,
            RequestChanged: self._read_request,
            ContentStored: self._read_content,
        }

    def _read_request(
        self, entry: Entry, event: ModelRequested | RequestChanged
    ) -> None:
        record = event.request
        if record is None:
            return
        self.by_seq[entry.seq], self.last[entry.key] = record, (entry.seq, record)
        if record.view is not None:
            self.views[EffectKey.parse(entry.key).path] = record.view
        if record.aids is not None:
            path = EffectKey.parse(entry.key).path
            self.aids[path] = add_aids(self.aids.get(path, ()), record.aids)
        if record.is_trimmed:
            self.trimmed.add(entry.key)
        for index, content in enumerate(record.contents):
            self._note(content, f"${entry.seq}.{index}")

    def _read_content(self, entry: Entry, event: ContentStored) -> None:
        self._note(event.content, f"${entry.seq}")

    def _note(self, content: Json, code: str) -> None:
        self.codes[hashlib.sha256(to_json(content)).digest()] = code
        self.contents[code] = content


def _skip(entry: Entry, event: object) -> None:
    """Read nothing from an event that is not about a request."""
