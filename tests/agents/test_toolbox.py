"""AgentsToolbox: a model gives work to agents, asks them, and reads why it may not."""

from typing import Any

import pytest

from loopwright import (
    ConfigError,
    Limits,
    MemoryJournal,
    Observation,
    ProviderError,
    Runtime,
    tool,
)
from loopwright.agents import AgentsToolbox
from loopwright.events import ChildStarted, ToolFinished
from loopwright.testing import ScriptedProvider, call, crashed


@tool(effect="read")
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: blue"


@tool(effect="read", outbound=True)
def search_web(query: str) -> str:
    """Search the web."""
    return query


@tool(effect="write")
def write_file(path: str, text: str) -> str:
    """Write a file."""
    return "written"


TOOLS = [read_file, search_web, write_file]


def make(*script: Any, journal: Any = None, agents: Any = (), presets: Any = (), **options: Any) -> Runtime:  # fmt: skip
    """A boss with the toolbox, and a painter."""
    runtime = Runtime(ScriptedProvider(list(script)), tools=TOOLS, journal=journal, **options)  # fmt: skip
    runtime.agent("painter", instructions="PAINT", tools=[read_file], description="Paints.")  # fmt: skip
    toolbox = AgentsToolbox(runtime, agents, presets=presets)
    runtime.agent("boss", instructions="BOSS", tools=[toolbox])
    return runtime


def outcomes(runtime: Runtime, name: str = "") -> list[tuple[str, str]]:
    """Status and text of each call of a tool."""
    events = [entry.event for entry in runtime.journal.read("r")]
    finished = [event for event in events if isinstance(event, ToolFinished)]
    return [(e.status, e.content) for e in finished if name in ("", e.tool)]


def requests(runtime: Runtime) -> Any:
    provider: Any = runtime.provider
    return provider.requests


async def test_a_model_delegates_a_task_and_reads_the_answer() -> None:
    runtime = make(
        call("delegate", agent="painter", task="Which colour is a.txt?"),
        call("read_file", path="a.txt"),
        "It is blue.",
        "Blue.",
    )
    result = await runtime.agents["boss"].run("Go.", run_id="r")
    [tools] = [{t.name for t in r.tools} for r in requests(runtime)[1:2]]

    assert (result.answer, result.tool_calls) == ("Blue.", 2)
    assert outcomes(runtime, "delegate") == [("ok", "It is blue.")]
    assert requests(runtime)[1].system == "PAINT"
    assert requests(runtime)[1].conversation.messages[-1].content == "Which colour is a.txt?"  # fmt: skip
    assert tools == {"read_file"}


async def test_an_agent_is_asked_one_question_without_tools() -> None:
    """Symbiont's `ask` is single-turn; the agent keeps its instructions."""
    runtime = make(call("ask_agent", agent="painter", question="Red?"), "No.", "No.")
    await runtime.agents["boss"].run("Go.", run_id="r")
    asked = requests(runtime)[1]

    assert (asked.system, asked.tools) == ("PAINT", ())
    assert outcomes(runtime) == [("ok", "No.")]


async def test_agents_are_listed_with_what_they_are_for_also_later_ones() -> None:
    runtime = make(call("list_agents"), "Thanks.")
    runtime.agent("late", description="Comes late.")
    await runtime.agents["boss"].run("Go.", run_id="r")
    [first, *_] = requests(runtime)

    assert outcomes(runtime) == [
        ("ok", "- painter: Paints.\n- boss: any task\n- late: Comes late.")
    ]
    assert first.tools[0].schema["properties"]["agent"]["enum"] == ["painter", "boss", "late"]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (call("delegate", agent="poet", task="Sing."), "'poet' is not one of ['painter', 'boss']"),
        (call("delegate", agent="boss", task="Lead."), "delegate: boss is at work already in boss > boss"),
        (call("ask_agent", agent="boss", question="Me?"), "delegate: boss is at work already in boss > boss"),
        (call("delegate", agent="painter", task=" "), "at task"),
    ],
)  # fmt: skip
async def test_what_may_not_run_is_refused_and_the_model_reads_why(
    made: Any, problem: str
) -> None:
    runtime = make(made, "I cannot.")
    result = await runtime.agents["boss"].run("Go.", run_id="r")
    [(status, text)] = outcomes(runtime)

    assert (status, result.answer) == ("rejected", "I cannot.")
    assert problem in text
    assert len(requests(runtime)) == 2


async def test_a_fourth_level_is_refused_and_the_model_reads_why() -> None:
    runtime = Runtime(ScriptedProvider([]))
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        runtime.agent(name, tools=[AgentsToolbox(runtime, names)])
    script: list[Any] = [call("delegate", agent=name, task="Go.") for name in "bcde"]
    again = Runtime(ScriptedProvider([*script, *["No."] * 4]))
    for name in names:
        again.agent(name, tools=[AgentsToolbox(again, names)])
    await again.agents["a"].run("Go.", run_id="r")
    refused = [text for status, text in outcomes(again) if status == "rejected"]
    started = [e for e in again.journal.read("r") if isinstance(e.event, ChildStarted)]

    assert len(refused) == 1
    assert "max_depth: at most 3 engines may work below one another, got a > b > c > d > e" in refused[0]  # fmt: skip
    assert started == []  # children of tools have entries of their calls


async def test_several_agents_work_at_once_and_one_that_fails_loses_no_other() -> None:
    def model(request: Any) -> Any:
        asked = request.conversation.messages[-1].content
        if request.system == "PAINT":
            return RuntimeError("no paint") if asked == "B" else f"painted {asked}"
        if any(message.calls for message in request.conversation):
            return "Done."
        return [call("delegate", agent="painter", task=task) for task in "ABC"]

    runtime = Runtime(ScriptedProvider(model))
    runtime.agent("painter", instructions="PAINT")
    runtime.agent("boss", tools=[AgentsToolbox(runtime)])
    result = await runtime.agents["boss"].run("Go.", run_id="r")
    turn: list[Observation] = [m for m in result.conversation if m.role == "tool"]  # type: ignore[misc]

    assert result.answer == "Done."
    assert [message.content for message in turn] == [
        "painted A",
        "delegate ended as failed (provider_error)",
        "painted C",
    ]


async def test_a_child_works_on_what_is_left_of_the_budget() -> None:
    runtime = make(
        call("delegate", agent="painter", task="Look for ever."),
        *[call("read_file", path=f"{n}") for n in range(5)],
        limits=Limits(max_llm_calls=4, best_effort=False),
    )
    result = await runtime.agents["boss"].run("Go.", run_id="r")

    assert (result.status, result.stop_reason, result.llm_calls) == ("limit", "max_llm_calls", 4)  # fmt: skip


async def test_a_delegation_is_resumed_after_any_crash_and_repeats_nothing() -> None:
    script = [
        call("delegate", agent="painter", task="Look."),
        call("read_file", path="a.txt"),
        "Blue.",
        call("ask_agent", agent="painter", question="Sure?"),
        "Yes.",
        "It is blue.",
    ]
    runtime = make(*script, journal=MemoryJournal())
    await runtime.agents["boss"].run("Go.", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries)):
        replied = sum(entry.kind == "model_replied" for entry in entries[:keep])
        again = make(*script[replied:], journal=crashed(entries, keep))
        result = await again.resume("r")

        assert result.answer == "It is blue."
        assert [status for status, _ in outcomes(again)] == ["ok"] * 3


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_write_of_a_delegated_agent_is_undone_by_a_saga(
    is_killed: bool,
) -> None:
    """Also by a new process, which replays the delegation first."""
    undone: list[str] = []

    @tool(effect="write", compensate=lambda ctx, result: undone.append(result))
    def write(path: str) -> str:
        """Write."""
        return f"{path} written"

    def make(script: list[Any], journal: MemoryJournal) -> Runtime:
        runtime = Runtime(ScriptedProvider(script), journal=journal)
        runtime.agent("writer", tools=[write])
        runtime.agent("boss", tools=[AgentsToolbox(runtime)])
        return runtime

    down = ProviderError("down", retryable=False)
    given = [call("delegate", agent="writer", task="Write."), call("write", path="a")]
    runtime = make([*given, "Written.", down], MemoryJournal())
    result = await runtime.agents["boss"].run("Go.", run_id="r", saga=True)
    if is_killed:
        undone.clear()
        entries = runtime.journal.read("r")
        begun = next(entry.seq for entry in entries if entry.kind == "undo_begun")
        result = await make([], crashed(entries, begun)).resume("r")

    assert (result.status, undone) == ("failed", ["a written"])


# --- agents that come with the library ---


def test_presets_have_the_tools_that_they_need_and_no_others() -> None:
    runtime = make(presets=("explore", "research", "code", "plan"))
    tools = {
        name: {each.name for each in runtime.agents[name].engine.runtime.tools}
        for name in ("explore", "research", "code", "plan")
    }

    assert tools == {
        "explore": {"read_file"},
        "research": {"read_file", "search_web"},
        "code": {"read_file", "search_web", "write_file"},
        "plan": {"read_file"},
    }
    assert all(runtime.agents[name].description for name in tools)


async def test_a_preset_works_by_its_instructions() -> None:
    runtime = make(call("delegate", agent="plan", task="A wall."), "1. Bricks.", "So.", presets=["plan"])  # fmt: skip
    await runtime.agents["boss"].run("Go.", run_id="r")

    assert requests(runtime)[1].system.startswith("You plan.")


def test_an_agent_of_the_name_of_a_preset_stays_as_it_is() -> None:
    runtime = Runtime(ScriptedProvider([]))
    own = runtime.agent("plan", description="Mine.")
    AgentsToolbox(runtime, presets=["plan"])
    AgentsToolbox(runtime, presets=["plan", "code"])

    assert runtime.agents["plan"] is own
    assert list(runtime.agents) == ["plan", "code"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"presets": "plan"}, "presets: must be a list of names, got 'plan'"),
        ({"presets": ["cook"]}, "presets: must be some of explore, research, code, plan, got 'cook'"),
        ({"agents": "painter"}, "agents: must be a list of names, got 'painter'"),
        ({"effect": "maybe"}, "effect must be one of"),
    ],
)  # fmt: skip
def test_a_bad_option_of_the_toolbox_is_refused_by_name(
    options: Any, problem: str
) -> None:
    runtime = Runtime(ScriptedProvider([]))
    with pytest.raises(ConfigError) as caught:
        runtime.agent("boss", tools=[AgentsToolbox(runtime, **options)])

    assert problem in str(caught.value)


async def test_an_agent_removed_since_is_an_error_that_names_it() -> None:
    runtime = make(call("delegate", agent="poet", task="Sing."), "No.", agents=["poet"])
    await runtime.agents["boss"].run("Go.", run_id="r")
    [(status, text)] = outcomes(runtime)

    assert status == "rejected"
    assert "there is no agent 'poet' to give work to; there are none" in text
