"""Find out where the values of a call come from, among the texts of a run."""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Final, Protocol, cast

from pydantic_core import from_json

from .._internal.regex import compile_late
from ..labels import Label
from ..messages import Json
from .provenance import BEST_FIRST, DERIVED, ValueSource

MIN_CHARS: Final = 3
"""Characters of a text that is looked for inside of others; a shorter one stands everywhere."""
TOUCHING = frozenset("@./:+-_")
"""Characters that make a longer name or address of what they touch."""
NUMERIC = frozenset("+-0123456789 \t\n\r")
"""Characters with which a number may begin."""
ENDING = ".:"
"""Those of them that may also end a sentence, or what stands before a list."""
_SCHEME = compile_late(r"\b[a-z][a-z0-9+.-]{0,20}://")
_NUMBER = compile_late(
    r"(?<![\w.,@/:+-])[-+]?\d[\d,]*(?:\.\d+)?(?![\w@/:+-]|[.,]\d)", re.ASCII
)
_PLAIN_NUMBER = compile_late(r"[-+]?\d{1,40}(?:\.\d{1,40})?", re.ASCII)
CALLER = ValueSource("caller", "caller")


def normalize(text: str) -> str:
    """Return a text as it is compared: NFKC, casefolded, with single spaces, without schemes of URLs."""
    # A text of ASCII alone is its own NFKC.
    whole = text if text.isascii() else unicodedata.normalize("NFKC", text)
    folded = whole.casefold()
    if "://" in folded:
        folded = _SCHEME.sub("", folded)
    return " ".join(folded.split())


def read_number(value: Json) -> Decimal | None:
    """Return a number, also one that is written as a text; `None` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        text = value if isinstance(value, str) else str(value)
        if isinstance(value, str) and not _PLAIN_NUMBER.fullmatch(text.strip()):
            return None
        return Decimal(text)
    except (InvalidOperation, ValueError):  # more digits than Python converts
        return None


def stands_alone(leaf: str, text: str) -> bool:
    """Return whether a normalized leaf stands in a normalized text and is not a part of something longer."""
    start = text.find(leaf)
    while start >= 0:
        end = start + len(leaf)
        if not _touches_before(text, start) and not _touches_after(text, end):
            return True
        start = text.find(leaf, start + 1)
    return False


def _touches_before(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalnum() or text[start - 1] in TOUCHING)


def _touches_after(text: str, end: int) -> bool:
    while end < len(text) and text[end] in ENDING:
        end += 1
    return end < len(text) and (text[end].isalnum() or text[end] in TOUCHING)


def is_id_name(name: str) -> bool:
    """Return whether a field or parameter of that name holds an identifier: `id`, `file_id`, `eventId`."""
    plain = name.rstrip("_")
    return plain.lower() == "id" or plain.endswith(("_id", "-id", "Id", "ID"))


class DeclaredResults(Protocol):
    """What a tool declares about its results."""

    @property
    def directory(self) -> bool:
        """Whether every value in the results may be used as a destination."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """The fields of the results whose values may be used as destinations."""
        ...


class ValueIndex:
    """The texts of one run, as values of calls are compared with them."""

    def __init__(self) -> None:
        self._typed: list[str] = []
        self._numbers: set[Decimal] = set()
        self._ordered: set[str] = set()
        # The sources of each are the keys of a dict, since one may be the same as many before.
        self._whole: dict[str, dict[ValueSource, None]] = {}
        self._ids: dict[str, dict[ValueSource, None]] = {}
        self._best: dict[str, ValueSource] = {}
        self._leaves: set[str] = set()
        self._parts: list[Iterable[Json]] = []
        self._texts: list[tuple[ValueSource, str]] = []
        self._normalized: list[str] = []

    def find_best(self, value: Json, name: str) -> ValueSource:
        """Return the best source that makes a value trusted; a derived one without any."""
        leaf = _key_of(value)
        if self._is_typed(value, leaf):
            return CALLER
        best = self._best.get(leaf)
        if best is None and is_id_name(name):
            best = next(iter(self._ids.get(leaf, ())), None)
        return best or DERIVED

    def find_all(self, value: Json, name: str, label: Label) -> tuple[ValueSource, ...]:
        """Return all sources of a value, the best first; one that is derived has `label`."""
        found = [*self._find_whole(value, name), *self._find_texts(value)]
        derived = ValueSource("derived", DERIVED.name, label=label)
        return tuple(dict.fromkeys(found)) or (derived,)

    # --- looking up ---

    def _find_whole(self, value: Json, name: str) -> Iterator[ValueSource]:
        """Yield the sources that make a value trusted, the best first."""
        leaf = _key_of(value)
        if self._is_typed(value, leaf):
            yield CALLER
        yield from sorted(self._whole.get(leaf, ()), key=_rank)
        if is_id_name(name):
            yield from self._ids.get(leaf, ())

    def _is_typed(self, value: Json, leaf: str) -> bool:
        if leaf in self._ordered:
            return True
        if not isinstance(value, str):
            return read_number(value) in self._numbers
        # Digits alone stand in dates, times and amounts too.
        if len(leaf) < MIN_CHARS or leaf.isdecimal():
            return False
        return any(stands_alone(leaf, text) for text in self._typed)

    def _find_texts(self, value: Json) -> Iterator[ValueSource]:
        """Yield the texts that a value only stands in."""
        leaf = _key_of(value)
        if len(leaf) < MIN_CHARS:
            return
        self._normalize_new()
        is_whole = leaf in self._leaves
        for (source, _), text in zip(self._texts, self._normalized, strict=True):
            if leaf in text:
                yield dataclasses.replace(source, whole=True) if is_whole else source

    def _normalize_new(self) -> None:
        """Make of what was added what texts are searched in: most runs are never asked where a value only stands in."""
        self._normalized += map(
            normalize, (text for _, text in self._texts[len(self._normalized) :])
        )
        for parts in self._parts:
            self._leaves.update(map(_key_of, parts))
        self._parts.clear()

    # --- adding ---

    def add_order(self, arguments: Json) -> None:
        """Add the arguments of a call that a person wrote."""
        self._ordered.update(_key_of(leaf) for leaf in _iterate_leaves(arguments))

    def add_endorsed(self, text: str, by: str) -> None:
        """Add a value that a person or code checked: as a whole it is as good as typed."""
        source = ValueSource("caller", f"endorsed by {by}")
        self._add_whole([text], source)

    def add_value(self, name: str, key: str, value: Json, label: Label) -> None:
        """Add a value from outside, of whose texts others may be parts."""
        for leaf in _iterate_leaves(value):
            if isinstance(leaf, str):
                self.add_text(name, key, leaf, label)

    def add_result(
        self, source: ValueSource, content: str, declared: DeclaredResults | None
    ) -> None:
        """Add the result of a tool, with what the tool declares about it; `source` is that of a part of it."""
        self.add_text(source.name, source.key, content, source.label)
        value = _parse(content)
        self._parts.append(_list_late(content, value))
        looked_up = dataclasses.replace(source, kind="lookup")
        if declared is not None and declared.directory:
            entries = _list_entries(content) if value is None else _list_all(value)
            self._add_whole(entries, looked_up)
        if value is None:
            return
        if declared is not None and declared.addresses:
            found = _iterate_fields(value, frozenset(declared.addresses).__contains__)
            self._add_whole(found, dataclasses.replace(source, kind="address"))
        for leaf in _iterate_fields(value, is_id_name):
            self._ids.setdefault(_key_of(leaf), {}).setdefault(looked_up)

    def add_typed(self, text: str) -> None:
        """Add words that the caller typed."""
        self._typed.append(normalize(text))
        for found in _NUMBER.findall(text):
            number = read_number(found.replace(",", ""))
            if number is not None:
                self._numbers.add(number)

    def add_text(self, name: str, key: str, text: str, label: Label) -> None:
        """Add a text of anyone else."""
        self._texts.append((ValueSource("text", name, key, label), text))

    def _add_whole(self, leaves: Iterable[Json], source: ValueSource) -> None:
        """Add a source in which leaves stand as a whole; of equally good ones the first is the best."""
        for leaf in leaves:
            key = _key_of(leaf)
            self._whole.setdefault(key, {}).setdefault(source)
            best = self._best.setdefault(key, source)
            if _rank(source) < _rank(best):
                self._best[key] = source


def _rank(source: ValueSource) -> int:
    return BEST_FIRST.index(source.kind)


def _key_of(value: Json) -> str:
    """Return a leaf as it is compared as a whole; numbers as numbers."""
    may_be_number = not isinstance(value, str) or value[:1] in NUMERIC
    number = read_number(value) if may_be_number else None
    if number is not None:
        return f"{number.normalize():f}" if abs(number.adjusted()) < 50 else str(number)
    return normalize(value if isinstance(value, str) else str(value))


def _parse(content: str) -> dict[str, Json] | list[Json] | None:
    """Return a result that is a JSON object or list; `None` for any other text."""
    if not content.startswith(("{", "[")):
        return None
    try:
        return cast("dict[str, Json] | list[Json]", from_json(content))
    except ValueError:
        return None


def _iterate_leaves(value: Json, *, names: bool = False) -> Iterator[Json]:
    """Yield the leaves of a value that say something, and the names of its fields if they are wanted."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
            yield from part if names else ()
        elif isinstance(part, list):
            waiting += part
        elif part not in (None, ""):
            yield part


def _list_late(content: str, value: Json) -> Iterator[Json]:
    """Yield the entries of a text, or the leaves of its value, once they are asked for."""
    yield from _list_entries(content) if value is None else _iterate_leaves(value)


def _list_all(value: Json) -> Iterator[Json]:
    return _iterate_leaves(value, names=True)


def _iterate_fields(value: Json, is_wanted: Callable[[str], bool]) -> Iterator[Json]:
    """Yield the leaves of the fields with wanted names, at any depth."""
    waiting: list[Json] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        for name, inner in part.items():
            if not is_wanted(name):
                waiting.append(inner)
            else:
                yield from _iterate_leaves(inner)


def _list_entries(text: str) -> list[Json]:
    """Return the entries of a directory that is a text: itself, and each of its lines."""
    lines = [line.strip() for line in text.splitlines()]
    behind = [line.partition(": ")[2].strip() for line in lines]
    return [text, *(entry for entry in (*lines, *behind) if entry)]
