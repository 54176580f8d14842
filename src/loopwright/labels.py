"""Labels: how sensitive a text is, in four steps, and the port of classifiers that say which one it
has.
"""

from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

Label: TypeAlias = Literal["public", "normal", "sensitive", "secret"]
LABELS: tuple[Label, ...] = ("public", "normal", "sensitive", "secret")
"""The labels, the least sensitive first."""


def highest(labels: Iterable[Label]) -> Label:
    """Return the most sensitive of some labels; "public" of none."""
    return LABELS[max(map(LABELS.index, labels), default=0)]


def is_at_least(label: Label, minimum: Label) -> bool:
    """Return whether something is as sensitive as `minimum`, or more."""
    return LABELS.index(label) >= LABELS.index(minimum)


class Classifier(Protocol):
    """Says how sensitive a text is."""

    def label(self, text: str) -> Label:
        """Return the label of a text.

        It is called once for each text that a run reads, in the event loop, so it has to be quick.
        """
        ...
