"""The nodes of a tree of thoughts, and the model calls that grow and judge them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..errors import AskFailed, ConfigError
from ..parsing.scores import read_choice, read_label, read_score
from ..prompts import PromptSet
from ..run import Run, Sampling
from .thoughts import Judgement, ThoughtProblem

WARM = 0.7  # several samples of one prompt are of no use if all are the same


@dataclasses.dataclass(frozen=True)
class ScoredThought:
    """A state by the thoughts that lead to it, and what the judge said of it.

    `value` is `None` without a readable score; `labels` counts those that were read, over all prompts and samples.
    """

    path: tuple[str, ...]
    value: float | None = None
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    answer: str | None = None


@dataclasses.dataclass(frozen=True)
class Node:
    """A place in the tree: a state of the problem, and what is known of it."""

    state: Any
    thought: ScoredThought = ScoredThought(())

    @property
    def rank(self) -> float:
        """Its value; without a score it ranks below every other."""
        return -math.inf if self.thought.value is None else self.thought.value

    @property
    def answer(self) -> str | None:
        """The answer of a finished state."""
        return self.thought.answer

    def valued(
        self, value: float | None, labels: Mapping[str, int] | None = None
    ) -> "Node":
        """The node with what the judge said."""
        return dataclasses.replace(
            self,
            thought=dataclasses.replace(self.thought, value=value, labels=labels or {}),
        )


class Growth(NamedTuple):
    """New states, in order; `refused` thoughts could not be applied, `duplicates` led to a state already there."""

    nodes: list[Node]
    refused: int
    duplicates: int


@dataclasses.dataclass(frozen=True)
class Samples:
    """Asks each prompt so many times, all at once, in the conversation that the caller gave.

    A reply that was cut or cannot be used is left out: it is no thought and no score. With `kept`, equal prompts are
    asked once in a run; without, each has replies of its own.
    """

    run: Run
    times: int
    temperature: float | None
    at_once: int | None
    purpose: str
    provider: str | None = None
    kept: dict[str, tuple[str, ...]] | None = None

    async def of(self, prompts: Sequence[str]) -> list[tuple[str, ...]]:
        """The usable replies to each prompt, in order."""
        if self.kept is None:
            return await self._ask(prompts)
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self.kept]
        self.kept.update(zip(new, await self._ask(new), strict=True))
        return [self.kept[prompt] for prompt in prompts]

    async def _ask(self, prompts: Sequence[str]) -> list[tuple[str, ...]]:
        works = [
            partial(self._reply, prompt)
            for prompt in prompts
            for _ in range(self.times)
        ]
        replies = await self.run.gather(*works, at_once=self.at_once) if works else []
        starts = range(0, len(replies), self.times)
        return [
            tuple(reply for reply in replies[i : i + self.times] if reply is not None)
            for i in starts
        ]

    async def _reply(self, prompt: str, branch: Run) -> str | None:
        warm = WARM if self.times > 1 else None
        sampling = Sampling(
            temperature=warm if self.temperature is None else self.temperature
        )
        try:
            asked = self.run.conversation.user(prompt)
            return await branch.ask(
                asked, sampling=sampling, provider=self.provider, purpose=self.purpose
            )
        except AskFailed:
            return None


@dataclasses.dataclass(frozen=True)
class Proposer:
    """Grows states by the thoughts that the model proposes there."""

    problem: ThoughtProblem[Any]
    samples: Samples

    async def grow(
        self,
        nodes: Sequence[Node],
        known: Sequence[Node],
        *,
        heaviest_first: bool = False,
    ) -> Growth:
        """The states that follow from `nodes`, each once and none of the `known`; all nodes are asked at once."""
        replies = await self.samples.of(
            [self.problem.propose(node.state) for node in nodes]
        )
        seen = {self.problem.render(node.state) for node in known}
        grown: list[Node] = []
        refused = duplicates = 0
        for node, said in zip(nodes, replies, strict=True):
            for thought in self._thoughts(node, said, heaviest_first):
                if self.problem.refuse(node.state, thought) is not None:
                    refused += 1
                    continue
                child = self._child(node, thought)
                rendered = self.problem.render(child.state)
                grown += [] if rendered in seen else [child]
                duplicates += rendered in seen
                seen.add(rendered)
        return Growth(grown, refused, duplicates)

    def _thoughts(
        self, node: Node, replies: Sequence[str], heaviest_first: bool
    ) -> list[str]:
        """The thoughts in all replies, in order; or each once, by the sum of its weights."""
        thoughts = [
            thought
            for reply in replies
            for thought in self.problem.read(node.state, reply)
        ]
        if not heaviest_first:
            return [thought for thought, _ in thoughts]
        weights: dict[str, float] = {}
        for thought, weight in thoughts:
            weights[thought] = weights.get(thought, 0.0) + weight
        return sorted(weights, key=lambda thought: -weights[thought])

    def _child(self, node: Node, thought: str) -> Node:
        state = self.problem.apply(node.state, thought)
        return Node(
            state,
            ScoredThought(
                (*node.thought.path, thought), answer=self.problem.answer(state) or None
            ),
        )


class Judge(Protocol):
    """Gives states their values."""

    async def score(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes, in order, with values."""
        ...


@dataclasses.dataclass(frozen=True)
class Values:
    """Judges each state by itself: the mean of the numbers that are read, or the sum of the labels' weights."""

    problem: ThoughtProblem[Any]
    samples: Samples
    labels: Mapping[str, float] | None

    async def score(self, nodes: Sequence[Node]) -> list[Node]:
        """Ask about all states at once."""
        judgements = [self.problem.judge(node.state) for node in nodes]
        prompts = [prompt for judgement in judgements for prompt in _prompts(judgement)]
        replies = dict(zip(prompts, await self.samples.of(prompts), strict=True))
        return [
            self._valued(node, judgement, replies)
            for node, judgement in zip(nodes, judgements, strict=True)
        ]

    def _valued(
        self, node: Node, judgement: Judgement, said_to: Mapping[str, tuple[str, ...]]
    ) -> Node:
        if isinstance(judgement, (int, float)):
            if not math.isfinite(judgement):
                raise ConfigError(
                    f"problem: a known value must be finite, judge() gave {judgement}"
                )
            return node.valued(float(judgement))
        replies = [reply for prompt in _prompts(judgement) for reply in said_to[prompt]]
        if self.labels is None:
            scores = [score for score in map(read_score, replies) if score is not None]
            return node.valued(math.fsum(scores) / len(scores) if scores else None)
        said = [read_label(reply, self.labels) for reply in replies]
        counts = {label: said.count(label) for label in self.labels if label in said}
        # `fsum`, since the order of samples and labels must not break a tie.
        weight = math.fsum(
            self.labels[label] * count for label, count in counts.items()
        )
        return node.valued(weight if counts else None, counts)


def _prompts(judgement: Judgement) -> Sequence[str]:
    if isinstance(judgement, str):
        return [judgement]
    return [] if isinstance(judgement, (int, float)) else judgement


@dataclasses.dataclass(frozen=True)
class Votes:
    """Has the states compared with each other: a state's value is the number of ballots for it.

    A single state needs no ballot, and where no ballot can be read no state has a value.
    """

    problem: ThoughtProblem[Any]
    samples: Samples
    prompts: PromptSet

    async def score(self, nodes: Sequence[Node]) -> list[Node]:
        """Ask for all ballots at once."""
        shown = [
            f"Candidate {number}:\n{self.problem.render(node.state)}"
            for number, node in enumerate(nodes, 1)
        ]
        prompt = self.prompts.fill(
            "vote", count=len(nodes), candidates="\n\n".join(shown)
        )
        ballots = (await self.samples.of([prompt]))[0] if len(nodes) > 1 else ()
        choices = [
            choice
            for choice in (read_choice(ballot, len(nodes)) for ballot in ballots)
            if choice is not None
        ]
        return [
            node.valued(float(choices.count(i)) if choices else None)
            for i, node in enumerate(nodes, 1)
        ]
