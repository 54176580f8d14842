"""Argument schemas: the quick way through a plain schema says what jsonschema says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loopwright.errors import ConfigError
from loopwright.tools.schema import ArgumentSchema, _check_schema, _is_plainly_valid
from stopwatch import quickest

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from(["x", " ", "\n\u3000", "x "]),
    st.just([]),
    st.just({}),
    st.just(2.0),
)
PLAIN = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
        optional={"description": st.just("text")},
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "enum": st.lists(st.sampled_from(["x", "y", " "]), unique=True),
            "pattern": st.just(r"\S"),
        },
    ),
)


@given(
    st.dictionaries(NAMES, PLAIN),
    st.lists(NAMES, unique=True),
    st.one_of(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES), VALUES),
)
def test_plain_schemas_are_judged_as_jsonschema_judges_them(
    properties: dict[str, Any], required: list[str], arguments: Any
) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    judge = Draft202012Validator({**schema, "additionalProperties": False})

    assert (
        ArgumentSchema("f", schema, is_generated=False).find_problem(arguments) is None
    ) == judge.is_valid(arguments)


@given(st.dictionaries(NAMES, VALUES))
def test_a_constraint_beyond_the_type_is_left_to_jsonschema(
    arguments: dict[str, Any],
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"enum": [1, "x"]}},
    }
    judge = Draft202012Validator({**schema, "additionalProperties": False})

    assert (
        ArgumentSchema("f", schema, is_generated=False).find_problem(arguments) is None
    ) == judge.is_valid(arguments)


ODD: Any = st.sampled_from(
    [None, 1, "a", [], ["a", "a"], ["a"], {}, {"$ref": "#/no"}, [{"$id": "x"}]]
)


@given(
    st.fixed_dictionaries(
        {"type": st.just("object") | ODD},
        optional={
            "properties": ODD
            | st.dictionaries(
                st.sampled_from(["a", "$ref", "$id"]),
                ODD
                | st.fixed_dictionaries(
                    {"type": st.just("string") | ODD},
                    optional={
                        "enum": ODD,
                        "pattern": st.just(r"\S") | st.just("(") | ODD,
                        "description": st.just("text") | ODD,
                        "default": st.just("text") | ODD,
                    },
                ),
            ),
            "required": ODD,
            "additionalProperties": st.just(False) | ODD,
            "description": st.just("text") | ODD,
        },
    )
)
def test_a_schema_that_is_plainly_valid_is_valid_for_jsonschema_too(
    schema: dict[str, Any],
) -> None:
    try:
        _check_schema("f", schema)
    except ConfigError:
        assert not _is_plainly_valid(schema)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BEHIND: Any = {
    "N": {"$ref": "#/$defs/M", "items": {"$ref": "#/$defs/N"}},
    "M": {"items": {"$ref": "#/$defs/N"}},
}
SHARED: Any = {
    f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(40)
} | {"s40": {"type": "string"}}
BIG: Any = {"B": {"const": [[n] for n in range(5_000)]}}


@pytest.mark.faults
@pytest.mark.parametrize(
    ("part", "definitions", "value"),
    [
        pytest.param(
            {"$ref": "#/$defs/N"},
            BEHIND,
            nested(40),
            id="a reference and what stands beside it",
        ),
        pytest.param(
            {"$ref": "#/$defs/s0"}, SHARED, "x", id="references that are shared"
        ),
        pytest.param(
            {"items": {"allOf": [{"minimum": 0}] * 2_000}},
            {},
            [1] * 1_000,
            id="many parts, many elements",
        ),
        pytest.param(
            {"items": {}}, {}, [1] * 1_000_000, id="elements that nothing is said of"
        ),
        pytest.param(
            {"anyOf": [{"type": "null"}] * 2_000},
            {},
            "x" * 1_000_000,
            id="messages that quote what is given",
        ),
        pytest.param(
            {"allOf": [{"$ref": "#/$defs/B"}] * 2_000},
            BIG,
            [[n] for n in range(5_000)],
            id="values that are long",
        ),
    ],
)
def test_a_check_that_would_take_long_is_given_up_and_the_call_refused(
    part: dict[str, Any], definitions: dict[str, Any], value: object
) -> None:
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": definitions,
    }
    schema = ArgumentSchema(
        "f", {**root, "properties": {"x": part}}, is_generated=False
    )

    problems = list[str | None]()
    seconds = quickest(lambda: problems.append(schema.find_problem({"x": value})), 3)

    assert set(problems) == {
        "The arguments of f are too large to check by its schema: give fewer, or shorter ones."
    }
    assert seconds < 3


@pytest.mark.parametrize(
    ("part", "value"),
    [
        pytest.param(
            {"type": "array", "uniqueItems": True},
            [{"a": n} for n in range(4_000)],
            id="objects",
        ),
        pytest.param(
            {"type": "array", "uniqueItems": True},
            [n if n % 2 else str(n) for n in range(4_000)],
            id="mixed",
        ),
    ],
)
def test_whether_each_is_there_once_is_told_in_linear_time(
    part: dict[str, Any], value: list[Any]
) -> None:
    schema = ArgumentSchema(
        "f", {"type": "object", "properties": {"x": part}}, is_generated=False
    )
    assert schema.find_problem({"x": value}) is None
    assert "at x:" in (schema.find_problem({"x": [*value, value[7]]}) or "")
    assert quickest(lambda: schema.find_problem({"x": value}), 0.5) < 0.5


PLAIN_JSON = st.sampled_from(
    [None, True, False, 0, 1, 0.0, -0.0, 1.0, 1.5, "", "1", "true"]
)
NESTED_JSON = st.recursive(
    PLAIN_JSON,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2)
    ),
)


@given(st.lists(NESTED_JSON, max_size=6))
def test_whether_each_is_there_once_is_told_as_by_comparing_each_with_each(
    items: list[Any],
) -> None:
    schema = ArgumentSchema(
        "f",
        {"type": "object", "properties": {"x": {"uniqueItems": True}}},
        is_generated=False,
    )
    same = any(
        Draft202012Validator({"const": one}).is_valid(other)
        for n, one in enumerate(items)
        for other in items[:n]
    )

    assert (schema.find_problem({"x": items}) is None) == (not same)


@pytest.mark.parametrize(
    "closed", [{}, {"additionalProperties": False}, {"unevaluatedProperties": {}}]
)
def test_patterns_for_names_count_for_each_name(closed: dict[str, Any]) -> None:
    root: Any = {
        "type": "object",
        "additionalProperties": True,
        "patternProperties": {f"^k{n}": {} for n in range(1_500)},
    }
    schema = ArgumentSchema(
        "f", {**root, **closed}, is_generated=False, third_party=False
    )
    names: Any = {f"z{n}": 1 for n in range(10_000)}
    problems = list[str | None]()
    seconds = quickest(lambda: problems.append(schema.find_problem(names)), 3)

    assert all("too large to check" in (problem or "") for problem in problems)
    assert seconds < 3


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"contains": {}, "unevaluatedItems": False}, [*range(20_000)]),
        (
            {"patternProperties": {"k": {}}, "unevaluatedProperties": False},
            {f"k{n}": n for n in range(20_000)},
        ),
    ],
)
def test_what_is_left_over_counts_for_each_pair(
    part: dict[str, Any], value: object
) -> None:
    schema = ArgumentSchema(
        "f",
        {"type": "object", "properties": {"x": part}},
        is_generated=False,
        third_party=False,
    )
    problems = list[str | None]()
    seconds = quickest(lambda: problems.append(schema.find_problem({"x": value})), 3)

    assert all("too large to check" in (problem or "") for problem in problems)
    assert seconds < 3


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_a_part_of_another_draft_is_counted_too() -> None:
    part: Any = {"$schema": DRAFT_7, "items": {"type": "integer"}}
    parts: Any = {
        "x": part,
        "$schema": {"type": "string"},
        "const": part,
        "y": {"const": {"$schema": DRAFT_7}},
    }
    schema = ArgumentSchema(
        "f", {"type": "object", "properties": parts}, is_generated=False
    )

    assert "too large to check" in (
        schema.find_problem({"x": [*range(1_000_000)]}) or ""
    )
    assert "too large to check" in (
        schema.find_problem({"const": [*range(1_000_000)]}) or ""
    )
    assert "at $schema:" in (schema.find_problem({"$schema": 5}) or "")
    assert schema.find_problem({"$schema": "a", "y": {"$schema": DRAFT_7}}) is None
    assert "at y:" in (schema.find_problem({"y": {}}) or "")


ROW: Any = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in "abcde"},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("items", "value"),
    [
        pytest.param(ROW, [dict.fromkeys("abcde", "text")] * 5_000, id="rows"),
        pytest.param(
            {"type": "array", "items": {"type": "number"}},
            [[1.5] * 200] * 200,
            id="matrix",
        ),
        pytest.param({"type": "integer"}, [*range(50_000)], id="numbers"),
    ],
)
def test_large_arguments_are_checked_by_anyones_schema(
    items: dict[str, Any], value: list[Any]
) -> None:
    schema = ArgumentSchema(
        "f",
        {"type": "object", "properties": {"x": {"type": "array", "items": items}}},
        is_generated=False,
    )

    assert schema.find_problem({"x": value}) is None


def test_a_check_counts_for_itself_alone_and_arguments_of_a_usual_size_are_checked() -> (
    None
):
    row: Any = {
        "type": "object",
        "properties": {f"c{n}": {"type": "string", "minLength": 1} for n in range(10)},
    }
    schema = ArgumentSchema(
        "f", {"type": "object", "properties": {"x": {"items": row}}}, is_generated=False
    )
    rows = [{f"c{n}": "text" for n in range(10)}] * 1_000

    assert [schema.find_problem({"x": rows}) for _ in range(5)] == [None] * 5


@pytest.mark.parametrize("number", [10**400, float("nan"), float("inf")])
def test_a_number_that_cannot_be_checked_is_refused(number: float) -> None:
    schema = ArgumentSchema(
        "f",
        {"type": "object", "properties": {"x": {"multipleOf": 0.5}}},
        is_generated=False,
    )

    assert "a number in them is out of range" in (
        schema.find_problem({"x": number}) or ""
    )


def test_a_reference_that_is_read_in_two_ways_is_no_reference() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$ref": "#/$defs/a%62",
        "$defs": {"a%62": {}},
    }

    with pytest.raises(ConfigError, match="which is not in the schema itself"):
        ArgumentSchema("f", schema, is_generated=False)


def test_a_reference_with_escapes_is_refused_with_the_cure() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "$ref": "#/$defs/a%20b",
        "$defs": {"a b": {}},
    }

    with pytest.raises(
        ConfigError,
        match="which is not in the schema itself; write it without percent escapes",
    ):
        ArgumentSchema("f", schema, is_generated=False)
    ArgumentSchema("f", {**schema, "$ref": "#/$defs/a b"}, is_generated=False)
