"""The response format of the Responses API: a list of items to a completion."""

import functools
from typing import Annotated, Self

from pydantic import Field, JsonValue, ValidationError

from ....messages import Completion, Reasoning, Source, ToolCall, Usage
from ....parsing import read_json_document
from ...http.wire import Count, Lenient, Wire
from ..response import EMPTY
from .request import FORM, Item

CUT_REASONS = frozenset({"max_output_tokens", "max_tokens"})
FINISH_REASONS = {"completed": "stop", "incomplete": "length"}
PROVIDER_CALLS = {
    "web_search_call": "web_search",
    "code_interpreter_call": "code_interpreter",
    "file_search_call": "file_search",
}
# Compared one by one: a damaged reply may hold types that have no hash.
CALLS = ("function_call", "custom_tool_call")


class WireInputDetails(Wire):
    """How many of the input's tokens were cached."""

    cached_tokens: Count = None
    cache_write_tokens: Count = None


class WireOutputDetails(Wire):
    """How many of the output's tokens were reasoning."""

    reasoning_tokens: Count = None


class WireUsage(Wire):
    """The token counts of the server."""

    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: Lenient[WireInputDetails] = None
    output_tokens_details: Lenient[WireOutputDetails] = None
    cost: Annotated[float | None, Field(ge=0)] = None

    def read(self) -> Usage:
        """Return the counts as `Usage`; what the server leaves out stays unknown."""
        read = self.input_tokens_details or WireInputDetails()
        written = self.output_tokens_details or WireOutputDetails()
        return Usage(
            self.input_tokens,
            self.output_tokens,
            read.cached_tokens,
            read.cache_write_tokens,
            written.reasoning_tokens,
            self.cost,
        )


class WireIncomplete(Wire):
    """Why a reply is incomplete."""

    reason: str | None = None


class WireReply(Wire):
    """A whole reply; counts that make no sense are treated as absent."""

    output: list[Item]
    status: Lenient[str] = None
    incomplete_details: Lenient[WireIncomplete] = None
    error: JsonValue = None
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
    def build(cls, fields: Item) -> Self | None:
        """Return the reply with these fields, or `None` if they do not make a reply."""
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None

    @property
    def has_failed(self) -> bool:
        """Whether the model broke down half-way."""
        return self.status in {"failed", "cancelled"} or bool(self.error)

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter ended the reply."""
        return self._cause == "content_filter"

    @property
    def is_cut(self) -> bool:
        """Whether the reply is incomplete, by the limit of output tokens or for a reason that is not told."""
        return self.status == "incomplete" or self._cause in CUT_REASONS

    @property
    def text(self) -> str:
        """The text of the reply."""
        return "".join(map(read_text, self._list_items("message")))

    @property
    def refusal(self) -> str:
        """The text of a refusal, or an empty text."""
        messages = self._list_items("message")
        return "".join([read_parts(item, "refusal") for item in messages])

    @property
    def _cause(self) -> str:
        return (self.incomplete_details and self.incomplete_details.reason) or ""

    def completion(self, source: str) -> Completion:
        """Return the completion; a truncated, empty or malformed reply has a problem and never calls.

        `source` is where the opaque data came from.
        """
        text = self.text
        calls = [item for item in self.output if item.get("type") in CALLS]
        status = self.status or "completed"
        finish = FINISH_REASONS.get(status, status)
        if calls and finish == "stop":
            finish = "tool_calls"
        build = functools.partial(
            Completion,
            text,
            finish_reason="length" if self.is_cut else finish,
            usage=(self.usage or WireUsage()).read(),
            model=self.model or "",
            reasoning=tuple(self._list_opaque(source)),
            provider_calls=self._provider_calls,
            sources=self._sources,
        )
        if self.is_cut:
            return build(problem=explain_cut(calls))
        if calls:
            try:
                return build(calls=tuple(self._read_calls(source)), thought=text)
            except ValueError as error:
                return build(problem=str(error))
        if text.strip():
            return build(answer=text)
        return build(problem=EMPTY)

    @property
    def _provider_calls(self) -> tuple[str, ...]:
        kinds = [PROVIDER_CALLS.get(str(item.get("type"))) for item in self.output]
        return tuple(filter(None, kinds))

    @property
    def _sources(self) -> tuple[Source, ...]:
        """The pages and files that the text refers to, each once."""
        found: dict[str, Source] = {}
        for item in self._list_items("message"):
            for part in list_dicts(item.get("content")):
                for note in list_dicts(part.get("annotations")):
                    url = str(note.get("url") or note.get("file_id") or "")
                    title = str(note.get("title") or note.get("filename") or "")
                    found.setdefault(url, Source(url, title))
        return tuple(source for url, source in found.items() if url)

    def _list_items(self, kind: str) -> list[Item]:
        return [item for item in self.output if item.get("type") == kind]

    def _list_opaque(self, source: str) -> list[Reasoning]:
        """Return what is sent back unchanged; a message is a mark of its place, whose text the message holds."""
        kinds = {str(item.get("type")) for item in self.output}.difference(CALLS)
        if kinds <= {"message"} and not self._has_phase:
            return []
        opaque: list[Reasoning] = []
        for item in self.output:
            if item.get("type") == "message":
                mark = {
                    name: item[name] for name in ("type", "phase") if item.get(name)
                }
                opaque.append(Reasoning("", FORM, mark, source))
            elif item.get("type") not in CALLS:
                opaque.append(Reasoning(read_reasoning(item), FORM, item, source))
        return opaque

    @property
    def _has_phase(self) -> bool:
        return any(item.get("phase") for item in self._list_items("message"))

    def _read_calls(self, source: str) -> list[ToolCall]:
        """Return the calls, each with its place among the opaque items; raise ValueError as `read_call` does."""
        calls: list[ToolCall] = []
        place = 0
        marks_places = bool(self._list_opaque(source))
        for item in self.output:
            if item.get("type") not in CALLS:
                place += marks_places
                continue
            block: Item = {"after": place, "id": item.get("id")}
            calls.append(read_call(item, block if marks_places else None, source))
        return calls


def read_call(item: Item, block: Item | None, source: str) -> ToolCall:
    """Return the call in an item.

    Raises:
        ValueError: it cannot be read; the text tells the model why.
    """
    name, call_id = item.get("name"), item.get("call_id")
    if not isinstance(name, str) or not name:
        raise ValueError("A tool call has no function name. Name one of the tools.")
    arguments = _read_arguments(item, name)
    if not isinstance(arguments, dict):
        raise ValueError(
            f"The arguments of the call of {name!r} are not a JSON object; no arguments is {{}}."
        )
    written_id = call_id if isinstance(call_id, str) else ""
    if block is None:
        return ToolCall(name, arguments, written_id)
    return ToolCall(name, arguments, written_id, FORM, block, source)


def _read_arguments(item: Item, name: str) -> JsonValue:
    if item.get("type") == "custom_tool_call":
        return {"input": item.get("input")}
    written = item.get("arguments")
    if not isinstance(written, str):
        return {} if written is None else written
    try:
        return read_json_document(written) if written.strip() else {}
    except ValueError as error:
        raise ValueError(
            f"The arguments of the call of {name!r} are not valid JSON: {error}."
        ) from None


def list_dicts(value: JsonValue) -> list[Item]:
    """Return the objects in a list, if it is one."""
    listed = value if isinstance(value, list) else []
    return [one for one in listed if isinstance(one, dict)]


def read_text(item: Item) -> str:
    """Return the text of a message."""
    return read_parts(item, "text")


def read_parts(item: Item, field: str, of: str = "content") -> str:
    """Return a field of the parts of an item, joined."""
    parts = item.get(of)
    if not isinstance(parts, list):
        return ""
    texts = [part.get(field) for part in parts if isinstance(part, dict)]
    return "".join([text for text in texts if isinstance(text, str)])


def read_reasoning(item: Item) -> str:
    """Return the readable text of an item of reasoning: its summary, or else its content."""
    if item.get("type") != "reasoning":
        return ""
    summary = item.get("summary")
    parts = summary if isinstance(summary, list) else []
    texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
    return "\n\n".join(texts) or read_text(item)


def explain_cut(calls: list[Item]) -> str:
    """Return what the model is told about a reply that was cut."""
    names = [str(item["name"]) for item in calls if item.get("name")]
    place = "before its end"
    if names:
        place = f"in a call of {names[-1]!r}; nothing was run"
    return f"The reply reached the limit of output tokens and was cut {place}. Say it more briefly."
