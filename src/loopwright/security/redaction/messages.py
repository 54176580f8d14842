"""Redaction of what enters a run as messages: conversations, tool calls and a model's replies."""

import dataclasses
from collections.abc import Iterable
from typing import cast

from ...messages import (
    Completion,
    Conversation,
    Json,
    JsonObject,
    Message,
    Reasoning,
    ToolCall,
)
from .heuristics import REDACTED
from .redactor import Redactor


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
    """Return the messages without secrets; attachments are not searched."""
    return tuple(_redact_message(redactor, message) for message in messages)


def redact_conversation(redactor: Redactor, conversation: Conversation) -> Conversation:
    """Return the conversation without secrets, or the same object if it has none."""
    clean = redact_messages(redactor, conversation.messages)
    return conversation if clean == conversation.messages else Conversation(clean)


def _redact_message(redactor: Redactor, message: Message) -> Message:
    calls, originals = redact_calls(redactor, message.calls)
    content = redactor.redact_text(message.content)
    call_id = redactor.redact_text(message.call_id)
    reasoning = _redact_reasoning(redactor, message.reasoning)
    texts_are_clean = (content, call_id) == (message.content, message.call_id)
    if texts_are_clean and reasoning is message.reasoning and not originals:
        return message
    return dataclasses.replace(
        message, content=content, reasoning=reasoning, calls=calls, call_id=call_id
    )


def redact_calls(
    redactor: Redactor, calls: tuple[ToolCall, ...]
) -> tuple[tuple[ToolCall, ...], dict[int, JsonObject]]:
    """Return the calls without secrets, and the arguments of those that had some, by number."""
    originals: dict[int, JsonObject] = {}
    clean = list(calls)
    for number, call in enumerate(calls):
        redacted = _redact_call(redactor, call)
        if redacted is not call:
            clean[number] = redacted
            originals[number] = call.arguments
    return (tuple(clean) if originals else calls), originals


def _redact_call(redactor: Redactor, call: ToolCall) -> ToolCall:
    arguments = cast("Json", call.arguments)  # any mapping is an object
    fields: list[Json] = [call.name, call.id, arguments]
    redacted = redactor.redact_value(fields)
    if redacted is fields:
        return call
    if not isinstance(redacted, list):  # nested too deeply to be searched
        return ToolCall(REDACTED, {"arguments": REDACTED}, REDACTED)
    name, call_id, clean = redacted
    return ToolCall(str(name), cast("JsonObject", clean), str(call_id))


def redact_completion(redactor: Redactor, completion: Completion) -> RedactedCompletion:
    """Return a model's reply without secrets.

    A secret that an argument's name gives away is removed from the text of the reply as well.
    """
    content = _collect_content(completion)
    if redactor.redact_value(content) is content:
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
        content += thought.text, cast("Json", thought.block)
    return content


def _redact_reasoning(
    redactor: Redactor, thoughts: tuple[Reasoning, ...]
) -> tuple[Reasoning, ...]:
    """Return thinking without secrets; a signed block cannot be sent back changed, so it is
    dropped.
    """
    clean = tuple(_redact_thought(redactor, thought) for thought in thoughts)
    return thoughts if clean == thoughts else clean


def _redact_thought(redactor: Redactor, thought: Reasoning) -> Reasoning:
    block = cast("Json", thought.block)
    text = redactor.redact_text(thought.text)
    if text == thought.text and redactor.redact_value(block) is block:
        return thought
    return Reasoning(text)
