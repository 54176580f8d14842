"""Answers in model text: where one is announced, an answer of a given kind, and the same answer in other words."""

import collections
import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeAlias

from pydantic import BaseModel

from .json_text import read_json_document
from .tokenizer import Tokenizer

AnswerKind: TypeAlias = Literal["text", "number", "letter", "yes_no"]
AnswerType: TypeAlias = AnswerKind | type[BaseModel]

NEAR = (
    60  # characters before an announcement, or a number, that can change what it means
)
MAX_HEAD = 2_000  # characters in which a first clause ends
MAX_DIGITS = 400  # longer numbers are compared as they are written
MAX_ANNOUNCED = 20  # announcements that are looked at, from the last one
MAX_SEEN = 100  # numbers or letters of one text that are looked at: more than one is too many already

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]|_")

_AT_LINE_START = Tokenizer({"final": "final answer", "answer": "answer"})
_IN_A_LINE = re.compile(
    r"\bFINAL[ _-]ANSWER[*_]{0,3}:|\b(?i:(?:the|my|final|correct)\s(?:(?:final|correct)\s)?answer\sis\b)[*_]{0,3}:?"
)
_DOUBT = re.compile(
    r"(?:\b(?:not|never|if|whether|unless|suppose|assume|perhaps|maybe|might|could|should|cannot)\b|n['\u2019]t\b)"
    r"[^.!?\n]*+\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\W*(?:not|never|neither|either)\b", re.IGNORECASE)
_HEAD_ENDS = re.compile(
    r"[\n(;\u2014]|[.:!?](?:\s|\Z)|,\s(?!(?:(?:and|or)\s)?[$-]?[0-9])"
)
_LEFT_SIDE = re.compile(
    r"[0-9\s.,()$x+*/^\u00d7\u00f7\u00b7\u2212\u2013-]*+|\W*+[A-Za-z]\w*+\s*+",
    re.IGNORECASE,
)
_GOES_ON = re.compile(r"[.!?][*_)\]\"'\u2019]{0,4}+\s++\S")
_NEXT_STEP = re.compile(r"^\W{0,3}(?:step\s)?2\s?[.):]", re.IGNORECASE | re.MULTILINE)

_CURRENCY = "$\u20ac\u00a3\u00a5"
_NUMBER = re.compile(
    r"(?<!\w)(?<!\.)(?<![0-9],)"
    r"(?:(?:[0-9]{1,3}+(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+|\.[0-9]++)"
    r"(?:[eE][-+]?+[0-9]{1,3}+)?+(?:/[0-9]++)?+(?![.,]?[0-9])"
)
_MINUS = "-\u2212"
_BEFORE = re.compile(
    rf"(?:(?P<left>[\w)\]%])?(?P<sign>[-+*/^\u00d7\u00f7\u00b7\u2212\u2013]\s?|:)|\b(?P<word>(?:minus|negative)\s))"
    rf"[{_CURRENCY}]?\Z",
    re.IGNORECASE,
)
_SCALED = re.compile(
    r"\s?(?:hundred|thousand|million|billion|trillion|dozen|squared|cubed)\b|[kM]\b"
    r"|\s?(?:[\u00b2\u00b3\u00b9\u2070-\u2079\u00bc-\u00be\u03c0]|\\pi)"
)
_ROOT = re.compile(r"(?:\u221a|\\?sqrt[{(]?|\bhalf of )\s?\Z", re.IGNORECASE)
_OPERATOR = re.compile(r"(?:[-+/^=\u00d7\u00f7\u00b7\u2212\u2013]|\bx|(?<!\*)\*)\s*+\Z")
_BRACKETED = re.compile(r"[(\[]([A-Ea-e])[)\]]")
_LETTER = re.compile(
    r"(?<![\w'\u2019])([B-E]|A(?!\s(?!(?:is|because|since|or|nor|and|but)\b)[a-z]))(?![\w'\u2019])"
)
_REFUTED = re.compile(
    r"[)\]*_]*+\s(?:cannot\b|\w{2,6}n['\u2019]t\b|(?:is|are|was)\s(?:not|wrong|incorrect|false|out)\b)",
    re.IGNORECASE,
)
_LONE_LETTER = re.compile(r"\W*+([A-Ea-e])\W*+")
_YES_NO = re.compile(r"\b(yes|no(?=[^\S\n]*+(?:[^\w\s-]|\n|\Z)))\b", re.IGNORECASE)


def normalize_answer(answer: str) -> str:
    """An answer without case, punctuation, articles and extra blanks, so that equal answers are equal texts.

    After the evaluation script of SQuAD (Rajpurkar et al., arXiv:1606.05250), for letters of every script.
    """
    return " ".join(_ARTICLES.sub(" ", _PUNCTUATION.sub("", answer.casefold())).split())


def read_answer(reply: str, kind: AnswerType) -> str | None:
    """The answer that a reply to a question for it gives; `None` if there is none of that kind, or more than one.

    "number" gives digits without thousands commas, units and currency ("1250", "-3.5", "3/4"); "letter" one of A to E;
    "yes_no" "yes" or "no"; "text" the reply without markup around it. Of a longer reply what counts is behind "Final
    answer:" or "the answer is", else the only number (letter, word) or the one that it begins with. A pydantic model
    gives its JSON, by alias; the whole reply must be that.
    """
    announced = _announced(reply) if isinstance(kind, str) else None
    if (
        announced is not None
        and announced[1]
        and kind == "text"
        and _GOES_ON.search(reply.strip())
    ):
        announced = None  # one sentence of several, which may tell of another's answer
    return _read(reply if announced is None else announced[0], kind)


def read_closing_answer(reasoning: str, kind: AnswerType) -> str | None:
    """The answer that a text ends with, behind "Final answer:" or "the answer is"; `None` if it does not end so.

    The last announcement counts, and only if nothing follows its answer. One that is denied, doubted or asked for in
    its sentence is none.
    """
    announced = _announced(reasoning)
    if announced is None:
        return None
    value, spoken = announced
    if (spoken or kind != "text") and ("\n" in value.strip() or _GOES_ON.search(value)):
        return None
    return _read(value, kind)


def canonicalize_answer(answer: str, kind: AnswerType) -> str:
    """A text that is equal for equal answers: numbers by value, words without case, blanks and a full stop.

    It is stricter than `normalize_answer`, which makes one answer of -5 and 5, or of C and C++.
    """
    text = " ".join(answer.casefold().split()).strip("\"'`*_ ").rstrip(".!")
    number = _read_number(text) if kind == "number" or _is_number(text) else None
    if number is not None and len(number) <= MAX_DIGITS:
        return str(Fraction(number))
    return text.removeprefix("the ") or answer


def _announced(text: str) -> tuple[str, bool] | None:
    """What stands behind the last announcement of an answer, and whether that was in the middle of a line."""
    tokenized = _AT_LINE_START.tokenize(text)
    marks = (
        tokenized.tokens if tokenized.unread_start is None else ()
    )  # behind a fence that never closes might stand another one
    last = collections.deque(_IN_A_LINE.finditer(text), MAX_ANNOUNCED)
    spoken = next((found for found in reversed(last) if not _is_doubted(found)), None)
    if marks and (spoken is None or spoken.start() <= marks[-1].value_start):
        value = text[marks[-1].value_start :]
        return value.replace(marks[-1].markup, "", 1) if marks[
            -1
        ].markup else value, False
    if spoken is None:
        return None
    value = re.sub(
        r"(?<=\w\w)\.\s*\Z", "", text[spoken.end() :]
    )  # the sentence's full stop, not that of "U.S."
    return value, True


def _is_doubted(found: re.Match[str]) -> bool:
    text, start = found.string, found.start()
    line_end = text.find("\n", found.end())
    value = text[found.end() : None if line_end < 0 else line_end].rstrip()
    return bool(
        value.endswith("?") or _DENIED.match(value) or _DOUBT.search(_near(text, start))
    )


def _near(text: str, start: int) -> str:
    """What stands shortly before a place."""
    return text[max(start - NEAR, 0) : start]


def _unwrapped(text: str) -> str:
    """The text without blanks and without bold, italics or backticks around the whole of it."""
    text = text.strip()
    for mark in ("***", "**", "__", "`", "*", "_"):
        inner = text[len(mark) : -len(mark)]
        if (
            len(text) > 2 * len(mark)
            and text == f"{mark}{inner}{mark}"
            and mark not in inner
        ):
            return inner.strip()
    return text


def _read(text: str, kind: AnswerType) -> str | None:
    return (
        _READERS[kind](_unwrapped(text))
        if isinstance(kind, str)
        else _read_json(text, kind)
    )


def _head(text: str) -> str:
    """The first clause, where an answer stands that reasons follow; empty if the text begins as a list of steps."""
    opening = text[:MAX_HEAD]
    return (
        ""
        if _NEXT_STEP.search(opening)
        else _HEAD_ENDS.split(opening.lstrip(" \t\n([*_`\"'"), maxsplit=1)[0]
    )


def _read_number(text: str) -> str | None:
    found = _numbers(text)
    if len(found) == 1:
        return None if _DOUBT.search(_near(text, found[0][0])) else found[0][1]
    head = _head(text)
    left, equals, right = head.partition("=")
    said = right if equals and _LEFT_SIDE.fullmatch(left) else head
    found = _numbers(said)
    if (
        len(found) != 1
        or re.search(r"\w", said[: found[0][0]])
        or _OPERATOR.search(said[-NEAR:])
    ):
        return None
    return found[0][1]


def _numbers(text: str) -> list[tuple[int, str | None]]:
    """Where numbers start, and how each is written without commas; `None` for what only looks like one."""
    return [
        (found.start(), _written(found))
        for found in itertools.islice(_NUMBER.finditer(text), MAX_SEEN)
    ]


def _written(found: re.Match[str]) -> str | None:
    before = _BEFORE.search(_near(found.string, found.start())[-12:])
    digits = found[0].replace(",", "")
    above, slash, below = digits.partition("/")
    if (before is not None and before["left"]) or (
        slash and not (above.isdecimal() and below.strip("0"))
    ):
        return None
    if _SCALED.match(found.string, found.end()) or _ROOT.search(
        _near(found.string, found.start())
    ):
        return None  # a part of a number, as it would be read without what is around it
    negative = before is not None and (
        before["word"] or (before["sign"] or "+") in _MINUS
    )
    return f"-{digits}" if negative else digits


def _is_number(text: str) -> bool:
    found = _NUMBER.search(text)
    return (
        found is not None
        and not text[: found.start()].strip(f"{_CURRENCY}+{_MINUS} ")
        and not text[found.end() :]
    )


def _read_letter(text: str) -> str | None:
    alone = _LONE_LETTER.fullmatch(text)
    if alone is not None:
        return alone[1].upper()
    return _only(_BRACKETED, text) or _only(_LETTER, text) or _at_head(_LETTER, text)


def _read_yes_no(text: str) -> str | None:
    found = _only(_YES_NO, text) or _at_head(_YES_NO, text)
    return None if found is None else found.lower()


def _only(pattern: re.Pattern[str], text: str) -> str | None:
    """The one letter (or word) that the text names, and does not deny."""
    found = list(itertools.islice(pattern.finditer(text), MAX_SEEN))
    named = {match[1].upper() for match in found}
    if (
        len(named) != 1
        or _DOUBT.search(_near(text, found[0].start()))
        or _REFUTED.match(text, found[-1].end())
    ):
        return None
    return found[0][1].upper()


def _at_head(pattern: re.Pattern[str], text: str) -> str | None:
    head = _head(text)
    found = _only(pattern, head)
    first = pattern.search(head)
    return (
        found
        if first is not None and not re.search(r"\w", head[: first.start()])
        else None
    )


def _read_json(text: str, model: type[BaseModel]) -> str | None:
    try:
        return model.model_validate(read_json_document(text)).model_dump_json(
            by_alias=True
        )
    except ValueError:
        return None


def _read_text(text: str) -> str | None:
    return text or None


_READERS: dict[AnswerKind, Callable[[str], str | None]] = {
    "text": _read_text,
    "number": _read_number,
    "letter": _read_letter,
    "yes_no": _read_yes_no,
}
