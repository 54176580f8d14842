"""The Messages wire format, outgoing: conversations, tools and schemas to bytes, each message encoded once."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from graphlib import TopologicalSorter
from typing import Literal, TypeAlias

from pydantic import JsonValue
from pydantic_core import to_json

from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import JsonObject, Message, ToolCall, ToolSpec
from ..base import OutputSchema

FORM = "thinking"
"""The `Reasoning.form` of thinking that goes back to this API."""

CACHE_HERE = (
    b',"cache_control":{"type":"ephemeral"}}'  # takes the place of a block's last brace
)
BEGIN = b'{"type":"text","text":"Begin."}'
GO_ON = b'{"type":"text","text":"Go on."}'

Speaker: TypeAlias = Literal["", "user", "assistant"]
# What stands before a message, by who spoke before it and who speaks now.
BETWEEN: dict[tuple[Speaker, Speaker], bytes] = {
    ("", "user"): b'{"role":"user","content":[',
    ("", "assistant"): b'{"role":"user","content":['
    + BEGIN
    + b']},{"role":"assistant","content":[',
    ("user", "user"): b",",
    ("user", "assistant"): b']},{"role":"assistant","content":[',
    ("assistant", "assistant"): b",",
    ("assistant", "user"): b']},{"role":"user","content":[',
}
TEXT_TYPES = (
    "text/",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/toml",
)

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_REFERENCES = re.compile(rb'"\$ref":"#/\$defs/([^"]+)"')
# What a schema for a reply may say, by https://platform.claude.com/docs/en/build-with-claude/structured-outputs
_SAID = frozenset({"type", "enum", "const", "required", "title", "default", "$ref"})
# What it may not say; the reply is checked for it afterwards, and the model reads it in the description.
_TOLD = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
    }
    | {"format", "minItems", "maxItems", "uniqueItems", "examples"}
)
_SHAPES = ("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const")


@dataclasses.dataclass(frozen=True)
class Turns:
    """A conversation as the API wants it: system blocks apart, then turns of user and assistant in alternation.

    Both are the items of a JSON array, joined by commas; the last turn is the user's, and so is the first.
    """

    system: bytes
    messages: bytes


def encode_turns(
    messages: Sequence[Message], *, cache: bool, last_words: str = ""
) -> Turns:
    """Put messages into alternating turns: neighbours of one role become one turn of several blocks.

    System messages go to the front from wherever they stand. A conversation that does not begin with the user gets
    "Begin.", and one that ends with the assistant gets "Go on.", since the API takes that for the beginning of its own
    next reply, or refuses it. Marks for the prompt cache stand on the last system block and on the last block of all,
    before the `last_words` that only this request says.
    """
    system, parts = _in_turns(_with_distinct_ids(messages))
    if cache:
        parts[-1] = cached(parts[-1])
        system[-1:] = [cached(blocks) for blocks in system[-1:]]
    if last_words:
        parts += [b",", _text(last_words)]
    return Turns(b",".join(system), b"".join([*parts, b"]}"]))


def _in_turns(messages: Iterable[Message]) -> tuple[list[bytes], list[bytes]]:
    """The blocks of the system, and the turns in pieces whose last one is the last block."""
    system: list[bytes] = []
    parts: list[bytes] = []
    speaker: Speaker = ""
    for message in messages:
        blocks = message.encoded(encode_blocks)
        if not blocks:
            continue
        if message.role == "system":
            system.append(blocks)
            continue
        before, speaker = (
            speaker,
            "assistant" if message.role == "assistant" else "user",
        )
        parts += (BETWEEN[before, speaker], blocks)
    if speaker != "user":
        parts += (BETWEEN[speaker, "user"], GO_ON if speaker else BEGIN)
    return system, parts


def cached(blocks: bytes) -> bytes:
    """The JSON objects with a mark for the prompt cache on the last of them."""
    return blocks[:-1] + CACHE_HERE


def encode_blocks(message: Message) -> bytes:
    """The content blocks of a message, joined by commas; nothing for one that says nothing, which the API refuses."""
    if message.role == "tool":
        result: dict[str, JsonValue] = {
            "type": "tool_result",
            "tool_use_id": wire_id(message.call_id),
        }
        return to_json(
            {**result, "content": message.content}
            if message.content.strip()
            else result
        )
    said = [_text(message.content)] if message.content.strip() else []
    if message.role != "assistant":
        return b",".join(
            [*(part for sent in message.attachments for part in _attached(sent)), *said]
        )
    said += [encode_call(call) for call in message.calls]
    return (
        b",".join([*thinking_of(message), *said]) if said else b""
    )  # thinking cannot be the end of a turn


def encode_call(call: ToolCall) -> bytes:
    """A call as the wire has it."""
    return to_json(
        {
            "type": "tool_use",
            "id": wire_id(call.id),
            "name": call.name,
            "input": call.arguments,
        }
    )


def encode_tool(spec: ToolSpec) -> bytes:
    """A tool as the wire has it."""
    about = {"description": spec.description} if spec.description else {}
    return to_json(
        {"name": spec.name, **about, "input_schema": {"type": "object", **spec.schema}}
    )


def thinking_of(message: Message) -> list[bytes]:
    """The thinking blocks of a message that came from this API, as they came: they are signed."""
    return [
        to_json(thought.block)
        for thought in message.reasoning
        if thought.form == FORM and thought.block
    ]


def may_think(messages: Iterable[Message]) -> bool:
    """Whether thinking can be switched on: not inside a turn of tool calls that was begun without it.

    The API refuses that. Engines begin such turns when they propose calls themselves, and so do other models.
    """
    first: Message | None = None
    for message in reversed(list(messages)):
        blocks = message.encoded(encode_blocks)
        if message.role == "user" and blocks:
            break
        if message.role == "assistant" and blocks:
            if first is None and not message.calls:
                return True  # the last turn is a finished one
            first = message
    return first is None or bool(thinking_of(first))


def wire_id(call_id: str) -> str:
    """The id itself where the API takes its letters, else one made of it: the same for a call and for its result."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return (
        "call_"
        + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    )


def _with_distinct_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with another id for each call whose id an earlier call has: the API wants them unique."""
    ids = [call.id for message in messages for call in message.calls]
    if len(set(ids)) == len(ids):
        return messages
    taken: set[str] = set()
    renamed: list[Message] = []
    waiting: dict[str, list[str]] = {}
    for message in messages:
        if message.calls:
            waiting = {}
            calls = tuple(
                [
                    dataclasses.replace(call, id=_free_id(call.id, taken))
                    for call in message.calls
                ]
            )
            for before, after in zip(message.calls, calls, strict=True):
                waiting.setdefault(before.id, []).append(after.id)
            renamed.append(dataclasses.replace(message, calls=calls))
        elif message.role == "tool":
            renamed.append(
                dataclasses.replace(message, call_id=waiting[message.call_id].pop(0))
            )
        else:
            renamed.append(message)
    return renamed


def _free_id(call_id: str, taken: set[str]) -> str:
    free, number = call_id, 2
    while free in taken:
        free, number = f"{call_id}_{number}", number + 1
    taken.add(free)
    return free


def _text(text: str) -> bytes:
    return to_json({"type": "text", "text": text})


def _attached(sent: Attachment) -> list[bytes]:
    """The blocks of an attachment; an image has no place for its name, which is told before it."""
    if sent.kind == "image":
        name = [_text(f"{sent.name}:")] if sent.name.strip() else []
        return [*name, to_json({"type": "image", "source": _source(sent)})]
    title = {"title": sent.name} if sent.name else {}
    return [to_json({"type": "document", "source": _source(sent), **title})]


def _source(sent: Attachment) -> dict[str, str]:
    if sent.url:
        return {"type": "url", "url": sent.url}
    media_type = sent.media_type.partition(";")[0].strip().lower()
    if sent.kind == "image" or media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": sent.data}
    try:
        if media_type.startswith(TEXT_TYPES):
            return {
                "type": "text",
                "media_type": "text/plain",
                "data": sent.content.decode(),
            }
    except UnicodeDecodeError:
        raise ProviderError(
            f"document {sent.name!r}: the Messages API takes text in UTF-8 only: convert it"
        ) from None
    raise ProviderError(
        f"document {sent.name!r}: the Messages API takes PDF and text, not {sent.media_type}: convert it"
    )


def encode_format(output: OutputSchema) -> JsonObject | None:
    """The `output_config.format` that holds a reply to a schema, or None where the API cannot hold it to this one."""
    if output.schema.get("type") != "object":
        return None
    try:
        return {"type": "json_schema", "schema": closed_form(output.schema)}
    except ValueError:
        return None


def closed_form(schema: JsonValue | JsonObject) -> dict[str, JsonValue]:
    """The schema in the words that the API knows, every object closed; ValueError where it has none for it.

    What fits the schema fits its closed form too. Bounds and patterns move into the description.
    """
    if not isinstance(schema, dict) or not any(word in schema for word in _SHAPES):
        raise ValueError("something that the API has no words for")
    if not str(schema.get("$ref", "#/$defs/")).startswith("#/$defs/"):
        raise ValueError("a reference to elsewhere")
    if schema.get("type") == "object" and "properties" not in schema:
        raise ValueError("an object with free properties")
    closed: dict[str, JsonValue] = {
        word: value for word, value in schema.items() if word in _SAID
    }
    for word in [
        word
        for word in schema
        if word not in _SAID | _TOLD | {"description", "discriminator"}
    ]:
        closed["anyOf" if word == "oneOf" else word] = _closed_inside(
            word, schema[word]
        )
    about = [str(schema["description"])] if "description" in schema else []
    about += [
        f"{word}: {to_json(schema[word]).decode()}" for word in schema if word in _TOLD
    ]
    described: dict[str, JsonValue] = {"description": "; ".join(about)} if about else {}
    shut: dict[str, JsonValue] = (
        {"additionalProperties": False} if schema.get("type") == "object" else {}
    )
    return {**closed, **described, **shut}


def _closed_inside(word: str, value: JsonValue) -> JsonValue:
    if word == "items":
        return closed_form(value)
    if word in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
        return [closed_form(inner) for inner in value]
    if word in {"properties", "$defs"} and isinstance(value, dict):
        if word == "$defs":
            graph = {
                name: _REFERENCES.findall(to_json(inner))
                for name, inner in value.items()
            }
            named = {
                name: [found.decode() for found in references]
                for name, references in graph.items()
            }
            TopologicalSorter(
                named
            ).prepare()  # raises a ValueError for a definition that contains itself
        return {name: closed_form(inner) for name, inner in value.items()}
    if word == "additionalProperties" and value is False:
        return value
    raise ValueError(f"{word}, which the API does not know")
