"""ReAct: thought, action, observation; what happens in a turn, and what happens when the turns are used up."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import (
    Allow,
    ChainOfThoughtEngine,
    Completion,
    ConfigError,
    Conversation,
    Deny,
    Limits,
    LoopEngine,
    Message,
    ProviderError,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    ToolError,
    Usage,
    tool,
)
from loopwright.engines.react import PROMPTS, BackedOff
from loopwright.events import Entry, FactNoted, GateDecided, ModelReplied, ToolFinished
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import RAN
from virtual_time import in_virtual_time

LOOK = call("look", what="sky")


@tool(effect="read", repeatable=True)
async def look(what: str) -> str:
    """Look something up."""
    RAN.append(f"look {what}")
    if what == "nothing":
        raise ToolError("there is nothing to see")
    return f"{what} is blue"


@tool(effect="idempotent")
async def put(what: str) -> str:
    """Put something somewhere."""
    RAN.append(f"put {what}")
    return f"{what} is there"


class Other(LoopEngine):
    """Asks once, looks once, and answers."""

    name = "other"

    async def solve(self, run: Run) -> str:
        await run.call(call("put", what="sea"))
        return await run.ask(run.conversation.user("Just say it."))


class Colour(BaseModel):
    """An answer in a form of its own."""

    name: str


def runtime(script: Any, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script), tools=options.pop("tools", [look, put]), **options
    )


def asked(of: Runtime) -> list[list[tuple[str, str]]]:
    requests = of.provider.requests  # type: ignore[attr-defined]
    return [
        [(m.role, m.content) for m in request.conversation.messages]
        for request in requests
    ]


def facts(of: Runtime) -> list[Any]:
    return [
        (e.event.name, e.event.value)
        for e in of.journal.read("r")
        if isinstance(e.event, FactNoted)
    ]


def thought(text: str) -> Completion:
    return Completion(text, thought=text, usage=Usage(1, 1))


BACKED_OFF = ("BackedOff", {"reason": "max_iterations", "to": "other"})


# --- a turn ---


@in_virtual_time
async def test_several_calls_of_a_turn_run_at_once_and_their_results_come_in_call_order() -> (
    None
):
    met = asyncio.Barrier(3)

    @tool(effect="read")
    async def meet(name: str) -> str:
        """Wait for the others."""
        await met.wait()
        await asyncio.sleep({"a": 0.02, "b": 0.01}.get(name, 0))
        RAN.append(name)
        return f"met {name}"

    calls = [call("meet", name=name) for name in "abc"]
    with_parts = runtime([calls, "all met"], tools=[meet])
    result = await ReActEngine(with_parts).run("Meet.")

    assert RAN == ["c", "b", "a"]
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "met a",
        "met b",
        "met c",
    ]
    assert (result.answer, result.iterations, result.llm_calls, result.tool_calls) == (
        "all met",
        2,
        2,
        3,
    )


async def test_a_thought_alone_is_a_turn_and_the_model_is_prompted_to_continue() -> (
    None
):
    with_parts = runtime([thought("I should look."), LOOK, "blue"])
    result = await ReActEngine(with_parts).run("What colour?", system="Be brief.")

    opening = [("system", "Be brief."), ("user", "What colour?")]
    second = [*opening, ("assistant", "I should look."), ("user", "OK. Go on.")]
    assert asked(with_parts) == [
        opening,
        second,
        [*second, ("assistant", ""), ("tool", "sky is blue")],
    ]
    assert result.conversation.messages[3].origin == "runtime"
    assert (result.answer, result.iterations) == ("blue", 3)


async def test_thoughts_alone_use_up_turns_as_all_others_do() -> None:
    with_parts = runtime([thought("Hm."), thought("Hm."), "I do not know."])
    result = await ReActEngine(
        with_parts, max_iterations=2, prompts={"thought_alone": "And?"}
    ).run("What colour?")  # type: ignore[arg-type]

    assert (result.status, result.answer, result.llm_calls) == (
        "limit",
        "I do not know.",
        3,
    )
    assert [content for role, content in asked(with_parts)[2] if role == "user"][
        :3
    ] == ["What colour?", "And?", "And?"]


async def test_a_failing_and_an_unknown_tool_are_observations_and_the_loop_continues() -> (
    None
):
    with_parts = runtime(
        [[call("look", what="nothing"), call("lock", what="sky")], LOOK, "blue"]
    )
    result = await ReActEngine(with_parts).run("What colour?")

    failed, unknown, found = (
        m.content for m in result.conversation.messages if m.role == "tool"
    )
    assert failed == "there is nothing to see"
    assert "look" in unknown
    assert (found, result.answer) == ("sky is blue", "blue")


async def test_a_denied_call_is_an_observation_and_the_loop_continues() -> None:
    class NoLooking:
        async def evaluate(self, action: Any, state: Any) -> Allow | Deny:
            return Deny("no looking") if action.tool == "look" else Allow()

    with_parts = runtime([[LOOK, call("put", what="sea")], "unknown"], gate=NoLooking())
    result = await ReActEngine(with_parts).run("What colour?")

    denied, done = (m.content for m in result.conversation.messages if m.role == "tool")
    assert "no looking" in denied
    assert (done, RAN, result.answer) == ("sea is there", ["put sea"], "unknown")


async def test_the_callers_system_message_and_history_are_kept_and_the_task_comes_last() -> (
    None
):
    history = Conversation(
        [
            Message("system", "Be brief."),
            Message("user", "Hello."),
            Message("assistant", "Hi."),
            Message("user", "Why?"),
        ]
    )
    with_parts = runtime([LOOK, "So."])
    result = await ReActEngine(with_parts).run(history)

    opening = [
        ("system", "Be brief."),
        ("user", "Hello."),
        ("assistant", "Hi."),
        ("user", "Why?"),
    ]
    assert asked(with_parts) == [
        opening,
        [*opening, ("assistant", ""), ("tool", "sky is blue")],
    ]
    assert result.answer == "So."


# --- out of turns ---


@pytest.mark.parametrize("options", [{"max_iterations": 2}, {}])
async def test_a_halted_run_is_an_outcome_without_an_answer_where_no_best_effort_is_wanted(
    options: Any,
) -> None:
    limits = Limits(best_effort=False, max_iterations=None if options else 2)
    with_parts = runtime([LOOK, LOOK], limits=limits)
    result = await ReActEngine(with_parts, **options).run("What colour?")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        None,
    )
    assert (result.iterations, result.llm_calls, result.tool_calls) == (2, 2, 2)
    assert [m.role for m in result.conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]


@pytest.mark.parametrize("options", [{"max_iterations": 2}, {}])
async def test_a_halted_run_asks_once_for_the_best_answer_so_far(options: Any) -> None:
    with_parts = runtime(
        [LOOK, LOOK, "blue, I think"],
        limits=Limits(max_iterations=None if options else 2),
    )
    result = await ReActEngine(with_parts, **options).run("What colour?")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        "blue, I think",
    )
    assert (result.iterations, result.llm_calls) == (2, 3)
    assert ("tool", "sky is blue") in asked(with_parts)[2]


# --- backing off ---


async def test_when_the_turns_are_used_up_the_fallback_gets_the_task_from_its_beginning() -> (
    None
):
    with_parts = runtime([LOOK, LOOK, "blue"])
    engine = ReActEngine(with_parts, max_iterations=2, fallback=Other(with_parts))
    history = Conversation(
        [
            Message("user", "Hello."),
            Message("assistant", "Hi."),
            Message("user", "What colour?"),
        ]
    )
    result = await engine.run(history, system="Be brief.", run_id="r")

    assert asked(with_parts)[2] == [
        ("system", "Be brief."),
        ("user", "Hello."),
        ("assistant", "Hi."),
        ("user", "What colour?"),
        ("user", "Just say it."),
    ]
    assert (result.status, result.stop_reason, result.answer) == (
        "completed",
        "answered",
        "blue",
    )
    assert (result.iterations, result.llm_calls, result.tool_calls) == (2, 3, 3)
    assert facts(with_parts) == [BACKED_OFF]


async def test_a_run_that_answers_in_time_does_not_back_off() -> None:
    with_parts = runtime([LOOK, "blue"])
    result = await ReActEngine(
        with_parts, max_iterations=2, fallback=Other(with_parts)
    ).run("What colour?", run_id="r")

    assert (result.status, result.answer, result.llm_calls) == ("completed", "blue", 2)
    assert facts(with_parts) == []


async def test_the_fallback_keeps_its_own_model_and_tools() -> None:
    @tool(effect="idempotent")
    async def put(what: str) -> str:
        """Put it elsewhere."""
        RAN.append(f"elsewhere {what}")
        return "done"

    with_parts, others = runtime([LOOK]), runtime(["blue"], tools=[put])
    result = await ReActEngine(
        with_parts, max_iterations=1, fallback=Other(others)
    ).run("What colour?")

    assert (result.answer, RAN) == ("blue", ["look sky", "elsewhere sea"])
    assert [len(asked(each)) for each in (with_parts, others)] == [1, 1]


@pytest.mark.parametrize(
    "line", [ProviderError("down"), Completion("half an ans", finish_reason="length")]
)
async def test_a_fallback_that_does_not_complete_leaves_the_best_answer_so_far(
    line: Any,
) -> None:
    lines = [line] if isinstance(line, ProviderError) else [line, line]
    with_parts = runtime([LOOK, *lines, "blue, I think"])
    result = await ReActEngine(
        with_parts, max_iterations=1, fallback=Other(with_parts)
    ).run("What colour?", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        "blue, I think",
    )
    assert ("tool", "sky is blue") in asked(with_parts)[-1]
    assert facts(with_parts) == [BACKED_OFF]


async def test_the_best_answer_of_a_halted_fallback_is_not_an_answer() -> None:
    with_parts = runtime([LOOK, call("put", what="sea"), "its guess", "blue, I think"])
    inner = ReActEngine(with_parts, max_iterations=1)
    result = await ReActEngine(with_parts, max_iterations=1, fallback=inner).run(
        "What colour?"
    )

    assert (result.status, result.answer, result.llm_calls) == (
        "limit",
        "blue, I think",
        4,
    )


async def test_a_fallback_that_policy_denies_leaves_the_best_answer_so_far() -> None:
    class NoDelegation:
        async def evaluate(self, action: Any, state: Any) -> Allow | Deny:
            return Deny("do it yourself") if action.tool == "delegate" else Allow()

    with_parts = runtime([LOOK, "blue, I think"], gate=NoDelegation())
    result = await ReActEngine(
        with_parts, max_iterations=1, fallback=Other(with_parts)
    ).run("What colour?", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_iterations",
        "blue, I think",
    )
    assert (RAN, result.llm_calls) == (["look sky"], 2)
    decided = [
        e.event
        for e in with_parts.journal.read("r")
        if isinstance(e.event, GateDecided)
    ]
    assert [(d.tool, d.verdict) for d in decided] == [
        ("look", "allow"),
        ("delegate", "deny"),
    ]


async def test_a_limit_of_the_whole_run_inside_the_fallback_ends_the_run() -> None:
    with_parts = runtime([LOOK, "blue, I think"], limits=Limits(max_tool_calls=1))
    result = await ReActEngine(
        with_parts, max_iterations=1, fallback=Other(with_parts)
    ).run("What colour?")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_tool_calls",
        "blue, I think",
    )
    assert RAN == ["look sky"]


async def test_a_stuck_run_does_not_back_off() -> None:
    same = call("put", what="sea")
    with_parts = runtime([same] * 5 + ["blue, I think"])
    result = await ReActEngine(
        with_parts, max_iterations=9, fallback=Other(with_parts)
    ).run("What colour?", run_id="r")

    assert (result.status, result.stop_reason, result.answer) == (
        "stuck",
        "repeated_action",
        "blue, I think",
    )
    assert facts(with_parts) == []


async def test_the_answer_of_a_fallback_becomes_the_output_that_was_asked_for() -> None:
    with_parts = runtime([LOOK, '{"name": "blue"}'])
    engine = ReActEngine(with_parts, max_iterations=1, fallback=Other(with_parts))
    result = await engine.run("What colour?", output=Colour)

    assert (result.status, result.output, result.llm_calls) == (
        "completed",
        Colour(name="blue"),
        2,
    )


def test_a_fallback_that_could_never_come_to_its_turn_is_refused() -> None:
    with_parts = runtime([], limits=Limits(max_iterations=5))
    other = Other(with_parts)

    with pytest.raises(
        ConfigError, match="fallback: needs max_iterations, the turns after which"
    ):
        ReActEngine(with_parts, fallback=other)
    with pytest.raises(
        ConfigError,
        match=r"fallback: Limits\(max_iterations=5\) ends the run before max_iterations=6",
    ):
        ReActEngine(with_parts, max_iterations=6, fallback=other)
    with pytest.raises(ConfigError, match="fallback: "):
        ReActEngine(with_parts, max_iterations=5, fallback="other")  # type: ignore[arg-type]
    assert ReActEngine(with_parts, max_iterations=5, fallback=other).fallback is other
    assert ReActEngine(
        runtime([], limits=Limits(max_iterations=None)),
        max_iterations=99,
        fallback=other,
    ).max_iterations


def test_the_prompt_that_may_be_overridden_is_known_by_name() -> None:
    with_parts = runtime([])

    assert dict(PROMPTS.texts) == {"thought_alone": "OK. Go on."}
    assert ReActEngine(with_parts).prompts is PROMPTS
    with pytest.raises(ConfigError, match="there is no prompt 'thought'"):
        ReActEngine(with_parts, prompts={"thought": "x"})  # type: ignore[arg-type]
    assert dataclasses.asdict(BackedOff("max_iterations", "other")) == BACKED_OFF[1]


# --- resume ---


def by_length(request: Request) -> Any:
    """Three turns that think, look and put; then the fallback puts and answers."""
    messages = request.conversation.messages
    if messages[-1].content == "Just say it.":
        return "blue"
    return [thought("Hm."), LOOK, call("put", what="lake")][
        sum(m.role == "assistant" for m in messages)
    ]


def always(request: Request) -> Any:
    return "blue, I think" if request.tool_choice == "none" else LOOK


async def resumed_everywhere(
    build: Callable[[Runtime], LoopEngine], answer: Any, **parts: Any
) -> None:
    """Cut the journal after every entry: the same answer, and nothing repeated that it records."""
    whole_parts = runtime(answer, **parts)
    whole = await build(whole_parts).run("What colour?", run_id="r")
    entries: list[Entry] = whole_parts.journal.read("r")
    ran = len(RAN)

    for keep in range(1, len(entries) + 1):
        RAN.clear()
        again = runtime(answer, journal=crashed(entries, keep), **parts)
        result = await build(again).resume("r")
        known = [e.event for e in entries[:keep]]
        replied = sum(isinstance(event, ModelReplied) for event in known)

        assert (result.status, result.stop_reason, result.answer) == (
            whole.status,
            whole.stop_reason,
            whole.answer,
        )
        assert len(asked(again)) == len(asked(whole_parts)) - replied, keep
        assert len(RAN) == ran - sum(
            isinstance(event, ToolFinished) and event.status == "ok" for event in known
        )
        assert facts(again) == facts(whole_parts)
        assert again.journal.verify("r", result.head_hash).ok


async def test_a_run_resumes_after_any_entry_also_in_the_midst_of_the_fallback() -> (
    None
):
    await resumed_everywhere(
        lambda parts: ReActEngine(parts, max_iterations=3, fallback=Other(parts)),
        by_length,
    )


async def test_a_run_whose_fallback_was_denied_resumes_after_any_entry() -> None:
    class NoDelegation:
        version = "1"

        async def evaluate(self, action: Any, state: Any) -> Allow | Deny:
            return Deny("do it yourself") if action.tool == "delegate" else Allow()

    await resumed_everywhere(
        lambda parts: ReActEngine(parts, max_iterations=2, fallback=ReActEngine(parts)),
        always,
        gate=NoDelegation(),
    )


async def test_a_runtime_builds_a_fallback_again_to_resume_its_run() -> None:
    def third_time(request: Request) -> Any:
        return [LOOK, LOOK, "blue"][
            sum(m.role == "assistant" for m in request.conversation.messages)
        ]

    first = runtime(third_time)
    engine = ReActEngine(
        first, max_iterations=2, fallback=ReActEngine(first, max_iterations=3)
    )
    whole = await engine.run("What colour?", run_id="r")
    entries = first.journal.read("r")
    started = next(
        n for n, entry in enumerate(entries, 1) if entry.kind == "child_started"
    )
    again = runtime(third_time, journal=crashed(entries, started + 2))
    result = await again.resume("r")

    assert (
        (whole.status, whole.answer)
        == (result.status, result.answer)
        == ("completed", "blue")
    )
    assert (len(asked(first)), len(asked(again))) == (5, 2)


async def test_a_fallback_that_waits_for_a_decision_makes_the_run_wait() -> None:
    @tool(effect="destructive")
    async def put(what: str) -> str:
        """Put something somewhere, for good."""
        return "done"

    with_parts = runtime(by_length, tools=[look, put], approver=Suspend())
    result = await ReActEngine(
        with_parts, max_iterations=2, fallback=Other(with_parts)
    ).run("What colour?", run_id="r")

    assert (result.status, result.answer) == ("waiting", None)
    assert [question.tool for question in result.pending] == ["put"]
    assert [e.kind for e in with_parts.journal.read("r")][-1] == "run_suspended"


# --- the paper's pair ---


async def test_react_backs_off_to_a_vote_of_chains_of_thought() -> None:
    answers = iter(["Blue", "green", "blue."])

    def say(request: Request) -> Any:
        if request.tools:
            return LOOK
        return f"The sea is what it is.\nFINAL ANSWER: {next(answers)}"

    with_parts = runtime(say)
    vote = ChainOfThoughtEngine(with_parts, samples=3)
    result = await ReActEngine(with_parts, max_iterations=2, fallback=vote).run(
        "What colour?", run_id="r"
    )

    assert (
        result.status,
        (result.answer or "").casefold().rstrip("."),
        result.llm_calls,
    ) == ("completed", "blue", 5)
    assert [name for name, _ in facts(with_parts)] == ["BackedOff", "Vote"]
