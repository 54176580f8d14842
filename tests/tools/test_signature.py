"""Tools: what a signature says becomes a schema, arguments arrive as Python types, mistakes are named at once."""

import dataclasses
import datetime
import enum
import functools
import math
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from conversations import tool_messages
from loopwright import (
    ConfigError,
    ReActEngine,
    Runtime,
    Tool,
    ToolContext,
    ToolRegistry,
    tool,
)
from loopwright.providers.call_names import fit_name
from loopwright.testing import ScriptedProvider, call
from loopwright.tools.schema import ArgumentSchema


class Colour(enum.Enum):
    """Not for models to read."""

    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    title: str
    x: int = 0
    y: Annotated[int, Field(ge=0)] = 0


@dataclasses.dataclass
class Pair:
    """Two numbers."""

    a: int
    b: int


PAINTED: list[Any] = []


@tool(effect="read")
async def paint(
    where: Point,
    colour: Colour,
    when: datetime.datetime,
    how: Literal["thick", "thin"] = "thin",
    note: Optional[str] = None,  # noqa: UP045 - the old way of writing it is under test
    tags: list[str] = [],  # noqa: B006 - a model's default is copied
    size: float = 1.0,
) -> str:
    """Paint a wall.

    It takes a while.

    Args:
        where: The place to paint,
            in metres.
        colour (Colour): Which colour.
        size: How large.

    Returns:
        What was painted.
    """
    PAINTED.append((where, colour, when, how, note, tags, size))
    return "painted"


def test_a_schema_comes_from_signature_and_docstring() -> None:
    assert (paint.name, paint.description) == (
        "paint",
        "Paint a wall.\n\nIt takes a while.",
    )
    assert paint.schema == {
        "type": "object",
        "properties": {
            "where": {
                "$ref": "#/$defs/Point",
                "description": "The place to paint, in metres.",
            },
            "colour": {"$ref": "#/$defs/Colour", "description": "Which colour."},
            "when": {"type": "string", "format": "date-time"},
            "how": {"type": "string", "enum": ["thick", "thin"], "default": "thin"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "size": {"type": "number", "default": 1.0, "description": "How large."},
        },
        "required": ["where", "colour", "when"],
        "additionalProperties": False,
        "$defs": {
            "Colour": {
                "description": "Not for models to read.",
                "enum": ["red", "blue"],
                "type": "string",
            },
            "Point": {
                "description": "A place.",
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "x": {"type": "integer", "default": 0},
                    "y": {"type": "integer", "minimum": 0, "default": 0},
                },
                "required": ["title"],
            },
        },
    }


async def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    where, when = {"title": "hall", "y": 2}, "2024-05-01T12:00:00Z"
    wanted = call("paint", where=where, colour="blue", when=when, tags=["a"], size=2)
    PAINTED.clear()
    await ReActEngine(Runtime(ScriptedProvider([wanted, "done"]), tools=[paint])).run(
        "Go."
    )

    at = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
    assert [
        (Point(title="hall", x=0, y=2), Colour.BLUE, at, "thin", None, ["a"], 2.0)
    ] == PAINTED


def test_defaults_are_python_values_and_not_shared() -> None:
    given_arguments = {
        "where": {"title": "t"},
        "colour": "red",
        "when": "2024-05-01T12:00:00Z",
    }
    first, second = (
        paint.bind_arguments(given_arguments),
        paint.bind_arguments(given_arguments),
    )

    assert (first["how"], first["note"], first["tags"], first["size"]) == (
        "thin",
        None,
        [],
        1.0,
    )
    assert first["tags"] is not second["tags"]


@pytest.mark.parametrize(
    ("hint", "value", "arrives"),
    [
        (
            uuid.UUID,
            "12345678-1234-5678-1234-567812345678",
            uuid.UUID("12345678-1234-5678-1234-567812345678"),
        ),
        (Decimal, "1.10", Decimal("1.10")),
        (datetime.date, "2024-05-01", datetime.date(2024, 5, 1)),
        (set[int], [3, 1], {1, 3}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (Pair, {"a": 1, "b": 2}, Pair(1, 2)),
        (int | str, "5", "5"),
        (Any, {"free": [None]}, {"free": [None]}),
        (list[Point], [{"title": "t"}], [Point(title="t")]),
        (float, 3, 3.0),
    ],
)
def test_many_types_can_be_parameters(hint: Any, value: Any, arrives: Any) -> None:
    def use(it: Any) -> None:
        """Use it."""

    use.__annotations__["it"] = hint
    made = tool(use)
    registry = ToolRegistry([made])

    assert registry.find_problem("use", {"it": value}) is None
    assert made.bind_arguments({"it": value}) == {"it": arrives}


def test_a_parameter_may_have_any_name() -> None:
    def fetch(
        schema: str,
        json: int,
        copy: bool,
        model_config: str,
        model_dump: str,
        title: str,
        _private: str = "p",
    ) -> None:
        """Fetch.

        Args:
            schema: The schema.
            title: The title.
        """

    made = tool(fetch)
    arguments = {
        "schema": "s",
        "json": 1,
        "copy": True,
        "model_config": "c",
        "model_dump": "d",
        "title": "t",
    }

    assert list(made.schema["properties"]) == [*arguments, "_private"]  # type: ignore[call-overload, arg-type]
    assert made.schema["properties"]["title"] == {
        "type": "string",
        "description": "The title.",
    }  # type: ignore[call-overload, index]
    assert ToolRegistry([made]).find_problem("fetch", arguments) is None
    assert made.bind_arguments(arguments) == {**arguments, "_private": "p"}


def test_annotated_fields_keep_their_description_and_bounds() -> None:
    @tool
    def roll(
        sides: Annotated[int, Field(ge=2, description="How many sides.")],
        times: Annotated[int, "plain"] = 1,
    ) -> int:
        """Roll."""
        return sides * times

    assert roll.schema["properties"] == {
        "sides": {"type": "integer", "minimum": 2, "description": "How many sides."},
        "times": {"type": "integer", "default": 1},
    }
    assert "1 is less than the minimum of 2" in (
        ToolRegistry([roll]).find_problem("roll", {"sides": 1}) or ""
    )


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    assert ping.schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert ToolRegistry([ping]).find_problem("ping", {}) is None


def test_a_decorated_tool_is_still_callable() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert (add(1, b=2), add(a=1)) == (3, 2)


def test_options_of_the_decorator_reach_the_tool() -> None:
    @tool(
        effect="read",
        name="look-up",
        description="Other words.",
        timeout=3,
        max_concurrency=2,
        repeatable=True,
        max_output_chars=10,
    )
    def look(what: str) -> str:
        """Words."""
        return what

    assert (look.name, look.description, look.effect, look.timeout) == (
        "look-up",
        "Other words.",
        "read",
        3,
    )
    assert (look.max_concurrency, look.repeatable, look.max_output_chars) == (
        2,
        True,
        10,
    )


# --- what can be a tool ---


class Shop:
    """A shop."""

    def __init__(self, stock: int) -> None:
        self.stock = stock

    def left(self, of: str) -> str:
        """How many are left.

        Args:
            of: Of what.
        """
        return f"{self.stock} {of}"

    @classmethod
    def motto(cls, loud: bool) -> str:
        """The motto."""
        return "BUY" if loud else "buy"

    @staticmethod
    def opens() -> str:
        """When it opens."""
        return "at nine"


class Searching:
    """An object that is called."""

    async def __call__(self, query: str) -> str:
        """Search."""
        return f"found {query}"


class SyncSearching:
    """An object that is called."""

    def __call__(self, query: str) -> str:
        return f"found {query}"


async def multiply(ctx: ToolContext[int], a: int, b: int, c: int = 1) -> int:
    """Multiply."""
    return ctx.deps * a * b * c


def audited(function: Any) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "wanted", "told"),
    [
        (Shop(3).left, call("left", of="pears"), "3 pears"),
        (Shop(3).motto, call("motto", loud=True), "BUY"),
        (Shop.opens, call("opens"), "at nine"),
        (Searching(), call("Searching", query="x"), "found x"),
        (SyncSearching(), call("SyncSearching", query="x"), "found x"),
        (functools.partial(multiply, b=5), call("multiply", a=2), "20"),
        (
            functools.partial(functools.partial(multiply, b=5), c=2),
            call("multiply", a=2),
            "40",
        ),
        (
            functools.partial(Searching(), query="bound"),
            call("Searching"),
            "found bound",
        ),
        (functools.lru_cache(Shop.opens), call("opens"), "at nine"),
        (audited(multiply), call("multiply", a=2, b=3), "12"),
    ],
)
async def test_methods_objects_and_partials_are_tools(
    function: Any, wanted: Any, told: str
) -> None:
    runtime = Runtime(ScriptedProvider([wanted, "done"]), tools=[function])

    result = await ReActEngine(runtime).run("Go.", deps=2)

    assert tool_messages(result) == [told]


def test_what_a_partial_has_filled_in_is_not_the_model_s_to_choose() -> None:
    made = tool(functools.partial(multiply, b=5))

    assert (made.description, list(made.schema["properties"])) == (
        "Multiply.",
        ["a", "c"],
    )  # type: ignore[arg-type]
    assert "'b' was unexpected" in (
        ToolRegistry([made]).find_problem("multiply", {"a": 1, "b": 9}) or ""
    )


def test_a_callable_object_is_described_by_its_call() -> None:
    made = tool(Searching())

    assert (made.description, made.is_async) == ("Search.", True)


# --- mistakes of the one who registers ---


def _no_annotation(city) -> str:  # type: ignore[no-untyped-def]
    return str(city)


def _star(*cities: str) -> str:
    return str(cities)


def _stars(**cities: str) -> str:
    return str(cities)


def _positional(city: str, /) -> str:
    return city


def _unknown(city: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(city)


def _object(city: Shop) -> str:
    return str(city)


def _late_context(city: str, context: ToolContext[Any]) -> str:
    return city


def _field(city: str = Field(default="Rome")) -> str:
    return city


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            _no_annotation,
            "'_no_annotation': parameter 'city' needs a type annotation, for example `city: str`",
        ),
        (_star, "'_star': parameter *cities: str must be an ordinary named one"),
        (_stars, "'_stars': parameter **cities: str must be an ordinary named one"),
        (
            _positional,
            "'_positional': parameter city: str must be an ordinary named one",
        ),
        (
            _unknown,
            "'_unknown': an annotation cannot be resolved: name 'Nowhere' is not defined",
        ),
        (_object, "'_object': its signature has no JSON schema"),
        (
            _late_context,
            "'_late_context': the ToolContext must be the first parameter, and be named 'ctx'",
        ),
        (
            _field,
            "'_field': parameter 'city' has a Field as its default; write `city: Annotated",
        ),
        (lambda: None, "tool name '<lambda>': use letters, digits"),
        (5, "tools: 5 is not a function"),
        (None, "tools: None is not a function"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_by_name(
    function: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        ToolRegistry([function])

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"effect": "harmless"},
            "effect must be one of read, idempotent, write, destructive, got 'harmless'",
        ),
        ({"timeout": -1}, "timeout must be a number greater than 0, got -1"),
        ({"timeout": 0}, "timeout must be a number greater than 0, got 0"),
        ({"timeout": math.nan}, "timeout must be a number greater than 0, got nan"),
        ({"timeout": "3 s"}, "timeout must be a number greater than 0, got '3 s'"),
        ({"max_concurrency": 0}, "max_concurrency must be a number greater than 0"),
        ({"max_output_chars": -5}, "max_output_chars must be a number greater than 0"),
        ({"name": "two\nlines"}, "tool name 'two\\nlines': use letters"),
        ({"name": "x" * 129}, "at most 128"),
        ({"timeot": 3}, "tool 'add': @tool has no option 'timeot'"),
    ],
)
def test_a_bad_option_of_a_tool_is_refused_by_name(
    options: dict[str, Any], words: str
) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    with pytest.raises(ConfigError) as refused:
        tool(**options)(add)

    assert words in str(refused.value)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'paint'; rename one"):
        ToolRegistry([paint, paint])


def test_two_tools_that_are_sent_by_one_name_are_refused() -> None:
    def click(q: str) -> str:
        return q

    dotted = tool(name="browser.click")(click)
    spoofed = tool(name=fit_name("browser.click"))(click)
    for tools in ([dotted, spoofed], [spoofed, dotted]):
        with pytest.raises(
            ConfigError, match=r"are both sent to models as 'browser_c.*; rename one"
        ):
            ToolRegistry(tools)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "schema is not a JSON schema"),
        ("not a schema", "schema is not a JSON schema"),
        (
            {"type": "object", "properties": {"x": {"pattern": "("}}},
            "schema is not a JSON schema",
        ),
        ({"type": "object", "properties": []}, "schema is not a JSON schema"),
        ({"type": "array"}, 'schema must describe an object; add "type": "object"'),
        ({}, "schema must describe an object"),
        (
            {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}},
            "$ref to '#/$defs/none', which is not in",
        ),
        (
            {
                "type": "object",
                "properties": {"x": {"$ref": "http://127.0.0.1:9/x.json"}},
            },
            "which is not in the schema",
        ),
        (
            {"type": "object", "anyOf": [{"$ref": "file:///etc/passwd"}]},
            "which is not in the schema",
        ),
    ],
)
def test_a_schema_that_is_none_is_refused_when_it_is_registered(
    schema: Any, words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        ToolRegistry([Tool("remote", "d", schema, print)])

    assert words in str(refused.value)
    assert "'remote'" in str(refused.value)


# --- validation ---


def remote(schema: dict[str, Any]) -> ToolRegistry:
    return ToolRegistry([Tool("remote", "d", {"type": "object", **schema}, print)])


def test_a_schema_of_the_caller_s_own_is_closed_unless_it_says_otherwise() -> None:
    properties = {"properties": {"x": {"type": "integer"}}}

    assert "'y' was unexpected" in (
        remote(properties).find_problem("remote", {"x": 1, "y": 2}) or ""
    )
    assert (
        remote({**properties, "additionalProperties": True}).find_problem(
            "remote", {"x": 1, "y": 2}
        )
        is None
    )


def test_references_within_a_schema_are_followed_to_any_depth() -> None:
    tree = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/tree"}},
        "additionalProperties": False,
    }
    registry = remote(
        {"properties": {"x": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    )
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"n": deep}

    assert registry.find_problem("remote", {"x": {"n": {"n": {}}}}) is None
    assert "'m' was unexpected" in (
        registry.find_problem("remote", {"x": {"n": {"m": 1}}}) or ""
    )
    assert (
        registry.find_problem("remote", {"x": deep})
        == "The arguments of remote are nested too deeply."
    )


def test_a_reference_may_point_into_a_list_or_to_an_escaped_name() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/anyOf/0/properties/a~1b"}},
        "anyOf": [{"properties": {"a/b": {"type": "integer"}}}],
    }

    assert remote(schema).find_problem("remote", {"a": 1}) is None
    assert "is not of type 'integer'" in (
        remote(schema).find_problem("remote", {"a": "x"}) or ""
    )


def test_a_value_of_the_schema_but_not_the_type_is_refused_before_the_tool() -> None:
    problem = ToolRegistry([paint]).find_problem(
        "paint", {"where": {"title": "t"}, "colour": "red", "when": "yesterday"}
    )  # fmt: skip

    assert problem is not None
    assert "when: Input should be a valid datetime" in problem


def test_a_validator_of_the_tool_s_own_model_is_heard() -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def _even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("must be even")
            return n

    @tool
    def halve(it: Even) -> int:
        """Halve."""
        return it.n // 2

    assert "must be even" in (
        ToolRegistry([halve]).find_problem("halve", {"it": {"n": 3}}) or ""
    )


def test_a_complaint_does_not_repeat_a_huge_argument() -> None:
    @tool
    def count(n: int) -> int:
        """Count."""
        return n

    problem = ToolRegistry([count]).find_problem("count", {"n": "x" * 1_000_000})

    assert problem is not None
    assert len(problem) < 700
    assert problem.endswith("is not of type 'integer'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
ANYTHING = ToolRegistry([paint, tool(multiply)])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "where": JSON
            | st.fixed_dictionaries(
                {"title": st.text()}, optional={"x": st.integers(), "y": JSON}
            ),
            "colour": JSON | st.sampled_from(["red", "blue", "green"]),
            "when": JSON | st.datetimes().map(str),
            "how": JSON | st.sampled_from(["thick", "thin"]),
            "note": JSON,
            "tags": JSON | st.lists(st.text()),
            "size": JSON | st.integers(),
            "more": JSON,
        },
    )
)
def test_arguments_of_any_kind_either_have_a_problem_or_arrive(
    arguments: dict[str, Any],
) -> None:
    if ANYTHING.find_problem("paint", arguments) is None:
        arrived = paint.bind_arguments(arguments)
        assert isinstance(arrived["where"], Point)
        assert isinstance(arrived["colour"], Colour)


@given(
    st.fixed_dictionaries(
        {
            "where": st.fixed_dictionaries(
                {"title": st.text()},
                optional={
                    "x": st.integers(-(2**63), 2**63),
                    "y": st.integers(0, 2**63),
                },
            ),
            "colour": st.sampled_from(["red", "blue"]),
            "when": st.datetimes(datetime.datetime(1900, 1, 1)).map(  # noqa: DTZ001
                datetime.datetime.isoformat
            ),
        },
        optional={
            "how": st.sampled_from(["thick", "thin"]),
            "note": st.none() | st.text(),
            "tags": st.lists(st.text()),
            "size": st.floats(allow_nan=False, allow_infinity=False)
            | st.integers(-(2**63), 2**63),
        },
    )
)
def test_arguments_that_fit_the_schema_never_raise(arguments: dict[str, Any]) -> None:
    assert ANYTHING.find_problem("paint", arguments) is None
    assert set(paint.bind_arguments(arguments)) == {
        "where",
        "colour",
        "when",
        "how",
        "note",
        "tags",
        "size",
    }


PLAIN_TYPES = st.sampled_from(["string", "integer", "number", "boolean"])


@given(
    st.dictionaries(st.sampled_from("abc"), PLAIN_TYPES, max_size=3),
    st.lists(st.sampled_from("abc"), unique=True, max_size=2),
    JSON | st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4),
)
def test_the_quick_way_through_a_plain_schema_says_what_json_schema_says(
    types: dict[str, str], required: list[str], arguments: Any
) -> None:
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()},
              "required": required, "additionalProperties": False}  # fmt: skip

    fits = (
        ArgumentSchema("it", schema, is_generated=False).find_problem(arguments) is None
    )

    assert fits == jsonschema.Draft202012Validator(schema).is_valid(arguments)


@given(st.text(max_size=10), JSON)
def test_a_call_of_any_name_with_anything_is_answered_in_words(
    name: str, arguments: Any
) -> None:
    problem = ANYTHING.find_problem(name, arguments)

    assert problem


async def test_what_a_tool_names_as_secret_comes_into_no_run() -> None:
    key = "correct-horse-battery"

    @tool(effect="read", trusted=True, secrets=[key])
    async def ask_the_bank() -> str:
        """Ask."""
        return f"you came with {key}"

    model = ScriptedProvider([call("ask_the_bank"), f"{key}!"])
    result = await ReActEngine(Runtime(model, tools=[ask_the_bank])).run("Ask.")

    assert (
        model.requests[1].conversation.messages[-1].content
        == "you came with [redacted]"
    )
    assert (result.answer, key in repr(ask_the_bank)) == ("[redacted]!", False)


@pytest.mark.parametrize(
    ("secrets", "problem"),
    [
        ("hunter22", "tool 'look': secrets: must be a list"),
        (["abc"], r"tool 'look': secrets\[0\]: give a text of 6"),
    ],
)
def test_secrets_of_a_tool_are_a_list_of_texts_that_can_be_told_from_words(
    secrets: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):

        @tool(secrets=secrets)
        def look() -> str:
            """Look."""
            return ""
