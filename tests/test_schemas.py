"""Argument schemas: the quick way through a plain schema says what jsonschema says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from loopwright.schemas import ArgumentSchema

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.just([]),
    st.just({}),
    st.just(2.0),
)
PLAIN = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean"])}, optional={"description": st.just("text")}
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

    assert (ArgumentSchema("f", schema, ours=False).problem(arguments) is None) == judge.is_valid(arguments)


@given(st.dictionaries(NAMES, VALUES))
def test_a_constraint_beyond_the_type_is_left_to_jsonschema(arguments: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}, "b": {"enum": [1, "x"]}}}
    judge = Draft202012Validator({**schema, "additionalProperties": False})

    assert (ArgumentSchema("f", schema, ours=False).problem(arguments) is None) == judge.is_valid(arguments)
