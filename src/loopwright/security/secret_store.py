"""Secrets by name, from where a host keeps them: variables, files, the system's keyring, a manager of its own."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from ..errors import ConfigError

MAX_SECRET_BYTES = 65_536
SecretSource: TypeAlias = str | Callable[[], str]
"""`"env:NAME"`, `"file:/path"`, `"keyring:service/user"`, or a function that returns the secret."""


class SecretStore:
    """Secrets by name; each is read from its source whenever it is asked for, and kept nowhere.

    Iterating gives all values as they are now, so that `@tool(secrets=store)` and `Redactor(store)` know them.

    Args:
        sources: for each name the source: `"env:GITHUB_TOKEN"`, `"file:/run/secrets/db"` (one line feed at its end is not
            part of it), `"keyring:service/user"` (extra `keyring`), or a function, such as a secrets manager's.

    Raises `ConfigError` for a source of an unknown kind.
    """

    def __init__(self, sources: Mapping[str, SecretSource]) -> None:
        self._sources = dict(sources)
        for name, source in self._sources.items():
            if not callable(source):
                _find_reader(name, source)

    def get(self, name: str) -> str:
        """Return a secret as it is now; raise `ConfigError` if there is none, without its value."""
        if name not in self._sources:
            known = ", ".join(self._sources) or "none"
            raise ConfigError(f"secrets: there is no {name!r}; there are: {known}")
        source = self._sources[name]
        found: Any = source() if callable(source) else _find_reader(name, source)()
        value = (
            found if isinstance(found, str) else ""
        )  # a function may return anything
        if not value:
            raise ConfigError(
                f"secrets: {name!r}: its source gave no text; set the secret there"
            )
        return value

    def __iter__(self) -> Iterator[str]:
        return map(self.get, self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"SecretStore({', '.join(self._sources)})"


def _find_reader(name: str, source: str) -> Callable[[], str]:
    """Return the function that reads a source."""
    kind, _, place = source.partition(":")
    if kind not in _READERS or not place:
        raise ConfigError(
            f"secrets: {name!r}: the source must be env:NAME, file:/path, keyring:service/user or a function, "
            f"got one that begins with {kind[:20]!r}"
        )
    return lambda: _READERS[kind](name, place)


def _read_variable(name: str, place: str) -> str:
    value = os.environ.get(place)
    if value is None:
        raise ConfigError(f"secrets: {name!r}: the variable {place} is not set; set it")
    return value


def _read_file(name: str, place: str) -> str:
    """Return the text of a regular file that other users cannot read."""
    try:
        with open(place, "rb", opener=_open_without_waiting) as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"secrets: {name!r}: {place!r}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode) or len(content) > MAX_SECRET_BYTES:
        raise ConfigError(
            f"secrets: {name!r}: {place!r} must be a regular file of at most {MAX_SECRET_BYTES:,} bytes"
        )
    if found.st_mode & stat.S_IROTH:
        raise ConfigError(
            f"secrets: {name!r}: every user can read {place!r}: chmod o-r {place}"
        )
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"secrets: {name!r}: {place!r} is not UTF-8") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; opening a pipe would wait for its writer otherwise."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_keyring(name: str, place: str) -> str:
    try:
        keyring: Any = import_module("keyring")
    except ImportError as error:
        raise ConfigError(
            f"secrets: {name!r} needs keyring; run: pip install 'loopwright[keyring]'"
        ) from error
    service, _, user = place.rpartition("/")
    value = keyring.get_password(service, user)
    if value is None:
        raise ConfigError(f"secrets: {name!r}: the keyring has no {place!r}; add it")
    return str(value)


_READERS: Mapping[str, Callable[[str, str], str]] = {
    "env": _read_variable,
    "file": _read_file,
    "keyring": _read_keyring,
}
