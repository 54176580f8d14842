"""JSON as Cedar values: a Cedar type for each JSON schema, and an encoding that fits the type or says why it cannot."""

import dataclasses
import json
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Protocol, TypeAlias, cast

from ...messages import Json, canonical_json

Cedar: TypeAlias = Json
"""A value in the JSON that Cedar reads: without null, float and numbers of more than 64 bits."""
MAX_WHOLE = 2**63 - 1
MAX_NUMBER = Decimal(MAX_WHOLE).scaleb(-4)
EXACT = Context(prec=40)  # not the application's, which may round
MAX_TYPES, MAX_DEPTH = (
    500,
    20,
)  # parts of a schema that get a type of their own, and how deep they are nested
SEPARATORS = frozenset(" ,;|")


class Unfit(ValueError):
    """A value that has no counterpart of the declared type; the text says what to change."""


class CedarType(Protocol):
    """A type of Cedar's, and how a JSON value becomes one of its values."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type in Cedar's JSON schema format."""
        ...

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """The value; `several` gets `where` if a text in it is more than one word. Raises `Unfit`."""
        ...


@dataclasses.dataclass(frozen=True)
class Text:
    """A string."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type\'s name."""
        return {"type": "String"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """The string as it is."""
        if not isinstance(value, str):
            raise Unfit(f"{where} is no text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit(f"{where} holds half a character") from None
        if SEPARATORS.intersection(value) or not value.isprintable():
            several.add(where)
        return value


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number of 64 bits."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type\'s name."""
        return {"type": "Long"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """The number; 3.0 is the whole number 3, as in JSON schema."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unfit(f"{where} is no whole number")
        if not -MAX_WHOLE - 1 <= value <= MAX_WHOLE:
            raise Unfit(f"{where} is too large a number")
        return value


@dataclasses.dataclass(frozen=True)
class Flag:
    """True or false."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type\'s name."""
        return {"type": "Boolean"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """The value as it is."""
        if not isinstance(value, bool):
            raise Unfit(f"{where} is neither true nor false")
        return value


@dataclasses.dataclass(frozen=True)
class Number:
    """A number of at most four decimal places; it is never rounded, as what runs shall be what was judged."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type\'s name."""
        return {"type": "Extension", "name": "decimal"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """A decimal."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise Unfit(f"{where} is no number")
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not exact.is_finite() or not -MAX_NUMBER <= exact <= MAX_NUMBER:
            raise Unfit(f"{where} is too large a number")
        written = exact.quantize(Decimal("0.0001"), context=EXACT)
        if written != exact:
            raise Unfit(f"{where} has more than four decimal places")
        return {
            "__extn": {"fn": "decimal", "arg": f"{EXACT.plus(written):f}"}
        }  # `plus`: Cedar's zero has no sign


@dataclasses.dataclass(frozen=True)
class JsonText:
    """What has no type of Cedar's: its canonical JSON, as a string."""

    @property
    def declared(self) -> dict[str, Json]:
        """The type\'s name."""
        return {"type": "String"}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Sorted keys, no spaces, ASCII."""
        several.add(where)
        try:
            return canonical_json(value).decode()
        except ValueError:
            raise Unfit(f"{where} is no JSON, or nested too deeply") from None


@dataclasses.dataclass(frozen=True)
class SetOf:
    """A list; Cedar keeps neither its order nor how often something is in it."""

    element: CedarType

    @property
    def declared(self) -> dict[str, Json]:
        """A set of elements of one type."""
        return {"type": "Set", "element": self.element.declared}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Each element; those that are null are left out."""
        if not isinstance(value, list):
            raise Unfit(f"{where} is no list")
        return [
            self.element.encode(item, where, several)
            for item in value
            if item is not None
        ]


@dataclasses.dataclass(frozen=True)
class Field:
    """An attribute of a record: its type, whether it is always there, and the value that stands for one not given."""

    type: CedarType
    required: bool
    default: Json = None


@dataclasses.dataclass(frozen=True)
class Record:
    """An object with known names."""

    fields: Mapping[str, Field]

    @property
    def declared(self) -> dict[str, Json]:
        """A closed record."""
        attributes: dict[str, Json] = {
            escaped(name): {**field.type.declared, "required": field.required}
            for name, field in self.fields.items()
        }
        return {"type": "Record", "attributes": attributes}

    def encode(self, value: Json, where: str, several: set[str]) -> Cedar:
        """Each value under its name, and the defaults of those not given; those that are null are left out."""
        if not isinstance(value, dict):
            raise Unfit(f"{where} is no object")
        encoded: dict[str, Cedar] = {}
        for name, item in value.items():
            field = self.fields.get(name)
            path = f"{where}.{name}" if where else name
            if field is None:
                raise Unfit(
                    f"{shown(path)} is not among the arguments that the policy knows"
                )
            if item is not None or isinstance(field.type, JsonText):
                encoded[escaped(name)] = field.type.encode(item, path, several)
        for name, field in self.fields.items():
            path = f"{where}.{name}" if where else name
            if name not in value and field.default is not None:
                encoded[escaped(name)] = field.type.encode(field.default, path, several)
            elif field.required and escaped(name) not in encoded:
                raise Unfit(f"{path} is missing")
        return encoded


def check_defaults(kind: CedarType, where: str = "") -> None:
    """Raise `Unfit` for a default that has no counterpart: each call that leaves it out would be denied."""
    if isinstance(kind, SetOf):
        check_defaults(kind.element, where)
    for name, field in kind.fields.items() if isinstance(kind, Record) else ():
        path = f"{where}.{name}" if where else name
        if field.default is not None:
            field.type.encode(field.default, path, set())
        check_defaults(field.type, path)


def escaped(name: str) -> str:
    """A name that Cedar cannot take for an instruction of its own: `__entity` is written `~__entity`."""
    return f"~{name}" if name.lstrip("~").startswith("__") else name


def shown(name: str) -> str:
    """A name that a model made up, as an error may show it."""
    return json.dumps(name[:40])


def record_of(schema: Mapping[str, Json]) -> Record:
    """The record of a tool's arguments, from the JSON schema of the object that they are."""
    reader = _Reader(schema)
    return reader.record(schema, ())


class _Reader:
    """Reads one JSON schema; it may describe more than the type says, as the encoding refuses what does not fit."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._left = MAX_TYPES

    def record(self, schema: Mapping[str, Json], within: tuple[str, ...]) -> Record:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        named = properties if isinstance(properties, dict) else {}
        always = required if isinstance(required, list) else []
        fields: dict[str, Field] = {}
        for name, part in named.items():
            made, nullable = self._type(part, within)
            default = (
                part.get("default")
                if isinstance(part, dict) and name not in always
                else None
            )
            fields[name] = Field(
                made, not nullable and (name in always or default is not None), default
            )
        return Record(fields)

    def _type(self, schema: Json, within: tuple[str, ...]) -> tuple[CedarType, bool]:
        """The type that a part of the schema stands for, and whether null is one of its values."""
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or len(within) > MAX_DEPTH:
            return JsonText(), False
        reference = schema.get("$ref")
        if isinstance(reference, str):
            if reference in within:  # it holds itself
                return JsonText(), False
            return self._type(_found(self._root, reference), (*within, reference))
        for word in ("anyOf", "oneOf", "allOf"):
            parts = schema.get(word)
            if isinstance(parts, list):
                return self._one_of(parts, (*within, word))
        kinds = schema.get("type", _kinds_of_values(schema))
        listed = cast("list[Json]", kinds if isinstance(kinds, list) else [kinds])
        made = [self._plain(kind, schema, within) for kind in listed if kind != "null"]
        return _merged(made), "null" in listed

    def _one_of(
        self, parts: list[Json], within: tuple[str, ...]
    ) -> tuple[CedarType, bool]:
        made = [self._type(part, within) for part in parts if part != {"type": "null"}]
        return _merged([one for one, _ in made]), len(made) < len(parts) or any(
            nullable for _, nullable in made
        )

    def _plain(
        self, kind: Json, schema: dict[str, Json], within: tuple[str, ...]
    ) -> CedarType:
        within = (*within, "of")
        if kind == "array":
            return SetOf(
                self._type(schema.get("items"), within)[0]
                if "prefixItems" not in schema
                else JsonText()
            )
        if kind == "object":
            closed = (
                "properties" in schema
                and schema.get("additionalProperties", False) is False
            )
            return self.record(schema, within) if closed else JsonText()
        plain: dict[Json, CedarType] = {
            "string": Text(),
            "integer": Whole(),
            "number": Number(),
            "boolean": Flag(),
        }
        return plain[kind] if isinstance(kind, str) and kind in plain else JsonText()


def _merged(types: list[CedarType]) -> CedarType:
    """The one type of several alternatives; the text of the JSON where they have none in common."""
    if types and all(one == types[0] for one in types):
        return types[0]
    if types and all(isinstance(one, (Whole, Number)) for one in types):
        return Number()
    return JsonText()


def _kinds_of_values(schema: Mapping[str, Json]) -> Json:
    """The type of an `enum` or a `const` that names none."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return None
    names: dict[type, Json] = {
        str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"
    }  # fmt: skip
    return [names.get(type(value), "") for value in values]


def _found(root: Mapping[str, Json], reference: str) -> Json:
    """What a JSON pointer within the schema (RFC 6901) leads to; null if nothing."""
    here: Json = dict(root)
    start, *steps = reference.split("/")
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        here = here.get(name) if isinstance(here, dict) else None
    return here if start == "#" else None
