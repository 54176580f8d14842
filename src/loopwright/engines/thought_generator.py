"""The thought generator of a Tree of Thoughts search, and the nodes of the tree that it grows."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .._internal import dataclasses
from ..errors import AskFailed
from ..parsing.thinking import strip_thinking
from ..run import Run, Sampling
from .thought_decomposition import ThoughtProblem

SAMPLING_TEMPERATURE = 0.7  # several samples are useful only if they differ


@dataclasses.dataclass(frozen=True)
class ScoredThought:
    """A state, given by the thoughts that lead to it, with its value.

    `value` is `None` if no score was readable. `labels` counts the labels that were read over all
    prompts and samples.
    """

    path: tuple[str, ...]
    value: float | None = None
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    answer: str | None = None


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of the tree: a state of the problem with its value."""

    state: Any
    thought: ScoredThought = ScoredThought(())

    @property
    def rank(self) -> float:
        """The value to sort by; a node without a score ranks below every other."""
        return -math.inf if self.thought.value is None else self.thought.value

    @property
    def answer(self) -> str | None:
        """The answer of a finished state."""
        return self.thought.answer

    @property
    def is_open(self) -> bool:
        """Whether the state is not finished."""
        return self.thought.answer is None

    @property
    def depth(self) -> int:
        """The number of thoughts that lead here."""
        return len(self.thought.path)

    def with_value(
        self, value: float | None, labels: Mapping[str, int] | None = None
    ) -> "Node":
        """Return the node with a value."""
        thought = dataclasses.replace(self.thought, value=value, labels=labels or {})
        return dataclasses.replace(self, thought=thought)


class Growth(NamedTuple):
    """New nodes, in order, and the counts of thoughts that gave none.

    `refused` thoughts could not be applied; `duplicates` led to a state that was already there.
    """

    nodes: list[Node]
    refused: int
    duplicates: int


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Samples replies to prompts, all concurrently, in the caller's conversation.

    A truncated or unusable reply is left out: it is neither a thought nor a score.

    Args:
        times: samples of each prompt.
        cache: replies by prompt, so that equal prompts are asked once in a run; `None` samples each
            prompt anew.
    """

    run: Run
    times: int
    temperature: float | None
    max_concurrency: int | None
    purpose: str
    provider: str | None = None
    cache: dict[str, tuple[str, ...]] | None = None

    async def sample(self, prompts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the usable replies to each prompt, in order."""
        if self.cache is None:
            return await self._ask(prompts)
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self.cache]
        self.cache.update(zip(new, await self._ask(new), strict=True))
        return [self.cache[prompt] for prompt in prompts]

    async def _ask(self, prompts: Sequence[str]) -> list[tuple[str, ...]]:
        if prompts and self.times > 1 and self.run.can_sample(self.provider):
            together = [partial(self._replies, prompt) for prompt in prompts]
            return await self.run.gather(
                *together, max_concurrency=self.max_concurrency
            )
        works = [
            partial(self._reply, prompt)
            for prompt in prompts
            for _ in range(self.times)
        ]
        if not works:
            return []
        replies = await self.run.gather(*works, max_concurrency=self.max_concurrency)
        starts = range(0, len(replies), self.times)
        return [_usable(replies[start : start + self.times]) for start in starts]

    async def _replies(self, prompt: str, branch: Run) -> tuple[str, ...]:
        """Return the usable replies to one prompt, sampled together."""
        proposals = await branch.samples(
            self.run.conversation.user(prompt),
            self.times,
            tools=False,
            sampling=self._sampling,
            provider=self.provider,
            purpose=self.purpose,
        )
        return tuple(
            strip_thinking(proposal.answer)
            for proposal in proposals
            if proposal.answer is not None
        )

    async def _reply(self, prompt: str, branch: Run) -> str | None:
        try:
            return await branch.ask(
                self.run.conversation.user(prompt),
                sampling=self._sampling,
                provider=self.provider,
                purpose=self.purpose,
                again=False,
            )
        except AskFailed:
            return None

    @property
    def _sampling(self) -> Sampling:
        """The settings of a sample; a temperature that a person chose is not left out."""
        if self.temperature is not None:
            return Sampling(temperature=self.temperature).require()
        if self.times > 1:
            return Sampling(temperature=SAMPLING_TEMPERATURE)
        return Sampling()


def _usable(replies: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(reply for reply in replies if reply is not None)


@dataclasses.dataclass(frozen=True)
class ThoughtGenerator:
    """G(p, s, k) of the paper: the states that follow from a state by proposed thoughts."""

    problem: ThoughtProblem[Any]
    sampler: Sampler

    async def expand(
        self,
        nodes: Sequence[Node],
        known: Sequence[Node],
        *,
        heaviest_first: bool = False,
    ) -> Growth:
        """Return the states that follow from `nodes`, each once and none of the `known`."""
        prompts = [self.problem.propose(node.state) for node in nodes]
        replies = await self.sampler.sample(prompts)
        seen = {self.problem.render(node.state) for node in known}
        grown: list[Node] = []
        refused = duplicates = 0
        for node, thought in self._proposals(nodes, replies, heaviest_first):
            if self.problem.refuse(node.state, thought) is not None:
                refused += 1
                continue
            child = self._child(node, thought)
            rendered = self.problem.render(child.state)
            if rendered in seen:
                duplicates += 1
                continue
            seen.add(rendered)
            grown.append(child)
        return Growth(grown, refused, duplicates)

    def _proposals(
        self,
        nodes: Sequence[Node],
        replies: Sequence[Sequence[str]],
        heaviest_first: bool,
    ) -> list[tuple[Node, str]]:
        """Pair each node with each of its proposed thoughts."""
        return [
            (node, thought)
            for node, texts in zip(nodes, replies, strict=True)
            for thought in self._thoughts(node, texts, heaviest_first)
        ]

    def _thoughts(
        self, node: Node, replies: Sequence[str], heaviest_first: bool
    ) -> list[str]:
        """Return the thoughts of all replies in order, or each once by the sum of its weights."""
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
        answer = self.problem.answer(state) or None
        return Node(state, ScoredThought((*node.thought.path, thought), answer=answer))
