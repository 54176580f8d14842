"""Redaction of what enters a run as messages: conversations, tool calls and a model's replies."""

import operator
from collections.abc import Callable, Iterable
from typing import cast

from ..._internal import dataclasses
from ...messages import (
    Completion,
    Conversation,
    Json,
    JsonObject,
    Message,
    Reasoning,
    ToolCall,
)
from ...providers.base import Request
from .heuristics import REDACTED
from .redactor import Redactor

_get_block: Callable[[object], JsonObject | None] = operator.attrgetter("block")
FOUND_CLEAN = "_found_clean"
RANDOM_FIELDS = frozenset(
    {"signature", "thoughtSignature", "encrypted_content", "redactedContent", "data"}
)
"""Fields of opaque data that hold signatures and encrypted content, at all providers."""


@dataclasses.dataclass(frozen=True)
class RedactedCompletion:
    """A reply without secrets.

    Args:
        completion: the redacted reply.
        originals: the original arguments of the calls that held a secret, by the number of the
            call.
    """

    completion: Completion
    originals: dict[int, JsonObject]


def redact_messages(
    redactor: Redactor, messages: Iterable[Message]
) -> tuple[Message, ...]:
    """Return the messages without secrets; attachments are not searched.

    A message that this redactor has found to be clean is not searched again, as those of the earlier turns of a
    conversation.
    """
    return tuple(_clean(redactor, message) for message in messages)


def redact_conversation(redactor: Redactor, conversation: Conversation) -> Conversation:
    """Return the conversation without secrets, or the same object if it has none."""
    clean = redact_messages(redactor, conversation.messages)
    if clean == conversation.messages:
        return conversation
    label, untrusted = conversation.label, conversation.untrusted
    return Conversation(clean).with_provenance(label, untrusted=untrusted)


def redact_request(redactor: Redactor, request: Request) -> Request:
    """Return a request without secrets in its messages and instructions; the same one if they have none."""
    conversation, system = request.conversation, request.system
    clean = redact_messages(redactor, conversation.messages)
    if all(map(operator.is_, clean, conversation.messages)):
        return request
    label, untrusted = conversation.label, conversation.untrusted
    redacted = Conversation(clean).with_provenance(label, untrusted=untrusted)
    system = redactor.redact_text(system)
    if system and not clean[0].content.startswith(system):
        system = clean[0].content
    return dataclasses.replace(request, conversation=redacted, system=system)


def _clean(redactor: Redactor, message: Message) -> Message:
    if message.__dict__.get(FOUND_CLEAN) is redactor.token:
        return message
    redacted = _redact_message(redactor, message)
    if redacted is message:
        message.__dict__[FOUND_CLEAN] = redactor.token
    return redacted


def _redact_message(redactor: Redactor, message: Message) -> Message:
    calls, _ = redact_calls(redactor, message.calls)
    content = redactor.redact_text(message.content)
    call_id = redactor.redact_text(message.call_id)
    reasoning = _redact_reasoning(redactor, message.reasoning)
    texts_are_clean = (content, call_id) == (message.content, message.call_id)
    is_reply_clean = reasoning is message.reasoning and calls is message.calls
    if texts_are_clean and is_reply_clean:
        return message
    return dataclasses.replace(
        message, content=content, reasoning=reasoning, calls=calls, call_id=call_id
    )


def redact_calls(
    redactor: Redactor, calls: tuple[ToolCall, ...]
) -> tuple[tuple[ToolCall, ...], dict[int, JsonObject]]:
    """Return the calls without secrets, and the arguments of those that had some, by number."""
    originals: dict[int, JsonObject] = {}
    clean = tuple(_redact_call(redactor, call) for call in calls)
    for number, (call, redacted) in enumerate(zip(calls, clean, strict=True)):
        if _differ(call, redacted):
            originals[number] = call.arguments
    is_same = all(map(operator.is_, calls, clean))
    return (calls if is_same else clean), originals


def _differ(call: ToolCall, redacted: ToolCall) -> bool:
    """Return whether more than opaque data was left out of a call."""
    if redacted.arguments is not call.arguments:
        return True
    return (redacted.name, redacted.id) != (call.name, call.id)


def _redact_call(redactor: Redactor, call: ToolCall) -> ToolCall:
    arguments = cast("Json", call.arguments)  # any mapping is an object
    fields: list[Json] = [call.name, call.id, arguments]
    redacted = redactor.redact_value(fields)
    if redacted is fields:
        return _redact_opaque(redactor, call)
    if not isinstance(redacted, list):  # nested too deeply to be searched
        return ToolCall(REDACTED, {"arguments": REDACTED}, REDACTED)
    # Without its opaque data, which would hold the secret as well.
    name, call_id, clean = redacted
    return ToolCall(str(name), cast("JsonObject", clean), str(call_id))


def _redact_opaque(redactor: Redactor, call: ToolCall) -> ToolCall:
    """Return a call without its opaque data if that holds a registered value."""
    if is_opaque_clean(redactor, call.block):
        return call
    return ToolCall(call.name, call.arguments, call.id)


def is_opaque_clean(redactor: Redactor, block: JsonObject | None) -> bool:
    """Return whether a provider's opaque data holds no secret.

    Signatures and encrypted content are searched for registered values alone: they are random texts, some of which
    match a pattern by chance.
    """
    if block is None:
        return True
    if redactor.registered_values.redact_value(block) is not block:
        return False
    readable = _select_readable(cast("Json", block))
    return redactor.redact_value(readable) is readable


def _select_readable(value: Json) -> Json:
    """Return a value without the fields that are random by nature."""
    if isinstance(value, list):
        return [_select_readable(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _select_readable(inner)
        for name, inner in value.items()
        if name not in RANDOM_FIELDS
    }


def redact_completion(redactor: Redactor, completion: Completion) -> RedactedCompletion:
    """Return a model's reply without secrets.

    A secret that an argument's name gives away is removed from the text of the reply as well.
    """
    if _is_clean(redactor, completion):
        return RedactedCompletion(completion, {})
    calls, originals = redact_calls(redactor, completion.calls)
    redactor = redactor.with_secrets_found_in(*originals.values())
    redact = redactor.redact_text
    clean = dataclasses.replace(
        completion,
        text=redact(completion.text),
        thought=redact(completion.thought),
        answer=_redact_optional(redactor, completion.answer),
        problem=_redact_optional(redactor, completion.problem),
        calls=calls,
        reasoning=_redact_reasoning(redactor, completion.reasoning),
        model=redact(completion.model),
        finish_reason=redact(completion.finish_reason),
        flags=tuple(map(redact, completion.flags)),
    )
    return RedactedCompletion(completion if clean == completion else clean, originals)


def _redact_optional(redactor: Redactor, text: str | None) -> str | None:
    return None if text is None else redactor.redact_text(text)


def _collect_content(completion: Completion) -> Json:
    """Return all that a reply holds as one value, searched in one go since most replies hold no
    secret.
    """
    answer = None if completion.answer == completion.text else completion.answer
    content: list[Json] = [completion.text, completion.thought, answer]
    content += completion.problem, completion.model, completion.finish_reason
    content += completion.flags
    for call in completion.calls:
        content += call.name, call.id, cast("Json", call.arguments)
    for thought in completion.reasoning:
        content.append(thought.text)
    return content


def _is_clean(redactor: Redactor, completion: Completion) -> bool:
    content = _collect_content(completion)
    if redactor.redact_value(content) is not content:
        return False
    blocks = [
        *filter(None, map(_get_block, (*completion.calls, *completion.reasoning)))
    ]
    return not blocks or all(is_opaque_clean(redactor, block) for block in blocks)


def _redact_reasoning(
    redactor: Redactor, thoughts: tuple[Reasoning, ...]
) -> tuple[Reasoning, ...]:
    """Return thinking without secrets; a signed block cannot be sent back changed, so it is
    dropped.
    """
    clean = tuple(_redact_thought(redactor, thought) for thought in thoughts)
    return thoughts if clean == thoughts else clean


def _redact_thought(redactor: Redactor, thought: Reasoning) -> Reasoning:
    text = redactor.redact_text(thought.text)
    if text == thought.text and is_opaque_clean(redactor, thought.block):
        return thought
    return Reasoning(text)
