"""`FinalTool`: a structured answer as a call of a tool, from a model that cannot hold to a schema while it has tools."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import NamedTuple

from .._internal import dataclasses
from ..messages import Completion, Json, JsonObject, ToolCall, ToolSpec
from .base import Capabilities, Delta, OutputSchema, Provider, Request, stream_deltas

NAME = "final_answer"
DESCRIPTION = (
    "Gives the final answer of the task. Call it once, when you know the answer, and write no answer as text. "
    "Nothing else can be called in that turn."
)
FIELD = "value"
"""The argument that has the answer, where the answer is not an object."""
EARLY = "final_answer_early"
"""The flag of a reply that gave its final answer together with calls: these are run, and it is asked again."""


def enforce_schema(provider: Provider, request: Request) -> tuple[Provider, Request]:
    """Return whom to ask for a reply that fits the request's schema, and what.

    A model that can do so holds to the schema. Else a model with tools gets the schema as that of one more tool, and
    any other model is asked without it.
    """
    if request.schema is None:
        return provider, request
    able, may_call = provider.capabilities, request.tool_choice == "auto"
    is_beside_tools = may_call and len(request.tools) > 0
    if able.schema_with_tools if is_beside_tools else able.json_schema:
        return provider, request
    if may_call and able.native_tools and not able.schema_with_tools:
        return FinalTool(provider), request
    return provider, dataclasses.replace(request, schema=None)


def write_schema(provider: Provider, request: Request) -> Request:
    """Return the request as a provider is sent it: its schema is kept, written as a tool, or left out."""
    return find_sent(*enforce_schema(provider, request))


def find_sent(asked: Provider, request: Request) -> Request:
    """Return what the model's own provider gets where `asked` is sent a request."""
    return _offer(request).request if isinstance(asked, FinalTool) else request


class FinalTool:
    """A provider whose requests offer the schema as a tool; a call of it is the answer, never a call.

    Args:
        provider: serves the model.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The name of the wrapped provider."""
        return self._provider.name

    @property
    def model(self) -> str:
        """The model of the wrapped provider."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """What the wrapped provider supports, and schemas beside tools."""
        return dataclasses.replace(self._provider.capabilities, schema_with_tools=True)

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply."""
        tool = _offer(request)
        return tool.read(await self._provider.complete(tool.request))

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Call the model once and yield its reply; an answer comes whole, with the last delta."""
        tool = _offer(request)
        hidden: set[int] = set()
        deltas = stream_deltas(self._provider, tool.request)
        async with contextlib.aclosing(deltas):
            async for delta in deltas:
                call = delta.call
                if call is not None and call.name == tool.name:
                    hidden.add(call.index)
                if delta.completion is not None:
                    yield tool.end(delta, delta.completion)
                elif call is None or call.index not in hidden:
                    yield delta


class _Offer(NamedTuple):
    """A request that offers the tool, and how its reply is read."""

    request: Request
    name: str
    is_wrapped: bool

    def read(self, reply: Completion) -> Completion:
        """Return the reply with its call of the tool as the answer; calls beside it come first."""
        given = [call for call in reply.calls if call.name == self.name]
        if not given:
            return reply
        others = tuple(call for call in reply.calls if call.name != self.name)
        if others:
            return dataclasses.replace(reply, calls=others, flags=(*reply.flags, EARLY))
        return dataclasses.replace(
            reply,
            calls=(),
            answer=self._write_answer(given[0]),
            thought=reply.thought or reply.text,
        )

    def end(self, delta: Delta, reply: Completion) -> Delta:
        """Return the last delta, with the text of an answer that was a call until now."""
        read = self.read(reply)
        if read is reply or read.answer is None:
            return dataclasses.replace(delta, completion=read)
        return dataclasses.replace(
            delta, text=delta.text + read.answer, completion=read
        )

    def _write_answer(self, call: ToolCall) -> str:
        arguments = dict(call.arguments)
        answer: Json = arguments.get(FIELD) if self.is_wrapped else arguments
        return json.dumps(answer, ensure_ascii=False)


def _offer(request: Request) -> _Offer:
    """Return the request with its schema as a tool, by a name that no other tool has."""
    if request.schema is None:
        return _Offer(request, "", is_wrapped=False)
    name, taken = NAME, {tool.name for tool in request.tools}
    while name in taken:
        name += "_"
    is_wrapped = request.schema.schema.get("type") != "object"
    schema = _wrap(request.schema) if is_wrapped else request.schema.schema
    tools = (*request.tools, ToolSpec(name, DESCRIPTION, schema))
    offered = dataclasses.replace(request, tools=tools, schema=None)
    return _Offer(offered, name, is_wrapped)


def _wrap(output: OutputSchema) -> JsonObject:
    """Return the schema of an object with one field for the answer; definitions stay at the top."""
    inner = dict(output.schema)
    definitions = inner.pop("$defs", {})
    return {
        "type": "object",
        "properties": {FIELD: inner},
        "required": [FIELD],
        "additionalProperties": False,
        "$defs": definitions,
    }
