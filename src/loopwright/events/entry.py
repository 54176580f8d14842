"""The entry of a journal, and how the event in it is encoded and decoded."""

import dataclasses
import functools
import re
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ..errors import JournalError
from ..messages import JsonObject
from .control import ControlEvent
from .effects import EffectEvent, UnknownOutcomeResolved
from .run import RunEvent


@dataclasses.dataclass(frozen=True)
class UnknownEvent:
    """An entry written by a newer version: kept as it is."""

    body: JsonObject


Event: TypeAlias = RunEvent | ControlEvent | EffectEvent | UnknownEvent


EVENT_VERSION = 1


def kind_of(event_type: type) -> str:
    """Return the name of an event type in a journal: `ModelReplied` is `model_replied`."""
    if event_type is UnknownOutcomeResolved:
        return "doubt_resolved"  # the stored name is older than the class name
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()


EVENT_TYPES: dict[str, type[Any]] = {
    kind_of(member): member for member in Event.__args__ if member is not UnknownEvent
}


KINDS: dict[type[Any], str] = {member: kind for kind, member in EVENT_TYPES.items()}


@functools.cache
def _reader(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENT_TYPES[kind])


def encode_event(event: Event) -> bytes:
    """The body of an entry: plain JSON, no class names."""
    return to_json(event.body if isinstance(event, UnknownEvent) else event)


def decode_event(kind: str, body: bytes) -> Event:
    """Read an entry's body; a kind that this version does not know is kept as `UnknownEvent`."""
    try:
        if kind not in EVENT_TYPES:
            return UnknownEvent(from_json(body))
        event: Event = _reader(kind).validate_json(body)
    except (ValidationError, ValueError) as error:
        raise JournalError(
            f"an entry of kind {kind!r} cannot be read: {error}"
        ) from error
    return event


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a journal.

    `seq` counts from 1 without gaps. `key` is the effect's place in the program. `at` is wall time in seconds. `v` is
    the version of the body's format, `fence` the number of the owner that wrote it. `hash` covers every field and the
    hash before it.
    """

    run_id: str
    seq: int
    key: str
    kind: str
    at: float
    v: int
    fence: int
    body: bytes
    hash: str

    @functools.cached_property
    def event(self) -> Event:
        """The fact, typed."""
        return decode_event(self.kind, self.body)
