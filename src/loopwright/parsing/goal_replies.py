"""The JSON replies of a plan, evaluate and decide loop, read leniently: near names of fields, fences, numbers as text."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from pydantic_core import to_json

from ..messages import Json
from .fences import find_fences, read_fence
from .json_text import as_list, as_object, read_json, read_object

Quality: TypeAlias = Literal["good", "partial", "failed"]
GoalAction: TypeAlias = Literal["continue", "adjust", "ask_user", "done", "stuck"]
QUALITIES: tuple[Quality, ...] = ("good", "partial", "failed")
"""From the best to the worst."""
ACTIONS: tuple[GoalAction, ...] = ("continue", "adjust", "ask_user", "done", "stuck")
GOOD, PARTIAL = 3.5, 2.0
"""The least means of the scores of an output that is good, and of one that is partly of use."""
LOWEST, HIGHEST = 1.0, 5.0
"""The bounds of a score."""
SCORES = ("relevance", "completeness", "usability", "goal_progress")
MAX_OBJECTS = 50
"""The most objects of a reply that are looked at."""
MAX_UNREADABLE = 3
"""How many braces of a reply may begin something that is not an object; then no other is looked for."""
MAX_REPLY = 65_536
"""Characters of a reply that are read."""
ALIASES: Mapping[str, tuple[str, ...]] = {
    "steps": ("steps", "plan", "tasks"),
    "skill": ("skill", "tool", "skill_name", "tool_name", "name"),
    "input_description": ("input_description", "query", "input", "description", "reason"),
    "reason": ("reason", "why"),
    "working_memory": ("working_memory", "memory", "notes"),
    "error": ("error",),
    "input": ("input", "arguments", "args", "skill_input"),
    "quality": ("quality", "rating"),
    "goal_progress": ("goal_progress", "progress"),
    "summary": ("summary",),
    "action": ("action", "decision"),
    "confidence": ("confidence",),
    "question": ("question",),
    "new_plan": ("new_plan", "new_steps", "plan", "steps"),
    "final_answer": ("final_answer", "answer", "result"),
    "answer": ("answer", "final_answer", "result"),
    "compressed": ("compressed", "working_memory", "summary"),
}  # fmt: skip
"""The names under which models write a field, its own first."""
_NUMBER = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(%|/\s*5|/\s*5\.0)?\s*")


@dataclasses.dataclass(frozen=True)
class StepDraft:
    """A step of a plan as a model wrote it.

    Args:
        number: its place in the plan, from 1.
        skill: the skill that it names, if it names one.
        input_description: what it is to be given.
        reason: why it is needed.
    """

    number: int
    skill: str | None = None
    input_description: str | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class PlanReply:
    """The steps of a plan, or why the goal cannot be reached (`error`)."""

    steps: tuple[StepDraft, ...] = ()
    working_memory: str = ""
    error: str = ""


@dataclasses.dataclass(frozen=True)
class InputReply:
    """The input of a step: a text, or arguments by name."""

    input: Json
    working_memory: str = ""


@dataclasses.dataclass(frozen=True)
class EvaluationReply:
    """How good the output of a step is: its scores from 1 to 5 by name, their mean if there are any, and in a word."""

    quality: Quality
    scores: dict[str, float]
    mean: float | None
    summary: str = ""
    working_memory: str = ""


@dataclasses.dataclass(frozen=True)
class DecisionReply:
    """What a model wants to do next, and how sure it is, from 0 to 1; `None` where it does not say."""

    action: GoalAction
    confidence: float | None = None
    reason: str = ""
    question: str = ""
    new_plan: tuple[StepDraft, ...] = ()
    final_answer: str = ""
    working_memory: str = ""


def read_goal_plan(text: str) -> PlanReply:
    """Return the plan in a reply; raise ValueError saying what is missing."""
    fields = _read_fields(text, (*ALIASES["steps"], "error"))
    memory = _text(_find(fields, "working_memory"))
    error = _text(_find(fields, "error"))
    steps = _find(fields, "steps")
    drafts = normalize_steps(as_list(steps))
    if drafts:
        return PlanReply(drafts, memory)
    if error:
        return PlanReply((), memory, error)
    raise ValueError(
        'There is no list of "steps" with at least one step, and no "error".'
    )


def read_step_input(text: str) -> InputReply:
    """Return the input of a step in a reply; raise ValueError saying what is missing."""
    fields = _read_fields(text, ALIASES["input"])
    value = _find(fields, "input")
    if value is None or value == "":
        raise ValueError('The field "input" is missing.')
    return InputReply(value, _text(_find(fields, "working_memory")))


def read_evaluation(text: str) -> EvaluationReply:
    """Return the evaluation in a reply; raise ValueError without a "quality", unless it has all scores.

    A quality that is not one of the words, or missing, is the one of the mean of the scores; the lower of the two counts
    where both are there, since models judge their own work too kindly.
    """
    fields = _read_judgement(text)
    scores = _read_scores(fields)
    if _find(fields, "quality") is None and len(scores) < len(SCORES):
        raise ValueError('The field "quality" is missing.')
    mean = sum(scores.values()) / len(scores) if scores else None
    named = str(_find(fields, "quality")).strip().casefold()
    judged: list[Quality] = [one for one in QUALITIES if one == named]
    if mean is not None:
        judged.append(rate(mean))
    quality: Quality = max(judged, key=QUALITIES.index) if judged else "failed"
    return EvaluationReply(
        quality, scores, mean, _text(_find(fields, "summary")), _text(_find(fields, "working_memory"))
    )  # fmt: skip


def _read_judgement(text: str) -> dict[str, Json]:
    """Return the object with a "quality", or else with all scores; raise ValueError without either."""
    try:
        return _read_fields(text, ALIASES["quality"])
    except ValueError:
        for fields in _iterate_objects(text[:MAX_REPLY]):
            folded = _fold(fields)
            if len(_read_scores(folded)) == len(SCORES):
                return folded
        raise


def _read_scores(fields: Mapping[str, Json]) -> dict[str, float]:
    found = {name: read_rating(_find(fields, name)) for name in SCORES}
    return {name: score for name, score in found.items() if score is not None}


def read_goal_decision(text: str) -> DecisionReply:
    """Return the decision in a reply; raise ValueError without an "action". An unknown action is "continue"."""
    fields = _read_fields(text, ALIASES["action"])
    named = _text(_find(fields, "action")).strip().casefold().replace(" ", "_")
    if not named:
        raise ValueError('The field "action" is missing.')
    known: list[GoalAction] = [action for action in ACTIONS if action == named]
    action = known[0] if known else "continue"
    new_plan = _find(fields, "new_plan")
    return DecisionReply(
        action,
        read_confidence(_find(fields, "confidence")),
        _text(_find(fields, "reason")),
        _text(_find(fields, "question")),
        normalize_steps(as_list(new_plan)),
        _text(_find(fields, "final_answer")),
        _text(_find(fields, "working_memory")),
    )


def read_named_text(text: str, field: str) -> str:
    """Return the text of a field of a reply, such as "answer"; a reply that is not JSON is that text itself."""
    try:
        found = _find(_read_fields(text, ALIASES[field]), field)
    except ValueError:
        plain = text.strip()
        return "" if plain.startswith(("{", "```")) else plain
    return _text(found).strip()


def rate(mean: float) -> Quality:
    """Return how good an output with that mean of its scores is."""
    if mean >= GOOD:
        return "good"
    return "partial" if mean >= PARTIAL else "failed"


def read_rating(value: Json) -> float | None:
    """Return a score from 1 to 5, also one written as "4" or "4/5"; `None` for anything else."""
    number, unit = _read_number(value)
    if number is None or unit == "%" or not LOWEST <= number <= HIGHEST:
        return None
    return number


def read_confidence(value: Json) -> float | None:
    """Return a confidence from 0 to 1: 0.85 also of "0.85", "85%" and 85; `None` for anything else."""
    number, unit = _read_number(value)
    if number is None or unit.startswith("/"):
        return None
    if unit == "%" or 1 < number <= 100:
        number /= 100
    return number if 0 <= number <= 1 else None


def normalize_steps(steps: Collection[Json]) -> tuple[StepDraft, ...]:
    """Return the steps of a plan, numbered from 1, whatever their fields are called."""
    return tuple(
        _normalize_step(number, as_object(step)) for number, step in enumerate(steps, 1)
    )


def _normalize_step(number: int, step: Mapping[str, Json]) -> StepDraft:
    named = _find(step, "skill")
    if named is None and isinstance(step.get("step"), str):
        named = step["step"]
    about = _find(step, "input_description")
    return StepDraft(
        number,
        _text(named).strip() or None,
        _text(about) or None,
        _text(_find(step, "reason")),
    )


def _read_number(value: Json) -> tuple[float | None, str]:
    """Return a number, also one that is written as a text, and its unit: "%", "/5" or none."""
    if isinstance(value, bool):
        return None, ""
    if isinstance(value, (int, float)):
        return float(value), ""
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None, ""
    return float(found[1]), (found[2] or "")[:1]


def _find(fields: Mapping[str, Json], name: str) -> Any:
    """Return the value of a field, under the first of its names that has one; `None` without it."""
    names = ALIASES.get(name, (name,))
    return next((fields[one] for one in names if fields.get(one) is not None), None)


def _text(value: Json) -> str:
    """Return a value as a text; empty for none."""
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value).decode()


def _read_fields(text: str, wanted: Collection[str]) -> dict[str, Json]:
    """Return the first object of a reply that has one of the wanted fields; raise ValueError without one."""
    if not text.strip():
        raise ValueError("The reply is empty.")
    others = 0
    for fields in _iterate_objects(text[:MAX_REPLY]):
        folded = _fold(fields)
        if not folded.keys().isdisjoint(wanted):
            return folded
        others += 1
    names = " or ".join(f'"{name}"' for name in dict.fromkeys(wanted))
    if others:
        raise ValueError(f"The JSON object has no field {names}.")
    raise ValueError(f"There is no JSON object that can be read, with a field {names}.")


def _fold(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return fields by their names in lower case."""
    return {str(name).strip().casefold(): value for name, value in fields.items()}


def _iterate_objects(text: str) -> Iterator[dict[str, Json]]:
    """Yield the objects of a reply: those in code fences first, then those in the text itself."""
    spans, _ = find_fences(text)
    parts = [read_fence(text, start)[0] for start, _ in spans]
    for part in (*parts, text):
        yield from _iterate_objects_of(part)


def _iterate_objects_of(text: str) -> Iterator[dict[str, Json]]:
    start, stripped = text.find("{"), text.strip()
    if stripped.startswith("["):  # a bare list is the list of steps
        yield from _read_list(stripped)
    unreadable = 0
    for _ in range(MAX_OBJECTS):
        if start < 0 or unreadable == MAX_UNREADABLE:
            return
        try:
            found, end = read_object(text, start)
        except ValueError:
            unreadable, end = unreadable + 1, start + 1
        else:
            yield found
        start = text.find("{", end)


def _read_list(text: str) -> Iterator[dict[str, Json]]:
    try:
        value, _ = read_json(text)
    except ValueError:
        return
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield {"steps": value}
