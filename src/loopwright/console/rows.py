"""The entries of a run as rows of the page: a line or several for each, and the raw entry behind it."""

from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json, to_jsonable_python

from ..errors import CodecError, JournalError
from ..events.effect_key import EffectKey
from ..events.entry import Entry
from ..events.timeline import Line, Timeline

MAX_LINE = 4000
"""The maximum number of characters of one line of a row; the raw entry has all."""
LOOKBACK = 100
"""Entries before the first of a page that are read, so that its lines can refer to them."""
MAX_KNOWN = 2000
"""Entries after which a timeline forgets what its lines may refer to."""


class RowReader:
    """Turn the entries of one run, in order, into rows."""

    def __init__(self, before: Iterable[Entry] = ()) -> None:
        self._timeline, self._known = Timeline(), 0
        for entry in before:
            _find_lines(self._timeline, entry)

    @property
    def is_full(self) -> bool:
        """Whether it has read so much that another one should continue."""
        return self._known >= MAX_KNOWN

    def build(self, entry: Entry, *, is_hidden: bool) -> dict[str, Any]:
        """Return the row of an entry; of a hidden one, nothing that a model, a tool or a person wrote."""
        self._known += 1
        lines = _find_lines(self._timeline, entry)
        path = _find_path(entry.key)
        shown = [] if is_hidden else [_build_line(line) for line in lines]
        return {
            "seq": entry.seq,
            "key": entry.key,
            "kind": entry.kind,
            "at": entry.at,
            "level": _find_level(entry),
            "lane": path,
            "depth": path.count(".") + 1 if path else 0,
            "lines": shown,
            "hidden": is_hidden,
        }


def build_raw(entry: Entry) -> dict[str, Any]:
    """Return all of an entry; a body that is not JSON as text."""
    body: Any
    try:
        body = from_json(entry.payload)
    except ValueError:
        body = entry.payload.decode("utf-8", "replace")
    except CodecError as error:
        body = str(error)
    shown = {
        name: getattr(entry, name)
        for name in ("run_id", "seq", "key", "kind", "at", "v", "fence", "hash")
    }
    return {**shown, "body": to_jsonable_python(body)}


def _find_lines(timeline: Timeline, entry: Entry) -> list[Line]:
    try:
        lines = timeline.lines(entry)
        # An intent has no line of its own in a terminal, where its outcome follows.
        name, text = entry.kind.replace("_", " "), entry.event.summary()
    except JournalError as error:  # of a newer version, or damaged
        return [Line(entry.seq, "", "unreadable", str(error))]
    return lines or [Line(entry.seq, entry.key, name, text)]


def _find_level(entry: Entry) -> str:
    try:
        return entry.event.level
    except JournalError:
        return "error"


def _find_path(key: str) -> str:
    try:
        return EffectKey.parse(key).path
    except JournalError:
        return ""


def _build_line(line: Line) -> dict[str, Any]:
    shown: dict[str, Any] = {"label": line.label, "text": line.text[:MAX_LINE]}
    if len(line.text) > MAX_LINE:
        shown["cut"] = len(line.text)
    return shown
