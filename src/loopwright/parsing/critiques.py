"""Critiques in model text (look-ups, verdicts, revised answers, null answers), and the ranked
results of look-ups.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..messages import Json, JsonObject
from .answers import canonicalize_answer, normalize_answer
from .arguments import Signature, get_parameters, get_required
from .fences import FENCE_STARTS, Span, find_fences, read_fence
from .json_text import as_object, read_json_document
from .tokenizer import Token, Tokenizer, find_value_end, read_value
from .verdicts import read_verdict

Verdict: TypeAlias = Literal["verified", "unverified", "none"]

FIRST_PAGES = {
    "page": 1,
    "rank": 1,
    "offset": 0,
}  # where a parameter that counts pages begins
MAX_VERDICT = 2_000  # characters of verdicts in one critique; a longer one has not come to a verdict
NO_TOOL = {"", "none", "na", "no tool", "no tool needed", "not needed"}  # normalised
NULL_ANSWERS = (
    "none", "null", "nil", "na", "no answer", "not available", "not applicable", "never", "both", "neither", "unknown",
    "no change", "no changes", "no change needed", "unchanged", "same", "same as above", "no revision",
    "no revision needed", "not needed",
)  # fmt: skip

_NO_CHANGE = re.compile(  # normalised
    r"no(?: \w+)? (?:change|revision|correction)s?(?: (?:is|are|was|were))?(?: (?:needed|required|necessary|made))?"
    r"|none (?:is |are )?(?:needed|required|necessary)"
    r"|(?:(?:original|given|above|current|draft) )?answer (?:is|remains|stands)(?: already)?"
    r"(?: (?:correct|right|unchanged|same|verified))?(?: as it (?:is|stands))?"
)

_TOKENIZER = Tokenizer(
    {
        "claim": "claim",
        "tool": "tool",
        "input": "tool input",
        "evidence": "evidence",
        "verdict": "verdict",
        "verified": "verified",
        "unverified": "unverified",
        "not_verified": "not verified",
        "revised": "revised answer",
        "possible": "most possible answer",
        "the_possible": "the most possible answer",
    }
)
_ANSWER_KINDS = {"revised", "possible", "the_possible"}
_VERDICT_KINDS = {"verdict", "verified", "unverified", "not_verified"}
_OPEN_KINDS = {
    "claim",
    "tool",
    "input",
}  # behind one of these a verdict must still come
_VERDICT_LINE = re.compile(
    r"^[*_# \t]{0,8}+(?:UN|NOT )?VERIFIED\b[^\n]*+", re.MULTILINE
)
_CONTRARY = re.compile(r"\b(?:UN|NOT )VERIFIED\b")
_VERDICT_WORD = re.compile(r"VERIFIED\b")
_REMARK = re.compile(  # words about the critique, where the answer itself is wanted
    r"\b(?:evidence|claims?|critique|look(?:ed)?[- ]?up|verif\w+|apologi[sz]e|the (?:original |given |above )?answer"
    r"|(?:no|any) changes?|need(?:s|ed)? to be changed|that matches|i (?:would|will|have|was|am|found|looked))\b",
    re.IGNORECASE,
)
_HALF_WRITTEN = re.compile(
    r"^(?:[^\w\n]|[\d_]){0,10}+(?:claim|tool|evidence|verdict|plausibility|truth|revised answer)[^\n:]{0,20}+:",
    re.MULTILINE | re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Lookup:
    """A claim to be checked, the tool as the model named it, and its input as far as it may reach."""

    claim: str
    tool: str
    input: str


@dataclasses.dataclass(frozen=True)
class ParsedCritique:
    """What one piece of a critique says.

    Args:
        text: the piece, up to the end of the look-up if there is one, and up to evidence that the
            model made up.
        lookup: the first look-up that it asks for.
        verdict: the verdict at its end; `none` if it has not come to a verdict.
        answer: the answer behind the last marker of an answer; `None` if there is none before a
            look-up.
        is_plain: whether it has no trace of the protocol and is not a remark about the critique: it
            may be an answer.
    """

    text: str
    lookup: Lookup | None = None
    verdict: Verdict = "none"
    answer: str | None = None
    is_plain: bool = False


def read_critique(text: str, *, own_evidence: bool = False) -> ParsedCritique:
    """Return what a piece of a critique says; the text behind its first look-up is not read.

    Evidence is for tools to give: from `Evidence:` on a piece is not read, unless `own_evidence`.
    """
    tokenized = _TOKENIZER.tokenize(text)
    tokens = tokenized.tokens
    if not own_evidence:
        tokens = tuple(itertools.takewhile(_is_not_evidence, tokens))
    if len(tokens) < len(tokenized.tokens):
        text = text[: tokenized.tokens[len(tokens)].start].rstrip()
        if not tokens:
            return ParsedCritique(text)
    lookup, end = _find_lookup(text, tokens)
    answers = [i for i, token in enumerate(tokens) if token.kind in _ANSWER_KINDS]
    first_answer = tokens[answers[0]].start if answers else len(text)
    if lookup is not None and first_answer >= end:
        return ParsedCritique(text[:end], lookup)
    prose = _blank_fences(text)
    has_only_text = not tokens and tokenized.unread_start is None
    return ParsedCritique(
        text.strip(),
        verdict=_read_verdict(prose, tokens),
        answer=read_value(text, tokens, answers[-1]) if answers else None,
        is_plain=has_only_text and text.strip() != "" and _has_no_trace(prose),
    )


def _is_not_evidence(token: Token) -> bool:
    return token.kind != "evidence"


def _has_no_trace(prose: str) -> bool:
    """Return whether a text shows no trace of the protocol and is not a remark about the critique."""
    traces = (_VERDICT_WORD, _HALF_WRITTEN, _REMARK)
    return not any(trace.search(prose) for trace in traces)


def _read_line(text: str, tokens: Sequence[Token], index: int) -> str:
    """Return the first line of a token's value, without the markup that the token leaves open."""
    end = find_value_end(text, tokens, index)
    value = text[tokens[index].value_start : end].strip()
    line = next(iter(value.splitlines()), "").rstrip()
    return line.removesuffix(tokens[index].markup).rstrip()


def _find_lookup(text: str, tokens: Sequence[Token]) -> tuple[Lookup | None, int]:
    """Return the first look-up that names a tool, and where it ends."""
    claim = ""
    for index, token in enumerate(tokens):
        if token.kind == "claim":
            claim = read_value(text, tokens, index)
        tool = _read_line(text, tokens, index) if token.kind == "tool" else ""
        if normalize_answer(tool) in NO_TOOL:
            continue
        following = index + 1
        if following < len(tokens) and tokens[following].kind == "input":
            given = _read_input(text, tokens, following)
            end = _find_end(text, tokens[following], given)
            return Lookup(claim, tool, given), end
        return Lookup(claim, tool, ""), _find_end(text, token, tool)
    return None, 0


def _find_end(text: str, token: Token, value: str) -> int:
    return text.index(value, token.value_start) + len(value)


def _read_input(text: str, tokens: Sequence[Token], index: int) -> str:
    """Return an input without the prose behind it: one line, or an object or a code fence, whose
    own reader ends it.
    """
    value = read_value(text, tokens, index)
    if value.startswith(("{", *FENCE_STARTS)):
        return value
    return _read_line(text, tokens, index)


def _blank_fences(text: str) -> str:
    """Return the text with blanks in place of its code fences, so that every position in it stays
    the same.
    """
    spans, _ = find_fences(text)
    stretches: list[str] = []
    position = 0
    for start, end in spans:
        stretches += [text[position:start], " " * (end - start)]
        position = end
    return "".join([*stretches, text[position:]])


def _read_verdict(prose: str, tokens: Sequence[Token]) -> Verdict:
    """Return the verdict, if a piece ends with one: verified only if that is contradicted nowhere."""
    statements = _collect_verdicts(prose, tokens)
    open_starts = [token.start for token in tokens if token.kind in _OPEN_KINDS]
    is_open = max(statements, default=-1) < max(open_starts, default=-1)
    is_too_long = sum(map(len, statements.values())) > MAX_VERDICT
    if is_open or is_too_long:
        return "none"
    verdicts = {read_verdict(words, "VERIFIED") for words in statements.values()}
    verdicts.discard(None)
    if not verdicts:
        return "none"
    is_contradicted = False in verdicts or _CONTRARY.search(prose)
    return "unverified" if is_contradicted else "verified"


def _collect_verdicts(prose: str, tokens: Sequence[Token]) -> dict[int, str]:
    """Return the statements of a verdict by where they start: with markers, or as lines by
    themselves.
    """
    statements: dict[int, str] = {}
    for index, token in enumerate(tokens):
        if token.kind in _VERDICT_KINDS:
            marker = prose[token.start : token.value_start]
            statements[token.start] = marker + read_value(prose, tokens, index)
    for line in _VERDICT_LINE.finditer(prose):
        statements.setdefault(line.start(), line[0])
    return statements


def is_null_answer(answer: str, nulls: Sequence[str] = NULL_ANSWERS) -> bool:
    """Return whether an answer says that there is none: empty, or one of `nulls` and nothing else."""
    if not answer.strip():
        return True
    normalized = normalize_answer(answer)
    if not normalized:
        return False
    if _NO_CHANGE.fullmatch(normalized):
        return True
    return normalized in map(normalize_answer, nulls)


def is_same_answer(one: str, other: str) -> bool:
    """Return whether two answers are the same: programs in them to the letter, else by
    `canonicalize_answer`.
    """
    programs = read_code(one), read_code(other)
    if any(programs):
        return programs[0] == programs[1]
    return canonicalize_answer(one, "text") == canonicalize_answer(other, "text")


def find_longest_fence(text: str) -> str | None:
    """Return the longest code fence of a text, the first of several, as it is written; `None` if
    there is none.
    """
    spans, _ = find_fences(text)
    if not spans:
        return None
    start, end = max(spans, key=_get_length)
    return text[start:end]


def _get_length(span: Span) -> int:
    start, end = span
    return end - start


def read_code(text: str) -> str | None:
    """Return the program that a text's longest code fence holds; `None` if there is no fence, or
    nothing in it.
    """
    fence = find_longest_fence(text)
    if fence is None:
        return None
    code, _ = read_fence(fence)
    return code if code.strip() else None


def read_results(text: str) -> tuple[str, ...]:
    """Return the ranked results in a tool's result: the items of a JSON list of texts or objects,
    else all of it.
    """
    try:
        value = read_json_document(text)
    except ValueError:
        return (text,)
    if not isinstance(value, list):
        return (text,)
    if not all(isinstance(item, (str, dict)) for item in value):
        return (text,)
    return tuple(map(_write_result, value))


def _write_result(item: Json) -> str:
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)


def build_next_pages(
    tool: Signature | None, arguments: JsonObject
) -> Iterator[JsonObject]:
    """Iterate over the arguments that bring the pages behind the first page of results; nothing if
    there is only one.

    The page is an optional integer parameter `page`, `rank` or `offset`: it counts from what was
    given, else its default, else 1 (0 for an offset), by one for each page.
    """
    if tool is None:
        return
    for name, schema in get_parameters(tool).items():
        keywords = as_object(schema)
        is_page = name in FIRST_PAGES and keywords.get("type") == "integer"
        if not is_page or name in get_required(tool):
            continue
        given = arguments.get(name, keywords.get("default"))
        start = given if isinstance(given, int) else FIRST_PAGES[name]
        for number in itertools.count(start + 1):
            yield {**arguments, name: number}


def quote_evidence(text: str, max_chars: int) -> str:
    """Return the first characters of a tool's result, with `> ` before lines that look like the
    protocol.
    """
    if len(text) > max_chars:
        text = f"{text[:max_chars].rstrip()} [cut]"
    return _TOKENIZER.quote(text)
