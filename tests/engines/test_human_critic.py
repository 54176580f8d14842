"""A person as critic: a typed question with a deadline, durable, and a fallback where it is over."""

from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, Request, Result, Runtime
from loopwright.engines import DirectorCriticEngine, HumanCritic, LlmCritic
from loopwright.errors import QuestionExpired
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider

HOUR = 3600.0


def model(request: Request) -> str:
    """Drafts by the number of drafts before; a review where one is asked for."""
    if request.schema is not None:
        return '{"feedback": "Fine for a model.", "score": 0.95}'
    return f"draft {1 + sum(m.role == 'assistant' for m in request.conversation)}"


def make(folder: Path, clock: FakeClock | None = None) -> Runtime:
    """A new process, on the same file."""
    journal = SQLiteJournal(folder / "runs.db")
    return Runtime(ScriptedProvider(model), journal=journal, clock=clock)


async def start(runtime: Runtime, **options: Any) -> Result:
    critic = HumanCritic(**options.pop("critic", {}))
    engine = DirectorCriticEngine(runtime, critic=critic, **options)
    return await engine.run("Write a slogan.", run_id="r")


def reviews(result: Result, *fields: str) -> list[tuple[Any, ...]]:
    found: list[Any] = [f.value for f in result.facts if f.name == "DraftReview"]
    return [tuple(value[field] for field in fields) for value in found]


async def test_a_person_reviews_each_draft_while_no_process_waits(
    tmp_path: Path,
) -> None:
    async with make(tmp_path) as first:
        waiting = await start(first)
        [asked] = waiting.pending
    async with make(tmp_path) as second:
        await second.control("r").answer(
            '{"score": 0.4, "feedback": "Funnier."}', by="Ada"
        )
        waiting = await second.resume("r")
    async with make(tmp_path) as third:
        await third.control("r").answer('{"score": 0.9}', by="Ada")
        result = await third.resume("r")
    senders = [e.event.body["by"] for e in third.journal.read("r") if e.kind == "command_received"]  # type: ignore[union-attr] # fmt: skip

    assert "Please review draft 1 for the task: Write a slogan.\n\ndraft 1" in asked.text  # fmt: skip
    assert 'Answer as JSON, such as {"score": 0.8, "feedback"' in asked.text
    assert result.answer == "draft 2"
    assert reviews(result, "reviewer", "critic", "score", "feedback") == [
        ("human", "a person", 0.4, "Funnier."),
        ("human", "a person", 0.9, ""),
    ]
    assert senders == ["Ada", "Ada"]


async def test_the_director_reads_what_the_person_wrote(tmp_path: Path) -> None:
    async with make(tmp_path) as runtime:
        await start(runtime)
        await runtime.control("r").answer('{"score": 0.4, "feedback": "Funnier."}')
        await runtime.resume("r")
        provider: Any = runtime.provider
        asked: Any = provider.requests[-1].conversation.messages

    assert "Verdict: not approved, score 0.40\nReview: Funnier." in asked[-1].content


MALFORMED: list[tuple[dict[str, Any], dict[str, str], str]] = [
    (
        {},
        {
            "nice": "object",
            '{"score": 8}': "score: 8 is greater than the maximum of 1",
            '{"feedback": "x"}': "'score' is a required property",
            '{"score": 1, "stars": 5}': "stars",
        },
        '{"score": 1}',
    ),
    (
        {"mode": "binary"},
        {"yes": "object", '{"approved": "perhaps"}': "approved: "},
        '{"approved": true}',
    ),
    (
        {"mode": "rubric", "rubric": {"plain words": 0.5, "wit": 0.5}},
        {
            '{"scores": {"wit": 1}}': "scores: 'plain words' is a required",
            '{"scores": {"plain words": 1, "wit": -1}}': "scores/wit: -1 is less than",
        },
        '{"scores": {"plain words": 1, "wit": 0.8}}',
    ),
]


@pytest.mark.parametrize(
    ("options", "refused", "accepted"), MALFORMED, ids=["score", "binary", "rubric"]
)
async def test_a_malformed_review_is_an_error_to_the_person_alone(
    options: dict[str, Any], refused: dict[str, str], accepted: str, tmp_path: Path
) -> None:
    async with make(tmp_path) as runtime:
        await start(runtime, **options)
        before = len(runtime.journal.read("r"))
        for text, problem in refused.items():
            with pytest.raises(ConfigError) as caught:
                await runtime.control("r").answer(text)
            assert problem in str(caught.value)
        assert len(runtime.journal.read("r")) == before
        await runtime.control("r").answer(accepted)
        result = await runtime.resume("r")

    assert (result.answer, len(reviews(result, "score"))) == ("draft 1", 1)


async def test_a_review_that_is_late_fails_the_run_with_the_best_draft(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with make(tmp_path, clock) as runtime:
        await start(runtime, critic={"expires": HOUR})
        clock.advance(HOUR + 1)
        with pytest.raises(ConfigError, match="until its time was over"):
            await runtime.control("r").answer('{"score": 1}')
        result = await runtime.resume("r")

    assert isinstance(result.error, QuestionExpired)
    assert (result.status, result.answer) == ("failed", "draft 1")


async def test_a_review_that_is_late_is_given_by_the_fallback(tmp_path: Path) -> None:
    clock = FakeClock()
    async with make(tmp_path, clock) as runtime:
        fallback = LlmCritic()
        await start(runtime, critic={"expires": HOUR, "fallback": fallback})
        clock.advance(HOUR + 1)
        result = await runtime.resume("r")

    assert result.status == "completed"
    assert reviews(result, "reviewer", "critic", "score") == [
        ("llm", "scripted/script", 0.95)
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"expires": 0}, "expires: must be a number of seconds over 0, or None, got 0"),
        ({"fallback": LlmCritic()}, "fallback: is for a review that is late"),
        ({"prompts": {"review": "Hm?"}}, "prompt 'review'"),
    ],
)
def test_a_bad_option_of_a_human_critic_is_refused_by_name(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        HumanCritic(**options)

    assert problem in str(caught.value)
