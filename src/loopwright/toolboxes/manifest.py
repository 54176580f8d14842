"""Tools declared in a TOML file: a program, a template of its arguments, and the type of each value in it.

[[tool]]
name = "ping"
description = "Whether a host answers."
effect = "read"
argv = ["ping", "-c", "{count}", "{host}"]

[tool.arguments.host]
type = "host"

[tool.arguments.count]
type = "integer"
most = 5
default = 1
"""

import dataclasses
import datetime
import difflib
import os
import re
import shutil
import string
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeGuard, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import ErrorDetails

from ..errors import ConfigError, ToolError
from ..labels import Label
from ..messages import Effect, Json
from ..tools.base import Tool
from ..tools.schema import without_titles
from .manifest_arguments import KINDS, Arguments, Strict
from .processes import Ran, bare_environment, run_process

SPARE = 1.0
"""Seconds beyond a tool's own, after which its program is killed even if nobody cancels the call."""
FORMATTER = string.Formatter()
PLACEHOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Element: TypeAlias = tuple[tuple[str, str], ...]
"""One element of `argv`: texts, each with the name of the argument that comes behind it, or ""."""


class _Declared(Strict):
    """One `[[tool]]`."""

    name: str
    description: Annotated[str, Field(min_length=1)]
    argv: Annotated[list[str], Field(min_length=1)]
    effect: Effect = "write"
    label: Label = "normal"
    trusted: bool = False
    verified: bool = False
    timeout: Annotated[float, Field(gt=0)] = 60.0
    max_bytes: Annotated[int, Field(ge=1)] = 100_000
    max_output_chars: Annotated[int, Field(ge=1)] | None = None
    folder: str = "."
    environment: list[str] = Field(default_factory=list[str])
    arguments: dict[str, Arguments] = Field(default_factory=dict[str, Arguments])


def manifest(path: str | os.PathLike[str]) -> list[Tool]:
    """The tools that a TOML file declares.

    Programs run without a shell, each value in one element of `argv` and checked by its type, in a bare environment,
    with their time and output limited. Programs and folders are looked up here and now, relative ones from the file's
    own folder. Raises `ConfigError` naming the file, the tool and the field.
    """
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read as TOML: {error}") from None
    tables: object = content.get("tool")
    if unknown := content.keys() - {"tool"}:
        raise ConfigError(
            f"{file}: {min(unknown)}: there is no such table; tools are declared with [[tool]]"
        )
    if not _are_tables(tables):
        raise ConfigError(f"{file}: declares no tool: begin each with [[tool]]")
    made: dict[str, Tool] = {}
    for number, table in enumerate(tables, 1):
        where = f"{file}: tool {table.get('name', f'number {number}')!r}"
        try:
            tool = _made(_declared(table), file.parent.absolute())
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if tool.name in made:
            raise ConfigError(f"{where}: name: an earlier tool has it")
        made[tool.name] = tool
    return list(made.values())


def _are_tables(given: object) -> TypeGuard[list[dict[str, Any]]]:
    several = cast("list[object]", given) if isinstance(given, list) else []
    return bool(several) and all(isinstance(each, dict) for each in several)


def _declared(table: dict[str, Any]) -> _Declared:
    try:
        return _Declared.model_validate(table)
    except ValidationError as error:
        raise ConfigError(_told(error.errors(include_url=False)[0], table)) from None


def _told(problem: ErrorDetails, table: dict[str, Any]) -> str:
    """What pydantic found, in words for the author of the file."""
    place = list(problem["loc"])
    model: type[BaseModel] = _Declared
    if place[0] == "arguments" and len(place) > 2:
        model = KINDS[str(place.pop(2))]  # pydantic names the type that it took, too
    field = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(place[-1]), model.model_fields, n=2)
        hint = (
            f"; did you mean {' or '.join(near)}?"
            if near
            else f"; there are {', '.join(model.model_fields)}"
        )
        return f"{field}: there is no such field{hint}"
    if problem["type"].startswith("union_tag"):
        kind = table["arguments"][place[1]].get("type")
        near = difflib.get_close_matches(str(kind), KINDS, n=2)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"there are {', '.join(KINDS)}"
        )
        return f"{field}.type: must be the type of the argument, got {kind!r}; {hint}"
    return f"{field}: {problem['msg']}" + (
        "" if problem["type"] == "missing" else f", got {problem['input']!r}"
    )


def _made(declared: _Declared, folder: Path) -> Tool:
    template = tuple(
        _element(position, text) for position, text in enumerate(declared.argv)
    )
    _check_names(template, declared.arguments)
    model = _model(declared, folder)
    program = _Program(
        name=declared.name,
        path=_executable(declared.argv[0], folder),
        template=template[1:],
        folder=_folder(folder / declared.folder),
        environment=tuple(declared.environment),
        timeout=declared.timeout + SPARE,
        max_bytes=declared.max_bytes,
    )
    schema = cast("dict[str, Json]", without_titles(model.model_json_schema()))
    return Tool(
        name=declared.name,
        description=declared.description,
        schema={"type": "object", "properties": {}, **schema},
        function=program,
        effect=declared.effect,
        timeout=declared.timeout,
        max_output_chars=declared.max_output_chars,
        label=declared.label,
        trusted=declared.trusted,
        verified=declared.verified,
        arguments_model=model,
    )


def _element(position: int, text: str) -> Element:
    """An element of `argv`, taken apart at its placeholders; `{{` and `}}` are braces."""
    try:
        parts = list(FORMATTER.parse(text))
    except ValueError as error:
        raise ConfigError(
            f"argv.{position}: {error} in {text!r}; a brace itself is written twice"
        ) from None
    names = [name for _, name, _, _ in parts if name is not None]
    if any(spec or how for _, _, spec, how in parts) or not all(
        map(PLACEHOLDER.fullmatch, names)
    ):
        raise ConfigError(
            f"argv.{position}: a placeholder is the name of an argument in braces, got {text!r}"
        )
    if names and position == 0:
        raise ConfigError(
            f"argv.0: the program itself cannot be an argument, got {text!r}"
        )
    if "\0" in text:
        raise ConfigError(
            f"argv.{position}: no program can be given a NUL, got {text!r}"
        )
    return tuple((literal, name or "") for literal, name, _, _ in parts)


def _check_names(template: Sequence[Element], arguments: Mapping[str, object]) -> None:
    used = [name for element in template for _, name in element if name]
    for name in used:
        if name not in arguments:
            near = difflib.get_close_matches(name, arguments, n=2)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"declare it as [tool.arguments.{name}]"
            )
            raise ConfigError(f"argv: there is no argument {name!r}; {hint}")
    for name in arguments:
        if name not in used:
            raise ConfigError(
                f"arguments.{name}: is not used in argv: write {{{name}}} where it belongs"
            )


def _executable(program: str, folder: Path) -> str:
    """The absolute path of a program: relative to the file's folder if it has a slash, else found in PATH."""
    path = str(folder / program) if "/" in program else shutil.which(program)
    if (
        path is None
        or not os.path.isabs(path)
        or not os.path.isfile(path)
        or not os.access(path, os.X_OK)
    ):
        raise ConfigError(
            f"argv.0: there is no program {program!r} that can be run here"
        )
    return path


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ConfigError(f"folder: there is no folder {str(path)!r}")
    return path


def _model(declared: _Declared, folder: Path) -> type[BaseModel]:
    """The arguments as `@tool` would have them: a field's own name is only a number, its alias is the argument."""
    fields: dict[str, Any] = {}
    for position, (name, argument) in enumerate(declared.arguments.items()):
        try:
            annotation = argument.annotation(folder)
            default = _default(annotation, argument.default)
        except ConfigError as error:
            raise ConfigError(f"arguments.{name}.{error}") from None
        field = Field(
            default,
            alias=name,
            description=argument.description or None,
            validate_default=True,
        )
        fields[f"argument_{position}"] = (annotation, field)
    build: Any = create_model  # its overloads cannot say "fields under any name"
    made: type[BaseModel] = build(
        f"{declared.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields
    )
    return made


def _default(annotation: Any, default: Json) -> Any:
    """The default, which stays as the file has it; `...` if there is none."""
    if default is None:
        return ...
    try:
        TypeAdapter[Any](annotation).validate_python(default)
    except ValidationError as error:
        raise ConfigError(
            f"default: {error.errors()[0]['msg']}, got {default!r}"
        ) from None
    return default


@dataclasses.dataclass(frozen=True)
class _Program:
    """Runs a program with the values of one call."""

    name: str
    path: str
    template: tuple[Element, ...]
    folder: Path
    environment: tuple[str, ...]
    timeout: float
    max_bytes: int

    async def __call__(self, **values: object) -> str:
        words = [
            "".join(
                literal + (_written(values[name]) if name else "")
                for literal, name in element
            )
            for element in self.template
        ]
        ran = await run_process(
            [self.path, *words],
            cwd=self.folder,
            env=bare_environment(self.environment),
            timeout=self.timeout,
            max_bytes=self.max_bytes,
        )
        told = self._told(ran)
        if ran.timed_out:
            raise ToolError(
                f"{self.name} was ended after {self.timeout:g} s.{told and ' It wrote:'}{told}"
            )
        if ran.code:
            how = (
                f"with exit code {ran.code}"
                if ran.code > 0
                else f"by signal {-ran.code}"
            )
            raise ToolError(f"{self.name} ended {how}.{told and ' It wrote:'}{told}")
        return told.lstrip("\n") or "It wrote nothing."

    def _told(self, ran: Ran) -> str:
        cut = f"[cut: more than {self.max_bytes} bytes]" if ran.cut else ""
        errors = f"[standard error]\n{ran.errors.strip()}" if ran.errors.strip() else ""
        return "".join(
            f"\n{part}" for part in (ran.output.strip("\n"), errors, cut) if part
        )


def _written(value: object) -> str:
    """A value as a program reads it: durations in seconds, numbers without an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
        value = int(value) if value.is_integer() else value
    return f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value)
