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
maximum = 5
default = 1
"""

import datetime
import difflib
import os
import re
import shutil
import string
import tomllib
from collections.abc import Collection, Mapping, Sequence
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

from .._internal import dataclasses
from ..errors import ConfigError, ToolError
from ..labels import Label
from ..messages import Effect, Json
from ..tools.base import Tool
from ..tools.schema import without_titles
from .container import ContainerSandbox
from .manifest_arguments import KINDS, Arguments, Strict
from .processes import ProcessResult, bare_environment, run_process
from .sandbox import (
    BubblewrapSandbox,
    Sandbox,
    can_find_programs,
    choose_sandbox,
)

SPARE = 1.0
"""Seconds after the tool's own timeout, when its program is killed even without a cancellation."""
FORMATTER = string.Formatter()
PLACEHOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Element: TypeAlias = tuple[tuple[str, str], ...]
"""One element of `argv`: texts, each with the name of the argument that follows it, or ""."""


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
    outbound: bool = True
    destinations: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()
    directory: bool = False
    arguments: dict[str, Arguments] = Field(default_factory=dict[str, Arguments])


def manifest(
    path: str | os.PathLike[str], *, sandbox: Sandbox | str | None = None
) -> list[Tool]:
    """Return the tools that a TOML file declares.

    Programs run without a shell, each value in one element of `argv` and checked by its type, in a
    bare environment, with limited time and output. Programs and directories are looked up now,
    relative ones from the file's own directory. `sandbox` confines the programs: "bubblewrap", or a
    `Sandbox`; they write to no file then, unless a `BubblewrapSandbox` or a `ContainerSandbox` says `write_cwd=True`
    or `writable`.
    Raises `ConfigError` naming the file, the tool and the field.
    """
    confining = choose_sandbox(sandbox)
    if isinstance(
        confining, (BubblewrapSandbox, ContainerSandbox)
    ):  # a tool must not change what it is
        confining = confining.with_default(write_cwd=False)
    file = Path(path)
    made: dict[str, Tool] = {}
    for number, table in enumerate(_read_tables(file), 1):
        where = f"{file}: tool {table.get('name', f'number {number}')!r}"
        try:
            folder = file.parent.absolute()
            tool = _build_tool(_parse_table(table), folder, confining)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        if tool.name in made:
            raise ConfigError(f"{where}: name: an earlier tool has it")
        made[tool.name] = tool
    return list(made.values())


def _read_tables(file: Path) -> list[dict[str, Any]]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read as TOML: {error}") from None
    if unknown := content.keys() - {"tool"}:
        raise ConfigError(
            f"{file}: {min(unknown)}: there is no such table; tools are declared with [[tool]]"
        )
    tables: object = content.get("tool")
    if not _are_tables(tables):
        raise ConfigError(f"{file}: declares no tool; begin each with [[tool]]")
    return tables


def _are_tables(given: object) -> TypeGuard[list[dict[str, Any]]]:
    several = cast("list[object]", given) if isinstance(given, list) else []
    return bool(several) and all(isinstance(each, dict) for each in several)


def _parse_table(table: dict[str, Any]) -> _Declared:
    try:
        return _Declared.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ConfigError(_format_problem(problem, table)) from None


def _format_problem(problem: ErrorDetails, table: dict[str, Any]) -> str:
    """Return a problem that pydantic found, in words for the author of the file."""
    place = list(problem["loc"])
    model: type[BaseModel] = _Declared
    if place[0] == "arguments" and len(place) > 2:
        model = KINDS[str(place.pop(2))]  # pydantic also names the type that it chose
    field = ".".join(map(str, place))
    if problem["type"] == "extra_forbidden":
        hint = _suggest(str(place[-1]), model.model_fields)
        return f"{field}: there is no such field; {hint}"
    if problem["type"].startswith("union_tag"):
        kind = table["arguments"][place[1]].get("type")
        hint = _suggest(str(kind), KINDS)
        return f"{field}.type: must be the type of the argument, got {kind!r}; {hint}"
    if problem["type"] == "missing":
        return f"{field}: {problem['msg']}"
    return f"{field}: {problem['msg']}, got {problem['input']!r}"


def _suggest(name: str, known: Collection[str], otherwise: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=2)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"there are {', '.join(known)}"


def _build_tool(declared: _Declared, folder: Path, sandbox: Sandbox | None) -> Tool:
    template = tuple(
        _parse_element(position, text) for position, text in enumerate(declared.argv)
    )
    _check_names(template, declared.arguments)
    model = _build_model(declared, folder)
    program = _Program(
        name=declared.name,
        path=_find_program(declared.argv[0], folder, sandbox),
        template=template[1:],
        folder=_check_folder(folder / declared.folder),
        environment=tuple(declared.environment),
        timeout=declared.timeout + SPARE,
        max_bytes=declared.max_bytes,
        sandbox=sandbox,
    )
    program.check()
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
        outbound=declared.outbound,
        destinations=declared.destinations,
        content=declared.content,
        directory=declared.directory,
        source="manifest",
    )


def _parse_element(position: int, text: str) -> Element:
    """Split an element of `argv` at its placeholders; `{{` and `}}` are braces."""
    try:
        parts = list(FORMATTER.parse(text))
    except ValueError as error:
        raise ConfigError(
            f"argv.{position}: {error} in {text!r}; a brace itself is written twice"
        ) from None
    names = [name for _, name, _, _ in parts if name is not None]
    has_format = any(spec or conversion for _, _, spec, conversion in parts)
    if has_format or not all(map(PLACEHOLDER.fullmatch, names)):
        raise ConfigError(
            f"argv.{position}: a placeholder is the name of an argument in braces, got {text!r}"
        )
    if names and position == 0:
        raise ConfigError(
            f"argv.0: the program itself cannot be an argument, got {text!r}"
        )
    if "\0" in text:
        raise ConfigError(
            f"argv.{position}: an argument of a program cannot contain NUL, got {text!r}"
        )
    return tuple((literal, name or "") for literal, name, _, _ in parts)


def _check_names(template: Sequence[Element], arguments: Mapping[str, object]) -> None:
    used = [name for element in template for _, name in element if name]
    for name in used:
        if name not in arguments:
            hint = _suggest(
                name, arguments, otherwise=f"declare it as [tool.arguments.{name}]"
            )
            raise ConfigError(f"argv: there is no argument {name!r}; {hint}")
    for name in arguments:
        if name not in used:
            raise ConfigError(
                f"arguments.{name}: is not used in argv; write {{{name}}} where it belongs"
            )


def _find_program(program: str, folder: Path, sandbox: Sandbox | None) -> str:
    """Return the absolute path of a program.

    A name with a slash is relative to the file's directory; others are looked up in PATH, or by the sandbox.
    """
    if can_find_programs(sandbox) and "/" not in program:
        return program
    path = str(folder / program) if "/" in program else shutil.which(program)
    if path is None or not _is_program(path):
        raise ConfigError(
            f"argv.0: there is no program {program!r} that can be run here"
        )
    return path


def _is_program(path: str) -> bool:
    return os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK)


def _check_folder(path: Path) -> Path:
    if not path.is_dir():
        raise ConfigError(f"folder: {str(path)!r} is not a directory")
    return path


def _build_model(declared: _Declared, folder: Path) -> type[BaseModel]:
    """Return the arguments as `@tool` would: a field's name is a number, its alias the argument."""
    fields: dict[str, Any] = {}
    for position, (name, argument) in enumerate(declared.arguments.items()):
        try:
            annotation = argument.annotation(folder)
            default = _check_default(annotation, argument.default)
        except ConfigError as error:
            raise ConfigError(f"arguments.{name}.{error}") from None
        field = Field(
            default,
            alias=name,
            description=argument.description or None,
            validate_default=True,
        )
        fields[f"argument_{position}"] = (annotation, field)
    build: Any = create_model  # its overloads cannot express "fields of any name"
    made: type[BaseModel] = build(
        f"{declared.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields
    )
    return made


def _check_default(annotation: Any, default: Json) -> Any:
    """Return the default as the file has it; `...` if there is none."""
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
    sandbox: Sandbox | None

    def check(self) -> None:
        """Raise `ConfigError` for a program that the sandbox does not show."""
        if self.sandbox is not None:
            self.sandbox.confine([self.path], cwd=self.folder, env={})

    async def __call__(self, **values: object) -> str:
        argv = [
            self.path,
            *(_format_element(element, values) for element in self.template),
        ]
        ran = await run_process(
            argv,
            cwd=self.folder,
            env=bare_environment(self.environment),
            timeout=self.timeout,
            max_bytes=self.max_bytes,
            sandbox=self.sandbox,
        )
        text = self._format_output(ran)
        quoted = f" It wrote:{text}" if text else ""
        if ran.timed_out:
            raise ToolError(f"{self.name} was ended after {self.timeout:g} s.{quoted}")
        if ran.code > 0:
            raise ToolError(f"{self.name} ended with exit code {ran.code}.{quoted}")
        if ran.code < 0:
            raise ToolError(f"{self.name} ended by signal {-ran.code}.{quoted}")
        return text.lstrip("\n") or "It wrote nothing."

    def _format_output(self, ran: ProcessResult) -> str:
        parts = [ran.output.strip("\n")]
        if ran.errors.strip():
            parts.append(f"[standard error]\n{ran.errors.strip()}")
        if ran.cut:
            parts.append(f"[cut: more than {self.max_bytes} bytes]")
        return "".join(f"\n{part}" for part in filter(None, parts))


def _format_element(element: Element, values: Mapping[str, object]) -> str:
    return "".join(
        literal + (_format_value(values[name]) if name else "")
        for literal, name in element
    )


def _format_value(value: object) -> str:
    """Return a value as a program reads it: durations in seconds, numbers without an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.timedelta):
        seconds = value.total_seconds()
        value = int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}"
    return str(value)
