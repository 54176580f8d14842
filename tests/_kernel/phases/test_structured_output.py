"""output=Model in every engine: nested models, lists, enums, dates; put right or refused; the same when watched."""

import datetime
import enum
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from loopwright import (
    Capabilities,
    ChainOfThoughtEngine,
    Completion,
    ConfigError,
    CriticEngine,
    Delta,
    Entry,
    LoopEngine,
    MemoryJournal,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    Request,
    Result,
    Runtime,
    SelfAskEngine,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.errors import InvalidOutput
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from loopwright.testing.contracts.models import polite

ENGINES: list[type[LoopEngine]] = [
    ChainOfThoughtEngine,
    CriticEngine,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    SelfAskEngine,
    TreeOfThoughtsEngine,
]
every_engine = pytest.mark.parametrize(
    "engine", ENGINES, ids=lambda engine: engine.name
)
TASK = "Plan a weekend in Porto."
RUN = "the-run"


class Kind(enum.Enum):
    """What one does at a stop."""

    EAT = "eat"
    LOOK = "look"


class Stop(BaseModel):
    """One thing of a day."""

    place: str
    kind: Kind
    cost: Decimal = Field(ge=0)


class Walk(BaseModel):
    """Getting there on foot."""

    by: Literal["foot"]
    minutes: int


class Ride(BaseModel):
    """Getting there by train."""

    by: Literal["train"]
    line: str


class Day(BaseModel):
    """A day of the trip."""

    date: datetime.date
    stops: list[Stop] = Field(min_length=1)
    way: Annotated[Walk | Ride, Field(discriminator="by")]


class Trip(BaseModel):
    """What is asked for."""

    title: str = Field(alias="called")
    days: list[Day]
    notes: dict[str, str | None] = {}

    @field_validator("days")
    @classmethod
    def in_order(cls, days: list[Day]) -> list[Day]:
        """No JSON schema can say this."""
        if [day.date for day in days] != sorted(day.date for day in days):
            raise ValueError("the days must be in order")
        return days


def day(date: str, **way: object) -> dict[str, object]:
    return {
        "date": date,
        "stops": [{"place": "Ribeira", "kind": "look", "cost": "0.00"}],
        "way": way,
    }


SATURDAY = day("2026-05-02", by="foot", minutes=20)
SUNDAY = day("2026-05-03", by="train", line="D")
GOOD: dict[str, object] = {
    "called": "Porto",
    "days": [SATURDAY, SUNDAY],
    "notes": {"rain": None},
}
TRIP = Trip(
    called="Porto",
    days=[
        Day(
            date=datetime.date(2026, 5, 2),
            stops=[Stop(place="Ribeira", kind=Kind.LOOK, cost=Decimal("0.00"))],
            way=Walk(by="foot", minutes=20),
        ),
        Day(
            date=datetime.date(2026, 5, 3),
            stops=[Stop(place="Ribeira", kind=Kind.LOOK, cost=Decimal("0.00"))],
            way=Ride(by="train", line="D"),
        ),
    ],
    notes={"rain": None},
)
BAD = [  # what a model writes, and what it is told
    ({**GOOD, "days": [SUNDAY, SATURDAY]}, "the days must be in order"),
    ({**GOOD, "days": [day("2026-05-02", by="boat")]}, "days.0.way: "),
    ({**GOOD, "days": [{**SATURDAY, "stops": []}]}, "days.0.stops: "),
    ({**GOOD, "days": [day("2026-02-30", by="foot", minutes=2)]}, "days.0.date: "),
    ({"days": []}, "called: required"),
    ([GOOD], "Trip"),
]


@tool(effect="read")
def look(what: str) -> str:
    """Look something up."""
    return f"{what} is fine"


@tool(effect="write")
def put(what: str) -> str:
    """Put something down."""
    return f"{what} put"


class Model:
    """A model that answers the engines in their own words, and says what it is given when asked for the output."""

    def __init__(self, *outputs: object) -> None:
        self.outputs, self.asked = list(outputs), list[str]()

    def __call__(self, request: Request) -> Any:
        messages = request.conversation.messages
        wanted = request.schema is not None and request.schema.name == "Trip"
        if wanted or '"title": "Trip"' in " ".join(
            message.content for message in messages
        ):
            self.asked.append(messages[-1].content)
            output = self.outputs.pop(0)
            return output if isinstance(output, str) else json.dumps(output)
        return polite(request)


def made(
    engine: type[LoopEngine],
    model: Callable[[Request], Any],
    *,
    schema: bool = True,
    **parts: Any,
) -> LoopEngine:
    provider = ScriptedProvider(model, capabilities=Capabilities(json_schema=schema))
    return engine(Runtime(provider, tools=[look, put], clock=FakeClock(), **parts))


@every_engine
@pytest.mark.parametrize("schema", [True, False], ids=["schema", "words"])
async def test_every_engine_gives_the_whole_model(
    engine: type[LoopEngine], schema: bool
) -> None:
    result = await made(engine, Model(GOOD), schema=schema).run(TASK, output=Trip)

    assert (result.status, result.stop_reason, result.output) == (
        "completed",
        "answered",
        TRIP,
    )
    assert result.answer, "the answer in words is still there"


@every_engine
async def test_every_engine_lets_the_model_put_it_right(
    engine: type[LoopEngine],
) -> None:
    wrong, told = BAD[0]
    model = Model(wrong, GOOD)

    result = await made(engine, model).run(TASK, output=Trip)

    assert (result.status, result.output) == ("completed", TRIP)
    assert told in model.asked[1]


@every_engine
async def test_every_engine_keeps_the_answer_of_a_run_whose_output_never_fits(
    engine: type[LoopEngine],
) -> None:
    plain = await made(engine, Model()).run(TASK)
    result = await made(engine, Model("no JSON", BAD[1][0], "{")).run(TASK, output=Trip)

    assert (result.status, result.stop_reason, result.output) == (
        "failed",
        "invalid_output",
        None,
    )
    assert result.answer == plain.answer
    assert isinstance(result.error, InvalidOutput)
    with pytest.raises(InvalidOutput, match="no valid Trip after 2 repairs"):
        result.raise_for_status()


@every_engine
@pytest.mark.parametrize(
    "outputs",
    [[GOOD], ["no JSON", GOOD], ["no", "no", "no"]],
    ids=["good", "mended", "never"],
)
async def test_every_engine_gives_the_same_when_it_is_watched(
    engine: type[LoopEngine], outputs: list[object]
) -> None:
    quiet, watched = MemoryJournal(), MemoryJournal()

    expected = await made(engine, Model(*outputs), journal=quiet).run(
        TASK, output=Trip, run_id=RUN
    )
    streaming = made(engine, Model(*outputs), journal=watched)
    async with streaming.start(TASK, output=Trip, run_id=RUN, deltas=True) as run:
        seen: list[Entry | Delta] = [item async for item in run]
        result = await run.result()

    assert _outcome(result) == _outcome(expected)
    assert [item for item in seen if isinstance(item, Entry)] == watched.read(RUN)
    assert _places(watched) == _places(quiet)
    assert any(isinstance(item, Delta) for item in seen)


def _places(journal: MemoryJournal) -> list[tuple[str, str]]:
    """What happened where; steps that run at the same time may arrive in another order."""
    return sorted((entry.key, entry.kind) for entry in journal.read(RUN))


def _outcome(result: Result) -> tuple[object, ...]:
    return (
        result.status,
        result.stop_reason,
        result.answer,
        result.output,
        result.llm_calls,
        str(result.error),
    )


@every_engine
async def test_every_engine_gives_a_recorded_output_again(
    engine: type[LoopEngine],
) -> None:
    journal = MemoryJournal()
    first = await made(engine, Model(GOOD), journal=journal).run(
        TASK, output=Trip, run_id=RUN
    )

    again = await made(engine, Model(), journal=journal).resume(RUN, output=Trip)
    plain = await made(engine, Model(), journal=journal).resume(RUN)

    assert again.output == first.output == TRIP
    assert plain.output == TRIP.model_dump(mode="json"), (
        "without the class it is what the journal holds: JSON"
    )


# --- one engine is enough for these ---


@pytest.mark.parametrize(("wrong", "told"), BAD, ids=[told for _, told in BAD])
async def test_what_is_wrong_is_told_by_its_place(wrong: object, told: str) -> None:
    model = Model(wrong, GOOD)

    result = await made(ReActEngine, model).run(TASK, output=Trip)

    assert result.output == TRIP
    assert told in model.asked[1]


async def test_an_answer_that_fits_already_is_not_asked_for_again() -> None:
    provider = ScriptedProvider([json.dumps(GOOD)])

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Trip)

    assert (result.output, len(provider.requests)) == (TRIP, 1)


@pytest.mark.parametrize("said", ["{}", "  {}\n", "```json\n{}\n```", "```\n{}\n```"])
async def test_an_answer_that_is_json_alone_or_in_a_code_fence_is_read(
    said: str,
) -> None:
    provider = ScriptedProvider([said.replace("{}", json.dumps(GOOD))])

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Trip)

    assert (result.output, len(provider.requests)) == (TRIP, 1)


@pytest.mark.parametrize("said", ["Here it is: {}", "{} {}", "{}, I think", "[{}]"])
async def test_json_among_other_words_is_not_picked_out_but_asked_for(
    said: str,
) -> None:
    provider = ScriptedProvider(
        [said.replace("{}", json.dumps(GOOD)), json.dumps(GOOD)]
    )

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Trip)

    assert (result.output, len(provider.requests)) == (TRIP, 2)
    assert provider.requests[1].conversation.task == "Give that answer as JSON."


async def test_where_the_provider_takes_a_schema_it_gets_the_model_s() -> None:
    provider = ScriptedProvider(["Two days.", json.dumps(GOOD)])

    await ReActEngine(Runtime(provider)).run(TASK, output=Trip)

    first, second = provider.requests
    assert second.schema is not None
    assert first.schema == second.schema
    assert (second.schema.name, second.schema.schema) == (
        "Trip",
        Trip.model_json_schema(),
    )
    assert second.tools == ()


async def test_a_reply_that_was_cut_is_never_read_as_the_output() -> None:
    cut = Completion(
        json.dumps(GOOD)[:-9], answer=json.dumps(GOOD)[:-9], finish_reason="length"
    )
    provider = ScriptedProvider(["Two days.", cut, cut, cut])

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Trip)

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "invalid_output",
        "Two days.",
    )


async def test_a_run_that_ends_at_a_limit_has_its_best_answer_and_no_output() -> None:
    provider = ScriptedProvider(
        lambda request: (
            polite(request) if request.tool_choice == "auto" else "As far as I got"
        )
    )

    result = await ReActEngine(
        Runtime(provider, tools=[look, put]), max_iterations=1
    ).run(TASK, output=Trip)

    assert (result.status, result.stop_reason, result.output) == (
        "limit",
        "max_iterations",
        None,
    )
    assert result.answer is not None


async def test_the_repairs_of_an_output_are_not_paid_twice_when_the_run_is_resumed() -> (
    None
):
    journal, model = MemoryJournal(), Model("no JSON", GOOD)
    first = await made(ReActEngine, model, journal=journal).run(
        TASK, output=Trip, run_id=RUN
    )

    for at in range(1, len(journal.read(RUN))):
        rest = Model(*["no JSON", GOOD][_asked(journal, at) :])
        engine = made(ReActEngine, rest, journal=journal)
        forked = await engine.fork(RUN, at=at)
        result = await engine.resume(forked, output=Trip)

        assert (result.output, result.llm_calls) == (TRIP, first.llm_calls)
        assert rest.outputs == []


def _asked(journal: MemoryJournal, at: int) -> int:
    """How many replies to the question for the output the first entries hold."""
    replies = [
        entry.key for entry in journal.read(RUN)[:at] if entry.kind == "model_replied"
    ]
    return max(len(replies) - 2, 0)  # the two turns before it


class Recursive(BaseModel):
    """A model that holds itself."""

    name: str
    below: list["Recursive"] = []


async def test_a_model_that_holds_itself_is_read() -> None:
    text = '{"name": "a", "below": [{"name": "b", "below": [{"name": "c"}]}]}'

    result = await ReActEngine(Runtime(ScriptedProvider([text]))).run(
        "Draw a tree.", output=Recursive
    )

    assert result.output == Recursive(
        name="a", below=[Recursive(name="b", below=[Recursive(name="c")])]
    )


@pytest.mark.parametrize(
    "output",
    ["Unknown", Trip.model_construct(), 7, Callable[[], int]],
)
def test_what_pydantic_cannot_read_is_refused_before_the_run(output: Any) -> None:
    with pytest.raises(ConfigError, match="output: must be a type that pydantic can"):
        ReActEngine(Runtime(ScriptedProvider([]))).run_sync(TASK, output=output)


def test_function_is_no_output() -> None:
    with pytest.raises(ConfigError, match="output: must be a type, got the function"):
        ReActEngine(Runtime(ScriptedProvider([]))).run_sync(TASK, output=len_of)  # type: ignore[arg-type]


def len_of(text: str) -> int:
    """Return a number, which makes this no type."""
    return len(text)


def test_text_is_no_output_since_every_run_answers_with_one() -> None:
    with pytest.raises(ConfigError, match="output: a text is what every run answers"):
        ReActEngine(Runtime(ScriptedProvider([]))).run_sync(TASK, output=str)


class Fussy(BaseModel):
    """A model whose own code fails at some values."""

    number: int

    @model_validator(mode="after")
    def whole(self) -> "Fussy":
        """Divide by it."""
        _ = 1 // self.number
        return self


async def test_a_model_class_whose_own_code_fails_is_a_reply_to_be_put_right() -> None:
    provider = ScriptedProvider(["None.", '{"number": 0}', '{"number": 1}'])

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Fussy)

    assert result.output == Fussy(number=1)
    told = provider.requests[2].conversation.messages[-1].content
    assert "Fussy cannot be made of it: integer division or modulo by zero" in told


async def test_a_reply_that_could_not_be_read_at_all_is_told_so_and_put_right() -> None:
    unread = Completion(problem="The reply is empty.")
    provider = ScriptedProvider(["None.", unread, '{"number": 1}'])

    result = await ReActEngine(Runtime(provider)).run(TASK, output=Fussy)

    assert result.output == Fussy(number=1)
    assert (
        "That cannot be used: The reply is empty."
        in provider.requests[2].conversation.messages[-1].content
    )


async def test_json_that_fits_takes_the_place_of_json_that_did_not_as_the_answer() -> (
    None
):
    said = ["0", '{"number": 0}', '{"number": 7}']
    for script in (said, said[1:]):
        provider = ScriptedProvider([*script, "Seven."])
        engine = ReActEngine(Runtime(provider))
        result = await engine.run(TASK, output=Fussy, run_id=RUN)
        words = '{"number": 7}' if script[0].startswith("{") else "0"
        assert (result.answer, result.output) == (words, Fussy(number=7))

        entries = engine.runtime.journal.read(RUN)
        for keep in range(1, len(entries) + 1):
            rest = ScriptedProvider(script[replies(entries[:keep]) :])
            journal = crashed(entries, keep)
            again = await ReActEngine(Runtime(rest, journal=journal)).resume(
                RUN, output=Fussy
            )
            assert (again.answer, again.output) == (words, Fussy(number=7))
            assert again.conversation == result.conversation

        await engine.run(result.conversation.user("Which one?"))
        told = [one.content for one in provider.requests[-1].conversation]
        assert told == [TASK, words, "Which one?"]


def replies(entries: Sequence[Entry]) -> int:
    """How many replies of the model are among entries."""
    return sum(entry.kind == "model_replied" for entry in entries)


class Cyclic(BaseModel):
    """An output whose validator makes it hold itself."""

    text: str
    me: Any = None

    @model_validator(mode="after")
    def hold(self) -> "Cyclic":
        """Hold itself."""
        self.me = self
        return self


class Unwritable(BaseModel):
    """An output whose serializer raises."""

    text: str

    @field_serializer("text")
    def write(self, text: str) -> str:
        """Raise."""
        raise KeyError(text)


@pytest.mark.parametrize("output", [Cyclic, Unwritable])
async def test_an_output_that_cannot_be_written_ends_the_run_and_not_its_caller(
    output: type[BaseModel],
) -> None:
    runtime = Runtime(ScriptedProvider(['{"text": "hello"}']), journal=MemoryJournal())
    result = await ReActEngine(runtime).run("Greet.", output=output, run_id=RUN)

    assert (result.status, result.stop_reason) == ("failed", "invalid_output")
    assert isinstance(result.error, InvalidOutput)
    assert "the value cannot be written as JSON" in str(result.error)
    assert runtime.journal.read(RUN)[-1].kind == "run_finished"
    assert (await runtime.resume(RUN, output=output)).status == "failed"
