"""Self-consistency: a majority vote over sampled answers (Wang et al., ICLR 2023, arXiv:2203.11171)."""

from collections.abc import Mapping, Sequence
from typing import Self

from .._internal import dataclasses
from ..parsing.answers import AnswerType, canonicalize_answer


@dataclasses.dataclass(frozen=True)
class Vote:
    """Fact: the vote of the samples so far; the last one of a run is `result.fact("Vote")`.

    Args:
        counts: votes by answer, in the wording and the order of their first occurrence.
        winner: the answer with the most votes, the first of equals; `None` if no sample gave an answer.
        agreement: votes of the winner divided by samples asked, 0 to 1.
        samples: the maximum number of samples.
        asked: samples asked so far, including those without a readable answer.
    """

    counts: dict[str, int]
    winner: str | None
    agreement: float
    samples: int
    asked: int

    @classmethod
    def of(cls, answers: Sequence[str | None], kind: AnswerType, samples: int) -> Self:
        """Count answers of a type; `None` is a sample without an answer."""
        wordings: dict[str, str] = {}
        counts: dict[str, int] = {}
        for answer in filter(None, answers):
            wording = wordings.setdefault(canonicalize_answer(answer, kind), answer)
            counts[wording] = counts.get(wording, 0) + 1
        asked = len(answers)
        agreement = max(counts.values(), default=0) / max(asked, 1)
        return cls(counts, _find_winner(counts), agreement, samples, asked)

    def is_decided(self, threshold: float = 0.0) -> bool:
        """Return whether the remaining samples cannot change the outcome, however they vote.

        The winner's share of all samples either cannot reach `threshold` any more, or has reached it
        while no other answer can win.
        """
        remaining = self.samples - self.asked
        votes = max(self.counts.values(), default=0)
        if votes / self.samples < threshold:
            return (votes + remaining) / self.samples < threshold
        if remaining == 0:
            return True
        rivals = (*self.counts, "")  # "" is any answer that has not occurred yet
        outcomes = (
            {**self.counts, rival: self.counts.get(rival, 0) + remaining}
            for rival in rivals
        )
        return all(_find_winner(outcome) == self.winner for outcome in outcomes)


def _find_winner(counts: Mapping[str, int]) -> str | None:
    """Return the answer with the most votes, the first of equals."""
    return max(counts, key=counts.__getitem__, default=None)
