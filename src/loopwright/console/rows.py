"""The entries of a run as rows of the page: a line or several for each, and the raw entry behind it."""

import contextlib
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json, to_jsonable_python

from ..errors import CodecError, JournalError
from ..events.effect_key import EffectKey
from ..events.effects import ModelRequested
from ..events.entry import Entry
from ..events.timeline import REFERRED, Line, Timeline
from ..messages import Message

MAX_LINE = 4000
"""The maximum number of characters of one line of a row; the raw entry has all."""
LOOKBACK = 100
"""Entries before the first of a page that are read, so that its lines can refer to them."""
LABELS = {ModelRequested.kind: "prompt"}
"""What entries without a line of their own are called."""
MAX_KNOWN = 2000
"""Entries after which a timeline forgets what its lines may refer to."""


class RowReader:
    """Turn the entries of one run, in order, into rows."""

    def __init__(self, before: Iterable[Entry] = ()) -> None:
        self._timeline, self._known = Timeline(), 0
        for entry in before:
            if entry.kind in REFERRED:
                # One that cannot be read has a line that says so, where it is shown.
                with contextlib.suppress(JournalError):
                    self._timeline.read((entry,))

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


def build_message(message: Message) -> dict[str, Any]:
    """Return a message of a prompt: its text, a model's thinking and calls, and what is attached, without its bytes."""
    return {
        "role": message.role,
        "content": message.content,
        "origin": message.origin,
        "calls": [
            {"name": one.name, "arguments": to_jsonable_python(one.arguments)}
            for one in message.calls
        ],
        "thinking": "\n".join(one.text for one in message.reasoning if one.text),
        "attachments": [
            " ".join(filter(None, [one.kind, one.media_type, one.name]))
            for one in message.attachments
        ],
    }


def _find_lines(timeline: Timeline, entry: Entry) -> list[Line]:
    try:
        lines = timeline.lines(entry)
        # An intent has no line of its own in a terminal, where its outcome follows.
        name, text = LABELS.get(entry.kind, entry.kind), entry.event.summary()
    except JournalError as error:  # of a newer version, or damaged
        return [Line(entry.seq, "", "unreadable", str(error))]
    return lines or [Line(entry.seq, entry.key, name.replace("_", " "), text)]


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
