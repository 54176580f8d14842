"""The gate on results: what a model may read of what a tool returned."""

import asyncio
from typing import Any

import pytest

from loopwright import (
    Attachment,
    ConfigError,
    MemoryJournal,
    ReActEngine,
    Result,
    Runtime,
    tool,
)
from loopwright.events import HookRan
from loopwright.hooks import Drop, Hook, Keep, Moment, Replace, ResultGate, ToolResult
from loopwright.testing import ScriptedProvider, call, crashed


@tool(effect="read")
def page(name: str) -> str:
    """Read a page."""
    return f"page {name}"


class Own:
    def __init__(self, decide: Any) -> None:
        self.decide, self.seen = decide, list[ToolResult]()

    def inspect(self, result: ToolResult) -> Any:
        self.seen.append(result)
        return self.decide(result)


def run(inspector: Any, *hooks: Any, journal: Any = None) -> Result:
    model = ScriptedProvider([call("page", name="a"), "done"])
    gate = ResultGate(inspector, seconds=0.05)
    runtime = Runtime(model, tools=[page], hooks=[gate, *hooks], journal=journal)
    return ReActEngine(runtime).run_sync("Go.", run_id="r")


def read(result: Result) -> str:
    return result.conversation.messages[-2].content


def test_a_result_is_kept_replaced_or_dropped() -> None:
    assert "page a" in read(run(Own(lambda _: Keep())))
    assert "another page" in read(run(Own(lambda _: Replace("another page"))))
    dropped = read(run(Own(lambda result: Drop(f"{result.tool} is not for you"))))
    assert "[the result of page was withheld: page is not for you]" in dropped
    assert "page a" not in dropped


async def later(result: ToolResult) -> object:
    await asyncio.sleep(30)
    return Keep()


async def allow(result: ToolResult) -> object:
    return Keep()


def fail(result: ToolResult) -> object:
    raise ValueError("page a")


def say_nothing(result: ToolResult) -> object:
    return None


def say_yes(result: ToolResult) -> object:
    return True


@pytest.mark.parametrize("decide", [later, fail, say_nothing, say_yes])
def test_an_inspector_that_does_not_decide_drops_the_result(decide: Any) -> None:
    result = run(Own(decide))
    assert result.answer == "done"
    assert "could not be inspected" in read(result)
    assert "page a" not in read(result)


def test_it_inspects_what_other_hooks_left_and_may_be_async() -> None:
    class Mask(Hook):
        def after_tool(self, at: Moment, text: str) -> str:
            assert at.tool == "page"
            return text.replace("a", "*")

    inspector = Own(allow)
    assert "p*ge *" in read(run(inspector, Mask()))
    assert [(one.tool, one.text) for one in inspector.seen] == [("page", "p*ge *")]


async def test_a_resumed_run_reads_what_was_recorded() -> None:
    journal, inspector = MemoryJournal(), Own(lambda _: Replace("another page"))
    await asyncio.to_thread(run, inspector, journal=journal)
    entries = journal.read("r")
    ran = next(e.seq for e in entries if isinstance(e.event, HookRan))
    model = ScriptedProvider(["done again"])
    never = Own(lambda _: Drop("never"))
    runtime = Runtime(model, tools=[page], hooks=[ResultGate(never)], journal=crashed(entries, ran + 1))  # fmt: skip
    result = await ReActEngine(runtime).resume("r")

    assert "another page" in read(result)
    assert never.seen == []


def test_a_dropped_result_has_no_attachments() -> None:
    @tool(effect="read")
    def picture() -> Any:
        """Take a picture."""
        return Attachment.image(b"\x89PNG\r\n\x1a\nchart", name="chart.png")

    for decided, sent in ((Keep(), 1), (Drop(), 0)):
        model = ScriptedProvider([call("picture"), "done"])
        gate = ResultGate(Own(lambda _, decided=decided: decided))
        engine = ReActEngine(Runtime(model, tools=[picture], hooks=[gate]))
        found = engine.run_sync("Go.").conversation.messages[-2].attachments
        assert len(found) == sent


def test_what_inspects_nothing_is_refused() -> None:
    wrong: Any = object()
    with pytest.raises(ConfigError, match="needs an object with a method `inspect`"):
        ResultGate(wrong)
    with pytest.raises(ConfigError, match="seconds: must be above 0"):
        ResultGate(Own(allow), seconds=0)
