"""Convergence: after which round a director has revised its draft often enough."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from ..errors import ConfigError

Stop: TypeAlias = Literal[
    "", "rounds_done", "target_reached", "no_improvement", "max_rounds"
]
"""Why the rounds end; empty if they do not."""


class Convergence(Protocol):
    """Decides from the scores whether there is another round."""

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""
        ...

    def decide(self, scores: Sequence[float | None]) -> Stop:
        """Return why the rounds end after these scores, one for each round; `None` is a round without one."""
        ...


@dataclasses.dataclass(frozen=True)
class FixedRounds:
    """A fixed number of rounds, whatever the reviews say."""

    rounds: int = 3
    kind: Literal["fixed-rounds"] = "fixed-rounds"

    def __post_init__(self) -> None:
        _check_rounds("rounds", self.rounds)

    def decide(self, scores: Sequence[float | None]) -> Stop:
        """Stop after the last round."""
        return "rounds_done" if len(scores) >= self.rounds else ""


@dataclasses.dataclass(frozen=True)
class AdaptiveBreak:
    """Rounds until one brings no improvement over the best score before it.

    Args:
        min: the minimum number of rounds.
        max: the maximum number of rounds.
        improvement: what a round has to add to the best score, for another one to follow.
    """

    min: int = 2
    max: int = 5
    improvement: float = 0.05
    kind: Literal["adaptive-break"] = "adaptive-break"

    def __post_init__(self) -> None:
        _check_rounds("min", self.min)
        _check_rounds("max", self.max)
        _check_fraction("improvement", self.improvement)
        if self.min > self.max:
            raise ConfigError(
                f"min: must be at most max={self.max}, got {self.min}; lower it"
            )

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""
        return self.max

    def decide(self, scores: Sequence[float | None]) -> Stop:
        """Stop after a round that added less than the improvement; one without a score adds nothing."""
        if len(scores) >= self.max:
            return "max_rounds"
        before = [score for score in scores[:-1] if score is not None]
        last = scores[-1]
        if len(scores) < self.min:
            return ""
        if last == 1.0:
            return "target_reached"
        if not before:
            return ""
        gained = -1.0 if last is None else last - max(before)
        return "no_improvement" if gained < self.improvement - TOLERANCE else ""


@dataclasses.dataclass(frozen=True)
class ScoreThreshold:
    """Rounds until a draft has the target score.

    Args:
        target: the score, from 0 to 1.
        max_rounds: the maximum number of rounds.
    """

    target: float = 0.7
    max_rounds: int = 3
    kind: Literal["score-threshold"] = "score-threshold"

    def __post_init__(self) -> None:
        _check_fraction("target", self.target)
        _check_rounds("max_rounds", self.max_rounds)

    @property
    def rounds(self) -> int:
        """The maximum number of rounds."""
        return self.max_rounds

    def decide(self, scores: Sequence[float | None]) -> Stop:
        """Stop at the target, or after the last round."""
        last = scores[-1]
        if last is not None and last >= self.target - TOLERANCE:
            return "target_reached"
        return "max_rounds" if len(scores) >= self.max_rounds else ""


TOLERANCE = 1e-9
"""Sums of weights and scores are not exact."""


def _check_rounds(field: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{field}: must be a whole number of at least 1, got {value!r}")  # fmt: skip


def _check_fraction(field: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= float(str(value)) <= 1:
        raise ConfigError(f"{field}: must be a number from 0 to 1, got {value!r}")
