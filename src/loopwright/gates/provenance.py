"""Provenance: where the values of a proposed call come from, as gates see it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..labels import Label, highest
from ..messages import Json, JsonObject

Provenance: TypeAlias = Literal["caller", "lookup", "address", "text", "derived"]
"""Where a value is from; see `docs/concepts/provenance.md`."""
BEST_FIRST: tuple[Provenance, ...] = ("caller", "lookup", "address", "text", "derived")
TRUSTED: frozenset[Provenance] = frozenset(("caller", "lookup", "address"))
MAX_LEAVES = 10_000
"""Leaves of one argument that are looked at; an argument with more counts as derived."""


@dataclasses.dataclass(frozen=True)
class ValueSource:
    """A text of the run in which a value stands.

    Args:
        kind: what that makes of the value.
        name: the tool whose result it is; "caller", or what else wrote it.
        key: the place of the result in the run; empty for what the run was given.
        label: how sensitive the text is.
        whole: whether the value is a whole value or line of a result, not only a part of a longer text.
    """

    kind: Provenance
    name: str
    key: str = ""
    label: Label = "public"
    whole: bool = dataclasses.field(default=False, compare=False)

    def __str__(self) -> str:
        if self.name == self.kind:
            return self.name
        place = f" ({self.key})" if self.key else ""
        return f"{self.kind} {self.name}{place}"


DERIVED = ValueSource("derived", "model")


@dataclasses.dataclass(frozen=True)
class ValueProvenance:
    """The provenance of one leaf of an argument; `pointer` is its place (RFC 6901).

    Trust follows the best of the `sources`, the label the most sensitive one.
    """

    pointer: str
    sources: tuple[ValueSource, ...]

    @property
    def kind(self) -> Provenance:
        """Return the best of what its sources make of it."""
        return best_of(source.kind for source in self.sources)

    @property
    def is_excerpt(self) -> bool:
        """Whether it stands in a text from outside and is only a part of a longer one there."""
        return self.kind == "text" and not any(one.whole for one in self.sources)

    @property
    def trusted(self) -> bool:
        """Whether the caller typed it, or it stands whole where outsiders do not write."""
        return self.kind in TRUSTED

    @property
    def label(self) -> Label:
        """Return the most sensitive label of its sources."""
        return highest(source.label for source in self.sources)


@dataclasses.dataclass(frozen=True)
class ArgumentProvenance:
    """The provenance of one argument; it is as trusted as the worst of its `leaves`.

    An argument without leaves (`null`, an empty text or list) says nothing, and is trusted.
    """

    leaves: tuple[ValueProvenance, ...]

    @property
    def kind(self) -> Provenance:
        """Return the worst provenance of its leaves; "caller" without any."""
        return worst_of(leaf.kind for leaf in self.leaves)

    @property
    def trusted(self) -> bool:
        """Whether all of it is trusted."""
        return all(leaf.trusted for leaf in self.leaves)

    @property
    def sources(self) -> tuple[ValueSource, ...]:
        """Return the sources of all its leaves, each once."""
        found = (source for leaf in self.leaves for source in leaf.sources)
        return tuple(dict.fromkeys(found))

    @property
    def label(self) -> Label:
        """Return the most sensitive label of its leaves."""
        return highest(leaf.label for leaf in self.leaves)


def best_of(kinds: Iterable[Provenance]) -> Provenance:
    """Return the most trusted of some kinds of provenance; "derived" if there is none."""
    return BEST_FIRST[min(map(BEST_FIRST.index, kinds), default=-1)]


def worst_of(kinds: Iterable[Provenance]) -> Provenance:
    """Return the least trusted of some kinds; "caller" of none."""
    return BEST_FIRST[max(map(BEST_FIRST.index, kinds), default=0)]


@dataclasses.dataclass(frozen=True)
class ValueTracer:
    """Finds where a leaf comes from; each function gets the leaf and the name that it stands under.

    `best` gives the best source alone, `all` gives every one, at the cost of a search in all texts.
    """

    best: Callable[[Json, str], ValueSource]
    all: Callable[[Json, str], tuple[ValueSource, ...]]


UNKNOWN = ValueTracer(lambda _, __: DERIVED, lambda _, __: (DERIVED,))
"""Knows no source, for an action that is made outside of a run."""


class CallProvenance(Mapping[str, ArgumentProvenance]):
    """The provenance of each argument of a call by name, computed when it is asked for.

    Args:
        arguments: those of the call.
        tracer: finds the sources of a value.
    """

    def __init__(self, arguments: JsonObject, tracer: ValueTracer = UNKNOWN) -> None:
        self._arguments, self._tracer = arguments, tracer
        self._found: dict[str, ArgumentProvenance] = {}

    def __getitem__(self, name: str) -> ArgumentProvenance:
        if name not in self._found:
            self._found[name] = self._trace(name, self._arguments[name])
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    @property
    def says_something(self) -> bool:
        """Whether any argument has a leaf."""
        return any(list_leaves(value, "") != [] for value in self._arguments.values())

    def has_leaves(self, name: str) -> bool:
        """Return whether the call has an argument of that name with a leaf, without looking for sources."""
        return name in self._arguments and list_leaves(self._arguments[name], "") != []

    def kind_of(self, name: str) -> Provenance:
        """Return the provenance of an argument without looking for all its sources."""
        leaves = list_leaves(self._arguments[name], name)
        if leaves is None:
            return "derived"
        best = self._tracer.best
        return worst_of(best(value, own).kind for _, value, own in leaves)

    def find_excerpts(self, min_words: int) -> list[str]:
        """Return the arguments with a text of so many words that is only a part of a longer one from outside."""
        return [
            name
            for name, value in self._arguments.items()
            if any(
                self._is_excerpt(leaf, own, min_words)
                for _, leaf, own in list_leaves(value, name) or ()
            )
        ]

    def _is_excerpt(self, leaf: Json, name: str, min_words: int) -> bool:
        if not isinstance(leaf, str) or len(leaf.split()) < min_words:
            return False
        return ValueProvenance("", self._tracer.all(leaf, name)).is_excerpt

    def _trace(self, name: str, value: Json) -> ArgumentProvenance:
        leaves = list_leaves(value, name)
        if leaves is None:
            return ArgumentProvenance((ValueProvenance("", (DERIVED,)),))
        trace = self._tracer.all
        return ArgumentProvenance(
            tuple(
                ValueProvenance(pointer, trace(leaf, own))
                for pointer, leaf, own in leaves
            )
        )


def list_leaves(value: Json, name: str) -> list[tuple[str, Json, str]] | None:
    """Return the leaves of a value that say something: pointer, leaf, name of the field around it.

    `None` is returned if there are more than `MAX_LEAVES`. The names of an object that the model
    filled in are leaves too, since it may choose them.
    """
    leaves: list[tuple[str, Json, str]] = []
    waiting: list[tuple[str, Json, str]] = [("", value, name)]
    while waiting:
        pointer, part, own = waiting.pop()
        if isinstance(part, dict):
            for key, inner in reversed(part.items()):
                place = f"{pointer}/{_escape(key)}"
                waiting.append((place, inner, key))
                leaves.append((place, key, ""))
        elif isinstance(part, list):
            numbered = list(enumerate(part))
            waiting += [(f"{pointer}/{n}", one, own) for n, one in reversed(numbered)]
        elif part is not None and part != "":
            leaves.append((pointer, part, own))
        if len(leaves) + len(waiting) > MAX_LEAVES:
            return None
    return leaves


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
