"""Tree of Thoughts: a search over thoughts, by levels or depth first (Yao et al., NeurIPS 2023, arXiv:2305.10601)."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Literal

from pydantic import Field, FiniteFloat

from ..engine import LoopEngine, ProviderName
from ..errors import AskFailed, ConfigError, LimitReached
from ..messages import Conversation
from ..prompts import PromptSet
from ..run import Run
from .thought_tree import Judge, Node, Proposer, Samples, ScoredThought, Values, Votes
from .thoughts import PROMPTS, TextThoughts, ThoughtProblem, marked_answer


@dataclasses.dataclass(frozen=True)
class Level:
    """Fact: the candidates of one level of a beam search, and the places of those selected, best first.

    Finished states of earlier levels come first among the candidates. `refused` counts thoughts that could not be
    applied, `duplicates` those that led to a state already there.
    """

    depth: int
    candidates: tuple[ScoredThought, ...]
    selected: tuple[int, ...]
    refused: int
    duplicates: int


@dataclasses.dataclass(frozen=True)
class Visit:
    """Fact: the n-th state that a depth-first search visited, and whether it goes no further from there."""

    number: int
    thought: ScoredThought
    pruned: bool


@dataclasses.dataclass(frozen=True)
class Found:
    """Fact: the answer of the first finished state, and that of the best, which is the run's, with its value."""

    first: str
    best: str
    value: float | None


@dataclasses.dataclass
class Tree:
    """What a search has found so far: the finished states, and the open one from which an answer would be forced."""

    run: Run
    problem: ThoughtProblem[Any]
    proposer: Proposer
    judge: Judge
    leader: Node
    finished: list[Node]
    visits: int = 0

    def best(self) -> Node:
        """The finished state of the highest value, the first of equal ones."""
        return max(self.finished, key=lambda node: node.rank)

    def offer(self) -> None:
        """Whatever ends the run from now on, the best finished answer is its own."""
        if self.finished:
            self.run.offer(str(self.best().answer))


class TreeOfThoughtsEngine(LoopEngine):
    """Proposes thoughts, judges where they lead, and goes on from the best, by levels or depth first with backtracking.

    By levels (`"beam"`), each state of the beam is grown, all new states are judged, and the best stay. A finished
    state competes with the others by its value: the search ends when no open state of the beam is worth more, and the
    best finished one is the answer. Depth first, a state's thoughts are tried from the heaviest on, a state below
    `prune_below` is left at once, and the search ends with `max_visits`. If nothing is finished in the end, one call
    forces the answer from the best state (depth first: the deepest). A state whose judge cannot be read has no value
    and ranks last; equal values keep the order in which their thoughts came.

    Model calls by levels, where level 1 has C1 = `n_branches` new states, the next ones at most `beam_width` times as
    many, and nothing is equal, refused or finished: the sum of C * (1 + `n_evaluations`) over the levels, and 1 to
    force the answer; 43 with the defaults.

    Args:
        n_branches: thoughts sampled for each state, with `generate="sample"`: one reply is one thought.
        n_proposals: replies for each state, with `generate="propose"`: one reply lists several thoughts.
        beam_width: states that go on from each level.
        max_depth: thoughts from the start to the last state.
        generate: which of the two; a `problem` of your own reads its replies itself.
        evaluate: each state gets a value of its own, or ballots are cast over all candidates of a level.
        n_evaluations: samples of the judge for each prompt, or ballots.
        labels: the words of the judge's scale with their weights, which are summed over the samples. `None` is a number
            from 0 to 10, of which the mean is taken. A large negative weight is a veto, together with `prune_below`.
        select: the best, or a draw without replacement in proportion to the values.
        search: by levels or depth first.
        max_visits: states that a depth-first search judges; each is a turn, and `Limits.max_iterations` counts them.
        max_children: children that a depth-first search visits for each state.
        prune_below: states of a lower value are given up; one without a value is not.
        accept_at: a finished state of this value ends the search.
        temperature: `None` is 0.7 where several samples of a prompt are wanted, else the provider's own.
        max_concurrency: model calls at once; the result is the same with 1.
        judge: the name of the provider that judges; `None` is the run's own.
        problem: a problem with states of its own; `None` is the task in plain text, with the `prompts`.
    """

    name = "tree-of-thoughts"
    n_branches: int = Field(default=3, ge=1)
    n_proposals: int = Field(default=1, ge=1)
    beam_width: int = Field(default=2, ge=1)
    max_depth: int = Field(default=4, ge=1)
    generate: Literal["sample", "propose"] = "sample"
    evaluate: Literal["value", "vote"] = "value"
    n_evaluations: int = Field(default=1, ge=1)
    labels: Mapping[str, FiniteFloat] | None = None
    select: Literal["greedy", "sample"] = "greedy"
    search: Literal["beam", "depth-first"] = "beam"
    max_visits: int = Field(default=100, ge=1)
    max_children: int = Field(default=3, ge=1)
    prune_below: FiniteFloat | None = None
    accept_at: FiniteFloat | None = None
    temperature: FiniteFloat | None = Field(default=None, ge=0)
    max_concurrency: int | None = Field(default=8, ge=1)
    judge: ProviderName = None
    problem: ThoughtProblem[Any] | None = None
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        super().__post_init__()
        if self.search == "depth-first" and (self.evaluate, self.select) != (
            "value",
            "greedy",
        ):
            raise ConfigError(
                "search: depth-first needs evaluate='value' and select='greedy', else use search='beam'"
            )
        if self.labels is not None and self.evaluate == "vote":
            raise ConfigError(
                "labels: ballots have none; use evaluate='value', or leave the labels out"
            )
        if self.labels is not None and not (
            self.labels and all(map(str.strip, self.labels))
        ):
            raise ConfigError("labels: give at least one word, and no empty one")

    async def solve(self, run: Run) -> str:
        """Search; then the best finished state's answer, or one that is forced."""
        tree = self._plant(run)
        try:
            if self.search == "beam":
                await self._by_levels(tree)
            else:
                await self._descend(tree, tree.leader, run.iterations(self.max_visits))
            if not tree.finished:
                return await self._conclude(tree)
        except LimitReached:
            if not tree.finished:
                return _plain(await run.best_answer(self._so_far(tree)))
        best = tree.best()
        run.note(
            Found(str(tree.finished[0].answer), str(best.answer), best.thought.value)
        )
        return str(best.answer)

    def _plant(self, run: Run) -> Tree:
        several = self.generate == "propose"
        problem: ThoughtProblem[Any] = self.problem or TextThoughts(
            self.prompts, several, self.labels
        )
        samples = partial(
            Samples, run, temperature=self.temperature, at_once=self.max_concurrency
        )
        # Depth first comes to the same state on several ways; equal prompts of a beam get samples of their own.
        known: dict[str, tuple[str, ...]] | None = (
            {} if self.search == "depth-first" else None
        )
        times = self.n_proposals if several else self.n_branches
        proposer = Proposer(
            problem, samples(times=times, kept=known, purpose="propose")
        )
        asked = partial(samples, times=self.n_evaluations, provider=self.judge)
        judge = (
            Votes(problem, asked(purpose="vote"), self.prompts)
            if self.evaluate == "vote"
            else Values(problem, asked(kept={}, purpose="score"), self.labels)
        )
        return Tree(run, problem, proposer, judge, Node(problem.start(run.task)), [])

    # --- by levels ---

    async def _by_levels(self, tree: Tree) -> None:
        beam = [tree.leader]
        for depth in tree.run.iterations(self.max_depth):
            growth = await tree.proposer.grow(
                [node for node in beam if node.answer is None], tree.finished
            )
            if not growth.nodes:
                tree.run.note(Level(depth, (), (), growth.refused, growth.duplicates))
                return
            candidates = await tree.judge.score([*tree.finished, *growth.nodes])
            selected = self._select(candidates, tree.run.random)
            scored = tuple(node.thought for node in candidates)
            tree.run.note(
                Level(depth, scored, tuple(selected), growth.refused, growth.duplicates)
            )
            beam = [candidates[index] for index in selected]
            tree.finished = [
                node
                for node in candidates
                if node.answer is not None and not self._hopeless(node)
            ]
            tree.offer()
            tree.leader = next(
                (node for node in beam if node.answer is None), tree.leader
            )
            if self._settled(tree, beam):
                return

    def _select(self, candidates: Sequence[Node], random: Random) -> list[int]:
        """The places of the states that go on, best first; equal ones in their order."""
        places = [
            index for index, node in enumerate(candidates) if not self._hopeless(node)
        ]
        ranked = sorted(places, key=lambda index: -candidates[index].rank)
        if self.select == "greedy":
            return ranked[: self.beam_width]
        left, drawn = list(ranked), set[int]()
        while left and len(drawn) < self.beam_width:
            weights = [max(candidates[index].rank, 0.0) for index in left]
            chosen = random.choices(left, weights)[0] if any(weights) else left[0]
            left.remove(chosen)
            drawn.add(chosen)
        return [index for index in ranked if index in drawn]

    def _hopeless(self, node: Node) -> bool:
        value = node.thought.value
        return (
            value is not None
            and self.prune_below is not None
            and value < self.prune_below
        )

    def _settled(self, tree: Tree, beam: Sequence[Node]) -> bool:
        """Whether no open state of the beam is worth more than the best finished one, which must have a value."""
        still_open = [node.rank for node in beam if node.answer is None]
        if not still_open:
            return True
        value = tree.best().thought.value if tree.finished else None
        return value is not None and (value >= max(still_open) or self._accepted(tree))

    def _accepted(self, tree: Tree) -> bool:
        return (
            bool(tree.finished)
            and self.accept_at is not None
            and tree.best().rank >= self.accept_at
        )

    # --- depth first ---

    async def _descend(self, tree: Tree, node: Node, visits: Iterator[int]) -> None:
        growth = await tree.proposer.grow([node], [], heaviest_first=True)
        for child in growth.nodes[: self.max_children]:
            if tree.visits == self.max_visits or self._accepted(tree):
                return
            tree.visits = next(visits)
            [scored] = await tree.judge.score([child])
            pruned = self._hopeless(scored)
            tree.run.note(Visit(tree.visits, scored.thought, pruned))
            if pruned:
                continue
            depth = len(scored.thought.path)
            if scored.answer is not None:
                tree.finished.append(scored)
                tree.offer()
            elif depth > len(tree.leader.thought.path):
                tree.leader = scored
            if (
                scored.answer is None
                and depth < self.max_depth
                and tree.visits < self.max_visits
            ):
                await self._descend(tree, scored, visits)

    # --- without a finished state ---

    async def _conclude(self, tree: Tree) -> str:
        """One call for the answer, from the best state; the reserved call if that says nothing."""
        prompt = self.prompts.fill(
            "conclude", state=tree.problem.render(tree.leader.state)
        )
        try:
            answer = _plain(
                await tree.run.ask(tree.run.conversation.user(prompt), purpose="answer")
            )
        except AskFailed:
            answer = ""
        return answer or _plain(await tree.run.best_answer(self._so_far(tree)))

    def _so_far(self, tree: Tree) -> Conversation:
        """The conversation with the best state's reasoning, if there is any."""
        conversation, leader = tree.run.conversation, tree.leader
        if not leader.thought.path:
            return conversation
        return conversation.assistant(tree.problem.render(leader.state), origin="model")


def _plain(reply: str) -> str:
    """The answer in a reply: what stands behind its marker, or all of it if it has none."""
    marked = marked_answer(reply)
    return reply.strip() if marked is None else marked
