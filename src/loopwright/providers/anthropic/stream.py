"""Puts a streamed reply of the Messages API together, into the same wire model that a reply in one piece is read by."""

import dataclasses
from typing import Self

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from ..base import CallDelta, Delta
from ..http.wire import Wire
from .response import WireReply

KINDS = {
    "text": "text",
    "thinking": "thinking",
    "signature": "thinking",
    "input": "tool_use",
}


class WireDelta(Wire):
    """What is new in a block, or in the message itself."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: JsonValue = None

    @property
    def piece(self) -> tuple[str, str]:
        """The field of the block that goes on, and with what; no field for what this library does not read."""
        match self.type:
            case "text_delta":
                return "text", self.text or ""
            case "thinking_delta":
                return "thinking", self.thinking or ""
            case "signature_delta":
                return "signature", self.signature or ""
            case "input_json_delta":
                return "input", self.partial_json or ""
            case _:
                return "", ""


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
        """The event in this data, or None if there is none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return None


@dataclasses.dataclass
class Block:
    """A content block that is being streamed: how it began, and the pieces of each of its fields since."""

    begun: dict[str, JsonValue]
    call: int = -1  # the how-manieth call of the reply it is
    pieces: dict[str, list[str]] = dataclasses.field(
        default_factory=dict[str, list[str]]
    )
    has_ended: bool = False

    @property
    def is_half(self) -> bool:
        """Whether it is a call that has no arguments yet: only the end of its block says that it has none."""
        return self.call >= 0 and not (
            self.begun.get("input") or self.pieces or self.has_ended
        )

    @property
    def whole(self) -> dict[str, JsonValue]:
        """The block with all of its pieces; a call's arguments are JSON in a string if they came in pieces."""
        joined: dict[str, JsonValue] = {}
        for field, pieces in self.pieces.items():
            before = "" if field == "input" else self.begun.get(field) or ""
            joined[field] = f"{before}{''.join(pieces)}"
        return {**self.begun, **joined}


class Assembly:
    """A reply as far as it has been streamed.

    What begins twice was sent again by somebody on the way. A call of it could be made twice, or before its arguments
    are there, so that nothing of such a reply is used.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._message: dict[str, JsonValue] = {}
        self._blocks: list[Block] = []
        self._open: dict[int, Block] = {}
        self._calls = 0
        self._ids: set[str] = set()  # of the calls; some gateways leave them out
        self._usage: dict[str, JsonValue] = {}
        self.is_over = False
        """Whether the server has said that nothing more will come."""

    @property
    def reply(self) -> WireReply | None:
        """The reply, or None if its end has not come."""
        blocks: list[JsonValue] = [block.whole for block in self._blocks]
        ended = self._message.get("stop_reason") or (self.is_over and not self._calls)
        if not ended or any(
            block.is_half for block in self._blocks
        ):  # half a call is no call
            return None
        usage: dict[str, JsonValue] = {"usage": self._usage} if self._usage else {}
        return WireReply.of({**self._message, **usage, "content": blocks})

    def take(self, event: WireEvent) -> Delta | None:
        """Add an event; what of it is for people who watch. Raises ValueError if something begins twice."""
        match event.type:
            case "message_start":
                self._start(event.message or {})
            case "content_block_start":
                return self._begin(event.index, event.content_block or {})
            case "content_block_delta":
                return self._go_on(event.index, event.delta or WireDelta())
            case "content_block_stop":
                if event.index in self._open:
                    self._open[event.index].has_ended = True
            case "message_delta":
                told = event.delta or WireDelta()
                self._message.update(
                    stop_reason=told.stop_reason, stop_details=told.stop_details
                )
                self._count(event.usage)
            case "message_stop":
                self.is_over = True
            case _:  # pings, and what will be invented
                pass
        return None

    def _start(self, message: dict[str, JsonValue]) -> None:
        if self._has_begun:
            raise ValueError("the reply begins twice")
        self._has_begun = True
        self._message = {**message, "content": []}
        self._count(self._message.pop("usage", None))

    def _begin(self, index: int, begun: dict[str, JsonValue]) -> Delta | None:
        """Open a block, also where an older one has that index: some gateways number all blocks alike."""
        block = self._open[index] = Block(begun)
        self._blocks.append(block)
        if begun.get("type") == "tool_use":
            block.call, self._calls = self._calls, self._calls + 1
            given = begun.get("input")
            name, call_id = str(begun.get("name") or ""), str(begun.get("id") or "")
            if call_id in self._ids:
                raise ValueError("a call begins twice")
            self._ids |= {call_id} - {""}
            arguments = to_json(given).decode() if given else ""
            return Delta(call=CallDelta(block.call, call_id, name, arguments))
        text, thought = begun.get("text"), begun.get("thinking")
        return (
            Delta(text=str(text or ""), reasoning=str(thought or ""))
            if text or thought
            else None
        )

    def _go_on(self, index: int, delta: WireDelta) -> Delta | None:
        field, piece = delta.piece
        if not piece:
            return None
        if index not in self._open:
            self._begin(index, {"type": KINDS[field]})
        block = self._open[index]
        block.pieces.setdefault(field, []).append(piece)
        match field:
            case "text":
                return Delta(text=piece)
            case "thinking":
                return Delta(reasoning=piece)
            case "input":
                return Delta(call=CallDelta(max(block.call, 0), arguments=piece))
            case _:
                return None

    def _count(self, usage: JsonValue) -> None:
        """Take over what was counted: the figures are running totals, and where one shrinks, a gateway left it out."""
        for name, value in usage.items() if isinstance(usage, dict) else ():
            before = self._usage.get(name)
            if value is None or (
                isinstance(before, int) and isinstance(value, int) and value < before
            ):
                continue
            self._usage[name] = value
