"""State evaluators of a Tree of Thoughts search: a value for each state, or votes over all."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

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
        prompts = [prompt for judgement in judgements for prompt in _prompts(judgement)]
        replies = dict(zip(prompts, await self.sampler.sample(prompts), strict=True))
        return [
            self._with_value(node, judgement, replies)
            for node, judgement in zip(nodes, judgements, strict=True)
        ]

    def _with_value(
        self, node: Node, judgement: Judgement, replies: Mapping[str, tuple[str, ...]]
    ) -> Node:
        if isinstance(judgement, (int, float)):
            return node.with_value(_check_finite(judgement))
        texts = [text for prompt in _prompts(judgement) for text in replies[prompt]]
        if self.labels is None:
            return node.with_value(_mean_score(texts))
        counts = _count_labels(texts, self.labels)
        # `fsum`, because the order of samples and labels must not break a tie.
        weight = math.fsum(
            self.labels[label] * count for label, count in counts.items()
        )
        return node.with_value(weight if counts else None, counts)


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


def _prompts(judgement: Judgement) -> Sequence[str]:
    if isinstance(judgement, str):
        return [judgement]
    return [] if isinstance(judgement, (int, float)) else judgement


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
        if len(nodes) <= 1:
            return [node.with_value(None) for node in nodes]
        [ballots] = await self.sampler.sample([self._prompt(nodes)])
        choices = [read_choice(ballot, len(nodes)) for ballot in ballots]
        if all(choice is None for choice in choices):
            return [node.with_value(None) for node in nodes]
        return [
            node.with_value(float(choices.count(number)))
            for number, node in enumerate(nodes, 1)
        ]

    def _prompt(self, nodes: Sequence[Node]) -> str:
        candidates = [
            f"Candidate {number}:\n{self.problem.render(node.state)}"
            for number, node in enumerate(nodes, 1)
        ]
        return self.prompts.fill(
            "vote", count=len(nodes), candidates="\n\n".join(candidates)
        )
