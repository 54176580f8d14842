"""A vote of samples: which answer has the majority, and whether the samples to come can still change that."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from ..parsing.answers import AnswerType, canonicalize_answer


@dataclasses.dataclass(frozen=True)
class Vote:
    """Fact: how samples voted so far; a run's last one is in `result.fact("Vote")`.

    Args:
        counts: votes by answer, in the spelling and the order in which the answers came up.
        winner: the answer with most votes, of equals the first; `None` if no sample gave an answer.
        agreement: votes of the winner by samples asked, 0 to 1.
        samples: how many samples may be asked.
        asked: how many were, those without a readable answer included.
    """

    counts: dict[str, int]
    winner: str | None
    agreement: float
    samples: int
    asked: int

    @classmethod
    def of(cls, answers: Sequence[str | None], kind: AnswerType, samples: int) -> Self:
        """Count answers of a kind; `None` is a sample without one."""
        spelled: dict[str, str] = {}
        counts: dict[str, int] = {}
        for answer in filter(None, answers):
            first = spelled.setdefault(canonicalize_answer(answer, kind), answer)
            counts[first] = counts.get(first, 0) + 1
        most = max(counts.values(), default=0)
        return cls(
            counts, _winner(counts), most / max(len(answers), 1), samples, len(answers)
        )

    def is_decided(self, threshold: float = 0.0) -> bool:
        """Whether the samples that are left, however they vote, change nothing.

        That is: if the winner's share of all samples can reach `threshold` no more, or has reached it and no other
        answer can win.
        """
        left, most = self.samples - self.asked, max(self.counts.values(), default=0)
        if most / self.samples < threshold:
            return (most + left) / self.samples < threshold
        rivals = (
            *self.counts,
            "",
        )  # the last stands for any answer that has not come up yet
        ends = (
            {**self.counts, rival: self.counts.get(rival, 0) + left} for rival in rivals
        )
        return left == 0 or all(_winner(end) == self.winner for end in ends)


def _winner(counts: Mapping[str, int]) -> str | None:
    """The answer with most votes, of equals the one that came up first."""
    return max(counts, key=counts.__getitem__, default=None)
