"""Verdicts in model text: one word or its contrary, read strictly."""

import functools
import re
from typing import Literal, TypeAlias

Statement: TypeAlias = Literal["word", "contrary", "question"]

CONTEXT = 60  # characters before and behind the word that are looked at
MAX_MENTIONS = 100  # a text that says the word more often is not a verdict

_BLANK = r"[\s_*~`'\"]"
_DENIED = (
    r"(?:not(?!\s+(?:only|just|merely)\b)|never|no|neither|nor|cannot|hardly|barely|far\s+from|short\s+of"
    r"|\w{2,7}n['\u2019]t)"
)
_HEDGED = r"(?:almost|nearly|half|mostly|partly|partially|would|could|might|may|should|must|to\s+be|unless|until|if|whether)"
_DENIED_OR_HEDGED_BEFORE = re.compile(
    rf"(?<![^\W_])(?:{_DENIED}|{_HEDGED})[\W_]+(?:[^\W_]+[\W_]+){{0,2}}$", re.IGNORECASE
)
_CONTRARY_PREFIX = re.compile(
    r"(?<![^\W_])(?:(?:un|in|dis|non)[_-]?|(?:un|non)\s)$", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?](?=\s)")
_REPLY_BEHIND = re.compile(
    rf"{_BLANK}*(?P<question>\?)?{_BLANK}*(?:[:=,;.\u2013\u2014-]{_BLANK}*)?(?:"
    rf"(?P<no>(?:no|nope|false|not(?:\s+(?:yet|really|quite|at\s+all|met|given))?|never|hardly)(?=[\s_*]*(?:[.,;:!)}}]|$)))"
    rf"|(?P<yes>(?:yes|true)\b))?",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    r"\s+(?:cannot|(?:\w{1,7}\s+)?(?:not|never)|\w{2,7}n['\u2019]t)\b", re.IGNORECASE
)
_QUALIFIED_BEHIND = re.compile(
    r"[\W_]*+(?:except|apart\s+from|only\b|in\s+part|partly|partially|mostly"
    r"|with\s+(?:\w+\s+)?(?:corrections?|changes?|exceptions?"
    r"|reservations?|caveats?)|(?:to\s+be|as)\s+(?:wrong|false|incorrect))",
    re.IGNORECASE,
)


def read_verdict(text: str, word: str) -> bool | None:
    """Return whether a text says `word` (such as "SATISFACTORY") or its contrary; `None` if it says
    neither.

    The contrary is the word with `UN`, `IN`, `DIS` or `NON` before it, a negation or a reserve
    ("not", "almost", "would be") shortly before it, or a "no" behind it. A question says nothing by
    itself: "SATISFACTORY? Yes" does, and one that is never answered is no. The first line with the
    word counts in any case, later ones where the word is in capitals. All statements must agree:
    one contrary makes the verdict `False`.
    """
    statements: set[Statement] = set()
    first_line: int | None = None
    for count, found in enumerate(_compile_word(word).finditer(text)):
        if count == MAX_MENTIONS:
            return None
        before = _get_line_before(found)
        is_contrary = _CONTRARY_PREFIX.search(before) is not None
        if before[-1:].isalnum() and not is_contrary:
            continue  # the end of another word
        line = text.rfind("\n", 0, found.start())
        if first_line is None:
            first_line = line
        if line != first_line and not found[0].isupper():
            continue
        statement = _read_statement(before, _get_line_behind(found))
        if is_contrary or statement == "contrary":
            return False
        statements.add(statement)
    if not statements:
        return None
    return "word" in statements


@functools.cache
def _compile_word(word: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(word)}(?![^\W_])", re.IGNORECASE)


def _get_line_before(found: re.Match[str]) -> str:
    before = found.string[max(found.start() - CONTEXT, 0) : found.start()]
    return before.rpartition("\n")[2]


def _get_line_behind(found: re.Match[str]) -> str:
    behind = found.string[found.end() : found.end() + CONTEXT]
    return behind.partition("\n")[0]


def _read_statement(before: str, behind: str) -> Statement:
    """Return what the word says between the text before and behind it."""
    if _DENIED_BEHIND.match(behind) or _QUALIFIED_BEHIND.match(behind):
        return "contrary"
    reply = _REPLY_BEHIND.match(behind)
    if reply is not None and reply["no"]:
        return "contrary"
    if reply is not None and reply["question"]:
        return "word" if reply["yes"] else "question"
    sentence = _SENTENCE_END.split(before)[-1]
    is_denied = _DENIED_OR_HEDGED_BEFORE.search(sentence) is not None
    return "contrary" if is_denied else "word"
