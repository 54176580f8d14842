"""Verdicts in model text: one word or its contrary, read strictly."""

import functools
import re

NEAR = 60  # characters before and behind the word that are looked at
MAX_SAID = 100  # a text that says the word more often is no verdict

_BLANK = r"[\s_*~`'\"]"
_DENIED = (
    r"(?:not(?!\s+(?:only|just|merely)\b)|never|no|neither|nor|cannot|hardly|barely|far\s+from|short\s+of"
    r"|\w{2,7}n['\u2019]t)"
)
_HEDGED = r"(?:almost|nearly|half|mostly|partly|partially|would|could|might|may|should|must|to\s+be|unless|until|if|whether)"
_BEFORE = re.compile(
    rf"(?<![^\W_])(?:{_DENIED}|{_HEDGED})[\W_]+(?:[^\W_]+[\W_]+){{0,2}}$", re.IGNORECASE
)
_CONTRARY = re.compile(
    r"(?<![^\W_])(?:(?:un|in|dis|non)[_-]?|(?:un|non)\s)$", re.IGNORECASE
)
_SENTENCE = re.compile(r"[.!?](?=\s)")
_BEHIND = re.compile(
    rf"{_BLANK}*(?P<asked>\?)?{_BLANK}*(?:[:=,;.\u2013\u2014-]{_BLANK}*)?(?:"
    rf"(?P<no>(?:no|nope|false|not(?:\s+(?:yet|really|quite|at\s+all|met|given))?|never|hardly)(?=[\s_*]*(?:[.,;:!)}}]|$)))"
    rf"|(?P<yes>(?:yes|true)\b))?",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\s+(?:cannot|(?:\w{1,7}\s+)?(?:not|never)|\w{2,7}n['\u2019]t)\b", re.IGNORECASE
)
_RESERVED = re.compile(
    r"[\W_]*+(?:except|apart\s+from|only\b|in\s+part|partly|partially|mostly"
    r"|with\s+(?:\w+\s+)?(?:corrections?|changes?|exceptions?"
    r"|reservations?|caveats?)|(?:to\s+be|as)\s+(?:wrong|false|incorrect))",
    re.IGNORECASE,
)


def read_verdict(text: str, word: str) -> bool | None:
    """Whether a text says `word` (such as "SATISFACTORY") or its contrary; `None` if it says neither.

    The contrary is the word with `UN`, `IN`, `DIS` or `NON` before it, a negation or a reserve ("not", "almost",
    "would be") shortly before it, or a "no" behind it. A question says nothing by itself: "SATISFACTORY? Yes" does, and
    one that is never answered is no. The first line with the word counts in any case of letters, later ones where the
    word is in capitals. Everything that is said must agree: one contrary makes the verdict `False`.
    """
    said = asked = False
    first_line: int | None = None
    for count, found in enumerate(_pattern(word).finditer(text)):
        if count == MAX_SAID:
            return None
        before = text[max(found.start() - NEAR, 0) : found.start()].rpartition("\n")[2]
        contrary = _CONTRARY.search(before) is not None
        line = text.rfind("\n", 0, found.start())
        if not contrary and before[-1:].isalnum():
            continue  # the end of another word
        first_line = line if first_line is None else first_line
        if line != first_line and not found[0].isupper():
            continue
        verdict = (
            False
            if contrary
            else _reading(
                before, text[found.end() : found.end() + NEAR].partition("\n")[0]
            )
        )
        if verdict is False:
            return False
        said, asked = said or verdict is True, asked or verdict is None
    return True if said else (False if asked else None)


@functools.cache
def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(word)}(?![^\W_])", re.IGNORECASE)


def _reading(before: str, behind: str) -> bool | None:
    """What the word says between what stands before and behind it: itself, its contrary, or (`None`) a question."""
    reply = _BEHIND.match(behind)
    if (
        _REFUSED.match(behind)
        or _RESERVED.match(behind)
        or (reply is not None and reply["no"])
    ):
        return False
    if reply is not None and reply["asked"]:
        return True if reply["yes"] else None
    return _BEFORE.search(_SENTENCE.split(before)[-1]) is None
