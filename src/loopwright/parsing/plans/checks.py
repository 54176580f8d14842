"""Checks of a plan before anything of it runs."""

import collections
import difflib
from collections.abc import Iterator, Sequence

from ...messages import JsonObject
from ..arguments import Signature, find_tool
from .calls import read_call_arguments
from .drafts import THINKER
from .plan import Plan, PlanStep
from .references import find_placeholder

MAX_SHOWN_PROBLEMS = 5


def check_plan(
    plan: Plan,
    tools: Sequence[Signature],
    max_steps: int,
    done: Sequence[PlanStep] = (),
) -> None:
    """Raise ValueError unless every step of a plan can run, naming up to five reasons why not.

    Reasons are too many steps, an id that is used twice, a tool that does not exist (with near
    names), a call whose arguments cannot be read, a call that is `done` already, a step without
    text, a reference to a result that does not exist, and steps that wait for themselves or for
    each other.
    """
    problems = [
        *_find_number_problems(plan, max_steps),
        *_find_step_problems(plan, tools, done),
    ]
    waiting = _find_cycle(plan)
    if waiting:
        listed = ", ".join(map(str, waiting))
        problems.append(
            f"Steps wait for themselves or each other and can never start: {listed}."
        )
    if problems:
        raise ValueError(" ".join(problems[:MAX_SHOWN_PROBLEMS]))


def is_subgoal(step: PlanStep, tools: Sequence[Signature]) -> bool:
    """Return whether a step calls no tool: a goal in words, or `LLM[…]` where no tool has that
    name.
    """
    if step.tool is None:
        return True
    return step.tool.casefold() == THINKER and find_tool(step.tool, tools) is None


def _find_number_problems(plan: Plan, max_steps: int) -> Iterator[str]:
    """Iterate over what is wrong with the number of steps, and with their numbers."""
    counts = collections.Counter(step.id for step in plan.steps)
    if len(plan.steps) > max_steps:
        yield f"The plan has {len(plan.steps)} steps; at most {max_steps} are allowed."
    for number in sorted(counts):
        if counts[number] > 1:
            yield f"Two steps have the number {number}."


def _find_step_problems(
    plan: Plan, tools: Sequence[Signature], done: Sequence[PlanStep]
) -> Iterator[str]:
    """Iterate over what is wrong with single steps."""
    known = {step.id for step in (*plan.steps, *done)}
    for step in plan.steps:
        problem = _find_call_problem(step, tools) or _find_repeat(step, tools, done)
        if problem:
            yield problem
        for number in step.depends_on:
            if number not in known:
                yield (
                    f"Step {step.id} refers to step {number}, "
                    "but there is no such step with a result."
                )


def _find_call_problem(step: PlanStep, tools: Sequence[Signature]) -> str | None:
    """Return what is wrong with the call of a step, or with the text of a sub-goal."""
    if step.tool is None or is_subgoal(step, tools):
        has_text = step.goal or step.arguments
        return (
            None if has_text else f"Step {step.id} says nothing: name a tool or a goal."
        )
    tool = find_tool(step.tool, tools)
    if tool is None:
        return _describe_missing_tool(step.id, step.tool, tools)
    placeholder = find_placeholder(step.arguments, step.id)
    if placeholder:
        return (
            f"Step {step.id}: {placeholder!r} is no reference; "
            "write `$k` for the result of step k."
        )
    try:
        read_call_arguments(step.arguments, tool, {})
    except ValueError as error:
        return f"Step {step.id}: {error}"
    return None


def _describe_missing_tool(number: int, wanted: str, tools: Sequence[Signature]) -> str:
    names = [tool.name for tool in tools]
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    listed = ", ".join(names) or "none"
    return f"Step {number}: there is no tool {wanted!r}.{hint} Tools: {listed}."


def _find_repeat(
    step: PlanStep, tools: Sequence[Signature], done: Sequence[PlanStep]
) -> str | None:
    """Return what is wrong with a call that was made already: its side effects would happen twice."""
    call = _read_call(step, tools)
    if call is None:
        return None
    for other in done:
        if _read_call(other, tools) == call:
            return (
                f"Step {step.id} repeats step {other.id}, which is done: "
                f"refer to its result as ${other.id}."
            )
    return None


def _read_call(
    step: PlanStep, tools: Sequence[Signature]
) -> tuple[str, JsonObject | str] | None:
    """Return the call of a step by its tool and its arguments as they are read; `None` for a goal
    in words.
    """
    if not step.tool:
        return None
    tool = find_tool(step.tool, tools)
    if tool is None:
        return step.tool, step.arguments
    return tool.name, read_call_arguments(step.arguments, tool, {})


def _find_cycle(plan: Plan) -> list[int]:
    """Return the steps that wait for themselves or for each other, directly or through others."""
    waiting = list(plan.steps)
    while True:
        ids = {step.id for step in waiting}
        blocked = [step for step in waiting if not ids.isdisjoint(step.depends_on)]
        if len(blocked) == len(waiting):
            return [step.id for step in blocked]
        waiting = blocked
