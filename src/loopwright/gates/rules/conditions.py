"""Conditions of rules on the arguments of a call: each is true, false, or cannot be decided."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from ..._internal.options import Options
from ...errors import ConfigError
from ...messages import Json, JsonObject
from ..json_pointer import ABSENT, FoundValue, NoValue, find_values, parse_pointer
from ..matching import compile_expression, compile_text_globs
from .destinations import parse_destinations, parse_pattern
from .paths import compile_roots

MAX_TEXT = 10_000
"""Characters of a text that is tested; nothing is decided about a longer one."""

MAX_DESTINATIONS = 50_000
"""Characters of all texts together that are searched for destinations; more are undecided."""
NON_ASCII_WEIGHT = 5
"""Weight of a character in a text that is not ASCII: other host names take longer to parse."""

Scalar: TypeAlias = (
    StrictBool
    | StrictInt
    | StrictStr
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
)
Number: TypeAlias = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]
Texts: TypeAlias = Annotated[tuple[StrictStr, ...], Field(min_length=1)]
Truth: TypeAlias = bool | None
"""Whether something holds; `None` if that cannot be decided, such as whether a text is over 5."""
Test: TypeAlias = Callable[[Json], Truth]


class Condition(Options):
    """A condition on one argument of a call: the value must pass every test that it names.

    Args:
        argument: where the value is, as a JSON pointer (RFC 6901): "/path", "/to/0",
            ``/items/*/price`` for every one.
        missing: `True`: there is no such value, or it is null; `False`: there is one. It stands
            alone in a condition.
        equals: the value, of the same type; 5 and 5.0 are the same number.
        one_of: the values that it may have.
        more_than: a number that it is above; likewise `less_than`, `at_least` and `at_most`.
        max_length: the largest number of characters, or of elements.
        glob: globs, one of which must match the whole text: `*` is any text, `?` one character;
            case counts.
        matches: a regular expression that must match the whole text, in the syntax of Rust's
            `regex`: no look-around.
        destinations: hosts and mail addresses: all URLs, addresses and host names in the text, or
            list of texts, must lead there: "example.com", ``*.example.com`` for all below it,
            ``*@example.com`` for mail, "bob@example.com".
        within: directories, one of which must contain the path; no "..", and relative paths for
            relative directories only.
        negate: the condition is true where its tests are false.

    A condition is false of a value that does not exist, unless it says `missing`. It cannot be
    decided for a value of another type, for one that is ambiguous (a URL that two clients may read
    differently; a text that matches only if a star or dot may be a line break), and for several
    values of which only some pass. Raises `ConfigError`.
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
        """Check what the types do not express."""
        compile_condition(self)


def compile_condition(condition: Condition) -> Callable[[JsonObject], Truth]:
    """Return the function that decides a condition for some arguments.

    Raises `ConfigError`, naming the field.
    """
    pointer = _build("argument", parse_pointer, condition.argument)
    decide = _compile_value_test(condition)
    has_destinations = condition.destinations is not None

    def decide_all(arguments: JsonObject) -> Truth:
        found = find_values(arguments, pointer)
        if has_destinations and sum(map(_weigh, found)) > MAX_DESTINATIONS:
            return None
        return _agree(map(decide, found))

    return decide_all


def _compile_value_test(condition: Condition) -> Callable[[FoundValue], Truth]:
    """Return the function that decides a condition for one value that was found."""
    tests = tuple(_compile_tests(condition))
    missing, negate = condition.missing, condition.negate
    if missing is not None:
        if tests or negate:
            raise ConfigError(
                "missing: must be alone in a condition; move the other tests"
            )
        return lambda value: _is_missing(value, missing)
    if not tests:
        raise ConfigError(
            f"{condition.argument}: the condition has no test; "
            f"give one of missing, {', '.join(TESTS)}"
        )

    test = tests[0] if len(tests) == 1 else _test_all(tests)

    def decide(value: FoundValue) -> Truth:
        if isinstance(value, NoValue):
            return _is_missing(value, None)
        passed = test(value)
        return None if passed is None else passed is not negate

    return decide


def _test_all(tests: Sequence[Test]) -> Test:
    return lambda value: all_hold(test(value) for test in tests)


def _is_missing(value: FoundValue, wanted: bool | None) -> Truth:
    """Whether a value is missing as wanted; undecided if the pointer leads through another type."""
    if not isinstance(value, NoValue):
        return not wanted
    return wanted is True if value is ABSENT else None


def _compile_tests(condition: Condition) -> Iterable[Test]:
    for field, compile_test in TESTS.items():
        wanted = getattr(condition, field)
        if wanted is not None:
            yield _build(field, compile_test, wanted)


def _build(field: str, build: Callable[[Any], Any], wanted: Any) -> Any:
    """Call a function with the value of a field, and name the field in its error."""
    try:
        return build(wanted)
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None


def all_hold(truths: Iterable[Truth]) -> Truth:
    """Whether all are true: one that is false decides it (Kleene's three-valued "and")."""
    is_undecided = False
    for truth in truths:
        if truth is False:
            return False
        is_undecided = is_undecided or truth is None
    return None if is_undecided else True


def _agree(truths: Iterable[Truth]) -> Truth:
    """Return what all of them say; `None` if they differ."""
    distinct = set(truths)
    return distinct.pop() if len(distinct) == 1 else None


def _type_of(value: Json) -> type | None:
    """Return the JSON type of a value: `float` for every number; `None` for NaN and structures."""
    if isinstance(value, (bool, str)):
        return type(value)
    if not isinstance(value, (int, float)):
        return None
    return float if isinstance(value, int) or math.isfinite(value) else None


def _compile_one_of(wanted: tuple[Scalar, ...]) -> Test:
    allowed = {(_type_of(value), value) for value in wanted}
    types = {kind for kind, _ in allowed}

    def test(value: Json) -> Truth:
        kind = _type_of(value)
        return (kind, value) in allowed if kind in types else None

    return test


def _on_number(test: Callable[[Any], bool]) -> Test:
    return lambda value: test(value) if _type_of(value) is float else None


def _on_text(test: Callable[[str], Truth]) -> Test:
    def test_text(value: Json) -> Truth:
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            return None
        return test(value)

    return test_text


def _compile_max_length(limit: int) -> Test:
    return lambda value: len(value) <= limit if isinstance(value, (str, list)) else None


def _weigh(value: FoundValue) -> int:
    """Return the characters of a text, or of the texts in a list, for `MAX_DESTINATIONS`."""
    texts: Sequence[FoundValue] = value if isinstance(value, list) else [value]
    return sum(_weigh_text(text) for text in texts if isinstance(text, str))


def _weigh_text(text: str) -> int:
    return len(text) * (1 if text.isascii() else NON_ASCII_WEIGHT)


def _compile_destinations(wanted: tuple[str, ...]) -> Test:
    patterns = tuple(map(parse_pattern, wanted))

    def test_text(text: str) -> Truth:
        found = parse_destinations(text)
        if found is None:
            return None
        return _agree_or_false(
            any(pattern.matches(destination) for pattern in patterns)
            for destination in found
        )

    test_one = _on_text(test_text)

    def test(value: Json) -> Truth:
        if isinstance(value, list):
            return _agree_or_false(map(test_one, value))
        return test_one(value)

    return test


def _agree_or_false(truths: Iterable[Truth]) -> Truth:
    """Return what all of them say; false if there are none, `None` if they differ."""
    return _agree(tuple(truths) or (False,))


TESTS: Mapping[str, Callable[[Any], Test]] = {
    "equals": lambda wanted: _compile_one_of((wanted,)),
    "one_of": _compile_one_of,
    "more_than": lambda bound: _on_number(lambda value: value > bound),
    "less_than": lambda bound: _on_number(lambda value: value < bound),
    "at_least": lambda bound: _on_number(lambda value: value >= bound),
    "at_most": lambda bound: _on_number(lambda value: value <= bound),
    "max_length": _compile_max_length,
    "glob": lambda patterns: _on_text(compile_text_globs(patterns)),
    "matches": lambda pattern: _on_text(compile_expression(pattern)),
    "destinations": _compile_destinations,
    "within": lambda roots: _on_text(compile_roots(roots)),
}
"""The function that compiles each test of a condition from the value of its field."""
