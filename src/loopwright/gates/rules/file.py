"""Rules from a TOML or YAML file; what is wrong is told by file, rule and field."""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from ..._internal.options import Options
from ...errors import ConfigError
from ...messages import Json
from ...parsing.yaml_text import read_yaml
from ..time_window import Hours
from .conditions import Condition
from .rule import Rule, check_names

Otherwise: TypeAlias = Literal["deny", "ask", "allow"]
Part = TypeVar("Part")

MAX_BYTES = 1_000_000
PARTS: dict[str, type[Options]] = {"when": Condition, "hours": Hours}


def read_rule_file(path: Path) -> tuple[tuple[Rule, ...], Otherwise]:
    """The rules in a file, and what it says of calls that no rule speaks of. Raises `ConfigError`."""
    try:
        return _read(_document(path.suffix, _text(path)))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"has more than {MAX_BYTES:,} bytes")
        return data.decode()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 at byte {error.start}") from None


def _document(suffix: str, text: str) -> Json:
    try:
        if suffix == ".toml":
            return cast(Json, tomllib.loads(text))
        if suffix in (".yaml", ".yml"):
            return read_yaml(text)
    except (
        ValueError
    ) as error:  # a TOMLDecodeError, or what Python says of a number that is too long
        raise ConfigError(f"is no TOML: {error}") from None
    except RecursionError:
        raise ConfigError("is nested too deeply") from None
    raise ConfigError(
        "is of no kind that rules are read from: call it .toml, .yaml or .yml"
    )


def _read(document: Json) -> tuple[tuple[Rule, ...], Otherwise]:
    fields = _fields(document, ("rules", "otherwise"))
    otherwise, tables = fields.get("otherwise", "deny"), fields.get("rules")
    if otherwise not in get_args(Otherwise):
        raise ConfigError(f'otherwise: "deny", "ask" or "allow", got {otherwise!r}')
    if not isinstance(tables, list) or not tables:
        raise ConfigError(
            "rules: a list of at least one rule is needed ([[rules]] in TOML)"
        )
    rules = tuple(_rule(number, table) for number, table in enumerate(tables, 1))
    check_names(rules)
    return rules, cast(Otherwise, otherwise)


def _rule(number: int, table: Json) -> Rule:
    name = table.get("name") if isinstance(table, dict) else None
    try:
        fields: dict[str, Any] = _fields(table, _names(Rule))
        for field, kind in PARTS.items():
            if isinstance(parts := fields.get(field), list):
                fields[field] = [
                    _part(f"{field}.{at}", part, kind)
                    for at, part in enumerate(cast("list[Json]", parts))
                ]
        return _made(Rule, fields)
    except ConfigError as error:
        raise ConfigError(
            f"rule {number}{f' {name!r}' if isinstance(name, str) else ''}: {error}"
        ) from None


def _part(where: str, table: Json, kind: type[Options]) -> Options:
    try:
        return _made(kind, _fields(table, _names(kind)))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _fields(table: Json, names: Sequence[str]) -> dict[str, Json]:
    """The fields of a table, all of which are known and say something."""
    if not isinstance(table, dict):
        raise ConfigError(
            f"a table with the fields {', '.join(names)} is needed, got {table!r:.60}"
        )
    for field, value in table.items():
        if field not in names:
            near = difflib.get_close_matches(field, names, n=2)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"there are {', '.join(names)}"
            )
            raise ConfigError(f"{field}: no such field; {hint}")
        if value is None:
            raise ConfigError(f"{field}: says nothing: leave it out")
    return dict(table)


def _made(kind: Callable[..., Part], fields: dict[str, Any]) -> Part:
    try:
        return kind(**fields)
    except ConfigError as error:
        told = re.sub("^(Rule|Condition|Hours): ", "", str(error))
        raise ConfigError(
            told.replace("valid tuple", "list").replace(
                "Tuple should have", "The list needs"
            )
        ) from None
