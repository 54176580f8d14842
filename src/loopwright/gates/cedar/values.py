"""JSON as Cedar values: a Cedar type for each JSON schema, and the encoding of values of that type."""

import json
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Protocol, TypeAlias, cast

from ..._internal import dataclasses
from ...messages import Json, canonical_json

Cedar: TypeAlias = Json
"""A value in the JSON that Cedar reads: without null, floats and numbers of more than 64 bits."""
MAX_WHOLE = 2**63 - 1
MAX_NUMBER = Decimal(MAX_WHOLE).scaleb(-4)
EXACT = Context(prec=40)  # not the application's context, which may round
MAX_TYPES = 500  # subschemas that get a type of their own
MAX_DEPTH = 20  # levels of nested subschemas
SEPARATORS = frozenset(" ,;|")


class UnencodableValue(ValueError):
    """A value has no counterpart of the declared type; the message says what to change."""


class CedarType(Protocol):
    """A Cedar type, and the encoding of JSON values as values of it."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the type in Cedar's JSON schema format."""
        ...

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return the encoded value. Raises `UnencodableValue`.

        `where` is added to `several` if a text in the value is more than one word.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Text:
    """A string."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the name of the type."""
        return {"type": "String"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return the string unchanged."""
        if not isinstance(value, str):
            raise UnencodableValue(f"{where} is not a text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnencodableValue(f"{where} contains half a surrogate pair") from None
        if SEPARATORS.intersection(value) or not value.isprintable():
            several.add(where)
        return value


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number of 64 bits."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the name of the type."""
        return {"type": "Long"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return the number; 3.0 is the whole number 3, as in JSON schema."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise UnencodableValue(f"{where} is not a whole number")
        if not -MAX_WHOLE - 1 <= value <= MAX_WHOLE:
            raise UnencodableValue(f"{where} is too large a number")
        return value


@dataclasses.dataclass(frozen=True)
class Flag:
    """True or false."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the name of the type."""
        return {"type": "Boolean"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return the value unchanged."""
        if not isinstance(value, bool):
            raise UnencodableValue(f"{where} is neither true nor false")
        return value


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of at most four decimal places, never rounded: what runs must be what was judged."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the name of the type."""
        return {"type": "Extension", "name": "decimal"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return a decimal."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise UnencodableValue(f"{where} is not a number")
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not exact.is_finite() or not -MAX_NUMBER <= exact <= MAX_NUMBER:
            raise UnencodableValue(f"{where} is too large a number")
        written = exact.quantize(Decimal("0.0001"), context=EXACT)
        if written != exact:
            raise UnencodableValue(f"{where} has more than four decimal places")
        unsigned = EXACT.plus(written)  # Cedar's zero has no sign
        return {"__extn": {"fn": "decimal", "arg": f"{unsigned:f}"}}


@dataclasses.dataclass(frozen=True)
class JsonText:
    """A value without a Cedar type: its canonical JSON, as a string."""

    @property
    def declared(self) -> dict[str, Json]:
        """Return the name of the type."""
        return {"type": "String"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return JSON with sorted keys, without spaces, in ASCII."""
        several.add(where)
        try:
            return canonical_json(value).decode()
        except ValueError:
            raise UnencodableValue(
                f"{where} is not JSON, or is nested too deeply"
            ) from None


@dataclasses.dataclass(frozen=True)
class SetOf:
    """A list; Cedar keeps neither the order of its elements nor their repetitions."""

    element: CedarType

    @property
    def declared(self) -> dict[str, Json]:
        """Return the type of a set of elements of one type."""
        return {"type": "Set", "element": self.element.declared}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return each element that is not null."""
        if not isinstance(value, list):
            raise UnencodableValue(f"{where} is not a list")
        items = (item for item in value if item is not None)
        return [self.element.encode(item, where, several) for item in items]


@dataclasses.dataclass(frozen=True)
class Field:
    """An attribute of a record: its type, whether it is always present, and its default."""

    type: CedarType
    required: bool
    default: Json = None


@dataclasses.dataclass(frozen=True)
class Record:
    """An object with known names."""

    fields: Mapping[str, Field]

    @property
    def declared(self) -> dict[str, Json]:
        """Return the type of a closed record."""
        attributes: dict[str, Json] = {
            escaped(name): {**field.type.declared, "required": field.required}
            for name, field in self.fields.items()
        }
        return {"type": "Record", "attributes": attributes}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Return each value under its name, and the defaults of missing ones, without nulls."""
        if not isinstance(value, dict):
            raise UnencodableValue(f"{where} is not an object")
        encoded: dict[str, Cedar] = {}
        for name, item in value.items():
            path = join_path(where, name)
            field = self.fields.get(name)
            if field is None:
                raise UnencodableValue(
                    f"{shown(path)} is not among the arguments that the policy knows"
                )
            if item is not None or isinstance(field.type, JsonText):
                encoded[escaped(name)] = field.type.encode(item, path, several)
        for name, field in self.fields.items():
            path = join_path(where, name)
            if name not in value and field.default is not None:
                encoded[escaped(name)] = field.type.encode(field.default, path, several)
            elif field.required and escaped(name) not in encoded:
                raise UnencodableValue(f"{path} is missing")
        return encoded


def check_defaults(kind: CedarType, where: str = "") -> None:
    """Raise `UnencodableValue` for a default without a counterpart.

    Each call that leaves such an argument out would be denied.
    """
    if isinstance(kind, SetOf):
        check_defaults(kind.element, where)
    if not isinstance(kind, Record):
        return
    for name, field in kind.fields.items():
        path = join_path(where, name)
        if field.default is not None:
            field.type.encode(field.default, path, set())
        check_defaults(field.type, path)


def join_path(where: str, name: str) -> str:
    """Return the path of a field, for errors."""
    return f"{where}.{name}" if where else name


def escaped(name: str) -> str:
    """Return a name that Cedar does not read as an instruction: `__entity` is `~__entity`."""
    return f"~{name}" if name.lstrip("~").startswith("__") else name


def shown(name: str) -> str:
    """Return a name that a model made up as an error may show it."""
    return json.dumps(name[:40])


PLAIN: Mapping[str, CedarType] = {
    "string": Text(),
    "integer": Whole(),
    "number": Number(),
    "boolean": Flag(),
}
TYPE_OF_VALUE: Mapping[type, Json] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
COMBINATIONS = ("anyOf", "oneOf", "allOf")


def record_of(schema: Mapping[str, Json]) -> Record:
    """Return the record of a tool's arguments, from the JSON schema of their object."""
    return _Reader(schema).read_record(schema, ())


class _Reader:
    """Reads one JSON schema.

    A type may admit more values than the schema: the encoding refuses those that do not fit.
    """

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._remaining = MAX_TYPES

    def read_record(
        self, schema: Mapping[str, Json], within: tuple[str, ...]
    ) -> Record:
        properties, required = schema.get("properties"), schema.get("required")
        always = required if isinstance(required, list) else []
        if not isinstance(properties, dict):
            return Record({})
        return Record(
            {
                name: self._read_field(part, within, always=name in always)
                for name, part in properties.items()
            }
        )

    def _read_field(
        self, schema: Json, within: tuple[str, ...], *, always: bool
    ) -> Field:
        kind, is_nullable = self._read_type(schema, within)
        default: Json = None
        if isinstance(schema, dict) and not always:
            default = schema.get("default")
        is_present = always or default is not None
        return Field(kind, is_present and not is_nullable, default)

    def _read_type(
        self, schema: Json, within: tuple[str, ...]
    ) -> tuple[CedarType, bool]:
        """Return the type that a subschema stands for, and whether null is one of its values."""
        self._remaining -= 1
        is_exhausted = self._remaining < 0 or len(within) > MAX_DEPTH
        if is_exhausted or not isinstance(schema, dict):
            return JsonText(), False
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._follow(reference, within)
        for word in COMBINATIONS:
            alternatives = schema.get(word)
            if isinstance(alternatives, list):
                return self._merge_alternatives(alternatives, (*within, word))
        kinds = schema.get("type", _types_of_values(schema))
        listed = cast("list[Json]", kinds if isinstance(kinds, list) else [kinds])
        types = [
            self._read_plain(kind, schema, within) for kind in listed if kind != "null"
        ]
        return _merge(types), "null" in listed

    def _follow(
        self, reference: str, within: tuple[str, ...]
    ) -> tuple[CedarType, bool]:
        if reference in within:  # the schema contains itself
            return JsonText(), False
        return self._read_type(_resolve(self._root, reference), (*within, reference))

    def _merge_alternatives(
        self, alternatives: list[Json], within: tuple[str, ...]
    ) -> tuple[CedarType, bool]:
        parts = [part for part in alternatives if part != {"type": "null"}]
        read = [self._read_type(part, within) for part in parts]
        has_null = len(parts) < len(alternatives)
        is_nullable = has_null or any(nullable for _, nullable in read)
        return _merge([kind for kind, _ in read]), is_nullable

    def _read_plain(
        self, kind: Json, schema: dict[str, Json], within: tuple[str, ...]
    ) -> CedarType:
        within = (*within, "of")
        if kind == "array":
            return SetOf(self._read_element(schema, within))
        if kind == "object":
            return self._read_object(schema, within)
        return PLAIN.get(kind, JsonText()) if isinstance(kind, str) else JsonText()

    def _read_element(
        self, schema: dict[str, Json], within: tuple[str, ...]
    ) -> CedarType:
        if "prefixItems" in schema:
            return JsonText()
        return self._read_type(schema.get("items"), within)[0]

    def _read_object(
        self, schema: dict[str, Json], within: tuple[str, ...]
    ) -> CedarType:
        is_closed = schema.get("additionalProperties", False) is False
        if not is_closed or "properties" not in schema:
            return JsonText()
        return self.read_record(schema, within)


def _merge(types: list[CedarType]) -> CedarType:
    """Return the one type of several alternatives; the text of the JSON if they differ."""
    if not types:
        return JsonText()
    if all(one == types[0] for one in types):
        return types[0]
    if all(isinstance(one, (Whole, Number)) for one in types):
        return Number()
    return JsonText()


def _types_of_values(schema: Mapping[str, Json]) -> Json:
    """Return the types of the values of an `enum` or a `const` without a type."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return None
    return [TYPE_OF_VALUE.get(type(value), "") for value in values]


def _resolve(root: Mapping[str, Json], reference: str) -> Json:
    """Return the part of a schema that a JSON pointer (RFC 6901) leads to; null if none."""
    part: Json = dict(root)
    start, *steps = reference.split("/")
    if start != "#":
        return None
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        part = part.get(name) if isinstance(part, dict) else None
    return part
