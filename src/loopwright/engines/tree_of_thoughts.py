"""Tree of Thoughts: search over thoughts, breadth or depth first (Yao et al., NeurIPS 2023, arXiv:2305.10601)."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Literal

from pydantic import Field, FiniteFloat

from .._internal import dataclasses
from ..engine import LoopEngine, ProviderName
from ..errors import AskFailed, ConfigError, LimitReached
from ..messages import Conversation
from ..prompts import PromptSet
from ..run import Run
from .state_evaluator import StateEvaluator, ValueEvaluator, VoteEvaluator
from .thought_decomposition import (
    PROMPTS,
    TextThoughts,
    ThoughtProblem,
    extract_marked_answer,
)
from .thought_generator import Node, Sampler, ScoredThought, ThoughtGenerator


@dataclasses.dataclass(frozen=True)
class Level:
    """Fact: the candidates of one level of a beam search and the indexes of those selected, best first.

    Finished states of earlier levels come first among the candidates. `refused` counts thoughts
    that could not be applied, `duplicates` those that led to a state already there.
    """

    depth: int
    candidates: tuple[ScoredThought, ...]
    selected: tuple[int, ...]
    refused: int
    duplicates: int


@dataclasses.dataclass(frozen=True)
class Visit:
    """Fact: the n-th state that a depth-first search visited, and whether it was pruned."""

    number: int
    thought: ScoredThought
    pruned: bool


@dataclasses.dataclass(frozen=True)
class Found:
    """Fact: the answer of the first finished state, and the run's answer: that of the best, with its value."""

    first: str
    best: str
    value: float | None


@dataclasses.dataclass
class Search:
    """The state of one search.

    `best_open` is the open state from which an answer is forced if no state is finished.
    """

    run: Run
    problem: ThoughtProblem[Any]
    generator: ThoughtGenerator
    evaluator: StateEvaluator
    best_open: Node
    finished: list[Node] = dataclasses.field(default_factory=list[Node])
    visits: int = 0

    def best(self) -> Node:
        """Return the finished state of the highest value, the first of equal ones."""
        return max(self.finished, key=lambda node: node.rank)

    def offer(self) -> None:
        """Make the best finished answer the run's answer, whatever ends the run from now on."""
        if self.finished:
            self.run.offer(str(self.best().answer))


class TreeOfThoughtsEngine(LoopEngine):
    """Propose thoughts, evaluate the states they lead to, and continue from the best ones.

    Breadth first (`"beam"`, the paper's Algorithm 1), each state of the beam is expanded, all new states are
    evaluated, and the best are kept. A finished state competes with the others by its value: the search ends when no
    open state of the beam has a higher value, and the best finished state gives the answer. Depth first (Algorithm 2,
    with backtracking), a state's thoughts are tried by descending weight, a state below `prune_below` is not expanded,
    and the search ends after `max_visits`. If no state is finished in the end, one call forces the answer from the
    best state (depth first: the deepest). A state without a readable value ranks last; equal values keep the order of
    their thoughts.

    Model calls of a beam search, where level 1 has C1 = `n_branches` new states, each later level at most `beam_width`
    times as many, and no state is equal, refused or finished: the sum of C * (1 + `n_evaluations`) over the levels,
    and 1 to force the answer; 43 with the defaults.

    Args:
        n_branches: thoughts sampled for each state, with `generate="sample"`: one reply is one thought.
        n_proposals: replies for each state, with `generate="propose"`: one reply lists several thoughts.
        beam_width: states kept at each level.
        max_depth: thoughts from the start to the last state.
        generate: which of the two; a custom `problem` reads its replies itself.
        evaluate: "value" scores each state independently, "vote" compares all candidates of a level.
        n_evaluations: samples of each evaluation prompt, or votes.
        labels: the labels of the evaluation scale with their weights, which are summed over the samples. `None` is a
            number from 0 to 10, whose mean is taken. A large negative weight with `prune_below` is a veto.
        select: the best, or a draw without replacement in proportion to the values.
        search: breadth first with a beam, or depth first.
        max_visits: states that a depth-first search evaluates; each is a turn, counted by `Limits.max_iterations`.
        max_children: children that a depth-first search visits for each state.
        prune_below: states of a lower value are dropped; a state without a value is not.
        accept_at: a finished state of this value ends the search.
        temperature: `None` is 0.7 where a prompt is sampled several times, else the provider's own.
        max_concurrency: concurrent model calls; the result is the same with 1.
        judge: the name of the provider that evaluates; `None` is the run's own.
        problem: a problem with its own type of state; `None` is the task in plain text, with the `prompts`.
    """

    name = "tree-of-thoughts"
    offers_tools = False
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
        strategy = self.evaluate, self.select
        if self.search == "depth-first" and strategy != ("value", "greedy"):
            raise ConfigError(
                "search: depth-first needs evaluate='value' and select='greedy', "
                f"got {strategy}; use them or search='beam'"
            )
        if self.labels is None:
            return
        if self.evaluate == "vote":
            raise ConfigError(
                "labels: ballots have none; use evaluate='value', or leave the labels out"
            )
        if not self.labels or not all(map(str.strip, self.labels)):
            raise ConfigError("labels: give at least one word, and no empty one")

    async def solve(self, run: Run) -> str:
        """Search, then return the best finished state's answer, or a forced one."""
        search = self._start_search(run)
        try:
            if self.search == "beam":
                await self._breadth_first(search)
            else:
                visits = run.iterations(self.max_visits)
                await self._depth_first(search, search.best_open, visits)
            if not search.finished:
                return await self._conclude(search)
        except LimitReached:
            if not search.finished:
                return _read_answer(await run.best_answer(self._reasoning(search)))
        first, best = search.finished[0], search.best()
        run.note(Found(str(first.answer), str(best.answer), best.thought.value))
        return str(best.answer)

    def _start_search(self, run: Run) -> Search:
        has_several = self.generate == "propose"
        problem: ThoughtProblem[Any] = self.problem or TextThoughts(
            self.prompts, has_several, self.labels
        )
        sampler = partial(
            Sampler,
            run,
            temperature=self.temperature,
            max_concurrency=self.max_concurrency,
        )
        # Depth first reaches the same state in several ways, but equal prompts of a beam
        # are sampled independently.
        cache: dict[str, tuple[str, ...]] | None = (
            {} if self.search == "depth-first" else None
        )
        times = self.n_proposals if has_several else self.n_branches
        generator = ThoughtGenerator(
            problem, sampler(times=times, cache=cache, purpose="propose")
        )
        judge = partial(sampler, times=self.n_evaluations, provider=self.judge)
        evaluator: StateEvaluator
        if self.evaluate == "vote":
            evaluator = VoteEvaluator(problem, judge(purpose="vote"), self.prompts)
        else:
            evaluator = ValueEvaluator(
                problem, judge(cache={}, purpose="score"), self.labels
            )
        return Search(run, problem, generator, evaluator, Node(problem.start(run.task)))

    # --- breadth first: Algorithm 1 of the paper ---

    async def _breadth_first(self, search: Search) -> None:
        """Expand the beam, evaluate the new states, and keep the best, level by level."""
        beam = [search.best_open]
        for depth in search.run.iterations(self.max_depth):
            open_states = [node for node in beam if node.is_open]
            growth = await search.generator.expand(open_states, search.finished)
            if not growth.nodes:
                level = Level(depth, (), (), growth.refused, growth.duplicates)
                search.run.note(level)
                return
            candidates = [*search.finished, *growth.nodes]
            candidates = await search.evaluator.evaluate(candidates)
            selected = self._select(candidates, search.run.random)
            scored = tuple(node.thought for node in candidates)
            level = Level(
                depth, scored, tuple(selected), growth.refused, growth.duplicates
            )
            search.run.note(level)
            beam = [candidates[index] for index in selected]
            self._update(search, candidates, beam)
            if self._is_settled(search, beam):
                return

    def _select(self, candidates: Sequence[Node], random: Random) -> list[int]:
        """Return the indexes of the states to keep, best first; equal ones in their order."""
        kept = [i for i, node in enumerate(candidates) if not self._is_pruned(node)]
        ranked = sorted(kept, key=lambda index: -candidates[index].rank)
        if self.select == "greedy":
            return ranked[: self.beam_width]
        left, drawn = list(ranked), set[int]()
        while left and len(drawn) < self.beam_width:
            weights = [max(candidates[index].rank, 0.0) for index in left]
            chosen = random.choices(left, weights)[0] if any(weights) else left[0]
            left.remove(chosen)
            drawn.add(chosen)
        return [index for index in ranked if index in drawn]

    def _update(
        self, search: Search, candidates: Sequence[Node], beam: Sequence[Node]
    ) -> None:
        """Record the finished states and the best open one of a level."""
        finished = [node for node in candidates if not node.is_open]
        search.finished = [node for node in finished if not self._is_pruned(node)]
        search.offer()
        open_states = [node for node in beam if node.is_open]
        if open_states:
            search.best_open = open_states[0]

    def _is_pruned(self, node: Node) -> bool:
        value = node.thought.value
        if value is None or self.prune_below is None:
            return False
        return value < self.prune_below

    def _is_settled(self, search: Search, beam: Sequence[Node]) -> bool:
        """Return whether no open state of the beam ranks above the best finished one.

        A finished state without a value settles nothing.
        """
        open_ranks = [node.rank for node in beam if node.is_open]
        if not open_ranks:
            return True
        value = search.best().thought.value if search.finished else None
        if value is None:
            return False
        return value >= max(open_ranks) or self._is_accepted(search)

    def _is_accepted(self, search: Search) -> bool:
        if not search.finished or self.accept_at is None:
            return False
        return search.best().rank >= self.accept_at

    # --- depth first: Algorithm 2 of the paper ---

    async def _depth_first(
        self, search: Search, node: Node, visits: Iterator[int]
    ) -> None:
        """Visit the children by descending weight and descend into those that are not pruned."""
        growth = await search.generator.expand([node], [], heaviest_first=True)
        for child in growth.nodes[: self.max_children]:
            if search.visits == self.max_visits or self._is_accepted(search):
                return
            search.visits = next(visits)
            [scored] = await search.evaluator.evaluate([child])
            is_pruned = self._is_pruned(scored)
            search.run.note(Visit(search.visits, scored.thought, is_pruned))
            if is_pruned:
                continue
            if not scored.is_open:
                search.finished.append(scored)
                search.offer()
                continue
            if scored.depth > search.best_open.depth:
                search.best_open = scored
            if scored.depth < self.max_depth and search.visits < self.max_visits:
                await self._depth_first(search, scored, visits)

    # --- without a finished state ---

    async def _conclude(self, search: Search) -> str:
        """Ask for the answer from the best state, by the reserved call if the reply is empty."""
        state = search.problem.render(search.best_open.state)
        prompt = search.run.conversation.user(
            self.prompts.fill("conclude", state=state)
        )
        answer = ""
        with contextlib.suppress(AskFailed):
            reply = await search.run.ask(prompt, purpose="answer", again=False)
            answer = _read_answer(reply)
        if answer:
            return answer
        return _read_answer(await search.run.best_answer(self._reasoning(search)))

    def _reasoning(self, search: Search) -> Conversation:
        """Return the conversation with the best open state's reasoning, if it has any."""
        conversation, best = search.run.conversation, search.best_open
        if best.depth == 0:
            return conversation
        reasoning = search.problem.render(best.state)
        return conversation.assistant(reasoning, origin="model")


def _read_answer(reply: str) -> str:
    """Return the text after the answer marker of a reply, or all of it without a marker."""
    marked = extract_marked_answer(reply)
    return reply.strip() if marked is None else marked
