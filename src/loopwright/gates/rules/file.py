"""Rules from a TOML or YAML file; errors name the file, the rule and the field."""

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
from ...principals import ApprovalRule
from ..time_window import Hours
from .conditions import Condition
from .roster import Roster
from .rule import Rule, check_names

Otherwise: TypeAlias = Literal["deny", "ask", "allow"]
OptionsT = TypeVar("OptionsT")

MAX_BYTES = 1_000_000
TABLES_OF_RULE: dict[str, type[Options]] = {"when": Condition, "hours": Hours}
"""The fields of a rule that are lists of tables."""


def read_rule_file(path: Path) -> tuple[tuple[Rule, ...], Otherwise, Roster]:
    """Return the rules in a file, its decision about all other calls, and whom it knows. Raises `ConfigError`."""
    try:
        return _build_rules(_parse(path.suffix, _read_text(path)))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read_text(path: Path) -> str:
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


def _parse(suffix: str, text: str) -> Json:
    try:
        if suffix == ".toml":
            return cast(Json, tomllib.loads(text))
        if suffix in (".yaml", ".yml"):
            return read_yaml(text)
    except ValueError as error:  # TOMLDecodeError, or an integer with too many digits
        raise ConfigError(f"is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError("is nested too deeply") from None
    raise ConfigError(
        f"the suffix {suffix!r} is not one that rules are read from; "
        "name the file .toml, .yaml or .yml"
    )


def _build_rules(document: Json) -> tuple[tuple[Rule, ...], Otherwise, Roster]:
    fields = _check_fields(document, ("rules", "otherwise", "tenants", "roles"))
    otherwise, tables = fields.get("otherwise", "deny"), fields.get("rules")
    if otherwise not in get_args(Otherwise):
        raise ConfigError(f'otherwise: "deny", "ask" or "allow", got {otherwise!r}')
    if not isinstance(tables, list) or not tables:
        raise ConfigError(
            "rules: a list of at least one rule is needed ([[rules]] in TOML)"
        )
    rules = tuple(_build_rule(number, table) for number, table in enumerate(tables, 1))
    check_names(rules)
    roster = Roster.of(fields.get("tenants", ()), fields.get("roles", ()))
    roster.check(rules)
    return rules, cast(Otherwise, otherwise), roster


def _build_rule(number: int, table: Json) -> Rule:
    try:
        fields: dict[str, Any] = _check_fields(table, _list_fields(Rule))
        for field, kind in TABLES_OF_RULE.items():
            fields.update(_build_tables(field, fields.get(field), kind))
        if isinstance(fields.get("approvals"), dict):
            fields["approvals"] = _build_approvals(fields["approvals"])
        return _build(Rule, fields)
    except ConfigError as error:
        raise ConfigError(f"rule {number}{_quote_name(table)}: {error}") from None


def _quote_name(table: Json) -> str:
    name = table.get("name") if isinstance(table, dict) else None
    return f" {name!r}" if isinstance(name, str) else ""


def _build_tables(field: str, tables: Any, kind: type[Options]) -> dict[str, Any]:
    """Return a field with its list of tables built; nothing if it is not a list."""
    if not isinstance(tables, list):
        return {}
    numbered = enumerate(cast("list[Json]", tables))
    return {
        field: [
            _build_table(f"{field}.{number}", table, kind) for number, table in numbered
        ]
    }


def _build_approvals(table: Json) -> ApprovalRule:
    try:
        given: dict[str, Any] = _check_fields(table, _list_fields(ApprovalRule))
        return ApprovalRule(**given)
    except ConfigError as error:
        raise ConfigError(f"approvals: {error}") from None


def _build_table(place: str, table: Json, kind: type[Options]) -> Options:
    try:
        return _build(kind, _check_fields(table, _list_fields(kind)))
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _list_fields(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _check_fields(table: Json, names: Sequence[str]) -> dict[str, Json]:
    """Return the fields of a table, all of which are known and have a value."""
    if not isinstance(table, dict):
        raise ConfigError(
            f"a table with the fields {', '.join(names)} is needed, got {table!r:.60}"
        )
    for field, value in table.items():
        if field not in names:
            raise ConfigError(f"{field}: no such field; {_suggest(field, names)}")
        if value is None:
            raise ConfigError(f"{field}: has no value; give it one or remove the field")
    return dict(table)


def _suggest(field: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(field, names, n=2)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(names)}"


def _build(kind: Callable[..., OptionsT], fields: dict[str, Any]) -> OptionsT:
    try:
        return kind(**fields)
    except ConfigError as error:
        # In the words of the file, where a tuple is a list and no class is named.
        text = re.sub("^(Rule|Condition|Hours): ", "", str(error))
        text = text.replace("valid tuple", "list")
        raise ConfigError(text.replace("Tuple should have", "The list needs")) from None
