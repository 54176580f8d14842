"""What the signature and the docstring of a function say of its arguments, for the schema of a tool."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, get_origin, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

from ..errors import ConfigError


def without_partials(function: Any) -> Any:
    """The function or callable object that partials were made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind a partial or a callable object: it has the annotations and the docstring."""
    called = without_partials(function)
    return (
        called
        if inspect.isroutine(called) or isinstance(called, type)
        else type(called).__call__
    )


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling a function only gives something to iterate over."""
    plain = plain_function(function)
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def _bound(function: Any) -> Iterable[str]:
    """The parameters that a partial has filled in already: not for the model to see."""
    return function.keywords if isinstance(function, functools.partial) else ()


def fields_of(
    function: Callable[..., Any],
    tool_name: str,
    descriptions: dict[str, str],
    *,
    context: type,
) -> tuple[bool, dict[str, tuple[Any, Any]]]:
    """Whether it takes a context first, and its other parameters as fields of a pydantic model.

    A field's own name is only a number, its alias is the parameter: so a parameter may be called `schema` or `copy`.
    """
    try:
        hints = get_type_hints(plain_function(function), include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {tool_name!r}: an annotation cannot be resolved: {error}"
        ) from error
    bound = _bound(function)
    fields: dict[str, tuple[Any, Any]] = {}
    takes_context = False
    for position, parameter in enumerate(
        inspect.signature(function).parameters.values()
    ):
        if position == 0 and parameter.name == "ctx":
            takes_context = True
        elif parameter.name not in bound:
            _check_parameter(parameter, hints, tool_name, context)
            about: dict[str, Any] = {"alias": parameter.name}
            if parameter.name in descriptions:
                about["description"] = descriptions[parameter.name]
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[f"argument_{position}"] = (
                hints[parameter.name],
                Field(default=default, **about),
            )
    return takes_context, fields


def _check_parameter(
    parameter: inspect.Parameter, hints: dict[str, Any], tool_name: str, context: type
) -> None:
    """Raise `ConfigError` for a parameter that no model can fill in."""
    if parameter.kind in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
        parameter.POSITIONAL_ONLY,
    ):
        raise ConfigError(
            f"tool {tool_name!r}: parameter {parameter} must be an ordinary named one"
        )
    hint = hints.get(parameter.name)
    if hint is None:
        raise ConfigError(
            f"tool {tool_name!r}: parameter {parameter.name!r} needs a type annotation, "
            f"for example `{parameter.name}: str`"
        )
    if context in (hint, get_origin(hint)):
        raise ConfigError(
            f"tool {tool_name!r}: the {context.__name__} must be the first parameter, and be named 'ctx'"
        )
    if isinstance(parameter.default, FieldInfo):
        raise ConfigError(
            f"tool {tool_name!r}: parameter {parameter.name!r} has a Field as its default: "
            f"write `{parameter.name}: Annotated[..., Field(...)] = value`"
        )


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the sections, and what an `Args:` section (Google style) says of each parameter."""
    summary: list[str] = []
    parameters: dict[str, str] = {}
    section, current = "", ""
    for line in text.splitlines():
        header = re.fullmatch(
            r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):",
            line.strip(),
        )
        if header and not line[:1].isspace():
            section, current = header[1], ""
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments", "Parameters"):
            named = re.match(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
            if named and (not current or len(line) - len(line.lstrip()) <= 4):
                current = named[1]
                parameters[current] = named[2].strip()
            elif current and line.strip():
                parameters[current] = f"{parameters[current]} {line.strip()}".strip()
    return "\n".join(summary).strip(), parameters
