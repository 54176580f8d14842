"""The request format of Chat Completions: messages with attachments and reasoning, tools and schemas as bytes."""

import base64
import contextlib
import functools
import hashlib
import mimetypes
from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from ..._internal import dataclasses
from ..._internal.regex import compile_late
from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import Conversation, JsonObject, Message, ToolCall, ToolSpec
from ...parsing.spotlighting import fence
from ..base import OutputSchema
from ..call_names import fit_name, fit_nine_id, fit_short_id
from ..reply_schemas import merge_branches
from .quirks import DEFAULT, Quirks

# The keywords that mean the same in strict mode.
STRICT_KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "title",
        "description",
    }
)
TYPE_KEYWORDS = frozenset({"type", "$ref", "anyOf"})  # strict mode requires one of them
MAX_CALL_ID = 40  # characters
MAX_SCHEMA_NAME = 64  # characters
SIGNED_FORM = "reasoning_details"

_NOT_IN_NAME = compile_late(r"[^a-zA-Z0-9_-]")


def encode_message(
    message: Message, quirks: Quirks = DEFAULT, source: str | None = ""
) -> bytes:
    """Encode a message; the content of an assistant message that only has calls is `null`.

    Raises:
        ProviderError: the endpoint does not take an attachment.
    """
    if message.attachments:
        return _encode_with_attachments(message, quirks)
    if message.role == "tool":
        call_id = _fit_id(message.call_id, quirks)
        result = {"tool_call_id": call_id, "content": message.content}
        return to_json({"role": "tool", **result})
    wire: dict[str, object] = {"role": message.role, "content": message.content}
    if message.calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [_build_call(call, quirks) for call in message.calls]
    if message.reasoning and source is not None:
        wire.update(_build_reasoning(message, quirks.send_reasoning, source))
    return to_json(wire)


@functools.cache
def get_message_encoder(
    quirks: Quirks, source: str | None
) -> Callable[[Message], bytes]:
    """Return the encoder of an endpoint; equal ones share it, since messages cache their bytes by encoder.

    Reasoning that another source sent is left out, and all of it with `source=None`.
    """
    return functools.partial(encode_message, quirks=quirks, source=source)


def _build_call(call: ToolCall, quirks: Quirks) -> dict[str, object]:
    arguments = to_json(call.arguments).decode()
    return {
        "id": _fit_id(call.id, quirks),
        "type": "function",
        "function": {"name": fit_name(call.name), "arguments": arguments},
    }


def _fit_id(call_id: str, quirks: Quirks) -> str:
    if quirks.call_ids == "any":
        return call_id
    if quirks.call_ids == "nine":
        return fit_nine_id(call_id)
    return fit_short_id(call_id, MAX_CALL_ID)


def _build_reasoning(
    message: Message, named: str | None, source: str
) -> dict[str, object]:
    """Return the reasoning of one form and source, in the field that it came in; journals of before name no source.

    Without a named form it is `reasoning_details`, which may be signed: it goes back to the source that sent it.
    """
    form = named or SIGNED_FORM
    sources = ("", source) if named else (source or None,)
    reasoning = [
        part
        for part in message.reasoning
        if part.form == form and part.source in sources
    ]
    if not reasoning:
        return {}
    if form == SIGNED_FORM:
        return {form: [part.block for part in reasoning if part.block is not None]}
    return {form: "".join([part.text for part in reasoning])}


def _encode_with_attachments(message: Message, quirks: Quirks) -> bytes:
    if message.role != "user":
        raise ProviderError(
            f"Chat Completions takes attachments of the user only, not of the {message.role}"
        )
    parts = [_build_part(attachment, quirks) for attachment in message.attachments]
    if message.content:
        parts.append({"type": "text", "text": message.content})
    return to_json({"role": "user", "content": parts})


def _build_part(attachment: Attachment, quirks: Quirks) -> dict[str, object]:
    if attachment.kind == "document" and attachment.url:
        raise ProviderError(
            f"the document {label(attachment)}: Chat Completions takes none by URL: send its content"
        )
    if attachment.is_text:
        title = attachment.name or "document"
        return {"type": "text", "text": f"{title}:\n{decode_text(attachment)}"}
    if attachment.kind not in quirks.attachments:
        takes = " and ".join(sorted(quirks.attachments)) or "none"
        raise ProviderError(
            f"the {attachment.kind} {label(attachment)}: this endpoint takes no {attachment.kind}s, as its quirks say "
            f"(attachments it takes: {takes}): send it as text, or pass quirks=Quirks(attachments=...)"
        )
    if attachment.kind == "image":
        return _build_image(attachment, quirks)
    extension = mimetypes.guess_extension(attachment.media_type) or ""
    name = attachment.name or f"document{extension}"
    return {
        "type": "file",
        "file": {"filename": name, "file_data": attachment.data_url},
    }


def _build_image(attachment: Attachment, quirks: Quirks) -> dict[str, object]:
    if attachment.url and not quirks.fetches_images:
        raise ProviderError(
            f"the image {label(attachment)}: this endpoint does not fetch images by URL; send the content"
        )
    return {"type": "image_url", "image_url": {"url": attachment.data_url}}


def decode_text(attachment: Attachment) -> str:
    """Return the text of a document; raise `ProviderError` if it is not UTF-8."""
    try:
        return attachment.content.decode("utf-8-sig")
    except ValueError:
        raise ProviderError(
            f"the document {label(attachment)} is called {attachment.media_type}, but is not UTF-8 text"
        ) from None


def fence_document(sent: Attachment, call_id: str) -> Attachment:
    """Return a text document of a tool's result between two lines that say that it is data.

    The delimiter is a digest of the text, which the text cannot contain. Any other attachment is returned as it is.
    """
    if not sent.is_text or sent.url:
        return sent
    digest = hashlib.sha256(f"{call_id}\n{sent.data}".encode()).hexdigest()
    source = sent.name or f"a document of the call {call_id}"
    text = fence(decode_text(sent), source=source, delimiter=digest[:16])
    data = base64.b64encode(text.encode("utf-8", "replace")).decode()
    return dataclasses.replace(sent, data=data)


def label(attachment: Attachment) -> str:
    """Return what an error calls an attachment."""
    return attachment.name or attachment.url or f"of type {attachment.media_type}"


def join_system_messages(conversation: Conversation) -> Conversation:
    """Return the conversation with all system messages joined at the beginning."""
    messages = conversation.messages
    if not any(message.role == "system" for message in messages[1:]):
        return conversation
    texts = [message.content for message in messages if message.role == "system"]
    others = [message for message in messages if message.role != "system"]
    return Conversation([Message("system", "\n\n".join(texts)), *others])


def encode_tool(spec: ToolSpec) -> bytes:
    """Encode the description of a tool."""
    function = {
        "name": fit_name(spec.name),
        "description": spec.description,
        "parameters": spec.schema,
    }
    return to_json({"type": "function", "function": function})


def encode_schema(
    output: OutputSchema, *, strict: bool = True, any_root: bool = False
) -> bytes:
    """Encode a `response_format` for a schema, in strict mode if the schema can be expressed in it.

    With `strict=False`, for endpoints that do not know the field, it is left out. A choice between objects is
    written as one object, unless the endpoint takes `any_root`.
    """
    name = choose_schema_name(output)
    schema = output.schema if any_root else merge_branches(output.schema)
    wire: dict[str, object] = {"name": name, "schema": schema}
    if strict:
        wire = {"name": name, "strict": False, "schema": schema}
        if schema.get("type") == "object":
            # Otherwise the model reads the schema and is not constrained to it token by token.
            with contextlib.suppress(ValueError):
                wire.update(schema=build_strict_schema(schema), strict=True)
    return to_json({"type": "json_schema", "json_schema": wire})


def choose_schema_name(output: OutputSchema) -> str:
    """Return a name that OpenAI accepts for a schema."""
    return _NOT_IN_NAME.sub("_", output.name)[:MAX_SCHEMA_NAME] or "reply"


def build_strict_schema(schema: JsonValue | JsonObject) -> dict[str, JsonValue]:
    """Return the schema with every object closed, as strict mode requires.

    Raises:
        ValueError: strict mode cannot express the schema.
    """
    if not isinstance(schema, dict):
        raise ValueError("something that strict mode cannot say")
    keywords = schema.keys()
    if keywords - STRICT_KEYWORDS or not keywords & TYPE_KEYWORDS:
        raise ValueError("something that strict mode cannot say")
    if "$ref" in schema and len(schema) > 1:
        raise ValueError("strict mode allows nothing beside a reference")
    strict = {**schema, **_build_strict_parts(schema)}
    if schema.get("type") == "object":
        return _close_object(strict)
    return strict


def _build_strict_parts(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the keywords that contain schemas, with the strict forms of these."""
    parts: dict[str, JsonValue] = {}
    for keyword, value in schema.items():
        if keyword == "items":
            parts[keyword] = build_strict_schema(value)
        elif keyword == "anyOf" and isinstance(value, list):
            parts[keyword] = [*map(build_strict_schema, value)]
        elif keyword in {"properties", "$defs"} and isinstance(value, dict):
            parts[keyword] = {
                name: build_strict_schema(inner) for name, inner in value.items()
            }
    return parts


def _close_object(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise ValueError("strict mode has no optional properties")
    if set(properties) != set(map(str, required)):
        raise ValueError("strict mode has no optional properties")
    if schema.get("additionalProperties", False) is not False:
        raise ValueError("strict mode has no free properties")
    return {**schema, "additionalProperties": False}
