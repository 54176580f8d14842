"""FEVER episodes of a real model, replayed through ReAct: the same actions and answers as in the paper's own run."""

import dataclasses
from typing import Any

import pytest

from loopwright import (
    Capabilities,
    Completion,
    Limits,
    ReActEngine,
    Result,
    Runtime,
    Tool,
    tool,
)
from loopwright.messages import Usage
from loopwright.prompts import PromptSet
from loopwright.providers import TextTools
from loopwright.providers.dialects import ReActDialect
from loopwright.testing import ScriptedProvider
from recordings import MISSING, fixture, rows

pytestmark = pytest.mark.skipif(
    not fixture("fever_episodes.jsonl").exists(), reason=MISSING
)

EPISODES = {row["id"]: row for row in rows("fever_episodes.jsonl")}
STEPS = {row["id"]: row for row in rows("fever_steps.jsonl")}
PROMPTS = PromptSet(
    instructions="Find out what SUPPORTS or REFUTES the claim, or that there is NOT ENOUGH INFO.\n{tools}"
)

# Episodes that end otherwise than in the recording, and why. The original took no answer from any of them either.
OTHERWISE = {
    "react-fever-5074": "words behind the bracket were refused there and are dropped here, so the same call is stopped",
    "react-fever-565": "a line break before `Lookup[...]` was refused there and is read here",
    "react-fever-5376": "the same call with the same result, seven times, is stopped here as being stuck",
}


@dataclasses.dataclass
class Replay:
    """A run of one episode: what was asked, called and answered."""

    result: Result
    actions: list[tuple[str, str]]
    asked: list[list[tuple[str, str]]]
    stops: list[list[str]]


def lookups(observations: list[str], *, repeatable: bool = False) -> list[Tool]:
    """The tools of the paper, which find what was found then."""
    found = iter(observations)

    @tool(effect="read", trusted=True)  # word for word as the paper has it
    async def search(entity: str) -> str:
        """Find a page."""
        return next(found)

    @tool(effect="read", repeatable=repeatable, trusted=True)
    async def lookup(keyword: str) -> str:
        """Find the next sentence on the page with a keyword."""
        return next(found)

    return [search, lookup]


def replies(step: dict[str, Any]) -> list[Completion]:
    """What the model said in a step, and once more where it was asked to complete the step."""
    said = [step["prompt_suffix"] + step["completion"]]
    if "recovery_completion" in step:
        said.append(step["recovery_prompt_suffix"] + step["recovery_completion"])
    return [Completion(text, usage=Usage(1, 1)) for text in said]


async def replay(episode: dict[str, Any], **options: Any) -> Replay:
    steps = [STEPS[name] for name in episode["step_ids"]]
    model = ScriptedProvider(
        [reply for step in steps for reply in replies(step)],
        capabilities=Capabilities(native_tools=False),
    )
    runtime = Runtime(
        TextTools(model, ReActDialect("numbered", PROMPTS)),
        tools=lookups([step["observation"] for step in steps], **options),
        limits=Limits(best_effort=False),
    )
    result = await ReActEngine(runtime, max_iterations=7).run(
        episode["claim"], run_id="r"
    )
    calls = [m.calls for m in result.conversation.messages]
    return Replay(
        result,
        [(c.name, str(*c.arguments.values())) for some in calls for c in some],
        [
            [(m.role, m.content) for m in request.conversation.messages]
            for request in model.requests
        ],
        [list(request.sampling.stop) for request in model.requests],
    )


def recorded(episode: dict[str, Any]) -> list[tuple[str, str]]:
    steps = [STEPS[name] for name in episode["step_ids"]]
    return [
        (s["expected_action"], s["expected_action_input"])
        for s in steps
        if s["expected_action"] is not None
    ]


def test_how_many_episodes_there_are_of_each_kind() -> None:
    halted = {
        name for name, episode in EPISODES.items() if episode["forced_empty_finish"]
    }
    malformed = {step["id"] for step in STEPS.values() if step["malformed"]}

    assert (len(EPISODES), len(EPISODES.keys() - OTHERWISE), len(OTHERWISE)) == (
        107,
        104,
        3,
    )
    assert halted == set(OTHERWISE)
    assert malformed == {"react-fever-3991-2"}


@pytest.mark.parametrize("name", sorted(EPISODES.keys() - OTHERWISE))
async def test_an_episode_has_the_same_actions_and_the_same_answer(name: str) -> None:
    episode = EPISODES[name]
    replayed = await replay(episode)

    assert replayed.actions == recorded(episode)
    assert (replayed.result.status, replayed.result.answer) == (
        "completed",
        episode["answer"],
    )
    assert (replayed.result.tool_calls, replayed.result.iterations) == (
        len(replayed.actions),
        episode["n_steps"],
    )


async def test_the_model_is_asked_in_the_words_of_the_paper() -> None:
    episode = EPISODES["react-fever-2825"]
    first, second, third = (STEPS[name] for name in episode["step_ids"])
    replayed = await replay(episode)

    assert replayed.asked[2][1:] == [
        ("user", "The Mirny (sloop-of-war) traveled the globe."),
        (
            "assistant",
            f"{first['prompt_suffix']} {first['completion']}".replace(
                "Search", "search"
            ),
        ),
        ("user", f"Observation 1: {first['observation']}"),
        (
            "assistant",
            f"{second['prompt_suffix']} {second['completion']}".replace(
                "Search", "search"
            ),
        ),
        ("user", f"Observation 2: {second['observation']}"),
    ]
    assert replayed.stops == [first["stop"], second["stop"], third["stop"]]
    assert replayed.asked[0][0][1].splitlines()[1:] == [
        "- search[entity]: Find a page.",
        "- lookup[keyword]: Find the next sentence on the page with a keyword.",
    ]


@pytest.mark.parametrize("name", sorted(EPISODES.keys() - OTHERWISE))
async def test_each_step_has_the_recorded_stop_sequence(name: str) -> None:
    steps = [STEPS[step] for step in EPISODES[name]["step_ids"]]
    replayed = await replay(EPISODES[name])

    assert replayed.stops == [step["stop"] for step in steps for _ in replies(step)]


async def test_a_reply_without_its_action_goes_back_and_the_action_is_asked_for() -> (
    None
):
    replayed = await replay(EPISODES["react-fever-3991"])
    reply, complaint = replayed.asked[2][-2:]

    assert reply == ("assistant", replies(STEPS["react-fever-3991-2"])[0].text)
    assert complaint == (
        "user",
        "The reply has neither an action nor a final answer, each at the start of a line and outside code. "
        "Write `Action: tool[input]` with one of these tools: search, lookup; or, if you know the answer, write "
        "`Action: Finish[the answer]`.",
    )
    assert (
        replayed.result.answer,
        replayed.result.llm_calls,
        replayed.result.iterations,
    ) == ("REFUTES", 3, 2)


async def test_a_line_break_before_the_call_is_read_so_one_more_action_is_taken() -> (
    None
):
    replayed = await replay(EPISODES["react-fever-565"])
    actions = recorded(EPISODES["react-fever-565"])

    assert replayed.actions == [
        *actions[:3],
        ("lookup", "West Virginia, New York"),
        *actions[3:],
    ]
    assert (replayed.result.status, replayed.result.stop_reason) == (
        "limit",
        "max_iterations",
    )
    assert (replayed.result.answer, replayed.result.iterations) == (None, 7)


@pytest.mark.parametrize(
    ("name", "stuck_after"), [("react-fever-5376", 4), ("react-fever-5074", 6)]
)
async def test_an_episode_that_does_the_same_again_and_again_ends_as_stuck(
    name: str, stuck_after: int
) -> None:
    replayed = await replay(EPISODES[name])
    actions = recorded(EPISODES[name])

    assert replayed.actions == [*actions, *actions[-1:] * 7][:stuck_after]
    assert (replayed.result.status, replayed.result.stop_reason) == (
        "stuck",
        "repeated_action",
    )
    assert (replayed.result.answer, replayed.result.tool_calls) == (
        None,
        stuck_after - 1,
    )  # the last one was blocked


async def test_an_episode_without_the_monitor_is_halted_after_seven_steps() -> None:
    episode = EPISODES["react-fever-5376"]
    replayed = await replay(episode, repeatable=True)

    assert replayed.actions == recorded(episode)
    assert (replayed.result.status, replayed.result.stop_reason) == (
        "limit",
        "max_iterations",
    )
    assert (
        replayed.result.answer,
        replayed.result.iterations,
        replayed.result.llm_calls,
    ) == (None, 7, 7)
