"""Delegation that goes round in a circle, or too deep, is refused by name before anything of it runs."""

import hashlib
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from loopwright import (
    ConfigError,
    Limits,
    LoopEngine,
    MemoryJournal,
    Run,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.events import ChildStarted, ModelRequested, ToolFinished
from loopwright.messages import canonical_json
from loopwright.testing import ScriptedProvider, call, crashed


class Nested(LoopEngine):
    """Delegates to the engine inside, if there is one, else answers."""

    name = "nested"
    inner: LoopEngine | None = None

    async def solve(self, run: Run) -> str:
        if self.inner is None:
            return await run.ask("Answer.")
        return str((await run.delegate(self.inner, run.task)).raise_for_status().answer)


class Selfish(LoopEngine):
    """Delegates to itself."""

    name = "selfish"

    async def solve(self, run: Run) -> str:
        return str((await run.delegate(self, run.task)).raise_for_status().answer)


class Calling(LoopEngine):
    """Delegates to the agent of a name, which may be defined later."""

    name = "calling"
    other: str = ""

    async def solve(self, run: Run) -> str:
        agents: Any = vars(self.runtime)["agents"]
        result = await run.delegate(agents[self.other].engine, run.task)
        return str(result.raise_for_status().answer)


def chain(runtime: Runtime, length: int) -> LoopEngine:
    """So many engines, each inside the one before."""
    engine = Nested(runtime)
    for _ in range(length - 1):
        engine = Nested(runtime, inner=engine)
    return engine


def children(runtime: Runtime) -> int:
    entries = runtime.journal.read("r")
    return sum(isinstance(entry.event, ChildStarted) for entry in entries)


async def test_an_engine_that_delegates_to_itself_is_refused_by_name() -> None:
    runtime = Runtime(ScriptedProvider([]))
    result = await Selfish(runtime).run("Go.", run_id="r")

    assert isinstance(result.error, ConfigError)
    assert str(result.error) == (
        "delegate: selfish is at work already in selfish > selfish; delegate to another one"
    )
    assert (result.status, children(runtime)) == ("failed", 0)


async def test_agents_that_delegate_in_a_circle_are_refused_also_when_resumed() -> None:
    def make(journal: MemoryJournal) -> Runtime:
        runtime = Runtime(ScriptedProvider([]), journal=journal)
        runtime.agent("boss", engine=Calling(runtime, other="painter"))
        runtime.agent("painter", engine=Calling(runtime, other="boss"))
        return runtime

    runtime = make(MemoryJournal())
    result = await runtime.agents["boss"].run("Go.", run_id="r")
    entries = runtime.journal.read("r")
    started = next(e.seq for e in entries if e.kind == "child_started")
    resumed = await make(crashed(entries, started)).resume("r")

    for one in (result, resumed):
        assert "boss is at work already in boss > painter > boss" in str(one.error)
    assert children(runtime) == 1


@pytest.mark.parametrize(
    ("limit", "length", "is_refused"),
    [(3, 4, False), (3, 5, True), (1, 2, False), (1, 3, True), (None, 6, False)],
)
async def test_delegation_goes_as_deep_as_the_limit_says(
    limit: int | None, length: int, is_refused: bool
) -> None:
    runtime = Runtime(
        ScriptedProvider(["Done."]), limits=Limits(max_depth=limit, best_effort=False)
    )
    result = await chain(runtime, length).run("Go.", run_id="r")

    if is_refused:
        names = " > ".join(["nested"] * length)
        assert f"max_depth: at most {limit} engines may work below" in str(result.error)
        assert f"got {names}; let fewer delegate" in str(result.error)
        assert children(runtime) == limit
    else:
        assert result.answer == "Done."


async def test_three_levels_are_allowed_where_nothing_is_said() -> None:
    shallow = await chain(Runtime(ScriptedProvider(["Done."])), 4).run("Go.")
    deep = await chain(Runtime(ScriptedProvider([])), 5).run("Go.")

    assert shallow.answer == "Done."
    assert "max_depth: at most 3" in str(deep.error)


async def test_a_model_reads_why_an_agent_that_is_a_tool_was_not_run() -> None:
    @tool(effect="read")
    async def paint() -> str:
        """Paint."""
        raise AssertionError("it ran")

    model = ScriptedProvider(
        [
            call("painter", task="Paint."),
            call("brush", task="Paint."),
            "I cannot.",
            "No.",
        ]
    )
    runtime = Runtime(model, limits=Limits(max_depth=1))
    brush = runtime.agent("brush", tools=[paint])
    painter = runtime.agent("painter", tools=[brush.as_tool()])
    boss = runtime.agent("boss", tools=[painter.as_tool()])
    result = await boss.run("Paint.", run_id="r")
    events = [entry.event for entry in runtime.journal.read("r")]
    refused = [e for e in events if isinstance(e, ToolFinished) and e.tool == "brush"]

    assert [(e.status, e.content) for e in refused] == [
        (
            "rejected",
            "brush was not run: max_depth: at most 1 engines may work below one another, got boss > painter > brush; "
            "let fewer delegate, or raise Limits(max_depth=...)",
        )
    ]
    assert result.answer == "No."


async def test_an_agent_as_a_tool_refused_at_a_limit_is_so_after_any_crash() -> None:
    def make(script: list[str | ToolCall], journal: MemoryJournal) -> Runtime:
        runtime = Runtime(
            ScriptedProvider(script), journal=journal, limits=Limits(max_depth=1)
        )
        brush = runtime.agent("brush")
        painter = runtime.agent("painter", tools=[brush.as_tool()])
        runtime.agent("boss", tools=[painter.as_tool()])
        return runtime

    script = [call("painter", task="A"), call("brush", task="B"), "I cannot.", "No."]
    runtime = make(list(script), MemoryJournal())
    await runtime.agents["boss"].run("Paint.", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries)):
        asked = sum(e.kind == "model_replied" for e in entries[:keep])
        again = make(script[asked:], crashed(entries, keep))
        result = await again.resume("r")

        assert (result.status, result.answer) == ("completed", "No.")
        assert len(again.journal.runs()) == 1


async def test_a_recorded_delegation_that_is_deeper_than_today_is_resumed() -> None:
    journal = MemoryJournal()
    free = Runtime(
        ScriptedProvider(["Done."]), journal=journal, limits=Limits(max_depth=None)
    )
    await chain(free, 6).run("Go.", run_id="r")
    entries = journal.read("r")
    replied = next(e.seq for e in entries if e.kind == "model_replied")
    today = Runtime(ScriptedProvider([]), journal=crashed(entries, replied))
    result = await chain(today, 6).resume("r")

    assert result.answer == "Done."


@pytest.mark.parametrize("depth", [3, 2])
async def test_the_limit_of_depth_is_in_the_setup_of_calls_where_it_is_set(
    depth: int,
) -> None:
    runtime = Runtime(ScriptedProvider(["Done."]), limits=Limits(max_depth=depth))
    await chain(runtime, 1).run("Go.", run_id="r")
    events = [entry.event for entry in runtime.journal.read("r")]
    [asked] = [event for event in events if isinstance(event, ModelRequested)]
    limits = to_jsonable_python(runtime.limits)
    del limits["max_handoffs"]
    if depth == 3:  # as journals from before it was there have it
        del limits["max_depth"]
    hashed = hashlib.sha256(canonical_json(limits)).hexdigest()[:12]

    assert f"limits={hashed} " in asked.setup
