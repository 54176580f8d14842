"""Critiques in model text (look-ups, verdicts, revised answers, null answers), and the ranked results of look-ups."""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from ..messages import JsonObject
from .answers import canonicalize_answer, normalize_answer
from .arguments import Signature, get_parameters, get_required
from .fences import find_fences, read_fence
from .json_text import read_json_document
from .tokenizer import Token, Tokenizer, find_value_end, read_value
from .verdicts import read_verdict

Verdict: TypeAlias = Literal["verified", "unverified", "none"]

PAGES = {
    "page": 1,
    "rank": 1,
    "offset": 0,
}  # parameters by which a tool goes on, and where they begin
MAX_VERDICT = (
    2_000  # characters of verdicts in one critique: who says more has not come to one
)
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
_REVISED = {"revised", "possible", "the_possible"}
_VERDICTS = {"verdict", "verified", "unverified", "not_verified"}
_OPEN = {
    "claim",
    "tool",
    "input",
}  # a critique that ends with one of these has not come to its verdict
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
        said: the piece, up to the end of the look-up if there is one, and up to evidence that the model made up.
        look_up: the first look-up that it asks for.
        verdict: what it says at its end; `none` if it has not come to a verdict.
        answer: the answer behind the last marker for one; `None` if there is none before a look-up.
        plain: whether it has no trace of the protocol and is no remark about the critique: all of it may be an answer.
    """

    said: str
    look_up: Lookup | None = None
    verdict: Verdict = "none"
    answer: str | None = None
    plain: bool = False


def read_critique(text: str, *, own_evidence: bool = False) -> ParsedCritique:
    """What a piece of a critique says; whatever follows its first look-up is not read.

    Evidence is for tools to give: from `Evidence:` on a piece is not read, unless `own_evidence`.
    """
    tokenized = _TOKENIZER.tokenize(text)
    tokens = list(tokenized.tokens)
    if not own_evidence:
        invented = next((token for token in tokens if token.kind == "evidence"), None)
        if invented is not None:
            tokens, text = (
                tokens[: tokens.index(invented)],
                text[: invented.start].rstrip(),
            )
            if not tokens:
                return ParsedCritique(text)
    look_up, end = _first_look_up(text, tokens)
    revised = [i for i, token in enumerate(tokens) if token.kind in _REVISED]
    if look_up is not None and not (revised and tokens[revised[0]].start < end):
        return ParsedCritique(text[:end], look_up)
    prose = _without_fences(text)
    unfinished = (
        tokenized.unread_start is not None
        or _VERDICT_WORD.search(prose)
        or _HALF_WRITTEN.search(prose)
    )
    return ParsedCritique(
        text.strip(),
        verdict=_verdict(prose, tokens),
        answer=read_value(text, tokens, revised[-1]) if revised else None,
        plain=not tokens
        and not unfinished
        and _REMARK.search(prose) is None
        and bool(text.strip()),
    )


def _line(text: str, tokens: Sequence[Token], index: int) -> str:
    """The first line of a marker's value, without the markup that the marker leaves open."""
    value = text[
        tokens[index].value_start : find_value_end(text, tokens, index)
    ].strip()
    return (
        next(iter(value.splitlines()), "")
        .rstrip()
        .removesuffix(tokens[index].markup)
        .rstrip()
    )


def _first_look_up(text: str, tokens: Sequence[Token]) -> tuple[Lookup | None, int]:
    """The first look-up that names a tool, and where it ends."""
    claim: int | None = None
    for i, token in enumerate(tokens):
        if token.kind == "claim":
            claim = i
        tool = _line(text, tokens, i) if token.kind == "tool" else ""
        if normalize_answer(tool) in NO_TOOL:
            continue
        last, given = i, ""
        if i + 1 < len(tokens) and tokens[i + 1].kind == "input":
            last, given = i + 1, _input(text, tokens, i + 1)
        words = given if last > i else tool
        end = text.index(words, tokens[last].value_start) + len(words)
        return Lookup(
            "" if claim is None else read_value(text, tokens, claim), tool, given
        ), end
    return None, 0


def _input(text: str, tokens: Sequence[Token], index: int) -> str:
    """An input without the prose behind it: one line, or an object or a code fence, whose own reader finds its end."""
    whole = read_value(text, tokens, index)
    return (
        whole if whole.startswith(("{", "```", "~~~")) else _line(text, tokens, index)
    )


def _without_fences(text: str) -> str:
    """The text with blanks in place of its code fences, so that every place in it stays where it is."""
    spans, _ = find_fences(text)
    parts: list[str] = []
    place = 0
    for start, end in spans:
        parts += [text[place:start], " " * (end - start)]
        place = end
    return "".join([*parts, text[place:]])


def _verdict(text: str, tokens: Sequence[Token]) -> Verdict:
    """The verdict, if a piece ends with one: verified only if that is contradicted nowhere."""
    said = {token.start: text[token.start : token.value_start] + read_value(text, tokens, i)
            for i, token in enumerate(tokens) if token.kind in _VERDICTS}  # fmt: skip
    said |= {
        found.start(): found[0]
        for found in _VERDICT_LINE.finditer(text)
        if found.start() not in said
    }
    last_open = max(
        (token.start for token in tokens if token.kind in _OPEN), default=-1
    )
    if max(said, default=-1) < last_open or sum(map(len, said.values())) > MAX_VERDICT:
        return "none"
    verdicts = {read_verdict(words, "VERIFIED") for words in said.values()} - {None}
    if not verdicts:
        return "none"
    return "verified" if all(verdicts) and not _CONTRARY.search(text) else "unverified"


def is_null_answer(answer: str, nulls: Sequence[str] = NULL_ANSWERS) -> bool:
    """Whether an answer says that there is none: empty, or one of `nulls` and nothing else."""
    said = normalize_answer(answer)
    return (
        not answer.strip()
        or _NO_CHANGE.fullmatch(said) is not None
        or (said != "" and said in {normalize_answer(null) for null in nulls})
    )


def is_same_answer(one: str, other: str) -> bool:
    """Whether two answers are the same: with programs in them, those to the letter; else as `canonicalize_answer` says."""
    programs = read_code(one), read_code(other)
    return (
        programs[0] == programs[1]
        if any(programs)
        else canonicalize_answer(one, "text") == canonicalize_answer(other, "text")
    )


def find_longest_fence(text: str) -> str | None:
    """The longest code fence of a text, the first of several, as it is written; `None` if there is none."""
    spans, _ = find_fences(text)
    if not spans:
        return None
    start, end = max(spans, key=lambda span: span[1] - span[0])
    return text[start:end]


def read_code(text: str) -> str | None:
    """The program in a text: what its longest code fence holds; `None` if there is no fence, or nothing in it."""
    fence = find_longest_fence(text)
    code = "" if fence is None else read_fence(fence)[0]
    return code if code.strip() else None


def read_results(text: str) -> tuple[str, ...]:
    """The ranked results that a tool's result is: the items of a JSON list of texts or objects, else all of it."""
    try:
        value = read_json_document(text)
    except ValueError:
        return (text,)
    if not isinstance(value, list) or not all(
        isinstance(item, (str, dict)) for item in value
    ):
        return (text,)
    return tuple(
        item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        for item in value
    )


def build_next_pages(
    tool: Signature | None, arguments: JsonObject
) -> Iterator[JsonObject]:
    """The arguments that bring what follows the first page of results, page by page; nothing if there is only one.

    A tool goes on by an optional integer parameter `page`, `rank` or `offset`: from what was given, else its default,
    else 1 (0 for an offset), by one for each page.
    """
    if tool is None:
        return
    for name, schema in get_parameters(tool).items():
        optional = name in PAGES and name not in get_required(tool)
        if optional and isinstance(schema, dict) and schema.get("type") == "integer":
            first = arguments.get(name, schema.get("default"))
            start = first if isinstance(first, int) else PAGES[name]
            yield from (
                {**arguments, name: number} for number in itertools.count(start + 1)
            )


def quoted(text: str, most: int) -> str:
    """The first `most` characters of what a tool found, with lines that look like the protocol's quoted."""
    return _TOKENIZER.quote(
        text if len(text) <= most else f"{text[:most].rstrip()} [cut]"
    )
