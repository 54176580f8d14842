"""`engines` and `plugins`: the installed entry points, their distributions and their state."""

import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic.fields import FieldInfo

from .._internal import dataclasses
from ..engine import LoopEngine
from ..events.describe import format_value
from ..plugins import Plugin, list_states, load_engine_class
from ..prompts import PromptSet
from ..tools.signature import read_docstring
from .inspect_runs import write, write_table
from .text import clean, one_line

SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


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
    """Show an engine and its options, with types, defaults and meanings."""
    kind = load_engine_class(name)
    about, meanings = read_docstring(inspect.getdoc(kind) or "")
    write(f"{clean(name)}\n\n{clean(about)}\n\nOptions (--option name=value):")
    for option in _options(kind):
        write(f"\n  {option.describe()}")
        if option.name in meanings:
            write(f"      {one_line(meanings[option.name])}")
    return 0


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of an engine, as it is shown."""

    name: str
    type: str
    default: str
    bounds: str

    def describe(self) -> str:
        """Return its name, type, bounds and default on one line."""
        bounds = f", {self.bounds}" if self.bounds else ""
        kind, default = one_line(self.type), one_line(self.default)
        return f"{self.name}: {kind}{bounds}, by default {default}"


def _origin(plugin: Plugin) -> tuple[str, str]:
    return plugin.distribution, plugin.version


def _summary(name: str) -> str:
    about, _ = read_docstring(inspect.getdoc(load_engine_class(name)) or "")
    return about.partition("\n")[0]


def _options(kind: type[LoopEngine]) -> Iterator[Option]:
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType] - a pydantic dataclass
        if field.name != "runtime":
            yield _read_option(field)


def _read_option(field: dataclasses.Field[Any]) -> Option:
    default, bounds = field.default, ""
    if isinstance(default, FieldInfo):
        bounds = _format_bounds(default.metadata)
        default = default.get_default()
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return Option(field.name, type_name(field.type), _format_default(default), bounds)


def _format_bounds(rules: Iterable[object]) -> str:
    """Return the constraints of a field: `>= 1, < 5`."""
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in rules
        for name, sign in SIGNS.items()
        if hasattr(rule, name)
    ]
    return ", ".join(bounds)


def _format_default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "none: required"
    if isinstance(value, PromptSet):
        return f"its own texts: {', '.join(value.texts)}"
    return format_value(value)


def type_name(annotation: Any) -> str:
    """Return a type in the notation of code, without the modules that it comes from."""
    if isinstance(annotation, str):
        return annotation
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(inner[0])
    if origin is typing.Literal:
        return " | ".join(map(format_value, inner))
    names = ["..." if member is ... else type_name(member) for member in inner]
    if origin in (typing.Union, types.UnionType):
        return " | ".join(names)
    name = getattr(origin or annotation, "__name__", str(annotation))
    if name == "NoneType":
        return "None"
    has_parameters = origin is not None and name != "Callable"
    return f"{name}[{', '.join(names)}]" if has_parameters else name
