"""The Messages wire format, incoming: the bytes of a reply, or of a failure, to what they mean."""

import functools
import json
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from ...messages import (
    Completion,
    JsonObject,
    Reasoning,
    ToolCall,
    Usage,
    canonical_json,
)
from ...parsing import read_json_document
from ..http.wire import Count, Wire, WireError
from .request import FORM

FINISH = {
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
CUT = {
    "max_tokens": "reached the limit of output tokens and was cut",
    "model_context_window_exceeded": "filled the model's context window and was cut",
    "pause_turn": "was paused by the server",
}


class WireBlock(Wire):
    """A content block; what is not named here is kept, so that thinking goes back as it came."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: JsonValue = None
    thinking: str | None = None
    signature: str | None = None

    def call(self) -> ToolCall:
        """The call that a `tool_use` block is; ValueError says what is wrong in words for the model."""
        if not self.name:
            raise ValueError("A tool call has no tool name. Name one of the tools.")
        given = self.input
        try:
            read = read_json_document(
                given if isinstance(given, str) else canonical_json(given).decode()
            )
        except ValueError as error:
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not valid JSON: {error}."
            ) from None
        if not isinstance(read, dict):
            raise ValueError(
                f"The arguments of the call of {self.name!r} are not a JSON object; no arguments is {{}}."
            )
        return ToolCall(
            self.name, given if isinstance(given, dict) else read, self.id or ""
        )

    def reasoning(self) -> Reasoning:
        """The thinking that a `thinking` or `redacted_thinking` block holds, with the block to send back."""
        return Reasoning(self.thinking or "", FORM, self.model_dump(exclude_unset=True))


class WireOutputDetails(Wire):
    """Parts of the output's tokens."""

    thinking_tokens: Count = None


class WireUsage(Wire):
    """What the server counted; `input_tokens` is without what the prompt cache read or wrote."""

    input_tokens: Count = None
    output_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None
    output_tokens_details: WireOutputDetails | None = None

    def read(self) -> Usage:
        """The same in this library's words: the input in total, and what the server does not tell unknown."""
        total = self.input_tokens
        if total is not None:
            total += (self.cache_creation_input_tokens or 0) + (
                self.cache_read_input_tokens or 0
            )
        details = self.output_tokens_details or WireOutputDetails()
        return Usage(
            total,
            self.output_tokens,
            self.cache_read_input_tokens,
            self.cache_creation_input_tokens,
            details.thinking_tokens,
        )


class WireStopDetails(Wire):
    """Why the model stopped, where it refused."""

    explanation: str | None = None


class WireReply(Wire):
    """A reply whole; figures that make no sense count as untold."""

    content: list[WireBlock]
    stop_reason: str | None = None
    stop_details: Annotated[
        WireStopDetails | Any, Field(union_mode="left_to_right")
    ] = None
    usage: Annotated[WireUsage | Any, Field(union_mode="left_to_right")] = None
    model: Annotated[str | Any, Field(union_mode="left_to_right")] = None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """The reply in these bytes, or None if there is none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None

    @classmethod
    def of(cls, fields: JsonObject) -> Self | None:
        """The reply that these fields make, or None if they make none."""
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None

    @property
    def text(self) -> str:
        """The words of the reply."""
        return "".join(
            [block.text or "" for block in self.content if block.type == "text"]
        )

    @property
    def refusal(self) -> str | None:
        """The words with which the model refused, or None if it did not."""
        if self.stop_reason != "refusal":
            return None
        details = (
            self.stop_details
            if isinstance(self.stop_details, WireStopDetails)
            else WireStopDetails()
        )
        return details.explanation or self.text or "no reason"

    def completion(self, body: bytes = b"") -> Completion:
        """What the reply says; a cut, empty or malformed one gives a completion with a problem, never calls.

        `body` is where the reply was read from, to look for keys that are given twice.
        """
        calls = [block for block in self.content if block.type == "tool_use"]
        text, reason = (
            self.text,
            self.stop_reason or ("tool_use" if calls else "end_turn"),
        )
        say = functools.partial(
            Completion,
            text,
            finish_reason=FINISH.get(reason, reason),
            usage=self.usage.read() if isinstance(self.usage, WireUsage) else Usage(),
            model=self.model if isinstance(self.model, str) else "",
            reasoning=tuple(
                [
                    b.reasoning()
                    for b in self.content
                    if b.type in {"thinking", "redacted_thinking"}
                ]
            ),
        )
        if reason in CUT:
            return say(problem=_cut(reason, calls))
        if not calls:
            return (
                say(answer=text)
                if text.strip()
                else say(problem="The reply is empty. Answer, or call a tool.")
            )
        try:
            _refuse_doubles(body, calls)
            return say(calls=tuple([block.call() for block in calls]), thought=text)
        except ValueError as error:
            return say(problem=str(error))


def _cut(reason: str, calls: list[WireBlock]) -> str:
    names = [block.name for block in calls if block.name]
    where = (
        f"in a call of {names[-1]!r}; nothing was run" if names else "before its end"
    )
    return f"The reply {CUT[reason]} {where}. Say it more briefly."


def _refuse_doubles(body: bytes, calls: list[WireBlock]) -> None:
    """Raise ValueError if an object in the reply has a key twice: the reader has taken one of the two."""
    try:
        json.loads(body or b"null", object_pairs_hook=_unique)
    except ValueError as error:
        names = ", ".join([repr(block.name) for block in calls])
        raise ValueError(
            f"The arguments of the call of {names} are not valid JSON: {error}."
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def status_of(told: WireError) -> int | None:
    """The HTTP status that the type of an error stands for: how a failure is told once the status has been sent."""
    inner = told.error if isinstance(told.error, WireError) else told
    return STATUSES.get(str(inner.type)) or told.status
