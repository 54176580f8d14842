"""JSON schemas of tool arguments: checked and compiled once, then asked for every call."""

from collections.abc import Iterator
from typing import Any, Protocol, cast

from .errors import ConfigError
from .messages import Json, JsonObject

PLAIN: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class Validator(Protocol):
    """A compiled JSON schema."""

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Everything that is wrong with `instance`."""
        ...


class ArgumentSchema:
    """The compiled schema of one tool's arguments; properties that it does not name are refused.

    Args:
        name: the tool's, for what is said of it.
        schema: JSON schema (draft 2020-12) of an object.
        ours: whether it was made from a signature, and so needs no check.
    """

    def __init__(self, name: str, schema: JsonObject, *, ours: bool) -> None:
        # 90 ms that only users of tools pay
        from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

        if not ours:
            try:
                Draft202012Validator.check_schema(schema)
            except SchemaError as error:
                raise ConfigError(f"tool {name!r}: schema is no JSON schema: {error.message}") from None
            if schema.get("type") != "object":
                raise ConfigError(f'tool {name!r}: schema must describe an object: add "type": "object"')
            _check_references(name, schema, schema)
        closed = {"additionalProperties": False, **schema}
        self._name = name
        self._plain = _plain_types(closed)
        self._required = frozenset(cast("list[str]", closed.get("required", [])))
        self._validator: Validator = Draft202012Validator(closed)

    def problem(self, arguments: object) -> str | None:
        """What is wrong, with the path to it; `None` if nothing is."""
        try:
            for error in self._validator.iter_errors(arguments):
                path = "/".join(str(part) for part in error.absolute_path) or "arguments"
                return f"The arguments do not fit the schema of {self._name}, at {path}: {brief(error.message)}"
        except RecursionError:
            return f"The arguments of {self._name} are nested too deeply."
        return None

    def fits_plainly(self, arguments: object) -> bool:
        """Whether a flat schema of plain types is met, at a fiftieth of the cost; jsonschema decides all else."""
        if self._plain is None or type(arguments) is not dict:
            return False
        given = cast("dict[str, object]", arguments)
        plain = self._plain
        return self._required <= given.keys() and all(type(v) in plain.get(k, ()) for k, v in given.items())


def _plain_types(schema: JsonObject) -> dict[str, tuple[type, ...]] | None:
    """The Python types of each property, if the schema says nothing else of them."""
    properties = schema.get("properties", {})
    known = {"type", "properties", "required", "additionalProperties", "description"}
    if not isinstance(properties, dict) or not schema.keys() <= known or schema["additionalProperties"] is not False:
        return None
    types: dict[str, tuple[type, ...]] = {}
    for name, part in properties.items():
        if not isinstance(part, dict) or not part.keys() <= {"type", "description", "default"}:
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
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            cleaned[key] = {name: without_titles(part) for name, part in value.items()}
        else:
            cleaned[key] = value if key in ("enum", "const", "default", "examples") else without_titles(value)
    return cleaned


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
                raise ConfigError(
                    f"tool {name!r}: schema has a {key} to {reference!r}, which is not in the schema itself"
                )
        if isinstance(named.get("$id"), str) and named is not schema:
            raise ConfigError(f"tool {name!r}: schema has an $id inside, from which its references would start anew")
    else:
        return
    for value in inner:
        _check_references(name, value, schema)


def _resolves(reference: str, schema: Any) -> bool:
    """Whether a JSON pointer within the schema (RFC 6901) leads anywhere."""
    root, *steps = reference.split("/")
    for step in steps:
        try:
            schema = schema[int(step) if isinstance(schema, list) else step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, IndexError, ValueError, TypeError):
            return False
    return root == "#"


def brief(text: str, most: int = 500) -> str:
    """A text cut in the middle: what a validator says may quote the whole argument."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"
