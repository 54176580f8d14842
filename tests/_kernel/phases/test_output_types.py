"""Answers of any type that pydantic reads, in all engines: lists, dataclasses, typed dicts, unions, enums."""

import dataclasses
import datetime
import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter, field_validator
from typing_extensions import TypedDict

from loopwright import (
    ChainOfThoughtEngine,
    ConfigError,
    CriticEngine,
    LoopEngine,
    MemoryJournal,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    Run,
    Runtime,
    SelfAskEngine,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright._kernel.phases.output_type import OutputType, describe_type
from loopwright.events.run import RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.providers import Capabilities, Request
from loopwright.testing import ScriptedProvider
from loopwright.testing.contracts.models import polite


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Trip(BaseModel):
    """A trip."""

    city: str


class Ticket(TypedDict):
    """A ticket."""

    seat: int
    day: datetime.date


@dataclasses.dataclass
class Stay:
    """A stay, perhaps with others after it."""

    city: str
    nights: int = Field(ge=1)
    then: "list[Stay]" = dataclasses.field(default_factory=list["Stay"])


DAY = datetime.date(2026, 11, 24)
CASES: list[tuple[Any, str, object, str]] = [
    (list[str], '["a", "b"]', ["a", "b"], "list[str]"),
    (list[str], '{"value": ["a"]}', ["a"], "list[str]"),
    (Colour, '{"value": "blue"}', Colour.BLUE, "Colour"),
    (int | None, '{"value": 3}', 3, "int | NoneType"),
    (Trip | Colour, '{"value": {"city": "Rome"}}', Trip(city="Rome"), "Trip | Colour"),
    (dict[str, int], '{"value": 1}', {"value": 1}, "dict[str, int]"),
    (Ticket, '{"seat": 4, "day": "2026-11-24"}', {"seat": 4, "day": DAY}, "Ticket"),
    (Stay, '{"city": "Rome", "nights": 2}', Stay("Rome", 2), "Stay"),
    (tuple[int, str], '[1, "x"]', (1, "x"), "tuple[int, str]"),
    (Literal["yes", "no"], '"yes"', "yes", "Literal['yes', 'no']"),
    (Annotated[int, Field(gt=0)], "7", 7, "int"),
    (Trip, '{"city": "Rome"}', Trip(city="Rome"), "Trip"),
]


@pytest.mark.parametrize(("into", "text", "value", "name"), CASES)
def test_answer_is_read_as_the_type(
    into: Any, text: str, value: object, name: str, tmp_path: Path
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    engine = ReActEngine(Runtime(ScriptedProvider([text]), journal=journal))

    result = engine.run_sync("Go.", output=into, run_id="r")

    assert (result.output, result.llm_calls) == (value, 1)
    assert engine.resume_sync("r", output=into).output == value
    started = journal.read("r")[0].event
    assert isinstance(started, RunStarted)
    assert started.output == name


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is fine"


@tool(effect="write")
def put(what: str) -> str:
    """Put something down."""
    return f"{what} put"


ENGINES: list[type[LoopEngine]] = [
    ChainOfThoughtEngine,
    CriticEngine,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    SelfAskEngine,
    TreeOfThoughtsEngine,
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize(
    ("into", "text", "value"),
    [one[:3] for one in CASES[1:8]],
    ids=[one[3] for one in CASES[1:8]],
)
async def test_every_engine_gives_every_type(
    engine: type[LoopEngine], into: Any, text: str, value: object
) -> None:
    def answer(request: Request) -> Any:
        name = request.schema.name if request.schema is not None else ""
        return text if name == describe_type(into) else polite(request)

    able = Capabilities(json_schema=True)
    model = ScriptedProvider(answer, capabilities=able)
    runtime = Runtime(model, tools=[look, put])
    result = await engine(runtime).run("Plan a weekend.", output=into)

    assert (result.status, result.output) == ("completed", value)


class Schemas(ScriptedProvider):
    """Holds its replies to a schema, and notes which."""

    capabilities = Capabilities(json_schema=True)

    def __init__(self, *replies: str) -> None:
        super().__init__(replies)
        self.schemas: list[Any] = []

    async def complete(self, request: Request) -> Any:
        self.schemas.append(request.schema and request.schema.schema)
        return await super().complete(request)


class Asker(LoopEngine):
    """Asks for one value."""

    name = "asker"

    async def solve(self, run: Run) -> str:
        found = await run.ask("Which?", into=list[Trip])
        return found[0].city


def test_type_that_is_no_object_is_asked_for_as_one() -> None:
    provider = Schemas('{"value": [{"city": "Oslo"}]}')

    result = Asker(Runtime(provider)).run_sync("Go.")

    assert result.answer == "Oslo"
    [schema] = provider.schemas
    assert (schema["type"], schema["required"]) == ("object", ["value"])
    assert schema["properties"]["value"]["items"] == {"$ref": "#/$defs/Trip"}
    assert "Trip" in schema["$defs"]


def test_value_that_does_not_fit_is_repaired() -> None:
    script = [
        "Rome for 2 nights",
        '{"city": "Rome", "nights": 0}',
        '{"city": "Rome", "nights": 2}',
    ]

    result = ReActEngine(Runtime(ScriptedProvider(script))).run_sync("Go.", output=Stay)

    assert (result.output, result.llm_calls) == (Stay("Rome", 2), 3)


@pytest.mark.parametrize("into", [one[0] for one in CASES])
def test_dumped_value_is_restored(into: Any) -> None:
    [text, value] = next(one[1:3] for one in CASES if one[0] is into)
    read_as: OutputType[Any] = OutputType(into)

    assert read_as.restore(read_as.dump(read_as.read(text))) == value
    assert TypeAdapter(into).validate_python(value) == value


class Basket(BaseModel):
    """A basket, whose fields are read from another form than they have."""

    fruits: list[str]
    count: int

    @field_validator("fruits", mode="before")
    @classmethod
    def split(cls, given: Any) -> Any:
        """Split a text; what is no text cannot be split."""
        return given.split(", ")

    @field_validator("count")
    @classmethod
    def add_one(cls, given: int) -> int:
        """Count the basket, too."""
        return given + 1


async def test_ended_run_gives_its_output_again_where_a_validator_changes_it() -> None:
    model = ScriptedProvider(['{"fruits": "pear, fig", "count": 2}'])
    agent = Runtime(model, journal=MemoryJournal()).agent("shop", output=Basket)
    thread = agent.thread("ada")
    ended = await thread.run("Which fruits?")
    again = await thread.resume()

    assert ended.output == again.output == Basket(fruits="pear, fig", count=2)  # type: ignore[arg-type]
    assert again.output.count == 3
    with pytest.raises(ConfigError, match="cannot be made of what the run recorded"):
        OutputType(Basket).restore({"fruits": ["pear"], "count": 3})


def test_names_do_not_depend_on_how_python_writes_a_type() -> None:
    assert describe_type(list[dict[str, Stay]]) == "list[dict[str, Stay]]"
    assert describe_type(tuple[int, ...]) == "tuple[int, ...]"
