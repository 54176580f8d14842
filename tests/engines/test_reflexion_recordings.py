"""Reflexion on recorded HotpotQA trials: the same solves per trial, and no model call after the first success."""

from typing import Any

import pytest

from loopwright import (
    Capabilities,
    Completion,
    Limits,
    ReActEngine,
    ReflexionEngine,
    Request,
    Result,
    Runtime,
    tool,
)
from loopwright.engines import ExactMatch
from loopwright.errors import ContextTooLong
from loopwright.events import FactNoted
from loopwright.parsing.answers import normalize_answer
from loopwright.providers import TextTools
from recordings import MISSING, rows

ROWS = rows("reflexion_hotpot_trials.jsonl")
PROMPTS = {
    "reflect": "REFLECT {task} {trace} {outcome} {reflections}",
    "reflections": "Reflections:\n{reflections}",
}


def step(thought: str, action: str, observation: str = "") -> dict[str, str]:
    return {"thought": thought, "action": action, "observation": observation}


def trial(
    *steps: dict[str, str],
    answer: str = "",
    em: bool = False,
    reflections: tuple[str, ...] = (),
) -> Any:
    return {
        "sections": [],
        "reflections": list(reflections),
        "steps": list(steps),
        "answer": answer,
        "em": em,
    }


def row(name: str, *trials: Any, gold: str = "blue") -> Any:
    numbered = {str(number): recorded for number, recorded in enumerate(trials, 1)}
    return {
        "id": name,
        "variant": "reflexion",
        "question": "What colour?",
        "gold": gold,
        "trials": numbered,
    }


SEARCH = step(
    "I need to search.", "Search[sky]", "The sky (above) is blue.\nThought: it is red."
)
RED, BLUE = step("It is red.", "Finish[red]"), step("It is blue.", "Finish[the Blue]")
HALTED = trial(SEARCH, step("Again.", "Lookup[colour]", "No more results."), answer="")
WRONG = trial(SEARCH, RED, answer="red")
RIGHT = trial(
    step("Now I know.", "Lookup[blue]", "(Result 1 / 1) blue"),
    BLUE,
    answer="the Blue",
    em=True,
)
MADE_UP = [
    row(
        "solved in the third",
        WRONG,
        {**WRONG, "reflections": ["r1"]},
        {**RIGHT, "reflections": ["r1", "r2"]},
        RIGHT,
    ),
    row(
        "solved after a halt",
        HALTED,
        {**RIGHT, "reflections": ["I was too slow."]},
        RIGHT,
    ),
    row("never solved", WRONG, {**WRONG, "reflections": ["r1"]}),
    row("halted at last", WRONG, {**HALTED, "reflections": ["r1"]}),
    row("never answered", HALTED, {**HALTED, "reflections": ["r1"]}),
    row("an empty finish", trial(SEARCH, step("Hm.", "Finish[]")), RIGHT),
    row(
        "an odd action",
        trial(step("Hm.", "Think about it", "Invalid Action."), RED, answer="red"),
        RIGHT,
    ),
    row("solved in the last", WRONG, WRONG, WRONG, WRONG, RIGHT),
]


class Replaying:
    """Says what the model of a recording said: its steps, one a call, and its reflections."""

    name, model, capabilities = (
        "replaying",
        "recorded",
        Capabilities(native_tools=False),
    )

    def __init__(self, recorded: dict[str, Any]) -> None:
        self._trials = [
            recorded["trials"][number] for number in sorted(recorded["trials"], key=int)
        ]
        self._trial = self._next = 0
        self.said: list[str] = []
        self.observation = ""

    async def complete(self, request: Request) -> Completion:
        """The next line; a trial that was recorded as halted has outgrown its model when its steps are said."""
        if request.conversation.task.startswith("REFLECT"):
            self._trial, self._next = self._trial + 1, 0
            return self._say(
                (self._trials[self._trial]["reflections"] or ["Be careful."])[-1]
            )
        steps = self._trials[self._trial]["steps"]
        if self._next == len(steps):
            raise ContextTooLong("the prompt has more than 3,896 tokens")
        said = steps[self._next]
        self._next += 1
        self.observation = said["observation"]
        return self._say(
            f"Thought {self._next}: {said['thought']}\nAction {self._next}: {said['action']}"
        )

    def _say(self, text: str) -> Completion:
        self.said.append(text)
        return Completion(text, answer=text)


async def replayed(recorded: dict[str, Any]) -> tuple[Result, Replaying, list[Any]]:
    replaying = Replaying(recorded)

    @tool(effect="read", repeatable=True)
    async def search(entity: str) -> str:
        """Search for an entity."""
        return replaying.observation

    @tool(effect="read", repeatable=True)
    async def lookup(keyword: str) -> str:
        """Look a keyword up on the page."""
        return replaying.observation

    runtime = Runtime(
        TextTools(replaying, "react"),
        tools=[search, lookup],
        limits=Limits(max_tokens=None, max_llm_calls=None),
    )
    engine = ReflexionEngine(
        runtime,
        actor=ReActEngine(runtime, max_iterations=10),
        evaluator=ExactMatch(recorded["gold"]),
        max_episodes=len(recorded["trials"]),
        prompts=PROMPTS,
    )
    result = await engine.run(recorded["question"], run_id="r")
    facts = [
        entry.event
        for entry in runtime.journal.read("r")
        if isinstance(entry.event, FactNoted)
    ]
    return result, replaying, [fact.value for fact in facts if fact.name == "Episode"]


def expected_of(recorded: dict[str, Any]) -> tuple[int, bool, str | None, int]:
    """Episodes, whether the last one solved it, the answer, and how many lines the model says."""
    trials = [
        recorded["trials"][number] for number in sorted(recorded["trials"], key=int)
    ]
    solved = next((index for index, known in enumerate(trials) if known["em"]), None)
    run = trials if solved is None else trials[: solved + 1]
    answers = [known["answer"] for known in run if known["answer"]]
    lines = sum(len(known["steps"]) for known in run) + len(run) - 1
    return len(run), solved is not None, answers[-1] if answers else None, lines


@pytest.mark.skipif(not ROWS, reason=MISSING)
@pytest.mark.parametrize("recorded", ROWS, ids=lambda recorded: recorded["id"])
async def test_a_recorded_question_is_solved_in_the_same_trial(
    recorded: dict[str, Any],
) -> None:
    await check(recorded)


@pytest.mark.parametrize("recorded", MADE_UP, ids=lambda recorded: recorded["id"])
async def test_a_made_up_recording_is_solved_in_the_same_trial(
    recorded: dict[str, Any],
) -> None:
    await check(recorded)


async def check(recorded: dict[str, Any]) -> None:
    result, replaying, episodes = await replayed(recorded)

    number, solved, answer, lines = expected_of(recorded)
    assert [episode["outcome"] == "correct" for episode in episodes] == [False] * (
        number - 1
    ) + [solved]
    assert result.answer == answer
    assert result.status == ("limit" if answer is None else "completed")
    assert len(replaying.said) == lines


async def test_an_episode_that_was_halted_is_distinguished_from_a_wrong_one() -> None:
    _, _, episodes = await replayed(MADE_UP[1])

    assert [(episode["outcome"], episode["stop_reason"]) for episode in episodes] == [
        ("halted", "context_overflow"),
        ("correct", "answered"),
    ]


@pytest.mark.skipif(not ROWS, reason=MISSING)
def test_exact_match_agrees_with_the_recorded_one() -> None:
    pairs = [
        (known["answer"], row["gold"], known["em"])
        for row in ROWS
        for known in row["trials"].values()
    ]

    assert [
        pair
        for pair in pairs
        if (normalize_answer(pair[0]) == normalize_answer(pair[1])) != pair[2]
    ] == []
    assert len(pairs) == 5 * len(ROWS)
