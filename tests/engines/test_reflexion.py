"""Reflexion: episodes of an actor, evaluated, with the lesson of each carried over to the next."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import (
    AllowAll,
    Ask,
    Completion,
    ConfigError,
    Conversation,
    Deny,
    Limits,
    LoopEngine,
    Message,
    ProviderError,
    ReActEngine,
    ReflexionEngine,
    Request,
    Result,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    tool,
)
from loopwright.engines import (
    Evaluation,
    ExactMatch,
    Heuristics,
    ModelJudge,
    Trajectory,
)
from loopwright.engines.reflections import FileReflections, MemoryReflections, task_key
from loopwright.engines.reflexion import PROMPTS, BestAttempt, Episode, Reflection
from loopwright.errors import ContextTooLong
from loopwright.events import EffectFinished, Entry, FactNoted
from loopwright.testing import ScriptedProvider, call, crashed
from sample_tools import look

GOOD, BAD = "SATISFACTORY", "UNSATISFACTORY\nNo source."
SHORT = {
    "reflections": "learnt:\n{reflections}",
    "last_attempt": "last:\n{trace}\n{outcome}",
    "incorrect": "wrong {feedback}",
    "halted": "halted {stop_reason} {feedback}",
    "reflect": "reflect on {task}|{trace}|{outcome}|{reflections}",
}


@tool(effect="read")
async def broken() -> str:
    """Never works."""
    raise ValueError("out of order")


def runtime(script: Any, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script), tools=options.pop("tools", [look]), **options
    )


def asked(parts: Runtime) -> list[list[tuple[str, str]]]:
    return [
        [(m.role, m.content) for m in r.conversation.messages]
        for r in parts.provider.requests
    ]  # type: ignore[attr-defined]


def facts(parts: Runtime, run_id: str = "r") -> list[Any]:
    return [
        (e.event.name, e.event.value)
        for e in parts.journal.read(run_id)
        if isinstance(e.event, FactNoted)
    ]


def right(answer: str) -> Any:
    return lambda attempt: attempt.answer == answer


# --- the loop ---


async def test_the_first_satisfactory_episode_ends_the_run() -> None:
    parts = runtime(["Paris is sunny.", "SATISFACTORY\nAnswer is complete."])
    result = await ReflexionEngine(parts).run("Q?", run_id="r")

    assert (result.answer, result.status, result.llm_calls, result.iterations) == (
        "Paris is sunny.",
        "completed",
        2,
        1,
    )
    assert facts(parts) == [
        (
            "Episode",
            dataclasses.asdict(
                Episode(
                    1, "correct", "answered", None, "SATISFACTORY\nAnswer is complete."
                )
            ),
        )
    ]


async def test_after_a_failure_the_model_reflects_and_the_next_episode_reads_it() -> (
    None
):
    parts = runtime(["red", BAD, "Look at the sky.", "blue", GOOD])
    result = await ReflexionEngine(parts, prompts=SHORT).run("Colour?", run_id="r")

    assert (result.answer, result.status, result.llm_calls, result.iterations) == (
        "blue",
        "completed",
        5,
        2,
    )
    conversations = asked(parts)
    assert conversations[0] == [("user", "Colour?")]
    assert conversations[2] == [
        ("user", "Colour?"),
        (
            "user",
            "reflect on Colour?|Answer: red|wrong UNSATISFACTORY\nNo source.|(nothing)",
        ),
    ]
    assert conversations[3] == [
        ("user", "learnt:\n- Look at the sky."),
        ("user", "Colour?"),
    ]
    assert facts(parts)[1] == (
        "Reflection",
        dataclasses.asdict(Reflection(1, "Look at the sky.")),
    )


async def test_the_last_episode_has_no_reflection_and_the_later_of_equals_answers() -> (
    None
):
    parts = runtime(["Bad 1.", BAD, "Try harder.", "Bad 2.", BAD])
    result = await ReflexionEngine(parts, max_episodes=2).run("Q?", run_id="r")

    assert (result.answer, result.status, result.llm_calls) == (
        "Bad 2.",
        "completed",
        5,
    )
    assert facts(parts)[-1] == ("BestAttempt", dataclasses.asdict(BestAttempt(2, None)))


@pytest.mark.parametrize("episodes", [1, 2, 3, 5])
async def test_a_judged_run_takes_at_most_three_calls_an_episode_less_one(
    episodes: int,
) -> None:
    parts = runtime(["a", BAD, "r"] * episodes)
    result = await ReflexionEngine(parts, max_episodes=episodes).run("Q?")

    assert result.llm_calls == 3 * episodes - 1


@pytest.mark.parametrize(
    ("strategy", "calls"),
    [("none", 3), ("last_attempt", 3), ("reflection", 5), ("both", 5)],
)
async def test_only_strategies_with_reflections_pay_for_them(
    strategy: Any, calls: int
) -> None:
    parts = runtime(["a"] * 9)
    engine = ReflexionEngine(parts, strategy=strategy, evaluator=lambda attempt: False)
    result = await engine.run("Q?")

    assert (result.answer, result.llm_calls) == ("a", calls)


@pytest.mark.parametrize(
    ("strategy", "memory"),
    [
        ("none", []),
        ("last_attempt", [("user", "last:\nAnswer: red\nwrong no")]),
        ("reflection", [("user", "learnt:\n- Look.")]),
        ("both", [("user", "learnt:\n- Look.\n\nlast:\nAnswer: red\nwrong no")]),
    ],
)
async def test_the_strategy_says_what_is_carried_over(
    strategy: Any, memory: list[tuple[str, str]]
) -> None:
    script = (
        ["red", "Look.", "blue"]
        if strategy in ("reflection", "both")
        else ["red", "blue"]
    )
    parts = runtime(script)
    engine = ReflexionEngine(
        parts,
        strategy=strategy,
        prompts=SHORT,
        evaluator=lambda a: Evaluation(a.answer == "blue", feedback="no"),
    )
    result = await engine.run("Colour?")

    assert result.answer == "blue"
    assert asked(parts)[-1] == [*memory, ("user", "Colour?")]


async def test_only_the_newest_reflections_are_shown_to_actor_and_reflector() -> None:
    parts = runtime(["a", "r1", "a", "r2", "a", "r3", "a"])
    await ReflexionEngine(
        parts, max_episodes=4, memory=2, prompts=SHORT, evaluator=right("b")
    ).run("Q?")

    conversations = asked(parts)
    assert conversations[-1][0] == ("user", "learnt:\n- r2\n- r3")
    assert conversations[-2][-1][1].endswith("|- r1\n- r2")


async def test_the_best_attempt_is_returned_and_not_the_last() -> None:
    scores = {"good": 0.9, "bad": 0.1, "better": 0.95, "worse": 0.0}
    parts = runtime(["bad", "good", "worse"])
    engine = ReflexionEngine(
        parts, strategy="none", evaluator=lambda attempt: scores[attempt.answer or ""]
    )
    result = await engine.run("Q?", run_id="r")

    assert result.answer == "good"
    assert facts(parts)[-1] == ("BestAttempt", {"episode": 2, "score": 0.9})


async def test_an_answer_of_its_own_beats_one_that_was_forced_out_of_a_halted_actor() -> (
    None
):
    parts = runtime(["red", call("look", what="sky"), "forced"])
    engine = ReflexionEngine(
        parts,
        actor=ReActEngine(parts, max_iterations=1),
        max_episodes=2,
        strategy="none",
        evaluator=lambda attempt: False,
    )
    result = await engine.run("Q?", run_id="r")

    assert (result.answer, result.status) == ("red", "completed")
    assert [value["outcome"] for name, value in facts(parts) if name == "Episode"] == [
        "incorrect",
        "halted",
    ]
    assert [
        value["stop_reason"] for name, value in facts(parts) if name == "Episode"
    ] == ["answered", "max_iterations"]


# --- halted episodes ---


async def test_a_halted_episode_is_not_evaluated_without_an_answer() -> None:
    judged: list[Trajectory] = []

    def judge(attempt: Trajectory) -> bool:
        judged.append(attempt)
        return True

    script = [*[call("look", what="sky")] * 5, "Stop looking.", "blue"]
    parts = runtime(script)
    result = await ReflexionEngine(parts, evaluator=judge, prompts=SHORT).run(
        "Q?", run_id="r"
    )

    assert (result.answer, result.status, [a.number for a in judged]) == (
        "blue",
        "completed",
        [2],
    )
    assert facts(parts)[0] == (
        "Episode",
        dataclasses.asdict(
            Episode(1, "halted", "repeated_action", None, "It gave no answer.")
        ),
    )
    assert "|halted repeated_action It gave no answer.|" in asked(parts)[-2][-1][1]


async def test_an_actor_out_of_iterations_is_halted_and_the_next_episode_starts_afresh() -> (
    None
):
    parts = runtime(
        [call("look", what="sky"), call("look", what="sea"), "Answer at once.", "blue"],
        limits=Limits(max_iterations=2),
    )
    result = await ReflexionEngine(parts, evaluator=right("blue"), max_episodes=2).run(
        "Q?", run_id="r"
    )

    assert (result.answer, result.status) == ("blue", "completed")
    assert facts(parts)[0][1]["stop_reason"] == "max_iterations"


@pytest.mark.parametrize(
    ("failures", "stop_reason"),
    [
        ([Completion("Action: ???", problem="no action")] * 4, "unreadable"),
        ([ContextTooLong("too long")], "context_overflow"),
    ],
)
async def test_an_actor_that_cannot_be_read_or_outgrows_its_model_is_halted(
    failures: Any, stop_reason: str
) -> None:
    parts = runtime([*failures, "Write plainly.", "blue"])
    result = await ReflexionEngine(parts, evaluator=right("blue")).run("Q?", run_id="r")

    assert (result.answer, result.status) == ("blue", "completed")
    assert facts(parts)[0][1]["stop_reason"] == stop_reason


async def test_a_failing_provider_fails_the_run() -> None:
    parts = runtime([ProviderError("down")])
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, result.stop_reason, str(result.error)) == (
        None,
        "failed",
        "provider_error",
        "down",
    )


async def test_a_run_without_any_answer_asks_for_its_best_one_with_its_reflections() -> (
    None
):
    parts = runtime(
        [
            *[call("look", what="sky")] * 5,
            "Do not look.",
            *[call("look", what="sky")] * 5,
            "perhaps blue",
        ]
    )
    result = await ReflexionEngine(parts, max_episodes=2, prompts=SHORT).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        "perhaps blue",
        "limit",
        "max_iterations",
    )
    assert asked(parts)[-1][:2] == [("user", "learnt:\n- Do not look."), ("user", "Q?")]


async def test_an_actor_that_waits_for_a_decision_makes_the_run_wait() -> None:
    class Asks:
        async def evaluate(self, action: Any, state: Any) -> Any:
            return (
                Ask("May I look?")
                if action.tool == "look"
                else await AllowAll().evaluate(action, state)
            )

    parts = runtime([call("look", what="sky")], gate=Asks(), approver=Suspend())
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, [question.text for question in result.pending]) == (
        None, "waiting", ["May I look?"],
    )  # fmt: skip


@pytest.mark.parametrize("blank", ["", "  \n"])
async def test_a_blank_answer_is_no_answer(blank: str) -> None:
    parts = runtime([Completion(blank, answer=blank), "r", "blue"])
    result = await ReflexionEngine(parts, evaluator=lambda attempt: True).run(
        "Q?", run_id="r"
    )

    assert (result.answer, facts(parts)[0][1]["outcome"]) == ("blue", "halted")


# --- limits ---


@pytest.mark.parametrize(
    ("most", "answer", "calls"),
    [
        (2, "a1", 1),  # no call is left for the judge
        (3, "a1", 2),  # none for the reflection
        (4, "a1", 3),  # none for the second attempt
        (5, "a2", 4),  # none for its judge
        (6, "a2", 5),
        (7, "a2", 6),
        (8, "a3", 7),
    ],
)
async def test_a_run_at_its_limit_gives_the_best_answer_so_far(
    most: int, answer: str, calls: int
) -> None:
    parts = runtime(
        ["a1", BAD, "r1", "a2", BAD, "r2", "a3", BAD], limits=Limits(max_llm_calls=most)
    )
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        answer, "limit", "max_llm_calls", calls,
    )  # fmt: skip


async def test_a_limit_in_the_first_attempt_leaves_the_reserved_call() -> None:
    parts = runtime(
        [call("look", what="sky"), "blue, I think"], limits=Limits(max_llm_calls=2)
    )
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, result.llm_calls) == (
        "blue, I think",
        "limit",
        2,
    )


async def test_without_best_effort_a_run_that_has_nothing_gives_nothing() -> None:
    parts = runtime(
        [call("look", what="sky")], limits=Limits(max_llm_calls=1, best_effort=False)
    )
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        None,
        "limit",
        "max_llm_calls",
    )


async def test_fewer_iterations_than_episodes_are_a_limit() -> None:
    parts = runtime(["a", "r", "b", "r"], limits=Limits(max_iterations=2))
    result = await ReflexionEngine(
        parts, max_episodes=3, evaluator=lambda attempt: False
    ).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        "b",
        "limit",
        "max_iterations",
    )


# --- the caller's conversation, the actor, tools ---


async def test_system_and_history_are_part_of_every_call_and_memory_stands_before_the_task() -> (
    None
):
    history = Conversation(
        [
            Message("system", "Be brief."),
            Message("user", "Hello"),
            Message("assistant", "Hi"),
            Message("user", "Colour?"),
        ]
    )
    parts = runtime(["red", BAD, "Look.", "blue", GOOD])
    await ReflexionEngine(parts, prompts=SHORT).run(history)

    opening = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi")]
    conversations = asked(parts)
    assert [conversation[:3] for conversation in conversations] == [opening] * 5
    assert conversations[3][3:] == [("user", "learnt:\n- Look."), ("user", "Colour?")]


class Echo(LoopEngine):
    """An actor that says what it takes for the task, after a message of its own before everything."""

    name = "echo"

    async def solve(self, run: Run) -> str:
        conversation = run.conversation.with_system("I echo.").user("And now?")
        await run.reason(conversation)
        return run.task


async def test_any_engine_can_be_the_actor_and_its_task_is_still_the_task() -> None:
    attempts: list[Trajectory] = []

    def judge(attempt: Trajectory) -> bool:
        attempts.append(attempt)
        return False

    parts = runtime(["x", "r", "y"])
    result = await ReflexionEngine(
        parts, actor=Echo(parts), max_episodes=2, evaluator=judge
    ).run("Colour?")

    assert result.answer == "Colour?"
    assert [attempt.task for attempt in attempts] == ["Colour?", "Colour?"]
    assert [[m.content for m in attempt.turns] for attempt in attempts] == [
        ["And now?"],
        ["And now?"],
    ]


async def test_an_attempt_tells_what_was_done_in_it_alone() -> None:
    seen: list[Trajectory] = []

    def judge(attempt: Trajectory) -> bool:
        seen.append(attempt)
        return len(seen) == 2

    parts = runtime(
        [
            call("look", what="sky"),
            "red",
            "r",
            [call("look", what="sea"), call("look", what="ink")],
            "blue",
        ]
    )
    await ReflexionEngine(parts, evaluator=judge).run("Colour?")

    assert [
        (a.number, a.answer, a.status, a.stop_reason, a.iterations) for a in seen
    ] == [
        (1, "red", "completed", "answered", 2),
        (2, "blue", "completed", "answered", 2),
    ]
    assert [seen[0].actions[0][0].name, seen[0].actions[0][1]] == [
        "look",
        "sky is blue",
    ]
    assert seen[1].trace(1600) == (
        'Action: look {"what": "sea"}\nObservation: sea is blue\n'
        'Action: look {"what": "ink"}\nObservation: ink is blue\n'
        "Answer: blue"
    )
    assert [evaluation.passed for evaluation in seen[1].earlier] == [False]


class NoWrites:
    async def evaluate(self, action: Any, state: Any) -> Any:
        return (
            Deny("no looking")
            if action.tool == "look"
            else await AllowAll().evaluate(action, state)
        )


async def test_a_denied_and_a_failing_tool_are_part_of_the_trace() -> None:
    parts = runtime(
        [call("look", what="sky"), call("broken"), "red", "r", "blue"],
        tools=[look, broken],
        gate=NoWrites(),
    )
    result = await ReflexionEngine(parts, evaluator=right("blue"), prompts=SHORT).run(
        "Q?"
    )

    reflection = asked(parts)[3][-1][1]
    assert result.answer == "blue"
    told = [
        line for line in reflection.splitlines() if line.startswith("Observation: ")
    ]
    assert (len(told), "no looking" in told[0], "out of order" in told[1]) == (
        2,
        True,
        True,
    )


async def test_a_denied_episode_fails_the_run_without_a_model_call() -> None:
    class NoDelegation:
        async def evaluate(self, action: Any, state: Any) -> Any:
            return (
                Deny("no children")
                if action.tool == "delegate"
                else await AllowAll().evaluate(action, state)
            )

    parts = runtime(["red"], gate=NoDelegation())
    result = await ReflexionEngine(parts).run("Q?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        None,
        "failed",
        "denied",
        0,
    )


async def test_the_answer_can_be_a_model_of_the_callers() -> None:
    class Colour(BaseModel):
        name: str

    parts = runtime(["blue", GOOD, '{"name": "blue"}'])
    result = await ReflexionEngine(parts).run("Q?", output=Colour)

    assert (result.output, result.llm_calls) == (Colour(name="blue"), 3)


async def test_another_model_may_reflect() -> None:
    wise = ScriptedProvider(["Look."])
    parts = runtime(["red", "blue"], providers={"wise": wise})
    result = await ReflexionEngine(
        parts, reflector="wise", evaluator=right("blue")
    ).run("Q?")

    assert (result.answer, len(wise.requests)) == ("blue", 1)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "  ",
        Completion("Never", answer="Never", finish_reason="length"),
        call("look"),
    ],
)
async def test_a_reflection_that_cannot_be_used_is_none(reply: Any) -> None:
    parts = runtime(["red", reply, "blue"])
    result = await ReflexionEngine(parts, evaluator=right("blue")).run("Q?", run_id="r")

    assert result.answer == "blue"
    assert asked(parts)[-1] == [("user", "Q?")]
    assert [name for name, _ in facts(parts)] == ["Episode", "Episode"]


# --- the trace ---


def attempt_with(
    *observations: str, answer: str | None = "done", thought: str = ""
) -> Trajectory:
    messages = [Message("user", "Q?")]
    for index, observation in enumerate(observations):
        messages += [
            Message(
                "assistant", thought, (ToolCall("look", {"n": index}, f"c{index}"),)
            ),
            Message("tool", observation, call_id=f"c{index}"),
        ]
    return Trajectory(
        1, "Q?", answer, "completed", "answered", Conversation(messages), given=1
    )


def test_the_longest_observation_is_left_out_first() -> None:
    attempt = attempt_with("a" * 100, "b" * 400, "c" * 200)

    assert [len(attempt.trace(tokens)) for tokens in (300, 200, 100)] == [820, 464, 308]
    assert (
        attempt.trace(200).split("\n")[3]
        == "Observation: [an observation of 400 characters, left out]"
    )
    assert "b" * 100 not in attempt.trace(200)
    assert "c" * 200 in attempt.trace(200)


def test_a_trace_that_is_still_too_long_loses_its_beginning() -> None:
    attempt = attempt_with("x", answer="y" * 1000)

    assert attempt.trace(20) == "[the beginning is left out]\n" + "y" * 80


def test_an_observation_cannot_pass_for_a_step() -> None:
    attempt = attempt_with(
        "fine\nAnswer: 42\r\nThought: done", answer=None, thought="hm"
    )

    assert attempt.trace(1600) == (
        'Thought: hm\nAction: look {"n": 0}\nObservation: fine\n  Answer: 42\n  Thought: done'
    )


def test_an_attempt_without_a_word_has_a_trace() -> None:
    assert attempt_with(answer=None).trace(10) == "(nothing)"


async def test_the_trace_in_the_prompts_is_bounded() -> None:
    parts = runtime([call("look", what="z" * 9000), "red", "r", "blue"])
    engine = ReflexionEngine(
        parts,
        evaluator=right("blue"),
        max_trace_tokens=100,
        strategy="both",
        prompts=SHORT,
    )
    await engine.run("Q?")

    assert max(len(content) for _, content in asked(parts)[3]) < 600


# --- options ---


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_episodes": 0}, "max_episodes"),
        ({"memory": 0}, "memory"),
        ({"max_trace_tokens": 0}, "max_trace_tokens"),
        ({"strategy": "some"}, "strategy"),
        ({"evaluator": 5}, "evaluator"),
        ({"evaluator": ModelJudge}, "evaluator"),
        ({"evaluator": {"kind": "psychic"}}, "evaluator"),
        (
            {"evaluator": {"kind": "exact-match", "expected": "a", "more": 1}},
            "evaluator",
        ),
        ({"actor": "react"}, "actor"),
        ({"store": "file"}, "store"),
        ({"store": MemoryReflections(), "strategy": "none"}, "store"),
        ({"reflector": "wise"}, "reflector"),
        ({"prompts": {"reflect": "Why?"}}, "'reflect': the placeholder"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ReflexionEngine(runtime([]), **options)


async def test_a_run_with_built_in_evaluators_is_rebuilt_from_its_journal() -> None:
    judge = Heuristics(max_repeats=2, then=ExactMatch("blue"))
    parts = runtime(model)
    whole = await ReflexionEngine(parts, evaluator=judge, strategy="both").run(
        "Colour?", run_id="r"
    )
    again = runtime(model, journal=crashed(parts.journal.read("r"), 5))

    assert (await again.resume("r")).answer == whole.answer == "blue"


async def test_an_evaluator_that_is_code_is_named_when_a_run_cannot_be_rebuilt() -> (
    None
):
    parts = runtime(model)
    await ReflexionEngine(
        parts, evaluator=right("blue"), store=MemoryReflections()
    ).run("Colour?", run_id="r")
    again = runtime(model, journal=crashed(parts.journal.read("r"), 5))

    with pytest.raises(ConfigError, match="evaluator, store"):
        await again.resume("r")


# --- resume ---


def model(request: Request) -> Any:
    """Says red at first, looks once it knows better; judges and reflects as it is asked."""
    contents = [message.content for message in request.conversation.messages]
    last = contents[-1]
    if last.startswith("Judge an answer"):
        return GOOD if "Answer:\nblue" in last else BAD
    if last.startswith("You tried the task and"):
        return "Look at the sky."
    if "Look at the sky." not in contents[0]:
        return "red"
    return (
        "blue"
        if request.conversation.messages[-1].role == "tool"
        else call("look", what="sky")
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "both"},
        {"evaluator": right("blue")},
        {"store": MemoryReflections},
    ],
)
async def test_a_run_cut_after_any_entry_resumes_to_the_same_answer_and_repeats_nothing(
    options: dict[str, Any],
) -> None:
    def made() -> dict[str, Any]:
        return {
            name: value() if value is MemoryReflections else value
            for name, value in options.items()
        }

    parts = runtime(model)
    whole: Result = await ReflexionEngine(parts, **made()).run("Colour?", run_id="r")
    entries: list[Entry] = parts.journal.read("r")
    calls = len(parts.provider.requests)  # type: ignore[attr-defined]

    assert (whole.answer, whole.status) == ("blue", "completed")
    for keep in range(1, len(entries) + 1):
        again = runtime(model, journal=crashed(entries, keep))
        result = await ReflexionEngine(again, **made()).resume("r")
        replied = sum(entry.kind == "model_replied" for entry in entries[:keep])

        assert (result.answer, result.status, result.llm_calls) == (
            whole.answer,
            whole.status,
            whole.llm_calls,
        )
        assert len(again.provider.requests) == calls - replied  # type: ignore[attr-defined]
        assert facts(again) == facts(parts)
        assert "drift_noticed" not in [entry.kind for entry in again.journal.read("r")]


async def test_a_function_that_has_judged_is_not_asked_again_on_resume() -> None:
    judged: list[int] = []

    async def judge(attempt: Trajectory) -> bool:
        judged.append(attempt.number)
        return attempt.answer == "blue"

    parts = runtime(model)
    await ReflexionEngine(parts, evaluator=judge).run("Colour?", run_id="r")
    entries = parts.journal.read("r")
    first = next(entry.seq for entry in entries if entry.kind == "effect_finished")
    judged.clear()
    await ReflexionEngine(
        runtime(model, journal=crashed(entries, first)), evaluator=judge
    ).resume("r")

    assert judged == [2]


# --- the store ---


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return (
        MemoryReflections()
        if request.param == "memory"
        else FileReflections(tmp_path / "learnt.jsonl")
    )


async def test_reflections_are_kept_for_the_next_run_of_the_same_task(
    store: Any,
) -> None:
    await ReflexionEngine(runtime(model), store=store).run("Colour?")
    parts = runtime(model)
    result = await ReflexionEngine(parts, store=store).run("  colour? ")
    other = runtime(["red", GOOD])
    await ReflexionEngine(other, store=store).run("Colours?")

    assert (result.answer, result.iterations) == ("blue", 1)
    assert "Look at the sky." in asked(parts)[0][0][1]
    assert asked(other)[0] == [("user", "Colours?")]


async def test_a_reflection_is_kept_once(store: Any) -> None:
    for text in ("one", "two", "one"):
        await store.keep("Task", text)

    assert await store.recall("task") == ["one", "two"]


async def test_a_keep_that_was_open_in_the_crash_keeps_nothing_twice(
    store: Any,
) -> None:
    parts = runtime(model)
    await ReflexionEngine(parts, store=store).run("Colour?", run_id="r")
    entries = parts.journal.read("r")
    keeps = [
        e.seq
        for e in entries
        if e.kind == "effect_started" and e.event.name == "keep_reflection"
    ]  # type: ignore[union-attr]
    await ReflexionEngine(
        runtime(model, journal=crashed(entries, keeps[0])), store=store
    ).resume("r")

    assert await store.recall("Colour?") == ["Look at the sky."]


async def test_a_recalled_reflection_counts_in_the_window(store: Any) -> None:
    for text in ("1", "2", "3", "4"):
        await store.keep("Q?", text)
    parts = runtime(["a", "5", "b"])
    engine = ReflexionEngine(
        parts, store=store, prompts=SHORT, max_episodes=2, evaluator=right("z")
    )
    await engine.run("Q?", run_id="r")

    recalled = next(
        e.event for e in parts.journal.read("r") if isinstance(e.event, EffectFinished)
    )
    assert recalled.value == ["2", "3", "4"]
    assert [asked(parts)[i][0][1] for i in (0, 2)] == [
        "learnt:\n- 2\n- 3\n- 4",
        "learnt:\n- 3\n- 4\n- 5",
    ]


async def test_a_run_continues_without_a_store_that_fails() -> None:
    class Full(MemoryReflections):
        async def recall(self, task: str) -> Sequence[str]:
            raise OSError("no such disk")

        async def keep(self, task: str, reflection: str) -> None:
            raise OSError("disk full")

    alone = await ReflexionEngine(runtime(model)).run("Colour?")
    result = await ReflexionEngine(runtime(model), store=Full()).run("Colour?")

    assert (result.status, result.answer) == (alone.status, alone.answer)
    problems = [str(fact.value) for fact in result.facts if fact.name == "StoreFailed"]
    assert [("no such disk" in told, "disk full" in told) for told in problems] == [
        (True, False),
        (False, True),
    ]


async def test_the_lesson_of_the_last_episode_is_kept_for_later_runs() -> None:
    store = MemoryReflections()
    result = await ReflexionEngine(
        runtime(lambda request: "grey"), max_episodes=1, store=store
    ).run("Colour?")

    assert (result.answer, list(await store.recall("Colour?"))) == ("grey", ["grey"])


async def test_a_file_holds_a_reflection_once(tmp_path: Any) -> None:
    path = tmp_path / "learnt.jsonl"
    for _ in range(2):
        await FileReflections(path).keep("Q?", "one")

    assert path.read_text() == '{"task": "Q?", "reflection": "one"}\n'


async def test_a_file_with_a_torn_line_is_read_and_written_on(tmp_path: Any) -> None:
    path = tmp_path / "learnt.jsonl"
    store = FileReflections(path)
    await store.keep("Q?", "one")
    path.write_bytes(path.read_bytes() + b'{"task": "Q?", "refl')
    await store.keep("Q?", "two\nlines é")

    assert path.stat().st_mode & 0o777 == 0o600
    assert await FileReflections(str(path)).recall("q?") == ["one", "two\nlines é"]
    path.write_bytes(b'\xff\n[1]\n{"task": 3, "reflection": "x"}\n\n')
    assert await store.recall("q?") == []


def test_a_file_needs_its_folder(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="does not exist; create it"):
        FileReflections(tmp_path / "none" / "learnt.jsonl")


def test_tasks_that_differ_in_a_sign_are_different_tasks() -> None:
    assert (
        task_key("What is\n2+2?") == task_key("what is 2+2?") != task_key("What is 22?")
    )
    assert task_key("Cafe\u0301") == task_key("Café")


def test_every_prompt_can_be_overridden() -> None:
    engine = ReflexionEngine(runtime([]), prompts=SHORT)

    assert engine.prompts.texts == SHORT
    assert sorted(PROMPTS) == sorted(SHORT)
