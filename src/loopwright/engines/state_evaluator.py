"""State evaluators of a Tree of Thoughts search: a value for each state, or votes over all."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from .._internal import dataclasses
from ..errors import ConfigError
from ..parsing.scores import read_choice, read_label, read_score
from ..prompts import PromptSet
from .thought_decomposition import Judgement, ThoughtProblem
from .thought_generator import Node, Sampler


class StateEvaluator(Protocol):
    """V(p, S) of the paper: gives states their values."""

    async def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the nodes, in order, with values."""
        ...


@dataclasses.dataclass(frozen=True)
class ValueEvaluator:
    """Value each state independently.

    The value is the mean of the numbers that were read or, with `labels`, the sum of their weights.
    """

    problem: ThoughtProblem[Any]
    sampler: Sampler
    labels: Mapping[str, float] | None

    async def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Ask about all states concurrently."""
        judgements = [self.problem.judge(node.state) for node in nodes]
        prompts = list(chain.from_iterable(map(_list_prompts, judgements)))
        replies = dict(zip(prompts, await self.sampler.sample(prompts), strict=True))
        values = [self._read_value(judgement, replies) for judgement in judgements]
        return [
            node.with_value(value, labels)
            for node, (value, labels) in zip(nodes, values, strict=True)
        ]

    def _read_value(
        self, judgement: Judgement, replies: Mapping[str, tuple[str, ...]]
    ) -> tuple[float | None, Mapping[str, int]]:
        """Return the value of a state and the counts of the labels that were read."""
        if isinstance(judgement, (int, float)):
            return _check_finite(judgement), {}
        prompts = _list_prompts(judgement)
        texts = list(chain.from_iterable(map(replies.__getitem__, prompts)))
        if self.labels is None:
            return _mean_score(texts), {}
        counts = _count_labels(texts, self.labels)
        if not counts:
            return None, {}
        weights = [self.labels[label] * count for label, count in counts.items()]
        # `fsum`, because the order of samples and labels must not break a tie.
        return math.fsum(weights), counts


def _check_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ConfigError(
            f"problem: a known value must be finite, judge() gave {value}; "
            "return a finite number or a prompt"
        )
    return float(value)


def _mean_score(texts: Sequence[str]) -> float | None:
    scores = [score for score in map(read_score, texts) if score is not None]
    return math.fsum(scores) / len(scores) if scores else None


def _count_labels(texts: Sequence[str], labels: Mapping[str, float]) -> dict[str, int]:
    """Count the labels that the texts end with, in the order of the scale."""
    found = [read_label(text, labels) for text in texts]
    return {label: found.count(label) for label in labels if label in found}


def _list_prompts(judgement: Judgement) -> Sequence[str]:
    """Return the prompts of a judgement; a known value has none."""
    if isinstance(judgement, (int, float)):
        return []
    return [judgement] if isinstance(judgement, str) else judgement


@dataclasses.dataclass(frozen=True)
class VoteEvaluator:
    """Compare the states with each other: the value of a state is the number of its votes.

    A single state needs no vote. If no vote is readable, no state has a value.
    """

    problem: ThoughtProblem[Any]
    sampler: Sampler
    prompts: PromptSet

    async def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Ask for all votes concurrently."""
        votes = await self._count_votes(nodes) if len(nodes) > 1 else []
        if not any(votes):
            return [node.with_value(None) for node in nodes]
        return [
            node.with_value(float(count))
            for node, count in zip(nodes, votes, strict=True)
        ]

    async def _count_votes(self, nodes: Sequence[Node]) -> list[int]:
        """Return the number of votes for each node."""
        [ballots] = await self.sampler.sample([self._prompt(nodes)])
        choices = [read_choice(ballot, len(nodes)) for ballot in ballots]
        return [choices.count(number) for number in range(1, len(nodes) + 1)]

    def _prompt(self, nodes: Sequence[Node]) -> str:
        candidates = [
            f"Candidate {number}:\n{self.problem.render(node.state)}"
            for number, node in enumerate(nodes, 1)
        ]
        return self.prompts.fill(
            "vote", count=len(nodes), candidates="\n\n".join(candidates)
        )
