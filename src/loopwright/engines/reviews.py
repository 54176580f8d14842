"""Reviews of drafts: what a critic is asked, by a model or a person, and the fact that its review is."""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from ..errors import (
    AskFailed,
    ConfigError,
    ProviderError,
    QuestionExpired,
    Unreadable,
)
from ..prompts import PromptSet
from ..run import Run, Sampling

Mode: TypeAlias = Literal["score", "binary", "rubric"]
"""What a review says beside its feedback: a score, whether the draft is approved, or a score for each criterion."""
TOLERANCE = 0.01  # of the sum of weights

PROMPTS = PromptSet(
    score="""\
You are a critic. Review your text above against the task, as a reader would who has to use it.
Say first what is wrong or missing and how to repair it, concretely. Then give a score from 0 (useless) to 1 (nothing \
to change).""",
    binary="""\
You are a critic. Review your text above against the task, as a reader would who has to use it.
Say first what is wrong or missing and how to repair it, concretely. Then say whether it is approved as it stands.""",
    rubric="""\
You are a critic. Review your text above against the task, by each of these criteria:
{criteria}

Say first what is wrong or missing and how to repair it, concretely. Then give each criterion a score from 0 (not met) \
to 1 (fully met).""",
)
QUESTION = PromptSet(
    review="""\
Please review draft {round} for the task: {task}

{draft}

{criteria}Answer as JSON, such as {example}""",
)


@dataclasses.dataclass(frozen=True)
class DraftReview:
    """Fact: the review of the draft of a round.

    `draft` is the SHA-256 (hex) of the draft's text, `critic` the model or "a person", `dimensions` the scores by
    criterion and `weights` their weights. `score` is `None`, and `problem` says why, where the critic gave no review
    that could be used; then nothing is approved.
    """

    round: int
    draft: str
    reviewer: Literal["llm", "human"]
    critic: str
    mode: Mode
    approved: bool
    score: float | None
    threshold: float
    dimensions: Mapping[str, float]
    weights: Mapping[str, float]
    feedback: str
    problem: str = ""


class _Reviewed(BaseModel):
    """What a critic replies; the feedback is first, so that a model reasons before it judges."""

    model_config = ConfigDict(extra="forbid")


class PersonalScore(BaseModel):
    """A person's review by a score; remarks may be left out."""

    model_config = ConfigDict(extra="forbid")
    score: float = Field(ge=0, le=1, description="from 0 to 1")
    feedback: str = ""


class PersonalVerdict(BaseModel):
    """A person's review that approves or does not; remarks may be left out."""

    model_config = ConfigDict(extra="forbid")
    approved: bool
    feedback: str = ""


class ScoredReview(_Reviewed):
    """A review by a score."""

    feedback: str = Field(description="what to change, concretely")
    score: float = Field(ge=0, le=1, description="from 0 to 1")


class BinaryReview(_Reviewed):
    """A review that approves or does not."""

    feedback: str = Field(description="what to change, concretely")
    approved: bool


@dataclasses.dataclass(frozen=True)
class Criteria:
    """By what a draft is reviewed.

    Args:
        mode: "score", "binary" or "rubric".
        threshold: the score from which a draft is approved.
        rubric: the weights by criterion, which add up to 1.
    """

    mode: Mode
    threshold: float
    rubric: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.mode != "rubric":
            if self.rubric:
                raise ConfigError(
                    f'rubric: is read with mode="rubric" alone, got mode={self.mode!r}; leave one of them out'
                )
            return
        if not self.rubric:
            raise ConfigError(
                'rubric: mode="rubric" needs weights by criterion, got none; for example {"clarity": 0.4, "truth": 0.6}'
            )
        for name, weight in self.rubric.items():
            _check_criterion(name, weight)
        total = math.fsum(self.rubric.values())
        if abs(total - 1) > TOLERANCE:
            raise ConfigError(
                f"rubric: the weights must add up to 1 (within {TOLERANCE:g}), got {total:g}; change one of them"
            )

    @property
    def answer_type(self) -> type[BaseModel]:
        """What a model replies."""
        if self.mode == "rubric":
            return _build_rubric_type(tuple(self.rubric))
        return ScoredReview if self.mode == "score" else BinaryReview

    @property
    def personal_type(self) -> type[BaseModel]:
        """What a person answers."""
        if self.mode == "rubric":
            return _build_rubric_type(tuple(self.rubric), is_personal=True)
        return PersonalScore if self.mode == "score" else PersonalVerdict

    @property
    def example(self) -> str:
        """An answer of a person, as JSON."""
        values: dict[Mode, dict[str, object]] = {
            "score": {"score": 0.8},
            "binary": {"approved": False},
            "rubric": {"scores": dict.fromkeys(self.rubric, 0.8)},
        }
        answer = {**values[self.mode], "feedback": "What to change."}
        return json.dumps(answer, ensure_ascii=False)

    def list_criteria(self) -> str:
        """Return the criteria with their weights, one a line."""
        return "\n".join(f"- {name} ({w:.0%})" for name, w in self.rubric.items())

    def judge(self, reply: Any, review: DraftReview) -> DraftReview:
        """Return a review with what a critic replied."""
        dimensions: dict[str, float] = {}
        if self.mode == "binary":
            score = 1.0 if reply.approved else 0.0
            is_approved = bool(reply.approved)
        else:
            score = getattr(reply, "score", 0.0)
            if self.mode == "rubric":
                dimensions = reply.scores.model_dump(by_alias=True)
                score = self._weigh(dimensions)
            score = round(score, 6)
            is_approved = score >= self.threshold
        return dataclasses.replace(
            review,
            approved=is_approved,
            score=score,
            dimensions=dimensions,
            feedback=reply.feedback.strip(),
        )

    def _weigh(self, scores: Mapping[str, float]) -> float:
        """Return the mean of scores by their weights, which may add up to a little less than 1."""
        weighed = (weight * scores[name] for name, weight in self.rubric.items())
        return math.fsum(weighed) / math.fsum(self.rubric.values())


def _check_criterion(name: str, weight: float) -> None:
    if not name.strip() or name.startswith("_"):
        raise ConfigError(f"rubric: a criterion needs a name in words, got {name!r}; rename it")  # fmt: skip
    if not 0 < weight <= 1:
        raise ConfigError(
            f"rubric: the weight of {name!r} must be over 0 and at most 1, got {weight!r}; change it"
        )


@functools.lru_cache(maxsize=64)
def _build_rubric_type(
    names: tuple[str, ...], *, is_personal: bool = False
) -> type[BaseModel]:
    """Return the type of a review with a score for each criterion."""
    build: Any = create_model  # its overloads cannot express "fields of any name"
    config = ConfigDict(extra="forbid", serialize_by_alias=True)
    fields = {
        f"criterion_{number}": (float, Field(alias=name, ge=0, le=1))
        for number, name in enumerate(names)
    }
    scores = build("Scores", __config__=config, **fields)
    feedback = Field(
        default="" if is_personal else ..., description="what to change, concretely"
    )
    name = "PersonalRubric" if is_personal else "RubricReview"
    made = build(
        name, __config__=config, feedback=(str, feedback), scores=(scores, ...)
    )
    return cast("type[BaseModel]", made)


def hash_draft(draft: str) -> str:
    """Return the SHA-256 (hex) of a draft."""
    return hashlib.sha256(draft.encode("utf-8", "surrogatepass")).hexdigest()


@dataclasses.dataclass(frozen=True)
class LlmCritic:
    """A model reviews each draft.

    A reply that cannot be read is repaired at most twice; then the round has no score, and neither has one whose request
    the provider refuses. There is never a score that the model did not give.

    Args:
        provider: the model, one of `Runtime(providers=...)`; `None` is the engine's own.
        temperature: the temperature of its replies; `None` is the model's own.
        prompts: overrides of `score`, `binary` and `rubric`, which has {criteria}.
    """

    provider: str | None = None
    temperature: float | None = None
    prompts: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    kind: Literal["llm"] = "llm"

    def __post_init__(self) -> None:
        PROMPTS.override(**self.prompts)

    async def review(
        self, run: Run, draft: str, criteria: Criteria, review: DraftReview
    ) -> DraftReview:
        """Return the review of a draft: `review`, completed."""
        prompts = PROMPTS.override(**self.prompts)
        values = {"criteria": criteria.list_criteria()} if criteria.rubric else {}
        asked = run.conversation.assistant(draft, origin="model")
        try:
            reply = await run.ask(
                asked.user(prompts.fill(criteria.mode, **values)),
                into=criteria.answer_type,
                sampling=Sampling(temperature=self.temperature),
                provider=self.provider,
                purpose="review",
            )
        except (
            AskFailed,
            ProviderError,
            Unreadable,
        ) as failure:  # the draft stays, unjudged
            return dataclasses.replace(review, problem=str(failure))
        return criteria.judge(reply, review)


@dataclasses.dataclass(frozen=True)
class HumanCritic:
    """A person reviews each draft: the run waits for the answer, also after its process has ended.

    The answer is JSON, such as {"score": 0.8, "feedback": "Shorter."}. One that does not fit is an error to the person
    who answers, and never reaches the run. Without an answer in time the run fails with `QuestionExpired`, with the best
    draft so far as its answer, unless there is a fallback.

    Args:
        expires: seconds in which the review is to be given, by the wall clock; `None` is for ever.
        fallback: the critic that reviews a draft whose time is over.
        prompts: an override of `review`, which has {round}, {task}, {draft}, {criteria} and {example}.
    """

    expires: float | None = None
    fallback: LlmCritic | None = None
    prompts: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], hash=False
    )
    kind: Literal["human"] = "human"

    def __post_init__(self) -> None:
        QUESTION.override(**self.prompts)
        if self.expires is not None and not 0 < self.expires < math.inf:
            raise ConfigError(
                f"expires: must be a number of seconds over 0, or None, got {self.expires!r}"
            )
        if self.fallback is not None and self.expires is None:
            raise ConfigError(
                "fallback: is for a review that is late, and there is no time; give expires="
            )

    async def review(
        self, run: Run, draft: str, criteria: Criteria, review: DraftReview
    ) -> DraftReview:
        """Return the person's review of a draft, or that of the fallback: `review`, completed."""
        listed = f"{criteria.list_criteria()}\n\n" if criteria.rubric else ""
        question = QUESTION.override(**self.prompts).fill(
            "review", round=review.round, task=run.task, draft=draft, criteria=listed, example=criteria.example
        )  # fmt: skip
        into, expires = criteria.personal_type, self.expires
        try:
            reply = await run.ask_user(question, into=into, expires=expires)
        except QuestionExpired:
            if self.fallback is None:
                raise
            return await self.fallback.review(run, draft, criteria, review)
        personal = dataclasses.replace(review, reviewer="human", critic="a person")
        return criteria.judge(reply, personal)
