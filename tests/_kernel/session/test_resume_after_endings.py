"""Endings that once left a run which no process could take up again: resumed after every entry, they stay the same."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from loopwright import (
    Allow,
    Ask,
    ChainOfThoughtEngine,
    ConfigError,
    Conversation,
    CriticEngine,
    Deny,
    Limits,
    LoopEngine,
    MemoryJournal,
    Message,
    Modify,
    PlanExecuteEngine,
    ProviderError,
    ReActEngine,
    ReflexionEngine,
    Request,
    Runtime,
    SelfAskEngine,
    Suspend,
    ToolCall,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.gates import Action, Decision, InstantGate, PolicyState
from loopwright.messages import JsonObject
from loopwright.providers import Capabilities, TextTools
from loopwright.testing import ScriptedProvider, call, crashed

Make = Callable[[MemoryJournal | None], LoopEngine]


@tool(effect="read")
async def search(query: str) -> str:
    """Search."""
    return "found"


class Narrow(InstantGate):
    """Changes what is asked for, and then decides about that."""

    version = "narrow-1"

    def __init__(self, changed: JsonObject, then: Decision) -> None:
        self._changed, self._then = changed, then

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Change it once."""
        return (
            self._then
            if action.arguments == self._changed
            else Modify(dict(self._changed), "not that")
        )


def searches(request: Request) -> str | ToolCall:
    """Searches once, and answers."""
    asked = any(message.role == "tool" for message in request.conversation)
    return "done" if asked else call("search", query="secret")


async def resumes_everywhere(make: Make, answer: str | None, status: str) -> None:
    """Run, then resume from every prefix of the journal."""
    engine = make(None)
    whole = await engine.run("Q?", run_id="r")
    assert (whole.answer, whole.status) == (answer, status)
    entries = engine.runtime.journal.read("r")
    for keep in range(1, len(entries)):
        again = await make(crashed(entries, keep)).resume("r")
        assert (keep, again.answer, again.status, again.facts) == (
            keep,
            answer,
            status,
            whole.facts,
        )


@pytest.mark.parametrize(
    ("changed", "then"),
    [
        ({"query": "public"}, Deny("not here")),
        ({"q": 1}, Allow()),
        ({"query": "public"}, Allow()),
    ],
)
async def test_what_a_gate_decides_about_changed_arguments_can_be_resumed(
    changed: JsonObject, then: Decision
) -> None:
    def make(journal: MemoryJournal | None) -> LoopEngine:
        gate = Narrow(changed, then)
        return ReActEngine(
            Runtime(
                ScriptedProvider(searches), tools=[search], gate=gate, journal=journal
            )
        )

    await resumes_everywhere(make, "done", "completed")


async def test_a_question_about_changed_arguments_can_be_answered_later() -> None:
    async def yes(action: Action, question: str) -> bool:
        return True

    parts = Runtime(
        ScriptedProvider(searches),
        tools=[search],
        gate=Narrow({"query": "public"}, Ask("well?")),
        approver=Suspend(),
    )
    assert (await ReActEngine(parts).run("Q?", run_id="r")).status == "waiting"
    later = Runtime(
        parts.provider,
        tools=[search],
        gate=parts.gate,
        approver=yes,
        journal=parts.journal,
    )

    assert (await ReActEngine(later).resume("r")).answer == "done"


async def test_a_child_whose_best_answer_is_refused_can_be_resumed() -> None:
    def model(request: Request) -> str:
        return (
            "1. Find out.\njoin()"
            if "Plan how" in request.conversation.messages[-1].content
            else "blue"
        )

    def make(journal: MemoryJournal | None) -> LoopEngine:
        parts = Runtime(
            ScriptedProvider(model), journal=journal, limits=Limits(max_llm_calls=2)
        )
        return ReflexionEngine(parts, actor=PlanExecuteEngine(parts), max_episodes=1)

    await resumes_everywhere(make, "blue", "limit")


async def test_a_grandchild_that_meets_the_limit_can_be_resumed() -> None:
    def model(request: Request) -> str:
        return (
            "I do not know"
            if "What is the answer" in request.conversation.messages[-1].content
            else "Let me see."
        )

    def make(journal: MemoryJournal | None) -> LoopEngine:
        parts = Runtime(
            ScriptedProvider(model),
            tools=[search],
            journal=journal,
            limits=Limits(max_llm_calls=3),
        )
        reasons = ChainOfThoughtEngine(
            parts, answer="number", fallback=SelfAskEngine(parts)
        )
        return CriticEngine(parts, drafter=reasons)

    engine = make(None)
    whole = await engine.run("Q?", run_id="r")
    entries = engine.runtime.journal.read("r")
    for keep in range(1, len(entries)):
        again = await make(crashed(entries, keep)).resume("r")
        assert (keep, again.answer, again.status) == (keep, whole.answer, whole.status)


async def test_thinking_that_a_server_leaves_in_a_reply_is_neither_action_nor_answer() -> (
    None
):
    ran: list[str] = []

    @tool
    async def delete(what: str) -> str:
        """Delete."""
        ran.append(what)
        return "gone"

    said = "<think>\nAction: delete\nAction Input: all\nFinal Answer: 41\nNo.\n</think>\nFinal Answer: 42"
    for reply in (said, said.removeprefix("<think>\n")):
        parts = Runtime(TextTools(ScriptedProvider([reply]), "react"), tools=[delete])
        result = await ReActEngine(parts).run("Q?")

        assert (result.answer, ran) == ("42", [])
    provider = ScriptedProvider(["<think>\nFinal Answer: 41", "Final Answer: 42"])
    assert (
        await ReActEngine(Runtime(TextTools(provider, "react"), tools=[delete])).run(
            "Q?"
        )
    ).answer == "42"
    reasons = ChainOfThoughtEngine(
        Runtime(ScriptedProvider(["<think>FINAL ANSWER: 1\n</think>FINAL ANSWER: 2"]))
    )
    assert (await reasons.run("Q?")).answer == "2"


async def test_what_an_engine_asks_is_no_protocol_although_the_history_has_calls() -> (
    None
):
    history = Conversation(
        [
            Message("user", "Look."),
            Message("assistant", "", (call("search", query="x"),)),
            Message("tool", "found", call_id=""),
            Message("assistant", "It is found."),
            Message("user", "How many?"),
        ]
    )
    provider = ScriptedProvider(["Thought: two and two.\nThe answer is 4."])
    parts = Runtime(TextTools(provider, "react"), tools=[search])

    assert (
        await ChainOfThoughtEngine(parts, answer="number").run(history)
    ).answer == "4"
    assert "You can use these tools" not in str(provider.requests[0].conversation)


def test_an_engine_inside_another_needs_a_provider_that_can_call_its_tools() -> None:
    mute = Runtime(
        ScriptedProvider([], capabilities=Capabilities(native_tools=False)),
        tools=[search],
    )

    with pytest.raises(ConfigError, match="TextTools"):
        ReflexionEngine(Runtime(ScriptedProvider([])), actor=ReActEngine(mute))


async def test_a_finished_thought_outlives_a_provider_that_goes_down() -> None:
    lines = iter(["a thought", "ANSWER: blue", "Score: 9", "Score: 2"])

    def model(request: Request) -> str | ProviderError:
        return next(lines, None) or ProviderError("down")

    engine = TreeOfThoughtsEngine(
        Runtime(ScriptedProvider(model)), n_branches=2, max_concurrency=1
    )
    result = await engine.run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        "blue",
        "failed",
        "provider_error",
    )


CLOSED = """
import asyncio
from loopwright import ReActEngine, RunBusy, Runtime, tool
from loopwright.testing import ScriptedProvider, call

calls = []

@tool(effect="read")
async def think() -> str:
    calls.append("think")
    if len(calls) == 1:
        await asyncio.sleep(1000)
    return "thought"

def model(request):
    return "done" if request.conversation.messages[-1].role == "tool" else call("think")

runtime = Runtime(ScriptedProvider(model), tools=[think])
loop = asyncio.new_event_loop()
left = loop.create_task(ReActEngine(runtime).run("Go.", run_id="r"))
while not calls:
    loop.run_until_complete(asyncio.sleep(0.01))
try:
    asyncio.run(ReActEngine(runtime).resume("r"))
except RunBusy:
    print("busy")
loop.close()
print(asyncio.run(ReActEngine(runtime).resume("r")).answer, left.done())
"""


def test_a_run_whose_event_loop_was_closed_under_it_can_be_taken_up_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout.split()) == (0, ["busy", "done", "False"])


async def test_a_child_at_a_limit_is_not_taken_for_one_that_waits() -> None:
    """Its second call was decided and never made, so it has no outcome and no question."""

    def looks_twice(request: Request) -> str | list[ToolCall]:
        if request.tools and request.tool_choice == "auto":
            return [call("search", query="one"), call("search", query="two")]
        return "blue"

    def make(journal: MemoryJournal | None) -> LoopEngine:
        limits = Limits(max_tool_calls=0, max_llm_calls=6)
        model = ScriptedProvider(looks_twice)
        return ReflexionEngine(
            Runtime(model, tools=[search], limits=limits, journal=journal)
        )

    first = make(None)
    whole = await first.run("What is blue?", run_id="r")
    entries = first.runtime.journal.read("r")
    assert (whole.status, whole.stop_reason) == ("limit", "max_tool_calls")
    for kept in range(1, len(entries)):
        again = await make(crashed(entries, kept)).resume("r")

        found = again.status, again.stop_reason, again.answer, again.llm_calls
        assert found == (whole.status, whole.stop_reason, "blue", whole.llm_calls)
