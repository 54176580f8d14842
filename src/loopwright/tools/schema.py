"""JSON schemas of tool arguments: checked and compiled once, then used for every call."""

import functools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

from ..errors import ConfigError
from ..messages import Json, JsonObject

PLAIN_TYPES: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
PLAIN_KEYWORDS = frozenset(("type", "description", "default", "enum", "pattern"))
"""Keywords of a property that `ArgumentSchema.fits_plainly` can decide about."""
NOT_BLANK = r"\S"
"""The pattern of a text that it can decide about."""
PLAIN_OBJECT_KEYWORDS = frozenset(
    ("type", "properties", "required", "additionalProperties", "description")
)
"""Keywords of an object that it can decide about."""

# Keywords that the arguments of one call may be compared with, at 3 to 10 microseconds each.
# Nothing else runs meanwhile.
MAX_WORK = 150_000
"""For a third-party schema, which may be malicious: about a second."""
MAX_OWN_WORK = 500_000
"""For a schema of the application: it may have large arguments, but no malice."""
CHARS_PER_UNIT = 500
"""Characters of a text that cost as much as a keyword, such as a message that quotes a value."""

ELEMENT_KEYWORDS = frozenset(
    ("items", "additionalProperties", "propertyNames", "contains")
)
"""Keywords that are applied to each element of a value."""
PATTERN_KEYWORDS = frozenset(
    ("patternProperties", "additionalProperties", "unevaluatedProperties")
)
"""Keywords that try each pattern on each name."""
UNEVALUATED_KEYWORDS = frozenset(("unevaluatedItems", "unevaluatedProperties"))
"""Keywords that look for each element among all others."""
VALUE_KEYWORDS = frozenset(("enum", "const"))
"""Keywords whose values are compared with a value to its full depth."""

SCHEMAS_BY_NAME = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
)
"""Keywords whose value has a schema for each name."""
DATA_KEYWORDS = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose value is not a schema."""

_Check: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""A check of one keyword, with the signature of jsonschema."""


class Validator(Protocol):
    """A compiled JSON schema."""

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Return all problems of `instance`."""
        ...


class ArgumentSchema:
    """The compiled schema of one tool's arguments; properties without a name in it are refused.

    The work of a check is limited: a schema may multiply by its references, so that its author (the
    server of a tool, say) would decide how long a small call takes. Nothing else runs meanwhile.

    Args:
        name: the tool's, for error messages.
        schema: JSON schema (draft 2020-12) of an object.
        is_generated: whether it was made from a signature, so that it needs no check itself.
        third_party: whether someone other than the application wrote it; a check may do less work.
    """

    def __init__(
        self,
        name: str,
        schema: JsonObject,
        *,
        is_generated: bool,
        third_party: bool = True,
    ) -> None:
        if not is_generated and not _is_plainly_valid(schema):
            _check_schema(name, schema)
        closed = cast(
            "dict[str, Json]",
            _rebuild({"additionalProperties": False, **schema}, _is_dialect),
        )
        self._name = name
        self._max_work = MAX_WORK if third_party else MAX_OWN_WORK
        self._plain = _read_plain_properties(closed)
        self._required = frozenset(cast("list[str]", closed.get("required", [])))
        self._closed = closed
        if self._plain is None or third_party:  # now, and not while a run is at work
            _counting_validator()

    @functools.cached_property
    def _validator(self) -> Validator:
        """The compiled schema; arguments that fit plainly need none.

        The first arguments of a process that do not fit a plain schema of a function, or of the
        application, load jsonschema in the event loop: 30 to 80 ms of CPU, once. Most processes
        are spared it.
        """
        return _counting_validator()(self._closed)

    def find_problem(self, arguments: object) -> str | None:
        """Return the first problem, with the path to it; `None` if there is none.

        Arguments that take too long to check are a problem, too.
        """
        token = _WORK.set(_Work(self._max_work))
        try:
            for error in self._validator.iter_errors(arguments):
                return self.describe_problem(error)
        except RecursionError:
            return f"The arguments of {self._name} are nested too deeply."
        except _TooMuchWork:
            return f"The arguments of {self._name} are too large to check by its schema: give fewer, or shorter ones."
        except (ArithmeticError, ValueError):
            # Such as a remainder of a number beyond all floats.
            return f"The arguments of {self._name} cannot be checked by its schema: a number in them is out of range."
        finally:
            _WORK.reset(token)
        return None

    def describe_problem(self, error: Any) -> str:
        """Return what an error of jsonschema says, and where."""
        path = "/".join(map(str, error.absolute_path)) or "arguments"
        return f"The arguments do not fit the schema of {self._name}, at {path}: {shorten(error.message)}"

    def fits_plainly(self, arguments: object) -> bool:
        """Whether arguments match a flat schema of plain types, at a fiftieth of the cost.

        `False` says nothing: jsonschema decides then.
        """
        plain = self._plain
        if plain is None or type(arguments) is not dict:
            return False
        given = cast("dict[str, object]", arguments)
        if not self._required <= given.keys():
            return False
        for key, value in given.items():
            if key not in plain or not plain[key].has_value(value):
                break
        else:
            return True
        return False


class _TooMuchWork(Exception):
    """A check takes too long."""


class _Work:
    """The remaining work of a check."""

    def __init__(self, remaining: int) -> None:
        self._remaining = remaining

    def spend(self, units: int) -> None:
        self._remaining -= units
        if self._remaining < 0:
            raise _TooMuchWork


_WORK: ContextVar[_Work] = ContextVar("loopwright_schema_work")


@functools.cache
def _counting_validator() -> Callable[[JsonObject], Validator]:
    """Return jsonschema's validator of draft 2020-12, with every keyword counted as work."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - slow, see _check_schema

    # It has no types.
    extend = cast(
        "Callable[..., Callable[[JsonObject], Validator]]", vars(validators)["extend"]
    )
    checks = {
        **cast("dict[str, _Check]", Draft202012Validator.VALIDATORS),
        "uniqueItems": _check_unique_items,
    }
    return extend(
        Draft202012Validator,
        {keyword: _count_work(keyword, check) for keyword, check in checks.items()},
    )


def _count_work(keyword: str, check: _Check) -> _Check:
    is_per_element = keyword in ELEMENT_KEYWORDS
    has_patterns = keyword in PATTERN_KEYWORDS
    is_quadratic = keyword in UNEVALUATED_KEYWORDS
    depth = 100 if keyword in VALUE_KEYWORDS else 1

    def counted(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[Any]:
        work = _WORK.get()
        elements = _size(instance) if is_per_element else 0
        work.spend(1 + _size(value, depth) // 4 + elements)
        if has_patterns:
            work.spend(_size(schema.get("patternProperties")) * _size(instance))
        if is_quadratic:
            work.spend(_size(instance) ** 2 // 64)
        for error in check(validator, value, instance, schema) or ():
            work.spend(1 + len(error.message) // CHARS_PER_UNIT)
            yield error

    return counted


def _check_unique_items(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    """Check `uniqueItems` in linear time; jsonschema compares each pair if it cannot sort them."""
    from jsonschema import ValidationError  # noqa: PLC0415 - slow, see _check_schema

    if not value or not isinstance(instance, list):
        return
    work, seen = _WORK.get(), set[str]()
    for item in cast("list[Json]", instance):
        text = _canonical(item)
        work.spend(1 + len(text) // CHARS_PER_UNIT)
        if text in seen:
            yield ValidationError(f"{shorten(text)} is there more than once")
            return
        seen.add(text)


def _canonical(value: Json) -> str:
    """Return JSON that is the same for all values that JSON schema holds for equal.

    1 equals 1.0, and the order of names does not matter.
    """
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, dict):
        members = (
            f"{json.dumps(key)}:{_canonical(part)}" for key, part in value.items()
        )
        return f"{{{','.join(sorted(members))}}}"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)


def _size(value: Any, depth: int = 1) -> int:
    """Return the number of values in a value, down to a depth; 0 for a plain one."""
    if not isinstance(value, (list, dict)):
        return 0
    held = cast("list[Any] | dict[str, Any]", value)
    if depth == 1:
        return len(held)
    children: Collection[Any] = held.values() if isinstance(held, dict) else held
    return len(children) + sum(_size(child, depth - 1) for child in children)


class _PlainProperty:
    """What a plain schema says of one property: its type and, for a text, what may be in it.

    A text may have choices, or be refused if it is blank.
    """

    def __init__(self, schema: dict[str, Json], types: tuple[type, ...]) -> None:
        self._types = types
        choices = cast("list[str] | None", schema.get("enum"))
        self._choices = None if choices is None else frozenset(choices)
        self._may_be_blank = "pattern" not in schema

    def has_value(self, value: object) -> bool:
        """Return whether a value is one that the property may have."""
        if type(value) not in self._types:
            return False
        if self._choices is not None and value not in self._choices:
            return False
        return self._may_be_blank or re.search(NOT_BLANK, str(value)) is not None


def _read_plain_properties(schema: JsonObject) -> dict[str, _PlainProperty] | None:
    """Return what a schema says of each property, if that is plain and all it says."""
    properties = schema.get("properties", {})
    is_closed = schema["additionalProperties"] is False
    is_plain = is_closed and schema.keys() <= PLAIN_OBJECT_KEYWORDS
    if not is_plain or not isinstance(properties, dict):
        return None
    plain = {name: _read_plain_property(part) for name, part in properties.items()}
    found = {name: part for name, part in plain.items() if part is not None}
    return found if len(found) == len(plain) else None


def _read_plain_property(schema: Json) -> _PlainProperty | None:
    """Return what a schema says of a property; `None` if that is not plain."""
    if not isinstance(schema, dict) or not schema.keys() <= PLAIN_KEYWORDS:
        return None
    kind = schema.get("type")
    types = PLAIN_TYPES.get(kind) if isinstance(kind, str) else None
    if types is None:
        return None
    if not schema.keys().isdisjoint(("enum", "pattern")):
        has_choices = _is_texts(schema.get("enum", []))
        is_known = schema.get("pattern", NOT_BLANK) == NOT_BLANK
        if kind != "string" or not has_choices or not is_known:
            return None
    return _PlainProperty(schema, types)


def _is_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_plainly_valid(schema: JsonObject) -> bool:
    """Return whether it is a plain schema of an object, which jsonschema need not check."""
    given: object = schema  # a user's, so it may be anything
    if not isinstance(given, dict) or schema.get("type") != "object":
        return False
    if schema.get("additionalProperties", False) is not False:
        return False
    required, properties = schema.get("required", []), schema.get("properties", {})
    if not _is_texts(required) or not isinstance(properties, dict):
        return False
    names = cast("list[str]", required)
    parts: list[Any] = [schema, *properties.values()]
    return (
        len(set(names)) == len(names)
        and _read_plain_properties({"additionalProperties": False, **schema})
        is not None
        and all(map(_has_plain_annotations, parts))
    )


def _has_plain_annotations(schema: Json) -> bool:
    """Return whether the description is a text, and the default no list and no object.

    A list or an object might hold a reference.
    """
    if not isinstance(schema, dict):
        return False
    is_described = isinstance(schema.get("description", ""), str)
    return is_described and not isinstance(schema.get("default"), (dict, list))


def without_titles(schema: Json) -> Json:
    """Return the schema without pydantic's titles, which tell a model nothing.

    Properties named `title` stay.
    """
    return _rebuild(schema, _is_title)


def _is_title(key: str, value: Json) -> bool:
    return key == "title" and isinstance(value, str)


def _is_dialect(key: str, _value: Json) -> bool:
    """Whether it is a `$schema`, by which jsonschema would choose a validator without counting."""
    return key == "$schema"


def _rebuild(schema: Json, is_dropped: Callable[[str, Json], bool]) -> Json:
    """Return a schema without some keywords, at every level; names and data stay."""
    if isinstance(schema, list):
        return [_rebuild(item, is_dropped) for item in schema]
    if not isinstance(schema, dict):
        return schema
    rebuilt: dict[str, Json] = {}
    for key, part in schema.items():
        if key in SCHEMAS_BY_NAME and isinstance(part, dict):
            rebuilt[key] = {
                name: _rebuild(named, is_dropped) for name, named in part.items()
            }
        elif not is_dropped(key, part):
            rebuilt[key] = part if key in DATA_KEYWORDS else _rebuild(part, is_dropped)
    return rebuilt


def _check_schema(name: str, schema: JsonObject) -> None:
    """Raise `ConfigError` unless it is a JSON schema of an object that is complete in itself."""
    # Imported late: 90 ms that only users of tools with such schemas pay.
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(
            f"tool {name!r}: schema is not a JSON schema: {error.message}"
        ) from None
    if schema.get("type") != "object":
        raise ConfigError(
            f'tool {name!r}: schema must describe an object; add "type": "object"'
        )
    for part in _iterate_objects(schema):
        _check_references(name, part, schema)


def _iterate_objects(part: Any) -> Iterator[dict[str, Any]]:
    """Return all objects in a schema, itself included, in their order."""
    remaining = [part]
    while remaining:
        part = remaining.pop()
        if isinstance(part, list):
            items: list[Any] = part  # pyright: ignore[reportUnknownVariableType] - third-party JSON
            remaining.extend(reversed(items))
        elif isinstance(part, dict):
            found = cast("dict[str, Any]", part)
            yield found
            remaining.extend(reversed(found.values()))


def _check_references(name: str, part: dict[str, Any], schema: JsonObject) -> None:
    """Raise `ConfigError` for a `$ref` out of the schema, which would be fetched, or to nothing."""
    for key in ("$ref", "$dynamicRef"):
        reference = part.get(key)
        if isinstance(reference, str) and not _resolves(reference, schema):
            has_escape = "%" in reference
            cure = "; write it without percent escapes" if has_escape else ""
            raise ConfigError(
                f"tool {name!r}: schema has a {key} to {reference!r}, "
                f"which is not in the schema itself{cure}"
            )
    if isinstance(part.get("$id"), str) and part is not schema:
        raise ConfigError(
            f"tool {name!r}: schema has a nested $id, which would be the base of its references"
        )


def _resolves(reference: str, schema: Any) -> bool:
    """Whether a JSON pointer within the schema (RFC 6901) leads to a value."""
    root, *steps = reference.split("/")
    is_escaped = unquote(reference) != reference  # a resolver would decode it first
    if is_escaped or root != "#":
        return False
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            schema = schema[int(step) if isinstance(schema, list) else name]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return True


def wrap_schema(schema: Mapping[str, Json], field: str = "value") -> JsonObject:
    """Return the schema of an object with one field that has `schema`; definitions stay at the top."""
    inner = dict(schema)
    definitions = inner.pop("$defs", None)
    wrapped: dict[str, Json] = {
        "type": "object",
        "properties": {field: inner},
        "required": [field],
        "additionalProperties": False,
    }
    return wrapped if definitions is None else {**wrapped, "$defs": definitions}


def shorten(text: str, max_chars: int = 500) -> str:
    """Return a text with its middle cut out: a validator may quote a whole argument."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars // 2]} ... {text[-max_chars // 2 :]}"
