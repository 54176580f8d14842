"""JSON pointers into the arguments of a call (RFC 6901), with `*` for every element."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from ..errors import ConfigError
from ..messages import Json, JsonObject

Pointer: TypeAlias = tuple[str, ...]
"""The steps from the arguments to a value, unescaped."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class Nothing:
    """What a pointer leads to where there is no value: `ABSENT` or `ASTRAY`."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __repr__(self) -> str:
        return self._why


ABSENT: Final = Nothing("absent")
"""There is no such key or element, or it is null."""
ASTRAY: Final = Nothing("astray")
"""The pointer leads through a value of another kind: a key of a text, a name into a list."""

Found: TypeAlias = Json | Nothing


def read_pointer(text: str) -> Pointer:
    """The steps of a pointer: "/to/0" is ("to", "0"). Raises `ConfigError`."""
    if not text.startswith("/"):
        raise ConfigError(
            f'{text!r} is no JSON pointer to an argument: it begins with a slash, like "/path"'
        )
    if re.search("~(?![01])", text):
        raise ConfigError(
            f"{text!r} is no JSON pointer: write ~0 for a tilde in a name, and ~1 for a slash"
        )
    return tuple(
        step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")
    )


def find(value: Json | JsonObject, pointer: Pointer) -> list[Found]:
    """What a pointer leads to: one value, or `ABSENT` or `ASTRAY`; with `*` one for each element, `ABSENT` for none."""
    found: list[Found] = [cast(Json, value)]
    for step in pointer:
        if step == "*":
            found = [element for place in found for element in _elements(place)]
        else:
            found = [_step(place, step) for place in found]
    return [ABSENT if place is None else place for place in found]


def _elements(place: Found) -> Sequence[Found]:
    if isinstance(place, (list, dict)):
        return list(place.values() if isinstance(place, dict) else place) or [ABSENT]
    return [
        place if isinstance(place, Nothing) else ABSENT if place is None else ASTRAY
    ]


def _step(place: Found, step: str) -> Found:
    if isinstance(place, dict):
        return place.get(step, ABSENT)
    if place is None or isinstance(place, Nothing):
        return place or ABSENT
    if not isinstance(place, list) or not (step == "-" or _INDEX.fullmatch(step)):
        return ASTRAY
    return place[int(step)] if step != "-" and int(step) < len(place) else ABSENT


def put(
    arguments: JsonObject, values: Mapping[Pointer, Json]
) -> dict[str, Json] | None:
    """A copy of the arguments with other values; objects on the way are made, lists are not made longer.

    `None` where a pointer leads through a value that can have no such element.
    """
    changed = copy.deepcopy(dict(arguments))
    for pointer, value in values.items():
        if not _put(changed, pointer, copy.deepcopy(value)):
            return None
    return changed


def _put(place: Json, pointer: Pointer, value: Json) -> bool:
    step, *rest = pointer
    if isinstance(place, dict):
        if not rest:
            place[step] = value
            return True
        if place.get(step) is None:
            place[step] = {}
        return _put(place[step], tuple(rest), value)
    if (
        not isinstance(place, list)
        or not _INDEX.fullmatch(step)
        or int(step) >= len(place)
    ):
        return False
    if not rest:
        place[int(step)] = value
        return True
    return _put(place[int(step)], tuple(rest), value)
