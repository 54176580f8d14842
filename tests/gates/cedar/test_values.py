"""JSON as Cedar values: every value has its counterpart or is refused, and none becomes anything that it was not."""

import dataclasses
import json
from typing import Any, cast

import pytest
from cedarpy import Decision, Entities, PolicySet, Schema, is_authorized
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from loopwright import ConfigError, tool
from loopwright.gates import CedarGate
from loopwright.gates.cedar.values import (
    CedarType,
    Field,
    Flag,
    JsonText,
    Number,
    Record,
    SetOf,
    Text,
    UnencodableValue,
    Whole,
    escaped,
    record_of,
)
from loopwright.tools import Tool

# --- types from JSON schemas ---


def typed(part: Any, **definitions: Any) -> CedarType:
    return (
        record_of({"type": "object", "properties": {"x": part}, "$defs": definitions})
        .fields["x"]
        .type
    )


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "string"}, Text()),
        ({"type": "string", "format": "date"}, Text()),
        ({"enum": ["red", "green"]}, Text()),
        ({"const": "red"}, Text()),
        ({"type": "integer"}, Whole()),
        ({"enum": [1, 2, None]}, Whole()),
        ({"type": "number"}, Number()),
        ({"type": ["integer", "number"]}, Number()),
        ({"type": "boolean"}, Flag()),
        ({"type": ["string", "null"]}, Text()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, Whole()),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, Number()),
        (
            {"allOf": [{"$ref": "#/$defs/Point"}]},
            Record({"x": Field(Whole(), required=True)}),
        ),
        ({"$ref": "#/$defs/Point"}, Record({"x": Field(Whole(), required=True)})),
        ({"type": "array", "items": {"type": "string"}}, SetOf(Text())),
        ({"type": "array"}, SetOf(JsonText())),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}],
                "items": {"type": "string"},
            },
            SetOf(JsonText()),
        ),
        ({"type": "object"}, JsonText()),
        ({"type": "object", "additionalProperties": {"type": "string"}}, JsonText()),
        ({**POINT, "additionalProperties": True}, JsonText()),
        ({"type": ["string", "integer"]}, JsonText()),
        ({"enum": ["red", 1]}, JsonText()),
        ({"type": "null"}, JsonText()),
        ({"type": {"no": "type"}}, JsonText()),
        ({"$ref": "#/$defs/Nothing"}, JsonText()),
        ({"$ref": "http://elsewhere"}, JsonText()),
        ({}, JsonText()),
        (True, JsonText()),
    ],
)
def test_a_json_schema_has_a_type_of_cedars_or_is_the_text_of_its_json(
    part: Any, expected: CedarType
) -> None:
    assert typed(part, Point=POINT) == expected


def test_what_may_be_missing_or_null_is_not_always_there() -> None:
    @tool
    def book(day: str, seats: int | None, aisle: bool | None = None) -> str:
        """Book."""
        return f"{day} {seats} {aisle}"

    assert record_of(book.schema) == Record(
        {
            "day": Field(Text(), True),
            "seats": Field(Whole(), False),
            "aisle": Field(Flag(), False),
        }
    )


def test_a_default_is_there_where_nothing_is_given_as_that_is_what_runs() -> None:
    @tool
    def book(
        seats: int = 2,
        pace: float = 0.5,
        rows: int | None = 7,
        tags: list[str] = [],  # noqa: B006
    ) -> str:
        """Book."""
        return f"{seats} {pace} {rows} {tags}"

    record = record_of(book.schema)

    assert record.fields == {
        "seats": Field(Whole(), True, 2),
        "pace": Field(Number(), True, 0.5),
        "rows": Field(Whole(), False, 7),
        "tags": Field(SetOf(Text()), True, []),
    }
    assert record.encode({"pace": 1}, "", set()) == {
        "seats": 2, "pace": {"__extn": {"fn": "decimal", "arg": "1.0000"}}, "rows": 7, "tags": [],
    }  # fmt: skip
    assert "rows" not in cast(
        "dict[str, Any]", record.encode({"rows": None}, "", set())
    )
    with pytest.raises(UnencodableValue, match="seats is missing"):
        record.encode({"seats": None}, "", set())


def test_a_default_that_cedar_cannot_hold_is_not_hidden_from_policies() -> None:
    @tool
    def book(exact: float = 0.00001) -> str:
        """Book."""
        return f"{exact}"

    record = record_of(book.schema)

    assert record.fields == {"exact": Field(Number(), True, 0.00001)}
    with pytest.raises(
        UnencodableValue, match="exact has more than four decimal places"
    ):
        record.encode({}, "", set())


class Pace(BaseModel):
    """How exactly, in what a tool is given."""

    tol: float = 1e-6


@pytest.mark.parametrize(
    ("annotation", "default", "why"),
    [
        (float, 1e-6, "x has more than four decimal places"),
        (int, 2**70, "x is too large a number"),
        (list[float], [0.5, 1e-6], "x has more than four decimal places"),
        (Pace, ..., "x.tol has more than four decimal places"),
        (list[Pace], ..., "x.tol has more than four decimal places"),
    ],
)
def test_a_default_that_cedar_cannot_hold_is_refused_when_the_gate_is_made(
    annotation: Any, default: Any, why: str
) -> None:
    schema = create_model("arguments", x=(annotation, default)).model_json_schema()
    book = Tool("book", "", schema, print)

    with pytest.raises(
        ConfigError,
        match=f"tools: Cedar cannot represent a default of 'book', .*: {why}; give it another",
    ):
        CedarGate("", tools=[book])
    assert CedarGate("", tools=[dataclasses.replace(book, schema={"type": "object"})])


def test_a_schema_that_holds_itself_ends() -> None:
    tree = {
        "type": "object",
        "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }

    assert typed({"$ref": "#/$defs/Tree"}, Tree=tree) == Record(
        {"below": Field(SetOf(JsonText()), False)}
    )


def test_a_schema_that_multiplies_or_goes_deep_ends_too() -> None:
    doubling = {
        f"D{n}": {
            "type": "object",
            "properties": {k: {"$ref": f"#/$defs/D{n + 1}"} for k in "ab"},
        }
        for n in range(30)
    }
    deep: Any = {"type": "string"}
    for _ in range(400):
        deep = {"type": "array", "items": deep}

    assert len(json.dumps(typed({"$ref": "#/$defs/D0"}, **doubling).declared)) < 100_000
    assert len(json.dumps(typed(deep).declared)) < 2_000


# --- values ---


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Text(), "a\x00b\n", "a\x00b\n"),
        (Whole(), 3.0, 3),
        (Whole(), -(2**63), -(2**63)),
        (Number(), 10.5, {"__extn": {"fn": "decimal", "arg": "10.5000"}}),
        (Number(), -0.0, {"__extn": {"fn": "decimal", "arg": "0.0000"}}),
        (Number(), 0.1, {"__extn": {"fn": "decimal", "arg": "0.1000"}}),
        (Number(), 7, {"__extn": {"fn": "decimal", "arg": "7.0000"}}),
        (SetOf(Whole()), [1, None, 2], [1, 2]),
        (
            JsonText(),
            {"b": [1.5, None], "a": 2**70},
            '{"a":1180591620717411303424,"b":[1.5,null]}',
        ),
        (JsonText(), "\ud800", '"\\ud800"'),
        (Record({"a": Field(Whole(), False)}), {"a": None}, {}),
    ],
)
def test_a_value_of_the_type_is_written_as_cedar_reads_it(
    kind: CedarType, value: Any, expected: Any
) -> None:
    assert kind.encode(value, "x", set()) == expected


DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Text(), 1, "x is not a text"),
        (Text(), "\ud800", "x contains half a surrogate pair"),
        (Whole(), True, "x is not a whole number"),
        (Whole(), 1.5, "x is not a whole number"),
        (Whole(), "1", "x is not a whole number"),
        (Whole(), 2**63, "x is too large a number"),
        (Whole(), float("inf"), "x is not a whole number"),
        (Number(), True, "x is not a number"),
        (Number(), 0.00001, "x has more than four decimal places"),
        (Number(), 100.00001, "x has more than four decimal places"),
        (Number(), 1e15, "x is too large a number"),
        (Number(), 10**4_000, "x is too large a number"),
        (Number(), float("nan"), "x is too large a number"),
        (Flag(), 1, "x is neither true nor false"),
        (SetOf(Text()), "a", "x is not a list"),
        (
            SetOf(Text()),
            [{"__entity": {"type": "Agent", "id": "admin"}}],
            "x is not a text",
        ),
        (JsonText(), float("nan"), "x is not JSON, or is nested too deeply"),
        (JsonText(), DEEP, "x is not JSON, or is nested too deeply"),
        (Record({}), [], "x is not an object"),
        (
            Record({}),
            {"y\n": 1},
            '"x.y\\n" is not among the arguments that the policy knows',
        ),
        (
            Record({"a": Field(Record({"b": Field(Text(), True)}), True)}),
            {"a": {"b": None}},
            "x.a.b is missing",
        ),
    ],
)
def test_a_value_without_counterpart_is_refused_in_words(
    kind: CedarType, value: Any, problem: str
) -> None:
    with pytest.raises(UnencodableValue) as refused:
        kind.encode(value, "x", set())

    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("a@example.com", False),
        ("ü", False),
        ("a@x.com,b@example.com", True),
        ("a@x.com b@example.com", True),
        ("a@x.com\nb@example.com", True),
        ("a@x.com\u200bb@example.com", True),
        ("a;b", True),
        ("a|b", True),
        ("a\x00b", True),
    ],
)
def test_a_text_of_more_than_one_word_is_named(text: str, more: bool) -> None:
    several = set[str]()
    kind = Record({"to": Field(Text(), True), "cc": Field(SetOf(Text()), False)})

    kind.encode({"to": text, "cc": ["a", text]}, "", several)

    assert several == ({"to", "cc"} if more else set())


# --- total, and closed ---

NAMES = st.sampled_from(
    ["a", "__entity", "__extn", "__expr", "~__entity", "", "x y", "type"]
)
SMUGGLED = [
    {"__entity": {"type": "Agent", "id": "admin"}},
    {"__extn": {"fn": "decimal", "arg": "1.0"}},
    {"__expr": 'Agent::"admin"'},
]
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[]))
    | st.sampled_from(["Agent", "admin", 2**63, -(2**63), 1e-5, 1e300, -0.0]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=3)
    | st.sampled_from(SMUGGLED),
    max_leaves=8,
)  # fmt: skip
TYPES: Any = st.recursive(
    st.sampled_from([Text(), Whole(), Number(), Flag(), JsonText()]),
    lambda below: (
        st.builds(SetOf, below)
        | st.dictionaries(
            NAMES, st.builds(Field, below, st.booleans()), max_size=3
        ).map(Record)
    ),
    max_leaves=5,
)
ANYTHING = PolicySet.from_str("permit(principal, action, resource);")


def fitting(kind: CedarType) -> Any:
    """Values that look like the type, so that not all of them are refused."""
    match kind:
        case Text():
            return st.text()
        case Whole():
            return st.integers(-(2**63), 2**63 - 1)
        case Number():
            return st.integers(-(10**9), 10**9).map(lambda n: n / 10_000) | st.integers(
                -(10**9), 10**9
            )
        case Flag():
            return st.booleans()
        case SetOf(element):
            return st.lists(fitting(element) | st.none(), max_size=3)
        case Record(fields):
            return st.fixed_dictionaries(
                {
                    name: fitting(field.type)
                    for name, field in fields.items()
                    if field.required
                },
                optional={
                    name: fitting(field.type) | st.none()
                    for name, field in fields.items()
                    if not field.required
                },
            )
        case _:
            return JSON


def encoded(kind: CedarType, value: Any) -> Any:
    """The value as Cedar gets it, or `None` if it is refused; nothing else may happen."""
    try:
        return kind.encode(value, "x", set())
    except UnencodableValue:
        return None


def accepted(kind: CedarType, value: Any) -> bool:
    """Whether Cedar takes the encoded value for one of the type."""
    context = {"type": "Record", "attributes": {"x": kind.declared}}
    applies = {
        "principalTypes": ["Agent"],
        "resourceTypes": ["Agent"],
        "context": context,
    }
    schema = {
        "": {"entityTypes": {"Agent": {}}, "actions": {"call": {"appliesTo": applies}}}
    }
    parsed = Schema.from_json_str(json.dumps(schema))
    request = {
        "principal": 'Agent::"a"', "action": 'Action::"call"', "resource": 'Agent::"a"',
        "context": json.dumps({"x": value}),
    }  # fmt: skip
    said = is_authorized(
        request, ANYTHING, Entities.from_json_str("[]", parsed), schema=parsed
    )
    return said.decision == Decision.Allow and not said.diagnostics.errors


def instructions(value: Any) -> list[Any]:
    """What Cedar would take for an entity, an extension or an expression."""
    if isinstance(value, list):
        return [found for item in value for found in instructions(item)]
    if not isinstance(value, dict):
        return []
    if any(name.startswith("__") for name in value):
        return [value]
    return [found for item in value.values() for found in instructions(item)]


@given(kind=TYPES, value=JSON)
def test_any_value_is_encoded_or_refused_and_what_is_encoded_smuggles_nothing(
    kind: CedarType, value: Any
) -> None:
    written = encoded(kind, value)

    found = instructions(written)
    assert [
        one
        for one in found
        if one.keys() != {"__extn"} or one["__extn"]["fn"] != "decimal"
    ] == []
    assert not found or "decimal" in json.dumps(kind.declared), (
        "a decimal is only where the type is one"
    )
    assert written is None or accepted(kind, written)


@given(data=st.data(), kind=TYPES)
def test_a_value_of_the_type_is_taken_by_cedar(
    data: st.DataObject, kind: CedarType
) -> None:
    written = encoded(kind, data.draw(fitting(kind)))

    assert written is None or accepted(kind, written)


@given(JSON)
def test_what_has_no_type_is_a_text_whatever_it_is(value: Any) -> None:
    written = encoded(JsonText(), value)

    assert written is None or (
        isinstance(written, str) and written.isascii() and accepted(JsonText(), written)
    )


@given(st.text("_~ent", max_size=12), st.text("_~ent", max_size=12))
def test_no_two_names_are_escaped_to_one_and_none_is_an_instruction(
    one: str, other: str
) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)
    assert not escaped(one).startswith("__")
