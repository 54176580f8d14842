"""The reply side of Chat Completions: the bytes of a whole reply to a completion."""

import functools
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, ValidationError, WrapValidator

from ...messages import Completion, Reasoning, ToolCall, Usage
from ...parsing import read_json_document
from ...parsing.thinking import strip_thinking
from ..dialects.think_block import thinking_of
from ..http.wire import Count, Wire


def _or_none(value: Any, validate: Callable[[Any], Any]) -> Any:
    """What is not of the form that is known is passed over, like any unknown field."""
    try:
        return validate(value)
    except ValidationError:
        return None


Words = Annotated[str | None, WrapValidator(_or_none)]


CUT_SHORT = {
    "length",
    "max_tokens",
    "model_length",
}  # the last is Mistral's word for a full context


class WireFunction(Wire):
    """A function that a call names; its arguments are JSON in a string, or the object itself."""

    name: str | None = None
    arguments: Annotated[str | JsonValue, Field(union_mode="left_to_right")] = (
        None  # mostly text, so that first
    )


class WireCall(Wire):
    """One tool call, or a piece of one; `index` says which, in a stream."""

    id: str | None = None
    index: int | None = None
    function: WireFunction | None = None

    def read(self) -> ToolCall:
        """The call; ValueError says what is wrong in words for the model."""
        function = self.function
        if function is None or not function.name:
            raise ValueError("A tool call has no function name. Name one of the tools.")
        arguments = function.arguments
        try:
            if isinstance(arguments, str):
                arguments = read_json_document(arguments)
        except ValueError as error:
            raise ValueError(
                f"The arguments of the call of {function.name!r} are not valid JSON: {error}."
            ) from None
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
    """What the model said, or a piece of it."""

    content: str | list[WirePart] | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    reasoning_content: Words = None
    reasoning: Words = None
    reasoning_details: Annotated[
        list[dict[str, JsonValue]] | None, WrapValidator(_or_none)
    ] = None

    @property
    def raw(self) -> str:
        """The content's text, its parts joined."""
        if isinstance(self.content, list):
            return "".join([part.text or "" for part in self.content])
        return self.content or ""

    @property
    def text(self) -> str:
        """The content's text without the thinking that some servers leave in front of it."""
        return strip_thinking(self.raw)

    @property
    def has_reasoning(self) -> bool:
        """Whether there is reasoning beside the content, shown or not."""
        return bool(self.reasoning_content or self.reasoning or self.reasoning_details)

    @property
    def thinking(self) -> str:
        """The words of the reasoning that is told beside the content, once where two fields tell it."""
        shown = "".join([shown_of(block) for block in self.reasoning_details or ()])
        return self.reasoning_content or self.reasoning or shown

    @property
    def thoughts(self) -> tuple[Reasoning, ...]:
        """All reasoning, each stretch with the form that it came in; blocks go before the text that repeats them."""
        found = [
            Reasoning(shown_of(block), "reasoning_details", block)
            for block in self.reasoning_details or ()
        ]
        if not found and self.thinking:
            found = [
                Reasoning(
                    self.thinking,
                    "reasoning_content" if self.reasoning_content else "reasoning",
                )
            ]
        block = thinking_of(self.raw)
        return (*found, Reasoning(block, "think")) if block else tuple(found)

    @property
    def refused(self) -> str:
        """The words of a refusal, or an empty string."""
        if self.refusal or not isinstance(self.content, list):
            return self.refusal or ""
        return "".join([part.refusal or "" for part in self.content])


def shown_of(block: dict[str, JsonValue]) -> str:
    """What a block of `reasoning_details` shows of the thinking: its text or summary, nothing if it is encrypted."""
    told = block.get("text") or block.get("summary")
    return told if isinstance(told, str) else ""


class WireChoice(Wire):
    """One of the alternative replies; this library asks for one."""

    message: WireMessage
    finish_reason: str | None = None


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
    prompt_cache_hit_tokens: Count = None  # DeepSeek's word for cached tokens
    cost: Annotated[float | None, Field(ge=0)] = None

    def read(self) -> Usage:
        """The same in this library's words: what the server does not tell stays unknown."""
        prompt = self.prompt_tokens_details or WirePromptDetails()
        reasoning = (
            self.completion_tokens_details.reasoning_tokens
            if self.completion_tokens_details
            else None
        )
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            prompt.cached_tokens
            if prompt.cached_tokens is not None
            else self.prompt_cache_hit_tokens,
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
        """What the reply says; a cut, empty or malformed one gives a completion with a problem, never calls.

        `body` is looked into where arguments are given as an object, since only there keys given twice can be seen.
        """
        choice = self.choices[0]
        return completion_of(
            choice.message, choice.finish_reason, self.usage, self.model, body
        )


def completion_of(
    message: WireMessage,
    finish_reason: str | None,
    usage: WireUsage | Any,
    model: str | Any,
    body: bytes,
) -> Completion:
    """What a message says with what came beside it; see `WireReply.completion`."""
    text, calls = message.text, message.tool_calls or []
    finish = finish_reason or ("tool_calls" if calls else "stop")
    finish = "length" if finish.casefold() in CUT_SHORT else finish
    say = functools.partial(
        Completion,
        text,
        finish_reason=finish,
        usage=usage.read() if isinstance(usage, WireUsage) else Usage(),
        model=model if isinstance(model, str) else "",
        reasoning=message.thoughts,
    )
    if finish == "length":
        return say(problem=_cut(calls))
    if not calls:
        return (
            say(answer=text)
            if text.strip()
            else say(problem="The reply is empty. Answer, or call a tool.")
        )
    try:
        return say(calls=_read_calls(calls, body), thought=text)
    except ValueError as error:
        return say(problem=str(error))


def _cut(calls: list[WireCall]) -> str:
    names = [
        call.function.name
        for call in calls
        if call.function is not None and call.function.name
    ]
    what = f"in a call of {names[-1]!r}; nothing was run" if names else "before its end"
    return f"The reply reached the limit of output tokens and was cut {what}. Say it more briefly."


def _read_calls(calls: list[WireCall], body: bytes) -> tuple[ToolCall, ...]:
    if any(
        call.function is not None and isinstance(call.function.arguments, dict)
        for call in calls
    ):
        try:
            read_json_document(
                body.decode()
            )  # an object inside the reply has been read without care for duplicate keys
        except ValueError as error:
            names = ", ".join(
                [
                    repr(call.function.name)
                    for call in calls
                    if call.function is not None
                ]
            )
            raise ValueError(
                f"The arguments of the call of {names} are not valid JSON: {error}."
            ) from None
    return tuple([call.read() for call in calls])
