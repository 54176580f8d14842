"""A streamed Chat Completions reply: chunks become deltas, and together the reply that would have come whole."""

from typing import Any, Self

from pydantic import JsonValue, ValidationError
from pydantic_core import to_json

from ...messages import Completion
from ..base import CallDelta, Delta
from ..dialects.think_block import ThinkBlock
from ..http.wire import Lenient, Wire
from .response import (
    MAX_NAME,
    WireCall,
    WireFunction,
    WireMessage,
    WirePart,
    WireUsage,
    build_completion,
)

GROWING_FIELDS = frozenset({"text", "summary", "data"})  # of a block of reasoning

Block = dict[str, JsonValue]


class WireChunkChoice(Wire):
    """A fragment of one of the alternative replies."""

    index: int | None = 0
    delta: WireMessage | None = None
    finish_reason: str | None = None


class WireGroq(Wire):
    """What Groq adds to the last chunk."""

    usage: Lenient[WireUsage] = None


class WireChunk(Wire):
    """One event of a stream; counts that make no sense are treated as absent."""

    choices: list[WireChunkChoice] | None = None
    usage: Lenient[WireUsage] = None
    model: Lenient[str] = None
    object: Lenient[str] = None
    error: Any = None
    x_groq: Lenient[WireGroq] = None

    @classmethod
    def read(cls, data: str) -> Self | None:
        """Return the chunk in this event, or `None` if it is not a chunk."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return None

    @property
    def any_usage(self) -> WireUsage | None:
        """The usage, in the usual place or in Groq's."""
        if self.usage is None and self.x_groq is not None:
            return self.x_groq.usage
        return self.usage

    @property
    def is_failure(self) -> bool:
        """Whether it reports a failure, in OpenAI's form or in vLLM's older one."""
        return bool(self.error) or self.object == "error"


class _CallBuilder:
    """A tool call whose fragments are arriving."""

    def __init__(self, place: int, first: WireCall) -> None:
        self.place = place
        self._only: WireCall | None = first  # until another fragment arrives
        self.id = self.name = ""
        self.arguments: list[JsonValue] = []

    def is_ended_by(self, name: str) -> bool:
        """Return whether a fragment without an id begins another call: a new name after arguments does."""
        return bool(name and self.arguments and name != self.name)

    def add(self, fragment: WireCall) -> CallDelta:
        """Add a fragment and return its delta."""
        if fragment is not self._only:
            self._only = None
        self.id = self.id or fragment.id or ""
        return CallDelta(
            self.place,
            self.id if fragment.id else "",
            self._add_name(fragment.name),
            self._add_arguments(fragment.arguments),
        )

    def build(self) -> WireCall:
        """Return the call as it would have come whole, or as it did."""
        if self._only is not None:
            return self._only
        arguments = self._join_arguments()
        function = WireFunction(name=self.name, arguments=arguments)
        return WireCall(id=self.id, function=function)

    def _add_name(self, name: str) -> str:
        """Add to the name and return it; empty for a repeated name. Endpoints may split or repeat names."""
        if name in {"", self.name} or len(self.name) >= MAX_NAME:
            return ""
        self.name += name
        return self.name

    def _add_arguments(self, arguments: JsonValue) -> str:
        if arguments is None:
            return ""
        self.arguments.append(arguments)
        return _to_text(arguments)

    def _join_arguments(self) -> JsonValue:
        """Return the joined text, or an object that came alone; an object beside text becomes unreadable text."""
        if not self.arguments:
            return None
        fragments = [fragment for fragment in self.arguments if fragment != ""]
        if len(fragments) == 1:
            return fragments[0]
        return "".join(map(_to_text, fragments))


def _to_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return to_json(value).decode()


class CallAssembly:
    """Joins tool calls from fragments whose ids and indexes may be missing or wrong.

    A known id identifies its call. A new id begins a call, even at an index that is in use, since some endpoints number
    every call 0; a fragment with nothing but arguments is the exception, since others invent an id for each fragment.
    Without an id a known index identifies its call, and without either the last call is meant. Arguments are parsed at
    the end only: wrongly joined ones are invalid JSON and become a problem that the model is told, never a call.
    """

    def __init__(self) -> None:
        self._calls: list[_CallBuilder] = []
        self._by_id: dict[str, _CallBuilder] = {}
        self._by_index: dict[int, _CallBuilder] = {}

    def add(self, fragment: WireCall) -> CallDelta:
        """Add a fragment and return its delta."""
        call = self._find(fragment)
        if call is None:
            call = _CallBuilder(len(self._calls), fragment)
            self._calls.append(call)
        if fragment.id:
            self._by_id[fragment.id] = call
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        return call.add(fragment)

    def build(self) -> list[WireCall]:
        """Return the calls in the order in which they began."""
        return list(map(_CallBuilder.build, self._calls))

    def _find(self, fragment: WireCall) -> _CallBuilder | None:
        """Return the call that a fragment belongs to, or `None` if it begins one."""
        current = self._find_by_index(fragment.index)
        name = fragment.name
        if fragment.id:
            has_only_arguments = not name and bool(fragment.arguments)
            default = current if has_only_arguments else None
            return self._by_id.get(fragment.id, default)
        if current is not None and current.is_ended_by(name):
            return None
        return current

    def _find_by_index(self, index: int | None) -> _CallBuilder | None:
        if index is not None:
            return self._by_index.get(index)
        return self._calls[-1] if self._calls else None


class _BlockBuilder:
    """A block of reasoning whose fragments are arriving."""

    def __init__(self, first: Block) -> None:
        self._fields = first
        self._grown: dict[str, list[str]] = {}

    def is_continued_by(self, fragment: Block) -> bool:
        """Return whether a fragment belongs to this block, which is the last one."""
        fields = self._fields
        if fields.get("type") != fragment.get("type"):
            return False
        if fields.get("index") != fragment.get("index"):
            return False
        block_id, other_id = fields.get("id"), fragment.get("id")
        return block_id == other_id or not (block_id and other_id)

    def add(self, fragment: Block) -> None:
        """Add a fragment: texts grow, other fields take the latest value (a signature comes late)."""
        for name, value in fragment.items():
            before = self._fields.get(name)
            if name in GROWING_FIELDS and isinstance(before, str):
                self._grow(name, before, value)
            else:
                self._replace(name, value)

    def build(self) -> Block:
        """Return the block as it would have come whole."""
        grown = {name: "".join(texts) for name, texts in self._grown.items()}
        return {**self._fields, **grown}

    def _grow(self, name: str, before: str, value: JsonValue) -> None:
        if isinstance(value, str):
            self._grown.setdefault(name, [before]).append(value)
        else:
            self._replace(name, value)

    def _replace(self, name: str, value: JsonValue) -> None:
        if value or name not in self._fields:
            self._fields[name] = value


class _ReasoningAssembly:
    """Joins the reasoning that comes beside the content, in any of three fields."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._plain: list[str] = []
        self._parts: list[str] = []
        self._blocks: list[_BlockBuilder] = []

    def add(self, message: WireMessage) -> str:
        """Add a fragment and return its readable text."""
        self._content.append(message.reasoning_content or "")
        self._plain.append(message.reasoning or "")
        self._parts.append(message.thinking_parts)
        for fragment in message.reasoning_details or ():
            if self._blocks and self._blocks[-1].is_continued_by(fragment):
                self._blocks[-1].add(fragment)
            else:
                self._blocks.append(_BlockBuilder(fragment))
        return message.thinking

    def build(self) -> dict[str, Any]:
        """Return the fields of the message that hold reasoning."""
        return {
            "reasoning_content": "".join(self._content),
            "reasoning": "".join(self._plain),
            "reasoning_details": list(map(_BlockBuilder.build, self._blocks)),
        }

    def build_parts(self) -> str:
        """Return the thinking that came as parts of the content."""
        return "".join(self._parts)


class ReplyAssembly:
    """Joins the chunks of one reply."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning = _ReasoningAssembly()
        self._calls = CallAssembly()
        self._think_block = ThinkBlock()
        self._with_objects: list[str] = []  # events whose arguments are objects
        self._usage: WireUsage | None = None
        self._model = ""
        self.finish_reason: str | None = None
        self.is_over = False
        self.has_begun = False

    @property
    def has_ended(self) -> bool:
        """Whether the reply is complete; the usage and the end marker may still come."""
        return self.is_over or self.finish_reason is not None

    def end(self) -> None:
        """Note the end marker, which is the only sign of the end that some endpoints send."""
        self.is_over = True

    def add(self, chunk: WireChunk, data: str) -> list[Delta]:
        """Add a chunk, which was decoded from `data`; return the deltas of the first alternative reply."""
        self._usage = chunk.any_usage or self._usage
        self._model = chunk.model or self._model
        deltas: list[Delta] = []
        for choice in chunk.choices or ():
            if not choice.index:
                deltas += self._add_choice(choice, data)
        return deltas

    def flush(self) -> list[Delta]:
        """Return what was held back until the end: the beginning of a tag that was not one."""
        text, thinking = self._think_block.end()
        return [Delta(text, thinking)] if text or thinking else []

    def build_message(self) -> WireMessage:
        """Return the message as it would have come whole."""
        text = "".join(self._content)
        content: str | list[WirePart] = text
        if thinking := self._reasoning.build_parts():
            held = WirePart(thinking=[WirePart(text=thinking)])
            content = [held, WirePart(text=text)]
        return WireMessage(
            content=content,
            refusal="".join(self._refusal),
            tool_calls=self._calls.build(),
            **self._reasoning.build(),
        )

    def build_completion(self, message: WireMessage) -> Completion:
        """Return the completion, read as if the reply had come whole."""
        objects = f"[{','.join(self._with_objects)}]".encode()
        return build_completion(
            message, self.finish_reason, self._usage, self._model, objects
        )

    def _add_choice(self, choice: WireChunkChoice, data: str) -> list[Delta]:
        self.has_begun = True
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
        message = choice.delta
        if message is None:
            return []
        deltas = self._add_text(message)
        for call in message.tool_calls or ():
            deltas.append(Delta(call=self._calls.add(call)))
            if isinstance(call.arguments, dict):
                self._with_objects.append(data)
        return deltas

    def _add_text(self, message: WireMessage) -> list[Delta]:
        thinking = self._reasoning.add(message) if message.has_reasoning else ""
        text = message.raw
        if text:
            self._content.append(text)
            text, block = self._think_block.feed(text)
            thinking += block
        if message.refusal_text:
            self._refusal.append(message.refusal_text)
        return [Delta(text, thinking)] if text or thinking else []
