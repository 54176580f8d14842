"""Schemas of replies for endpoints that take no schema but one of an object."""

from collections.abc import Sequence

from ..messages import Json, JsonObject

KINDS_OF_CHOICE = ({"type", "const"}, {"type", "enum"})
"""The keywords of a property that is one of some values."""


def merge_branches(schema: JsonObject) -> JsonObject:
    """Return one object in the place of a choice between objects; any other schema is returned as it is.

    What fits a branch fits the object. Which properties belong together is lost; those of all branches are required.
    Source: https://developers.openai.com/api/docs/guides/structured-outputs (the root).
    """
    branches = schema.get("anyOf")
    if "properties" in schema or not isinstance(branches, list):
        return schema
    objects = [one for one in branches if isinstance(one, dict) and _is_closed(one)]
    if not objects or len(objects) < len(branches):
        return schema
    required = [_list_names(one, "required") for one in objects]
    common = [name for name in required[0] if all(name in one for one in required)]
    others = {name: value for name, value in schema.items() if name != "anyOf"}
    return {
        **others,
        "type": "object",
        "properties": _merge_properties(objects),
        "required": [*common],
        "additionalProperties": False,
    }


def _is_closed(branch: dict[str, Json]) -> bool:
    has_properties = isinstance(branch.get("properties"), dict)
    return has_properties and branch.get("additionalProperties") is False


def _list_names(branch: dict[str, Json], keyword: str) -> list[str]:
    found = branch.get(keyword, [])
    return [*map(str, found)] if isinstance(found, list | dict) else []


def _merge_properties(objects: Sequence[dict[str, Json]]) -> dict[str, Json]:
    names = dict.fromkeys(name for one in objects for name in _list_names(one, "properties"))  # fmt: skip
    return {name: _merge_property([*_find_forms(objects, name)]) for name in names}


def _find_forms(objects: Sequence[dict[str, Json]], name: str) -> list[dict[str, Json]]:
    """Return the forms of a property, each once."""
    found: list[dict[str, Json]] = []
    for one in objects:
        properties = one["properties"]
        form = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(form, dict) and form not in found:
            found.append(form)
    return found


def _merge_property(forms: list[dict[str, Json]]) -> Json:
    if len(forms) == 1:
        return forms[0]
    types = {str(form.get("type")) for form in forms}
    if len(types) > 1 or any(set(form) not in KINDS_OF_CHOICE for form in forms):
        return {"anyOf": [*forms]}
    values: list[Json] = []
    for form in forms:
        choices = form.get("enum", [form.get("const")])
        values += choices if isinstance(choices, list) else []
    return {"type": forms[0]["type"], "enum": values}
