"""Transcripts: tools, calls and results as plain text, in instructions and in turns of user and assistant."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ..._internal import dataclasses
from ...messages import Conversation, JsonObject, Message, ToolCall
from ...prompts import PromptSet
from ..base import Request

# Line ends that JSON leaves unescaped.
LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


class StepFormatter(Protocol):
    """How a dialect writes the messages of a step that plain text has no form for."""

    def format_call(self, thought: str, call: ToolCall) -> str:
        """Return an assistant's turn that calls a tool."""
        ...

    def format_answer(self, answer: str) -> str:
        """Return an assistant's turn with an answer."""
        ...

    def format_observation(self, result: str) -> str:
        """Return a tool's result, third-party text, in a form that is never read as a call or an answer."""
        ...


def build_instructions(
    prompts: PromptSet,
    request: Request,
    format_schema: Callable[[JsonObject], str] | None = None,
) -> str:
    """Return the description of the tools and, if there is one, of the schema that the answer must fit.

    Args:
        prompts: `instructions` with {tools}, `tool` with {name}, {description} and {schema}, and `answer_schema` with
            {schema}.
        request: has the tools and the schema.
        format_schema: writes the schema of a tool's arguments; as JSON by default.
    """
    format_schema = format_schema or compact_json
    tools = [
        prompts.fill(
            "tool",
            name=tool.name,
            description=tool.description,
            schema=format_schema(tool.schema),
        )
        for tool in request.tools
    ]
    instructions = prompts.fill("instructions", tools="\n".join(tools))
    if request.schema is None:
        return instructions
    schema = compact_json(request.schema.schema)
    return f"{instructions}\n\n{prompts.fill('answer_schema', schema=schema)}"


def compact_json(value: object) -> str:
    """Return JSON for a model to read: on one line, characters of every script as they are."""
    return json.dumps(value, ensure_ascii=False).translate(LINE_ENDS)


def write_transcript(
    conversation: Conversation, formatter: StepFormatter
) -> Conversation:
    """Return the conversation in plain turns: one call, then its result from the user."""
    return write_steps(conversation, lambda step: formatter)


def write_steps(
    conversation: Conversation,
    get_formatter: Callable[[int], StepFormatter],
    format_remark: Callable[[int, str], str] | None = None,
) -> Conversation:
    """Return the conversation in plain turns, with a formatter for each step.

    A step is a call with its result; steps are counted from 1 since the last question. Adjacent user turns become one.

    Args:
        conversation: what to write.
        get_formatter: returns the formatter of a step.
        format_remark: writes an assistant's text that is neither a call nor an answer; unchanged by default.
    """
    writer = _StepWriter(get_formatter, format_remark)
    return Conversation(merge_user_turns(writer.write(conversation.messages)))


def merge_user_turns(turns: Iterable[Message]) -> list[Message]:
    """Return the turns with adjacent user turns merged, since many chat templates require alternating roles."""
    merged: list[Message] = []
    for message in turns:
        if message.role == "user" and merged and merged[-1].role == "user":
            merged[-1] = _join_turns(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _join_turns(first: Message, second: Message) -> Message:
    return dataclasses.replace(
        first,
        content=f"{first.content}\n\n{second.content}",
        origin=second.origin,
        attachments=first.attachments + second.attachments,
    )


def find_next_step(conversation: Conversation) -> int:
    """Return the number of the step that the model takes next."""
    number = 1
    for message in conversation.messages:
        number = 1 if _is_question(message) else number + len(message.calls)
    return number


def _is_question(message: Message) -> bool:
    """Return whether a message asks something new; the runtime's messages belong to the question before them."""
    return message.role == "user" and message.origin not in (
        "runtime",
        "memory",
        "hook",
    )


@dataclasses.dataclass(frozen=True)
class _StepWriter:
    get_formatter: Callable[[int], StepFormatter]
    format_remark: Callable[[int, str], str] | None

    def write(self, messages: Sequence[Message]) -> Iterator[Message]:
        number = 1
        for position, message in enumerate(messages, 1):
            if _is_question(message):
                number = 1
            if message.calls:
                results = messages[position : position + len(message.calls)]
                yield from self._write_calls(message, results, number)
                number += len(message.calls)
            elif message.role == "assistant":
                followers = messages[position : position + 1]
                is_answer = any(map(_is_question, followers))
                yield self._write_text(message, number, is_answer=is_answer)
            elif message.role != "tool":
                yield message

    def _write_text(self, message: Message, number: int, *, is_answer: bool) -> Message:
        """Write an assistant's text: an answer if a question follows, else a remark or an unreadable reply."""
        if is_answer:
            content = self.get_formatter(number).format_answer(message.content)
        elif self.format_remark is not None:
            content = self.format_remark(number, message.content)
        else:
            return message
        return dataclasses.replace(message, content=content)

    def _write_calls(
        self, message: Message, results: Sequence[Message], number: int
    ) -> Iterator[Message]:
        """Write several calls of one turn as exchanges of one call each, which is what the dialects allow."""
        waiting = list(results)
        thought = message.content
        for step, call in enumerate(message.calls, number):
            result = next(one for one in waiting if one.call_id == call.id)
            waiting.remove(result)
            formatter = self.get_formatter(step)
            text = formatter.format_call(thought, call)
            yield Message("assistant", text, origin=message.origin)
            observation = formatter.format_observation(result.content)
            sent = result.attachments
            yield Message("user", observation, origin="tool", attachments=sent)
            thought = ""
