"""The request format of the Gemini API: contents of parts, with signatures where the model put them."""

import functools
from collections.abc import Callable, Iterable, Sequence

from pydantic import JsonValue
from pydantic_core import to_json

from ...attachments import Attachment
from ...errors import ProviderError
from ...messages import Message, Reasoning, ToolCall, ToolSpec
from ..call_names import fit_name
from ..provider_tools import ProviderTool

FORM = "gemini"
"""The `form` of opaque data that is sent back to this API."""
PLACEHOLDER = "skip_thought_signature_validator"
"""What stands for the signature of a call that Gemini did not make: https://ai.google.dev/gemini-api/docs/thought-signatures"""
SIGNATURE = "thoughtSignature"
WIRE_NAMES = {
    "web_search": "googleSearch",
    "code_interpreter": "codeExecution",
    "file_search": "fileSearch",
}
"""The names of the tools that the API runs by itself."""

Part = dict[str, JsonValue]


@functools.cache
def get_message_encoder(
    source: str | None, *, signs: bool
) -> Callable[[Message], bytes]:
    """Return the encoder of the model's own messages at an endpoint; messages cache their bytes by encoder."""

    def encode(message: Message) -> bytes:
        return to_json(
            {"role": "model", "parts": build_reply_parts(message, source, signs=signs)}
        )

    return encode


def encode_contents(
    messages: Sequence[Message], source: str | None, *, signs: bool
) -> tuple[bytes, bytes]:
    """Return the system parts and the contents as items of JSON arrays; results of one turn are one content.

    With `source=None` no opaque data is sent; with `signs` the first call of a step that has no signature gets the
    documented placeholder.
    """
    encode = get_message_encoder(source, signs=signs)
    names: dict[str, ToolCall] = {}  # the calls of the turn, by id
    system: list[bytes] = []
    contents: list[bytes] = []
    results: list[Part] = []
    attached: list[Part] = []
    for message in messages:
        if message.role == "tool":
            call = names.get(message.call_id)
            inside = _list_inside(message) if signs else ()
            results.append(_build_result(message, call, inside))
            attached += _show_attachments(message, call, inside)
            continue
        contents += _take_results(results, attached)
        names = {call.id: call for call in message.calls}
        if message.role == "system":
            system.append(to_json({"text": message.content}))
        elif message.role == "user":
            contents.append(to_json({"role": "user", "parts": _build_parts(message)}))
        elif message.content.strip() or message.calls:
            contents.append(message.encoded(encode))
    contents += _take_results(results, attached)
    return b",".join(system), b",".join(contents)


def _take_results(results: list[Part], attached: list[Part]) -> list[bytes]:
    if not results:
        return []
    content = to_json({"role": "user", "parts": [*results, *attached]})
    results.clear()
    attached.clear()
    return [content]


def _build_result(
    message: Message, call: ToolCall | None, inside: Sequence[Attachment]
) -> Part:
    """Return the part of a result, with the attachments that are sent inside of it."""
    name = fit_name(call.name) if call is not None else "unknown"
    response: Part = {"name": name, "response": {"result": message.content}}
    if call is not None and _has_id(call):
        response["id"] = call.id
    if inside:
        response["parts"] = [_build_attachment(sent) for sent in inside]
    return {"functionResponse": response}


def _list_inside(message: Message) -> tuple[Attachment, ...]:
    """Return the attachments of a result that models from Gemini 3 on take inside of it: those with their content."""
    return tuple(sent for sent in message.attachments if sent.data)


def _show_attachments(
    message: Message, call: ToolCall | None, inside: Sequence[Attachment]
) -> list[Part]:
    """Return the parts for the attachments that are not sent inside of a result; they follow the results."""
    parts: list[Part] = []
    for sent in message.attachments:
        if sent not in inside:
            name = call.name if call is not None else "a tool"
            shown = f"{sent.kind} {sent.name}".strip()
            parts.append({"text": f"The {shown} of the result of {name}:"})
            parts.append(_build_attachment(sent))
    return parts


def _has_id(call: ToolCall) -> bool:
    return call.form == FORM and bool((call.block or {}).get("id"))


def _build_parts(message: Message) -> list[Part]:
    parts = [_build_attachment(sent) for sent in message.attachments]
    if message.content or not parts:
        parts.append({"text": message.content})
    return parts


def _build_attachment(sent: Attachment) -> Part:
    if not sent.media_type:
        raise ProviderError(
            f"attachment {sent.name or sent.url!r}: the Gemini API wants its media type"
        )
    if sent.url:
        return {"fileData": {"mimeType": sent.media_type, "fileUri": sent.url}}
    return {"inlineData": {"mimeType": sent.media_type, "data": sent.data}}


def build_reply_parts(
    message: Message, source: str | None, *, signs: bool
) -> list[Part]:
    """Return the parts of a reply in their order: marks of text, opaque parts and calls, as they came."""
    text, parts = message.content, list[Part]()
    calls = list(message.calls)
    own = [thought for thought in message.reasoning if belongs_to(thought, source)]
    marks = [thought for thought in own if "text_length" in (thought.block or {})]
    for place, thought in enumerate(own):
        parts += _take_calls_at(place, calls, source)
        if thought is not (marks[-1] if marks else None):
            part, text = _read_mark(thought, text)
        else:
            part, text = {**_sign(thought), "text": text}, ""
        parts += [part] if part else []
    if text.strip():
        parts.append({"text": text})
    parts += [_build_call(call, source) for call in calls]
    if signs:
        _sign_first_call(parts)
    return parts


def belongs_to(opaque: Reasoning | ToolCall, source: str | None) -> bool:
    """Return whether opaque data came from this API at this source."""
    is_ours = opaque.form == FORM and opaque.source == source
    return is_ours and opaque.block is not None


def _read_mark(thought: Reasoning, text: str) -> tuple[Part, str]:
    """Return the part that a mark stands for, and the text behind it; an unsigned thought is not sent back."""
    block = dict(thought.block or {})
    length = block.pop("text_length", None)
    if isinstance(length, int):
        return {**block, "text": text[:length]}, text[length:]
    if block.get("thought") and SIGNATURE not in block:
        return {}, text
    return block, text


def _sign(thought: Reasoning) -> Part:
    signature = (thought.block or {}).get(SIGNATURE)
    return {SIGNATURE: signature} if signature else {}


def _take_calls_at(place: int, calls: list[ToolCall], source: str | None) -> list[Part]:
    taken: list[Part] = []
    while calls and belongs_to(calls[0], source):
        after = (calls[0].block or {}).get("after")
        if not isinstance(after, int) or after > place:
            break
        taken.append(_build_call(calls.pop(0), source))
    return taken


def _build_call(call: ToolCall, source: str | None) -> Part:
    written: Part = {"name": fit_name(call.name), "args": dict(call.arguments)}
    block = call.block or {}
    if _has_id(call):
        written["id"] = call.id
    part: Part = {"functionCall": written}
    if belongs_to(call, source) and block.get(SIGNATURE):
        part[SIGNATURE] = block[SIGNATURE]
    return part


def _sign_first_call(parts: list[Part]) -> None:
    for part in parts:
        if "functionCall" in part:
            part.setdefault(SIGNATURE, PLACEHOLDER)
            return


def encode_tool(spec: ToolSpec) -> bytes:
    """Encode the description of a tool."""
    return to_json(
        {
            "name": fit_name(spec.name),
            "description": spec.description,
            "parametersJsonSchema": spec.schema,
        }
    )


def encode_tools(specs: Sequence[ToolSpec], offered: Iterable[ProviderTool]) -> bytes:
    """Encode the descriptions of tools, and of those that the API runs by itself.

    Raises:
        ProviderError: the API has no field for something of the latter.
    """
    tools = [to_json(build_provider_tool(tool)) for tool in offered]
    if specs:
        functions = b",".join([spec.encoded(encode_tool) for spec in specs])
        tools.append(b'{"functionDeclarations":[' + functions + b"]}")
    return b"[" + b",".join(tools) + b"]"


def build_provider_tool(tool: ProviderTool) -> Part:
    """Return the description of a tool that the API runs by itself."""
    tool.refuse("the Gemini API", "allowed_domains", "blocked_domains", "max_uses")
    described: Part = {**tool.extra}
    if tool.kind == "file_search":
        described["fileSearchStoreNames"] = [*tool.stores]
    return {WIRE_NAMES[tool.kind]: described}
