"""Scores, labels and choices in a judge's reply, read strictly: what is not said plainly is no score."""

import re
from collections.abc import Collection

from .tokenizer import Tokenizer

LOWEST, HIGHEST = 0.0, 10.0
MAX_CHARS = (
    16_384  # a judge says what it thinks in a few lines; what is longer is not read
)
MARKUP = " \t*_`\"'"

_TOKENIZER = Tokenizer({"score": "score", "final": "final score", "rating": "rating"})
_BLANK = r"[ \t]*+"
_DIGITS = r"[-\u2212]?+\d{1,9}+(?:\.\d{1,9}+)?+"
_START = r"(?<![\w.,$€£¥/+\u2212-])"  # no price, no part of a word, a range, a fraction or a longer number
_END = r"(?![\w%/]|[.,]\d)"
_TEN = rf"10(?:\.0)?+{_END}"
_OF_TEN = rf"{_BLANK}(?:/|out{_BLANK}of){_BLANK}{_TEN}"
_WHOLE = re.compile(rf"({_DIGITS})(?:{_OF_TEN})?+\.?+")
_RATIO = re.compile(rf"{_START}({_DIGITS}){_OF_TEN}")
_SCALE = re.compile(
    rf"\b[01]{_BLANK}(?:-|\u2013|\u2014|to|and|through){_BLANK}{_TEN}|\bout{_BLANK}of{_BLANK}{_TEN}"
)
_SAID = re.compile(
    r"\b(?:scor(?:e|es|ed)|rat(?:e|es|ed|ing)|grade[sd]?|giv(?:e|es|ing)|deserves)"
    rf"(?:{_BLANK}(?:(?:it|this|that|them|is|as|at|of|to|be|would|an?|the|score|rating)\b|[:=])){{0,5}}+{_BLANK}"
    rf"[*_`]{{0,3}}({_DIGITS}){_END}(?!{_BLANK}(?:or|to|and|-|\u2013){_BLANK}\d)",
    re.IGNORECASE,
)
_LONE = re.compile(rf"{_START}({_DIGITS}){_END}")
_SPEAKS_OF_IT = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|scale|rat(?:e|es|ed|ing)|grade|points?)\b", re.IGNORECASE
)
_COUNTS_THINGS = re.compile(
    r"(?:step|thought|option|candidate|choice|branch|line|part|state|point|no\.|#)[ \t]?$",
    re.I,
)
_CHOICE = re.compile(
    r"\bbest[ \t]+(?:choice|candidate|option)[ \t]*+(?:is\b|:)(?:[ \t:*_`\"'#(\[{]|choice|candidate|option|number)*+"
    r"(\d{1,6})(?![\w%]|[.,]\d)[ \t*_`\"')\]}]*+(and\b|or\b|,[ \t]*+\d|/|&)?+",
    re.IGNORECASE,
)


def read_score(text: str) -> float | None:
    """The score from 0 to 10 that a judge gives, or `None` if the text does not say exactly one.

    What counts is, in this order, and all that is said on one rung must agree: a line `Score: 8` or a line that is only
    a number; `8/10` or `8 out of 10`; a number behind a word such as "scores" or "I give"; the only number of a text
    that speaks of a score. The bounds of the scale, prices, percentages and numbers of steps are no scores. A number
    beyond the scale is taken as its end: -3 is 0 and 11 is 10, for that is what the judge meant. A text of more than
    16,384 characters is not read.
    """
    if len(text) > MAX_CHARS:
        return None
    for found in (
        _on_lines(text),
        _RATIO.findall(text),
        _SAID.findall(_without_scale(text)),
        _alone(text),
    ):
        scores = {_number(digits) for digits in found}
        if scores:
            return scores.pop() if len(scores) == 1 else None
    return None


def _on_lines(text: str) -> list[str]:
    tokens = _TOKENIZER.tokenize(text).tokens
    said = [text[token.value_start :].partition("\n")[0] for token in tokens]
    whole = [_WHOLE.fullmatch(line.strip(MARKUP)) for line in said or text.splitlines()]
    return [found[1] for found in whole if found]


def _without_scale(text: str) -> str:
    return _SCALE.sub(" ", text)


def _alone(text: str) -> list[str]:
    """The only number of a text that speaks of a score."""
    if not _SPEAKS_OF_IT.search(text):
        return []
    plain = _without_scale(text)
    found = [
        number[1]
        for number in _LONE.finditer(plain)
        if not _COUNTS_THINGS.search(plain, max(number.start() - 12, 0), number.start())
    ]
    return found if len(found) == 1 else []


def _number(digits: str) -> float:
    return min(max(float(digits.replace("\u2212", "-")), LOWEST), HIGHEST)


def read_label(text: str, labels: Collection[str]) -> str | None:
    """The label that the last line of a text is, without regard to case, markup and a full stop; else `None`."""
    last = text.rstrip().rpartition("\n")[2]
    said = last.strip(MARKUP + ".\r").casefold() if len(text) <= MAX_CHARS else ""
    return next((label for label in labels if label.casefold() == said), None)


def read_choice(text: str, count: int) -> int | None:
    """The number, from 1 to `count`, that a text says the best choice is, or that it consists of; else `None`.

    The last statement counts. One that names several numbers, or one that is not on the list, is void.
    """
    if len(text) > MAX_CHARS:
        return None
    bare = text.strip(MARKUP + ".\n")
    if bare.isascii() and bare.isdigit() and len(bare) <= 6:
        number = int(bare)
    else:
        said = list(_CHOICE.finditer(text))
        if not said or said[-1][2]:
            return None
        number = int(said[-1][1])
    return number if 1 <= number <= count else None
