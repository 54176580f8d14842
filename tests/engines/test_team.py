"""Teams: a task split for agents that work at once, a board that any process reads, and what one failure leaves alone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopwright import (  # fmt: skip
    ConfigError,
    Limits,
    MemoryJournal,
    ProviderError,
    ReActEngine,
    Request,
    Result,
    Runtime,
    tool,
)
from loopwright.engines import Board, ChainEngine, TeamEngine
from loopwright.events import ChildStarted, ModelRequested
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call, crashed

PLAN = [
    {"agent": "geographer", "task": "How high is the Dom?"},
    {"agent": "historian", "task": "Who climbed it first?"},
    {"agent": "geographer", "task": "In which country is it?"},
]


def said(request: Request) -> str:
    return request.conversation.messages[-1].content


def model(request: Request, plan: Any = PLAN) -> Any:
    """Splits by the plan, works, and joins what it reads."""
    asked = said(request)
    if asked.startswith("Split the task"):
        return json.dumps({"value": plan})
    if "results of its parts" in asked:
        return asked.partition("in order:\n\n")[2].partition("\n\nPut them")[0]
    task = asked.rpartition("\n")[2]
    if "climbed" in task:
        return ProviderError("the archive is closed", retryable=False)
    return f"{request.system} {task}"


def make(script: Any = model, journal: Any = None, **options: Any) -> Runtime:
    """A geographer and a historian."""
    runtime = Runtime(ScriptedProvider(script), journal=journal, **options)
    runtime.agent("geographer", instructions="GEO", description="Knows places.")
    runtime.agent("historian", instructions="HIST")
    return runtime


def requests(runtime: Runtime) -> list[Request]:
    provider: Any = runtime.provider
    return list(provider.requests)


def planning(plan: Any) -> Callable[[Request], Any]:
    """The model with another plan."""
    return lambda request: model(request, plan)


def run(runtime: Runtime, **options: Any) -> Result:
    return TeamEngine(runtime, **options).run_sync("Tell me of the Dom.", run_id="r")


def test_agents_do_their_tasks_and_the_join_reads_them_in_order() -> None:
    runtime = make()
    result = run(runtime)
    board = Board.of(runtime.journal.read("r"))

    assert result.answer == (
        "Part 1, by geographer: How high is the Dom?\nGEO How high is the Dom?\n\n"
        "Part 2, by historian: Who climbed it first?\n(no result: failed)\n\n"
        "Part 3, by geographer: In which country is it?\nGEO In which country is it?"
    )
    assert board.is_done
    assert [(task.number, task.agent, task.status) for task in board.tasks] == [
        (1, "geographer", "completed"),
        (2, "historian", "failed"),
        (3, "geographer", "completed"),
    ]
    assert board.tasks[1].problem == "the archive is closed"
    assert all(task.seconds >= 0 for task in board.tasks)


def test_the_model_that_splits_reads_what_each_agent_is_for() -> None:
    runtime = make()
    run(runtime)
    asked = requests(runtime)[0]

    assert "- geographer: Knows places.\n- historian: any task" in said(asked)
    assert "At most 10 tasks" in said(asked)


def test_an_unknown_agent_is_refused_with_the_reason_before_anything_runs() -> None:
    wrong = json.dumps({"value": [{"agent": "poet", "task": "Praise it."}]})
    tries = iter([wrong])

    def forgetful(request: Request) -> Any:
        if any("Split the task" in m.content for m in request.conversation):
            default = json.dumps({"value": PLAN[:1]})
            return next(tries, default)
        return model(request)

    runtime = make(forgetful)
    result = run(runtime)
    again = requests(runtime)[1]
    started = [e.seq for e in runtime.journal.read("r") if isinstance(e.event, ChildStarted)]  # fmt: skip
    asked = [e.seq for e in runtime.journal.read("r") if isinstance(e.event, ModelRequested)]  # fmt: skip

    assert "there is no agent 'poet'; there are geographer, historian" in said(again)  # fmt: skip
    assert result.status == "completed"
    assert asked[1] < started[0]


def test_a_split_by_an_agent_is_sent_back_with_the_reason_three_times() -> None:
    replies = iter(
        [
            "Let me think.",
            '[{"agent": "poet", "task": "x"}]',
            '[{"agent": "historian"}]',
        ]
    )

    def leader(request: Request) -> Any:
        return next(replies) if request.system == "LEAD" else model(request)

    runtime = make(leader)
    runtime.agent("leader", instructions="LEAD")
    result = run(runtime, split="leader", agents=("geographer", "historian"))
    asked = requests(runtime)

    assert (result.status, len(asked)) == ("failed", 3)
    assert "there is no agent 'poet'" in said(asked[2])
    assert "split: leader gave no usable split in 3 attempts: 0.task: Field required" in str(result.error)  # fmt: skip


def test_if_no_task_has_a_result_the_run_fails_with_the_first_error() -> None:
    plan = [{"agent": "historian", "task": "Who climbed it?"}] * 2
    result = run(make(planning(plan)))

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert str(result.error) == "the archive is closed"


def test_ids_of_tasks_are_given_before_the_split() -> None:
    """They hang on the run alone, so a split that is made again, or in another order, names the same places."""
    first, other = make(), make(planning(PLAN[::-1]))
    run(first)
    run(other)
    ids = [[t.id for t in Board.of(r.journal.read("r")).tasks] for r in (first, other)]

    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3


def test_no_more_tasks_than_allowed_are_under_way() -> None:
    runtime = make()
    run(runtime, max_concurrency=1)
    names = [e.event.name for e in runtime.journal.read("r") if e.kind == "fact_noted"]  # type: ignore[union-attr] # fmt: skip

    assert TeamEngine(runtime).max_concurrency == 5
    assert names == ["TaskPosted"] * 3 + ["TaskTaken", "TaskDone"] * 3


def test_a_team_without_agents_has_the_react_engine_work() -> None:
    def lonely(request: Request) -> Any:
        return model(request, [{"agent": "react", "task": "Go."}])

    runtime = Runtime(ScriptedProvider(lonely))
    result = run(runtime)

    assert result.status == "completed"
    assert [t.agent for t in Board.of(runtime.journal.read("r")).tasks] == ["react"]


# --- refused before anything runs ---


def test_an_agent_that_is_not_there_is_refused_before_the_split() -> None:
    runtime = make()
    result = run(runtime, agents=("geographer", "poet"))

    assert isinstance(result.error, ConfigError)
    assert "agents: must be an agent of the runtime" in str(result.error)
    assert "which has geographer, historian, got 'poet'" in str(result.error)
    assert requests(runtime) == []


def test_a_circle_of_agents_is_refused_when_it_is_defined() -> None:
    runtime = make()
    runtime.agent("boss", engine=TeamEngine(runtime, agents=("deputy",)))
    with pytest.raises(ConfigError) as caught:
        runtime.agent("deputy", engine=ChainEngine(runtime, steps=("boss",)))

    assert "deputy would work for itself in deputy > boss > deputy" in str(caught.value)


def test_a_fourth_level_is_refused_before_the_split() -> None:
    runtime = make()
    for name, of in (("c", "geographer"), ("b", "c"), ("a", "b")):
        runtime.agent(name, engine=ChainEngine(runtime, steps=(of,)))
    with pytest.raises(ConfigError) as caught:
        TeamEngine(runtime, agents=("a",))

    assert "max_depth: at most 3 engines may work below" in str(caught.value)
    assert "got team > a > b > c > geographer" in str(caught.value)
    assert requests(runtime) == []


# --- budget ---


@tool(effect="read", repeatable=True)
def look(what: str) -> str:
    """Look."""
    return what


def greedy(request: Request) -> Any:
    """One agent looks for ever, the other needs two calls."""
    asked = [message.content for message in request.conversation]
    turns = sum(message.role == "assistant" for message in request.conversation)
    if any("task: greedy" in one for one in asked):
        return call("look", what=f"{turns}") if request.tool_choice == "auto" else "what I have"  # fmt: skip
    if any("task: modest" in one for one in asked) and "results of" not in asked[-1]:
        return call("look", what="x") if turns == 0 else "modest result"
    plan = [{"agent": "one", "task": f"task: {name}"} for name in ("greedy", "modest")]
    return model(request, plan)


@pytest.mark.parametrize("share", ["equal", "rest"])
def test_an_equal_share_keeps_a_greedy_agent_from_what_others_need(share: Any) -> None:
    limits = Limits(max_llm_calls=13, max_iterations=100)
    runtime = Runtime(ScriptedProvider(greedy), tools=[look], limits=limits)
    runtime.agent("one")
    result = run(runtime, share=share, max_concurrency=1)
    board = Board.of(runtime.journal.read("r"))

    if share == "rest":  # the first that comes takes all
        assert (result.status, result.stop_reason) == ("limit", "max_llm_calls")
        assert board.tasks[1].state == "taken"
        return
    assert result.status == "completed"
    assert [(t.status, t.content) for t in board.tasks] == [
        ("limit", "what I have"),
        ("completed", "modest result"),
    ]
    # (13 - 1 for the split) / (2 tasks and the join) is 4 calls, and one more for the answer
    assert result.llm_calls == 1 + 5 + 2 + 1


async def test_a_share_is_the_same_wherever_the_run_was_cut() -> None:
    limits = Limits(max_llm_calls=13, max_iterations=100)

    def make(journal: MemoryJournal) -> Runtime:
        runtime = Runtime(ScriptedProvider(greedy), tools=[look], limits=limits, journal=journal)  # fmt: skip
        runtime.agent("one")
        return runtime

    runtime = make(MemoryJournal())
    engine = TeamEngine(runtime, share="equal", max_concurrency=1)
    whole = await engine.run("Go.", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries), 3):
        result = await make(crashed(entries, keep)).resume("r")

        assert (result.answer, result.llm_calls) == (whole.answer, whole.llm_calls)


# --- the board in another process ---

READER = """
import json, sys
from loopwright.engines import Board
from loopwright.journals import SQLiteJournal

board = Board.of(SQLiteJournal(sys.argv[1]).read("r"))
print(json.dumps([[task.state, task.status, task.content] for task in board.tasks]))
"""


async def test_another_process_reads_the_board_while_agents_work(
    tmp_path: Path,
) -> None:
    """One task is done, one hangs in its model call: the end of the first is there to read already."""
    is_open, hangs = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Any:
            if said(request).endswith("country is it?"):
                hangs.set()
                await is_open.wait()
            return await super().complete(request)

    plan = [PLAN[0], PLAN[2]]
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(Slow(planning(plan)), journal=journal)
    runtime.agent("geographer", instructions="GEO")
    seen: list[list[Any]] = []
    async with TeamEngine(runtime).start("Go.", run_id="r") as handle:
        board = Board()
        async for entry in handle:
            board = board.add(entry)
            if hangs.is_set() and board.tasks[0].state == "done":
                break
        await asyncio.sleep(0)
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", READER, str(tmp_path / "runs.db"), stdout=subprocess.PIPE
        )  # fmt: skip
        output, _ = await done.communicate()
        seen = json.loads(output)
        is_open.set()
        result = await handle.result()
    await journal.close()

    assert seen == [
        ["done", "completed", "GEO How high is the Dom?"],
        ["taken", None, ""],
    ]
    assert result.status == "completed"


async def test_options_are_names_from_which_a_runtime_resumes_the_team() -> None:
    runtime = make(journal=MemoryJournal())
    engine = TeamEngine(runtime, agents=("geographer", "historian"), join=ReActEngine(runtime), share="equal")  # fmt: skip
    whole = await engine.run("Tell me.", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries), 2):
        result = await make(journal=crashed(entries, keep)).resume("r")

        assert result.answer == whole.answer


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_tasks": 0}, "max_tasks: "),
        ({"share": "most"}, "share: "),
        ({"agents": "geographer"}, "agents: "),
        ({"max_concurrency": 0}, "max_concurrency: "),
    ],
)
def test_a_bad_option_is_refused_by_name(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TeamEngine(make(), **options)

    assert problem in str(caught.value)
