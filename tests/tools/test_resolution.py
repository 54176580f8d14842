"""Tools that change while a run is at work: what a step begins with is what it ends with."""

import asyncio
import time
from typing import Any

import pytest
import structlog

from loopwright import Limits, ReActEngine, Runtime, Tool, ToolSource, tool
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import registry


@tool(effect="read")
def first() -> str:
    """First."""
    return "the first"


@tool(effect="read")
def second() -> str:
    """Second."""
    return "the second"


class Changing:
    """Has another tool each time it is asked."""

    def __init__(self, *lists: tuple[Tool, ...]) -> None:
        self._lists, self._turn = lists, 0

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._lists[self._turn]

    async def refresh(self) -> tuple[Tool, ...]:
        self._turn = min(self._turn + 1, len(self._lists) - 1)
        return self.tools


async def test_a_changed_list_takes_effect_with_the_next_model_call_and_not_before() -> (
    None
):
    source = Changing((first,), (first,), (second,))
    assert isinstance(source, ToolSource)
    model = ScriptedProvider(
        [[call("first"), call("second")], [call("first"), call("second")], "done"]
    )
    runtime = Runtime(model, tools=source)

    result = await ReActEngine(runtime).run("Go.")

    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["first"],
        ["second"],
        ["second"],
    ]
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "the first",
        "There is no tool 'second'. Tools: first.",
        "There is no tool 'first'. Tools: second.",
        "the second",
    ]
    assert [each.name for each in runtime.tools] == ["first"]


async def test_a_list_that_cannot_be_used_changes_nothing() -> None:
    source = Changing((first,), (first, second, first))

    result = await ReActEngine(
        Runtime(ScriptedProvider([call("first"), "done"]), tools=[source])
    ).run("Go.")

    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "the first"
    ]


class Troubled(Changing):
    """Has the same tools for ever, and does something else when it is asked for them."""

    def __init__(self, trouble: Any) -> None:
        super().__init__((first,))
        self._trouble = trouble

    async def refresh(self) -> tuple[Tool, ...]:
        return await self._trouble()


async def hangs() -> Any:
    await asyncio.Event().wait()


async def fails() -> Any:
    raise RuntimeError("no list today")


@pytest.mark.parametrize(
    ("trouble", "why"), [(hangs, "no list within"), (fails, "no list today")]
)
async def test_a_source_that_gives_no_list_has_what_it_had(
    trouble: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REFRESH_TIMEOUT", 0.02)
    runtime = Runtime(
        ScriptedProvider([call("first"), "done"]), tools=[Troubled(trouble)]
    )

    with structlog.testing.capture_logs() as logs:
        result = await ReActEngine(runtime).run("Go.")

    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "the first"
    ]
    assert {line["event"] for line in logs} == {"tools_not_refreshed"}
    assert why in logs[0]["error"]


async def test_a_source_that_hangs_does_not_outlast_the_run() -> None:
    runtime = Runtime(
        ScriptedProvider(["done"]), tools=[Troubled(hangs)], limits=Limits(timeout=0.2)
    )
    begun = time.monotonic()

    result = await ReActEngine(runtime).run("Go.")

    assert result.stop_reason == "timeout"
    assert time.monotonic() - begun < 5


async def test_what_a_tool_that_comes_later_knows_comes_into_no_run() -> None:
    key = "correct-horse-battery"

    @tool(effect="read", trusted=True, secrets=(word for word in [key]))
    def bank() -> str:
        """Ask the bank."""
        return f"you came with {key}"

    source = Changing((first,), (first,), (first, bank))
    model = ScriptedProvider([call("first"), call("bank"), f"it was {key}"])
    runtime = Runtime(model, tools=source)

    result = await ReActEngine(runtime).run("Go.", run_id="r")

    assert [m.content for m in result.conversation.messages if m.role == "tool"][
        1
    ] == "you came with [redacted]"
    assert result.answer == "it was [redacted]"


async def test_a_source_that_hangs_keeps_no_other_from_being_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "REFRESH_TIMEOUT", 0.02)
    other = Changing((second,), ())
    model = ScriptedProvider([call("second"), "done"])

    result = await ReActEngine(Runtime(model, tools=[Troubled(hangs), other])).run(
        "Go."
    )

    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["first"],
        ["first"],
    ]
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "There is no tool 'second'. Tools: first."
    ]
