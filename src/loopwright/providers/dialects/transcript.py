"""Tools, calls and results told as plain text: instructions, and turns of user and assistant."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ...messages import Conversation, JsonObject, Message, ToolCall
from ...prompts import PromptSet
from ..base import Request

LINE_ENDS = {
    code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)
}  # those that JSON leaves as they are


class Voice(Protocol):
    """How a dialect says what a plain message cannot."""

    def say_call(self, thought: str, call: ToolCall) -> str:
        """A turn of the assistant that calls a tool."""
        ...

    def say_answer(self, answer: str) -> str:
        """A turn of the assistant that ends with an answer."""
        ...

    def say_observation(self, result: str) -> str:
        """A tool's result, which is a stranger's text, in a form that is never read as a call or an answer."""
        ...


def instructions(
    prompts: PromptSet,
    request: Request,
    tell_schema: Callable[[JsonObject], str] | None = None,
) -> str:
    """What the model is told of the tools, and of the schema that its answer must fit if there is one.

    `prompts` holds `instructions` with {tools}, `tool` with {name}, {description} and {schema}, and `answer_schema`
    with {schema}. `tell_schema` writes the schema of a tool's arguments; without it the schema is told as JSON.
    """
    tell_schema = tell_schema or compact_json
    tools = [
        prompts.fill(
            "tool",
            name=tool.name,
            description=tool.description,
            schema=tell_schema(tool.schema),
        )
        for tool in request.tools
    ]
    told = prompts.fill("instructions", tools="\n".join(tools))
    if request.schema is None:
        return told
    return f"{told}\n\n{prompts.fill('answer_schema', schema=compact_json(request.schema.schema))}"


def compact_json(value: object) -> str:
    """JSON as a model reads it: on one line, letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False).translate(LINE_ENDS)


def tell(conversation: Conversation, voice: Voice) -> Conversation:
    """The conversation in plain turns: one call, then its result from the user; users' turns in a row become one."""
    return tell_steps(conversation, lambda step: voice)


def tell_steps(
    conversation: Conversation,
    voice: Callable[[int], Voice],
    remark: Callable[[int, str], str] | None = None,
) -> Conversation:
    """`tell` with a voice for each step, a call with its result, counted from 1 since somebody last asked something.

    `remark` says how the assistant's words are told that are neither a call nor an answer; as they are without it.
    """
    return Conversation(merged(_turns(conversation.messages, voice, remark)))


def merged(turns: Iterable[Message]) -> list[Message]:
    """The turns with users' in a row made one, since many chat templates want user and assistant by turns."""
    told: list[Message] = []
    for message in turns:
        last = told[-1] if told else None
        if last is not None and last.role == message.role == "user":
            content, sent = (
                f"{last.content}\n\n{message.content}",
                last.attachments + message.attachments,
            )
            told[-1] = dataclasses.replace(
                last, content=content, origin=message.origin, attachments=sent
            )
        else:
            told.append(message)
    return told


def next_step(conversation: Conversation) -> int:
    """The number of the step that the model shall take next."""
    number = 1
    for message in conversation.messages:
        number = 1 if _asks(message) else number + len(message.calls)
    return number


def _turns(
    messages: Sequence[Message],
    voice: Callable[[int], Voice],
    remark: Callable[[int, str], str] | None,
) -> Iterator[Message]:
    number = 1
    for position, message in enumerate(messages):
        after = position + 1
        number = 1 if _asks(message) else number
        if message.calls:
            yield from _exchanges(
                message, messages[after : after + len(message.calls)], voice, number
            )
            number += len(message.calls)
        elif message.role == "assistant" and _was_answer(messages[after : after + 1]):
            yield dataclasses.replace(
                message, content=voice(number).say_answer(message.content)
            )
        elif message.role == "assistant" and remark is not None:
            yield dataclasses.replace(message, content=remark(number, message.content))
        elif message.role != "tool":
            yield message


def _asks(message: Message) -> bool:
    """Whether somebody asks something new; what the runtime adds belongs to the question before."""
    return message.role == "user" and message.origin != "runtime"


def _was_answer(after: Sequence[Message]) -> bool:
    """Whether the assistant's words before `after` were an answer: a user goes on, not the runtime with a complaint."""
    return bool(after) and _asks(after[0])


def _exchanges(
    asked: Message,
    results: Sequence[Message],
    voice: Callable[[int], Voice],
    number: int,
) -> Iterator[Message]:
    """Several calls of one turn become exchanges of one call each, which is what the dialects allow."""
    waiting = list(results)
    thought = asked.content
    for step, call in enumerate(asked.calls, number):
        result = next(message for message in waiting if message.call_id == call.id)
        waiting.remove(result)
        yield Message(
            "assistant", voice(step).say_call(thought, call), origin=asked.origin
        )
        yield Message(
            "user", voice(step).say_observation(result.content), origin="tool"
        )
        thought = ""
