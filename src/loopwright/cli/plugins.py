"""`engines` and `plugins`: what is installed, from whom, and whether it works."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from ..engine import LoopEngine
from ..events.describe import format_value
from ..plugins import Plugin, list_states, load_engine_class
from ..prompts import PromptSet
from ..tools.signature import read_docstring
from .inspect_runs import write, write_table
from .text import clean, one_line


def list_plugins(*, load: bool) -> int:
    """List every entry point of every group with its state."""
    rows = [
        (
            found.plugin.group,
            found.plugin.name,
            *_origin(found.plugin),
            found.plugin.target,
            found.description,
        )
        for found in list_states(load=load)
    ]
    write_table(("group", "name", "distribution", "version", "target", "state"), rows)
    return 0


def list_engines() -> int:
    """List the engines; one that is broken is listed as such."""
    rows = [
        (
            found.plugin.name,
            *_origin(found.plugin),
            _summary(found.plugin.name) if found.state == "ok" else found.description,
        )
        for found in list_states(load=True)
        if found.plugin.group == "engines"
    ]
    write_table(("engine", "distribution", "version", "about"), rows)
    return 0


def show_engine(name: str) -> int:
    """Show what an engine does and its options with types, defaults and meanings."""
    kind = load_engine_class(name)
    about, meanings = read_docstring(inspect.getdoc(kind) or "")
    write(f"{clean(name)}\n\n{clean(about)}\n\nOptions (--option name=value):")
    for option in _options(kind):
        bound = f", {option.bounds}" if option.bounds else ""
        write(
            f"\n  {option.name}: {one_line(option.type)}{bound}, by default {one_line(option.default)}"
        )
        if option.name in meanings:
            write(f"      {one_line(meanings[option.name])}")
    return 0


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of an engine as it is shown."""

    name: str
    type: str
    default: str
    bounds: str


def _origin(plugin: Plugin) -> tuple[str, str]:
    return plugin.distribution, plugin.version


def _summary(name: str) -> str:
    return read_docstring(inspect.getdoc(load_engine_class(name)) or "")[0].partition(
        "\n"
    )[0]


def _options(kind: type[LoopEngine]) -> Iterator[Option]:
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType] - a pydantic dataclass
        if field.name == "runtime":
            continue
        info = field.default if isinstance(field.default, FieldInfo) else None
        bounds = (
            ", ".join(bound for rule in info.metadata for bound in _bounds(rule))
            if info
            else ""
        )
        default: Any = info.get_default() if info else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield Option(field.name, type_name(field.type), _default(default), bounds)


def _bounds(rule: object) -> Iterator[str]:
    """What a constraint of a field says: `>= 1`."""
    for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if hasattr(rule, name):
            yield f"{sign} {getattr(rule, name)}"


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "none: it must be given"
    if isinstance(value, PromptSet):
        return f"its own texts: {', '.join(value.texts)}"
    return format_value(value)


def type_name(annotation: Any) -> str:
    """A type as one would write it, without the modules it comes from."""
    if isinstance(annotation, str):
        return annotation
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(type_name(member) for member in inner)
    if origin is typing.Literal:
        return " | ".join(format_value(member) for member in inner)
    name = getattr(origin or annotation, "__name__", str(annotation))
    if origin is None or name == "Callable":
        return {"NoneType": "None"}.get(name, name)
    return f"{name}[{', '.join('...' if member is ... else type_name(member) for member in inner)}]"
