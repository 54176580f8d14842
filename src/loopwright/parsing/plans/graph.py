"""Plans in model text: a graph of steps, read from four dialects and checked before anything runs."""

import dataclasses
import difflib
import re
from collections.abc import Collection, Sequence

from ...messages import Json, JsonObject
from ..arguments import Signature, find_tool
from ..tokenizer import Tokenizer
from .calls import (
    find_placeholder,
    find_references,
    find_step_mentions,
    read_call_arguments,
)
from .formats import JOIN, THINKER, Draft, PlanReader

MAX_PLAN_CHARS = 32_768
SHOWN_PROBLEMS = 5
_DECISION = Tokenizer({"decision": "decision", "action": "action"})
_RESULT = Tokenizer({"result": "step result", "answer": "final answer"})


@dataclasses.dataclass(frozen=True)
class PlanStep:
    """One step of a plan.

    Args:
        id: its number; other steps refer to its result by it (`$1`, `${1}`, `#E1`).
        tool: the tool that it calls, as written; `None` if it is a sub-goal. `LLM` is a sub-goal without tools.
        arguments: the input of the call as written.
        goal: what a sub-goal is to find out or do; for a call, what is said about it.
        depends_on: the steps that must be done before it, in order.
        references: those of them whose results its text names.
        thought: what the model thought just before it.
    """

    id: int
    tool: str | None
    arguments: str = ""
    goal: str = ""
    depends_on: tuple[int, ...] = ()
    references: tuple[int, ...] = ()
    thought: str = ""

    def __str__(self) -> str:
        """`1. search("x")` or `1. Find out …`."""
        return f"{self.id}. {self.goal if self.tool is None else f'{self.tool}({self.arguments})'}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps, and the `join()` that ends a plan of LLMCompiler, which depends on all of them."""

    steps: tuple[PlanStep, ...]
    join: PlanStep | None = None

    def as_json(self) -> list[Json]:
        """The steps as JSON, for whoever has to approve them."""
        shown = ("id", "tool", "arguments", "goal")
        return [
            {
                **{name: getattr(step, name) for name in shown},
                "depends_on": list(step.depends_on),
            }
            for step in self.steps
        ]


def read_plan(
    text: str,
    tools: Collection[str] = (),
    *,
    first: int = 1,
    done: Collection[int] = (),
) -> Plan:
    """The plan in a model's reply.

    Four dialects: LLMCompiler (`1. search("x")`, `Thought: …`, `2. join()`; arXiv:2312.04511), ReWOO (`Plan: …`,
    `#E1 = Search[x]`; arXiv:2305.18323), numbered or bulleted prose, and JSON (`{"steps": [{"id", "tool" or "goal",
    "arguments", "depends_on"}]}`), alone or in a code fence. Numbers count up from `first`. A step depends on those
    that its text refers to. In a plan without any reference, a sub-goal depends on all steps before it, and on `done`.

    Args:
        text: the reply.
        tools: names of the known tools: with them `search [x]` and a call with words behind it are told from prose.
        first: the number of the first step, above all that were used before.
        done: the ids of earlier steps whose results may be referred to.

    Raises ValueError with a reason that the model can use.
    """
    if not text.strip():
        raise ValueError("The reply is empty. Write the plan.")
    if len(text) > MAX_PLAN_CHARS:
        raise ValueError(
            f"The plan is longer than {MAX_PLAN_CHARS:,} characters. Write a shorter one."
        )
    reader = PlanReader({name.casefold() for name in tools}, first)
    drafts = reader.read(text)
    if not drafts and reader.joined and done:
        return Plan((), PlanStep(first, JOIN))  # nothing more has to be found out
    if not drafts:
        raise ValueError(
            "The reply has no steps. Write one step a line, numbered 1., 2., 3. and so on."
        )
    steps = _linked(drafts, reader, first, done)
    join = (
        PlanStep(steps[-1].id + 1, JOIN, depends_on=tuple(step.id for step in steps))
        if reader.joined
        else None
    )
    return Plan(steps, join)


def _linked(
    drafts: list[Draft], reader: PlanReader, first: int, done: Collection[int]
) -> tuple[PlanStep, ...]:
    """The steps with what they depend on."""
    known = {draft.id for draft in drafts} | set(
        range(1, first)
    )  # also those that failed: no amount is meant
    for draft in drafts:
        draft.goal = draft.goal if draft.tool else (draft.text + draft.goal).strip()
    references = [
        find_references(
            d.arguments if d.tool else d.goal, d.id, known, prose=reader.is_subgoal(d)
        )
        for d in drafts
    ]
    says_nothing = not any(references) and all(
        draft.depends_on is None for draft in drafts
    )
    if min(draft.id for draft in drafts) < first:
        if not says_nothing:
            raise ValueError(
                f"Earlier steps have lower numbers already: number the new steps from {first} on."
            )
        for index, draft in enumerate(drafts):
            draft.id = first + index
    steps: list[PlanStep] = []
    before = sorted(done)
    for draft, named in zip(drafts, references, strict=True):
        said = find_step_mentions(
            draft.goal, draft.id, {one.id for one in drafts}.union(done)
        )
        told = (*named, *said, *(draft.depends_on or ()))
        sums_up = draft is drafts[-1] and not told and draft.depends_on is None
        needed = (
            tuple(before)
            if reader.is_subgoal(draft) and (says_nothing or sums_up)
            else told
        )
        depends_on = tuple(sorted(set(needed)))
        steps.append(
            PlanStep(
                draft.id,
                draft.tool,
                draft.arguments,
                draft.goal,
                depends_on,
                named,
                draft.thought,
            )
        )
        before.append(draft.id)
    return tuple(steps)


def is_subgoal(step: PlanStep, tools: Sequence[Signature]) -> bool:
    """Whether a step calls no tool: a goal in words, or `LLM[…]` where no tool is named so."""
    return step.tool is None or (
        step.tool.casefold() == THINKER and find_tool(step.tool, tools) is None
    )


def check_plan(
    plan: Plan,
    tools: Sequence[Signature],
    max_steps: int,
    done: Sequence[PlanStep] = (),
) -> None:
    """Raise ValueError unless every step of a plan can run, naming up to five reasons why not.

    Reasons are too many steps, an id that is used twice, a tool that is not there (with near names), a call whose
    arguments cannot be read, a call that is `done` already, a step without text, a reference to a result that is not
    there, and steps that wait for themselves or for each other.
    """
    ids, known = [step.id for step in plan.steps], {step.id for step in done}
    problems: list[str] = []
    if len(ids) > max_steps:
        problems.append(
            f"The plan has {len(ids)} steps; at most {max_steps} are allowed."
        )
    problems += [
        f"Two steps have the number {one}."
        for one in sorted({one for one in ids if ids.count(one) > 1})
    ]
    for step in plan.steps:
        problem = _call_problem(step, tools) or _repeats(step, tools, done)
        problems += [problem] if problem else []
        problems += [
            f"Step {step.id} refers to step {one}, but there is no such step with a result."
            for one in step.depends_on
            if one not in ids and one not in known
        ]
    waiting = _circle(plan)
    if waiting:
        problems.append(
            f"Steps wait for themselves or each other and can never start: {', '.join(map(str, waiting))}."
        )
    if problems:
        raise ValueError(" ".join(problems[:SHOWN_PROBLEMS]))


def _call_problem(step: PlanStep, tools: Sequence[Signature]) -> str | None:
    if step.tool is None or is_subgoal(step, tools):
        return (
            None
            if step.goal or step.arguments
            else f"Step {step.id} says nothing: name a tool or a goal."
        )
    tool = find_tool(step.tool, tools)
    names = [known.name for known in tools]
    if tool is None:
        near = difflib.get_close_matches(step.tool, names, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"Step {step.id}: there is no tool {step.tool!r}.{hint} Tools: {', '.join(names) or 'none'}."
    meant = find_placeholder(step.arguments, step.id)
    if meant:
        return f"Step {step.id}: {meant!r} is no reference; write `$k` for the result of step k."
    try:
        read_call_arguments(step.arguments, tool, {})
    except ValueError as error:
        return f"Step {step.id}: {error}"
    return None


def _repeats(
    step: PlanStep, tools: Sequence[Signature], done: Sequence[PlanStep]
) -> str | None:
    """What is wrong with a call that was made already, however it is written: side effects would happen twice."""
    call = _meant(step, tools)
    same = [one.id for one in done if call is not None and _meant(one, tools) == call]
    return (
        f"Step {step.id} repeats step {same[0]}, which is done: refer to its result as ${same[0]}."
        if same
        else None
    )


def _meant(
    step: PlanStep, tools: Sequence[Signature]
) -> tuple[str, JsonObject | str] | None:
    """The call of a step, by its tool and its arguments as they are read; `None` for a goal in words."""
    tool = find_tool(step.tool, tools) if step.tool else None
    if tool is None:
        return (step.tool, step.arguments) if step.tool else None
    return tool.name, read_call_arguments(step.arguments, tool, {})


def _circle(plan: Plan) -> list[int]:
    """The steps that wait for themselves or for each other, directly or through others."""
    left = list(plan.steps)
    while True:
        unmet = {step.id for step in left}
        stuck = [step for step in left if any(one in unmet for one in step.depends_on)]
        if len(stuck) == len(left):
            return [step.id for step in left]
        left = stuck


def read_join(text: str) -> bool | None:
    """Whether a reply decides to finish (`True`) or to plan again (`False`); `None` if it does not say, or says both.

    The decision is the first word behind `Decision:` (or `Action:`, as in LLMCompiler), or the reply's first word.
    """
    tokens = _DECISION.tokenize(text).tokens
    spoken = [text[token.value_start : token.value_start + 40] for token in tokens] or [
        text.lstrip()[:40]
    ]
    words = {
        match[0].casefold()
        for said in spoken
        if (match := re.search(r"\w+", said.strip()))
    }
    return {frozenset({"finish"}): True, frozenset({"replan"}): False}.get(
        frozenset(words)
    )


def read_result(answer: str) -> str:
    """An answer without the words `Step result:` or `Final answer:` at its start."""
    text = answer.strip()
    tokens = _RESULT.tokenize(text).tokens
    if not tokens or tokens[0].start > 0:
        return text
    said = text[tokens[0].value_start :].strip()
    return said.removesuffix(tokens[0].markup).rstrip() if tokens[0].markup else said
