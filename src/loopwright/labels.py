"""Labels: how sensitive a text is, in four steps, texts that carry theirs, and the port of
classifiers that say which one a text has.
"""

import copy
import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, Self, TypeAlias, cast

from pydantic import BaseModel

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

    Searched are texts, lists, tuples, sets, deques, the values of mappings, and the fields of models and dataclasses,
    each once, since a value may hold itself.
    """
    labels, is_outside = set[Label](), False
    waiting, seen = [value], dict[int, object]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, LabelledText):
            labels.add(one.label)
            is_outside = is_outside or one.untrusted
        elif id(one) not in seen and not isinstance(one, str):
            seen[id(one)] = one  # kept, so that no other value gets its id
            waiting += _list_values(one)
    return highest(labels), is_outside


def _list_values(value: object) -> Iterable[object]:
    """Return the values that a value holds; none of one that is not searched."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return cast("Iterable[object]", value)
    return _read_fields(value).values()


def check_unlabelled(field: str, text: object, place: str) -> None:
    """Raise `ConfigError` for a text whose label, or that it is from outside, would be lost at a place."""
    label, untrusted = find_provenance(text)
    if untrusted or label in CONFIDENTIAL:
        what = "untrusted" if untrusted else f"labelled {label!r}"
        raise ConfigError(
            f"{field}: the text is {what}, which {place} does not keep; give it to a run as its task or as a message, "
            "or pass str(text) if you vouch for it"
        )


def mark_texts(value: Any, label: Label, *, untrusted: bool) -> Any:
    """Return a value whose texts are labelled, where the label says something: a copy of what holds texts.

    Searched are lists, tuples, sets, deques, the values of dictionaries of any kind, and the fields of models and
    dataclasses. What was made of a text, such as an enum or a URL, stays; what a value holds twice, or in itself, is
    copied once.
    """
    if not untrusted and label not in CONFIDENTIAL:
        return value
    copies = dict[int, tuple[Any, Any]]()

    def mark(one: Any) -> Any:
        if type(one) is str:
            return LabelledText(one, label=label, untrusted=untrusted)
        if id(one) in copies:
            return copies[id(one)][1]

        def keep(copied: Any) -> Any:
            # The value is kept with its copy, so that no other one gets its id.
            copies[id(one)] = one, copied
            return copied

        return _copy_with(one, mark, keep)

    return mark(value)


def _copy_with(
    value: Any, change: Callable[[Any], Any], keep: Callable[[Any], Any]
) -> Any:
    """Return a value with what is changed inside it; itself if it is not one that holds values.

    `keep` is given the copy of a value that may hold itself before what that holds is changed.
    """
    make = _find_constructor(value)
    if make is not None and isinstance(value, (list, deque)):
        copied_items = keep(make(()))
        copied_items.extend(map(change, cast("Iterable[Any]", value)))
        return copied_items
    if make is not None:
        return make(map(change, value))
    if isinstance(value, dict):
        # A copy is of the same kind, such as one with a default.
        held = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast] # for pyright
        given: dict[Any, Any] = keep(copy.copy(held))
        for name, one in list(given.items()):  # `update` of a counter would add
            given[name] = change(one)
        return given
    fields = _read_fields(value)
    if not fields:
        return value
    copied: Any = keep(copy.copy(value))
    extra: dict[str, Any] = getattr(copied, "__pydantic_extra__", None) or {}
    for name, one in fields.items():
        if name in extra:
            extra[name] = change(one)
        else:  # neither a frozen class nor a validator has anything to say about the same text
            object.__setattr__(copied, name, change(one))
    return copied


def _find_constructor(value: object) -> Callable[[Iterable[Any]], Any] | None:
    """Return what makes a value of its items: that of a list, a deque, a tuple, also a named one, or a set."""
    for kind in (list, tuple, set, frozenset):
        if type(value) is kind:
            return cast("Callable[[Iterable[Any]], Any]", kind)
    if isinstance(value, deque):
        given = cast("deque[Any]", value)  # type: ignore[redundant-cast] # for pyright
        return functools.partial(deque[Any], maxlen=given.maxlen)
    is_tuple = issubclass(type(value), tuple)
    return getattr(value, "_make", None) if is_tuple else None


def _read_fields(value: object) -> Mapping[str, object]:
    """Return the fields of a model or a dataclass by name; nothing for any other value."""
    if isinstance(value, BaseModel):  # a class may define `__iter__` otherwise
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {}


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
