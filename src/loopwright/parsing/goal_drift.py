"""Measure how far a new message leads away from the goal before it."""

import re
from collections.abc import Sequence

from .._internal import dataclasses

MIN_DRIFT = 0.4
"""The score from which on a goal has drifted."""
MAX_CHARS = 4_000
_KEYWORDS = (
    "actually", "instead", "forget about", "forget it", "never mind", "nevermind", "on second thought", "new plan",
    "scratch that", "let me rephrase", "i meant", "change of plans?", "different approach", "something else",
)  # fmt: skip
_PATTERNS = tuple(re.compile(rf"\b{word}\b", re.IGNORECASE) for word in _KEYWORDS)
_WORD = re.compile(r"[\w'\u2019]+")
_ELLIPTIC = re.compile(
    r"\W*(?:and|but|also|why|how so|what about|how about|more|really|what if|which ones?|continue|next)\b"
    r"|.*\b(?:again|it|that|them|this|those|these|too|one|ones|same)\b",
    re.IGNORECASE | re.DOTALL,
)
"""A message that refers to what was said before, and so continues it."""
MAX_ELLIPTIC = 8
"""Words of a message that continues the goal before it."""
_SMALL_TALK = frozenset(
    """a ah all alright and awesome bye cheers cool day do done excellent fine for good got great hello hi hey i'm is it job
    just lovely much nice no nope now of ok okay perfect please right so sounds sure thank thanks that that's the then thx to
    understood very welcome well what wonderful work works yeah yep yes you your""".split()  # noqa: SIM905 - a list would be a page
)


@dataclasses.dataclass(frozen=True)
class GoalDrift:
    """How far a goal is from the one before: `score`, 0 to 1, by its words and by the `keywords` that announce a change."""

    score: float
    divergence: float
    keywords: tuple[str, ...] = ()

    @property
    def is_drift(self) -> bool:
        """Whether it counts as another goal."""
        return self.score >= MIN_DRIFT


def is_goal(text: str) -> bool:
    """Return whether a message says what is wanted; thanks, a yes, or a short question about the answer do not."""
    words = [
        word.lower().replace("\u2019", "'")
        for word in _WORD.findall(_drop_keywords(text))
    ]
    content = [word for word in words if word not in _SMALL_TALK and len(word) > 2]
    if len(content) < 2:
        return False
    refers_back = len(words) <= MAX_ELLIPTIC and _ELLIPTIC.match(text) is not None
    return not refers_back or bool(find_keywords(text))


def find_keywords(text: str) -> tuple[str, ...]:
    """Return the words of a message that announce another goal."""
    found = (pattern.search(text[:MAX_CHARS]) for pattern in _PATTERNS)
    return tuple(match[0].lower() for match in found if match is not None)


def _drop_keywords(text: str) -> str:
    return re.sub(
        "|".join(one.pattern for one in _PATTERNS),
        " ",
        text[:MAX_CHARS],
        flags=re.IGNORECASE,
    )


def find_goal(texts: Sequence[str]) -> str:
    """Return the latest of the messages that is a goal; empty if none is."""
    return next((text for text in reversed(texts) if is_goal(text)), "")


def measure_drift(goal: str, previous: str) -> GoalDrift:
    """Return how far a goal is from the previous one; 0 if either of the two is none.

    Half of it is the Jaccard divergence of their words of more than two letters; each keyword adds 0.15, at most 0.5.
    """
    if not is_goal(goal) or not is_goal(previous):
        return GoalDrift(0.0, 0.0)
    before, now = _read_words(previous), _read_words(goal)
    union = before | now
    divergence = 1 - len(before & now) / len(union) if union else 0.0
    keywords = find_keywords(goal)
    score = min(1.0, 0.5 * divergence + min(0.5, 0.15 * len(keywords)))
    return GoalDrift(round(score, 3), round(divergence, 3), keywords)


def _read_words(text: str) -> set[str]:
    words = (word.lower() for word in _WORD.findall(text[:MAX_CHARS]))
    return {word for word in words if len(word) > 2}
