"""Director and critic: drafts, reviews and how the rounds end, as conversations."""

import json
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    LoopEngine,
    MemoryJournal,
    ProviderError,
    Result,
    Runtime,
)
from loopwright.engines import (
    AdaptiveBreak,
    DirectorCriticEngine,
    FixedRounds,
    LlmCritic,
    ScoreThreshold,
)
from loopwright.engines.reviews import hash_draft
from loopwright.events import ModelRequested, RunStarted
from loopwright.testing import ScriptedProvider, crashed


def scored(score: float, feedback: str = "Say more.") -> str:
    """A critic's reply with a score."""
    return json.dumps({"feedback": feedback, "score": score})


def run(*script: Any, **options: Any) -> tuple[Result, ScriptedProvider]:
    """Run the engine on a model that says these things."""
    model = ScriptedProvider(list(script))
    engine = Runtime(model).engine("director-critic", **options)
    return engine.run_sync("Describe the Dom.", run_id="r"), model


def facts(result: Result, name: str, *fields: str) -> list[Any]:
    """These fields of each fact of a name."""
    found: list[Any] = [fact.value for fact in result.facts if fact.name == name]
    return [tuple(value[field] for field in fields) for value in found]


def test_a_draft_is_revised_by_its_review_until_it_is_good_enough() -> None:
    result, model = run(
        "A mountain.",
        scored(0.3, "Say where it is."),
        "A mountain in Switzerland.",
        scored(0.8, "Good."),
    )
    revision = [message.content for message in model.requests[2].conversation]

    assert (result.answer, result.status) == ("A mountain in Switzerland.", "completed")
    assert revision[:2] == ["Describe the Dom.", "A mountain."]
    assert "Verdict: not approved, score 0.30\nReview: Say where it is." in revision[2]
    assert facts(result, "DraftReview", "round", "draft", "score", "approved") == [
        (1, hash_draft("A mountain."), 0.3, False),
        (2, hash_draft("A mountain in Switzerland."), 0.8, True),
    ]
    assert facts(result, "DraftChosen", "round", "score", "approved", "reason") == [
        (2, 0.8, True, "target_reached")
    ]


def test_the_best_draft_is_the_answer_and_what_is_revised_not_the_last() -> None:
    result, model = run(
        "good", scored(0.6, "Shorter."), "bad", scored(0.2, "Too short."), "bad too", scored(0.5)
    )  # fmt: skip
    third = [message.content for message in model.requests[4].conversation]

    assert (result.answer, result.llm_calls) == ("good", 6)
    assert third[1] == "good"
    assert "Review: Shorter." in third[2]
    assert "An earlier revision of it was worse" in third[2]
    assert "Review: Too short." in third[2]
    assert facts(result, "DraftChosen", "round", "approved", "reason") == [
        (1, False, "max_rounds")
    ]


@pytest.mark.parametrize(
    ("convergence", "scores", "rounds", "reason"),
    [
        (FixedRounds(2), [1.0, 0.1], 2, "rounds_done"),
        (AdaptiveBreak(2, 5, 0.1), [0.5, 0.55], 2, "no_improvement"),
        (AdaptiveBreak(2, 5, 0.1), [0.5, 0.6, 0.7, 0.79], 4, "no_improvement"),
        (AdaptiveBreak(3, 5, 0.1), [0.5, 0.5, 0.5], 3, "no_improvement"),
        (AdaptiveBreak(1, 5, 0.1), [1.0], 1, "target_reached"),
        (AdaptiveBreak(1, 2, 0.1), [0.1, 0.5], 2, "max_rounds"),
        (ScoreThreshold(0.9, 3), [0.8, 0.9], 2, "target_reached"),
        (ScoreThreshold(0.9, 2), [0.8, 0.85], 2, "max_rounds"),
        (None, [0.69, 0.7], 2, "target_reached"),
    ],
)
def test_the_rounds_end_as_the_convergence_says(
    convergence: Any, scores: list[float], rounds: int, reason: str
) -> None:
    script = [line for at, score in enumerate(scores) for line in (str(at), scored(score))]  # fmt: skip
    result, _ = run(*script, convergence=convergence)

    assert len(facts(result, "DraftReview", "round")) == rounds
    assert facts(result, "DraftChosen", "reason") == [(reason,)]


def test_a_rubric_weighs_the_scores_of_its_criteria() -> None:
    review = {"feedback": "Sources?", "scores": {"truth": 0.5, "plain words": 1.0}}
    result, model = run(
        "draft",
        json.dumps(review),
        mode="rubric",
        rubric={"truth": 0.6, "plain words": 0.4},
        convergence=FixedRounds(1),
    )
    [fact] = [fact.value for fact in result.facts if fact.name == "DraftReview"]

    assert "- truth (60%)\n- plain words (40%)" in str(model.requests[1].conversation.messages[-1].content)  # fmt: skip
    assert isinstance(fact, dict)
    assert fact["dimensions"] == {"truth": 0.5, "plain words": 1.0}
    assert fact["weights"] == {"truth": 0.6, "plain words": 0.4}
    assert (fact["score"], fact["approved"]) == (0.7, True)


def test_a_binary_critic_approves_or_goes_on() -> None:
    no, yes = (
        json.dumps({"feedback": "More.", "approved": approved})
        for approved in (False, True)
    )
    result, _ = run("one", no, "two", yes, mode="binary")

    assert result.answer == "two"
    assert facts(result, "DraftReview", "score", "approved") == [(0.0, False), (1.0, True)]  # fmt: skip


def test_a_review_that_cannot_be_read_is_no_score_and_asked_for_again() -> None:
    result, model = run("draft", *["Nice!"] * 3, scored(0.9))

    assert (result.answer, result.llm_calls) == ("draft", 5)
    assert facts(result, "DraftReview", "score", "approved") == [(None, False), (0.9, True)]  # fmt: skip
    [problem] = facts(result, "DraftReview", "problem")[0]
    assert "no valid ScoredReview after 2 repairs" in problem
    assert [r.conversation.messages[1].content for r in model.requests[1:]] == [
        "draft"
    ] * 4


def test_a_missing_score_is_never_made_up() -> None:
    """A field that the critic leaves out is asked for, where others take 0.0 or "not approved"."""
    result, model = run("draft", '{"feedback": "Fine."}', scored(1.0))

    assert result.answer == "draft"
    assert "score: required" in model.requests[2].conversation.messages[-1].content
    assert facts(result, "DraftReview", "score") == [(1.0,)]


def test_defaults_are_threshold_07_three_rounds_and_temperature_07() -> None:
    """Symbiont's pipeline: director temperature 0.7, mode score, threshold 0.7."""
    result, model = run(*["draft", scored(0.6)] * 3)
    drafts, reviews = model.requests[::2], model.requests[1::2]

    assert facts(result, "DraftReview", "mode", "threshold") == [("score", 0.7)] * 3
    assert [request.sampling.temperature for request in drafts] == [0.7] * 3
    assert [request.sampling.temperature for request in reviews] == [None] * 3


def test_a_critic_of_another_model_is_named_in_its_reviews() -> None:
    critic = ScriptedProvider([scored(0.9)])
    runtime = Runtime(ScriptedProvider(["draft"]), providers={"judge": critic})
    engine = DirectorCriticEngine(runtime, critic=LlmCritic(provider="judge"))
    result = engine.run_sync("Write.")

    assert len(critic.requests) == 1
    assert facts(result, "DraftReview", "reviewer", "critic") == [
        ("llm", f"{critic.name}/{critic.model}")
    ]


def test_a_draft_that_the_critic_s_provider_refuses_is_an_unjudged_answer() -> None:
    refusal = ProviderError("401: the key is not valid", retryable=False)
    critic = ScriptedProvider([scored(0.5, "Longer."), *[refusal] * 5])
    director = ScriptedProvider(["draft", "longer draft", "draft"])
    runtime = Runtime(director, providers={"judge": critic})
    engine = DirectorCriticEngine(runtime, critic=LlmCritic(provider="judge"))
    partly = engine.run_sync("Write.")

    assert (partly.status, partly.answer, partly.error) == ("completed", "draft", None)
    assert facts(partly, "DraftReview", "score", "approved") == [
        (0.5, False), (None, False), (None, False)
    ]  # fmt: skip
    assert [r.conversation.messages[1].content for r in critic.requests[1:]] == ["longer draft"] * 2  # fmt: skip

    never = engine.run_sync("Write.")

    assert (never.status, never.answer) == ("completed", "draft")
    assert facts(never, "DraftReview", "problem")[-1] == ("401: the key is not valid",)
    assert facts(never, "DraftChosen", "score", "approved", "reason") == [(None, False, "max_rounds")]  # fmt: skip


def test_an_agent_directs_in_its_own_words() -> None:
    model = ScriptedProvider(["Ahoy.", scored(0.9)])
    runtime = Runtime(model)
    runtime.agent("pirate", instructions="You are a pirate.")
    result = runtime.engine("director-critic", director="pirate").run_sync("Greet.")

    assert result.answer == "Ahoy."
    assert model.requests[0].system == "You are a pirate."
    assert model.requests[1].system == ""


def test_at_a_limit_the_best_draft_is_the_answer() -> None:
    model = ScriptedProvider(["good", scored(0.6), "worse", scored(0.1)])
    from_limit = Runtime(model)
    engine = from_limit.engine("director-critic")
    result = engine.run_sync("Write.", sampling=engine.sampling)

    assert result.status == "failed"  # the script has no fifth line
    assert result.answer == "good"


OPTIONS: dict[str, Any] = {
    "mode": "rubric",
    "rubric": {"a": 0.5, "b": 0.5},
    "critic": LlmCritic(provider="judge", temperature=0.0),
    "convergence": AdaptiveBreak(1, 2, 0.2),
}


async def test_options_are_data_from_which_a_runtime_resumes_the_run() -> None:
    review = json.dumps({"feedback": "No.", "scores": {"a": 0.1, "b": 0.2}})

    def make(drafts: list[str], reviews: list[str], journal: MemoryJournal) -> Runtime:
        director, judge = (
            ScriptedProvider(list(drafts)),
            ScriptedProvider(list(reviews)),
        )
        return Runtime(director, providers={"judge": judge}, journal=journal)

    runtime = make(["one", "two"], [review] * 2, MemoryJournal())
    director = runtime.engine("react", max_iterations=3)
    engine: LoopEngine = runtime.engine("director-critic", director=director, **OPTIONS)
    whole = await engine.run("Write.", run_id="r")
    entries = runtime.journal.read("r")
    started = entries[0].event
    assert isinstance(started, RunStarted)
    assert started.opaque == ()
    for keep in range(1, len(entries)):
        replied = [
            entry.event.purpose == "review"
            for entry in entries[:keep]
            if isinstance(entry.event, ModelRequested)
        ]
        replies = sum(entry.kind == "model_replied" for entry in entries[:keep])
        done = replied[:replies]
        left = ["one", "two"][done.count(False) :]
        again = make(left, [review] * (2 - done.count(True)), crashed(entries, keep))
        result = await again.resume("r")

        assert (result.answer, result.facts) == (whole.answer, whole.facts)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"mode": "rubric", "rubric": {"a": 0.5, "b": 0.4}},
            "must add up to 1 (within 0.01), got 0.9; change one",
        ),
        (
            {"mode": "rubric"},
            'rubric: mode="rubric" needs weights by criterion, got none',
        ),
        (
            {"rubric": {"a": 1.0}},
            "rubric: is read with mode=\"rubric\" alone, got mode='score'",
        ),
        (
            {"mode": "rubric", "rubric": {"a": 1.5, "b": -0.5}},
            "rubric: the weight of 'a' must be over 0 and at most 1",
        ),
        (
            {"mode": "rubric", "rubric": {" ": 1.0}},
            "rubric: a criterion needs a name in words, got ' '",
        ),
        ({"threshold": 7}, "threshold: "),
        ({"mode": "stars"}, "mode: "),
        (
            {"critic": LlmCritic(provider="judge")},
            "critic.provider: 'judge' is not among",
        ),
        ({"critic": {"kind": "oracle"}}, "critic"),
        ({"convergence": {"kind": "for-ever"}}, "convergence"),
        ({"director": "nobody"}, ""),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    if (
        not problem
    ):  # an agent may be defined later: it is looked for when the run begins
        result, model = run(**options)
        assert "director: must be an agent of the runtime, which has none, got 'nobody'" in str(result.error)  # fmt: skip
        assert (result.status, len(model.requests)) == ("failed", 0)
        return
    with pytest.raises(ConfigError) as caught:
        run(**options)

    assert problem in str(caught.value)


def test_a_weight_sum_within_one_hundredth_is_accepted() -> None:
    engine = Runtime(ScriptedProvider([])).engine(
        "director-critic", mode="rubric", rubric={"a": 0.333, "b": 0.333, "c": 0.333}
    )

    assert isinstance(engine, DirectorCriticEngine)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: FixedRounds(0), "rounds: must be a whole number of at least 1, got 0"),
        (lambda: AdaptiveBreak(3, 2), "min: must be at most max=2, got 3"),
        (lambda: AdaptiveBreak(improvement=2), "improvement: must be a number from 0"),
        (lambda: ScoreThreshold(float("nan")), "target: must be a number from 0 to 1"),
    ],
)
def test_a_bad_convergence_is_refused_by_name(make: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()

    assert problem in str(caught.value)
