"""The request format of the Responses API: a conversation as a list of items, tools and schemas as bytes."""

import contextlib
import functools
import mimetypes
from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from ....attachments import Attachment
from ....errors import ProviderError
from ....messages import JsonObject, Message, Reasoning, ToolCall, ToolSpec
from ...base import OutputSchema
from ...call_names import fit_name, fit_short_id
from ...provider_tools import ProviderTool
from ...reply_schemas import merge_branches
from ..request import (
    build_strict_schema,
    choose_schema_name,
    decode_text,
    fence_document,
    label,
)

FORM = "responses"
"""The `form` of opaque data that is sent back to this API."""

# What an item of reasoning is sent back with; the API refuses its other fields, such as a status.
REASONING_FIELDS = ("id", "type", "summary", "content", "encrypted_content")

MAX_CALL_ID = 64  # characters

Item = dict[str, JsonValue]


@functools.cache
def get_message_encoder(source: str | None) -> Callable[[Message], bytes]:
    """Return the encoder of an endpoint; equal sources share one, since messages cache their bytes by encoder.

    With `source=None` no opaque data is sent.
    """
    return functools.partial(encode_message, source=source)


def encode_message(message: Message, source: str | None = None) -> bytes:
    """Encode a message as items, joined by commas; an empty one of the assistant has none.

    Raises:
        ProviderError: the API does not take an attachment.
    """
    if message.role == "tool":
        output: object = message.content
        if message.attachments:
            fenced = [
                fence_document(one, message.call_id) for one in message.attachments
            ]
            output = [*_list_text(message.content), *map(_build_part, fenced)]
        result = {
            "call_id": fit_short_id(message.call_id, MAX_CALL_ID),
            "output": output,
        }
        return to_json({"type": "function_call_output", **result})
    if message.role == "assistant":
        return to_json(build_reply_items(message, source))[1:-1]
    content: object = message.content
    if message.attachments:
        content = [*map(_build_part, message.attachments), *_list_text(message.content)]
    return to_json({"role": message.role, "content": content})


def build_reply_items(message: Message, source: str | None) -> list[JsonObject]:
    """Return the items of a reply in their order: reasoning, text and calls, as they came.

    A place is counted by the opaque items before it; what has none, since another model or an engine wrote it, comes
    at the end, text first. Reasoning without anything behind it is left out, since the API refuses it.
    """
    text = _list_reply_text(message.content)
    items: list[JsonObject] = []
    calls = list(message.calls)
    for place, thought in enumerate(message.reasoning):
        items += _take_calls_at(place, calls, source)
        if not _belongs_to(thought, source):
            continue
        if (thought.block or {}).get("type") == "message":
            items += [{**one, **_phase_of(thought)} for one in text]
            text = []
        else:
            items.append(_select_fields(thought))
    items += [*text, *(_build_call(call, source) for call in calls)]
    return _drop_trailing_reasoning(items)


def _take_calls_at(
    place: int, calls: list[ToolCall], source: str | None
) -> list[JsonObject]:
    """Remove from `calls` those that came before the opaque item at `place`, and return them."""
    taken: list[JsonObject] = []
    while calls and _belongs_to(calls[0], source):
        after = (calls[0].block or {}).get("after")
        if not isinstance(after, int) or after > place:
            break
        taken.append(_build_call(calls.pop(0), source))
    return taken


def _belongs_to(opaque: Reasoning | ToolCall, source: str | None) -> bool:
    is_ours = opaque.form == FORM and opaque.source == source
    return is_ours and opaque.block is not None


def _list_reply_text(text: str) -> list[Item]:
    return [{"role": "assistant", "content": text}] if text.strip() else []


def _phase_of(thought: Reasoning) -> Item:
    phase = (thought.block or {}).get("phase")
    return {"phase": phase} if phase is not None else {}


def _select_fields(thought: Reasoning) -> JsonObject:
    block = thought.block or {}
    if block.get("type") != "reasoning":
        return block  # an item of a tool that the provider ran
    kept = {name: block[name] for name in REASONING_FIELDS if block.get(name)}
    return {"summary": [], **kept}


def _drop_trailing_reasoning(items: list[JsonObject]) -> list[JsonObject]:
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _build_call(call: ToolCall, source: str | None) -> JsonObject:
    call_id, name = fit_short_id(call.id, MAX_CALL_ID), fit_name(call.name)
    item: Item = {"type": "function_call", "call_id": call_id, "name": name}
    item["arguments"] = to_json(call.arguments).decode()
    if _belongs_to(call, source) and (item_id := (call.block or {}).get("id")):
        item["id"] = item_id
    return item


def _list_text(text: str) -> list[Item]:
    return [{"type": "input_text", "text": text}] if text else []


def _build_part(attachment: Attachment) -> Item:
    if attachment.is_text:
        title = attachment.name or "document"
        return {
            "type": "input_text",
            "text": f"{title}:\n{decode_text(attachment)}",
        }
    if attachment.kind == "image":
        return {"type": "input_image", "image_url": attachment.data_url}
    if attachment.url:
        return {"type": "input_file", "file_url": attachment.url}
    extension = mimetypes.guess_extension(attachment.media_type)
    if extension is None and not attachment.name:
        raise ProviderError(
            f"the document {label(attachment)}: the Responses API wants a file name: give it one"
        )
    name = attachment.name or f"document{extension}"
    file: Item = {"type": "input_file", "filename": name}
    return {**file, "file_data": attachment.data_url}


def encode_tool(spec: ToolSpec, *, strict: bool = True) -> bytes:
    """Encode the description of a tool, in strict mode if its schema can be expressed in it."""
    tool: dict[str, object] = {"type": "function", "name": fit_name(spec.name)}
    tool["description"] = spec.description
    tool["parameters"] = spec.schema
    if strict:
        tool["strict"] = False  # without it the API takes every schema for a strict one
        with contextlib.suppress(ValueError):
            tool.update(parameters=build_strict_schema(spec.schema), strict=True)
    return to_json(tool)


def encode_loose_tool(spec: ToolSpec) -> bytes:
    """Encode the description of a tool for an endpoint that does not know strict mode."""
    return encode_tool(spec, strict=False)


def build_provider_tool(tool: ProviderTool) -> Item:
    """Return the description of a tool that the API runs by itself; raise `ProviderError` for what it has no field for."""
    tool.refuse("the Responses API", "blocked_domains")
    described: Item = {"type": tool.kind}
    if tool.kind == "code_interpreter":
        described["container"] = {"type": "auto"}
    if tool.kind == "file_search":
        described["vector_store_ids"] = [*tool.stores]
    if tool.allowed_domains:
        described["filters"] = {"allowed_domains": [*tool.allowed_domains]}
    return {**described, **tool.extra}


def build_text_format(output: OutputSchema) -> JsonObject:
    """Return the `text.format` for a schema, in strict mode if the schema can be expressed in it."""
    wire: dict[str, JsonValue] = {"type": "json_schema"}
    wire["name"] = choose_schema_name(output)
    schema = merge_branches(output.schema)
    wire["schema"] = dict(schema)
    wire["strict"] = False
    if schema.get("type") == "object":
        with contextlib.suppress(ValueError):
            wire.update(schema=build_strict_schema(schema), strict=True)
    return wire
