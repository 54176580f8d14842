"""The request format of the Messages API: conversations, tools and schemas as bytes, each message encoded once."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from graphlib import TopologicalSorter
from typing import Literal, TypeAlias

from pydantic import JsonValue
from pydantic_core import to_json

from ..._internal import dataclasses
from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import JsonObject, Message, Reasoning, ToolCall, ToolSpec
from ..base import OutputSchema
from ..call_names import fit_name, fit_plain_id, make_ids_unique
from ..provider_tools import ProviderTool, bound_uses
from ..reply_schemas import merge_branches

THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})
SERVER_TOOL_USE, SERVER_TOOL_RESULT = "server_tool_use", "_tool_result"
TEXT_LENGTH = "text_length"
"""What a mark has in place of the text of a block, which the message holds."""
FORM = "thinking"
"""The `Reasoning.form` of thinking that is sent back to this API."""

# Replaces the last brace of a block.
CACHE_CONTROL = b',"cache_control":{"type":"ephemeral"}}'
BEGIN = b'{"type":"text","text":"Begin."}'
CONTINUE = b'{"type":"text","text":"Go on."}'

WEB_SEARCH, CODE_EXECUTION = "web_search_20250305", "code_execution_20250825"
"""The versions of the tools that the API runs by itself."""
CODE_EXECUTION_BETA = "code-execution-2025-08-25"

Speaker: TypeAlias = Literal["", "user", "assistant"]
# The bytes before a message, by the roles of the message before it and of the message itself.
SEPARATORS: dict[tuple[Speaker, Speaker], bytes] = {
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

_REFERENCES = re.compile(rb'"\$ref":"#/\$defs/([^"]+)"')
# The keywords that a schema for a reply may have, and that contain no schemas:
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs
_SUPPORTED = frozenset(
    {"type", "enum", "const", "required", "title", "default", "$ref"}
)
# Keywords that it may not have: they move into the description, and the reply is checked against them afterwards.
_DESCRIBED = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "minItems",
        "maxItems",
        "uniqueItems",
        "examples",
    }
)
_DROPPED = frozenset({"description", "discriminator"})
_TYPE_KEYWORDS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})


@dataclasses.dataclass(frozen=True)
class Turns:
    """A conversation in the API's form: system blocks, and turns that alternate between user and assistant.

    Both are the items of a JSON array, joined by commas. The first and the last turn are the user's.
    """

    system: bytes
    messages: bytes


def encode_turns(
    messages: Sequence[Message],
    *,
    cache: bool,
    instruction: str = "",
    source: str | None = "",
) -> Turns:
    """Encode messages as alternating turns: neighbours of one role become one turn of several blocks.

    System messages move to the front. A conversation that does not begin with the user gets "Begin.". One that ends
    with the assistant gets "Go on.", since the API would refuse it or continue that message. With `cache` the last
    system block and the last block of all are prompt cache breakpoints; an `instruction` for this request alone follows.
    Thinking that another `source` signed is left out, and all of it with `None`.
    """
    system, parts = _encode_parts(make_ids_unique(messages), source)
    if cache:
        parts[-1] = mark_cached(parts[-1])
        system[-1:] = map(mark_cached, system[-1:])
    if instruction:
        parts += [b",", _encode_text(instruction)]
    return Turns(b",".join(system), b"".join([*parts, b"]}"]))


def _encode_parts(
    messages: Iterable[Message], source: str | None
) -> tuple[list[bytes], list[bytes]]:
    """Return the system blocks, and the bytes of the turns in parts, of which the last is the last block."""
    system: list[bytes] = []
    parts: list[bytes] = []
    before: Speaker = ""
    encode = get_block_encoder(source)
    for message in messages:
        blocks = message.encoded(encode if message.reasoning else encode_blocks)
        if not blocks:
            continue
        if message.role == "system":
            system.append(blocks)
            continue
        speaker: Speaker = "assistant" if message.role == "assistant" else "user"
        parts += (SEPARATORS[before, speaker], blocks)
        before = speaker
    if before != "user":
        parts += (SEPARATORS[before, "user"], CONTINUE if before else BEGIN)
    return system, parts


def mark_cached(blocks: bytes) -> bytes:
    """Return the JSON objects with a prompt cache breakpoint on the last of them."""
    return blocks[:-1] + CACHE_CONTROL


@functools.cache
def get_block_encoder(source: str | None) -> Callable[[Message], bytes]:
    """Return the encoder of an endpoint; equal sources share one, since messages cache their bytes by encoder."""
    return functools.partial(encode_blocks, source=source)


def encode_blocks(message: Message, source: str | None = "") -> bytes:
    """Encode the content blocks of a message, joined by commas; empty for an empty message, which the API refuses."""
    if message.role == "tool":
        return _encode_result(message)
    text = [_encode_text(message.content)] if message.content.strip() else []
    if message.role == "assistant":
        return _encode_assistant(message, text, source)
    attached = [part for sent in message.attachments for part in _encode_sent(sent)]
    return b",".join([*attached, *text])


def _encode_result(message: Message) -> bytes:
    call_id = fit_plain_id(message.call_id)
    if message.attachments:
        text = [_encode_text(message.content)] if message.content.strip() else []
        sent = [part for one in message.attachments for part in _encode_sent(one)]
        head = b'{"type":"tool_result","tool_use_id":' + to_json(call_id)
        return head + b',"content":[' + b",".join([*text, *sent]) + b"]}"
    result = {"type": "tool_result", "tool_use_id": call_id}
    if message.content.strip():
        result["content"] = message.content
    return to_json(result)


def _encode_assistant(message: Message, text: list[bytes], source: str | None) -> bytes:
    blocks = [*text, *map(encode_call, message.calls)]
    if not blocks:  # the API refuses thinking at the end of a turn
        return b""
    replied = _encode_in_order(message, source)
    if replied:
        return b",".join([*replied, *map(encode_call, message.calls)])
    return b",".join([*encode_thinking(message, source), *blocks])


def _encode_in_order(message: Message, source: str | None) -> list[bytes]:
    """Encode the blocks of a reply for which the API ran tools, as they came; none for other replies."""
    own = [one.block or {} for one in message.reasoning if _belongs_to(one, source)]
    lengths = [block.get(TEXT_LENGTH) for block in own]
    total = sum(length for length in lengths if isinstance(length, int))
    if total != len(message.content) or not any(map(_is_of_provider, own)):
        return []
    encoded: list[bytes] = []
    place = 0
    for block, length in zip(own, lengths, strict=True):
        if not isinstance(length, int):
            encoded.append(to_json(block))
            continue
        text, place = message.content[place : place + length], place + length
        rest = {name: block[name] for name in block if name != TEXT_LENGTH}
        if text.strip():
            encoded.append(to_json({**rest, "text": text}))
    return encoded


def _is_of_provider(block: JsonObject) -> bool:
    """Return whether a block is of a tool that the API ran."""
    kind = str(block.get("type"))
    return kind == SERVER_TOOL_USE or kind.endswith(SERVER_TOOL_RESULT)


def encode_call(call: ToolCall) -> bytes:
    """Encode a call."""
    return to_json(
        {
            "type": "tool_use",
            "id": fit_plain_id(call.id),
            "name": fit_name(call.name),
            "input": call.arguments,
        }
    )


def build_provider_tool(tool: ProviderTool, left: int | None) -> dict[str, JsonValue]:
    """Return the description of a tool that the API runs by itself, of whose uses the run has `left`.

    Raises:
        ProviderError: the API has no field for something of it.
    """
    if tool.kind == "code_interpreter":
        tool.refuse(
            "the code execution of the Messages API",
            "allowed_domains", "blocked_domains", "max_uses",
        )  # fmt: skip
        return {"type": CODE_EXECUTION, "name": "code_execution", **tool.extra}
    described: dict[str, JsonValue] = {"type": WEB_SEARCH, "name": tool.kind}
    fields: dict[str, JsonValue] = {
        "allowed_domains": [*tool.allowed_domains],
        "blocked_domains": [*tool.blocked_domains],
        "max_uses": bound_uses(tool, left),
    }
    described |= {name: value for name, value in fields.items() if value}
    return {**described, **tool.extra}


def encode_tool(spec: ToolSpec) -> bytes:
    """Encode the description of a tool."""
    wire: dict[str, object] = {"name": fit_name(spec.name)}
    if spec.description:
        wire["description"] = spec.description
    wire["input_schema"] = {"type": "object", **spec.schema}
    return to_json(wire)


def encode_thinking(message: Message, source: str | None) -> list[bytes]:
    """Encode the thinking blocks that came from a source, unchanged, since they are signed."""
    return [
        to_json(thought.block)
        for thought in message.reasoning
        if _is_thinking(thought.block) and _belongs_to(thought, source)
    ]


def _is_thinking(block: JsonObject | None) -> bool:
    return block is not None and block.get("type") in THINKING_BLOCKS


def _belongs_to(thought: Reasoning, source: str | None) -> bool:
    """Return whether thinking came from this API at this source; journals of before name no source."""
    return (
        thought.form == FORM and source is not None and thought.source in ("", source)
    )


def can_think(messages: Iterable[Message], source: str | None = "") -> bool:
    """Return whether thinking can be switched on, which the API refuses within a turn that began without it.

    Such turns come from engines that propose calls themselves, and from other models.
    """
    first: Message | None = None
    encode = get_block_encoder(source)
    for message in reversed(list(messages)):
        if not message.encoded(encode if message.reasoning else encode_blocks):
            continue
        if message.role == "user":
            break
        if message.role == "assistant":
            if first is None and not message.calls:
                return True  # the last turn is complete
            first = message
    return first is None or bool(encode_thinking(first, source))


def _encode_text(text: str) -> bytes:
    return to_json({"type": "text", "text": text})


def _encode_sent(sent: Attachment) -> list[bytes]:
    """Encode an attachment; a text block before an image gives its name, for which an image block has no field."""
    if sent.kind == "image":
        name = [_encode_text(f"{sent.name}:")] if sent.name.strip() else []
        return [*name, to_json({"type": "image", "source": _build_source(sent)})]
    block: dict[str, object] = {"type": "document", "source": _build_source(sent)}
    if sent.name:
        block["title"] = sent.name
    return [to_json(block)]


def _build_source(sent: Attachment) -> dict[str, str]:
    if sent.url:
        return {"type": "url", "url": sent.url}
    media_type = sent.media_type.partition(";")[0].strip().lower()
    if sent.kind == "image" or media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": sent.data}
    if not media_type.startswith(TEXT_TYPES):
        raise ProviderError(
            f"document {sent.name!r}: the Messages API takes PDF and text, not {sent.media_type}: convert it"
        )
    try:
        text = sent.content.decode()
    except UnicodeDecodeError:
        raise ProviderError(
            f"document {sent.name!r}: the Messages API takes text in UTF-8 only: convert it"
        ) from None
    return {"type": "text", "media_type": "text/plain", "data": text}


def build_format(output: OutputSchema) -> JsonObject | None:
    """Return the `output_config.format` for a schema, or `None` if the API cannot constrain a reply to it."""
    schema = merge_branches(output.schema)
    if schema.get("type") != "object":
        return None
    try:
        return {"type": "json_schema", "schema": build_closed_schema(schema)}
    except ValueError:
        return None


def build_closed_schema(schema: JsonValue | JsonObject) -> dict[str, JsonValue]:
    """Return the schema in the keywords that the API supports, every object closed.

    Every value that fits the schema fits the result too: bounds and patterns move into the description.

    Raises:
        ValueError: the API cannot express the schema.
    """
    schema = _check_expressible(schema)
    closed: dict[str, JsonValue] = {}
    nested: dict[str, JsonValue] = {}
    described: list[str] = []
    for keyword, value in schema.items():
        if keyword in _SUPPORTED:
            closed[keyword] = value
        elif keyword in _DESCRIBED:
            described.append(f"{keyword}: {to_json(value).decode()}")
        elif keyword not in _DROPPED:
            name = "anyOf" if keyword == "oneOf" else keyword
            nested[name] = _close_nested(keyword, value)
    closed.update(nested)
    if "description" in schema:
        described.insert(0, str(schema["description"]))
    if described:
        closed["description"] = "; ".join(described)
    if schema.get("type") == "object":
        closed["additionalProperties"] = False
    return closed


def _check_expressible(schema: JsonValue | JsonObject) -> JsonObject:
    if not isinstance(schema, dict) or not schema.keys() & _TYPE_KEYWORDS:
        raise ValueError("something that the API has no words for")
    if not str(schema.get("$ref", "#/$defs/")).startswith("#/$defs/"):
        raise ValueError("a reference outside the schema")
    if schema.get("type") == "object" and "properties" not in schema:
        raise ValueError("an object with free properties")
    return schema


def _close_nested(keyword: str, value: JsonValue) -> JsonValue:
    """Return the value of a keyword that contains schemas."""
    if keyword == "items":
        return build_closed_schema(value)
    if keyword in {"anyOf", "oneOf", "allOf"} and isinstance(value, list):
        return [*map(build_closed_schema, value)]
    if keyword in {"properties", "$defs"} and isinstance(value, dict):
        if keyword == "$defs":
            _check_recursion(value)
        return {name: build_closed_schema(inner) for name, inner in value.items()}
    if keyword == "additionalProperties" and value is False:
        return value
    raise ValueError(f"{keyword}, which the API does not know")


def _check_recursion(definitions: dict[str, JsonValue]) -> None:
    """Raise ValueError for a definition that contains itself."""
    graph = {
        name: [found.decode() for found in _REFERENCES.findall(to_json(definition))]
        for name, definition in definitions.items()
    }
    TopologicalSorter(graph).prepare()
