"""Plans in JSON: `{"steps": [{"id", "tool" or "goal", "arguments", "depends_on"}]}`, or the list
alone.
"""

import json
import re
from collections.abc import Iterator, Mapping

from ...messages import Json
from ..fences import iterate_fence_contents
from ..json_text import read_json, read_object
from .drafts import CallReader, Draft

_STEPS_KEYS = ("steps", "plan", "new_plan")
_TOOL_KEYS = ("tool", "tool_name", "skill", "skill_name", "name")
_MAYBE_TOOL_KEYS = ("step", "function", "action")
_ARGUMENTS_KEYS = (
    "arguments",
    "args",
    "input",
    "input_description",
    "query",
    "parameters",
    "tool_input",
    "action_input",
)
_GOAL_KEYS = ("goal", "description", "task", "instruction", "step", "reason")
_DEPENDENCY_KEYS = ("depends_on", "dependencies", "deps")
_NO_TOOL = {"", "none", "null"}

_VALUE_START = re.compile(r"^[ \t]*+[{\[]", re.MULTILINE)
_PLAN_OBJECT = re.compile(r"""\{\s*+["'](?:steps|plan|new_plan)["']""")
_STEP_NUMBER = re.compile(r"(?:[$#]|#?E|step)?[ _]?\{?(\d{1,4})\}?", re.IGNORECASE)


def read_json_plan(text: str, first: int, calls: CallReader) -> list[Draft] | None:
    """Return the steps of a JSON plan, numbered from `first`; `None` if the text holds none."""
    steps = _find_steps(text)
    if steps is None:
        return None
    return [_read_step(step, number, calls) for number, step in enumerate(steps, first)]


def _find_steps(text: str) -> list[Json] | None:
    for body in _iterate_bodies(text):
        value = _read_body(body.strip())
        if isinstance(value, dict):
            steps = _get_first(value, _STEPS_KEYS)
            if isinstance(steps, list):
                return steps
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            return value
    return None


def _iterate_bodies(text: str) -> Iterator[str]:
    """Iterate over the contents of code fences, and the text from the first line that begins with a
    bracket.
    """
    yield from iterate_fence_contents(text)
    start = _VALUE_START.search(text)
    if start is not None:
        yield text[start.start() :]


def _read_body(body: str) -> Json:
    """Return the object or list that a text begins with, or `None`; raise ValueError for a broken
    plan.
    """
    if body.startswith("["):
        return _read_list(body)
    if not body.startswith("{"):
        return None
    try:
        return read_object(body)[0]
    except ValueError as error:
        if _PLAN_OBJECT.match(body):
            raise ValueError(
                f"The JSON of the plan cannot be read: {error}. Write it again, whole."
            ) from None
        return None


def _read_list(body: str) -> Json:
    """Return the JSON list or list literal that a text begins with, or `None`."""
    try:
        return read_json(body)[0]
    except ValueError:
        wrapped = f'{{"steps": {body}}}'
    try:
        return read_object(wrapped)[0]["steps"]
    except ValueError:
        return None


def _read_step(step: Json, number: int, calls: CallReader) -> Draft:
    if isinstance(step, str):
        return Draft(number, step)
    if not isinstance(step, dict):
        raise ValueError(
            f"Step {number} must be an object with `tool` or `goal`, or a text."
        )
    draft = Draft(_read_id(step, number), "")
    tool = _read_tool(step, calls)
    arguments = _read_arguments(step)
    goal = _get_first_text(step, _GOAL_KEYS)
    if tool.casefold() not in _NO_TOOL:
        draft.tool, draft.arguments, draft.goal = tool, arguments, goal
    elif goal and not goal.isdigit():
        draft.text = goal
    else:
        draft.text = arguments
    draft.thought = _get_first_text(step, ("thought",))
    draft.depends_on = _read_dependencies(step, number)
    return draft


def _read_id(step: Mapping[str, Json], number: int) -> int:
    """Return the id of a step: `id`, else a number in `step`, else `number`."""
    named = step.get("step")
    is_title = isinstance(named, str) and not named.strip().isdigit()
    given = step.get("id", None if is_title else named)
    if given is None:
        return number
    return _read_number(given, f"the id of step {number}")


def _read_tool(step: Mapping[str, Json], calls: CallReader) -> str:
    tool = _get_first_text(step, _TOOL_KEYS)
    if tool:
        return tool
    others = (_get_first_text(step, (key,)) for key in _MAYBE_TOOL_KEYS)
    return next(filter(calls.is_tool, others), "")


def _read_arguments(step: Mapping[str, Json]) -> str:
    """Return the arguments of a step as written: a text as it is, anything else as JSON."""
    arguments = _get_first(step, _ARGUMENTS_KEYS)
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def _read_dependencies(step: Mapping[str, Json], number: int) -> tuple[int, ...] | None:
    given = _get_first(step, _DEPENDENCY_KEYS)
    if given is None:
        return None
    listed = given if isinstance(given, list) else [given]
    field = f"a dependency of step {number}"
    return tuple(_read_number(one, field) for one in listed)


def _read_number(value: Json, field: str) -> int:
    digits = _STEP_NUMBER.fullmatch(str(value).strip())
    if digits is None:
        raise ValueError(
            f"It must be a whole number, and {field} is {str(value)[:40]!r}."
        )
    return int(digits[1])


def _get_first(step: Mapping[str, Json], keys: tuple[str, ...]) -> Json:
    """Return the first value under one of the keys that is not `None`."""
    values = map(step.get, keys)
    return next((value for value in values if value is not None), None)


def _get_first_text(step: Mapping[str, Json], keys: tuple[str, ...]) -> str:
    """Return the first text under one of the keys that is not blank, without blanks around it."""
    texts = (value.strip() for value in map(step.get, keys) if isinstance(value, str))
    return next(filter(None, texts), "")
