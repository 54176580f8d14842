"""The response format of the Messages API: the bytes of a whole reply to a completion, and its failures."""

import functools
import itertools
import json
from typing import Any, Self, cast

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from ...messages import (
    Completion,
    JsonObject,
    Reasoning,
    Source,
    ToolCall,
    Usage,
    canonical_json,
)
from ...parsing import read_json_document
from ..http.wire import Count, Lenient, Wire, WireError
from .request import (
    FORM,
    SERVER_TOOL_RESULT,
    SERVER_TOOL_USE,
    TEXT_LENGTH,
    THINKING_BLOCKS,
)

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
}
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
EMPTY = "The reply is empty. Answer, or call a tool."
PROVIDER_CALLS = {
    "web_search": "web_search",
    "code_execution": "code_interpreter",
    "bash_code_execution": "code_interpreter",
    "text_editor_code_execution": "code_interpreter",
}
PAUSED = "pause_turn"  # the server's own tools ran for long
CUT_REASONS = {
    "max_tokens": "reached the limit of output tokens and was cut",
    "model_context_window_exceeded": "filled the model's context window and was cut",
    PAUSED: "was paused by the server",
}


class WireBlock(Wire):
    """A content block; unknown fields are kept, so that thinking is sent back unchanged."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: JsonValue = None
    thinking: str | None = None
    signature: str | None = None

    def read_call(self) -> ToolCall:
        """Return the call in a `tool_use` block.

        Raises:
            ValueError: it cannot be read; the text tells the model why.
        """
        if not self.name:
            raise ValueError("A tool call has no tool name. Name one of the tools.")
        value = self.input
        try:
            # An object is parsed as well, since its texts may not be valid Unicode.
            text = value if isinstance(value, str) else canonical_json(value).decode()
            arguments = read_json_document(text)
        except ValueError as error:
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not valid JSON: {error}."
            ) from None
        if not isinstance(arguments, dict):
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not a JSON object; no arguments is {{}}."
            )
        if isinstance(value, dict):
            arguments = value
        return ToolCall(self.name, arguments, self.id or "")

    @property
    def provider_call(self) -> str:
        """The kind of the tool that the API ran, if it is a call of one that can be declared."""
        if self.type != SERVER_TOOL_USE:
            return ""
        return PROVIDER_CALLS.get(self.name or "", "")

    @property
    def is_of_provider(self) -> bool:
        """Whether it is of a tool that the API ran."""
        if self.type.endswith(SERVER_TOOL_RESULT):
            return "tool_use_id" in (self.model_extra or {})
        return self.type == SERVER_TOOL_USE and bool(self.id)

    def read_opaque(self) -> Reasoning:
        """Return the block to send back; a text is a mark of its place and length, with its citations."""
        if self.type in THINKING_BLOCKS:
            return self.read_reasoning()
        block = self.model_dump(exclude_unset=True)
        if self.type == "text":
            block[TEXT_LENGTH] = len(block.pop("text", None) or "")
        return Reasoning("", FORM, block)

    def list_sources(self) -> list[Source]:
        """Return the pages that a text cites, or that a search found."""
        extra = self.model_extra or {}
        listed: object = extra.get("citations" if self.type == "text" else "content")
        found = cast("list[JsonValue]", listed) if isinstance(listed, list) else []
        return [
            Source(str(one["url"]), str(one.get("title") or ""))
            for one in found
            if isinstance(one, dict) and one.get("url")
        ]

    def read_reasoning(self) -> Reasoning:
        """Return the thinking in a `thinking` or `redacted_thinking` block, with the block to send back."""
        return Reasoning(self.thinking or "", FORM, self.model_dump(exclude_unset=True))


class WireOutputDetails(Wire):
    """How many of the output's tokens were thinking."""

    thinking_tokens: Count = None


class WireUsage(Wire):
    """The token counts of the server; `input_tokens` excludes what the prompt cache read or wrote."""

    input_tokens: Count = None
    output_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens_details: WireOutputDetails | None = None

    def read(self) -> Usage:
        """Return the counts as `Usage`, whose input is the total; what the server leaves out stays unknown."""
        details = self.output_tokens_details or WireOutputDetails()
        return Usage(
            self._total_input,
            self.output_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
            details.thinking_tokens,
        )

    @property
    def _total_input(self) -> int | None:
        if self.input_tokens is None:
            return None
        written = self.cache_creation_input_tokens or 0
        return self.input_tokens + written + (self.cache_read_input_tokens or 0)


class WireStopDetails(Wire):
    """The model's explanation of a refusal."""

    explanation: str | None = None


class WireCount(Wire):
    """How many tokens a request has."""

    input_tokens: int = Field(ge=0)

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Return the count in these bytes, or `None` if there is none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None


class WireReply(Wire):
    """A whole reply; counts that make no sense are treated as absent."""

    content: list[WireBlock]
    stop_reason: str | None = None
    stop_details: Lenient[WireStopDetails] = None
    usage: Lenient[WireUsage] = None
    model: Lenient[str] = None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Return the reply in these bytes, or `None` if they are not a reply."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None

    @classmethod
    def build(cls, fields: JsonObject) -> Self | None:
        """Return the reply with these fields, or `None` if they do not make a reply."""
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None

    @property
    def text(self) -> str:
        """The text of the reply."""
        return "".join([block.text or "" for block in self._blocks("text")])

    @property
    def refusal(self) -> str | None:
        """The reason of a refusal, or `None` if the model did not refuse."""
        if self.stop_reason != "refusal":
            return None
        details = self.stop_details or WireStopDetails()
        return details.explanation or self.text or "no reason"

    def completion(self, body: bytes = b"") -> Completion:
        """Return the completion; a truncated, empty or malformed reply has a problem and never calls.

        `body` is what the reply was read from; duplicate keys can be seen only there.
        """
        text, calls = self.text, self._blocks("tool_use")
        reason = self.stop_reason or ("tool_use" if calls else "end_turn")
        build = functools.partial(
            Completion,
            text,
            finish_reason=FINISH_REASONS.get(reason, reason),
            usage=(self.usage or WireUsage()).read(),
            model=self.model or "",
            reasoning=self._reasoning,
            provider_calls=tuple(
                filter(None, [block.provider_call for block in self.content])
            ),
            sources=self._sources,
        )
        if reason in CUT_REASONS:
            return build(problem=_explain_cut(reason, calls))
        if calls:
            try:
                _check_duplicate_keys(body, calls)
                read = tuple(map(WireBlock.read_call, calls))
                return build(calls=read, thought=text)
            except ValueError as error:
                return build(problem=str(error))
        if text.strip():
            return build(answer=text)
        return build(problem=EMPTY)

    @property
    def _reasoning(self) -> tuple[Reasoning, ...]:
        """What is sent back unchanged: thinking, and with tools that the API ran every block but the calls."""
        if any(block.is_of_provider for block in self.content):
            others = [block for block in self.content if block.type != "tool_use"]
            return tuple(map(WireBlock.read_opaque, others))
        return tuple(map(WireBlock.read_reasoning, self._blocks(*THINKING_BLOCKS)))

    @property
    def _sources(self) -> tuple[Source, ...]:
        """The pages that the text cites, each once; without any, those that a search found."""
        for kind in ("text", "web_search_tool_result"):
            listed = [block.list_sources() for block in self._blocks(kind)]
            if found := dict.fromkeys(itertools.chain.from_iterable(listed)):
                return tuple(found)
        return ()

    def _blocks(self, *types: str) -> list[WireBlock]:
        return [block for block in self.content if block.type in types]


def _explain_cut(reason: str, calls: list[WireBlock]) -> str:
    names = [block.name for block in calls if block.name]
    place = "before its end"
    if names:
        place = f"in a call of {names[-1]!r}; nothing was run"
    cure = "Continue where it stopped." if reason == PAUSED else "Say it more briefly."
    return f"The reply {CUT_REASONS[reason]} {place}. {cure}"


def _check_duplicate_keys(body: bytes, calls: list[WireBlock]) -> None:
    """Raise ValueError for a key given twice; the reply's own parser has silently kept one of the two."""
    try:
        json.loads(body or b"null", object_pairs_hook=_build_unique)
    except ValueError as error:
        names = ", ".join([repr(block.name) for block in calls])
        raise ValueError(
            f"The arguments of the call of {names} are not valid JSON: {error}."
        ) from None


def _build_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key is given twice")
    return unique


def read_status(failure: WireError) -> int | None:
    """Return the HTTP status for the type of an error, since the response's own status was sent before it."""
    return STATUSES.get(str(failure.inner.type)) or failure.status
