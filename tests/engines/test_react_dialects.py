"""ReAct works the same with native tool calls and through each text dialect."""

import json
from typing import Any

import pytest

from loopwright import (
    Capabilities,
    Completion,
    ConfigError,
    Conversation,
    Limits,
    Message,
    ReActEngine,
    Request,
    Runtime,
    ToolCall,
    ToolSpec,
    tool,
)
from loopwright.messages import Usage
from loopwright.providers import OutputSchema, TextTools
from loopwright.providers.dialects import Dialect, ReActDialect
from loopwright.testing import ScriptedProvider, call

PLAIN = Capabilities(native_tools=False, json_schema=True)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = (ToolSpec("add", "", add.schema),)


def said(text: str) -> Completion:
    return Completion(text, usage=Usage(10, 5))


SCRIPTS: dict[str, list[Any]] = {
    "native": [call("add", a=1, b=2), "3"],
    "react": [
        said('Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}'),
        said("Thought: I know.\nFinal Answer: 3"),
    ],
    "react-bracket": [
        said('Thought: I add.\nAction: add[{"a": 1, "b": 2}]'),
        said("Thought: I know.\nAction: Finish[3]"),
    ],
    "react-numbered": [
        said('Thought 1: I add.\nAction 1: add[{"a": 1, "b": 2}]'),
        said("Thought 2: I know.\nAction 2: Finish[3]"),
    ],
    "json": [
        said(
            '{"thought": "I add.", "action": "add", "action_input": {"a": 1, "b": 2}}'
        ),
        said('{"action": "final_answer", "action_input": "3"}'),
    ],
    "xml": [
        said(
            'I add.\n<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
        ),
        said("3"),
    ],
}


def runtime(
    dialect: str | Dialect, script: list[Any], **options: Any
) -> tuple[Runtime, ScriptedProvider]:
    if dialect == "native":
        native = ScriptedProvider(script)
        return Runtime(native, tools=[add]), native
    model = ScriptedProvider(script, capabilities=PLAIN)
    return Runtime(
        TextTools(model, dialect), tools=options.pop("tools", [add]), **options
    ), model


def told(model: ScriptedProvider, request: int) -> list[tuple[str, str]]:
    """What the model was sent behind the system message."""
    return [
        (m.role, m.content)
        for m in model.requests[request].conversation.messages
        if m.role != "system"
    ]


@pytest.mark.parametrize("dialect", SCRIPTS)
async def test_a_question_is_answered_with_a_tool(dialect: str) -> None:
    parts, _ = runtime(dialect, SCRIPTS[dialect])
    result = await ReActEngine(parts).run("1 + 2?")

    assert (result.status, result.answer, result.tool_calls) == ("completed", "3", 1)
    roles = [(m.role, m.content) for m in result.conversation.messages]
    thought = "" if dialect == "native" else "I add."
    assert roles == [
        ("user", "1 + 2?"),
        ("assistant", thought),
        ("tool", "3"),
        ("assistant", "3"),
    ]


async def test_the_raw_reply_of_a_dialect_is_no_thought() -> None:
    script = [
        said('{"action": "add", "action_input": {"a": 1, "b": 2}}'),
        SCRIPTS["json"][1],
    ]
    parts, model = runtime("json", script)
    result = await ReActEngine(parts).run("1 + 2?")

    assert result.conversation.messages[1].content == ""
    turn = model.requests[1].conversation.messages[-2]
    assert json.loads(turn.content) == {
        "action": "add",
        "action_input": {"a": 1, "b": 2},
    }


@pytest.mark.parametrize(
    "dialect", ["react", "react-bracket", "react-numbered", "json"]
)
async def test_an_unreadable_reply_is_sent_back_and_repaired(dialect: str) -> None:
    parts, model = runtime(
        dialect, [said("I think I should add them."), *SCRIPTS[dialect]]
    )
    result = await ReActEngine(parts).run("1 + 2?")

    assert result.answer == "3"
    assert (
        model.requests[1].conversation.messages[-2]
        == Message("assistant", "I think I should add them.", origin="model")
        or "I think I should add them."
        in model.requests[1].conversation.messages[-2].content
    )


async def test_text_before_native_calls_is_a_thought_and_text_alone_a_whole_turn() -> (
    None
):
    with_text = Completion(
        "Let me add.",
        calls=(call("add", a=1, b=2),),
        thought="Let me add.",
        usage=Usage(1, 1),
    )
    parts, _ = runtime("native", [with_text, Completion("Hm.", usage=Usage(1, 1)), "3"])
    result = await ReActEngine(parts).run("1 + 2?")

    assert [
        m.content for m in result.conversation.messages if m.role == "assistant"
    ] == ["Let me add.", "Hm.", "3"]


async def test_the_numbered_form_stops_before_its_own_observation() -> None:
    parts, model = runtime(
        "react-numbered",
        [*SCRIPTS["react-numbered"], said("Action 1: Finish[It was 3.]")],
    )
    result = await ReActEngine(parts).run("1 + 2?")
    again = await ReActEngine(parts).run(result.conversation.user("What was it?"))

    exchange = [
        ("user", "1 + 2?"),
        ("assistant", 'Thought 1: I add.\nAction 1: add[{"a": 1, "b": 2}]'),
        ("user", "Observation 1: 3"),
    ]
    assert told(model, 1) == exchange
    assert told(model, 2) == [
        *exchange,
        ("assistant", "Action 2: Finish[3]"),
        ("user", "What was it?"),
    ]
    assert [r.sampling.stop for r in model.requests] == [
        ("\nObservation 1:",),
        ("\nObservation 2:",),
        ("\nObservation 1:",),
    ]
    assert again.answer == "It was 3."


async def test_several_calls_of_a_turn_are_rendered_as_separate_numbered_steps() -> (
    None
):
    calls = (
        ToolCall("add", {"a": 1, "b": 2}, "1"),
        ToolCall("add", {"a": 3, "b": 4}, "2"),
    )
    talk = Conversation(
        [
            Message("user", "Both?"),
            Message("assistant", "I add twice.", calls),
            Message("tool", "7", call_id="2"),
            Message("tool", "3", call_id="1"),
        ]
    )
    model = ScriptedProvider([said("Action 3: Finish[10]")], capabilities=PLAIN)
    completion = await TextTools(model, "react-numbered").complete(Request(talk, ADD))

    assert told(model, 0)[1:] == [
        ("assistant", 'Thought 1: I add twice.\nAction 1: add[{"a": 1, "b": 2}]'),
        ("user", "Observation 1: 3"),
        ("assistant", 'Action 2: add[{"a": 3, "b": 4}]'),
        ("user", "Observation 2: 7"),
    ]
    assert model.requests[0].sampling.stop == ("\nObservation 3:",)
    assert completion.answer == "10"


async def test_examples_are_numbered_for_themselves() -> None:
    example = Conversation(
        [
            Message("user", "3 + 4?"),
            Message("assistant", "", (ToolCall("add", {"a": 3, "b": 4}, "1"),)),
            Message("tool", "7", call_id="1"),
            Message("assistant", "7"),
        ]
    )
    model = ScriptedProvider([said("Action 1: Finish[3]")], capabilities=PLAIN)
    await TextTools(model, "react-numbered", examples=[example, example]).complete(
        Request(Conversation.of("1 + 2?"), ADD)
    )

    shown = [
        "3 + 4?",
        'Action 1: add[{"a": 3, "b": 4}]',
        "Observation 1: 7",
        "Action 2: Finish[7]",
    ]
    assert [content for _, content in told(model, 0)] == [*shown, *shown, "1 + 2?"]
    assert model.requests[0].sampling.stop == ("\nObservation 1:",)


async def test_a_self_written_observation_is_cut_off_without_stop_sequences() -> None:
    text = "Thought 1: I add.\nAction 1: add[1]\nObservation 1: 9\nThought 2: I know.\nAction 2: Finish[9]"
    script = [
        said(text.replace("add[1]", 'add[{"a": 1, "b": 2}]')),
        SCRIPTS["react-numbered"][1],
    ]
    model = ScriptedProvider(
        script, capabilities=Capabilities(native_tools=False, stop=False)
    )
    result = await ReActEngine(
        Runtime(TextTools(model, "react-numbered"), tools=[add])
    ).run("1 + 2?")

    assert (result.answer, result.tool_calls) == ("3", 1)
    assert told(model, 1)[-1] == ("user", "Observation 1: 3")


@pytest.mark.parametrize(
    "thinking", ["Thought 1: I should add.", "Action 1: think[I should add.]"]
)
async def test_a_thought_alone_is_a_turn_where_the_dialect_allows_it(
    thinking: str,
) -> None:
    parts, model = runtime(
        ReActDialect("numbered", thoughts_alone=True),
        [said(thinking), *SCRIPTS["react-numbered"]],
    )
    result = await ReActEngine(parts).run("1 + 2?")

    thought = [
        ("user", "1 + 2?"),
        ("assistant", "Thought 1: I should add."),
        ("user", "OK. Go on."),
    ]
    call = ("assistant", 'Thought 1: I add.\nAction 1: add[{"a": 1, "b": 2}]')
    assert told(model, 1) == thought
    assert told(model, 2) == [*thought, call, ("user", "Observation 1: 3")]
    assert (result.answer, result.iterations, result.llm_calls) == ("3", 3, 3)
    assert [m.content for m in result.conversation.messages][1] == "I should add."


async def test_a_thought_alone_asks_for_its_action_where_the_dialect_demands_one() -> (
    None
):
    parts, model = runtime(
        "react-numbered", [said("Thought 1: I should add."), *SCRIPTS["react-numbered"]]
    )
    result = await ReActEngine(parts).run("1 + 2?")

    reply, complaint = told(model, 1)[-2:]
    assert reply == ("assistant", "Thought 1: I should add.")
    assert "The reply has neither an action nor a final answer" in complaint[1]
    assert (result.answer, result.iterations, result.llm_calls) == ("3", 2, 3)


async def test_half_a_call_in_tags_is_sent_back_and_repaired() -> None:
    parts, model = runtime(
        "xml",
        [said('<tool_call>{"name": "add", "arguments": {"a": 1'), *SCRIPTS["xml"]],
    )
    result = await ReActEngine(parts).run("1 + 2?")

    assert (result.answer, result.iterations, result.llm_calls, result.tool_calls) == (
        "3",
        2,
        3,
        1,
    )
    assert "a brace or a quote is never closed" in told(model, 1)[-1][1]


async def test_several_calls_in_tags_are_one_turn_and_a_misspelt_name_is_corrected() -> (
    None
):
    both = "".join(
        f'<tool_call>{{"name": "{name}", "arguments": {{"a": {a}, "b": 1}}}}</tool_call>'
        for name, a in [("add", 1), ("adds", 2), ("add", 3)]
    )
    parts, model = runtime("xml", [said(both), said("2 and 4")])
    result = await ReActEngine(parts).run("Both?")

    assert (result.answer, result.iterations, result.tool_calls) == ("2 and 4", 2, 2)
    observations = [m.content for m in result.conversation.messages if m.role == "tool"]
    assert observations[::2] == ["2", "4"]
    assert "add" in observations[1]
    assert [role for role, _ in told(model, 1)] == ["user", "assistant", "user"]


async def test_a_missing_action_is_asked_for_three_times_and_is_never_an_answer() -> (
    None
):
    parts, _ = runtime("react-bracket", [said("It is 3, I think.")] * 4)
    result = await ReActEngine(parts).run("1 + 2?")

    assert (result.status, result.stop_reason, result.answer, result.llm_calls) == (
        "failed",
        "unreadable",
        None,
        4,
    )


async def test_a_thought_alone_is_no_best_answer() -> None:
    dialect = ReActDialect("numbered", thoughts_alone=True)
    parts, model = runtime(
        dialect, [SCRIPTS["react-numbered"][0], said("Thought 2: Hm.")]
    )
    result = await ReActEngine(parts, max_iterations=1).run("1 + 2?")

    assert (result.status, result.answer, result.llm_calls) == ("limit", None, 2)
    assert told(model, 1)[-1][1].endswith(
        "No tool can be used now. Write `Action: Finish[your answer]`."
    )


@pytest.mark.parametrize(
    ("dialect", "reply", "answer"),
    [
        ("react", "Thought: I know.\nFINAL_ANSWER: 42", "42"),
        ("react", "Just some plain text.", "Just some plain text."),
        ("react", "Thought: I know.\nIt is 42.", "Thought: I know.\nIt is 42."),
        ("react-numbered", "Thought 1: I know.\nAction 1: Finish[42]", "42"),
        ("react", "STEP_RESULT: 42", "42"),
        ("json", '{"action": "final_answer", "action_input": "42"}', "42"),
        ("json", '{"answer": "42"}', '{"answer": "42"}'),
        ("xml", " 42\n", " 42\n"),
        ("xml", "<tool_call> is a tag.", "<tool_call> is a tag."),
    ],
)
async def test_without_tools_a_marked_answer_is_the_answer_and_so_is_plain_text(
    dialect: str, reply: str, answer: str
) -> None:
    whole = Completion(reply, answer=reply, usage=Usage(10, 5))
    parts, model = runtime(dialect, [whole], tools=[])
    result = await ReActEngine(parts).run("6 * 7?")

    assert (result.status, result.answer) == ("completed", answer)
    assert [(m.role, m.content) for m in model.requests[0].conversation.messages] == [
        ("user", "6 * 7?")
    ]


async def test_without_tools_a_marked_answer_that_was_cut_short_is_asked_for_again() -> (
    None
):
    cut = Completion("Final Answer: forty-", finish_reason="length", usage=Usage(10, 5))
    parts, model = runtime("react", [cut, "Final Answer: 42"], tools=[])
    result = await ReActEngine(parts).run("6 * 7?")

    assert (result.answer, result.llm_calls) == ("42", 2)
    assert "fewer words" in told(model, 1)[-1][1]


async def test_asking_beside_the_conversation_leaves_marked_answers_as_they_are() -> (
    None
):
    model = ScriptedProvider(["Final Answer: 42"] * 2, capabilities=PLAIN)
    tools = TextTools(model, "react")

    untouched = await tools.complete(Request(Conversation.of("q"), (), "none"))
    assert untouched.answer == "Final Answer: 42"


async def test_a_reply_that_fits_a_schema_of_its_own_is_left_as_it_is() -> None:
    model = ScriptedProvider(["Final Answer: 42"], capabilities=PLAIN)
    request = Request(
        Conversation.of("q"), schema=OutputSchema("x", {"type": "string"})
    )

    assert (
        await TextTools(model, "react").complete(request)
    ).answer == "Final Answer: 42"


async def test_where_only_an_answer_will_do_a_thought_alone_is_a_problem() -> None:
    model = ScriptedProvider([said("Thought: Hm.")], capabilities=PLAIN)
    tools = TextTools(model, ReActDialect(thoughts_alone=True))
    completion = await tools.complete(Request(Conversation.of("q"), ADD, "none"))

    assert (completion.calls, completion.answer) == ((), None)
    assert completion.problem == "No tool can be used now: reply with the final answer."


def test_the_forms_of_react_have_names() -> None:
    model = ScriptedProvider([])

    assert TextTools(model, "react-bracket").dialect == ReActDialect("bracket")
    assert TextTools(model, "react-numbered").dialect == ReActDialect("numbered")
    with pytest.raises(
        ConfigError, match=r"\(react also as 'react-bracket', 'react-numbered'\)"
    ):
        TextTools(model, "react-input")


async def test_a_model_that_only_ever_thinks_is_halted_and_its_turns_alternate() -> (
    None
):
    parts, model = runtime(
        ReActDialect("bracket", thoughts_alone=True),
        [said("Thought: Hm.")] * 3,
        limits=Limits(best_effort=False),
    )
    result = await ReActEngine(parts, max_iterations=3).run("1 + 2?")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        None,
    )
    assert [role for role, _ in told(model, 2)] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize(
    ("schema", "value"), [(True, "7"), ({}, "7"), ({"type": "integer"}, 7)]
)
def test_plain_input_is_text_wherever_the_parameter_takes_text(
    schema: Any, value: Any
) -> None:
    tool = ToolSpec(
        "it", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    )

    parsed = ReActDialect().parse(
        "Thought: I call it.\nAction: it\nAction Input: 7", (tool,)
    )

    assert parsed.calls == (ToolCall("it", {"x": value}),)
