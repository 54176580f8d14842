"""The arguments of a function, read from its signature and docstring for the schema of a tool."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_origin, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

from .._internal.regex import compile_late
from ..errors import ConfigError

SECTION = compile_late(
    r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*"
)
PARAMETER_SECTIONS = ("Args", "Arguments", "Parameters")
PARAMETER = compile_late(r"\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
UNNAMED = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


def without_partials(function: Any) -> Any:
    """Return the function or callable object that partials were made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a partial or callable object, with its annotations and docstring."""
    called = without_partials(function)
    if inspect.isroutine(called) or isinstance(called, type):
        return called
    return type(called).__call__


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling a function only returns an iterator."""
    plain = plain_function(function)
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def read_parameters(
    function: Callable[..., Any],
    tool_name: str,
    descriptions: Mapping[str, str],
    *,
    context: type,
) -> tuple[bool, dict[str, tuple[Any, Any]]]:
    """Return whether it takes a context first, and its other parameters as pydantic fields.

    The name of a field is only a number and its alias is the parameter, so that a parameter may be
    called `schema` or `copy`.
    """
    try:
        hints = get_type_hints(plain_function(function), include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {tool_name!r}: an annotation cannot be resolved: {error}"
        ) from error
    bound = _bound_names(function)
    parameters = tuple(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and parameters[0].name == "ctx"
    fields: dict[str, tuple[Any, Any]] = {}
    for position, parameter in enumerate(parameters):
        is_context = takes_context and position == 0
        if not is_context and parameter.name not in bound:
            _check_parameter(parameter, hints, tool_name, context)
            field = _make_field(parameter, descriptions.get(parameter.name))
            fields[f"argument_{position}"] = (hints[parameter.name], field)
    return takes_context, fields


def _bound_names(function: Any) -> Iterable[str]:
    """Return the parameters that a partial has bound, which a model must not see."""
    return function.keywords if isinstance(function, functools.partial) else ()


def _make_field(parameter: inspect.Parameter, description: str | None) -> Any:
    default = ... if parameter.default is parameter.empty else parameter.default
    # Even a description of `None` would replace that of an `Annotated` type.
    about: dict[str, Any] = {} if description is None else {"description": description}
    return Field(default=default, alias=parameter.name, **about)


def _check_parameter(
    parameter: inspect.Parameter, hints: dict[str, Any], tool_name: str, context: type
) -> None:
    """Raise `ConfigError` for a parameter that no model can fill in."""
    if parameter.kind in UNNAMED:
        raise ConfigError(
            f"tool {tool_name!r}: parameter {parameter} must be an ordinary named one"
        )
    name, hint = parameter.name, hints.get(parameter.name)
    if hint is None:
        raise ConfigError(
            f"tool {tool_name!r}: parameter {name!r} needs a type annotation, "
            f"for example `{name}: str`"
        )
    if context in (hint, get_origin(hint)):
        raise ConfigError(
            f"tool {tool_name!r}: the {context.__name__} must be the first parameter, "
            "and be named 'ctx'"
        )
    if isinstance(parameter.default, FieldInfo):
        raise ConfigError(
            f"tool {tool_name!r}: parameter {name!r} has a Field as its default; "
            f"write `{name}: Annotated[..., Field(...)] = value`"
        )


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the sections, and the parameters of `Args:` (Google style)."""
    (_, summary), *sections = _split_sections(text)
    parameters: dict[str, str] = {}
    for header, lines in sections:
        if header in PARAMETER_SECTIONS:
            parameters.update(_read_descriptions(lines))
    return "\n".join(summary).strip(), parameters


def _split_sections(text: str) -> Sequence[tuple[str, list[str]]]:
    """Return the header and the lines of each section, the first one without a header."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        header = SECTION.fullmatch(line)
        if header:
            sections.append((header[1], []))
        else:
            sections[-1][1].append(line)
    return sections


def _read_descriptions(lines: Iterable[str]) -> dict[str, str]:
    """Return the description of each parameter in a section, on one line."""
    descriptions: dict[str, str] = {}
    current = ""
    for line in lines:
        matched = PARAMETER.match(line)
        is_indented = len(line) - len(line.lstrip()) > 4
        if matched and not (current and is_indented):
            current = matched[1]
            descriptions[current] = matched[2].strip()
        elif current and line.strip():
            continued = f"{descriptions[current]} {line.strip()}"
            descriptions[current] = continued.strip()
    return descriptions
