"""The response format of the Gemini API: a candidate's parts to a completion, whole or from a stream."""

import functools
from typing import Self

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from ...messages import Completion, Reasoning, Source, ToolCall, Usage
from ..base import CallDelta, Delta
from ..http.wire import Count, Lenient, Wire
from ..openai.response import EMPTY
from .request import FORM, SIGNATURE, Part

FINISH_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
MALFORMED = "The call could not be read. Call the tool again, with arguments that are valid JSON."


class WireUsage(Wire):
    """The token counts of the server, which counts thoughts and the prompts of its own tools apart."""

    prompt: Count = Field(None, alias="promptTokenCount")
    tool_prompt: Count = Field(None, alias="toolUsePromptTokenCount")
    written: Count = Field(None, alias="candidatesTokenCount")
    thoughts: Count = Field(None, alias="thoughtsTokenCount")
    cached: Count = Field(None, alias="cachedContentTokenCount")

    def read(self) -> Usage:
        """Return the counts as `Usage`, whose totals contain their parts."""
        return Usage(
            _add(self.prompt, self.tool_prompt),
            _add(self.written, self.thoughts),
            self.cached,
            reasoning_tokens=self.thoughts,
        )


def _add(one: int | None, other: int | None) -> int | None:
    if one is None and other is None:
        return None
    return (one or 0) + (other or 0)


class WireContent(Wire):
    """What a candidate says."""

    parts: Lenient[list[Part]] = None


class WirePage(Wire):
    """A page or file that grounds a reply."""

    uri: str = ""
    title: str = ""


class WireGroundingChunk(Wire):
    """One of the sources of a reply: of a search, or of a file search."""

    web: Lenient[WirePage] = None
    retrieved: Lenient[WirePage] = Field(None, alias="retrievedContext")


class WireGrounding(Wire):
    """What a search of the API found."""

    queries: Lenient[list[str]] = Field(None, alias="webSearchQueries")
    chunks: Lenient[list[WireGroundingChunk]] = Field(None, alias="groundingChunks")

    @property
    def calls(self) -> list[str]:
        """The kinds of the tools that the API ran, one for each use that shows."""
        searches = len(self.queries or ())
        files = any(chunk.retrieved is not None for chunk in self.chunks or ())
        return ["web_search"] * searches + ["file_search"] * files

    @property
    def sources(self) -> list[Source]:
        """What was found, each once."""
        found = [chunk.web or chunk.retrieved for chunk in self.chunks or ()]
        sources = [Source(one.uri or one.title, one.title) for one in found if one]
        return list(dict.fromkeys(source for source in sources if source.url))


class WireCandidate(Wire):
    """One of the alternative replies; this library asks for one."""

    content: Lenient[WireContent] = None
    finish_reason: Lenient[str] = Field(None, alias="finishReason")
    finish_message: Lenient[str] = Field(None, alias="finishMessage")
    grounding: Lenient[WireGrounding] = Field(None, alias="groundingMetadata")


class WireFeedback(Wire):
    """Why a prompt got no reply."""

    block_reason: Lenient[str] = Field(None, alias="blockReason")


class WireReply(Wire):
    """A whole reply, or a chunk of one in a stream; counts that make no sense are treated as absent."""

    candidates: list[WireCandidate] | None = None
    feedback: Lenient[WireFeedback] = Field(None, alias="promptFeedback")
    usage: Lenient[WireUsage] = Field(None, alias="usageMetadata")
    model: Lenient[str] = Field(None, alias="modelVersion")
    error: JsonValue = None

    @classmethod
    def read(cls, body: bytes | str) -> Self | None:
        """Return the reply in these bytes, or `None` if they are not a reply."""
        try:
            wire = cls.model_validate_json(body)
        except ValidationError:
            return None
        known = (wire.candidates, wire.feedback, wire.usage, wire.error)
        return wire if any(one is not None for one in known) else None


class ReplyAssembly:
    """Joins the chunks of one reply; a whole reply is a single chunk."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._usage: WireUsage | None = None
        self._model = ""
        self._calls = 0
        self._grounding: WireGrounding | None = None
        self.finish_reason = ""
        self.refusal = ""

    @property
    def text(self) -> str:
        """The text of the reply so far."""
        return "".join([str(part["text"]) for part in self._parts if is_text(part)])

    def add(self, chunk: WireReply) -> list[Delta]:
        """Add a chunk; return what it shows of the reply."""
        self._usage = chunk.usage or self._usage
        self._model = chunk.model or self._model
        if chunk.feedback is not None and chunk.feedback.block_reason:
            self.refusal = f"the prompt was blocked: {chunk.feedback.block_reason}"
        if not chunk.candidates:
            return []
        candidate = chunk.candidates[0]
        self._grounding = candidate.grounding or self._grounding
        self.finish_reason = candidate.finish_reason or self.finish_reason
        if self.finish_reason in REFUSALS:
            why = candidate.finish_message or "no reason"
            self.refusal = f"{self.finish_reason}: {why}"
        parts = (candidate.content and candidate.content.parts) or []
        return [delta for part in parts if (delta := self._add_part(part)) is not None]

    def _add_part(self, part: Part) -> Delta | None:
        if self._parts and _continues(self._parts[-1], part):
            text = f"{self._parts[-1]['text']}{part['text']}"
            self._parts[-1] = {**self._parts[-1], **part, "text": text}
        else:
            self._parts.append(part)
        text = str(part.get("text") or "")
        if "functionCall" in part:
            return self._show_call(part)
        if not text:
            return None
        return Delta(reasoning=text) if part.get("thought") else Delta(text)

    def _show_call(self, part: Part) -> Delta:
        number, self._calls = self._calls, self._calls + 1
        call = read_call(part, None, "")
        written = CallDelta(number, call.id, call.name, _write(call.arguments))
        return Delta(call=written)

    def build(self, source: str) -> Completion:
        """Return the completion; a truncated, empty or malformed reply has a problem and never calls."""
        text, calls = self.text, self._read_calls(source)
        finish = FINISH_REASONS.get(self.finish_reason, self.finish_reason.lower())
        if finish == "stop" and calls:
            finish = "tool_calls"
        build = functools.partial(
            Completion,
            text,
            finish_reason=finish,
            usage=(self._usage or WireUsage.model_construct()).read(),
            model=self._model,
            reasoning=tuple(self._list_opaque(source)),
            provider_calls=tuple(self._list_provider_calls()),
            sources=tuple(self._grounding.sources if self._grounding else ()),
        )
        if finish == "length":
            return build(problem=_explain_cut(calls))
        is_malformed = self.finish_reason == "MALFORMED_FUNCTION_CALL"
        if is_malformed or not all(map(_has_arguments, self._parts)):
            return build(problem=MALFORMED)
        if any(not call.name for call in calls):
            return build(problem="A call has no function name. Name one of the tools.")
        if calls:
            return build(calls=tuple(calls), thought=text)
        if text.strip():
            return build(answer=text)
        return build(problem=EMPTY)

    def _list_provider_calls(self) -> list[str]:
        """Return the kinds of the tools that the API ran, one for each use; parts show it, or what they found."""
        shown: list[str] = []
        for part in self._parts:
            call = part.get("toolCall")
            if "executableCode" in part:
                shown.append("code_interpreter")
            elif isinstance(call, dict):
                kind = str(call.get("toolType")).lower()
                shown.append("file_search" if "file" in kind else "web_search")
        found = self._grounding.calls if self._grounding else []
        return [*shown, *(kind for kind in found if kind not in shown)]

    @property
    def _is_opaque(self) -> bool:
        """Whether there is anything to send back besides the text and the calls themselves."""
        for part in self._parts:
            is_plain = is_text(part) or "functionCall" in part
            if SIGNATURE in part or not is_plain:
                return True
        return False

    def _list_opaque(self, source: str) -> list[Reasoning]:
        """Return what is sent back unchanged; a text is a mark of its place and length, with its signature."""
        if not self._is_opaque:
            return []
        opaque: list[Reasoning] = []
        for part in self._parts:
            if "functionCall" in part:
                continue
            shown, block = "", part
            if is_text(part):
                rest = {name: part[name] for name in part if name != "text"}
                block = {**rest, "text_length": len(str(part["text"]))}
            elif part.get("thought"):
                shown = str(part.get("text") or "")
            opaque.append(Reasoning(shown, FORM, block, source))
        return opaque

    def _read_calls(self, source: str) -> list[ToolCall]:
        calls: list[ToolCall] = []
        place = 0
        for part in self._parts:
            if "functionCall" in part:
                calls.append(read_call(part, place, source))
            else:
                place += 1
        return calls


def is_text(part: Part) -> bool:
    """Return whether a part is visible text."""
    return isinstance(part.get("text"), str) and not part.get("thought")


def _continues(before: Part, part: Part) -> bool:
    """Return whether a part continues the one before: texts of one kind, of which the first was not signed yet."""
    if SIGNATURE in before or not isinstance(part.get("text"), str):
        return False
    if not isinstance(before.get("text"), str):
        return False
    return bool(before.get("thought")) == bool(part.get("thought"))


def _has_arguments(part: Part) -> bool:
    """Return whether the arguments of a call, if a part is one, are an object; without any it has none."""
    written = part.get("functionCall")
    given = written.get("args") if isinstance(written, dict) else None
    return given is None or isinstance(given, dict)


def read_call(part: Part, place: int | None, source: str) -> ToolCall:
    """Return the call in a part, with its signature and its place among the other parts."""
    written = part.get("functionCall")
    fields = written if isinstance(written, dict) else {}
    given = fields.get("args")
    arguments = given if isinstance(given, dict) else {}
    call_id = str(fields.get("id") or "")
    call = ToolCall(str(fields.get("name") or ""), arguments, call_id)
    if place is None:
        return call
    block: Part = {"after": place, "id": bool(call_id)}
    if SIGNATURE in part:
        block[SIGNATURE] = part[SIGNATURE]
    return ToolCall(call.name, arguments, call_id, FORM, block, source)


def _write(arguments: object) -> str:
    return to_json(arguments).decode()


def _explain_cut(calls: list[ToolCall]) -> str:
    place = (
        f"in a call of {calls[-1].name!r}; nothing was run"
        if calls
        else "before its end"
    )
    return f"The reply reached the limit of output tokens and was cut {place}. Say it more briefly."
