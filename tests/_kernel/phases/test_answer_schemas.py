"""Structured output from the first request on: a schema of the reply, or one more tool, and no call for prose."""

import dataclasses
import enum
import json
from typing import Any

import pytest
from pydantic import BaseModel, RootModel
from typing_extensions import TypedDict

from loopwright import Limits, LoopEngine, ReActEngine, Run, Runtime, tool
from loopwright.errors import ProviderError
from loopwright.journals import MemoryJournal
from loopwright.messages import Completion, Message
from loopwright.providers import Capabilities, Delta, TextTools
from loopwright.testing import ScriptedProvider, call

HOLDS = Capabilities(json_schema=True, schema_with_tools=True)
SEPARATE = Capabilities(json_schema=True)
NO_SCHEMA = Capabilities()


class Forecast(BaseModel):
    city: str
    degrees: int


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Named(TypedDict):
    name: str


class Color(enum.Enum):
    RED = "red"


Names = RootModel[list[str]]
PARIS = {"city": "Paris", "degrees": 21}
CASES: list[tuple[Any, Any, Any]] = [
    (Forecast, PARIS, Forecast(city="Paris", degrees=21)),
    (list[str], {"value": ["a", "b"]}, ["a", "b"]),
    (Point, {"x": 1, "y": 2}, Point(1, 2)),
    (Named, {"name": "n"}, {"name": "n"}),
    (int | str, {"value": 7}, 7),
    (Color, {"value": "red"}, Color.RED),
    (Names, {"value": ["a"]}, Names(["a"])),
]


@tool
def look_up(city: str) -> str:
    """Look up the weather of a city."""
    return f"21 degrees in {city}"


def runtime(provider: Any, **options: Any) -> Runtime:
    return Runtime(provider, tools=[look_up], **options)


@pytest.mark.parametrize(("into", "written", "value"), CASES, ids=str)
async def test_a_tool_call_and_a_typed_output_are_two_calls_of_a_model_that_holds_to_a_schema(
    into: Any, written: Any, value: Any
) -> None:
    if into is Names:
        written = written["value"]
    provider = ScriptedProvider(
        [call("look_up", city="Paris"), json.dumps(written)], capabilities=HOLDS
    )
    result = await ReActEngine(runtime(provider)).run("Weather?", output=into)
    assert result.output == value
    assert result.llm_calls == 2
    for request in provider.requests:
        assert request.schema is not None
        assert [spec.name for spec in request.tools] == ["look_up"]


@pytest.mark.parametrize("able", [SEPARATE, NO_SCHEMA])
@pytest.mark.parametrize(("into", "written", "value"), CASES, ids=str)
async def test_other_models_get_the_schema_as_one_more_tool(
    able: Capabilities, into: Any, written: Any, value: Any
) -> None:
    script = [call("look_up", city="Paris"), call("final_answer", **written)]
    provider = ScriptedProvider(script, capabilities=able)
    result = await ReActEngine(runtime(provider)).run("Weather?", output=into)
    assert result.output == value
    assert result.llm_calls == 2
    assert result.tool_calls == 1
    for request in provider.requests:
        assert request.schema is None
        assert [spec.name for spec in request.tools] == ["look_up", "final_answer"]
        assert request.tools[1].schema["type"] == "object"


async def test_a_model_without_tools_holds_to_the_schema_if_it_can() -> None:
    provider = ScriptedProvider([json.dumps(PARIS)], capabilities=SEPARATE)
    result = await ReActEngine(Runtime(provider)).run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert provider.requests[0].schema is not None
    assert provider.requests[0].tools == ()


async def test_calls_beside_the_final_tool_run_first_and_the_answer_is_asked_again() -> (
    None
):
    both = [call("final_answer", city="?", degrees=0), call("look_up", city="Paris")]
    provider = ScriptedProvider(
        [both, call("final_answer", **PARIS)], capabilities=SEPARATE
    )
    result = await ReActEngine(runtime(provider)).run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert (result.llm_calls, result.tool_calls) == (2, 1)
    told = provider.requests[1].conversation.messages
    assert [one.name for message in told for one in message.calls] == ["look_up"]
    assert told[-1].content.startswith("21 degrees")


async def test_an_answer_in_prose_still_costs_one_more_call() -> None:
    provider = ScriptedProvider(
        ["21 degrees in Paris.", json.dumps(PARIS)], capabilities=SEPARATE
    )
    result = await ReActEngine(runtime(provider)).run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert result.llm_calls == 2


async def test_arguments_that_do_not_fit_are_repaired() -> None:
    provider = ScriptedProvider(
        [call("final_answer", city="Paris", degrees="warm"), json.dumps(PARIS)],
        capabilities=SEPARATE,
    )
    result = await ReActEngine(runtime(provider)).run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)


async def test_a_tool_of_that_name_stays_a_tool() -> None:
    @tool
    def final_answer(text: str) -> str:
        """Publish a text."""
        return f"published {text}"

    provider = ScriptedProvider(
        [call("final_answer", text="hello"), call("final_answer_", **PARIS)],
        capabilities=SEPARATE,
    )
    engine = ReActEngine(Runtime(provider, tools=[final_answer]))
    result = await engine.run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert result.tool_calls == 1


async def test_the_final_tool_is_shown_as_text_in_a_stream() -> None:
    provider = ScriptedProvider(
        [call("look_up", city="Paris"), call("final_answer", **PARIS)],
        capabilities=SEPARATE,
    )
    engine = ReActEngine(runtime(provider))
    deltas: list[Delta] = []
    async with engine.start("Weather?", output=Forecast, deltas=True) as run:
        async for item in run:
            if isinstance(item, Delta):
                deltas.append(item)
    names = [delta.call.name for delta in deltas if delta.call and delta.call.name]
    assert names == ["look_up"]
    assert json.loads("".join(delta.text for delta in deltas)) == PARIS


async def test_a_resumed_run_sends_the_same_requests() -> None:
    def answer(request: Any) -> Any:
        if len(request.conversation.messages) == 1:
            return call("look_up", city="Paris")
        if cut:
            raise ProviderError("cut")
        return call("final_answer", **PARIS)

    cut, journal = True, MemoryJournal()
    provider = ScriptedProvider(answer, capabilities=SEPARATE)
    engine = ReActEngine(runtime(provider, journal=journal))
    failed = await engine.run("Weather?", output=Forecast, run_id="r")
    assert failed.status == "failed"
    cut = False
    again = await engine.fork("r", at=len(journal.read("r")) - 3, new_id="again")
    result = await engine.resume(again, output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert provider.requests[-1] == provider.requests[-2]


async def test_a_run_begun_without_schemas_keeps_its_closing_call() -> None:
    journal = MemoryJournal()
    provider = ScriptedProvider(
        ["21 degrees in Paris.", json.dumps(PARIS)], capabilities=HOLDS
    )
    engine = ReActEngine(runtime(provider, journal=journal))
    with pytest.MonkeyPatch.context() as patched:
        forget_answer_schemas(patched)
        begun = await engine.run("Weather?", output=Forecast, run_id="old")
    assert begun.output == Forecast(city="Paris", degrees=21)
    entries = journal.read("old")
    cut = next(i for i, entry in enumerate(entries) if entry.key == "1")
    forked = await engine.fork("old", at=cut, new_id="forked")
    provider = ScriptedProvider([json.dumps(PARIS)], capabilities=HOLDS)
    engine = ReActEngine(runtime(provider, journal=journal))
    result = await engine.resume(forked, output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert len(provider.requests) == 1


def forget_answer_schemas(patched: pytest.MonkeyPatch) -> None:
    """Have runs begin as they did before requests had the schema of the output."""
    from loopwright import engine as module
    from loopwright._kernel.phases import reason

    started = module.RunStarted

    def begin(*arguments: Any, **options: Any) -> Any:
        return dataclasses.replace(started(*arguments, **options), revision=0)

    patched.setattr(module, "RunStarted", begin)
    patched.setattr(reason, "expect_output", lambda cycle, question: question)


async def test_a_text_dialect_has_the_schema_in_the_branch_of_the_answer() -> None:
    script = [
        '{"action": "look_up", "action_input": {"city": "Paris"}}',
        json.dumps({"action": "final_answer", "action_input": PARIS}),
    ]
    model = ScriptedProvider(
        script, capabilities=Capabilities(native_tools=False, json_schema=True)
    )
    engine = ReActEngine(runtime(TextTools(model)))
    result = await engine.run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert result.llm_calls == 2
    schema = model.requests[0].schema
    assert schema is not None
    final: Any = schema.schema["anyOf"]
    assert set(final[-1]["properties"]["action_input"]["properties"]) == {
        "city",
        "degrees",
    }


async def test_the_react_dialect_is_told_the_schema() -> None:
    script = [
        'Action: look_up\nAction Input: {"city": "Paris"}',
        f"Final Answer: {json.dumps(PARIS)}",
    ]
    model = ScriptedProvider(script, capabilities=Capabilities(native_tools=False))
    engine = ReActEngine(runtime(TextTools(model)))
    result = await engine.run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    assert result.llm_calls == 2
    assert '"degrees"' in model.requests[0].conversation.messages[0].content


async def test_the_best_answer_of_a_run_at_a_limit_fits_the_schema() -> None:
    provider = ScriptedProvider(
        [call("look_up", city="Paris"), json.dumps(PARIS)], capabilities=HOLDS
    )
    engine = ReActEngine(runtime(provider, limits=Limits(max_iterations=1)))
    result = await engine.run("Weather?", output=Forecast)
    assert result.status == "limit"
    assert provider.requests[-1].schema is not None


async def test_branches_children_and_other_purposes_have_no_schema() -> None:
    class Planning(LoopEngine):
        name = "planning"

        async def solve(self, run: Run) -> str:
            async def look(branch: Run) -> str:
                return (await branch.reason(branch.conversation)).answer or ""

            await run.reason(run.conversation, purpose="plan")
            await run.gather(look)
            await run.delegate(ReActEngine(run_time), "a part")
            return (await run.reason(run.conversation)).answer or ""

    provider = ScriptedProvider(
        ["plan", "branch", "child", json.dumps(PARIS)], capabilities=HOLDS
    )
    run_time = Runtime(provider)
    result = await Planning(run_time).run("Weather?", output=Forecast)
    assert result.output == Forecast(city="Paris", degrees=21)
    sent = [request.schema is not None for request in provider.requests]
    assert sent == [False, False, False, True]


async def test_an_early_final_answer_is_flagged() -> None:
    journal = MemoryJournal()
    both = [call("final_answer", **PARIS), call("look_up", city="Paris")]
    provider = ScriptedProvider(
        [both, call("final_answer", **PARIS)], capabilities=SEPARATE
    )
    engine = ReActEngine(runtime(provider, journal=journal))
    await engine.run("Weather?", output=Forecast, run_id="r")
    replies = [
        entry.event.completion
        for entry in journal.read("r")
        if isinstance(getattr(entry.event, "completion", None), Completion)
    ]
    assert [reply.flags for reply in replies] == [("final_answer_early",), ()]


async def test_the_result_shows_the_answer_and_no_call_of_the_final_tool() -> None:
    provider = ScriptedProvider([call("final_answer", **PARIS)], capabilities=SEPARATE)
    result = await ReActEngine(runtime(provider)).run("Weather?", output=Forecast)
    assert json.loads(result.answer or "") == PARIS
    assert result.conversation is not None
    last: Message = result.conversation.messages[-1]
    assert (last.role, last.calls) == ("assistant", ())
