"""Tree of Thoughts: growing, judging, voting, both searches, endings; the model is a function of what it is asked."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from loopwright import (
    Completion,
    ConfigError,
    Conversation,
    Limits,
    Message,
    ProviderError,
    Request,
    Runtime,
    TreeOfThoughtsEngine,
    Usage,
)
from loopwright.engines.thought_decomposition import (
    PROMPTS,
    TextThoughts,
    extract_marked_answer,
)
from loopwright.events import FactNoted, ModelReplied
from loopwright.testing import ScriptedProvider, crashed
from virtual_time import in_virtual_time

Model = Callable[[Request], Any]


def asked(request: Request) -> str:
    return request.conversation.messages[-1].content


def between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


class Mind:
    """A model for the default prompts: its thoughts by state, in order; its scores by the last thought.

    A state without thoughts of its own gets `else_`, numbered so that no two are equal.
    """

    def __init__(
        self,
        thoughts: Mapping[str, Sequence[Any]] | None = None,
        scores: Mapping[str, Any] | None = None,
        *,
        final: Any = "ANSWER: forced",
        else_: str = "thought",
    ) -> None:
        self.thoughts, self.scores, self.final, self.else_ = (
            thoughts or {},
            scores or {},
            final,
            else_,
        )
        self.times: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()

    def __call__(self, request: Request) -> Any:
        prompt = asked(request)
        if "how likely" in prompt.lower() or "Is this answer correct" in prompt:
            self.kinds["judge"] += 1
            state = between(prompt, "reasoning so far:\n", "\n\nHow likely") or between(
                prompt, "The reasoning:\n", "\n\nThe final answer"
            )
            return self.scores.get(
                state, self.scores.get(state.splitlines()[-1], "Score: 5")
            )
        if "candidates for going on" in prompt:
            return "The best choice is 1"
        if "There are no more steps" in prompt:
            self.kinds["forced"] += 1
            return self.final
        self.kinds["grow"] += 1
        state = between(prompt, "so far:\n", "\n\n")
        self.times[state] += 1
        said = self.thoughts.get(state, self.thoughts.get(state.splitlines()[-1]))
        return (
            f"{self.else_} {self.kinds['grow']}"
            if said is None
            else said[(self.times[state] - 1) % len(said)]
        )


START = "(nothing yet)"


def parts(model: Any, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(model), **options)


def facts(runtime: Runtime, name: str) -> list[Any]:
    entries = runtime.journal.read("r")
    return [
        e.event.value
        for e in entries
        if isinstance(e.event, FactNoted) and e.event.name == name
    ]


def paths(runtime: Runtime) -> list[list[str]]:
    """The last thoughts of the selected states, level by level."""
    return [
        [level["candidates"][i]["path"][-1] for i in level["selected"]]
        for level in facts(runtime, "Level")
    ]


def cut(text: str) -> Completion:
    return Completion(text, answer=text, finish_reason="length", usage=Usage(10, 5))


# --- cost ---


async def test_the_defaults_make_43_calls_when_all_thoughts_are_distinct() -> None:
    mind = Mind()
    result = await TreeOfThoughtsEngine(parts(mind)).run("Q?")

    assert (result.answer, result.status, result.llm_calls, result.iterations) == (
        "forced",
        "completed",
        43,
        4,
    )
    assert mind.kinds == {"grow": 21, "judge": 21, "forced": 1}


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"n_branches": 1, "beam_width": 1, "max_depth": 2}, 2 * (1 + 1) + 1),
        ({"n_branches": 2, "beam_width": 3, "max_depth": 3}, (2 + 4 + 6) * 2 + 1),
        ({"n_branches": 2, "n_evaluations": 3, "max_depth": 2}, (2 + 4) * (1 + 3) + 1),
        (
            {"evaluate": "vote", "n_evaluations": 5, "max_depth": 2},
            (3 + 5) + (6 + 5) + 1,
        ),
    ],
)
async def test_the_number_of_calls_follows_from_the_options(
    options: dict[str, Any], calls: int
) -> None:
    result = await TreeOfThoughtsEngine(parts(Mind()), **options).run("Q?")

    assert result.llm_calls == calls


async def test_equal_thoughts_of_a_level_are_judged_once() -> None:
    mind = Mind({START: ["t"], "t": ["t"]})
    runtime = parts(mind)
    result = await TreeOfThoughtsEngine(runtime).run("Q?", run_id="r")

    assert mind.kinds == {"grow": 12, "judge": 4, "forced": 1}
    assert result.llm_calls == 17
    assert [level["duplicates"] for level in facts(runtime, "Level")] == [2, 2, 2, 2]


# --- finished states compete ---


async def test_one_thought_that_answers_is_judged_and_ends_the_search() -> None:
    mind = Mind(
        {START: ["ANSWER: Paris is the capital of France."]},
        {"ANSWER: Paris is the capital of France.": "7"},
    )
    runtime = parts(mind)
    result = await TreeOfThoughtsEngine(
        runtime, n_branches=1, beam_width=1, max_depth=3
    ).run("Q?", run_id="r")

    answer = "Paris is the capital of France."
    assert (result.answer, result.status, result.llm_calls) == (answer, "completed", 2)
    assert facts(runtime, "Found") == [{"first": answer, "best": answer, "value": 7.0}]
    prompt = PROMPTS.fill(
        "judge_answer",
        state=f"ANSWER: {answer}",
        answer=answer,
        scale=PROMPTS.fill("score"),
    )
    assert asked(runtime.provider.requests[1]) == prompt  # type: ignore[attr-defined]


async def test_the_first_answer_does_not_win_by_itself() -> None:
    mind = Mind(
        {START: ["ANSWER: guess", "good"], "good": ["ANSWER: sound", "so so"]},
        {
            "ANSWER: guess": "Score: 2",
            "good": "Score: 8",
            "good\nANSWER: sound": "Score: 9",
        },
    )
    runtime = parts(mind)
    result = await TreeOfThoughtsEngine(runtime, n_branches=2).run("Q?", run_id="r")

    assert (result.answer, result.llm_calls) == ("sound", 8)
    assert facts(runtime, "Found") == [
        {"first": "guess", "best": "sound", "value": 9.0}
    ]
    assert facts(runtime, "Level") == [
        {
            "depth": 1,
            "candidates": [
                {
                    "path": ["ANSWER: guess"],
                    "value": 2.0,
                    "labels": {},
                    "answer": "guess",
                },
                {"path": ["good"], "value": 8.0, "labels": {}, "answer": None},
            ],
            "selected": [1, 0],
            "refused": 0,
            "duplicates": 0,
        },
        {
            "depth": 2,
            "candidates": [
                {
                    "path": ["ANSWER: guess"],
                    "value": 2.0,
                    "labels": {},
                    "answer": "guess",
                },
                {
                    "path": ["good", "ANSWER: sound"],
                    "value": 9.0,
                    "labels": {},
                    "answer": "sound",
                },
                {"path": ["good", "so so"], "value": 5.0, "labels": {}, "answer": None},
            ],
            "selected": [1, 2],
            "refused": 0,
            "duplicates": 0,
        },
    ]


async def test_an_answer_that_fell_out_of_the_beam_still_wins_over_worse_ones() -> None:
    mind = Mind(
        {START: ["ANSWER: early", "rosy"], "rosy": ["ANSWER: late"]},
        {"ANSWER: early": "6", "rosy": "8", "rosy\nANSWER: late": "3"},
    )
    result = await TreeOfThoughtsEngine(parts(mind), n_branches=2, beam_width=1).run(
        "Q?"
    )

    assert result.answer == "early"


async def test_an_answer_without_a_readable_score_never_ends_the_search() -> None:
    mind = Mind(
        {START: ["ANSWER: a", "b"], "b": ["c"], "c": ["ANSWER: d"]},
        {"ANSWER: a": "Hm.", "b": "Hm.", "c": "6"},
    )
    runtime = parts(mind)
    result = await TreeOfThoughtsEngine(runtime, n_branches=2).run("Q?", run_id="r")

    assert result.answer == "d"
    assert [c["value"] for c in facts(runtime, "Level")[0]["candidates"]] == [
        None,
        None,
    ]


async def test_an_unreadable_score_is_no_score_and_ranks_below_every_other() -> None:
    mind = Mind(
        {START: ["a", "b", "c"]}, {"a": "No idea.", "b": "Score: 0", "c": "Score: 1"}
    )
    runtime = parts(mind)
    await TreeOfThoughtsEngine(runtime, max_depth=1, beam_width=3).run("Q?", run_id="r")

    assert paths(runtime) == [["c", "b", "a"]]
    assert [c["value"] for c in facts(runtime, "Level")[0]["candidates"]] == [
        None,
        0.0,
        1.0,
    ]


async def test_equal_values_keep_the_order_of_the_thoughts() -> None:
    mind = Mind({START: ["a", "b", "c", "d"]}, {"a": "4", "b": "7", "c": "7", "d": "7"})
    runtime = parts(mind)
    await TreeOfThoughtsEngine(runtime, n_branches=4, max_depth=1).run("Q?", run_id="r")

    assert paths(runtime) == [["b", "c"]]


async def test_a_marker_in_prose_is_no_answer() -> None:
    mind = Mind({START: ["I don't know the ANSWER: yet maybe 5"]}, final="ANSWER: 6")
    result = await TreeOfThoughtsEngine(parts(mind), max_depth=1).run("Q?")

    assert result.answer == "6"


async def test_accept_at_ends_the_search_although_an_open_state_is_worth_more() -> None:
    mind = Mind(
        {START: ["ANSWER: enough", "better"]}, {"ANSWER: enough": "7", "better": "9"}
    )
    result = await TreeOfThoughtsEngine(parts(mind), n_branches=2, accept_at=7).run(
        "Q?"
    )

    assert (result.answer, result.llm_calls) == ("enough", 4)


# --- the forced answer ---


@pytest.mark.parametrize(
    ("final", "answer"),
    [("ANSWER: yes", "yes"), ("just text", "just text"), ("**Answer:** b", "b")],
)
async def test_the_best_state_is_asked_for_the_answer_when_nothing_is_finished(
    final: str, answer: str
) -> None:
    mind = Mind(
        {START: ["weak", "strong"]},
        {"weak": "3\nWeak.", "strong": "9\nStrong."},
        final=final,
    )
    runtime = parts(mind)
    result = await TreeOfThoughtsEngine(
        runtime, n_branches=2, beam_width=1, max_depth=1
    ).run("Q?")

    assert (result.answer, result.status, result.llm_calls) == (answer, "completed", 5)
    assert asked(runtime.provider.requests[-1]) == PROMPTS.fill(
        "conclude", state="strong"
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize("final", ["", "ANSWER:", cut("ANSWER: half of")])
async def test_a_forced_answer_that_says_nothing_is_no_answer(final: Any) -> None:
    model = Mind(final=final)

    def then_best(request: Request) -> Any:
        return (
            "ANSWER: best" if "no more steps left" in asked(request) else model(request)
        )

    result = await TreeOfThoughtsEngine(
        parts(then_best), n_branches=1, max_depth=1
    ).run("Q?")

    assert (result.answer, result.status) == ("best", "limit")


# --- what is asked, and how ---


async def test_history_and_system_are_honoured_in_every_call() -> None:
    runtime = parts(Mind())
    history = Conversation(
        [Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Q?")]
    )
    await TreeOfThoughtsEngine(runtime, n_branches=1, max_depth=1).run(
        history, system="Be brief."
    )

    seen = [
        [(m.role, m.content) for m in r.conversation] for r in runtime.provider.requests
    ]  # type: ignore[attr-defined]
    before = [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "Q?"),
    ]
    score = PROMPTS.fill("score")
    assert seen == [
        [*before, ("user", PROMPTS.fill("thought", state=START))],
        [*before, ("user", PROMPTS.fill("judge", state="thought 1", scale=score))],
        [*before, ("user", PROMPTS.fill("conclude", state="thought 1"))],
    ]


@pytest.mark.parametrize(
    ("options", "temperatures"),
    [
        ({}, [0.7, 0.7, 0.7, None, None, None, None]),
        ({"n_branches": 1, "n_evaluations": 2}, [None, 0.7, 0.7, None]),
        ({"n_branches": 2, "temperature": 0.0}, [0.0, 0.0, 0.0, 0.0, None]),
        ({"generate": "propose"}, [None, None, None]),
    ],
)
async def test_several_samples_are_warm_and_one_is_the_providers_own(
    options: dict[str, Any], temperatures: list[float | None]
) -> None:
    mind = Mind({START: ["THOUGHT: a"]} if "generate" in options else {})
    runtime = parts(mind)
    await TreeOfThoughtsEngine(runtime, max_depth=1, **options).run("Q?")

    assert [r.sampling.temperature for r in runtime.provider.requests] == temperatures  # type: ignore[attr-defined]


async def test_the_judge_can_be_another_provider() -> None:
    judge = ScriptedProvider(lambda request: "Score: 9")
    runtime = parts(Mind(), providers={"strict": judge})
    await TreeOfThoughtsEngine(runtime, judge="strict", max_depth=1).run("Q?")

    assert (len(judge.requests), len(runtime.provider.requests)) == (3, 4)  # type: ignore[attr-defined]


async def test_prompts_can_be_overridden() -> None:
    runtime = parts(["a thought", "Score: 3", "ANSWER: x"])
    prompts: Any = {
        "thought": "More? {state}",
        "judge": "Good? {state} {scale}",
        "score": "0 to 10.",
    }
    await TreeOfThoughtsEngine(runtime, n_branches=1, max_depth=1, prompts=prompts).run(
        "Q?"
    )

    said = [asked(request) for request in runtime.provider.requests]  # type: ignore[attr-defined]
    assert said[:2] == ["More? (nothing yet)", "Good? a thought 0 to 10."]


async def test_one_reply_can_propose_several_thoughts() -> None:
    several = "Here are some:\nTHOUGHT: add\n**Thought 2:** subtract\nTHOUGHT: guess\nANSWER: 24"
    runtime = parts(
        Mind({START: [several]}, {"subtract": "9", "guess\nANSWER: 24": "9"})
    )
    result = await TreeOfThoughtsEngine(
        runtime, generate="propose", beam_width=3, max_depth=1
    ).run("Q?", run_id="r")

    [level] = facts(runtime, "Level")
    assert [c["path"] for c in level["candidates"]] == [
        ["add"],
        ["subtract"],
        ["guess\nANSWER: 24"],
    ]
    assert (level["selected"], result.answer) == ([1, 2, 0], "24")


@pytest.mark.parametrize("reply", ["no list at all", "", cut("THOUGHT: half a")])
async def test_a_reply_without_thoughts_leads_to_the_forced_answer(reply: Any) -> None:
    mind = Mind({START: [reply]})
    result = await TreeOfThoughtsEngine(parts(mind), generate="propose").run("Q?")

    assert (result.answer, result.llm_calls) == ("forced", 2)


async def test_a_thought_that_was_cut_or_is_empty_is_left_out() -> None:
    runtime = parts(Mind({START: [cut("half a"), "  ", "whole"]}))
    await TreeOfThoughtsEngine(runtime, max_depth=1).run("Q?", run_id="r")

    [level] = facts(runtime, "Level")
    assert ([c["path"] for c in level["candidates"]], level["refused"]) == (
        [["whole"]],
        1,
    )


# --- values ---


async def test_labels_are_summed_over_samples_and_an_unreadable_one_counts_nothing() -> (
    None
):
    said = {
        "a": iter(["sure", "Hm, sure?", "likely"]),
        "b": iter(["likely"] * 3),
        "c": iter(["who knows"] * 3),
    }
    grown = iter("abc")

    def model(request: Request) -> str:
        prompt = asked(request)
        if "How likely" in prompt:
            state = between(prompt, "so far:\n", "\n")
            return f"Well.\n{next(said[state])}"
        return "done" if "no more steps" in prompt else next(grown)

    runtime = parts(model)
    labels = {"sure": 20.0, "likely": 1.0, "impossible": 0.001}
    engine = TreeOfThoughtsEngine(
        runtime, labels=labels, n_evaluations=3, max_depth=1, max_concurrency=1
    )
    await engine.run("Q?", run_id="r")

    [level] = facts(runtime, "Level")
    assert [(c["value"], c["labels"]) for c in level["candidates"]] == [
        (21.0, {"sure": 1, "likely": 1}), (3.0, {"likely": 3}), (None, {}),
    ]  # fmt: skip
    assert "exactly one of these words: sure, likely, impossible." in asked(
        runtime.provider.requests[3]
    )  # type: ignore[attr-defined]


async def test_numbers_are_averaged_over_the_readable_samples() -> None:
    scores = iter(["Score: 4", "I cannot say.", "Score: 7"])
    mind = Mind({START: ["a"]})
    runtime = parts(
        lambda request: (
            next(scores) if "How likely" in asked(request) else mind(request)
        )
    )
    await TreeOfThoughtsEngine(runtime, n_branches=1, n_evaluations=3, max_depth=1).run(
        "Q?", run_id="r"
    )

    assert facts(runtime, "Level")[0]["candidates"][0]["value"] == 5.5


# --- votes ---


def voter(*ballots: str) -> tuple[Model, Counter[str]]:
    left, mind = list(ballots), Mind({START: ["a", "b", "c"]})

    def model(request: Request) -> Any:
        mind.kinds["vote"] += "candidates for going on" in asked(request)
        return (
            left.pop(0)
            if "candidates for going on" in asked(request)
            else mind(request)
        )

    return model, mind.kinds


@pytest.mark.parametrize(
    ("ballots", "values", "selected"),
    [
        (
            ["The best choice is 3"] * 2 + ["The best choice is 2"],
            [0.0, 1.0, 2.0],
            ["c", "b"],
        ),
        (
            ["The best choice is 3", "The best choice is 2", "none"],
            [0.0, 1.0, 1.0],
            ["b", "c"],
        ),
        (["The best choice is 4", "2 and 3", ""], [None, None, None], ["a", "b"]),
    ],
)
async def test_votes_choose_and_a_void_ballot_counts_for_nobody(
    ballots: list[str], values: list[float | None], selected: list[str]
) -> None:
    model, _ = voter(*ballots)
    runtime = parts(model)
    await TreeOfThoughtsEngine(
        runtime, evaluate="vote", n_evaluations=3, max_depth=1
    ).run("Q?", run_id="r")

    assert [c["value"] for c in facts(runtime, "Level")[0]["candidates"]] == values
    assert paths(runtime) == [selected]
    assert "Candidate 1:\na\n\nCandidate 2:\nb\n\nCandidate 3:\nc\n" in asked(
        runtime.provider.requests[3]
    )  # type: ignore[attr-defined]


async def test_a_single_candidate_needs_no_vote() -> None:
    mind = Mind({START: ["ANSWER: only"]})
    result = await TreeOfThoughtsEngine(parts(mind), evaluate="vote").run("Q?")

    assert (result.answer, result.llm_calls) == ("only", 3)


async def test_a_finished_state_is_voted_on_again_beside_the_new_ones() -> None:
    ballots = iter(["The best choice is 2", "The best choice is 1"])
    mind = Mind({START: ["ANSWER: x", "b"], "b": ["ANSWER: y"]})
    model: Model = lambda request: (  # noqa: E731
        next(ballots) if "for going on" in asked(request) else mind(request)
    )
    runtime = parts(model)
    result = await TreeOfThoughtsEngine(
        runtime, n_branches=2, beam_width=1, evaluate="vote"
    ).run("Q?", run_id="r")

    assert result.answer == "x"
    assert facts(runtime, "Found") == [{"first": "x", "best": "x", "value": 1.0}]


# --- sampled selection, concurrency ---


async def test_a_draw_is_in_proportion_to_the_values_and_the_same_again_on_replay() -> (
    None
):
    mind = Mind(
        {START: ["a", "b", "c"]}, {"a": "Score: 0", "b": "Score: 1", "c": "Score: 9"}
    )
    drawn: Counter[str] = Counter()
    for number in range(200):
        runtime = parts(mind)
        engine = TreeOfThoughtsEngine(
            runtime, select="sample", beam_width=1, max_depth=1
        )
        await engine.run("Q?", run_id=f"r{number}")
        [level] = [
            e.event.value
            for e in runtime.journal.read(f"r{number}")
            if isinstance(e.event, FactNoted)
        ]
        drawn[level["candidates"][level["selected"][0]]["path"][0]] += 1

    assert drawn["a"] == 0
    assert 5 <= drawn["b"] <= 40


async def test_a_draw_without_any_value_takes_the_first() -> None:
    runtime = parts(Mind({START: ["a", "b", "c"]}, dict.fromkeys("abc", "?")))
    await TreeOfThoughtsEngine(runtime, select="sample", max_depth=1).run(
        "Q?", run_id="r"
    )

    assert paths(runtime) == [["a", "b"]]


class Watching(ScriptedProvider):
    """Counts the calls that are under way at the same time."""

    now = most = 0

    async def complete(self, request: Request) -> Completion:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        return await super().complete(request)


@pytest.mark.parametrize(
    ("max_concurrency", "most"), [(1, 1), (2, 2), (8, 6), (None, 6)]
)
@in_virtual_time
async def test_branches_at_once_find_the_same_as_one_by_one(
    max_concurrency: int | None, most: int
) -> None:
    proposals = {
        START: ["THOUGHT: a\nTHOUGHT: b\nTHOUGHT: c"],
        "b": ["THOUGHT: d\nTHOUGHT: e\nTHOUGHT: f"],
    }
    proposals["c"] = ["THOUGHT: g\nTHOUGHT: h\nTHOUGHT: ANSWER: i"]
    mind = Mind(proposals, {"b": "8", "c": "8", "h": "9", "c\nANSWER: i": "9"})
    provider = Watching(mind)
    runtime = Runtime(provider)
    engine = TreeOfThoughtsEngine(
        runtime, generate="propose", max_concurrency=max_concurrency, max_depth=2
    )
    result = await engine.run("Q?", run_id="r")

    assert provider.most == most
    assert (result.answer, paths(runtime)) == ("i", [["b", "c"], ["h", "ANSWER: i"]])


# --- a problem of its own ---


@dataclasses.dataclass
class Digits:
    """Write digits until they are three; the value is known, asked for, or both prompts are the same."""

    judged_by: Callable[[str], Any] = lambda state: f"Judge {sum(map(int, state))}"
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)
    length: int = 3

    def start(self, task: str) -> str:
        return ""

    def render(self, state: str) -> str:
        return state

    def propose(self, state: str) -> str:
        return f"Digits after {state!r}"

    def read(self, state: str, reply: str) -> list[tuple[str, float]]:
        return [(digit, self.weights.get(digit, 1.0)) for digit in reply.split()]

    def refuse(self, state: str, thought: str) -> str | None:
        return "the digit is there" if thought in state else None

    def apply(self, state: str, thought: str) -> str:
        return state + thought

    def judge(self, state: str) -> Any:
        return self.judged_by(state)

    def answer(self, state: str) -> str | None:
        return state if len(state) == self.length else None


def digits_model(digits: str = "1 2 3") -> tuple[Model, list[str]]:
    log: list[str] = []

    def model(request: Request) -> str:
        log.append(asked(request))
        return (
            digits
            if log[-1].startswith("Digits")
            else f"Score: {log[-1].rpartition(' ')[2]}"
        )

    return model, log


async def test_a_prompt_is_judged_once_in_a_run_also_when_it_is_wanted_twice_at_once() -> (
    None
):
    model, log = digits_model()
    runtime = parts(model)
    result = await TreeOfThoughtsEngine(
        runtime, problem=Digits(), generate="propose", beam_width=3
    ).run("Q?", run_id="r")

    assert Counter(log) == {
        "Digits after ''": 1, "Digits after '3'": 1, "Digits after '2'": 1, "Digits after '1'": 1,
        "Judge 1": 1, "Judge 2": 1, "Judge 3": 1, "Judge 5": 1, "Judge 4": 1,
        "Digits after '32'": 1, "Digits after '23'": 1, "Digits after '31'": 1, "Judge 6": 1,
    }  # fmt: skip
    assert result.answer == "321"
    assert [level["refused"] for level in facts(runtime, "Level")] == [0, 3, 6]


async def test_a_value_that_is_known_is_not_asked_for() -> None:
    model, log = digits_model()
    engine = TreeOfThoughtsEngine(
        parts(model), problem=Digits(judged_by=int), generate="propose"
    )
    result = await engine.run("Q?")

    assert result.answer == "321"
    assert [prompt for prompt in log if prompt.startswith("Judge")] == []


async def test_a_known_value_must_be_finite() -> None:
    model, _ = digits_model()
    engine = TreeOfThoughtsEngine(
        parts(model),
        problem=Digits(judged_by=lambda state: float("-inf")),
        generate="propose",
    )
    result = await engine.run("Q?")

    assert (result.answer, result.status) == (None, "failed")
    assert "problem: a known value must be finite" in str(result.error)


async def test_an_empty_answer_finishes_nothing() -> None:
    class Empty(Digits):
        def answer(self, state: str) -> str | None:
            return ""

    model, _ = digits_model()
    runtime = parts(
        lambda request: (
            "forced" if "no more steps" in asked(request) else model(request)
        )
    )
    result = await TreeOfThoughtsEngine(
        runtime, problem=Empty(int), generate="propose", max_depth=1
    ).run("Q?")

    assert result.answer == "forced"


async def test_a_state_that_is_finished_already_is_not_found_again() -> None:
    class ByLastDigit(Digits):
        def render(self, state: str) -> str:
            return state[-1:]

        def answer(self, state: str) -> str | None:
            return state if state.endswith("1") else None

    model, _ = digits_model()
    runtime = parts(model)
    await TreeOfThoughtsEngine(
        runtime, problem=ByLastDigit(int), generate="propose", max_depth=2
    ).run("Q?", run_id="r")

    assert [
        [c["path"] for c in level["candidates"]] for level in facts(runtime, "Level")
    ] == [
        [["1"], ["2"], ["3"]],
        [["1"], ["3", "2"], ["2", "3"]],
    ]


async def test_a_state_may_be_judged_by_several_prompts() -> None:
    model, log = digits_model("1 2")
    problem = Digits(
        judged_by=lambda state: [f"Judge {digit}" for digit in state], length=2
    )
    runtime = parts(model)
    result = await TreeOfThoughtsEngine(
        runtime, problem=problem, generate="propose"
    ).run("Q?", run_id="r")

    assert [c["value"] for c in facts(runtime, "Level")[1]["candidates"]] == [1.5, 1.5]
    assert (result.answer, Counter(log)["Judge 1"]) == ("21", 1)


async def test_when_every_thought_is_refused_the_answer_is_forced_from_the_last_beam() -> (
    None
):
    log: list[str] = []

    def model(request: Request) -> str:
        log.append(asked(request))
        return "1" if log[-1].startswith("Digits") else "ANSWER: that is all"

    engine = TreeOfThoughtsEngine(
        parts(model), problem=Digits(judged_by=int), generate="propose"
    )
    result = await engine.run("Q?")

    assert result.answer == "that is all"
    assert log == [
        "Digits after ''",
        "Digits after '1'",
        PROMPTS.fill("conclude", state="1"),
    ]


async def test_a_beam_leaves_out_what_is_below_the_bound() -> None:
    model, _ = digits_model("1 2 3")
    runtime = parts(
        lambda request: "done" if "no more steps" in asked(request) else model(request)
    )
    engine = TreeOfThoughtsEngine(
        runtime, problem=Digits(judged_by=int), generate="propose", prune_below=3
    )
    await engine.run("Q?", run_id="r")
    assert paths(runtime)[0] == ["3"]

    runtime = parts(
        lambda request: "done" if "no more steps" in asked(request) else model(request)
    )
    engine = TreeOfThoughtsEngine(
        runtime, problem=Digits(judged_by=int), generate="propose", prune_below=1000
    )
    result = await engine.run("Q?", run_id="r")
    assert (paths(runtime), result.answer) == ([[]], "done")


async def test_a_finished_state_below_the_bound_is_no_answer() -> None:
    mind = Mind({START: ["ANSWER: bad", "b"]}, {"ANSWER: bad": "2", "b": "5"})
    result = await TreeOfThoughtsEngine(
        parts(mind), n_branches=2, max_depth=1, prune_below=3
    ).run("Q?")

    assert result.answer == "forced"


# --- depth first ---


async def depth_first(
    problem: Digits, digits: str = "1 2 3", **options: Any
) -> tuple[Any, list[str], Runtime]:
    model, _ = digits_model(digits)
    runtime = parts(
        lambda request: (
            "forced" if "no more steps" in asked(request) else model(request)
        )
    )
    engine = TreeOfThoughtsEngine(
        runtime, problem=problem, search="depth-first", generate="propose", **options
    )
    result = await engine.run("Q?", run_id="r")
    return (
        result,
        ["".join(visit["thought"]["path"]) for visit in facts(runtime, "Visit")],
        runtime,
    )


async def test_depth_first_tries_the_heaviest_thoughts_first_and_backtracks() -> None:
    problem = Digits(judged_by=int, weights={"2": 3.0})
    result, visits, runtime = await depth_first(problem)

    assert visits == [
        "2",
        "21",
        "213",
        "23",
        "231",
        "1",
        "12",
        "123",
        "13",
        "132",
        "3",
        "32",
        "321",
        "31",
        "312",
    ]
    assert (result.answer, result.status, result.iterations) == ("321", "completed", 15)
    assert facts(runtime, "Found") == [{"first": "213", "best": "321", "value": 321.0}]


async def test_depth_first_leaves_a_state_below_the_bound_at_once() -> None:
    result, visits, runtime = await depth_first(
        Digits(judged_by=lambda state: -1 if "1" in state else 1), prune_below=0
    )

    assert visits == ["1", "2", "21", "23", "231", "3", "31", "32", "321"]
    assert [visit["pruned"] for visit in facts(runtime, "Visit")] == [
        "1" in visit for visit in visits
    ]
    assert result.answer == "forced"
    assert asked(runtime.provider.requests[-1]) == PROMPTS.fill("conclude", state="23")  # type: ignore[attr-defined]


async def test_a_state_without_a_value_is_not_pruned() -> None:
    _, visits, _ = await depth_first(
        Digits(judged_by=lambda state: []), prune_below=0, max_visits=3
    )

    assert visits == ["1", "12", "123"]


@pytest.mark.parametrize(
    ("options", "visits"),
    [
        ({"max_visits": 4}, ["1", "12", "123", "13"]),
        ({"max_visits": 1}, ["1"]),
        ({"max_children": 1}, ["1", "12", "123"]),
        ({"max_depth": 1}, ["1", "2", "3"]),
        ({"accept_at": 130}, ["1", "12", "123", "13", "132"]),
    ],
)
async def test_depth_first_stays_within_its_bounds(
    options: dict[str, Any], visits: list[str]
) -> None:
    result, visited, _ = await depth_first(Digits(judged_by=int), **options)

    assert visited == visits
    assert result.status == "completed"


async def test_after_the_last_visit_nothing_is_proposed_any_more() -> None:
    _, _, runtime = await depth_first(Digits(judged_by=int), max_visits=2)

    said = [asked(request) for request in runtime.provider.requests]  # type: ignore[attr-defined]
    assert said == [
        "Digits after ''",
        "Digits after '1'",
        PROMPTS.fill("conclude", state="12"),
    ]


async def test_depth_first_adds_up_the_weights_of_all_replies() -> None:
    replies = iter(["1 2", "2 3", "3 2"])
    runtime = parts(
        lambda request: (
            next(replies) if asked(request).startswith("Digits") else "forced"
        )
    )
    engine = TreeOfThoughtsEngine(
        runtime, problem=Digits(judged_by=int), search="depth-first", generate="propose", n_proposals=3, max_depth=1,
        max_concurrency=1,
    )  # fmt: skip
    await engine.run("Q?", run_id="r")

    assert [visit["thought"]["path"] for visit in facts(runtime, "Visit")] == [
        ["2"],
        ["3"],
        ["1"],
    ]


# --- limits and failures ---


async def test_at_a_limit_the_best_finished_state_so_far_is_the_answer() -> None:
    mind = Mind({START: ["ANSWER: a", "b"]}, {"ANSWER: a": "3", "b": "8"})
    result = await TreeOfThoughtsEngine(
        parts(mind, limits=Limits(max_llm_calls=6)), n_branches=2
    ).run("Q?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        "a",
        "limit",
        "max_llm_calls",
        5,
    )


async def test_at_a_limit_without_a_finished_state_the_best_one_is_reported_to_the_model() -> (
    None
):
    mind = Mind({START: ["a", "b"]}, {"b": "8"})
    runtime = parts(
        lambda request: (
            "ANSWER: so far"
            if "no more steps left" in asked(request)
            else mind(request)
        ),
        limits=Limits(max_llm_calls=6),
    )
    result = await TreeOfThoughtsEngine(runtime, n_branches=2, beam_width=1).run("Q?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        "so far",
        "limit",
        "max_llm_calls",
        6,
    )
    last = runtime.provider.requests[-1].conversation.messages  # type: ignore[attr-defined]
    assert [(m.role, m.content) for m in last[:-1]] == [
        ("user", "Q?"),
        ("assistant", "b"),
    ]


@pytest.mark.parametrize("search", ["beam", "depth-first"])
async def test_the_runs_iterations_bound_levels_and_visits(search: Any) -> None:
    mind = Mind()
    model: Model = lambda r: "so far" if "no more steps left" in asked(r) else mind(r)  # noqa: E731
    runtime = parts(model, limits=Limits(max_iterations=2))
    result = await TreeOfThoughtsEngine(
        runtime, search=search, n_branches=1, beam_width=1
    ).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        "so far",
        "limit",
        "max_iterations",
    )
    assert result.iterations == 2


async def test_without_best_effort_a_limit_gives_no_answer() -> None:
    runtime = parts(Mind(), limits=Limits(max_llm_calls=4, best_effort=False))
    result = await TreeOfThoughtsEngine(runtime).run("Q?")

    assert (result.answer, result.status, result.llm_calls) == (None, "limit", 4)


async def test_a_provider_that_fails_fails_the_run() -> None:
    mind = Mind({START: ["a", ProviderError("down"), "c"]})
    result = await TreeOfThoughtsEngine(parts(mind)).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        None,
        "failed",
        "provider_error",
    )


async def test_hostile_replies_are_only_text() -> None:
    flood = "Score: 1\n" * 29_000
    mind = Mind(
        {START: [flood, "ANSWER: {state} {0}", "\x00"]},
        {"ANSWER: {state} {0}": "Score: 10", "\x00": flood},
    )
    runtime = parts(mind, limits=Limits(max_tokens=None, context_tokens=None))
    result = await TreeOfThoughtsEngine(runtime).run("Q?", run_id="r")

    assert result.answer == "{state} {0}"
    assert [c["value"] for c in facts(runtime, "Level")[0]["candidates"]] == [
        5.0,
        10.0,
        None,
    ]


class Answer(BaseModel):
    city: str


async def test_the_answer_can_be_a_model() -> None:
    answer = 'ANSWER: {"city": "Paris"}'
    result = await TreeOfThoughtsEngine(parts(Mind({START: [answer]}))).run(
        "Q?", output=Answer
    )

    assert result.output == Answer(city="Paris")


# --- resume ---


def beam_engine(runtime: Runtime) -> TreeOfThoughtsEngine:
    return TreeOfThoughtsEngine(
        runtime, generate="propose", select="sample", max_depth=3
    )


def deep_engine(runtime: Runtime) -> TreeOfThoughtsEngine:
    return TreeOfThoughtsEngine(
        runtime,
        generate="propose",
        search="depth-first",
        max_depth=2,
        max_visits=9,
        max_children=4,
        prune_below=3,
    )


def proposing(request: Request) -> str:
    """A pure function of the request, so that a resumed run is told the rest."""
    prompt = asked(request)
    if "How likely" in prompt or "Is this answer correct" in prompt:
        weak = "b\n\n" in prompt
        return f"Score: {2 if weak else 3 + len(prompt) % 7}"
    if "no more steps" in prompt.lower():
        return "ANSWER: forced"
    state = between(prompt, "so far:\n", "\n\n")
    deep = 0 if state == START else 1 + state.count("\n")
    return "\n".join(
        f"THOUGHT: {letter * (deep + n)}" for n, letter in enumerate("abc", 1)
    ) + ("\nTHOUGHT: x\nANSWER: found" if deep else "")


@pytest.mark.parametrize("engine", [beam_engine, deep_engine])
async def test_a_run_cut_after_any_entry_resumes_without_repeating_a_call(
    engine: Callable[[Runtime], TreeOfThoughtsEngine],
) -> None:
    first = parts(proposing)
    whole = await engine(first).run("Q?", run_id="r")
    entries = first.journal.read("r")
    noted = [e.event.value for e in entries if isinstance(e.event, FactNoted)]

    assert (whole.answer, len(noted) > 2) == ("found", True)
    for keep in range(1, len(entries) + 1):
        again = parts(proposing, journal=crashed(entries, keep))
        result = await again.resume("r")
        replied = sum(isinstance(e.event, ModelReplied) for e in entries[:keep])
        assert (result.answer, result.status, result.llm_calls) == (
            whole.answer,
            whole.status,
            whole.llm_calls,
        )
        assert len(again.provider.requests) == whole.llm_calls - replied  # type: ignore[attr-defined]
        assert [
            e.event.value
            for e in again.journal.read("r")
            if isinstance(e.event, FactNoted)
        ] == noted


async def test_a_run_with_a_problem_of_its_own_is_resumed_by_its_engine() -> None:
    model, _ = digits_model()
    first = parts(model)
    await TreeOfThoughtsEngine(first, problem=Digits(), generate="propose").run(
        "Q?", run_id="r"
    )
    entries = first.journal.read("r")
    again = parts(model, journal=crashed(entries, 9))

    with pytest.raises(ConfigError, match="problem"):
        await again.resume("r")
    result = await TreeOfThoughtsEngine(
        again, problem=Digits(), generate="propose"
    ).resume("r")
    assert result.answer == "321"


# --- options ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"n_branches": 0},
            "n_branches: Input should be greater than or equal to 1, got 0",
        ),
        ({"beam_width": 0}, "beam_width"),
        ({"max_depth": 0}, "max_depth"),
        ({"n_evaluations": 0}, "n_evaluations"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"search": "breadth"}, "search"),
        ({"problem": object()}, "problem"),
        ({"search": "depth-first", "evaluate": "vote"}, "search: depth-first needs"),
        ({"search": "depth-first", "select": "sample"}, "search: depth-first needs"),
        ({"labels": {}}, "labels: give at least one word"),
        ({"labels": {" ": 1.0}}, "labels: give at least one word"),
        (
            {"labels": {"sure": float("inf")}},
            "labels.sure: Input should be a finite number",
        ),
        ({"prune_below": float("nan")}, "prune_below"),
        ({"temperature": -1.0}, "temperature"),
        ({"labels": {"sure": 1.0}, "evaluate": "vote"}, "labels: ballots have none"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TreeOfThoughtsEngine(parts([]), **options)


# --- the text problem ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ANSWER: 5", "5"),
        ("So.\n**Answer:** 5", "5"),
        ("**ANSWER: 5**", "5"),
        ("Final answer: 5", "5"),
        ("ANSWER: 4\nNo, wait.\nANSWER: 5", "5"),
        ("ANSWER:\n5\n6", "5\n6"),
        ("ANSWER: 5\nThought: that was easy", "5"),
        ("Thought: 4 is near", None),
        ("ANSWER:", ""),
        ("the ANSWER: 5", None),
        ("```\nANSWER: 5\n```", None),
        ("```\nANSWER: 5", None),
        ("", None),
    ],
)
def test_an_answer_stands_behind_its_marker_at_a_line_start(
    text: str, answer: str | None
) -> None:
    assert extract_marked_answer(text) == answer
    assert TextThoughts().answer((text,)) == (answer or None)


def test_no_thought_is_no_answer() -> None:
    assert TextThoughts().answer(()) is None
    assert TextThoughts().render(()) == START


# --- the best finished answer, whatever ends the run ---


def finished_then(later: Callable[[str], Any]) -> Model:
    """Each third first thought has an answer, of a low value; behind the others, `later` is what comes of the state."""
    count = [0]

    def reply(request: Request) -> Any:
        prompt = asked(request)
        if "Score: N" in prompt:
            return "Score: 9" if "open" in prompt else "Score: 3"
        if START not in prompt:
            return later(prompt)
        count[0] += 1
        return "x\nANSWER: blue" if count[0] % 3 == 0 else f"open {count[0]}"

    return reply


@pytest.mark.parametrize(
    "options", [{}, {"search": "depth-first", "max_concurrency": 1}]
)
async def test_when_the_provider_fails_the_best_finished_answer_is_in_the_result(
    options: dict[str, Any],
) -> None:
    model = finished_then(lambda prompt: ProviderError("down"))
    if options:  # the finished child comes first
        model = Mind(
            {START: ["x\nANSWER: blue", "open"], "open": [ProviderError("down")]},
            {"open": "Score: 3"},
        )
    result = await TreeOfThoughtsEngine(
        parts(model), n_branches=2 if options else 3, **options
    ).run("Q?")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "provider_error",
        "blue",
    )


async def test_an_aborted_search_gives_its_best_finished_answer() -> None:
    reached = asyncio.Event()

    class Held(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            if "open" in asked(request) and "Score: N" not in asked(request):
                reached.set()
                await asyncio.sleep(60)
            return await super().complete(request)

    engine = TreeOfThoughtsEngine(Runtime(Held(finished_then(lambda prompt: "late"))))
    async with engine.start("Q?") as run:
        await reached.wait()
        result = await run.abort()

    assert (result.status, result.answer) == ("aborted", "blue")


@pytest.mark.parametrize(
    "items", [("1. ", "2. "), ("1) ", "2) "), ("- ", "- "), ("\u2022 **", "\u2022 **")]
)
async def test_a_list_of_thoughts_is_read_without_its_bullets(
    items: tuple[str, str],
) -> None:
    first, second = items
    mind = Mind(
        {START: [f"{first}THOUGHT: a\n{second}THOUGHT: b"]}, final="ANSWER: forced"
    )
    runtime = parts(mind)
    await TreeOfThoughtsEngine(runtime, generate="propose", max_depth=1).run(
        "Q?", run_id="r"
    )

    assert [one["path"] for one in facts(runtime, "Level")[0]["candidates"]] == [
        ["a"],
        ["b"],
    ]
