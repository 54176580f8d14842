"""The content safety gate: it withholds or masks answers, and denies where it cannot tell."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ConfigError
from ..labels import LABELS, Label
from .base import (
    RESPOND,
    Action,
    Allow,
    Decision,
    Deny,
    InstantGate,
    Modify,
    PolicyState,
)

MASK = "[removed]"
Classify = Callable[[str], Label]


class ContentSafetyGate(InstantGate):
    """Decides about the answer of a run by patterns and a classifier; other actions it allows.

    As a gate with `answers` it fails closed: where it raises, or takes too long, the answer is withheld. Give it beside
    another gate: `AllOf(DefaultGate(), ContentSafetyGate(refuse=[...]))`. Patterns find what they say and no more: they
    do not replace a moderation service.

    Args:
        refuse: regular expressions, without regard to case; an answer in which one is found is withheld.
        mask: regular expressions; what they find is replaced by "[removed]".
        classify: returns how sensitive a text is, such as `PatternClassifier().label`.
        max_label: the highest label of an answer that is given out; needs `classify`.

    Raises `ConfigError` for a pattern or a label that cannot be read.
    """

    answers = True

    def __init__(
        self,
        refuse: Iterable[str] = (),
        mask: Iterable[str] = (),
        classify: Classify | None = None,
        max_label: Label = "sensitive",
    ) -> None:
        self._refuse, self._mask = _compile("refuse", refuse), _compile("mask", mask)
        if max_label not in LABELS:
            raise ConfigError(
                f"max_label: must be one of {', '.join(LABELS)}, got {max_label!r}"
            )
        self._classify, self._max_label = classify, max_label
        patterns = [one.pattern for one in (*self._refuse, *self._mask)]
        self.version = f"content-safety-1:{max_label}:{'|'.join(patterns)}"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Withhold an answer that must not be given, mask what it must not hold."""
        if action.tool != RESPOND:
            return Allow()
        answer: Any = action.arguments.get("answer")
        if not isinstance(answer, str):
            return Deny("the answer is not a text")
        for pattern in self._refuse:
            if pattern.search(answer):
                return Deny("the answer holds what must not be said")
        if self._is_too_sensitive(answer):
            return Deny(f"the answer is more than {self._max_label}")
        masked = answer
        for pattern in self._mask:
            masked = pattern.sub(MASK, masked)
        if masked == answer:
            return Allow()
        return Modify({**action.arguments, "answer": masked}, "parts were removed")

    def _is_too_sensitive(self, answer: str) -> bool:
        if self._classify is None:
            return False
        return LABELS.index(self._classify(answer)) > LABELS.index(self._max_label)


def _compile(field: str, patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    if isinstance(patterns, str):
        raise ConfigError(f"{field}: must be a list of patterns, got {patterns!r}")
    try:
        return tuple(re.compile(one, re.IGNORECASE) for one in patterns)
    except (re.error, TypeError) as error:
        raise ConfigError(f"{field}: holds a pattern that cannot be read: {error}") from None  # fmt: skip
