"""The entry of a journal, and how the event in it is encoded and decoded."""

import functools
import hashlib
from typing import Any, ClassVar, Protocol, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from .._internal import dataclasses
from ..errors import JournalError
from ..messages import JsonObject
from .agents import AgentEvent
from .branches import BranchEvent
from .control import ControlEvent
from .describe import DescribedEvent, format_value
from .effects import EffectEvent
from .hooks import HookEvent
from .knowledge import KnowledgeUnavailable
from .payloads import MARK, Codec, PayloadPlace, decode_payload, encode_payload
from .recovery import RecoveryEvent
from .request_records import RequestEvent
from .run import RunEvent


@dataclasses.dataclass(frozen=True)
class UnknownEvent(DescribedEvent, heading="newer"):
    """An event of a kind that this version does not know: kept as it is."""

    body: JsonObject

    def to_stored(self) -> Any:
        """Return the body as it was read."""
        return self.body

    def summary(self) -> str:
        return format_value(self.body)


Event: TypeAlias = (
    RunEvent
    | ControlEvent
    | EffectEvent
    | AgentEvent
    | HookEvent
    | RequestEvent
    | BranchEvent
    | RecoveryEvent
    | KnowledgeUnavailable
    | UnknownEvent
)


EVENT_VERSION = 1
EVENT_TYPES: dict[str, type[Any]] = {
    member.kind: member for member in Event.__args__ if member is not UnknownEvent
}
KINDS: dict[type[Any], str] = {member: kind for kind, member in EVENT_TYPES.items()}


@functools.cache
def _reader(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(EVENT_TYPES[kind])


def encode_event(event: Event) -> bytes:
    """Return the body of an entry: plain JSON without class names."""
    return to_json(event.to_stored() if event.is_shortened else event)


def decode_event(kind: str, body: bytes) -> Event:
    """Return the event of an entry's body; raise `JournalError` if it cannot be read.

    A kind that this version does not know is kept as `UnknownEvent`.
    """
    try:
        if kind not in EVENT_TYPES:
            return UnknownEvent(from_json(body))
        event: Event = _reader(kind).validate_json(body).restore()
    except (ValidationError, ValueError) as error:
        raise JournalError(
            f"an entry of kind {kind!r} cannot be read: {error}"
        ) from error
    return event


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a journal.

    `seq` counts from 1 without gaps. `key` is the place of the effect in the program. `at` is wall time in seconds. `v` is
    the version of the body's format, `fence` the number of the owner that wrote it. `hash` covers every field and the
    hash of the entry before it. `body` is what is stored: in a journal with a codec, that of the codec.
    """

    codec: ClassVar[Codec | None] = None
    """What decodes the body; the journal that an entry is read from sets it."""

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
        """Return the event that the body holds."""
        return decode_event(self.kind, self.payload)

    @property
    def payload(self) -> bytes:
        """Return the JSON that the body holds; raise `CodecError` if it is encoded and cannot be decoded."""
        if not self.body.startswith(MARK):
            return self.body
        place = name_entry(self.run_id, self.seq, self.kind)
        return decode_payload(self.codec, self.body, place)


def name_entry(run_id: str, seq: int, kind: str, tenant: str = "") -> PayloadPlace:
    """Return the place of an entry's payload."""
    return PayloadPlace(run_id, f"entry {seq} {kind}", tenant)


def encode_body(
    codec: Codec | None, event: Event, run_id: str, seq: int, tenant: str
) -> bytes:
    """Return the body of an entry as it is stored."""
    if codec is None:
        return encode_event(event)
    place = name_entry(run_id, seq, KINDS[type(event)], tenant)
    return encode_payload(codec, encode_event(event), place)


class ChainHead(Protocol):
    """Where a run's chain of entries ends, and what its next entry is made with; a `Claim` is one."""

    run_id: str
    fence: int
    head_seq: int
    head_hash: str
    codec: Codec | None
    tenant: str


def chain_event(head: ChainHead, key: str, event: Event, at: float) -> Entry:
    """Return the next entry of a chain, which ends with it from now on; raise `CodecError` if it cannot be encoded."""
    seq, kind, codec = head.head_seq + 1, KINDS[type(event)], head.codec
    body = (
        encode_event(event)
        if codec is None
        else encode_body(codec, event, head.run_id, seq, head.tenant)
    )
    entry = Entry(head.run_id, seq, key, kind, at, EVENT_VERSION, head.fence, body, "")
    head.head_seq, head.head_hash = seq, chain_hash(head.head_hash, entry)
    # The hash covers the other fields, so it is set after they are.
    entry.__dict__.update(hash=head.head_hash, event=event)
    return entry if codec is None else with_codec(entry, codec)


def with_codec(entry: Entry, codec: Codec | None) -> Entry:
    """Give an entry what decodes its body, and return it."""
    if codec is not None:
        entry.__dict__["codec"] = codec
    return entry


def chain_hash(previous: str, entry: Entry) -> str:
    """Return the hash of an entry (hex SHA-256) over the previous hash and each field, texts with their length."""
    head = (
        f"{previous}|{len(entry.run_id)}:{entry.run_id}|{entry.seq}|{len(entry.key)}:{entry.key}"
        f"|{len(entry.kind)}:{entry.kind}|{entry.at!r}|{entry.v}|{entry.fence}|"
    )
    return hashlib.sha256(head.encode() + entry.body).hexdigest()
