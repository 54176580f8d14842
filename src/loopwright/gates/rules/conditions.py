"""What a rule says about the arguments of a call: each condition holds, does not hold, or cannot be told."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ..._internal.options import Options
from ...errors import ConfigError
from ...messages import Json, JsonObject
from ..json_pointer import ABSENT, Found, Nothing, find, read_pointer
from ..matching import expression, text_globs
from .destinations import read_destinations, read_place
from .paths import within

MAX_TEXT = 10_000
"""Characters of a text that is looked at; of a longer one nothing can be told."""

MAX_DESTINATIONS = 50_000
"""Characters of all texts together that are looked at for destinations; of more nothing can be told."""
WEIGHT = 5
"""So many characters counts each of a text that is not ASCII, since other names of hosts take longer to read."""

Scalar: TypeAlias = (
    StrictBool
    | StrictInt
    | StrictStr
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
)
Number: TypeAlias = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Texts: TypeAlias = Annotated[tuple[StrictStr, ...], Field(min_length=1)]
Told: TypeAlias = bool | None
"""Whether something holds; `None` where that cannot be told, as of a text whether it is more than 5."""
Test: TypeAlias = Callable[[Json], Told]


class Condition(Options):
    """A condition on one argument of a call: all tests that it names have to hold of the value there.

    Args:
        argument: where the value is, as a JSON pointer (RFC 6901): "/path", "/to/0", ``/items/*/price`` for every one.
        missing: `True`: there is no such value, or it is null; `False`: there is one. Goes alone.
        equals: the value, of the same type; 5 and 5.0 are the same number.
        one_of: the values that it may have.
        more_than: a number that it is above; likewise `less_than`, `at_least` and `at_most`.
        max_length: it has at most so many characters, or elements.
        glob: globs of which one fits the whole text: `*` is any text, `?` one character; case counts.
        matches: a regular expression that the whole text fits, in the syntax of Rust's `regex`: no look-around.
        destinations: hosts and mail addresses: all URLs, addresses and host names in the text, or list of texts, lead
            there: "example.com", ``*.example.com`` for all below it, ``*@example.com`` for mail, "bob@example.com".
        within: folders of which the path is in one; no "..", and relative paths for relative folders only.
        negate: the condition holds of a value of which its tests do not hold.

    A condition does not hold of a value that is not there, unless it says `missing`. It cannot be told of a value of
    another type, of one that is not clear (a URL that two clients may read differently; a text that fits only if a
    star or dot may be a line break), and of several values where it holds of some only. Raises `ConfigError`.
    """

    argument: str
    missing: StrictBool | None = None
    equals: Scalar | None = None
    one_of: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    more_than: Number | None = None
    less_than: Number | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    max_length: Annotated[int, Field(strict=True, ge=0)] | None = None
    glob: Texts | None = None
    matches: str | None = None
    destinations: Texts | None = None
    within: Texts | None = None
    negate: StrictBool = False

    def __post_init__(self) -> None:
        """Check what the types do not tell."""
        teller(self)


def teller(condition: Condition) -> Callable[[JsonObject], Told]:
    """The function that tells whether a condition holds of some arguments. Raises `ConfigError`, naming the field."""
    pointer = _named("argument", read_pointer, condition.argument)
    tests = [
        test
        for field, make in TESTS.items()
        if (test := _test(condition, field, make)) is not None
    ]
    missing = condition.missing
    if missing is None and not tests:
        raise ConfigError(
            f"{condition.argument}: say what has to hold of it: missing, {', '.join(TESTS)}"
        )
    if missing is not None and (tests or condition.negate):
        raise ConfigError("missing: goes alone, in a condition of its own")

    def tell(value: Found) -> Told:
        if isinstance(value, Nothing):
            return None if value is not ABSENT else missing is True
        if missing is not None:
            return not missing
        told = (
            tests[0](value) if len(tests) == 1 else both(test(value) for test in tests)
        )
        return told if told is None else told is not condition.negate

    def tell_all(arguments: JsonObject) -> Told:
        found = find(arguments, pointer)
        if (
            condition.destinations is not None
            and sum(map(_size, found)) > MAX_DESTINATIONS
        ):
            return None
        return tell(found[0]) if len(found) == 1 else _same(map(tell, found))

    return tell_all


def both(told: Iterable[Told]) -> Told:
    """Whether all of some things hold: one that does not is enough to know (Kleene's three-valued "and")."""
    unknown = False
    for one in told:
        if one is False:
            return False
        unknown = unknown or one is None
    return None if unknown else True


def _same(told: Iterable[Told]) -> Told:
    """What is told of all alike; `None` if it differs."""
    said = set(told)
    return said.pop() if len(said) == 1 else None


def _test(condition: Condition, field: str, make: Callable[[Any], Test]) -> Test | None:
    wanted = getattr(condition, field)
    return None if wanted is None else _named(field, make, wanted)


def _named(field: str, make: Callable[[Any], Any], wanted: Any) -> Any:
    try:
        return make(wanted)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None


def _kind(value: Json) -> type | None:
    """The type of a value as JSON has it: a number is a number, and `true` is none; `None` for NaN and structures."""
    if isinstance(value, (bool, str)):
        return type(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return float
    return None


def _one_of(wanted: tuple[Scalar, ...]) -> Test:
    allowed = {(_kind(one), one) for one in wanted}
    kinds = {kind for kind, _ in allowed}

    def test(value: Json) -> Told:
        kind = _kind(value)
        return (kind, value) in allowed if kind in kinds else None

    return test


def _bound(fits: Callable[[float], bool]) -> Test:
    return lambda value: (
        fits(value)
        if isinstance(value, (int, float)) and _kind(value) is float
        else None
    )


def _on_text(test: Callable[[str], Told]) -> Test:
    return lambda value: (
        test(value) if isinstance(value, str) and len(value) <= MAX_TEXT else None
    )


def _max_length(most: int) -> Test:
    return lambda value: len(value) <= most if isinstance(value, (str, list)) else None


def _size(value: Found) -> int:
    """The characters of a text, or of the texts in a list, as `MAX_DESTINATIONS` counts them."""
    texts: Sequence[Found] = value if isinstance(value, list) else [value]
    return sum(
        len(text) * (1 if text.isascii() else WEIGHT)
        for text in texts
        if isinstance(text, str)
    )


def _destinations(wanted: tuple[str, ...]) -> Test:
    places = tuple(map(read_place, wanted))

    def of_text(text: str) -> Told:
        found = read_destinations(text)
        if found is None:
            return None
        return (
            _same(any(place.has(one) for place in places) for one in found)
            if found
            else False
        )

    one_text = _on_text(of_text)

    def test(value: Json) -> Told:
        if not isinstance(value, list):
            return one_text(value)
        return _same(map(one_text, value)) if value else False

    return test


TESTS: dict[str, Callable[[Any], Test]] = {
    "equals": lambda wanted: _one_of((wanted,)),
    "one_of": _one_of,
    "more_than": lambda bound: _bound(lambda value: value > bound),
    "less_than": lambda bound: _bound(lambda value: value < bound),
    "at_least": lambda bound: _bound(lambda value: value >= bound),
    "at_most": lambda bound: _bound(lambda value: value <= bound),
    "max_length": _max_length,
    "glob": lambda patterns: _on_text(text_globs(patterns)),
    "matches": lambda pattern: _on_text(expression(pattern)),
    "destinations": _destinations,
    "within": lambda roots: _on_text(within(roots)),
}
"""How each test of a condition is made from what its field says."""
