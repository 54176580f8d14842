"""ReAct works the same with native tool calls and through each text dialect."""

import json
from typing import Any

import pytest

from loopwright import Capabilities, Completion, Message, ReActEngine, Runtime, tool
from loopwright.messages import Usage
from loopwright.providers import TextTools
from loopwright.testing import ScriptedProvider, call

PLAIN = Capabilities(native_tools=False, json_schema=True)


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def said(text: str) -> Completion:
    return Completion(text, usage=Usage(10, 5))


SCRIPTS: dict[str, list[Any]] = {
    "native": [call("add", a=1, b=2), "3"],
    "react": [
        said('Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}'),
        said("Thought: I know.\nFinal Answer: 3"),
    ],
    "json": [
        said('{"thought": "I add.", "action": "add", "action_input": {"a": 1, "b": 2}}'),
        said('{"action": "final_answer", "action_input": "3"}'),
    ],
}


def runtime(dialect: str, script: list[Any]) -> tuple[Runtime, ScriptedProvider]:
    if dialect == "native":
        native = ScriptedProvider(script)
        return Runtime(native, tools=[add]), native
    model = ScriptedProvider(script, capabilities=PLAIN)
    return Runtime(TextTools(model, dialect), tools=[add]), model


@pytest.mark.parametrize("dialect", SCRIPTS)
async def test_a_question_is_answered_with_a_tool(dialect: str) -> None:
    parts, _ = runtime(dialect, SCRIPTS[dialect])
    result = await ReActEngine(parts).run("1 + 2?")

    assert (result.status, result.answer, result.tool_calls) == ("completed", "3", 1)
    roles = [(m.role, m.content) for m in result.conversation.messages]
    thought = "" if dialect == "native" else "I add."
    assert roles == [("user", "1 + 2?"), ("assistant", thought), ("tool", "3"), ("assistant", "3")]


async def test_the_raw_reply_of_a_dialect_is_no_thought() -> None:
    script = [said('{"action": "add", "action_input": {"a": 1, "b": 2}}'), SCRIPTS["json"][1]]
    parts, model = runtime("json", script)
    result = await ReActEngine(parts).run("1 + 2?")

    assert result.conversation.messages[1].content == ""
    told = model.requests[1].conversation.messages[-2]
    assert json.loads(told.content) == {"action": "add", "action_input": {"a": 1, "b": 2}}


@pytest.mark.parametrize("dialect", ["react", "json"])
async def test_an_unreadable_reply_is_sent_back_and_mended(dialect: str) -> None:
    parts, model = runtime(dialect, [said("I think I should add them."), *SCRIPTS[dialect]])
    result = await ReActEngine(parts).run("1 + 2?")

    assert result.answer == "3"
    assert (
        model.requests[1].conversation.messages[-2]
        == Message("assistant", "I think I should add them.", origin="model")
        or "I think I should add them." in model.requests[1].conversation.messages[-2].content
    )


async def test_a_text_before_native_calls_is_a_thought_and_a_text_alone_is_a_thought_only_turn() -> None:
    with_text = Completion("Let me add.", calls=(call("add", a=1, b=2),), thought="Let me add.", usage=Usage(1, 1))
    parts, _ = runtime("native", [with_text, Completion("Hm.", usage=Usage(1, 1)), "3"])
    result = await ReActEngine(parts).run("1 + 2?")

    assert [m.content for m in result.conversation.messages if m.role == "assistant"] == ["Let me add.", "Hm.", "3"]
