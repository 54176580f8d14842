"""A streamed reply of the Messages API, joined to the same wire model that a whole reply is read by."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

from pydantic import JsonValue, ValidationError
from pydantic_core import from_json, to_json

from ..._internal import dataclasses
from ..base import CallDelta, Delta
from ..http.wire import Wire
from .response import WireReply


class Growth(NamedTuple):
    """How a delta extends a block: its own field, the block's field, and the type of a block that was never opened."""

    source: str
    field: str
    block_type: str


GROWTHS = {
    "text_delta": Growth("text", "text", "text"),
    "thinking_delta": Growth("thinking", "thinking", "thinking"),
    "signature_delta": Growth("signature", "signature", "thinking"),
    "input_json_delta": Growth("partial_json", "input", "tool_use"),
}


class WireDelta(Wire):
    """What is new in a block, or in the message itself."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: JsonValue = None
    stop_reason: str | None = None
    stop_details: JsonValue = None


class WireEvent(Wire):
    """One event of a stream."""

    type: str
    index: int = 0
    message: dict[str, JsonValue] | None = None
    content_block: dict[str, JsonValue] | None = None
    delta: WireDelta | None = None
    usage: JsonValue = None

    @classmethod
    def read(cls, data: bytes) -> Self | None:
        """Return the event in this data, or `None` if it is not an event."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return None


@dataclasses.dataclass
class Block:
    """A content block in a stream: its first form, and the fragments by which each of its fields grew."""

    first: dict[str, JsonValue]
    call: int = -1  # which call of the reply it is, counted from 0
    fragments: dict[str, list[str]] = dataclasses.field(
        default_factory=dict[str, list[str]]
    )
    has_ended: bool = False

    citations: list[JsonValue] = dataclasses.field(default_factory=list[JsonValue])

    @property
    def is_incomplete_call(self) -> bool:
        """Whether it is a call without arguments so far; only the end of its block says that it has none."""
        if self.call < 0 or self.has_ended:
            return False
        return not (self.first.get("input") or self.fragments)

    def build(self) -> dict[str, JsonValue]:
        """Return the block with all fragments; streamed arguments of a call are JSON in a text."""
        grown: dict[str, JsonValue] = {}
        for field, fragments in self.fragments.items():
            before = "" if field == "input" else self.first.get(field) or ""
            grown[field] = f"{before}{''.join(fragments)}"
        if self.citations:
            grown["citations"] = self.citations
        if self.call < 0 and "input" in grown:  # of a tool that the server ran
            grown["input"] = _parse_input(str(grown["input"]))
        return {**self.first, **grown}


class ReplyAssembly:
    """Joins the events of one reply.

    A reply or a call that begins twice was repeated by a gateway. Its calls could be made twice, or before their
    arguments are complete, so nothing of such a reply is used.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._message: dict[str, JsonValue] = {}
        self._blocks: list[Block] = []
        self._open: dict[int, Block] = {}
        self._calls = 0
        self._call_ids: set[str] = set()  # some gateways leave ids out
        self._usage: dict[str, JsonValue] = {}
        self.is_over = False
        """Whether the server has announced the end of the stream."""

    def build(self) -> WireReply | None:
        """Return the reply, or `None` if it is incomplete."""
        has_reason = bool(self._message.get("stop_reason"))
        has_ended = has_reason or (self.is_over and not self._calls)
        if not has_ended or any(block.is_incomplete_call for block in self._blocks):
            return None
        content: list[JsonValue] = [*map(Block.build, self._blocks)]
        fields: dict[str, JsonValue] = {**self._message, "content": content}
        if self._usage:
            fields["usage"] = self._usage
        return WireReply.build(fields)

    def add(self, event: WireEvent) -> Delta | None:
        """Add an event; return what it shows of the reply, if anything.

        Raises:
            ValueError: the reply or one of its calls begins twice.
        """
        add = self._BY_TYPE.get(event.type)
        if add is None:
            return None
        return add(self, event)

    def _begin_message(self, event: WireEvent) -> None:
        if self._has_begun:
            raise ValueError("the reply begins twice")
        self._has_begun = True
        self._message = {**(event.message or {}), "content": []}
        self._count(self._message.pop("usage", None))

    def _end_message(self, event: WireEvent) -> None:
        delta = event.delta or WireDelta()
        self._message["stop_reason"] = delta.stop_reason
        self._message["stop_details"] = delta.stop_details
        self._count(event.usage)

    def _end_stream(self, event: WireEvent) -> None:
        self.is_over = True

    def _end_block(self, event: WireEvent) -> None:
        if event.index in self._open:
            self._open[event.index].has_ended = True

    def _add_block(self, event: WireEvent) -> Delta | None:
        return self._begin_block(event.index, event.content_block or {})

    def _begin_block(self, index: int, first: dict[str, JsonValue]) -> Delta | None:
        """Open a block, even if an earlier one has that index: some gateways give all blocks the same."""
        block = self._open[index] = Block(first)
        self._blocks.append(block)
        if first.get("type") == "tool_use":
            return self._begin_call(block)
        text = str(first.get("text") or "")
        thinking = str(first.get("thinking") or "")
        if text or thinking:
            return Delta(text=text, reasoning=thinking)
        return None

    def _begin_call(self, block: Block) -> Delta:
        block.call, self._calls = self._calls, self._calls + 1
        name = str(block.first.get("name") or "")
        call_id = str(block.first.get("id") or "")
        if call_id in self._call_ids:
            raise ValueError("a call begins twice")
        self._call_ids |= {call_id} - {""}
        value = block.first.get("input")
        arguments = to_json(value).decode() if value else ""
        return Delta(call=CallDelta(block.call, call_id, name, arguments))

    def _grow_block(self, event: WireEvent) -> Delta | None:
        delta = event.delta or WireDelta()
        growth = GROWTHS.get(delta.type)
        if delta.citation is not None and event.index in self._open:
            self._open[event.index].citations.append(delta.citation)
        if growth is None:
            return None
        fragment: str | None = getattr(delta, growth.source)
        if not fragment:
            return None
        if event.index not in self._open:
            self._begin_block(event.index, {"type": growth.block_type})
        block = self._open[event.index]
        block.fragments.setdefault(growth.field, []).append(fragment)
        return _build_delta(growth.field, fragment, block.call)

    def _count(self, usage: JsonValue) -> None:
        """Keep the largest counts, which are running totals; where one shrinks, a gateway left it out."""
        if not isinstance(usage, dict):
            return
        for name, value in usage.items():
            if value is not None and not _is_smaller(value, self._usage.get(name)):
                self._usage[name] = value

    # Other types are pings, and what later versions of the API will add.
    _BY_TYPE: ClassVar[
        dict[str, "Callable[[ReplyAssembly, WireEvent], Delta | None]"]
    ] = {
        "message_start": _begin_message,
        "content_block_start": _add_block,
        "content_block_delta": _grow_block,
        "content_block_stop": _end_block,
        "message_delta": _end_message,
        "message_stop": _end_stream,
    }


def _parse_input(text: str) -> JsonValue:
    try:
        parsed: JsonValue = from_json(text)
    except ValueError:
        return {}
    return parsed


def _build_delta(field: str, fragment: str, call: int) -> Delta | None:
    if field == "text":
        return Delta(text=fragment)
    if field == "thinking":
        return Delta(reasoning=fragment)
    if field == "input" and call >= 0:
        return Delta(call=CallDelta(call, arguments=fragment))
    return None


def _is_smaller(value: JsonValue, before: JsonValue) -> bool:
    return isinstance(value, int) and isinstance(before, int) and value < before
