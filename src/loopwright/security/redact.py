"""Secrets taken out of what enters a run: messages, replies with their calls, errors."""

import dataclasses
import traceback
from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

from ..errors import LoopwrightError, text_of
from ..messages import (
    Completion,
    Conversation,
    Json,
    JsonObject,
    Message,
    Reasoning,
    ToolCall,
)
from ..resilience.timeouts import capture
from .redaction import MARK, Redactor

MARGIN = 8192  # characters behind a cut that are looked at for the rest of a secret; none is longer
MAX_TRACEBACK = 20_000  # characters of one that are logged
E = TypeVar("E", bound=LoopwrightError)


@dataclasses.dataclass(frozen=True)
class Redacted:
    """A reply without its secrets; `originals` are the arguments of the calls that had some, by the call's number."""

    completion: Completion
    originals: dict[int, JsonObject]


def redact_messages(
    redactor: Redactor, messages: Iterable[Message]
) -> tuple[Message, ...]:
    """The messages without secrets; attachments are not looked into."""
    return tuple(_message(redactor, message) for message in messages)


def without_secrets(redactor: Redactor, conversation: Conversation) -> Conversation:
    """A conversation without secrets; the same object if there are none."""
    clean = redact_messages(redactor, conversation.messages)
    return conversation if clean == conversation.messages else Conversation(clean)


def _message(redactor: Redactor, message: Message) -> Message:
    calls, originals = redact_calls(redactor, message.calls)
    content, reasoning = (
        redactor.text(message.content),
        _reasoning(redactor, message.reasoning),
    )
    call_id = redactor.text(message.call_id)
    if (
        (content, call_id) == (message.content, message.call_id)
        and reasoning is message.reasoning
        and not originals
    ):
        return message
    return dataclasses.replace(
        message, content=content, reasoning=reasoning, calls=calls, call_id=call_id
    )


def redact_calls(
    redactor: Redactor, calls: tuple[ToolCall, ...]
) -> tuple[tuple[ToolCall, ...], dict[int, JsonObject]]:
    """The calls without secrets, and the arguments of those that had some, by number."""
    originals: dict[int, JsonObject] = {}
    clean = list(calls)
    for number, call in enumerate(calls):
        given: list[Json] = [
            call.name,
            call.id,
            cast("Json", call.arguments),
        ]  # any mapping is an object
        told = redactor.value(given)
        if told is not given:
            name, call_id, arguments = (
                told if isinstance(told, list) else (MARK, MARK, {"arguments": MARK})
            )
            clean[number] = ToolCall(
                str(name), cast("JsonObject", arguments), str(call_id)
            )
            originals[number] = call.arguments
    return (tuple(clean) if originals else calls), originals


def redact_reply(redactor: Redactor, completion: Completion) -> Redacted:
    """A model's reply without secrets; what its calls say by a name, its words may say without."""
    said = _said(completion)
    if redactor.value(said) is said:
        return Redacted(completion, {})
    calls, originals = redact_calls(redactor, completion.calls)
    redactor = redactor.learning(*originals.values())
    clean = dataclasses.replace(
        completion,
        text=redactor.text(completion.text),
        thought=redactor.text(completion.thought),
        answer=completion.answer
        if completion.answer is None
        else redactor.text(completion.answer),
        problem=completion.problem
        if completion.problem is None
        else redactor.text(completion.problem),
        calls=calls,
        reasoning=_reasoning(redactor, completion.reasoning),
        model=redactor.text(completion.model),
        finish_reason=redactor.text(completion.finish_reason),
        flags=tuple(map(redactor.text, completion.flags)),
    )
    return Redacted(completion if clean == completion else clean, originals)


def _said(completion: Completion) -> Json:
    """All that a reply says, to look at it at once: most replies hold no secret."""
    answer = None if completion.answer == completion.text else completion.answer
    said: list[Json] = [completion.text, completion.thought, answer, completion.problem]
    said += [completion.model, completion.finish_reason, *completion.flags]
    for call in completion.calls:
        said += call.name, call.id, cast("Json", call.arguments)
    for thought in completion.reasoning:
        said += thought.text, cast("Json", thought.block)
    return said


def _reasoning(
    redactor: Redactor, thoughts: tuple[Reasoning, ...]
) -> tuple[Reasoning, ...]:
    """Thinking without secrets; what was signed cannot be sent back when it is changed, so it is not kept then."""
    clean: list[Reasoning] = []
    for thought in thoughts:
        block = cast("Json", thought.block)
        if (
            redactor.text(thought.text) == thought.text
            and redactor.value(block) is block
        ):
            clean.append(thought)
        else:
            clean.append(Reasoning(redactor.text(thought.text)))
    return thoughts if clean == list(thoughts) else tuple(clean)


def redact_error(redactor: Redactor, error: E) -> E:
    """The error itself if neither it nor what led to it tells a secret; else one like it, without what led to it.

    What was raised `from None` has no cause to be shown, and yet it has a context: one with a secret is cut off.
    """
    if not _tells(redactor, error):
        if any(_tells(redactor, other) for other in _led_to(error)):
            error.__context__ = None
        return error
    clean = error.__class__.__new__(error.__class__)
    clean.args = tuple(_without(redactor, a) for a in error.args)
    for name, value in vars(error).items():
        if not name.startswith("__"):
            setattr(clean, name, _without(redactor, value))
    cause = error.__cause__ or (
        None if error.__suppress_context__ else error.__context__
    )
    if cause is not None:
        clean.add_note(
            f"caused by {type(cause).__name__}: {redactor.text(text_of(cause))}"
        )
    return clean


def traceback_of(redactor: Redactor, error: BaseException) -> str:
    """The end of a traceback, for the log; redacted before it is cut, since half a secret is not found."""
    told = capture(lambda: "".join(traceback.format_exception(error)))
    if told.error is not None:
        return f"{type(error).__name__} has none that can be written"
    most = MAX_TRACEBACK + MARGIN
    clean = redactor.text(told.value[-most:])
    return clean[
        max(len(clean) - MAX_TRACEBACK, MARGIN if len(told.value) > most else 0) :
    ]


def _tells(redactor: Redactor, error: BaseException) -> bool:
    """Whether what is shown of an error, or what it carries, holds a secret."""
    told = (
        f"{''.join(traceback.format_exception(error))}\n{error.args!r}\n{vars(error)!r}"
    )
    return redactor.text(told) != told


def _led_to(error: BaseException) -> Iterator[BaseException]:
    """What was being handled when an error was raised, and so on, whether it is shown or not."""
    seen = {id(error)}
    waiting = [error.__context__, error.__cause__]
    while waiting:
        other = waiting.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            waiting += other.__context__, other.__cause__
            yield other


def _without(redactor: Redactor, value: object) -> object:
    """What an error carries, without secrets: a text as it is, anything else as the text that is shown of it."""
    if isinstance(value, str):
        return redactor.text(value)
    told = repr(value)
    clean = redactor.text(told)
    return value if clean == told else clean
