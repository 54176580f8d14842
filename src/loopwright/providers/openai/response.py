"""The response format of Chat Completions: the bytes of a whole reply to a completion."""

import functools
from typing import Annotated, Self

from pydantic import Field, JsonValue, ValidationError

from ...messages import Completion, Reasoning, ToolCall, Usage
from ...parsing import read_json_document
from ...parsing.thinking import strip_thinking
from ..dialects.think_block import read_thinking
from ..http.wire import Count, Lenient, Wire

EMPTY = "The reply is empty. Answer, or call a tool."
MAX_NAME = 1_000  # characters; a longer text is not the name of a function
LENGTH_REASONS = frozenset(
    {"length", "max_tokens", "model_length"}
)  # the last: Mistral


class WireFunction(Wire):
    """The function that a call names; its arguments are JSON in a text, or the object itself."""

    name: str | None = None
    # Text is tried first, since arguments mostly are.
    arguments: Annotated[str | JsonValue, Field(union_mode="left_to_right")] = None


class WireCall(Wire):
    """A tool call, or in a stream a fragment of the call that `index` names."""

    id: str | None = None
    index: int | None = None
    function: WireFunction | None = None

    @property
    def name(self) -> str:
        """The name of the function, or an empty text."""
        return (self.function and self.function.name) or ""

    @property
    def arguments(self) -> JsonValue:
        """The arguments: JSON in a text, an object, or `None`."""
        return self.function.arguments if self.function is not None else None

    def read(self) -> ToolCall:
        """Return the call.

        Raises:
            ValueError: it cannot be read; the text tells the model why.
        """
        if not self.name:
            raise ValueError("A tool call has no function name. Name one of the tools.")
        if len(self.name) >= MAX_NAME:
            raise ValueError(
                f"The function name in the call of {self.name!r} is too long."
            )
        arguments = self.arguments
        if arguments is None or arguments == "":
            arguments = {}  # what some servers write for no arguments
        try:
            if isinstance(arguments, str):
                arguments = read_json_document(arguments)
        except ValueError as error:
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not valid JSON: {error}."
            ) from None
        if not isinstance(arguments, dict):
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not a JSON object; no arguments is {{}}."
            )
        return ToolCall(self.name, arguments, self.id or "")


class WirePart(Wire):
    """A part of a message's content; Mistral sends thinking as a part that holds parts."""

    text: str | None = None
    refusal: str | None = None
    thinking: Lenient[list["WirePart"]] = None

    @property
    def thinking_text(self) -> str:
        """The text of the thinking in this part."""
        return "".join([part.text or "" for part in self.thinking or ()])


class WireMessage(Wire):
    """The model's message, or in a stream a fragment of it."""

    content: str | list[WirePart] | None = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    reasoning_content: Lenient[str] = None
    reasoning: Lenient[str] = None
    reasoning_details: Lenient[list[dict[str, JsonValue]]] = None

    @property
    def raw(self) -> str:
        """The text of the content, its parts joined."""
        if isinstance(self.content, list):
            return "".join([part.text or "" for part in self.content])
        return self.content or ""

    @property
    def text(self) -> str:
        """The text of the content without the thinking that some servers leave in front of it."""
        return strip_thinking(self.raw)

    @property
    def has_reasoning(self) -> bool:
        """Whether there is reasoning beside the content, readable or not."""
        if self.reasoning_content or self.reasoning or self.reasoning_details:
            return True
        return bool(self.thinking_parts)

    @property
    def thinking(self) -> str:
        """The readable reasoning beside the text; once, where two fields repeat it."""
        beside = self.reasoning_content or self.reasoning or self._details_text
        return beside or self.thinking_parts

    @property
    def thinking_parts(self) -> str:
        """The text of the thinking among the parts of the content."""
        if not isinstance(self.content, list):
            return ""
        return "".join([part.thinking_text for part in self.content])

    @property
    def all_reasoning(self) -> tuple[Reasoning, ...]:
        """All reasoning, each part with the form that it came in; blocks replace the text that repeats them."""
        think_block = read_thinking(self.raw)
        if not think_block:
            return tuple(self._list_reasoning())
        return (*self._list_reasoning(), Reasoning(think_block, "think"))

    @property
    def refusal_text(self) -> str:
        """The text of a refusal, or an empty text."""
        if self.refusal or not isinstance(self.content, list):
            return self.refusal or ""
        return "".join([part.refusal or "" for part in self.content])

    @property
    def _details_text(self) -> str:
        return "".join(map(read_block_text, self.reasoning_details or ()))

    def _list_reasoning(self) -> list[Reasoning]:
        if self.reasoning_details:
            return [
                Reasoning(read_block_text(block), "reasoning_details", block)
                for block in self.reasoning_details
            ]
        if self.reasoning_content:
            return [Reasoning(self.reasoning_content, "reasoning_content")]
        if self.reasoning:
            return [Reasoning(self.reasoning, "reasoning")]
        parts = self.thinking_parts
        return [Reasoning(parts, "thinking_parts")] if parts else []


def read_block_text(block: dict[str, JsonValue]) -> str:
    """Return the readable text or summary of a `reasoning_details` block; empty if it is encrypted."""
    text = block.get("text") or block.get("summary")
    if not isinstance(text, str):
        return ""
    return text


class WireChoice(Wire):
    """One of the alternative replies; this library asks for one."""

    message: WireMessage
    finish_reason: str | None = None


class WirePromptDetails(Wire):
    """How many of the prompt's tokens were cached."""

    cached_tokens: Count = None
    cache_write_tokens: Count = None


class WireCompletionDetails(Wire):
    """How many of the completion's tokens were reasoning."""

    reasoning_tokens: Count = None


class WireUsage(Wire):
    """The token counts of the server."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: WirePromptDetails | None = None
    completion_tokens_details: WireCompletionDetails | None = None
    prompt_cache_hit_tokens: Count = None  # DeepSeek's name for cached tokens
    num_cached_tokens: Count = None  # Mistral's
    cost: Annotated[float | None, Field(ge=0)] = None

    def read(self) -> Usage:
        """Return the counts as `Usage`; what the server leaves out stays unknown."""
        prompt = self.prompt_tokens_details or WirePromptDetails()
        output = self.completion_tokens_details or WireCompletionDetails()
        counts = (
            prompt.cached_tokens,
            self.prompt_cache_hit_tokens,
            self.num_cached_tokens,
        )
        cached = next((count for count in counts if count is not None), None)
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            cached,
            prompt.cache_write_tokens,
            output.reasoning_tokens,
            self.cost,
        )


class WireReply(Wire):
    """A whole reply; counts that make no sense are treated as absent."""

    choices: Annotated[list[WireChoice], Field(min_length=1)]
    usage: Lenient[WireUsage] = None
    model: Lenient[str] = None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Return the reply in these bytes, or `None` if they are not a reply."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None

    def completion(self, body: bytes) -> Completion:
        """Return the completion; a truncated, empty or malformed reply has a problem and never calls.

        `body` is parsed again if arguments are objects, since only there duplicate keys can be seen.
        """
        return self.completions(body)[0]

    def completions(self, body: bytes) -> list[Completion]:
        """Return the completions of all alternatives, each with the usage of the whole reply."""
        return [
            build_completion(
                choice.message, choice.finish_reason, self.usage, self.model, body
            )
            for choice in self.choices
        ]

    def read_usage(self) -> Usage:
        """Return the usage of the whole reply."""
        return (self.usage or WireUsage()).read()


def build_completion(
    message: WireMessage,
    finish_reason: str | None,
    usage: WireUsage | None,
    model: str | None,
    body: bytes,
) -> Completion:
    """Return the completion of a message and what came with it; see `WireReply.completion`."""
    text, calls = message.text, message.tool_calls or []
    finish = finish_reason or ("tool_calls" if calls else "stop")
    is_cut = finish.casefold() in LENGTH_REASONS
    if is_cut:
        finish = "length"
    build = functools.partial(
        Completion,
        text,
        finish_reason=finish,
        usage=(usage or WireUsage()).read(),
        model=model or "",
        reasoning=message.all_reasoning,
    )
    if is_cut:
        return build(problem=_explain_cut(calls))
    if calls:
        try:
            return build(calls=_read_calls(calls, body), thought=text)
        except ValueError as error:
            return build(problem=str(error))
    if text.strip():
        return build(answer=text)
    return build(problem=EMPTY)


def _explain_cut(calls: list[WireCall]) -> str:
    names = [call.name for call in calls if call.name]
    place = "before its end"
    if names:
        place = f"in a call of {names[-1]!r}; nothing was run"
    return f"The reply reached the limit of output tokens and was cut {place}. Say it more briefly."


def _read_calls(calls: list[WireCall], body: bytes) -> tuple[ToolCall, ...]:
    if any(isinstance(call.arguments, dict) for call in calls):
        _check_duplicate_keys(calls, body)
    return tuple(map(WireCall.read, calls))


def _check_duplicate_keys(calls: list[WireCall], body: bytes) -> None:
    """Raise ValueError for a key given twice; the reply's own parser has silently kept one of the two."""
    try:
        read_json_document(body.decode())
    except ValueError as error:
        names = ", ".join([repr(call.name) for call in calls])
        raise ValueError(
            f"The arguments of the call of {names} are not valid JSON: {error}."
        ) from None
