"""The JSON schemas of the goal cycle's replies, to which a provider holds its model where it can."""

import re
from collections.abc import Sequence

from ..messages import Json, JsonObject, ToolSpec
from ..parsing.goal_replies import ACTIONS, QUALITIES, SCORES

MAX_SENTENCE, MAX_NOTES = 300, 1_000
"""Characters of a reason or a description, and of the working memory. Small models do not end long texts by themselves."""


def plan_form(skills: Sequence[ToolSpec], max_steps: int) -> JsonObject:
    """Return the form of a plan, or of the reason why there is none."""
    plan = _form({"steps": _list_steps(skills, max_steps)}, _NOTES)
    impossible = _form({"error": _text(MAX_SENTENCE)}, _NOTES)
    return _choose(plan, impossible)


def input_form(skill: ToolSpec) -> JsonObject:
    """Return the form of the input of a step; what the skill's schema defines stands at the top.

    Other references within the schema, as to the `definitions` of older ones, lead to where it has gone.
    """
    arguments = {name: _move_references(value) for name, value in skill.schema.items()}
    definitions = arguments.pop("$defs", None)
    form = _form({"input": arguments}, _NOTES)
    return form if definitions is None else {**form, "$defs": definitions}


def _move_references(value: Json) -> Json:
    """Return a part of a schema with references to its root, but for those to `$defs`, as the form has that."""
    if isinstance(value, list):
        return [*map(_move_references, value)]
    if not isinstance(value, dict):
        return value
    moved = {name: _move_references(inner) for name, inner in value.items()}
    target = value.get("$ref")
    if isinstance(target, str) and re.match(r"#(?!/\$defs/)", target):
        moved["$ref"] = f"#/properties/input{target[1:]}"
    return moved


def evaluation_form() -> JsonObject:
    """Return the form of an evaluation."""
    scores: dict[str, Json] = {name: _pick("integer", 1, 2, 3, 4, 5) for name in SCORES}
    quality: dict[str, Json] = {"quality": _pick("string", *QUALITIES)}
    return _form(scores | quality, {"summary": _text(MAX_SENTENCE), **_NOTES})


def decision_form(skills: Sequence[ToolSpec], max_steps: int) -> JsonObject:
    """Return the form of a decision: each action with what belongs to it alone."""
    parts: dict[str, dict[str, Json]] = {
        "adjust": {"new_plan": _list_steps(skills, max_steps)},
        "ask_user": {"question": _text(MAX_SENTENCE)},
        "done": {"final_answer": _text(None)},
    }
    forms = [
        _form(
            {"action": _pick("string", action), **_SURE, **parts.get(action, {})},
            _NOTES,
        )
        for action in ACTIONS
    ]
    return _choose(*forms)


def text_form(field: str, max_chars: int | None = None) -> JsonObject:
    """Return the form of a reply with one text."""
    return _form({field: _text(max_chars)}, {})


def _form(required: dict[str, Json], optional: dict[str, Json]) -> JsonObject:
    return {
        "type": "object",
        "properties": required | optional,
        "required": [*required],
        "additionalProperties": False,
    }


def _choose(*forms: JsonObject) -> JsonObject:
    """Return the form of one of several objects. Some vendors refuse a schema whose root is not called an object."""
    return {"type": "object", "anyOf": [dict(form) for form in forms]}


def _pick(kind: str, *values: str | float) -> dict[str, Json]:
    """Return the form of one of several values. A constant is one, too: not every vendor knows `const`."""
    return {"type": kind, "enum": [*values]}


def _text(max_chars: int | None) -> dict[str, Json]:
    return {"type": "string"} if max_chars is None else {"type": "string", "maxLength": max_chars}  # fmt: skip


def _list_steps(skills: Sequence[ToolSpec], max_steps: int) -> dict[str, Json]:
    step = _form(
        {
            "skill": _pick("string", *(skill.name for skill in skills)),
            "input_description": _text(MAX_SENTENCE),
        },
        {"reason": _text(MAX_SENTENCE)},
    )
    return {"type": "array", "minItems": 1, "maxItems": max_steps, "items": dict(step)}


_NOTES: dict[str, Json] = {"working_memory": _text(MAX_NOTES)}
_SURE: dict[str, Json] = {
    "confidence": _pick("number", *(tenth / 10 for tenth in range(11))),
    "reason": _text(MAX_SENTENCE),
}
