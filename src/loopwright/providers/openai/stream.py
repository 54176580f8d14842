"""A streamed Chat Completions reply: its chunks to deltas, and all of them to the reply that would have come whole."""

from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from ...messages import Completion
from ..base import CallDelta, Delta
from ..dialects.think_block import ThinkBlock
from ..http.wire import Wire
from .response import WireCall, WireFunction, WireMessage, WireUsage, completion_of

LONGEST_NAME = 1_000  # what comes in more pieces names no function
GROWING = frozenset({"text", "summary", "data"})


class WirePiece(Wire):
    """A piece of one of the alternative replies."""

    index: int | None = 0
    delta: WireMessage | None = None
    finish_reason: str | None = None


class WireChunk(Wire):
    """One event of a stream; figures that make no sense count as untold."""

    choices: list[WirePiece] | None = None
    usage: Annotated[None | WireUsage | Any, Field(union_mode="left_to_right")] = None  # noqa: RUF036 - tried in this order
    model: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    object: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    error: Any = None

    @classmethod
    def read(cls, data: str) -> Self | None:
        """The chunk in this event, or None if it is none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return None

    @property
    def is_failure(self) -> bool:
        """Whether it tells a failure in place of a piece of the reply: OpenAI's form, or vLLM's older one."""
        return bool(self.error) or self.object == "error"


class _Call:
    """A tool call while its pieces come in."""

    def __init__(self, place: int, first: WireCall) -> None:
        self.place = place
        self._only: WireCall | None = first  # as long as no other piece came
        self.id = self.name = ""
        self.arguments: list[JsonValue] = []

    def is_another(self, name: str) -> bool:
        """Whether a piece without an id that names this function begins another call: names come before arguments."""
        return bool(name and self.arguments and name != self.name)

    def add(self, piece: WireCall) -> CallDelta:
        """Take a piece of it; a name may come in pieces too, or be said again whole."""
        function = piece.function or WireFunction()
        self._only = piece if piece is self._only else None
        if not self.id:
            self.id = piece.id or ""
        names = (
            bool(function.name)
            and function.name != self.name
            and len(self.name) < LONGEST_NAME
        )
        if names:
            self.name += function.name or ""
        said = function.arguments
        if said is not None:
            self.arguments.append(said)
        words = (
            said
            if isinstance(said, str)
            else ""
            if said is None
            else to_json(said).decode()
        )
        return CallDelta(
            self.place, self.id if piece.id else "", self.name if names else "", words
        )

    def whole(self) -> WireCall:
        """The call as it would have come in one piece, or as it did."""
        if self._only is not None:
            return self._only
        return WireCall(
            id=self.id or None,
            function=WireFunction(name=self.name or None, arguments=self._joined()),
        )

    def _joined(self) -> JsonValue:
        """Pieces of text joined; an object stands alone, or what it is joined with makes it unreadable."""
        pieces = [piece for piece in self.arguments if piece != ""]
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            return pieces[0]
        if not self.arguments:
            return None
        return "".join(
            [
                piece if isinstance(piece, str) else to_json(piece).decode()
                for piece in pieces
            ]
        )


class CallAssembly:
    """Puts tool calls together from pieces whose ids and indexes may be missing or wrong.

    A known id means that call. A new id begins a call, also at an index that is in use (some endpoints number every
    call 0), unless the piece brings nothing but arguments (others make up an id for each piece). Without an id a known
    index means that call, and without either it is the last one. Arguments are read at the end only, so that what was
    joined wrongly is no JSON and becomes a problem that the model is told of, never a call.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._at: dict[int, _Call] = {}

    def add(self, piece: WireCall) -> CallDelta:
        """Take a piece, and tell what it adds to which call."""
        call = self._find(piece)
        if call is None:
            call = _Call(len(self._calls), piece)
            self._calls.append(call)
        if piece.id:
            self._by_id[piece.id] = call
        if piece.index is not None:
            self._at[piece.index] = call
        return call.add(piece)

    def whole(self) -> list[WireCall]:
        """The calls in the order in which they began."""
        return [call.whole() for call in self._calls]

    def _find(self, piece: WireCall) -> _Call | None:
        name = (piece.function and piece.function.name) or ""
        last = self._calls[-1] if self._calls else None
        here = last if piece.index is None else self._at.get(piece.index)
        if piece.id:
            only_arguments = bool(
                not name and piece.function and piece.function.arguments
            )
            return self._by_id.get(piece.id) or (here if only_arguments else None)
        return None if here is not None and here.is_another(name) else here


class _Block:
    """A block of reasoning while its pieces come in."""

    def __init__(self, piece: dict[str, JsonValue]) -> None:
        self._fields = piece
        self._grown: dict[str, list[str]] = {}

    def is_continued_by(self, piece: dict[str, JsonValue]) -> bool:
        """Whether a piece belongs to this block, which is the last one."""
        fields = self._fields
        same = all(fields.get(name) == piece.get(name) for name in ("type", "index"))
        return same and (
            not fields.get("id") or not piece.get("id") or fields["id"] == piece["id"]
        )

    def add(self, piece: dict[str, JsonValue]) -> None:
        """Take a piece of it: text grows, anything else is what was said last (a signature comes late)."""
        for name, value in piece.items():
            before = self._fields.get(name)
            if name in GROWING and isinstance(before, str) and isinstance(value, str):
                self._grown.setdefault(name, [before]).append(value)
            elif value or name not in self._fields:
                self._fields[name] = value

    def whole(self) -> dict[str, JsonValue]:
        """The block as it would have come in one piece."""
        return {
            **self._fields,
            **{name: "".join(parts) for name, parts in self._grown.items()},
        }


class ReplyAssembly:
    """Takes the chunks of one reply and gives it whole at its end."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning_content: list[str] = []
        self._reasoning: list[str] = []
        self._blocks: list[_Block] = []
        self._calls = CallAssembly()
        self._think_block = ThinkBlock()
        self._objects: list[str] = []  # events with arguments as objects
        self._usage: WireUsage | None = None
        self._model = ""
        self.finish_reason: str | None = None
        self.is_over = False
        self.has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether the model has come to an end, or the stream to its mark of it; usage may still come."""
        return self.is_over or self.finish_reason is not None

    def end(self) -> None:
        """Note the mark of the end; some endpoints give no other sign."""
        self.is_over = True

    def take(self, chunk: WireChunk, data: str) -> list[Delta]:
        """What a chunk, decoded from `data`, adds to the first of the alternative replies."""
        if isinstance(chunk.usage, WireUsage):
            self._usage = chunk.usage
        if isinstance(chunk.model, str):
            self._model = chunk.model
        deltas: list[Delta] = []
        for piece in chunk.choices or ():
            if not piece.index:
                self.has_begun = True
                if piece.finish_reason:
                    self.finish_reason = piece.finish_reason
                if piece.delta is not None:
                    self._said(piece.delta, data, deltas)
        return deltas

    def rest(self) -> list[Delta]:
        """What was held back until the end: half a tag that never became one."""
        words, thinking = self._think_block.end()
        return [Delta(words, thinking)] if words or thinking else []

    def message(self) -> WireMessage:
        """The message as it would have come in one piece."""
        return WireMessage(
            content="".join(self._content),
            refusal="".join(self._refusal) or None,
            tool_calls=self._calls.whole() or None,
            reasoning_content="".join(self._reasoning_content) or None,
            reasoning="".join(self._reasoning) or None,
            reasoning_details=[block.whole() for block in self._blocks] or None,
        )

    def completion(self, message: WireMessage) -> Completion:
        """What the reply says, read as if it had come whole."""
        objects = f"[{','.join(self._objects)}]".encode()
        return completion_of(
            message, self.finish_reason, self._usage, self._model, objects
        )

    def _said(self, message: WireMessage, data: str, deltas: list[Delta]) -> None:
        words = message.raw
        thinking = block = ""
        if message.has_reasoning:
            thinking = self._thought(message)
        if words:
            self._content.append(words)
            words, block = self._think_block.feed(words)
        if words or thinking or block:
            deltas.append(Delta(words, thinking + block))
        if message.refused:
            self._refusal.append(message.refused)
        for piece in message.tool_calls or ():
            deltas.append(Delta(call=self._calls.add(piece)))
            if piece.function is not None and isinstance(
                piece.function.arguments, dict
            ):
                self._objects.append(data)

    def _thought(self, message: WireMessage) -> str:
        self._reasoning_content.append(message.reasoning_content or "")
        self._reasoning.append(message.reasoning or "")
        for piece in message.reasoning_details or ():
            if self._blocks and self._blocks[-1].is_continued_by(piece):
                self._blocks[-1].add(piece)
            else:
                self._blocks.append(_Block(piece))
        return message.thinking
