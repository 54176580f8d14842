"""The request format of the Converse API: alternating messages of content blocks, with reasoning where the model put it."""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence

from pydantic import JsonValue
from pydantic_core import to_json

from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import Message, ToolSpec
from ..anthropic.request import build_closed_schema
from ..base import OutputSchema
from ..call_names import fit_name, fit_plain_id, make_ids_unique
from ..reply_schemas import merge_branches

FORM = "bedrock"
"""The `form` of opaque data that is sent back to this API."""
IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}

Block = dict[str, JsonValue]
BEGIN = b'{"text":"Begin."}'
CONTINUE = b'{"text":"Go on."}'
MAX_DOCUMENT_NAME = 60  # characters


@functools.cache
def get_message_encoder(source: str | None) -> Callable[[Message], bytes]:
    """Return the encoder of the blocks of a message at an endpoint; messages cache their bytes by encoder."""

    def encode(message: Message) -> bytes:
        blocks = _list_blocks(message, source)
        return b",".join([to_json(block) for block in blocks])

    return encode


def encode_messages(
    messages: Sequence[Message], source: str | None
) -> tuple[bytes, bytes]:
    """Return the system blocks and the messages as items of JSON arrays; turns of one side are one message.

    A conversation that does not begin, or end, with the user gets a turn of the user there, since most models refuse
    it otherwise. Reasoning that another source signed is left out, and all of it with `None`.
    """
    encode = get_message_encoder(source)
    system: list[bytes] = []
    turns: list[tuple[str, list[bytes]]] = []
    for message in make_ids_unique(messages):
        if message.role == "system":
            if message.content.strip():
                system.append(to_json({"text": message.content}))
            continue
        encoded = message.encoded(encode)
        if not encoded:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(encoded)
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [BEGIN]))
    if turns[-1][0] != "user":
        turns.append(("user", [CONTINUE]))
    written = [
        b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(blocks))
        for role, blocks in turns
    ]
    return b",".join(system), b",".join(written)


def _list_blocks(message: Message, source: str | None) -> list[Block]:
    if message.role == "tool":
        content: list[JsonValue] = [{"text": message.content or " "}]
        content += [_build_attachment(sent) for sent in message.attachments]
        return [
            {
                "toolResult": {
                    "toolUseId": fit_plain_id(message.call_id),
                    "content": content,
                }
            }
        ]
    if message.role == "assistant":
        return _list_reply_blocks(message, source)
    blocks = [_build_attachment(sent) for sent in message.attachments]
    # The API refuses a blank text.
    return [*blocks, {"text": message.content}] if message.content.strip() else blocks


def _list_reasoning(message: Message, source: str | None) -> list[Block]:
    return [
        dict(thought.block)
        for thought in message.reasoning
        if thought.form == FORM and thought.source == source and thought.block
    ]


def can_think(messages: Sequence[Message], source: str | None) -> bool:
    """Return whether thinking can be switched on, which Claude refuses within a turn that began without it.

    Such turns come from engines that propose calls themselves, and from other models.
    """
    first: Message | None = None
    for message in reversed(messages):
        if message.role == "user":
            break
        if message.role == "assistant":
            if first is None and not message.calls:
                return True  # the last turn is complete
            first = message
    return first is None or bool(_list_reasoning(first, source))


def _list_reply_blocks(message: Message, source: str | None) -> list[Block]:
    """Return the blocks of a reply: its own reasoning, the text, the calls."""
    blocks = _list_reasoning(message, source)
    if message.content.strip():
        blocks.append({"text": message.content})
    for call in message.calls:
        arguments = dict(call.arguments)
        use: Block = {"toolUseId": fit_plain_id(call.id), "name": fit_name(call.name)}
        use["input"] = arguments
        blocks.append({"toolUse": use})
    return blocks


def _build_attachment(sent: Attachment) -> Block:
    formats = IMAGE_FORMATS if sent.kind == "image" else DOCUMENT_FORMATS
    known = formats.get(sent.media_type)
    label = sent.name or sent.url or f"of type {sent.media_type}"
    if sent.url:
        raise ProviderError(
            f"attachment {label}: Bedrock does not fetch attachments by URL; send the content"
        )
    if known is None:
        raise ProviderError(
            f"attachment {label}: Bedrock takes {', '.join(formats)}; convert it"
        )
    block: Block = {"format": known, "source": {"bytes": sent.data}}
    if sent.kind == "document":
        block["name"] = _build_document_name(sent)
    return {sent.kind: block}


def _build_document_name(sent: Attachment) -> str:
    """Return a name that the API takes: letters, digits and hyphens of ASCII, another one for each document."""
    signs = (c if c.isascii() and c.isalnum() else "-" for c in sent.name)
    words = "-".join(filter(None, "".join(signs).split("-")))
    digest = hashlib.sha256(sent.data.encode()).hexdigest()[:8]
    return f"{words[:MAX_DOCUMENT_NAME] or 'document'}-{digest}"


def encode_tool(spec: ToolSpec) -> bytes:
    """Encode the description of a tool."""
    described: Block = {
        "name": fit_name(spec.name),
        "description": spec.description or spec.name,
        "inputSchema": {"json": {"type": "object", **spec.schema}},
    }
    return to_json({"toolSpec": described})


def encode_tools(specs: Iterable[ToolSpec]) -> bytes:
    """Encode the descriptions of tools."""
    return b'{"tools":[%s]}' % b",".join([spec.encoded(encode_tool) for spec in specs])


def build_output_config(output: OutputSchema) -> Block:
    """Return the `outputConfig` for a schema, which the API takes as text, in the keywords that it supports.

    Source: https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
    """
    supported = merge_branches(output.schema)
    with contextlib.suppress(ValueError):  # the API says what else it cannot express
        supported = build_closed_schema(supported)
    name = "".join(c if c.isalnum() else "_" for c in output.name)[:64] or "reply"
    schema: Block = {"name": name, "schema": to_json(supported).decode()}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
