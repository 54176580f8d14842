"""Recorded searches, replayed through the engine: Game of 24, crosswords and votes of the paper's own runs."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import pytest

from loopwright import Limits, Request, Runtime, TreeOfThoughtsEngine
from loopwright.events import FactNoted
from loopwright.testing import ScriptedProvider
from recordings import MISSING, fixture, rows

UNLIMITED = Limits(
    max_iterations=None,
    max_llm_calls=None,
    max_tokens=None,
    timeout=None,
    context_tokens=None,
)


def needs(name: str) -> Any:
    return pytest.mark.skipif(not fixture(name).exists(), reason=MISSING)


def facts(runtime: Runtime, name: str) -> list[Any]:
    entries = runtime.journal.read("r")
    return [
        e.event.value
        for e in entries
        if isinstance(e.event, FactNoted) and e.event.name == name
    ]


def asked(request: Request) -> str:
    return request.conversation.messages[-1].content


# --- Game of 24: propose, values by labels, a beam of 5 ---

WEIGHTS = {"sure": 20.0, "likely": 1.0, "impossible": 0.001}


class Game24:
    """Four numbers to make 24 of; a state is the steps so far."""

    def start(self, task: str) -> tuple[str, ...]:
        return (task,)

    def render(self, state: tuple[str, ...]) -> str:
        return "\n".join(state)

    def left(self, state: tuple[str, ...]) -> str:
        return (
            state[-1].partition("left: ")[2].partition(")")[0]
            if len(state) > 1
            else state[0]
        )

    def propose(self, state: tuple[str, ...]) -> str:
        if self.left(state) == "24":
            return f"Write the answer.\n{self.render(state)}"
        return f"Possible next steps.\n{self.render(state)}"

    def read(self, state: tuple[str, ...], reply: str) -> list[tuple[str, float]]:
        return [(line, 1.0) for line in reply.strip().split("\n")]

    def refuse(self, state: tuple[str, ...], thought: str) -> str | None:
        return None

    def apply(self, state: tuple[str, ...], thought: str) -> tuple[str, ...]:
        return (*state, thought)

    def judge(self, state: tuple[str, ...]) -> str:
        if "left: " not in state[-1]:
            return f"Is this the last step? {state[0]}\nAnswer: {state[-1]}"
        return f"Can these reach 24? {self.left(state)}"

    def answer(self, state: tuple[str, ...]) -> str | None:
        said = state[-1].removeprefix("Answer: ")
        return said if said != state[-1] else None


def game24_model(row: dict[str, Any]) -> Callable[[Request], str]:
    """What the model said there: proposals by state, labels by the prompt that judges a state."""
    game, said, labels = Game24(), dict[str, str](), dict[str, list[str]]()
    for step in row["steps"]:
        for parent in step["parents"]:
            state = (row["input"], *parent["y"].splitlines())
            said[game.propose(state)] = parent["propose_completion"]
            for candidate in parent["candidates"]:
                labels.setdefault(
                    game.judge((*state, candidate["text"].strip())),
                    candidate["replay_labels"],
                )
    samples: Counter[str] = Counter()

    def model(request: Request) -> str:
        prompt = asked(request)
        if prompt in said:
            return said[prompt]
        if prompt not in labels:
            return "ANSWER: no way"
        samples[prompt] += 1
        return f"Some arithmetic.\n{labels[prompt][samples[prompt] - 1]}"

    return model


@needs("game24_tot_replay.jsonl")
@pytest.mark.parametrize(
    "row", rows("game24_tot_replay.jsonl"), ids=lambda row: str(row["idx"])
)
@pytest.mark.parametrize(
    "max_concurrency", [8, pytest.param(1, marks=pytest.mark.faults)]
)
async def test_a_recorded_game_of_24_selects_the_same_states_in_the_same_order(
    row: dict[str, Any], max_concurrency: int
) -> None:
    runtime = Runtime(ScriptedProvider(game24_model(row)), limits=UNLIMITED)
    engine = TreeOfThoughtsEngine(
        runtime, problem=Game24(), generate="propose", labels=WEIGHTS, n_evaluations=3, beam_width=5,
        max_concurrency=max_concurrency,
    )  # fmt: skip
    result = await engine.run(row["input"], run_id="r")
    levels = facts(runtime, "Level")
    selected = [
        [level["candidates"][place]["path"] for place in level["selected"]]
        for level in levels
    ]

    assert selected == [
        [text.splitlines() for text in step["selected"]] for step in row["steps"]
    ]
    texts = [
        parent["y"] + c["text"]
        for step in row["steps"]
        for parent in step["parents"]
        for c in parent["candidates"]
    ]
    answers = [
        text.splitlines()[-1].removeprefix("Answer: ")
        for text in texts
        if "Answer: " in text
    ]
    best = row["final"][0].splitlines()[-1].removeprefix("Answer: ")
    if answers:
        [found] = facts(runtime, "Found")
        assert (found["first"], found["best"], result.answer) == (
            answers[0],
            best,
            best,
        )
    else:
        assert (facts(runtime, "Found"), result.answer) == ([], "no way")
    assert result.status == "completed"


# --- crosswords: depth first, eight proposals, clues judged one by one ---

CONFIDENCE = {"certain": 1.0, "high": 0.5, "medium": 0.2, "low": 0.1}
PLACES = [f"{direction}{number}" for direction in "hv" for number in range(1, 6)]
MOVE = re.compile(r"([hv][1-5])\. (\w+) \((\w+)\)")
VETO = {"sure": 1.0, "maybe": 0.0, "impossible": -1000.0}


class Board(NamedTuple):
    letters: str = "_" * 25
    filled: frozenset[str] = frozenset()


class Crossword:
    """A 5 by 5 crossword; a thought is a word in its place."""

    def __init__(self, clues: dict[str, str]) -> None:
        self.clues = clues

    def start(self, task: str) -> Board:
        return Board()

    def cells(self, place: str) -> range:
        number = int(place[1]) - 1
        return (
            range(number * 5, number * 5 + 5)
            if place[0] == "h"
            else range(number, 25, 5)
        )

    def line(self, board: Board, place: str) -> str:
        return f"{place}. {self.clues[place]}: {''.join(board.letters[cell] for cell in self.cells(place))}"

    def render(self, board: Board) -> str:
        drawn = "\n".join(board.letters[i : i + 5] for i in range(0, 25, 5))
        lists = [
            "".join(
                self.line(board, place) + "\n"
                for place in PLACES
                if (place in board.filled) == filled
            )
            for filled in (False, True)
        ]
        return f"Current Board:\n{drawn}\n\nUnfilled:\n{lists[0]}\nFilled:\n{lists[1]}\nChanged:\n"

    def propose(self, board: Board) -> str:
        return f"Words with confidence.\n{self.render(board)}"

    def read(self, board: Board, reply: str) -> list[tuple[str, float]]:
        return [
            (f"{place}. {word}", CONFIDENCE[sure])
            for place, word, sure in MOVE.findall(reply)
        ]

    def refuse(self, board: Board, thought: str) -> str | None:
        place, word = thought.split(". ")
        fits = all(
            board.letters[cell] in ("_", letter)
            for cell, letter in zip(self.cells(place), word.upper(), strict=True)
        )
        return None if fits else "it overwrites a letter"

    def apply(self, board: Board, thought: str) -> Board:
        place, word = thought.split(". ")
        letters = list(board.letters)
        for cell, letter in zip(self.cells(place), word.upper(), strict=True):
            letters[cell] = letter
        return Board("".join(letters), board.filled | {place})

    def judge(self, board: Board) -> list[str]:
        lines = [self.line(board, place) for place in PLACES]
        return [f"{board.letters} {line}" for line in lines if line[-5:].count("_") < 4]

    def answer(self, board: Board) -> str | None:
        return None


def weights_by_sum() -> dict[float, tuple[str, ...]]:
    """The confidences of up to eight replies by what they add up to, to the last bit."""
    sums: dict[float, tuple[str, ...]] = {}
    for length in range(1, 9):
        for words in product(CONFIDENCE, repeat=length):
            total = 0.0
            for word in words:
                total += CONFIDENCE[word]
            sums.setdefault(total, words)
    return sums


def crossword_model(
    row: dict[str, Any], crossword: Crossword
) -> Callable[[Request], str]:
    """Eight replies for each board whose confidences add up to the recorded scores, and labels as they were counted."""
    sums = weights_by_sum()
    labels: dict[str, str] = {}
    for visit in row["visits"]:
        board = Board()
        for thought in visit["actions"]:
            board = crossword.apply(board, thought)
        counted = [
            label for label, count in visit["count"].items() for _ in range(count)
        ]
        prompts = crossword.judge(board)
        labels.update(
            zip(
                prompts,
                counted + ["unreadable"] * (len(prompts) - len(counted)),
                strict=True,
            )
        )
    samples: Counter[str] = Counter()

    def model(request: Request) -> str:
        prompt = asked(request)
        if prompt in labels:
            return f"Some thinking.\n{labels[prompt]}"
        board = prompt.partition("\n")[2]
        if board not in row["candidates"]:
            return "ANSWER: as far as I came"
        number = samples[prompt] % 8
        samples[prompt] += 1
        words = {
            thought: sums[score] for thought, score in row["candidates"][board].items()
        }
        return "\n".join(
            f"{thought} ({said[number]})"
            for thought, said in words.items()
            if number < len(said)
        )

    return model


@needs("crosswords_dfs_replay.jsonl")
@pytest.mark.parametrize(
    "row", rows("crosswords_dfs_replay.jsonl"), ids=lambda row: str(row["game"])
)
async def test_a_recorded_crossword_visits_the_same_boards_in_the_same_order(
    row: dict[str, Any],
) -> None:
    clues = dict(
        re.findall(
            r"^([hv]\d)\. (.*): _{5}$", next(iter(row["candidates"])), re.MULTILINE
        )
    )
    crossword = Crossword(clues)
    runtime = Runtime(
        ScriptedProvider(crossword_model(row, crossword)), limits=UNLIMITED
    )
    engine = TreeOfThoughtsEngine(
        runtime, problem=crossword, search="depth-first", generate="propose", n_proposals=8, labels=VETO, prune_below=0,
        max_depth=9, max_visits=100, max_children=3,
    )  # fmt: skip
    result = await engine.run("Solve the crossword.", run_id="r")
    visits = facts(runtime, "Visit")

    assert [visit["thought"]["path"] for visit in visits] == [
        visit["actions"] for visit in row["visits"]
    ]
    counted = [Counter(visit["thought"]["labels"]) for visit in visits]
    assert counted == [
        Counter({k: v for k, v in visit["count"].items() if v})
        for visit in row["visits"]
    ]
    assert [visit["pruned"] for visit in visits] == [
        visit["count"]["impossible"] > 0 for visit in row["visits"]
    ]
    assert (result.status, result.answer, result.iterations) == (
        "completed",
        "as far as I came",
        100,
    )
    prompts = Counter(asked(request) for request in runtime.provider.requests)  # type: ignore[attr-defined]
    assert {
        times for prompt, times in prompts.items() if prompt.startswith("Words")
    } == {8}
    assert {
        times for prompt, times in prompts.items() if not prompt.startswith("Words")
    } == {1}


# --- votes: a plan, then a passage, five of each, five ballots ---


def vote_model(row: dict[str, Any]) -> Callable[[Request], str]:
    """The sampled plans and passages in order, and the ballots as they were counted."""
    asked_before: Counter[str] = Counter()
    plan = row["steps"][0]["selected"][0]

    def model(request: Request) -> str:
        prompt = asked(request)
        number = asked_before[prompt]
        asked_before[prompt] += 1
        if prompt.startswith("Conclude."):
            return "done"
        if prompt.startswith("Vote."):
            votes = row["steps"][int("Passage:" in prompt)]["votes"]
            ballots = [
                place for place, count in enumerate(votes, 1) for _ in range(count)
            ]
            return (
                f"Analysis…\nThe best choice is {ballots[number]}"
                if number < len(ballots)
                else "I cannot decide."
            )
        level = int(plan.strip() in prompt)
        return str(row["steps"][level]["candidates"][number]).removeprefix(
            plan if level else ""
        )

    return model


@needs("vote_replay.jsonl")
@pytest.mark.parametrize(
    "row", rows("vote_replay.jsonl"), ids=lambda row: str(row["id"])
)
async def test_a_recorded_vote_selects_the_same_texts(row: dict[str, Any]) -> None:
    runtime = Runtime(ScriptedProvider(vote_model(row)), limits=UNLIMITED)
    engine = TreeOfThoughtsEngine(
        runtime, evaluate="vote", n_branches=5, n_evaluations=5, beam_width=1, max_depth=2,
        prompts={"vote": "Vote. {count}\n{candidates}", "conclude": "Conclude. {state}"},  # type: ignore[arg-type]
    )  # fmt: skip
    result = await engine.run(row["input"], run_id="r")
    levels = facts(runtime, "Level")

    def texts(paths: Sequence[list[str]]) -> list[str]:
        return ["\n".join(path) for path in paths]

    for level, step in zip(levels, row["steps"], strict=True):
        candidates = [candidate["path"] for candidate in level["candidates"]]
        assert texts(candidates) == [text.strip() for text in step["candidates"]]
        assert [candidate["value"] for candidate in level["candidates"]] == step[
            "votes"
        ]
        assert texts([candidates[place] for place in level["selected"]]) == [
            text.strip() for text in step["selected"]
        ]
    assert (len(levels), result.answer) == (2, "done")
