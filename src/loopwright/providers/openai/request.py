"""The request side of Chat Completions: messages with their attachments and reasoning, tools and schemas to bytes."""

import contextlib
import functools
import mimetypes
from collections.abc import Callable

from pydantic import JsonValue
from pydantic_core import to_json

from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import Conversation, JsonObject, Message, ToolSpec
from ..base import OutputSchema
from .quirks import STRANGER, Quirks

# What a schema may say so that its strict form means the same.
STRICT_WORDS = frozenset(
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
    }
    | {"title", "description"}
)
TEXTS = frozenset(
    {"application/json", "application/xml", "application/yaml"}
)  # beside text/*


def encode_message(message: Message, quirks: Quirks = STRANGER) -> bytes:
    """A message as the wire has it; the content of an assistant that only calls is `null`.

    Raises `ProviderError` for an attachment that the endpoint does not take.
    """
    if message.attachments:
        return _with_attachments(message, quirks)
    if message.role == "tool":
        return to_json(
            {
                "role": "tool",
                "tool_call_id": message.call_id,
                "content": message.content,
            }
        )
    wire: dict[str, object] = {"role": message.role, "content": message.content}
    if message.calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": to_json(call.arguments).decode(),
                },
            }
            for call in message.calls
        ]
    if message.reasoning and quirks.send_reasoning is not None:
        wire.update(_reasoning(message, quirks.send_reasoning))
    return to_json(wire)


@functools.cache
def message_encoder(quirks: Quirks) -> Callable[[Message], bytes]:
    """The encoder for an endpoint: always the same one, since messages keep their bytes by encoder."""
    return functools.partial(encode_message, quirks=quirks)


def _reasoning(message: Message, form: str) -> dict[str, object]:
    """The reasoning of one form, as the field that it came in; other forms belong to other endpoints."""
    thoughts = [thought for thought in message.reasoning if thought.form == form]
    if not thoughts:
        return {}
    if form == "reasoning_details":
        return {
            form: [thought.block for thought in thoughts if thought.block is not None]
        }
    return {form: "".join([thought.text for thought in thoughts])}


def _with_attachments(message: Message, quirks: Quirks) -> bytes:
    if message.role != "user":
        raise ProviderError(
            f"Chat Completions takes attachments of the user only, not of the {message.role}"
        )
    parts = [_part(attachment, quirks) for attachment in message.attachments]
    if message.content:
        parts.append({"type": "text", "text": message.content})
    return to_json({"role": "user", "content": parts})


def _part(attachment: Attachment, quirks: Quirks) -> dict[str, object]:
    named = attachment.name or attachment.url or f"of type {attachment.media_type}"
    if attachment.kind == "document" and attachment.url:
        raise ProviderError(
            f"the document {named}: Chat Completions takes none by URL: send its content"
        )
    if attachment.media_type.startswith("text/") or (
        attachment.kind == "document" and attachment.media_type in TEXTS
    ):
        return {
            "type": "text",
            "text": f"{attachment.name or 'document'}:\n{_text(attachment, named)}",
        }
    if attachment.kind not in quirks.attachments:
        takes = " and ".join(sorted(quirks.attachments)) or "none"
        raise ProviderError(
            f"the {attachment.kind} {named}: this endpoint takes no {attachment.kind}s by its quirks (attachments it "
            f"takes: {takes}): send it as text, or pass quirks=Quirks(attachments=...)"
        )
    if attachment.kind == "image":
        if attachment.url and not quirks.fetches_images:
            raise ProviderError(
                f"the image {named}: this endpoint fetches none by URL: send its content"
            )
        return {"type": "image_url", "image_url": {"url": attachment.data_url}}
    name = (
        attachment.name
        or f"document{mimetypes.guess_extension(attachment.media_type) or ''}"
    )
    return {
        "type": "file",
        "file": {"filename": name, "file_data": attachment.data_url},
    }


def _text(attachment: Attachment, named: str) -> str:
    try:
        return attachment.content.decode("utf-8-sig")
    except ValueError:
        raise ProviderError(
            f"the document {named} is called {attachment.media_type}, but is no UTF-8 text"
        ) from None


def with_one_system_message(conversation: Conversation) -> Conversation:
    """The conversation with all its system messages joined at the beginning."""
    messages = conversation.messages
    if not any(message.role == "system" for message in messages[1:]):
        return conversation
    system = "\n\n".join(
        [message.content for message in messages if message.role == "system"]
    )
    return Conversation(
        [
            Message("system", system),
            *(message for message in messages if message.role != "system"),
        ]
    )


def encode_tool(spec: ToolSpec) -> bytes:
    """A tool as the wire has it."""
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
    }
    return to_json({"type": "function", "function": function})


def encode_schema(output: OutputSchema, *, strict: bool = True) -> bytes:
    """A `response_format` that holds the reply to a schema, in strict mode if the schema can be said in it.

    Where the endpoint knows no `strict` mode, nothing is said about it.
    """
    name = (
        "".join(
            [
                c if c.isascii() and (c.isalnum() or c in "_-") else "_"
                for c in output.name
            ]
        )[:64]
        or "reply"
    )
    wire: dict[str, object] = {"name": name, "schema": output.schema}
    if strict:
        wire = {"name": name, "strict": False, "schema": output.schema}
        if output.schema.get("type") == "object":
            with contextlib.suppress(
                ValueError
            ):  # then the model is told it, but not held to it word by word
                wire.update(schema=strict_form(output.schema), strict=True)
    return to_json({"type": "json_schema", "json_schema": wire})


def strict_form(schema: JsonValue | JsonObject) -> dict[str, JsonValue]:
    """The schema with every object closed, as strict mode demands; ValueError where that would change its meaning."""
    if (
        not isinstance(schema, dict)
        or schema.keys() - STRICT_WORDS
        or not schema.keys() & {"type", "$ref", "anyOf"}
    ):
        raise ValueError("something that strict mode cannot say")
    if "$ref" in schema and len(schema) > 1:
        raise ValueError("strict mode allows nothing beside a reference")
    strict = dict(schema)
    for word in ("properties", "$defs"):
        group = schema.get(word)
        if isinstance(group, dict):
            strict[word] = {name: strict_form(inner) for name, inner in group.items()}
    if "items" in schema:
        strict["items"] = strict_form(schema["items"])
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        strict["anyOf"] = [strict_form(inner) for inner in choices]
    return _closed(strict) if schema.get("type") == "object" else strict


def _closed(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    properties, required = schema.get("properties"), schema.get("required")
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or set(properties) != set(map(str, required))
    ):
        raise ValueError("strict mode has no optional properties")
    if schema.get("additionalProperties", False) is not False:
        raise ValueError("strict mode has no free properties")
    return {**schema, "additionalProperties": False}
