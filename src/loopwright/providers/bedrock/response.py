"""The response format of the Converse API: content blocks to a completion, whole or from a stream of events."""

from typing import Self

from pydantic import Field, JsonValue, ValidationError

from ...messages import Completion, Json, Reasoning, ToolCall, Usage
from ...parsing import read_json_document
from ..base import CallDelta, Delta
from ..http.wire import Count, Lenient, Wire
from ..openai.response import EMPTY
from .request import FORM, Block

FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
REFUSALS = ("guardrail_intervened", "content_filtered")
UNREADABLE = ("malformed_model_output", "malformed_tool_use")
CUT = "The reply reached the limit of output tokens and was cut. Say it more briefly."
MALFORMED = "The arguments of a call are not a JSON object. Call the tool again, with valid JSON."


class WireUsage(Wire):
    """The token counts of the server, which counts what a cache read or wrote apart."""

    input: Count = Field(None, alias="inputTokens")
    output: Count = Field(None, alias="outputTokens")
    cached: Count = Field(None, alias="cacheReadInputTokens")
    written: Count = Field(None, alias="cacheWriteInputTokens")

    def read(self) -> Usage:
        """Return the counts as `Usage`, whose totals contain their parts."""
        total = self.input
        if total is not None:
            total += (self.cached or 0) + (self.written or 0)
        return Usage(total, self.output, self.cached, self.written)


class WireMessage(Wire):
    """What the model says."""

    content: Lenient[list[dict[str, JsonValue]]] = None


class WireOutput(Wire):
    """The output of a whole reply."""

    message: WireMessage


class WireReply(Wire):
    """A whole reply."""

    output: WireOutput
    stop_reason: str = Field(alias="stopReason")
    usage: Lenient[WireUsage] = None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Return the reply in these bytes, or `None` if they are not a reply."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return None


class ReplyAssembly:
    """Puts a reply together from its blocks, or from the events of a stream."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._inputs: dict[int, str] = {}
        self._usage: WireUsage | None = None
        self.stop_reason = ""

    def add_reply(self, reply: WireReply) -> None:
        """Add a whole reply."""
        self._blocks = dict(enumerate(reply.output.message.content or []))
        self.stop_reason, self._usage = reply.stop_reason, reply.usage

    def add(self, kind: str, event: dict[str, JsonValue]) -> Delta | None:
        """Add an event; return what it shows of the reply. Raises ValueError for an event that makes no sense."""
        if kind == "messageStop":
            self.stop_reason = str(event.get("stopReason") or "end_turn")
        if kind == "metadata":
            self._usage = WireUsage.model_validate(event.get("usage") or {})
        if kind not in {"contentBlockStart", "contentBlockDelta"}:
            return None
        index = event.get("contentBlockIndex", 0)
        part = event.get("start" if kind == "contentBlockStart" else "delta")
        if not isinstance(index, int) or not isinstance(part, dict):
            raise ValueError("a block has no index or no content")
        return self._add_part(index, part)

    def _add_part(self, index: int, part: Block) -> Delta | None:
        block = self._blocks.setdefault(index, {})
        if isinstance(part.get("text"), str):
            block["text"] = f"{block.get('text', '')}{part['text']}"
            return Delta(text=str(part["text"]))
        use, reasoning = part.get("toolUse"), part.get("reasoningContent")
        if isinstance(use, dict):
            return self._add_call(index, block, use)
        if isinstance(reasoning, dict):
            return _add_reasoning(block, reasoning)
        return None

    def _add_call(self, index: int, block: Block, use: Block) -> Delta:
        written = str(use.pop("input", "") or "")
        known = block.get("toolUse")
        merged: Block = {**known, **use} if isinstance(known, dict) else use
        block["toolUse"] = merged
        self._inputs[index] = self._inputs.get(index, "") + written
        number = sum("toolUse" in one for one in self._blocks.values()) - 1
        call_id, name = str(use.get("toolUseId", "")), str(use.get("name", ""))
        return Delta(call=CallDelta(number, call_id, name, written))

    def build(self, model: str, source: str) -> Completion:
        """Return the completion; a truncated, empty or malformed reply has a problem and never calls."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(str(one["text"]) for one in blocks if "text" in one)
        finish = FINISH_REASONS.get(self.stop_reason, self.stop_reason)
        reply = Completion(
            text,
            finish_reason=finish,
            usage=(self._usage or WireUsage.model_construct()).read(),
            model=model,
            reasoning=tuple(read_reasoning(blocks, source)),
        )
        problem, calls = self._find_problem(finish), list[ToolCall]()
        if problem is None:
            try:
                calls = self._read_calls()
            except ValueError:
                problem = MALFORMED
        return _finish(reply, calls, problem)

    def _find_problem(self, finish: str) -> str | None:
        if finish == "length":
            return CUT
        return MALFORMED if self.stop_reason in UNREADABLE else None

    def _read_calls(self) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for index in sorted(self._blocks):
            use = self._blocks[index].get("toolUse")
            if not isinstance(use, dict):
                continue
            given: Json = use.get("input")
            if index in self._inputs:
                given = read_json_document(self._inputs[index] or "{}")
            given = {} if given is None else given
            if not isinstance(given, dict):
                raise ValueError("arguments that are not an object")
            name, call_id = str(use.get("name", "")), str(use.get("toolUseId", ""))
            calls.append(ToolCall(name, given, call_id))
        return calls


def _add_reasoning(block: Block, part: Block) -> Delta | None:
    known = block.get("reasoningContent")
    inner: Block = dict(known) if isinstance(known, dict) else {}
    block["reasoningContent"] = inner
    if "redactedContent" in part:
        inner["redactedContent"] = (
            f"{inner.get('redactedContent', '')}{part['redactedContent']}"
        )
        return None
    shown = inner.get("reasoningText")
    thought: Block = dict(shown) if isinstance(shown, dict) else {"text": ""}
    for name in ("text", "signature"):
        if isinstance(part.get(name), str):
            thought[name] = f"{thought.get(name, '')}{part[name]}"
    inner["reasoningText"] = thought
    return Delta(reasoning=str(part["text"])) if part.get("text") else None


def read_reasoning(blocks: list[Block], source: str) -> list[Reasoning]:
    """Return the blocks of reasoning, each with what the API wants back byte for byte."""
    found: list[Reasoning] = []
    for block in blocks:
        inner = block.get("reasoningContent")
        if not isinstance(inner, dict):
            continue
        shown = inner.get("reasoningText")
        text = str(shown.get("text") or "") if isinstance(shown, dict) else ""
        found.append(Reasoning(text, FORM, {"reasoningContent": inner}, source))
    return found


def _finish(
    reply: Completion, calls: list[ToolCall], problem: str | None
) -> Completion:
    """Return the reply with its calls, its answer or its problem."""
    fields = dict(vars(reply))
    if problem is not None:
        fields["problem"] = problem
    elif calls:
        fields |= {"calls": tuple(calls), "thought": reply.text}
    elif reply.text.strip():
        fields["answer"] = reply.text
    else:
        fields["problem"] = EMPTY
    return Completion(**fields)
