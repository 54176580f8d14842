"""JSON pointers into the arguments of a call (RFC 6901), with `*` for every element."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from ..errors import ConfigError
from ..messages import Json, JsonObject

Pointer: TypeAlias = tuple[str, ...]
"""The steps from the arguments to a value, unescaped."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class NoValue:
    """The result of a pointer that leads to no value: `ABSENT` or `UNREACHABLE`."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __repr__(self) -> str:
        return self._reason


ABSENT: Final = NoValue("absent")
"""There is no such key or element, or it is null."""
UNREACHABLE: Final = NoValue("unreachable")
"""The pointer passes through a value of another type: a key of a text, a name in a list."""

FoundValue: TypeAlias = Json | NoValue


def parse_pointer(text: str) -> Pointer:
    """Return the steps of a pointer: "/to/0" is ("to", "0"). Raises `ConfigError`."""
    if not text.startswith("/"):
        raise ConfigError(
            f"{text!r} is not a JSON pointer to an argument; "
            'begin it with a slash, like "/path"'
        )
    if re.search("~(?![01])", text):
        raise ConfigError(
            f"{text!r} is not a JSON pointer; "
            "write ~0 for a tilde in a name, and ~1 for a slash"
        )
    return tuple(map(_unescape, text[1:].split("/")))


def _unescape(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def find_values(value: Json | JsonObject, pointer: Pointer) -> Sequence[FoundValue]:
    """Return what a pointer leads to: one value or `NoValue`; with `*`, one for each element."""
    found: Sequence[FoundValue] = [cast(Json, value)]
    for step in pointer:
        if step == "*":
            found = [child for parent in found for child in _list_children(parent)]
        else:
            found = [_find_child(parent, step) for parent in found]
    return [ABSENT if each is None else each for each in found]


def _list_children(parent: FoundValue) -> Sequence[FoundValue]:
    if parent is None or isinstance(parent, NoValue):
        return (parent or ABSENT,)
    if isinstance(parent, dict):
        return tuple(parent.values()) or (ABSENT,)
    if isinstance(parent, list):
        return parent or (ABSENT,)
    return (UNREACHABLE,)


def _find_child(parent: FoundValue, step: str) -> FoundValue:
    if isinstance(parent, dict):
        return parent.get(step, ABSENT)
    if parent is None or isinstance(parent, NoValue):
        return parent or ABSENT
    if not isinstance(parent, list):
        return UNREACHABLE
    if step == "-":  # RFC 6901: the element after the last one
        return ABSENT
    if not _INDEX.fullmatch(step):
        return UNREACHABLE
    index = int(step)
    return parent[index] if index < len(parent) else ABSENT


def replace_values(
    arguments: JsonObject, values: Mapping[Pointer, Json]
) -> dict[str, Json] | None:
    """Return a copy of the arguments with other values; missing objects on the way are created.

    Lists are not extended. Returns `None` if a pointer passes through a value that cannot
    have such an element.
    """
    changed = copy.deepcopy(dict(arguments))
    for pointer, value in values.items():
        if not _set_value(changed, pointer, copy.deepcopy(value)):
            return None
    return changed


def _set_value(container: Any, pointer: Pointer, value: Json) -> bool:
    """Set one value in place, and return whether there is a place for it."""
    step, *rest = pointer
    key = _find_key(container, step)
    if key is None:
        return False
    if not rest:
        container[key] = value
        return True
    if isinstance(key, str) and container.get(key) is None:
        container[key] = {}
    return _set_value(container[key], tuple(rest), value)


def _find_key(container: Json, step: str) -> str | int | None:
    """Return the key or index of a step; `None` if the container cannot have it."""
    if isinstance(container, dict):
        return step
    if not isinstance(container, list) or not _INDEX.fullmatch(step):
        return None
    index = int(step)
    return index if index < len(container) else None
