"""Plug-ins with options from the file, each of which is checked against the type that the plug-in's code declares."""

import inspect
import json
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ..errors import ConfigError, LoopwrightError
from ..plugins import plugin
from .file import MAX_SHOWN, Values, find_place, suggest

_ANY_TYPE = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")


def build_plugin(
    group: str, name: str, options: Values, place: str, live: Values | None = None
) -> Any:
    """Return what a plug-in makes with options; raise `ConfigError`, which begins with the path of the table.

    `live` are objects that it is given besides, by name.
    """
    try:
        target = plugin(group, name).load()
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    if not callable(target):
        raise ConfigError(f"{place}: {name!r} cannot be called, so it has no options")
    return call_with(target, options, place, live)


def call_with(
    target: Callable[..., Any], options: Values, place: str, live: Values | None = None
) -> Any:
    """Call a function or a class with options by name, once they were checked, and with live objects."""
    hints = _find_hints(target)
    parameters = _list_parameters(target, hints)
    for name in options:
        if name not in parameters:
            raise ConfigError(
                f"{place}.{name}: there is no such key; {suggest(name, parameters)}"
            )
    given = {
        name: _read(value, parameters[name], f"{place}.{name}")
        for name, value in options.items()
    }
    several = [
        name
        for name, one in inspect.signature(target).parameters.items()
        if one.kind is one.VAR_POSITIONAL
    ]
    first = [value for name in several for value in given.pop(name, [])]
    try:
        return target(*first, **given, **(live or {}))
    except LoopwrightError as error:
        raise ConfigError(f"{place}: {error}") from error
    except Exception as error:  # a plug-in may raise anything
        raise ConfigError(f"{place}: {type(error).__name__}: {error}") from error


def _find_hints(target: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types of parameters; none where a module hides what they are from running code."""
    code: Any = getattr(target, "__init__") if isinstance(target, type) else target  # noqa: B009 - it may be compiled late
    try:
        return get_type_hints(code, include_extras=True)
    except (NameError, TypeError):
        return {}


def _list_parameters(
    target: Callable[..., Any], hints: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the names that may be given, each with its type; `Any` where that is not known."""
    found: dict[str, Any] = {}
    for name, one in inspect.signature(target).parameters.items():
        declared = hints.get(name, Any)
        if one.kind is one.VAR_KEYWORD:
            if get_origin(declared) is Unpack:
                named = get_args(declared)[0]
                found |= get_type_hints(named, include_extras=True)
        elif one.kind is one.VAR_POSITIONAL:
            found[name] = GenericAlias(list, (declared,))
        elif one.kind is not one.POSITIONAL_ONLY:
            found[name] = declared
    return found


def _read(value: Any, declared: Any, place: str) -> Any:
    """Return a value of the file as the type that is declared; raise `ConfigError` if it is none."""
    if declared is Any:
        return value
    try:
        encoded = json.dumps(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{place}: must be plain data, got {value!r:.60}") from None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(declared, config=_config(declared))
    except Exception:  # noqa: BLE001 - pydantic has no common error for types that it cannot read
        raise ConfigError(f"{place}: is code, which no file holds") from None
    try:
        read = adapter.validate_json(encoded, strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        detail = details[0]
        if detail["type"] == "needs_python_object":
            raise ConfigError(f"{place}: is code, which no file holds") from None
        raise ConfigError(_describe(details, value, place)) from None
    # An iterable is read late, and so not at all, so that the list itself is passed on.
    return read if isinstance(value, dict) else value


def _describe(details: list[ErrorDetails], value: Any, place: str) -> str:
    """Describe what is wrong with the first wrong key, by its path, which has no types; of a union, each reason."""
    detail, reasons = details[0], dict[str, None]()
    inner, _ = find_place(detail["loc"], value)
    for one in details:
        if find_place(one["loc"], value)[0] == inner:
            reasons[one["msg"]] = None
    place = f"{place}.{inner}" if inner else place
    if detail["type"] in _UNKNOWN_KEY:
        return f"{place}: there is no such key; correct its name, or take it out"
    shown = repr(detail["input"] if inner else value)[:MAX_SHOWN]
    return f"{place}: {', or '.join(reasons)}, got {shown}"


def _config(declared: Any) -> ConfigDict | None:
    """Return the settings for a type; a model has its own."""
    has_own = isinstance(declared, type) and hasattr(declared, "__pydantic_validator__")
    return None if has_own else _ANY_TYPE


def take_name(table: Values, key: str, place: str) -> tuple[str, Values]:
    """Return the name of a plug-in in a table, and the other keys; raise `ConfigError` without one."""
    options = dict(table)
    name = options.pop(key, None)
    if not isinstance(name, str) or not name:
        found = f", got {name!r:.60}" if key in table else ""
        raise ConfigError(f'{place}.{key}: name what is installed, like {key} = "..."{found}')  # fmt: skip
    return name, options
