"""The file: its tables and their keys, of which an unknown one is an error that has its path."""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from .._kernel.session.services import OnUnknown
from ..errors import ConfigError
from ..schedules.base import Missed, Overlap

Values: TypeAlias = dict[str, Any]
"""The keys of a table, as TOML gives them."""

MAX_SHOWN = 60  # characters of a bad value in an error
MAX_BYTES = 1_000_000


class Table(BaseModel):
    """A table whose keys are known."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


class ProgressTable(Table):
    """When a run makes no progress; see `ProgressRules`."""

    repeats: int = 3
    similarity: float = 0.85
    then: Literal["answer", "abort", "ask"] = "answer"


class RetryTable(Table):
    """How often failed calls are repeated; see `Retry`."""

    max_attempts: int = 2
    base_delay: float = 0.5


class RuntimeTable(Table):
    """The services that all agents share; see `Runtime`."""

    agent: str = ""
    """The agent, engine or pipeline of the file that is meant where none is named."""
    provider: str = ""
    """A provider of the file, or "provider:model"; without it the only one of the file."""
    journal: str | Values = ""
    knowledge: str | Values = ""
    settings: str = ""
    """The SQLite file of settings that are changed while the application runs."""
    toolboxes: list[str] | None = None
    """The toolboxes of the file whose tools all agents have; without it all of them."""
    gates: list[str] = []
    """The gates that all must allow a call: those of the file, or names of installed ones."""
    context: str | None = None
    on_unknown: OnUnknown = "tell"
    app_version: str = ""
    lease: float | None = None
    progress: ProgressTable = Field(default_factory=ProgressTable)
    retry: RetryTable | None = None
    """The `default_recovery` of tools without a recovery of their own."""
    hooks: list[str | Values] = []
    after: list[str | Values] = []
    """Follow-ups: names of installed ones, or tables `{follow_up = name, option = value}`."""


class AgentTable(Table):
    """One agent; see `Runtime.agent`."""

    engine: str | Values = "react"
    """An engine or a pipeline of the file, the name of an installed one, or a table `{engine = name, option = value}`."""
    instructions: str = ""
    description: str = ""
    toolboxes: list[str] | None = None
    """The toolboxes of the file whose tools it has; without it those of the runtime."""
    limits: Values = {}
    """What differs from the limits of the file."""
    handoffs: list[str] = []
    context: str | None = None
    knowledge: str | Values | None = None
    """Its own store; empty for none, and without it that of the runtime."""
    hooks: list[str | Values] = []
    after: list[str | Values] | None = None
    output: str = ""
    """The type as which its answers are read, as "package.module:Type"."""


class ScheduleTable(Table):
    """What an agent does at times; see `Runtime.schedule`."""

    agent: str = ""
    """An agent of the file; without it the one that is meant where none is named."""
    task: str
    cron: str
    zone: str = "UTC"
    missed: Missed = "once"
    overlap: Overlap = "skip"


class FileTables(Table):
    """The whole file."""

    runtime: RuntimeTable = Field(default_factory=RuntimeTable)
    limits: Values = {}
    providers: dict[str, Values] = {}
    toolboxes: dict[str, Values] = {}
    secrets: dict[str, str] = {}
    """Where each secret of the runtime is kept; see `SecretStore`."""
    gates: dict[str, Values] = {}
    engines: dict[str, Values] = {}
    pipelines: dict[str, Values] = {}
    agents: dict[str, AgentTable] = {}
    schedules: dict[str, ScheduleTable] = {}


def read_file(path: str | os.PathLike[str]) -> FileTables:
    """Return the tables of a TOML file.

    Raises `ConfigError` for a file that cannot be read, and for a key that is unknown or has a value of another type.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{file}: is larger than {MAX_BYTES:,} bytes")
        values = tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from None
    try:
        return FileTables.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{file}: {explain(error, values)}") from None


def explain(error: ValidationError, values: Values) -> str:
    """Describe which keys are wrong, each by its path."""
    found: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        place, depth = find_place(detail["loc"], values)
        if detail["type"] == "missing":
            found[f"{place}.{detail['loc'][-1]}"] = "is required"
        else:
            found.setdefault(place, _describe(detail, depth))
    return "; ".join(f"{place}: {problem}" for place, problem in found.items())


def find_place(loc: tuple[int | str, ...], values: Any) -> tuple[str, int]:
    """Return the path of an error in the file, and how many keys it has: pydantic adds the names of types."""
    keys: list[str] = []
    for part in loc:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            break
        keys.append(str(part))
    return ".".join(keys), len(keys)


def _describe(detail: ErrorDetails, depth: int) -> str:
    if detail["type"] == "extra_forbidden":
        known = _find_table(detail["loc"], depth).model_fields
        return f"there is no such key; {suggest(str(detail['loc'][-1]), known)}"
    value = repr(detail.get("input"))
    if len(value) > MAX_SHOWN:
        value = f"{value[: MAX_SHOWN - 3]}..."
    return f"{detail['msg']}, got {value}"


def _find_table(loc: tuple[int | str, ...], depth: int) -> type[Table]:
    """Return the table in which a key is unknown, which has so many keys in its path."""
    inner: dict[int | str, type[Table]] = {"progress": ProgressTable, "retry": RetryTable}  # fmt: skip
    of_names = ScheduleTable if loc[0] == "schedules" else AgentTable
    kinds: dict[int, type[Table]] = {1: FileTables, 2: RuntimeTable, 3: of_names}
    return inner.get(loc[1], kinds[depth]) if depth == 3 else kinds[depth]


def suggest(name: str, known: Any) -> str:
    """Return the names that one may have been meant as, or all there are."""
    near = difflib.get_close_matches(name, list(known), n=2)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(known) or 'none'}"
