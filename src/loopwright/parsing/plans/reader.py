"""The reader of plans: chooses the dialect, and turns drafts into linked steps."""

from collections.abc import Collection, Sequence

from .drafts import JOIN, CallReader, Draft, is_join_call, split_join
from .evidence import read_evidence_plan
from .json_plan import read_json_plan
from .lists import read_lists
from .plan import Plan, PlanStep
from .references import find_references, find_step_mentions

MAX_PLAN_CHARS = 32_768


def read_plan(
    text: str,
    tools: Collection[str] = (),
    *,
    first: int = 1,
    done: Collection[int] = (),
) -> Plan:
    """Return the plan in a model's reply; raise ValueError with a reason for the model.

    Four dialects: LLMCompiler (`1. search("x")`, `Thought: …`, `2. join()`; arXiv:2312.04511),
    ReWOO (`Plan: …`, `#E1 = Search[x]`; arXiv:2305.18323), numbered or bulleted prose, and JSON
    (`{"steps": [{"id", "tool" or "goal", "arguments", "depends_on"}]}`), alone or in a code fence.
    Numbers count up from `first`. A step depends on those that its text refers to. In a plan
    without any reference, a sub-goal depends on all steps before it, and on `done`.

    Args:
        text: the reply.
        tools: names of the known tools: they tell `search [x]` and a call with words behind it from
            prose.
        first: the number of the first step, above all that were used before.
        done: the ids of earlier steps whose results may be referred to.
    """
    if not text.strip():
        raise ValueError("The reply is empty. Write the plan.")
    if len(text) > MAX_PLAN_CHARS:
        raise ValueError(
            f"The plan is longer than {MAX_PLAN_CHARS:,} characters. Write a shorter one."
        )
    calls = CallReader({name.casefold() for name in tools})
    drafts, is_joined = _read_drafts(text, calls, first)
    if drafts:
        steps = _Linker(drafts, calls, first, done).link()
        ids = tuple(step.id for step in steps)
        join = PlanStep(ids[-1] + 1, JOIN, depends_on=ids) if is_joined else None
        return Plan(steps, join)
    if is_joined and done:
        return Plan((), PlanStep(first, JOIN))  # nothing more has to be found out
    raise ValueError(
        "The reply has no steps. Write one step a line, numbered 1., 2., 3. and so on."
    )


def _read_drafts(text: str, calls: CallReader, first: int) -> tuple[list[Draft], bool]:
    """Return the steps in a text, in order, and whether they end in `join()`.

    Raises ValueError with the reason for half a plan.
    """
    drafts = read_json_plan(text, first, calls)
    if drafts is not None:
        return split_join(drafts, calls)
    drafts = read_evidence_plan(text, calls)
    if drafts:
        return drafts, False
    drafts = read_lists(text, first)
    if not drafts:
        return [], is_join_call(text.strip())
    for draft in drafts:
        calls.read_call(draft)
    return split_join(drafts, calls)


class _Linker:
    """Turns drafts into steps that know what they depend on.

    Args:
        drafts: the steps as they were read.
        calls: tells sub-goals from calls.
        first: the number of the first step.
        done: the ids of earlier steps that have a result.
    """

    def __init__(
        self,
        drafts: Sequence[Draft],
        calls: CallReader,
        first: int,
        done: Collection[int],
    ) -> None:
        self._drafts, self._calls = drafts, calls
        self._first, self._done = first, done

    def link(self) -> tuple[PlanStep, ...]:
        """Return the steps."""
        for draft in self._drafts:
            if not draft.tool:
                draft.goal = (draft.text + draft.goal).strip()
        references = self._find_references()
        says_order = any(references) or any(
            draft.depends_on is not None for draft in self._drafts
        )
        self._check_numbers(says_order=says_order)
        mentionable = {draft.id for draft in self._drafts}.union(self._done)
        before = sorted(self._done)
        steps: list[PlanStep] = []
        for draft, named in zip(self._drafts, references, strict=True):
            mentioned = find_step_mentions(draft.goal, draft.id, mentionable)
            needed = (*named, *mentioned, *(draft.depends_on or ()))
            if self._needs_all(draft, needed, says_order=says_order):
                needed = tuple(before)
            steps.append(_build_step(draft, needed, named))
            before.append(draft.id)
        return tuple(steps)

    def _find_references(self) -> list[tuple[int, ...]]:
        # earlier steps are known even if they failed: their numbers are not amounts of money
        known = {draft.id for draft in self._drafts}.union(range(1, self._first))
        found: list[tuple[int, ...]] = []
        for draft in self._drafts:
            text = draft.arguments if draft.tool else draft.goal
            prose = self._calls.is_subgoal(draft)
            found.append(find_references(text, draft.id, known, prose=prose))
        return found

    def _check_numbers(self, *, says_order: bool) -> None:
        """Number the steps from `first` on if they count from 1 and do not refer to each other."""
        if min(draft.id for draft in self._drafts) >= self._first:
            return
        if says_order:
            raise ValueError(
                f"Earlier steps have lower numbers already: number the new steps from {self._first} on."
            )
        for number, draft in enumerate(self._drafts, self._first):
            draft.id = number

    def _needs_all(
        self, draft: Draft, needed: tuple[int, ...], *, says_order: bool
    ) -> bool:
        """Return whether a step depends on all before it: a sub-goal where the plan says nothing,
        or at its end.
        """
        if not self._calls.is_subgoal(draft):
            return False
        is_last = draft is self._drafts[-1]
        says_nothing = not needed and draft.depends_on is None
        return not says_order or (is_last and says_nothing)


def _build_step(
    draft: Draft, needed: tuple[int, ...], references: tuple[int, ...]
) -> PlanStep:
    depends_on = tuple(sorted(set(needed)))
    return PlanStep(
        draft.id,
        draft.tool,
        draft.arguments,
        draft.goal,
        depends_on,
        references,
        draft.thought,
    )
