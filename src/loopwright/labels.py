"""Labels: how sensitive a text is, in four steps, texts that carry theirs, and the port of
classifiers that say which one a text has.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, Self, TypeAlias, cast

from .errors import ConfigError

Label: TypeAlias = Literal["public", "normal", "sensitive", "secret"]
LABELS: tuple[Label, ...] = ("public", "normal", "sensitive", "secret")
"""The labels, the least sensitive first."""


CONFIDENTIAL: tuple[Label, ...] = ("sensitive", "secret")
"""The labels that gates are told of."""


def highest(labels: Iterable[Label]) -> Label:
    """Return the most sensitive of some labels; "public" of none."""
    return LABELS[max(map(LABELS.index, labels), default=0)]


def is_at_least(label: Label, minimum: Label) -> bool:
    """Return whether something is as sensitive as `minimum`, or more."""
    return LABELS.index(label) >= LABELS.index(minimum)


def check_label(label: object) -> Label:
    """Return a label; raise `ConfigError` for anything else."""
    if label in LABELS:
        return LABELS[LABELS.index(label)]
    raise ConfigError(f"label: must be one of {', '.join(LABELS)}, got {label!r:.80}")


class LabelledText(str):
    """A text that carries its provenance: how sensitive it is, and whether it is from outside.

    A run that is given one, as its task or in a message, starts with its label and as untrusted as
    it is. `Result.answer` is one if the run had read something sensitive or untrusted. A text that
    is made of it (`f"{text}"`, `text.strip()`) is a plain `str`: label that again.

    Args:
        text: the text.
        label: how sensitive it is.
        untrusted: whether any of it came from outside.
    """

    __slots__ = ("label", "untrusted")
    label: Label
    untrusted: bool

    def __new__(
        cls, text: str, *, label: Label = "public", untrusted: bool = False
    ) -> Self:
        check_label(label)
        made = super().__new__(cls, text)
        made.label, made.untrusted = label, untrusted
        return made


class Untrusted(LabelledText):
    """A text that came from outside, such as a page or a mail, so that a run that is given it is
    untrusted.
    """

    __slots__ = ()

    def __new__(
        cls, text: str, *, label: Label = "public", untrusted: bool = True
    ) -> Self:
        return super().__new__(cls, text, label=label, untrusted=untrusted)


def find_provenance(value: object) -> tuple[Label, bool]:
    """Return the highest label of the labelled texts in a value, and whether any is untrusted.

    Searched are texts, lists, tuples, sets and the values of mappings.
    """
    if isinstance(value, LabelledText):
        return value.label, value.untrusted
    if isinstance(value, str):
        return "public", False
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = cast("Mapping[object, object]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = cast("Iterable[object]", value)
    found = [find_provenance(one) for one in inner]
    return highest(label for label, _ in found), any(outside for _, outside in found)


def read_provenance(body: Mapping[str, object]) -> tuple[Label, bool]:
    """Return the label that stored data names, the lowest if it names none, and whether it says that it is untrusted."""
    named = body.get("label")
    label: Label = LABELS[LABELS.index(named)] if named in LABELS else "public"
    return label, body.get("untrusted") is True


class Classifier(Protocol):
    """Says how sensitive a text is."""

    def label(self, text: str) -> Label:
        """Return the label of a text.

        It is called once for each text that a run reads, in the event loop, so it has to be quick.
        """
        ...
