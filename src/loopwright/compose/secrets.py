"""Secrets of the file: they stand in it only as the name of the environment variable that has them."""

import re
from collections.abc import Sequence
from typing import Any, cast

from ..errors import ConfigError
from ..security.redaction import Redactor
from ..security.redaction.heuristics import classify_name
from ..security.secret_store import SecretStore, read_secret
from .file import FileTables, Values

PREFIX = "env:"
HAS_VARIABLES = ("providers", "toolboxes", "gates", "secrets")
"""The tables whose options are recorded nowhere."""
SHARED = ("journal", "knowledge", "settings")
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


def check_secrets(tables: FileTables) -> None:
    """Raise `ConfigError` for a secret in the file, and for the name of a variable where options are recorded."""
    redactor, values = Redactor(), tables.model_dump()
    SecretStore(tables.secrets)  # refuses a secret itself in the place of its source
    for name, table in values.items():
        if name != "secrets":
            _check(name, name, table, redactor)
    recorded = {name: table for name, table in values.items() if name not in HAS_VARIABLES}  # fmt: skip
    recorded["runtime"] = {
        name: value for name, value in values["runtime"].items() if name not in SHARED
    }
    recorded["agents"] = {
        agent: {name: value for name, value in table.items() if name not in SHARED}
        for agent, table in values["agents"].items()
    }
    for place, name, text in _list_texts("", "", recorded):
        # A webhook records the name of a variable alone, and reads it when it is sent to.
        is_webhook = name == "url" and ".after." in place
        if text.startswith(PREFIX) and not is_webhook:
            raise ConfigError(
                f"{place}: {PREFIX} stands for a variable in providers, toolboxes, gates, journal and knowledge alone, "
                f"since this is recorded with runs; got {text!r:.60}"
            )


def _check(place: str, name: str, value: Any, redactor: Redactor) -> None:
    for where, key, text in _list_texts(place, name, value):
        if text.startswith(PREFIX):
            continue
        named = {key: text}
        if redactor.redact_value(named) is not named:
            raise ConfigError(
                f'{where}: holds a secret; put it into a variable, and write "{PREFIX}VARIABLE"'
            )


def _list_texts(place: str, key: str, value: Any) -> list[tuple[str, str, str]]:
    """Return the texts in a value, each with its path and the name of its key."""
    if isinstance(value, str):
        return [(place, key, value)]
    pairs: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        pairs = list(cast("Values", value).items())
    elif isinstance(value, list):
        items = cast("Sequence[Any]", value)
        return [text for number, one in enumerate(items) for text in _list_texts(f"{place}.{number}", key, one)]  # fmt: skip
    return [
        text
        for name, one in pairs
        for text in _list_texts(f"{place}.{name}" if place else name, name, one)
    ]


class Environment:
    """The variables that the options of a file name, and the secrets that were found in them."""

    def __init__(self) -> None:
        self.secrets: list[str] = []

    def fill(self, value: Any, place: str, name: str = "") -> Any:
        """Return a value with the contents of variables in place of `env:NAME`; raise `ConfigError` for one not set."""
        if isinstance(value, dict):
            table = cast("Values", value)
            return {key: self.fill(one, f"{place}.{key}", key) for key, one in table.items()}  # fmt: skip
        if isinstance(value, list):
            items = cast("Sequence[Any]", value)
            return [self.fill(one, f"{place}.{number}", name) for number, one in enumerate(items)]  # fmt: skip
        if not isinstance(value, str) or not value.startswith(PREFIX):
            return value
        return self._read(value, place, name)

    def _read(self, value: str, place: str, name: str) -> str:
        found = _VARIABLE.fullmatch(value)
        if found is None:
            raise ConfigError(
                f'{place}: must be the name of a variable, like "{PREFIX}OPENAI_API_KEY", got {value!r:.60}'
            )
        content = read_secret(value, place).strip()
        is_secret = classify_name(name) or classify_name(found[1])
        if is_secret:
            self.secrets.append(content)
        return content
