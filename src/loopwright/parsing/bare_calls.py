"""Calls that a model writes bare: JSON of a registered tool, behind a sentence or in a code fence."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .._internal.regex import compile_late
from ..messages import Json, JsonObject, ToolCall
from .arguments import Signature, find_tool, get_parameters
from .fences import FENCE_STARTS, find_fences, read_fence
from .json_text import as_object, read_object

NAMES = ("name", "tool", "tool_name", "function", "action")
ARGUMENTS = ("arguments", "args", "parameters", "input", "action_input")
OTHER_KEYS = {"id", "type", "thought"}
SCHEMA_KEYWORDS = {"type", "properties"}
MAX_STARTS = (
    20  # braces at the start of a line, from the first, that may begin the call
)
MAX_LEAD = 200  # characters before a call that may say that it is an example
_LINE_START = compile_late(r"^[ \t]*+\{|[:.!?\u2026][ \t]++\{", re.MULTILINE)
_EXAMPLE = compile_late(
    r"\b(?:examples?|e\.g\.|for instance|such as|sample|format|template|syntax|looks? like|would|could|schema|config\w*)",
    re.IGNORECASE,
)
# A sentence that says whose words follow, or that they are not to be followed, introduces a quotation.
_QUOTED = compile_late(
    r"\b(?:says?|said|saying|states?|stated|writes?|wrote|written|reads|contain(?:s|ed|ing)?|includ(?:es|ed|ing)|"
    r"ends?\s+with|begins?\s+with|starts?\s+with|quot\w+|tells?|told|asks?|asked|instruct\w*|demand\w*|"
    r"translat\w+|attack\w*|inject\w*|malicious|suspicious|unsafe|phish\w*|fraud\w*|refus\w+|declin\w+|reject\w*|"
    r"avoid\w*|ignor\w+|never|you\s+(?:can|could|may|might|should|must|need|have))\b"
    r"|(?:\bnot|n['\u2019]t|\bcannot|\bwithout)\s+(?:\w+\s+){0,2}"
    r"(?:do|run|runn|call|mak|make|us|use|execut|follow|obey|perform|send|invok|act|compl)(?:e|y|ing|ying)?\b",
    re.IGNORECASE,
)
# "The body is:" and "Final answer:" name data.
_DATA = compile_late(
    r"\W*+(?:(?:the|my|here['\u2019]?s?|is|final|json)\s++)*+"
    r"(?:answer|results?|output|response|translation|summary|body|payload)\b[^:]*+:?+\W*+"
    r"|.*(?<!call )\b(?:is|are|was|were)\s*+:?+\W*+",
    re.IGNORECASE | re.DOTALL,
)
_SENTENCE_END = compile_late(r"[.!?\u2026]\s++|\n++")
_TAG = compile_late(r"</?+[A-Za-z][\w:-]{0,40}+(?:\s[^<>]{0,200}+)?+/?+>")
_WRAPPING_TAG = compile_late(
    r"<(?P<tag>function_calls?+|tool_calls|tool_uses?+|tools|calls?+|actions?+|response|output|assistant)\s*+>",
    re.I,
)
_QUOTING_TAG = compile_late(
    r"<(?:final[_-]?+)?+(?:answer|quote|blockquote|q|cite|pre|example|document|page)\b",
    re.IGNORECASE,
)


class BareCall(NamedTuple):
    """A call, the text before it, and the JSON as it was written."""

    thought: str
    call: ToolCall
    written: str


def unwrap_reply(text: str, *, may_be_open: bool = False) -> str | None:
    """Return what one code fence around a whole reply holds; `None` if there is none around it.

    With `may_be_open` it need not close: a stop sequence may have ended the reply inside of it.
    """
    body = text.strip()
    if not body.startswith(FENCE_STARTS):
        return None
    if may_be_open and find_fences(body) == ([], 0):
        body = f"{body}\n{body[: _count_first(body)]}"
    try:
        contents, end = read_fence(body)
    except ValueError:
        return None
    return None if body[end:].strip() else contents


def _count_first(body: str) -> int:
    """Return how often a text repeats its first character at its start."""
    return len(body) - len(body.lstrip(body[0]))


def unwrap_tag(text: str) -> str | None:
    """Return what stands between the two tags around a whole reply that say that it is calls; `None` without them."""
    body = text.strip()
    opened = _WRAPPING_TAG.match(body)
    if opened is None:
        return None
    closing = f"</{opened['tag']}>"
    inner = body[opened.end() :].removesuffix(closing)
    is_whole = body.endswith(closing) and closing not in inner
    return inner if is_whole else None


def strip_tags(text: str) -> str | None:
    """Return a reply without its XML tags; `None` if it has none, or one that marks an answer or a quotation."""
    if _QUOTING_TAG.search(text) is not None:
        return None
    stripped = _TAG.sub("", text)
    return None if stripped == text else stripped


def read_bare_call(text: str, tools: Sequence[Signature]) -> BareCall | None:
    """Return the call of a registered tool that a reply ends with; `None` without one.

    It is one JSON object with the name and the arguments, behind a sentence or in a code fence. What the text before it
    calls an example, what the sentence before it quotes or refuses, what stands between backticks, and a tool's own
    schema do not count.
    """
    body = text.strip()
    fences, unclosed = find_fences(body)
    if unclosed is not None:
        return None
    if fences and fences[-1][1] == len(body):
        start = fences[-1][0]
        contents = unwrap_reply(body[start:])
        return _read(body[:start], (contents or "").strip(), tools)
    for found in list(_LINE_START.finditer(body))[:MAX_STARTS]:
        start = found.end() - 1
        read = _read(body[:start], body[start:], tools)
        if read is not None:
            return read
    return None


def _read(before: str, written: str, tools: Sequence[Signature]) -> BareCall | None:
    try:
        found, end = read_object(written)
    except ValueError:
        return None
    if written[end:].strip() or _is_quotation(before[-MAX_LEAD:].strip()):
        return None
    call = _read_call(found, tools)
    return None if call is None else BareCall(before.strip(), call, written[:end])


def _is_quotation(before: str) -> bool:
    """Return whether a text says that what follows is an example, the words of another, or not to be done."""
    if _EXAMPLE.search(before) is not None:
        return True
    last = _SENTENCE_END.split(before)[-1]
    return _QUOTED.search(last) is not None or _DATA.fullmatch(last) is not None


def _read_call(written: dict[str, Json], tools: Sequence[Signature]) -> ToolCall | None:
    wrapped = written.get("function")
    if isinstance(wrapped, dict):
        written = wrapped
    if written.keys() - OTHER_KEYS - {*NAMES, *ARGUMENTS}:
        return None
    names = [written[key] for key in NAMES if key in written]
    arguments = [written[key] for key in ARGUMENTS if key in written]
    if len(names) != 1 or len(arguments) != 1 or not isinstance(names[0], str):
        return None
    tool = find_tool(names[0].strip(), tools)
    value = arguments[0]
    if tool is None or not isinstance(value, dict) or _is_schema(value, tool):
        return None
    return ToolCall(tool.name, value)


def _is_schema(value: JsonObject, tool: Signature) -> bool:
    """Return whether JSON describes a tool's arguments rather than gives them."""
    if get_parameters(tool).keys() >= SCHEMA_KEYWORDS or not value:
        return False
    is_described = value.keys() >= SCHEMA_KEYWORDS and value["type"] == "object"
    return is_described or all(
        {"type"} <= as_object(inner).keys() for inner in value.values()
    )
