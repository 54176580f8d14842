"""JSON schemas of tool arguments: checked and compiled once, then asked for every call."""

import functools
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

from ..errors import ConfigError
from ..messages import Json, JsonObject

PLAIN: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
# Keywords that one call's arguments may be compared with, at 3 to 10 microseconds each. Nothing else runs meanwhile.
MAX_WORK = 150_000  # for the schema of a stranger, who may mean ill: about a second
OUR_WORK = 500_000  # for one of the application's own: large arguments, and no malice
LOOPS = frozenset(
    ("items", "additionalProperties", "propertyNames", "contains")
)  # over each element of what is given
PATTERNS = frozenset(
    ("patternProperties", "additionalProperties", "unevaluatedProperties")
)  # try each for each name
LEFT_OVER = frozenset(
    ("unevaluatedItems", "unevaluatedProperties")
)  # each element is looked for among all others
VALUES = frozenset(
    ("enum", "const")
)  # what they hold is compared with what is given to its depth
WIDE = 500  # characters of a text that cost as much as a keyword: a message, say, which quotes what is given
NAMED = frozenset(
    ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
)  # schemas by name
DATA = frozenset(
    ("enum", "const", "default", "examples")
)  # what they hold is no schema


_Check: TypeAlias = Callable[
    [Any, Any, Any, Any], Iterator[Any] | None
]  # of one keyword, as jsonschema has it


class Validator(Protocol):
    """A compiled JSON schema."""

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Everything that is wrong with `instance`."""
        ...


class ArgumentSchema:
    """The compiled schema of one tool's arguments; properties that it does not name are refused.

    A check is bounded: a schema may multiply by its references, with alternatives or without, and whoever wrote it
    (the server of a tool, say) decides with that how long a small call takes. Nothing else runs meanwhile.

    Args:
        name: the tool's, for what is said of it.
        schema: JSON schema (draft 2020-12) of an object.
        ours: whether it was made from a signature, and so needs no check.
        foreign: whether somebody else than the application wrote it; a check by it may take less time.
    """

    def __init__(
        self, name: str, schema: JsonObject, *, ours: bool, foreign: bool = True
    ) -> None:
        # 90 ms that only users of tools pay
        from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

        if not ours:
            try:
                Draft202012Validator.check_schema(schema)
            except SchemaError as error:
                raise ConfigError(
                    f"tool {name!r}: schema is no JSON schema: {error.message}"
                ) from None
            if schema.get("type") != "object":
                raise ConfigError(
                    f'tool {name!r}: schema must describe an object: add "type": "object"'
                )
            _check_references(name, schema, schema)
        closed = cast(
            "dict[str, Json]",
            _of_one_dialect({"additionalProperties": False, **schema}),
        )
        self._name, self._most = name, MAX_WORK if foreign else OUR_WORK
        self._plain = _plain_types(closed)
        self._required = frozenset(cast("list[str]", closed.get("required", [])))
        self._validator: Validator = _counting_validator()(closed)

    def problem(self, arguments: object) -> str | None:
        """What is wrong, with the path to it; `None` if nothing is. What takes too long to check is wrong, too."""
        before = _WORK.set(_Work(self._most))
        try:
            for error in self._validator.iter_errors(arguments):
                path = (
                    "/".join(str(part) for part in error.absolute_path) or "arguments"
                )
                return f"The arguments do not fit the schema of {self._name}, at {path}: {brief(error.message)}"
        except RecursionError:
            return f"The arguments of {self._name} are nested too deeply."
        except _TooMuch:
            return f"The arguments of {self._name} are too large to check by its schema: give fewer, or shorter ones."
        except (
            ArithmeticError,
            ValueError,
        ):  # such as a remainder of a number beyond all floats
            return f"The arguments of {self._name} cannot be checked by its schema: a number in them is out of range."
        finally:
            _WORK.reset(before)
        return None

    def fits_plainly(self, arguments: object) -> bool:
        """Whether a flat schema of plain types is met, at a fiftieth of the cost; jsonschema decides all else."""
        if self._plain is None or type(arguments) is not dict:
            return False
        given = cast("dict[str, object]", arguments)
        plain = self._plain
        return self._required <= given.keys() and all(
            type(v) in plain.get(k, ()) for k, v in given.items()
        )


class _TooMuch(Exception):
    """A check takes too long."""


class _Work:
    """What is left of the work that a check may be."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise _TooMuch


_WORK: ContextVar[_Work] = ContextVar("loopwright_schema_work")


@functools.cache
def _counting_validator() -> Callable[[JsonObject], Validator]:
    """jsonschema's validator of draft 2020-12, every keyword of which counts as work."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - as above

    extend = cast(
        "Callable[..., Callable[[JsonObject], Validator]]", vars(validators)["extend"]
    )  # it has no types
    checks = {
        **cast("dict[str, _Check]", Draft202012Validator.VALIDATORS),
        "uniqueItems": _unique_items,
    }
    return extend(
        Draft202012Validator,
        {keyword: _counted(keyword, check) for keyword, check in checks.items()},
    )


def _counted(keyword: str, check: _Check) -> _Check:
    loops, patterns, squared = (
        keyword in LOOPS,
        keyword in PATTERNS,
        keyword in LEFT_OVER,
    )
    depth = 100 if keyword in VALUES else 1

    def counted(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[Any]:
        work = _WORK.get()
        work.spend(1 + _size(value, depth) // 4 + (_size(instance) if loops else 0))
        if patterns:
            work.spend(_size(schema.get("patternProperties")) * _size(instance))
        if squared:
            work.spend(_size(instance) ** 2 // 64)
        for error in check(validator, value, instance, schema) or ():
            work.spend(1 + len(error.message) // WIDE)
            yield error

    return counted


def _unique_items(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[Any]:
    """`uniqueItems` in linear time: jsonschema compares each with each where they cannot be sorted."""
    from jsonschema import ValidationError  # noqa: PLC0415 - as above

    if not value or not isinstance(instance, list):
        return
    work, seen = _WORK.get(), set[str]()
    for item in cast("list[Json]", instance):
        text = _comparable(item)
        work.spend(1 + len(text) // WIDE)
        if text in seen:
            yield ValidationError(f"{brief(text)} is there more than once")
            return
        seen.add(text)


def _comparable(value: Json) -> str:
    """A value as JSON, the same for all that JSON schema holds for equal: 1 and 1.0, names in any order."""
    if isinstance(value, list):
        return f"[{','.join(map(_comparable, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{json.dumps(name)}:{_comparable(part)}' for name, part in value.items()))}}}"
    return json.dumps(
        int(value) if isinstance(value, float) and value.is_integer() else value
    )


def _size(value: Any, depth: int = 1) -> int:
    """How many values are in a value, down to a depth; none in a plain one."""
    if not isinstance(value, (list, dict)):
        return 0
    held = cast("list[Any] | dict[str, Any]", value)
    if depth == 1:
        return len(held)
    return len(held) + sum(
        _size(each, depth - 1)
        for each in (held.values() if isinstance(held, dict) else held)
    )


def _plain_types(schema: JsonObject) -> dict[str, tuple[type, ...]] | None:
    """The Python types of each property, if the schema says nothing else of them."""
    properties = schema.get("properties", {})
    known = {"type", "properties", "required", "additionalProperties", "description"}
    if (
        not isinstance(properties, dict)
        or not schema.keys() <= known
        or schema["additionalProperties"] is not False
    ):
        return None
    types: dict[str, tuple[type, ...]] = {}
    for name, part in properties.items():
        if not isinstance(part, dict) or not part.keys() <= {
            "type",
            "description",
            "default",
        }:
            return None
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in PLAIN:
            return None
        types[name] = PLAIN[kind]
    return types


def without_titles(schema: Json) -> Json:
    """The schema without the titles that pydantic adds, which tell a model nothing; properties named `title` stay."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned: dict[str, Json] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(
            value, dict
        ):
            cleaned[key] = {name: without_titles(part) for name, part in value.items()}
        else:
            cleaned[key] = (
                value
                if key in ("enum", "const", "default", "examples")
                else without_titles(value)
            )
    return cleaned


def _of_one_dialect(schema: Json) -> Json:
    """The schema without any `$schema`, by which jsonschema would choose a validator that counts nothing."""
    if isinstance(schema, list):
        return [_of_one_dialect(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Json] = {}
    for key, part in schema.items():
        if key in NAMED and isinstance(part, dict):
            kept[key] = {name: _of_one_dialect(named) for name, named in part.items()}
        elif key != "$schema":
            kept[key] = part if key in DATA else _of_one_dialect(part)
    return kept


def _check_references(name: str, part: Any, schema: JsonObject) -> None:
    """Raise `ConfigError` for a `$ref` out of the schema, which would be fetched, or to nothing."""
    if isinstance(part, list):
        inner: list[Any] = part  # pyright: ignore[reportUnknownVariableType] - foreign JSON
    elif isinstance(part, dict):
        named = cast("dict[str, Any]", part)
        inner = list(named.values())
        for key in ("$ref", "$dynamicRef"):
            reference = named.get(key)
            if isinstance(reference, str) and not _resolves(reference, schema):
                cure = (
                    " under that name: write it without percent escapes"
                    if "%" in reference
                    else ""
                )
                raise ConfigError(
                    f"tool {name!r}: schema has a {key} to {reference!r}, which is not in the schema itself{cure}"
                )
        if isinstance(named.get("$id"), str) and named is not schema:
            raise ConfigError(
                f"tool {name!r}: schema has an $id inside, from which its references would start anew"
            )
    else:
        return
    for value in inner:
        _check_references(name, value, schema)


def _resolves(reference: str, schema: Any) -> bool:
    """Whether a JSON pointer within the schema (RFC 6901) leads anywhere."""
    root, *steps = reference.split("/")
    if unquote(reference) != reference:  # whoever follows it would decode it first
        return False
    for step in steps:
        try:
            schema = schema[
                int(step)
                if isinstance(schema, list)
                else step.replace("~1", "/").replace("~0", "~")
            ]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return root == "#"


def brief(text: str, most: int = 500) -> str:
    """A text cut in the middle: what a validator says may quote the whole argument."""
    return (
        text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"
    )
