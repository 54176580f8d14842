"""Answers in model text: announced answers, answers of a given kind, and the same answer in other
words.
"""

import collections
import itertools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel

from .json_text import read_json_document
from .tokenizer import Tokenizer

AnswerKind: TypeAlias = Literal["text", "number", "letter", "yes_no"]
AnswerType: TypeAlias = AnswerKind | type[BaseModel]

CONTEXT = (
    60  # characters before an announcement, or a number, that can change what it means
)
MAX_CLAUSE = 2_000  # characters in which a first clause ends
MAX_DIGITS = 400  # longer numbers are compared as they are written
MAX_ANNOUNCEMENTS = 20  # announcements that are looked at, from the last one
MAX_CANDIDATES = 100  # numbers or letters of one text that are looked at: more than one is too many already

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]|_")

_MARKED_ANNOUNCEMENT = Tokenizer({"final": "final answer", "answer": "answer"})
_SPOKEN_ANNOUNCEMENT = re.compile(
    r"\bFINAL[ _-]ANSWER[*_]{0,3}:|\b(?i:(?:the|my|final|correct)\s(?:(?:final|correct)\s)?answer\sis\b)[*_]{0,3}:?"
)
_DOUBT_BEFORE = re.compile(
    r"(?:\b(?:not|never|if|whether|unless|suppose|assume|perhaps|maybe|might|could|should|cannot)\b|n['\u2019]t\b)"
    r"[^.!?\n]*+\Z",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(r"\W*(?:not|never|neither|either)\b", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[\n(;\u2014]|[.:!?](?:\s|\Z)|,\s(?!(?:(?:and|or)\s)?[$-]?[0-9])"
)
_LEFT_OF_EQUALS = re.compile(
    r"[0-9\s.,()$x+*/^\u00d7\u00f7\u00b7\u2212\u2013-]*+|\W*+[A-Za-z]\w*+\s*+",
    re.IGNORECASE,
)
_NEXT_SENTENCE = re.compile(r"[.!?][*_)\]\"'\u2019]{0,4}+\s++\S")
_SECOND_STEP = re.compile(r"^\W{0,3}(?:step\s)?2\s?[.):]", re.IGNORECASE | re.MULTILINE)

_CURRENCY = "$\u20ac\u00a3\u00a5"
_NUMBER = re.compile(
    r"(?<!\w)(?<!\.)(?<![0-9],)"
    r"(?:(?:[0-9]{1,3}+(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+|\.[0-9]++)"
    r"(?:[eE][-+]?+[0-9]{1,3}+)?+(?:/[0-9]++)?+(?![.,]?[0-9])"
)
_MINUS = "-\u2212"
_NUMBER_PREFIX = re.compile(
    rf"(?:(?P<left>[\w)\]%])?(?P<sign>[-+*/^\u00d7\u00f7\u00b7\u2212\u2013]\s?|:)|\b(?P<word>(?:minus|negative)\s))"
    rf"[{_CURRENCY}]?\Z",
    re.IGNORECASE,
)
_SCALE_BEHIND = re.compile(
    r"\s?(?:hundred|thousand|million|billion|trillion|dozen|squared|cubed)\b|[kM]\b"
    r"|\s?(?:[\u00b2\u00b3\u00b9\u2070-\u2079\u00bc-\u00be\u03c0]|\\pi)"
)
_ROOT_BEFORE = re.compile(r"(?:\u221a|\\?sqrt[{(]?|\bhalf of )\s?\Z", re.IGNORECASE)
_OPERATOR = re.compile(r"(?:[-+/^=\u00d7\u00f7\u00b7\u2212\u2013]|\bx|(?<!\*)\*)\s*+\Z")
_BRACKETED = re.compile(r"[(\[]([A-Ea-e])[)\]]")
_LETTER = re.compile(
    r"(?<![\w'\u2019])([B-E]|A(?!\s(?!(?:is|because|since|or|nor|and|but)\b)[a-z]))(?![\w'\u2019])"
)
_REFUTED_BEHIND = re.compile(
    r"[)\]*_]*+\s(?:cannot\b|\w{2,6}n['\u2019]t\b|(?:is|are|was)\s(?:not|wrong|incorrect|false|out)\b)",
    re.IGNORECASE,
)
_LONE_LETTER = re.compile(r"\W*+([A-Ea-e])\W*+")
_YES_NO = re.compile(r"\b(yes|no(?=[^\S\n]*+(?:[^\w\s-]|\n|\Z)))\b", re.IGNORECASE)
_FULL_STOP = re.compile(r"(?<=\w\w)\.\s*\Z")  # of a sentence, not that of "U.S."
_WORD_CHARACTER = re.compile(r"\w")


class _Announcement(NamedTuple):
    """The text behind an announcement of an answer, and whether that stands in the middle of a
    line.
    """

    value: str
    is_spoken: bool


class _Number(NamedTuple):
    """A number in a text: where it starts, and its digits; `None` for what only looks like a
    number.
    """

    start: int
    digits: str | None


def normalize_answer(answer: str) -> str:
    """Return an answer without case, punctuation, articles and extra blanks, so that equal answers
    are equal texts.

    After the evaluation script of SQuAD (Rajpurkar et al., arXiv:1606.05250), for letters of every
    script.
    """
    plain = _PUNCTUATION.sub("", answer.casefold())
    return " ".join(_ARTICLES.sub(" ", plain).split())


def read_answer(reply: str, kind: AnswerType) -> str | None:
    """Return the answer that a reply gives to a question for it; `None` if it has none of that
    kind, or several.

    "number" gives digits without thousands commas, units and currency ("1250", "-3.5", "3/4");
    "letter" one of A to E; "yes_no" "yes" or "no"; "text" the reply without markup around it. Of a
    longer reply what counts is behind "Final answer:" or "the answer is", else the only number
    (letter, word) or the one that it begins with. A pydantic model gives its JSON, by alias; the
    whole reply must be that.
    """
    if not isinstance(kind, str):
        return _read_model(reply, kind)
    read = _READERS[kind]
    announced = _find_announcement(reply)
    if announced is None:
        return read(_strip_markup(reply))
    is_one_of_several = announced.is_spoken and _NEXT_SENTENCE.search(reply.strip())
    if kind == "text" and is_one_of_several:
        return read(_strip_markup(reply))  # the sentence may report another's answer
    return read(_strip_markup(announced.value))


def read_options(reply: str, kind: AnswerType) -> list[str]:
    """Return the answers of a kind that a reply names, in order; equal numbers count once, however
    they are written.

    Text and JSON have none: they are never ambiguous.
    """
    if not isinstance(kind, str) or kind == "text":
        return []
    if kind == "number":
        named = [found.digits for found in _find_numbers(reply) if found.digits]
        by_value = {canonicalize_answer(one, kind): one for one in reversed(named)}
        return sorted(by_value.values(), key=named.index)
    found = itertools.islice(_OPTIONS[kind].finditer(reply), MAX_CANDIDATES)
    options = dict.fromkeys(match[1].upper() for match in found)
    return [one.lower() if kind == "yes_no" else one for one in options]


def read_equal_numbers(reply: str) -> str | None:
    """Return the number that a reply gives several times, in any form ("$1,000, i.e. 1000.00");
    `None` if they differ.
    """
    numbers = _find_numbers(reply)
    options = read_options(reply, "number")
    if len(numbers) < 2 or len(options) != 1:
        return None
    is_doubted = _DOUBT_BEFORE.search(_get_context(reply, numbers[0].start))
    return None if is_doubted else options[0]


def read_closing_answer(reasoning: str, kind: AnswerType) -> str | None:
    """Return the answer that a text ends with, behind "Final answer:" or "the answer is"; `None`
    without one.

    The last announcement counts, and only if nothing follows its answer. One that is denied,
    doubted or asked for in its sentence is none.
    """
    announced = _find_announcement(reasoning)
    if announced is None:
        return None
    value = announced.value
    may_continue = kind == "text" and not announced.is_spoken
    continues = "\n" in value.strip() or _NEXT_SENTENCE.search(value)
    if continues and not may_continue:
        return None
    if not isinstance(kind, str):
        return _read_model(value, kind)
    return _READERS[kind](_strip_markup(value))


def canonicalize_answer(answer: str, kind: AnswerType) -> str:
    """Return a text that is equal for equal answers: numbers by value, words without case, blanks
    and a full stop.

    It is stricter than `normalize_answer`, which makes one answer of -5 and 5, or of C and C++.
    """
    text = " ".join(answer.casefold().split()).strip("\"'`*_ ").rstrip(".!")
    if kind == "number" or _is_number(text):
        number = _read_number(text)
        if number is not None and len(number) <= MAX_DIGITS:
            return str(Fraction(number))
    return text.removeprefix("the ") or answer


def _find_announcement(text: str) -> _Announcement | None:
    """Return the last announcement of an answer."""
    tokenized = _MARKED_ANNOUNCEMENT.tokenize(text)
    spoken = _find_spoken_announcement(text)
    # behind a fence that never closes another marker might stand
    if tokenized.tokens and tokenized.unread_start is None:
        marker = tokenized.tokens[-1]
        if spoken is None or spoken.start() <= marker.value_start:
            value = text[marker.value_start :]
            return _Announcement(value.replace(marker.markup, "", 1), is_spoken=False)
    if spoken is None:
        return None
    return _Announcement(_FULL_STOP.sub("", text[spoken.end() :]), is_spoken=True)


def _find_spoken_announcement(text: str) -> re.Match[str] | None:
    """Return the last "the answer is" that is meant."""
    found = _SPOKEN_ANNOUNCEMENT.finditer(text)
    last = collections.deque(found, MAX_ANNOUNCEMENTS)
    return next(itertools.filterfalse(_is_doubted, reversed(last)), None)


def _is_doubted(announcement: re.Match[str]) -> bool:
    """Return whether an announcement is denied, doubted or part of a question."""
    text = announcement.string
    value = text[announcement.end() :].partition("\n")[0].rstrip()
    if value.endswith("?") or _DENIED_BEHIND.match(value):
        return True
    return _has_doubt_before(announcement)


def _has_doubt_before(found: re.Match[str]) -> bool:
    return _DOUBT_BEFORE.search(_get_context(found.string, found.start())) is not None


def _get_context(text: str, start: int) -> str:
    """Return the text shortly before a position."""
    return text[max(start - CONTEXT, 0) : start]


def _strip_markup(text: str) -> str:
    """Return the text without blanks and without bold, italics or backticks around the whole of it."""
    text = text.strip()
    for delimiter in ("***", "**", "__", "`", "*", "_"):
        width = len(delimiter)
        inner = text[width:-width]
        is_wrapped = len(text) > 2 * width and text == f"{delimiter}{inner}{delimiter}"
        if is_wrapped and delimiter not in inner:
            return inner.strip()
    return text


def _get_first_clause(text: str) -> str:
    """Return the first clause, where an answer stands that reasons follow; empty if a list of steps
    begins there.
    """
    opening = text[:MAX_CLAUSE]
    if _SECOND_STEP.search(opening):
        return ""
    plain = opening.lstrip(" \t\n([*_`\"'")
    return _CLAUSE_END.split(plain, maxsplit=1)[0]


def _read_number(text: str) -> str | None:
    """Return the only number of a text, else the number that it begins with."""
    numbers = _find_numbers(text)
    if len(numbers) == 1:
        start, digits = numbers[0]
        is_doubted = _DOUBT_BEFORE.search(_get_context(text, start))
        return None if is_doubted else digits
    clause = _get_first_clause(text)
    left, equals, right = clause.partition("=")
    if equals and _LEFT_OF_EQUALS.fullmatch(left):
        clause = right
    numbers = _find_numbers(clause)
    if len(numbers) != 1 or _OPERATOR.search(clause[-CONTEXT:]):
        return None
    start, digits = numbers[0]
    has_word_before = _WORD_CHARACTER.search(clause[:start])
    return None if has_word_before else digits


def _find_numbers(text: str) -> list[_Number]:
    found = itertools.islice(_NUMBER.finditer(text), MAX_CANDIDATES)
    return [_Number(one.start(), _read_digits(one)) for one in found]


def _read_digits(found: re.Match[str]) -> str | None:
    """Return a number without commas and with its sign; `None` for what is a part of something
    longer.
    """
    digits = found[0].replace(",", "")
    if _is_part_of_expression(found) or _is_broken_fraction(digits):
        return None
    return f"-{digits}" if _is_negative(found) else digits


def _match_prefix(found: re.Match[str]) -> re.Match[str] | None:
    """Return the sign or word before a number."""
    return _NUMBER_PREFIX.search(_get_context(found.string, found.start())[-12:])


def _is_part_of_expression(found: re.Match[str]) -> bool:
    """Return whether a number is an operand, a scale or under a root, so that it means nothing by
    itself.
    """
    prefix = _match_prefix(found)
    if prefix is not None and prefix["left"]:
        return True
    if _SCALE_BEHIND.match(found.string, found.end()):
        return True
    return _ROOT_BEFORE.search(_get_context(found.string, found.start())) is not None


def _is_broken_fraction(digits: str) -> bool:
    above, slash, below = digits.partition("/")
    if not slash:
        return False
    has_denominator = below.strip("0") != ""
    return not (above.isdecimal() and has_denominator)


def _is_negative(found: re.Match[str]) -> bool:
    prefix = _match_prefix(found)
    if prefix is None:
        return False
    return bool(prefix["word"]) or (prefix["sign"] or "+") in _MINUS


def _is_number(text: str) -> bool:
    """Return whether a whole text is a number, with a sign or currency before it or not."""
    found = _NUMBER.search(text)
    if found is None or found.end() != len(text):
        return False
    return not text[: found.start()].strip(f"{_CURRENCY}+{_MINUS} ")


def _read_letter(text: str) -> str | None:
    lone = _LONE_LETTER.fullmatch(text)
    if lone is not None:
        return lone[1].upper()
    only = _find_only(_BRACKETED, text) or _find_only(_LETTER, text)
    return only or _find_at_start(_LETTER, text)


def _read_yes_no(text: str) -> str | None:
    found = _find_only(_YES_NO, text) or _find_at_start(_YES_NO, text)
    return None if found is None else found.lower()


def _find_only(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the one letter (or word) that the text names, and does not deny."""
    found = list(itertools.islice(pattern.finditer(text), MAX_CANDIDATES))
    named = {match[1].upper() for match in found}
    if len(named) != 1 or _has_doubt_before(found[0]):
        return None
    is_refuted = _REFUTED_BEHIND.match(text, found[-1].end())
    return None if is_refuted else named.pop()


def _find_at_start(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the one letter (or word) that the first clause names, if no other word stands before
    it.
    """
    clause = _get_first_clause(text)
    first = pattern.search(clause)
    if first is None or _WORD_CHARACTER.search(clause[: first.start()]):
        return None
    return _find_only(pattern, clause)


def _read_model(text: str, model: type[BaseModel]) -> str | None:
    try:
        read = model.model_validate(read_json_document(text))
        return read.model_dump_json(by_alias=True)
    except ValueError:
        return None


def _read_text(text: str) -> str | None:
    return text or None


_OPTIONS: dict[AnswerKind, re.Pattern[str]] = {
    "letter": _LETTER,
    "yes_no": _YES_NO,
}
_READERS: dict[AnswerKind, Callable[[str], str | None]] = {
    "text": _read_text,
    "number": _read_number,
    "letter": _read_letter,
    "yes_no": _read_yes_no,
}
