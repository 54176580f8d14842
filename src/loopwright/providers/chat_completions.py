"""The Chat Completions wire format: messages, tools and schemas to bytes, and the bytes of a reply to a completion."""

import contextlib
import functools
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import to_json

from ..messages import Completion, JsonObject, Message, ToolCall, ToolSpec, Usage
from ..parsing import strict_json
from ..parsing.thinking import without_thinking
from ..provider import OutputSchema

# What a schema may say so that its strict form means the same.
STRICT_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "anyOf", "$ref", "$defs", "enum", "const"}
    | {"title", "description"}
)
TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "available context size",
    "context window",
    "prompt is too long",
)


def encode_message(message: Message) -> bytes:
    """A message as the wire has it; the content of an assistant that only calls is `null`."""
    if message.role == "tool":
        return to_json({"role": "tool", "tool_call_id": message.call_id, "content": message.content})
    if not message.calls:
        return to_json({"role": message.role, "content": message.content})
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": to_json(call.arguments).decode()},
        }
        for call in message.calls
    ]
    return to_json({"role": message.role, "content": message.content or None, "tool_calls": calls})


def encode_tool(spec: ToolSpec) -> bytes:
    """A tool as the wire has it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.schema}
    return to_json({"type": "function", "function": function})


def encode_schema(output: OutputSchema) -> bytes:
    """A `response_format` that holds the reply to a schema, in strict mode if the schema can be said in it."""
    name = "".join([c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in output.name])[:64] or "reply"
    schema, strict = output.schema, False
    if schema.get("type") == "object":
        with contextlib.suppress(ValueError):  # then the model is told the schema, but not held to it word by word
            schema, strict = strict_form(schema), True
    return to_json({"type": "json_schema", "json_schema": {"name": name, "strict": strict, "schema": schema}})


def strict_form(schema: JsonValue | JsonObject) -> dict[str, JsonValue]:
    """The schema with every object closed, as strict mode demands; ValueError where that would change its meaning."""
    if not isinstance(schema, dict) or schema.keys() - STRICT_WORDS or not schema.keys() & {"type", "$ref", "anyOf"}:
        raise ValueError("something that strict mode cannot say")
    if "$ref" in schema and len(schema) > 1:
        raise ValueError("strict mode allows nothing beside a reference")
    strict = dict(schema)
    for word in ("properties", "$defs"):
        group = schema.get(word)
        if isinstance(group, dict):
            strict[word] = {name: strict_form(inner) for name, inner in group.items()}
    if "items" in schema:
        strict["items"] = strict_form(schema["items"])
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        strict["anyOf"] = [strict_form(inner) for inner in choices]
    return _closed(strict) if schema.get("type") == "object" else strict


def _closed(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list) or set(properties) != set(map(str, required)):
        raise ValueError("strict mode has no optional properties")
    if schema.get("additionalProperties", False) is not False:
        raise ValueError("strict mode has no free properties")
    return {**schema, "additionalProperties": False}


class Wire(BaseModel):
    """What servers send: unknown fields are passed over, numbers serve as text."""

    model_config = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False, defer_build=True)


class WireFunction(Wire):
    """A function that a call names; its arguments are JSON in a string, or the object itself."""

    name: str | None = None
    arguments: JsonValue = None


class WireCall(Wire):
    """One tool call."""

    id: str | None = None
    function: WireFunction | None = None

    def read(self) -> ToolCall:
        """The call; ValueError says what is wrong in words for the model."""
        function = self.function
        if function is None or not function.name:
            raise ValueError("A tool call has no function name. Name one of the tools.")
        arguments = function.arguments
        try:
            if isinstance(arguments, str):
                arguments = strict_json(arguments)
        except ValueError as error:
            raise ValueError(f"The arguments of the call of {function.name!r} are not valid JSON: {error}.") from None
        if not isinstance(arguments, dict):
            raise ValueError(
                f"The arguments of the call of {function.name!r} are not a JSON object; no arguments is {{}}."
            )
        return ToolCall(function.name, arguments, self.id or "")


class WirePart(Wire):
    """A part of a message's content."""

    text: str | None = None
    refusal: str | None = None


class WireMessage(Wire):
    """What the model said."""

    content: str | list[WirePart] | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None

    @property
    def text(self) -> str:
        """The content's text, its parts joined, without the thinking that some servers leave in front of it."""
        if isinstance(self.content, list):
            return without_thinking("".join([part.text or "" for part in self.content]))
        return without_thinking(self.content or "")

    @property
    def refused(self) -> str:
        """The words of a refusal, or an empty string."""
        parts = self.content if isinstance(self.content, list) else []
        return self.refusal or "".join([part.refusal or "" for part in parts])


class WireChoice(Wire):
    """One of the alternative replies; this library asks for one."""

    message: WireMessage
    finish_reason: str | None = None


Count = Annotated[int | None, Field(ge=0)]


class WirePromptDetails(Wire):
    """Parts of the prompt's tokens."""

    cached_tokens: Count = None
    cache_write_tokens: Count = None


class WireCompletionDetails(Wire):
    """Parts of the completion's tokens."""

    reasoning_tokens: Count = None


class WireUsage(Wire):
    """What the server counted."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: WirePromptDetails | None = None
    completion_tokens_details: WireCompletionDetails | None = None
    cost: Annotated[float | None, Field(ge=0)] = None

    def read(self) -> Usage:
        """The same in this library's words: what the server does not tell stays unknown."""
        prompt = self.prompt_tokens_details or WirePromptDetails()
        reasoning = self.completion_tokens_details.reasoning_tokens if self.completion_tokens_details else None
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            prompt.cached_tokens,
            prompt.cache_write_tokens,
            reasoning,
            self.cost,
        )


class WireReply(Wire):
    """A reply whole; figures that make no sense count as untold."""

    choices: Annotated[list[WireChoice], Field(min_length=1)]
    usage: Annotated[WireUsage | Any, Field(union_mode="left_to_right")] = None
    model: Annotated[str | Any, Field(union_mode="left_to_right")] = None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """The reply in these bytes, or None if there is none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None

    def completion(self, body: bytes) -> Completion:
        """What the reply says; a cut, empty or malformed one gives a completion with a problem, never calls."""
        choice = self.choices[0]
        message, text = choice.message, choice.message.text
        calls = message.tool_calls or []
        finish = choice.finish_reason or ("tool_calls" if calls else "stop")
        usage = self.usage.read() if isinstance(self.usage, WireUsage) else Usage()
        model = self.model if isinstance(self.model, str) else ""
        say = functools.partial(Completion, text, finish_reason=finish, usage=usage, model=model)
        if finish == "length":
            return say(problem=_cut(calls))
        if not calls:
            return say(answer=text) if text.strip() else say(problem="The reply is empty. Answer, or call a tool.")
        try:
            return say(calls=_read_calls(calls, body), thought=text)
        except ValueError as error:
            return say(problem=str(error))


def _cut(calls: list[WireCall]) -> str:
    names = [call.function.name for call in calls if call.function is not None and call.function.name]
    what = f"in a call of {names[-1]!r}; nothing was run" if names else "before its end"
    return f"The reply reached the limit of output tokens and was cut {what}. Say it more briefly."


def _read_calls(calls: list[WireCall], body: bytes) -> tuple[ToolCall, ...]:
    if any(call.function is not None and isinstance(call.function.arguments, dict) for call in calls):
        try:
            strict_json(body.decode())  # an object inside the reply has been read without care for duplicate keys
        except ValueError as error:
            names = ", ".join([repr(call.function.name) for call in calls if call.function is not None])
            raise ValueError(f"The arguments of the call of {names} are not valid JSON: {error}.") from None
    return tuple([call.read() for call in calls])


class WireError(Wire):
    """What a server says of a failure: an object with a message, or its fields at the top, or a plain string."""

    error: Annotated["WireError | str | Any", Field(union_mode="left_to_right")] = None
    message: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    detail: JsonValue = None
    code: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    type: Annotated[str | Any, Field(union_mode="left_to_right")] = None

    @classmethod
    def read(cls, body: bytes) -> Self:
        """The failure in these bytes; an empty one if they hold none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return cls()

    @property
    def text(self) -> str:
        """The server's own words, or an empty string."""
        if isinstance(self.error, WireError):
            return self.error.text
        return next((str(said) for said in (self.error, self.message, self.detail) if said), "")

    @property
    def status(self) -> int | None:
        """An HTTP status in the place of the code: how a gateway tells in a 200 that the server behind it failed."""
        code = self.error.code if isinstance(self.error, WireError) else self.code
        return int(code) if isinstance(code, str) and code in map(str, range(400, 600)) else None

    @property
    def is_too_long(self) -> bool:
        """Whether the conversation does not fit the model's context."""
        inner = self.error if isinstance(self.error, WireError) else self
        said = f"{inner.code} {inner.type} {inner.text}".lower()
        return any(sign in said for sign in TOO_LONG)
