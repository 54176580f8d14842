"""The definitions of tools that an MCP server lists, and their reduction to what is safe to use."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from ..._internal import dataclasses
from ...attachments import Attachment
from ...messages import Effect, Json, JsonObject, canonical_json
from ...security.spotlighting import quote, strip_control_characters
from .errors import UnsuitableTool

MAX_DESCRIPTION = 2_000
"""Characters of a description, of a tool or of a part of its schema."""
MAX_SCHEMA = 50_000
"""Characters of a schema as JSON."""
MAX_CHECKS = 5_000
"""Subschemas that one value may have to be compared with, references followed."""
MAX_PARTS = 2_000
"""Parts of a schema, whether used or not: each takes 0.2 ms to look at."""
MAX_PARTS_IN_ALL = 10_000
"""The same of all tools of a server."""

Part = TypeVar("Part", dict[str, Any], list[Any])

# Keywords of JSON Schema (2020-12) by value: several schemas, schemas by name, one schema, data.
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


@dataclasses.dataclass(frozen=True)
class Answer:
    """The result of a tool of a server: text, images and PDFs; `is_error` if the tool says that it failed."""

    text: str
    is_error: bool
    attachments: tuple[Attachment, ...] = ()


@dataclasses.dataclass(frozen=True)
class ListedTool:
    """A tool as its server lists it, unchecked; a hint is `None` if the server gives none."""

    name: str
    description: str
    schema: JsonObject
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None

    @functools.cached_property
    def pin(self) -> str:
        """Return the SHA-256 (hex) of everything that a model or a policy uses.

        It is empty for a definition without a canonical form, such as one with NaN, which cannot be
        compared and therefore not be offered.
        """
        try:
            return hashlib.sha256(canonical_json(dataclasses.asdict(self))).hexdigest()
        except (ValueError, RecursionError):
            return ""

    def effect(self, *, trusted: bool) -> Effect:
        """Return the effect of a call: by the hints, with MCP's defaults, or by these defaults alone."""
        if trusted and self.read_only:
            return "read"
        if not trusted or self.destructive is not False:
            return "destructive"
        return "idempotent" if self.idempotent else "write"


def clean_description(text: str) -> str:
    """Return a description that is safe for a model: one line without invisible text and markers.

    It is quoted if it could be read as a call, and cut if it is too long.
    """
    line = " ".join(strip_control_characters(text).split())
    is_short = len(line) <= MAX_DESCRIPTION
    return quote(line if is_short else f"{line[:MAX_DESCRIPTION]} [cut]")


def count_parts(listed: ListedTool, *, beside: int) -> int:
    """Return the number of parts of a tool's schema, `beside` those of other tools.

    Raises `UnsuitableTool` for a definition without a pin, and for a schema that would take too long
    to look at, by itself or with the others.
    """
    if not listed.pin:
        raise UnsuitableTool(
            "its definition contains a value that is not JSON, such as NaN, so a change could not be noticed"
        )
    parts = _count(listed.schema)
    if parts > MAX_PARTS:
        raise UnsuitableTool(f"its schema has more than {MAX_PARTS:,} parts")
    if beside + parts > MAX_PARTS_IN_ALL:
        raise UnsuitableTool(
            f"the schemas of the tools before it have {MAX_PARTS_IN_ALL:,} parts already; include fewer tools"
        )
    return parts


def reduce_schema(listed: ListedTool) -> JsonObject:
    """Return the reduced schema by which arguments are checked; the server checks the rest.

    Removed are keywords by which a server could run code here, or for as long as it likes: regular
    expressions (`pattern`), other bases of references (`$id`, `$dynamicRef`), negations and
    conditions. The rest accepts everything that the whole schema accepts. Raises `UnsuitableTool` for
    a schema that cannot be used even so.
    """
    try:
        schema = _reduce(listed.schema)
        _measure(schema)
    except RecursionError:
        raise UnsuitableTool("its schema is nested too deeply") from None
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > MAX_SCHEMA:
        raise UnsuitableTool(f"its schema is longer than {MAX_SCHEMA:,} characters")
    if strip_control_characters(text) != text:
        raise UnsuitableTool(
            "its schema has invisible characters in the names or values of arguments"
        )
    # Alternatives and references may allow properties that the registry would refuse.
    if schema.keys() & {*_MANY, "$ref"}:
        schema.setdefault("additionalProperties", True)
    return {"properties": {}, **schema}


def _reduce(schema: Any) -> dict[str, Json]:
    """Return a schema with only the known and harmless keywords, at every level."""
    if isinstance(schema, bool):
        return {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise UnsuitableTool(f"a part of its schema is not a schema: {schema!r:.80}")
    given = cast("dict[str, Any]", schema)
    kept: dict[str, Json] = {key: given[key] for key in _PLAIN & given.keys()}
    if isinstance(given.get("description"), str):
        kept["description"] = clean_description(given["description"])
    for key in _ONE & given.keys():
        kept[key] = given[key] if isinstance(given[key], bool) else _reduce(given[key])
    for key in _NAMED & given.keys():
        kept[key] = {
            name: _reduce(part) for name, part in _as(dict, given[key]).items()
        }
    for key in _MANY & given.keys():
        kept[key] = [_reduce(part) for part in _as(list, given[key])]
    return _loosen(kept, given)


def _loosen(kept: dict[str, Json], given: dict[str, Any]) -> dict[str, Json]:
    """Accept values that a removed keyword may have accepted."""
    alternatives = kept.pop("oneOf", None)
    # Of alternatives that lost a keyword several may match, so one must be enough.
    if alternatives is not None:
        kept.setdefault("anyOf", alternatives)
    if "patternProperties" in given:
        kept["additionalProperties"] = True
    return kept


def _as(kind: type[Part], given: object) -> Part:
    if not isinstance(given, kind):
        raise UnsuitableTool(f"a part of its schema is not a schema: {given!r:.80}")
    return given


class _Measure:
    """The number of subschemas that one value may be compared with; a recursive reference counts 1."""

    def __init__(self, root: dict[str, Json]) -> None:
        self._root = root
        self._costs: dict[str, int] = {}
        self._open: set[str] = set()
        self.is_recursive = False
        self.total = self._cost(root)

    def _cost(self, part: Json) -> int:
        if isinstance(part, list):
            return sum(map(self._cost, part))
        if not isinstance(part, dict):
            return 0
        parts = [part[key] for key in part.keys() & {*_MANY, *_ONE}]
        named = part.get("properties")
        if isinstance(named, dict):
            parts += named.values()
        reference = part.get("$ref")
        referenced = self._follow(reference) if isinstance(reference, str) else 0
        return 1 + sum(map(self._cost, parts)) + referenced

    def _follow(self, reference: str) -> int:
        if reference in self._open:
            self.is_recursive = True
            return 1
        if reference not in self._costs:
            self._open.add(reference)
            self._costs[reference] = self._cost(_resolve(self._root, reference))
            self._open.discard(reference)
        return self._costs[reference]


def _measure(root: dict[str, Json]) -> None:
    """Raise `UnsuitableTool` for a schema whose references multiply, so that a check may take long.

    This finds the cases that the schema shows; the work of a call's arguments is counted when they
    are checked.
    """
    measure = _Measure(root)
    if measure.total > MAX_CHECKS:
        raise UnsuitableTool(
            "its schema refers to itself so often that a check would take too long"
        )
    text = json.dumps(root)
    has_alternatives = '"anyOf"' in text or '"allOf"' in text
    if measure.is_recursive and has_alternatives:
        raise UnsuitableTool(
            "its schema is recursive and has alternatives, so that a check may take too long"
        )


def _count(value: Json | JsonObject) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 0


def _resolve(root: dict[str, Json], reference: str) -> Json:
    """Return the part that a reference within the schema leads to (RFC 6901).

    Only keywords that contain schemas are followed: a value in a `const`, say, was not reduced and
    must not become a schema.
    """
    here: Json = root
    start, *steps = reference.split("/")
    is_name = False
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        is_known = is_name or name in _NAMED | _ONE
        is_name = not is_name and name in _NAMED
        here = here.get(name) if is_known and isinstance(here, dict) else None
    if start != "#" or is_name or not isinstance(here, dict):
        raise UnsuitableTool(
            f"its schema has a $ref to {reference[:80]!r}, which does not lead to a schema in it"
        )
    return here
