"""Secrets taken out of what enters a run: messages, replies with their calls, errors."""

import dataclasses
import traceback
from collections.abc import Iterable
from typing import TypeVar, cast

from .errors import LoopwrightError, text_of
from .messages import Completion, Json, JsonObject, Message, Reasoning, ToolCall
from .redaction import Redactor

E = TypeVar("E", bound=LoopwrightError)


@dataclasses.dataclass(frozen=True)
class Redacted:
    """A reply without its secrets; `originals` are the arguments of the calls that had some, by the call's number."""

    completion: Completion
    originals: dict[int, JsonObject]


def redact_messages(redactor: Redactor, messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without secrets; attachments are not looked into."""
    return tuple(_message(redactor, message) for message in messages)


def _message(redactor: Redactor, message: Message) -> Message:
    content, reasoning = redactor.text(message.content), _reasoning(redactor, message.reasoning)
    calls, originals = redact_calls(redactor, message.calls)
    if content == message.content and reasoning is message.reasoning and not originals:
        return message
    return dataclasses.replace(message, content=content, reasoning=reasoning, calls=calls)


def redact_calls(redactor: Redactor, calls: tuple[ToolCall, ...]) -> tuple[tuple[ToolCall, ...], dict[int, JsonObject]]:
    """The calls without secrets, and the arguments of those that had some, by number."""
    originals: dict[int, JsonObject] = {}
    clean = list(calls)
    for number, call in enumerate(calls):
        given = cast("Json", call.arguments)  # any mapping is an object
        arguments = redactor.value(given)
        if arguments is not given and isinstance(arguments, dict):
            originals[number], clean[number] = call.arguments, dataclasses.replace(call, arguments=arguments)
    return (tuple(clean) if originals else calls), originals


def redact_reply(redactor: Redactor, completion: Completion) -> Redacted:
    """A model's reply without secrets."""
    calls, originals = redact_calls(redactor, completion.calls)
    text, thought = redactor.text(completion.text), redactor.text(completion.thought)
    answer = completion.answer if completion.answer is None else redactor.text(completion.answer)
    problem = completion.problem if completion.problem is None else redactor.text(completion.problem)
    reasoning = _reasoning(redactor, completion.reasoning)
    before = completion.text, completion.thought, completion.answer, completion.problem
    if not originals and (text, thought, answer, problem) == before and reasoning is completion.reasoning:
        return Redacted(completion, {})
    clean = dataclasses.replace(
        completion, text=text, thought=thought, answer=answer, problem=problem, calls=calls, reasoning=reasoning
    )
    return Redacted(clean, originals)


def _reasoning(redactor: Redactor, thoughts: tuple[Reasoning, ...]) -> tuple[Reasoning, ...]:
    """Thinking without secrets; what was signed cannot be sent back when it is changed, so it is not kept then."""
    clean: list[Reasoning] = []
    for thought in thoughts:
        block = cast("Json", thought.block)
        if redactor.text(thought.text) == thought.text and redactor.value(block) is block:
            clean.append(thought)
        else:
            clean.append(Reasoning(redactor.text(thought.text)))
    return thoughts if clean == list(thoughts) else tuple(clean)


def redact_error(redactor: Redactor, error: E) -> E:
    """The error itself if neither it nor what caused it tells a secret; else one like it, without its cause."""
    told = "".join(traceback.format_exception(error))
    if redactor.text(told) == told:
        return error
    clean = error.__class__.__new__(error.__class__)
    clean.args = tuple(redactor.text(a) if isinstance(a, str) else a for a in error.args)
    for name, value in vars(error).items():
        if not name.startswith("__"):
            setattr(clean, name, redactor.text(value) if isinstance(value, str) else value)
    clean.__suppress_context__ = True
    cause = error.__cause__ or error.__context__
    if cause is not None:
        clean.add_note(f"caused by {type(cause).__name__}: {redactor.text(text_of(cause))}")
    return clean
