"""An agent as a tool: typed arguments, a typed answer, and what it sees of the caller's history."""

from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from loopwright import ConfigError, Conversation, MemoryJournal, Runtime, ToolCall
from loopwright.events import ToolFinished
from loopwright.testing import ScriptedProvider, call, crashed


class Trip(BaseModel):
    """Where to, and for how long."""

    city: str
    nights: int = Field(ge=1)

    @field_validator("city")
    @classmethod
    def _known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("no such city")
        return city


class Price(BaseModel):
    euros: int


SCRIPT: list[str | ToolCall] = [
    call("booker", city="Porto", nights=2),
    '{"euros": 80}',
    "It costs 80 euros.",
]


def make(
    script: list[Any], journal: MemoryJournal | None = None, **options: Any
) -> Runtime:
    """A boss with a booker as its tool."""
    runtime = Runtime(ScriptedProvider(script), journal=journal)
    booker = runtime.agent("booker", instructions="You book.", output=Price)
    options.setdefault("input", Trip)
    runtime.agent("boss", tools=[booker.as_tool(**options)])
    return runtime


def asked(runtime: Runtime, number: int) -> list[tuple[str, str]]:
    """What a request holds, without system messages."""
    request = runtime.provider.requests[number]  # type: ignore[attr-defined]
    return [(m.role, m.content) for m in request.conversation if m.role != "system"]


def result_of(runtime: Runtime) -> tuple[str, str]:
    events = [entry.event for entry in runtime.journal.read("r")]
    [finished] = [event for event in events if isinstance(event, ToolFinished)]
    return finished.status, finished.content


async def test_arguments_and_answer_of_an_agent_are_typed() -> None:
    runtime = make(list(SCRIPT))
    result = await runtime.agents["boss"].run("Porto?", run_id="r")
    requests = runtime.provider.requests  # type: ignore[attr-defined]
    [spec] = requests[0].tools

    assert result.answer == "It costs 80 euros."
    assert spec.schema["required"] == ["city", "nights"]
    assert spec.schema["additionalProperties"] is False
    assert asked(runtime, 1) == [("user", '{"city":"Porto","nights":2}')]
    assert requests[1].schema.name == "Price"
    assert requests[0].schema is None
    assert result_of(runtime) == ("ok", '{"euros": 80}')


@pytest.mark.parametrize(
    ("city", "nights", "status", "problem"),
    [
        ("Porto", 0, "rejected", "nights"),
        ("Atlantis", 1, "error", "no such city"),
    ],
)
async def test_arguments_that_do_not_fit_reach_no_agent(
    city: str, nights: int, status: str, problem: str
) -> None:
    runtime = make([call("booker", city=city, nights=nights), "I cannot."])
    result = await runtime.agents["boss"].run("Go.", run_id="r")
    found, content = result_of(runtime)

    assert (result.answer, result.llm_calls) == ("I cannot.", 2)
    assert found in (status, "error")
    assert problem in content


async def test_an_answer_of_another_form_is_an_error_that_the_caller_reads() -> None:
    runtime = make([SCRIPT[0], "About eighty.", "I do not know."])
    result = await runtime.agents["boss"].run("Porto?", run_id="r")
    status, content = result_of(runtime)

    assert (status, result.answer) == ("error", "I do not know.")
    assert content.startswith("booker gave an answer of another form: ")


@pytest.mark.parametrize(
    ("history", "seen"),
    [
        ("none", []),
        ("last", [("user", "And Porto?")]),
        ("all", [("user", "Lisbon?"), ("assistant", "90."), ("user", "And Porto?")]),
        (lambda caller: Conversation(caller.messages[:1]), [("user", "Lisbon?")]),
    ],
)
async def test_the_history_that_an_agent_sees_is_as_declared(
    history: Any, seen: list[tuple[str, str]]
) -> None:
    runtime = make(list(SCRIPT), history=history)
    before = Conversation.of("Lisbon?").assistant("90.").user("And Porto?")
    await runtime.agents["boss"].run(before, run_id="r")

    assert asked(runtime, 1) == [*seen, ("user", '{"city":"Porto","nights":2}')]


@pytest.mark.parametrize("selected", [None, [], "all"])
async def test_a_history_that_is_no_conversation_ends_the_run_with_its_name(
    selected: Any,
) -> None:
    runtime = make(list(SCRIPT), history=lambda caller: selected)
    result = await runtime.agents["boss"].run("Porto?")

    assert isinstance(result.error, ConfigError)
    assert "history: the function must return a Conversation" in str(result.error)


async def test_a_typed_call_is_resumed_after_any_crash() -> None:
    runtime = make(list(SCRIPT), MemoryJournal(), history="all")
    await runtime.agents["boss"].run("Porto?", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries)):
        replied = sum(entry.kind == "model_replied" for entry in entries[:keep])
        again = make(SCRIPT[replied:], crashed(entries, keep), history="all")
        result = await again.resume("r")

        assert result.answer == "It costs 80 euros."
        assert result_of(again) == ("ok", '{"euros": 80}')


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"input": dict}, "input: must be a pydantic model class, got <class 'dict'>"),
        ({"history": "some"}, 'history: must be "none", "last", "all" or a function'),
    ],
)
def test_a_bad_option_of_an_agent_as_a_tool_is_refused_by_name(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make([], **options)

    assert problem in str(caught.value)
