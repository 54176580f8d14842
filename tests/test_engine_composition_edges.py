"""Edges of engines inside engines: limits met by a sibling, changed policy, empty tasks, aborts, odd names."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from journal_positions import cut_after
from loopwright import (
    Allow,
    Capabilities,
    Completion,
    ConfigError,
    Limits,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    ReplayDivergence,
    Runtime,
)
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import look


def turns(*lines):
    return lambda r: lines[sum(m.role == "assistant" for m in r.conversation.messages)]


def made(model, *tools, **o):
    return Runtime(ScriptedProvider(model), tools=tools, **o)


def told(r):
    return [m.content for m in r.conversation.messages if m.role == "tool"]


class Body(LoopEngine):
    name = "body"
    body: Any = None

    async def solve(self, run):
        return str(await self.body(run))


async def test_a_call_open_when_its_sibling_met_the_limit_is_finished_on_resume():
    turn, limits = (
        [call("look", what="sky"), call("look", what="sea")],
        Limits(max_tool_calls=1),
    )
    first = made(turns(turn, "best"), look, limits=limits)
    whole = await ReActEngine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    again = await made(
        turns(turn, "best"),
        look,
        limits=limits,
        journal=crashed(entries, cut_after(entries, "limit_hit")),
    ).resume("r")
    assert told(again) == told(whole)


async def test_leave_for_one_thing_is_not_leave_for_another():
    def body(name):
        async def solve(run):
            await run.permit(name, {"a": 1})
            return await run.ask("x")

        return solve

    first = made(turns("k"))
    await Body(first, body=body("plan")).run("go", run_id="r")
    entries = first.journal.read("r")
    with pytest.raises(ReplayDivergence):
        await Body(
            made(
                turns("k"), journal=crashed(entries, cut_after(entries, "gate_decided"))
            ),
            body=body("launch"),
        ).resume("r")


async def test_an_error_of_a_finished_run_keeps_what_it_says():
    async def body(run):
        return await run.ask("x")

    rt = made(lambda r: Completion("half", answer="half", finish_reason="length"))
    await Body(rt, body=body).run("go", run_id="r")
    error = (await Body(rt, body=body).resume("r")).error
    assert (error.text, error.cut) == ("half", True)


async def test_a_structured_question_that_failed_says_what_came():
    class N(BaseModel):
        n: int

    async def body(run):
        return await run.ask("x", into=N)

    result = await Body(made(lambda r: "nope"), body=body).run("go")
    assert result.error.text == "nope"


async def test_an_engine_tool_whose_permit_lapsed_is_rejected_like_any_tool():
    class Gate:
        version = "1"

        async def evaluate(self, action, state):
            return Allow()

    gate = Gate()

    class Changing(MemoryJournal):
        async def barrier(self, claim):
            await super().barrier(claim)
            if self.read("r")[-1].kind == "tool_started":
                gate.version = "2"

    helper = ReActEngine(made(turns("never"))).as_tool()
    runtime = made(
        turns(call("react", task="a"), "ok"), helper, gate=gate, journal=Changing()
    )
    result = await ReActEngine(runtime).run("go", run_id="r")
    assert (result.answer, result.status) == ("ok", "completed")

    entries = runtime.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_finished"))
    again = made(
        turns(call("react", task="a"), "ok"), helper, gate=gate, journal=journal
    )
    assert (await ReActEngine(again).resume("r")).conversation == result.conversation


@pytest.mark.parametrize("task", ["", " \n"])
async def test_an_empty_task_starts_no_engine(task):
    helper = ReActEngine(made(turns("never")))
    await ReActEngine(
        made(turns(call("react", task=task), "ok"), helper.as_tool())
    ).run("go")
    assert helper.runtime.provider.requests == []


def test_an_engine_with_tools_and_a_provider_without_calls_is_not_a_tool():
    runtime = Runtime(
        ScriptedProvider([], capabilities=Capabilities(native_tools=False)),
        tools=[look],
    )
    with pytest.raises(ConfigError, match="TextTools"):
        ReActEngine(runtime).as_tool()


def test_a_prompt_called_self_is_only_unknown():
    with pytest.raises(ConfigError, match="no prompt 'self'"):
        ReActEngine(made([]), prompts={"self": "x"})


async def test_an_aborted_engine_tool_has_its_outcome():
    started = asyncio.Event()

    class Held(ScriptedProvider):
        async def complete(self, request):
            started.set()
            await asyncio.sleep(60)

    rt = made(
        turns(call("react", task="a"), "never"),
        ReActEngine(Runtime(Held([]))).as_tool(),
    )
    async with ReActEngine(rt).start("go", run_id="r") as run:
        await started.wait()
        await run.abort()
    assert [
        e.event.status for e in rt.journal.read("r") if e.kind == "tool_finished"
    ] == ["cancelled"]


@pytest.mark.parametrize(("offered", "answer"), [("half \ud800", "half ?"), (3, None)])
async def test_what_is_offered_is_a_text(offered, answer):
    async def body(run):
        run.offer(offered)
        for _ in run.iterations():
            await run.ask("x")

    rt = made(lambda r: "k", limits=Limits(max_iterations=2))
    result = await Body(rt, body=body).run("go", run_id="r")
    assert result.answer == answer
    assert rt.journal.read("r")[-1].kind == "run_finished"
