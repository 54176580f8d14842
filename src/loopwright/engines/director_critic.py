"""Director and critic: a director drafts, a critic reviews each draft, and the best one is the answer.

Self-Refine (Madaan et al., NeurIPS 2023, arXiv:2303.17651), with a reviewer that may be another model or a person.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from ..prompts import PromptSet
from ..run import Run, Sampling
from .assignee import Assignee, CompositeEngine, check_assignees, perform
from .convergence import (
    AdaptiveBreak,
    Convergence,
    FixedRounds,
    ScoreThreshold,
    Stop,
)
from .reviews import (
    Criteria,
    DraftReview,
    HumanCritic,
    LlmCritic,
    Mode,
    hash_draft,
)

PROMPTS = PromptSet(
    revise="""\
A reviewer has read your text above.

{review}
{lower}
Write the whole text again, improved as the review asks, and keep what is good. Reply with the text alone.""",
    lower="""
An earlier revision of it was worse ({review}). Take another way.
""",
)


@dataclasses.dataclass(frozen=True)
class DraftChosen:
    """Fact: which draft is the answer, with its score, and why there was no further round."""

    round: int
    score: float | None
    approved: bool
    reason: Stop


@dataclasses.dataclass(frozen=True)
class Draft:
    """A draft with its review."""

    text: str
    review: DraftReview

    @property
    def rank(self) -> tuple[bool, float, int]:
        """What the best draft has most of: approved ranks first, then the score, then the later round."""
        score = -math.inf if self.review.score is None else self.review.score
        return self.review.approved, score, self.review.round

    def describe_review(self) -> str:
        """Return the review as the director reads it."""
        review = self.review
        verdict = "approved" if review.approved else "not approved"
        lines = [f"Verdict: {verdict}, score {review.score:.2f}"]
        lines += [f"{name}: {value:.2f}" for name, value in review.dimensions.items()]
        return "\n".join([*lines, f"Review: {review.feedback or 'no remarks'}"])


class DirectorCriticEngine(CompositeEngine):
    """Draft, have a critic review the draft, revise, until the reviews converge; answer with the best draft.

    Each round revises the best draft so far, by its review. The answer is the draft with the best review, not the last
    one. Each review is noted as a `DraftReview`, and the choice as `DraftChosen`. A round without a review, since it cannot
    be read or the critic's provider refuses, has no score, and the same draft is reviewed again in the next one. A
    draft that no round could review is an answer whose `DraftChosen` has no score and is not approved.

    Args:
        director: who drafts and revises: an engine, or an agent by name; `None` is the model itself.
        critic: who reviews: `LlmCritic(...)`, or a person by `HumanCritic(...)`.
        mode: what a review says: a "score" from 0 to 1, "binary" (approved or not), or a score for each criterion of a
            "rubric".
        threshold: the score from which a draft is approved.
        rubric: the weights of the criteria, which add up to 1.
        convergence: `FixedRounds(n)`, `AdaptiveBreak(min, max, improvement)` or `ScoreThreshold(target, max_rounds)`;
            `None` is `ScoreThreshold(threshold, 3)`.
        temperature: the temperature of drafts of the model itself; `None` is the model's own.
        prompts: `revise` with {review} and {lower}, `lower` with {review}.

    Raises `ConfigError` for a rubric whose weights do not add up to 1.
    """

    name = "director-critic"
    director: Assignee | None = None
    critic: Annotated[LlmCritic | HumanCritic, Field(discriminator="kind")] = (
        LlmCritic()
    )
    mode: Mode = "score"
    threshold: float = Field(default=0.7, ge=0, le=1)
    rubric: Mapping[str, float] = Field(default_factory=dict[str, float])
    convergence: (
        Annotated[
            FixedRounds | AdaptiveBreak | ScoreThreshold, Field(discriminator="kind")
        ]
        | None
    ) = None
    temperature: float | None = 0.7
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        super().__post_init__()
        Criteria(self.mode, self.threshold, self.rubric)
        self._name_model()

    @property
    def assignees(self) -> Sequence[tuple[str, Assignee | None]]:
        """The director."""
        return (("director", self.director),)

    async def solve(self, run: Run) -> str:
        """Draft and review until the reviews converge; return the best draft."""
        check_assignees(self)
        converges: Convergence = self.convergence or ScoreThreshold(self.threshold)
        drafts: list[Draft] = []
        reason: Stop = "max_rounds"
        for number in run.iterations(converges.rounds):
            text = await self._write(run, drafts)
            run.offer(_find_best(drafts).text if drafts else text)
            drafts.append(Draft(text, await self._review(run, number, text)))
            run.offer(_find_best(drafts).text)
            reason = converges.decide([draft.review.score for draft in drafts])
            if reason:
                break
        best = _find_best(drafts)
        review = best.review
        run.note(DraftChosen(review.round, review.score, review.approved, reason))
        return best.text

    async def _write(self, run: Run, drafts: list[Draft]) -> str:
        """Return the first draft, a revision of the best one, or again a draft that has no review yet."""
        if drafts and drafts[-1].review.score is None:
            return drafts[-1].text
        conversation = run.conversation
        if drafts:
            best, last, lower = _find_best(drafts), drafts[-1], ""
            if last is not best:
                lower = self.prompts.fill("lower", review=last.describe_review())
            prompt = self.prompts.fill(
                "revise", review=best.describe_review(), lower=lower
            )
            conversation = conversation.assistant(best.text, origin="model")
            conversation = conversation.user(prompt)
        return await perform(
            run, self, self.director, conversation, purpose="draft", sampling=Sampling(temperature=self.temperature)
        )  # fmt: skip

    async def _review(self, run: Run, number: int, text: str) -> DraftReview:
        """Return the critic's review of a draft, noted."""
        criteria = Criteria(self.mode, self.threshold, self.rubric)
        blank = DraftReview(
            number, hash_draft(text), "llm", self._name_model(), self.mode, False, None, self.threshold, {},
            dict(self.rubric), "",
        )  # fmt: skip
        review = await self.critic.review(run, text, criteria, blank)
        run.note(review)
        return review

    def _name_model(self) -> str:
        """Return the model that reviews; raise `ConfigError` for one that the runtime does not have."""
        critic, services = self.critic, self.runtime
        judge = critic.fallback if isinstance(critic, HumanCritic) else critic
        if judge is None:
            return "a person"
        name, model = judge.provider, services.provider
        if name is not None:
            model = services.named_provider(name, "critic.provider")
        return f"{model.name}/{model.model}"


def _find_best(drafts: Sequence[Draft]) -> Draft:
    return max(drafts, key=lambda draft: draft.rank)
