"""Review the draft of a turn: how sure its model is, how good the answer is, and what is wrong with it."""

from pydantic import BaseModel, Field

from .._internal import dataclasses

MAX_TASK, MAX_ANSWER = 400, 600
"""Characters of the task and of the answer that are reviewed."""
MAX_FINDINGS = 10
MIN_QUALITY = 0.5
"""The quality below which an answer with issues goes back once."""


class Review(BaseModel):
    """What a model says of an answer."""

    confidence: float = Field(ge=0, le=1)
    quality: float = Field(ge=0, le=1)
    issues: list[str] = Field(default_factory=list)
    patterns: list[str] = Field(default_factory=list)
    summary: str = ""


@dataclasses.dataclass(frozen=True)
class TurnReviewed:
    """Fact: what the model said of its draft, looking back."""

    confidence: float
    quality: float
    issues: tuple[str, ...]
    patterns: tuple[str, ...]
    summary: str

    @classmethod
    def of(cls, review: Review) -> "TurnReviewed":
        """Return a review as it is noted: each issue and pattern once."""
        issues = tuple(dict.fromkeys(review.issues))[:MAX_FINDINGS]
        patterns = tuple(dict.fromkeys(review.patterns))[:MAX_FINDINGS]
        return cls(review.confidence, review.quality, issues, patterns, review.summary)

    @property
    def sends_back(self) -> bool:
        """Whether the model is to answer again."""
        return self.quality < MIN_QUALITY and bool(self.issues)
