"""What an MCP server says of its tools, and what of that is believed: names, hints, descriptions, schemas."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from ...messages import Effect, Json, JsonObject, canonical_json
from ...security.spotlighting import quote, strip_control_characters

MAX_DESCRIPTION = (
    2_000  # characters of a description, of a tool or of a part of its schema
)
MAX_SCHEMA = 50_000  # characters of a schema as JSON
MAX_CHECKS = 5_000  # parts of a schema that one value may have to be compared with, references followed
MAX_PARTS = (
    2_000  # parts of a schema, whether used or not: each takes 0.2 ms to look at
)
MAX_PARTS_IN_ALL = 10_000  # the same of all tools of a server

Part = TypeVar("Part", dict[str, Any], list[Any])

# Keywords of JSON Schema (2020-12) by what they hold: several schemas, schemas by name, one schema, plain values.
_MANY = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_NAMED = frozenset(("properties", "$defs", "definitions"))
_ONE = frozenset(("items", "additionalProperties"))
_PLAIN = frozenset(
    (
        *(
            "type",
            "enum",
            "const",
            "default",
            "required",
            "format",
            "$ref",
            "multipleOf",
            "minimum",
            "maximum",
        ),
        *(
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
        ),
        *("minProperties", "maxProperties"),
    )
)


class Lost(Exception):
    """The connection ended before the answer came; `sent` says whether the call may have reached the server."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class Refused(Exception):
    """The server answered with an error of the protocol; `code` is that of JSON-RPC."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code


class Unreadable(Exception):
    """The server answered, and the answer cannot be read."""


class Unreachable(Exception):
    """No connection can be made, or none that lists tools."""


class Unfit(Exception):
    """A tool cannot be offered to a model; the text says why."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a tool of a server gave, as text; `is_error` if it says that it failed."""

    text: str
    is_error: bool


@dataclasses.dataclass(frozen=True)
class Listed:
    """A tool as its server lists it, unchecked; a hint is `None` where the server gives none."""

    name: str
    description: str
    schema: JsonObject
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None

    @functools.cached_property
    def pin(self) -> str:
        """SHA-256 (hex) of all that a model or a policy goes by: it changes when any of that does.

        Empty for what has no one form, such as NaN: that can be compared with nothing, and so not be offered.
        """
        try:
            return hashlib.sha256(canonical_json(dataclasses.asdict(self))).hexdigest()
        except (ValueError, RecursionError):
            return ""

    def effect(self, *, trusted: bool) -> Effect:
        """What a call does to the world: by the hints, with the defaults of MCP, or by these defaults alone."""
        if trusted and self.read_only:
            return "read"
        if not trusted or self.destructive is not False:
            return "destructive"
        return "idempotent" if self.idempotent else "write"


def described(text: str) -> str:
    """A description fit for a model, also in a list of tools: one line without anything invisible that is no call.

    It is cut where it is longer than is sensible.
    """
    line = " ".join(strip_control_characters(text).split())
    return quote(
        line if len(line) <= MAX_DESCRIPTION else f"{line[:MAX_DESCRIPTION]} [cut]"
    )


def parts_of(listed: Listed, *, beside: int) -> int:
    """How many parts a tool's schema has, `beside` those of other tools; raises `Unfit` for what cannot be dealt with.

    That is what has no pin, and what would take too long to look at, be it its own fault or that of all together.
    """
    if not listed.pin:
        raise Unfit(
            "its definition holds what is no JSON, such as NaN, so that nobody could tell when it changes"
        )
    parts = _parts(listed.schema)
    if parts > MAX_PARTS:
        raise Unfit(f"its schema has more than {MAX_PARTS:,} parts")
    if beside + parts > MAX_PARTS_IN_ALL:
        raise Unfit(
            f"the schemas of the tools before it have {MAX_PARTS_IN_ALL:,} parts already: include fewer tools"
        )
    return parts


def arguments_schema(listed: Listed) -> JsonObject:
    """The part of a tool's schema that arguments are checked by; the server checks the rest itself.

    Left out is what would let a server run code of its choice here, or for as long as it likes: regular expressions
    (`pattern`), other bases for references (`$id`, `$dynamicRef`), negations and conditions. What is left accepts all
    that the whole schema accepts. Raises `Unfit` for a schema that cannot be used even so.
    """
    try:
        schema = _checked(listed.schema)
        _measure(schema)
    except RecursionError:
        raise Unfit("its schema is nested too deeply") from None
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > MAX_SCHEMA:
        raise Unfit(f"its schema is longer than {MAX_SCHEMA:,} characters")
    if strip_control_characters(text) != text:
        raise Unfit(
            "its schema has invisible characters in the names or values of arguments"
        )
    if schema.keys() & {
        *_MANY,
        "$ref",
    }:  # these may allow properties that the registry would close out
        schema.setdefault("additionalProperties", True)
    return {"properties": {}, **schema}


def _checked(schema: Any) -> dict[str, Json]:
    """The keywords that are known and harmless, with the schemas inside of them."""
    if isinstance(schema, bool):
        return {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise Unfit(f"a part of its schema is no schema: {schema!r:.80}")
    given = cast("dict[str, Any]", schema)
    kept: dict[str, Json] = {key: given[key] for key in _PLAIN & given.keys()}
    if isinstance(given.get("description"), str):
        kept["description"] = described(given["description"])
    for key in _ONE & given.keys():
        kept[key] = given[key] if isinstance(given[key], bool) else _checked(given[key])
    for key in _NAMED & given.keys():
        kept[key] = {
            name: _checked(part) for name, part in _as(dict, given[key]).items()
        }
    for key in _MANY & given.keys():
        kept[key] = [_checked(part) for part in _as(list, given[key])]
    return _loosened(kept, given)


def _loosened(kept: dict[str, Json], given: dict[str, Any]) -> dict[str, Json]:
    """What was left out may have let something through that is refused without it."""
    alternatives = kept.pop("oneOf", None)
    if (
        alternatives is not None
    ):  # of parts that lost a keyword several may fit, so one of them has to be enough
        kept.setdefault("anyOf", alternatives)
    if "patternProperties" in given:
        kept["additionalProperties"] = True
    return kept


def _as(kind: type[Part], given: object) -> Part:
    if not isinstance(given, kind):
        raise Unfit(f"a part of its schema is no schema: {given!r:.80}")
    return given


class _Measure:
    """How many parts of a schema one value may be compared with; a reference back to what is under way counts once."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._costs: dict[str, int] = {}
        self._under_way: set[str] = set()
        self.recursive = False
        self.total = self._cost(root)

    def _cost(self, part: Json) -> int:
        if isinstance(part, list):
            return sum(map(self._cost, part))
        if not isinstance(part, dict):
            return 0
        parts = [part[key] for key in part.keys() & {*_MANY, *_ONE}]
        named = part.get("properties")
        parts += named.values() if isinstance(named, dict) else ()
        reference = part.get("$ref")
        return (
            1
            + sum(map(self._cost, parts))
            + (self._follow(reference) if isinstance(reference, str) else 0)
        )

    def _follow(self, reference: str) -> int:
        if reference in self._under_way:
            self.recursive = True
            return 1
        if reference not in self._costs:
            self._under_way.add(reference)
            self._costs[reference] = self._cost(_at(self._root, reference))
            self._under_way.discard(reference)
        return self._costs[reference]


def _measure(root: dict[str, Json]) -> None:
    """Raise `Unfit` for a schema with which a small value may take very long: references that multiply.

    This finds those that can be seen from outside; what a call's arguments may take is counted when they are checked.
    """
    measure = _Measure(root)
    if measure.total > MAX_CHECKS:
        raise Unfit(
            "its schema refers to itself so often that a check would take too long"
        )
    text = json.dumps(root)
    if measure.recursive and ('"anyOf"' in text or '"allOf"' in text):
        raise Unfit(
            "its schema is recursive and has alternatives, so that a check may take too long"
        )


def _parts(value: Json | JsonObject) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(map(_parts, value.values()))
    return sum(map(_parts, value)) if isinstance(value, list) else 0


def _at(root: dict[str, Json], reference: str) -> Json:
    """The part that a reference within the schema leads to (RFC 6901), by keywords that hold schemas.

    A value in a `const`, say, is kept as it is: what nobody looked at must not become a schema.
    """
    here: Json = root
    start, *steps = reference.split("/")
    by_name = False
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        by_name, known = (
            not by_name and name in _NAMED,
            by_name or name in _NAMED | _ONE,
        )
        here = here.get(name) if known and isinstance(here, dict) else None
    if start != "#" or by_name or not isinstance(here, dict):
        raise Unfit(
            f"its schema has a $ref to {reference[:80]!r}, by which there is no schema in it"
        )
    return here
