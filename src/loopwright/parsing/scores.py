"""Scores, labels and choices in a judge's reply, read strictly: what is not said plainly is not a
score.
"""

import re
from collections.abc import Collection

from .tokenizer import Tokenizer

LOWEST, HIGHEST = 0.0, 10.0
MAX_CHARS = 16_384  # of a judge's reply; a longer one is not read
MARKUP = " \t*_`\"'"

_TOKENIZER = Tokenizer({"score": "score", "final": "final score", "rating": "rating"})
_BLANK = r"[ \t]*+"
_DIGITS = r"[-\u2212]?+\d{1,9}+(?:\.\d{1,9}+)?+"
_START = r"(?<![\w.,$€£¥/+\u2212-])"  # not a price, nor a part of a word, a range, a fraction or a longer number
_END = r"(?![\w%/]|[.,]\d)"
_TEN = rf"10(?:\.0)?+{_END}"
_OF_TEN = rf"{_BLANK}(?:/|out{_BLANK}of){_BLANK}{_TEN}"
_WHOLE = re.compile(rf"({_DIGITS})(?:{_OF_TEN})?+\.?+")
_RATIO = re.compile(rf"{_START}({_DIGITS}){_OF_TEN}")
_SCALE = re.compile(
    rf"\b[01]{_BLANK}(?:-|\u2013|\u2014|to|and|through){_BLANK}{_TEN}|\bout{_BLANK}of{_BLANK}{_TEN}"
)
_STATED = re.compile(
    r"\b(?:scor(?:e|es|ed)|rat(?:e|es|ed|ing)|grade[sd]?|giv(?:e|es|ing)|deserves)"
    rf"(?:{_BLANK}(?:(?:it|this|that|them|is|as|at|of|to|be|would|an?|the|score|rating)\b|[:=])){{0,5}}+{_BLANK}"
    rf"[*_`]{{0,3}}({_DIGITS}){_END}(?!{_BLANK}(?:or|to|and|-|\u2013){_BLANK}\d)",
    re.IGNORECASE,
)
_LONE = re.compile(rf"{_START}({_DIGITS}){_END}")
_SPEAKS_OF_SCORE = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|scale|rat(?:e|es|ed|ing)|grade|points?)\b", re.IGNORECASE
)
_COUNTED_BEFORE = re.compile(
    r"(?:step|thought|option|candidate|choice|branch|line|part|state|point|no\.|#)[ \t]?$",
    re.I,
)
_CHOICE = re.compile(
    r"\bbest[ \t]+(?:choice|candidate|option)[ \t]*+(?:is\b|:)(?:[ \t:*_`\"'#(\[{]|choice|candidate|option|number)*+"
    r"(?P<number>\d{1,6})(?![\w%]|[.,]\d)[ \t*_`\"')\]}]*+(?P<others>and\b|or\b|,[ \t]*+\d|/|&)?+",
    re.IGNORECASE,
)
_LONE_CHOICE = re.compile("[0-9]{1,6}")


def read_score(text: str) -> float | None:
    """Return the score from 0 to 10 that a judge gives, or `None` if the text does not say exactly
    one.

    What counts is, in this order, and all statements of one kind must agree: a line `Score: 8` or a
    line that is only a number; `8/10` or `8 out of 10`; a number behind a word such as "scores" or
    "I give"; the only number of a text that speaks of a score. The bounds of the scale, prices,
    percentages and numbers of steps are not scores. A number beyond the scale is taken as its end:
    -3 is 0 and 11 is 10, for that is what the judge meant. A text of more than 16,384 characters is
    not read.
    """
    if len(text) > MAX_CHARS:
        return None
    for find in (_find_on_lines, _RATIO.findall, _find_stated, _find_only_number):
        scores = set(map(_read_number, find(text)))
        if scores:
            return scores.pop() if len(scores) == 1 else None
    return None


def _find_on_lines(text: str) -> list[str]:
    """Return the numbers that are all that lines say, behind markers if there are any."""
    tokens = _TOKENIZER.tokenize(text).tokens
    values = [text[token.value_start :].partition("\n")[0] for token in tokens]
    lines = (line.strip(MARKUP) for line in values or text.splitlines())
    return [found[1] for found in map(_WHOLE.fullmatch, lines) if found]


def _find_stated(text: str) -> list[str]:
    return _STATED.findall(_remove_scale(text))


def _remove_scale(text: str) -> str:
    return _SCALE.sub(" ", text)


def _find_only_number(text: str) -> list[str]:
    """Return the only number of a text that speaks of a score."""
    if not _SPEAKS_OF_SCORE.search(text):
        return []
    plain = _remove_scale(text)
    numbers = [one[1] for one in _LONE.finditer(plain) if not _counts_things(one)]
    return numbers if len(numbers) == 1 else []


def _counts_things(number: re.Match[str]) -> bool:
    """Return whether a number stands behind a word such as "step", so that it is not a score."""
    start = number.start()
    return _COUNTED_BEFORE.search(number.string, max(start - 12, 0), start) is not None


def _read_number(digits: str) -> float:
    number = float(digits.replace("\u2212", "-"))
    return min(max(number, LOWEST), HIGHEST)


def read_label(text: str, labels: Collection[str]) -> str | None:
    """Return the label that the last line of a text is, without regard to case, markup and a full
    stop.
    """
    if len(text) > MAX_CHARS:
        return None
    last = text.rstrip().rpartition("\n")[2]
    stated = last.strip(MARKUP + ".\r").casefold()
    return next((label for label in labels if label.casefold() == stated), None)


def read_choice(text: str, count: int) -> int | None:
    """Return the number, from 1 to `count`, that a text says the best choice is, or that it
    consists of.

    The last statement counts. One that names several numbers, or one that is not on the list, is
    void.
    """
    if len(text) > MAX_CHARS:
        return None
    digits = text.strip(MARKUP + ".\n")
    if not _LONE_CHOICE.fullmatch(digits):
        digits = _find_stated_choice(text)
    number = int(digits or 0)
    return number if 1 <= number <= count else None


def _find_stated_choice(text: str) -> str:
    """Return the number of the last statement of a choice, or an empty text if it names several."""
    statements = list(_CHOICE.finditer(text))
    if not statements or statements[-1]["others"]:
        return ""
    return statements[-1]["number"]
