"""Tools, calls and results told as plain text: instructions, and turns of user and assistant."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from ...messages import Conversation, JsonObject, Message, ToolCall
from ...prompts import PromptSet
from ...provider import Request


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


def instructions(prompts: PromptSet, request: Request, tell_schema: Callable[[JsonObject], str] | None = None) -> str:
    """What the model is told of the tools, and of the schema that its answer must fit if there is one.

    `prompts` holds `instructions` with {tools}, `tool` with {name}, {description} and {schema}, and `answer_schema`
    with {schema}. `tell_schema` writes the schema of a tool's arguments; without it the schema is told as JSON.
    """
    tell_schema = tell_schema or compact_json
    tools = [
        prompts.fill("tool", name=tool.name, description=tool.description, schema=tell_schema(tool.schema))
        for tool in request.tools
    ]
    told = prompts.fill("instructions", tools="\n".join(tools))
    if request.schema is None:
        return told
    return f"{told}\n\n{prompts.fill('answer_schema', schema=compact_json(request.schema.schema))}"


def compact_json(value: object) -> str:
    """JSON as a model reads it: on one line, letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False)


def tell(conversation: Conversation, voice: Voice) -> Conversation:
    """The conversation in plain turns: one call, then its result from the user; users' turns in a row become one."""
    told: list[Message] = []
    for message in _turns(conversation.messages, voice):
        last = told[-1] if told else None
        if last is not None and last.role == message.role == "user":
            told[-1] = dataclasses.replace(last, content=f"{last.content}\n\n{message.content}", origin=message.origin)
        else:
            told.append(message)
    return Conversation(told)


def _turns(messages: Sequence[Message], voice: Voice) -> Iterator[Message]:
    for position, message in enumerate(messages):
        after = position + 1
        if message.calls:
            yield from _exchanges(message, messages[after : after + len(message.calls)], voice)
        elif message.role == "assistant" and _was_answer(messages[after : after + 1]):
            yield dataclasses.replace(message, content=voice.say_answer(message.content))
        elif message.role != "tool":
            yield message


def _was_answer(after: Sequence[Message]) -> bool:
    """Whether the assistant's words before `after` were an answer: a user goes on, not the runtime with a complaint."""
    return bool(after) and after[0].role == "user" and after[0].origin != "runtime"


def _exchanges(asked: Message, results: Sequence[Message], voice: Voice) -> Iterator[Message]:
    """Several calls of one turn become exchanges of one call each, which is what the dialects allow."""
    waiting = list(results)
    thought = asked.content
    for call in asked.calls:
        result = next(message for message in waiting if message.call_id == call.id)
        waiting.remove(result)
        yield Message("assistant", voice.say_call(thought, call), origin=asked.origin)
        yield Message("user", voice.say_observation(result.content), origin="tool")
        thought = ""
