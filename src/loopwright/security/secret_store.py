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
                _find_reader(source, f"secrets: {name!r}")

    def get(self, name: str) -> str:
        """Return a secret as it is now; raise `ConfigError` if there is none, without its value."""
        if name not in self._sources:
            known = ", ".join(self._sources) or "none"
            raise ConfigError(f"secrets: there is no {name!r}; there are: {known}")
        source, field = self._sources[name], f"secrets: {name!r}"
        if not callable(source):
            return read_secret(source, field)
        found: Any = source()  # a function may return anything
        return _check_value(found if isinstance(found, str) else "", field)

    def __iter__(self) -> Iterator[str]:
        return map(self.get, self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"SecretStore({', '.join(self._sources)})"


class WatchedSecrets(SecretStore):
    """The secrets of another store; each value is told to a function before it is returned.

    Args:
        store: where the secrets are.
        learn: is told each value, in whatever thread asks for it.
    """

    def __init__(self, store: SecretStore, learn: Callable[[str], None]) -> None:
        super().__init__(store._sources)
        self._store, self._learn = store, learn

    def get(self, name: str) -> str:
        """Return a secret as it is now; raise `ConfigError` if there is none, or it is too short to be redacted."""
        value = self._store.get(name)
        self._learn(value)
        return value


def is_secret_source(text: str) -> bool:
    """Whether a text says where a secret is kept, as `read_secret` reads it."""
    return text.partition(":")[0] in _READERS


def read_secret(source: str, field: str) -> str:
    """Return the secret of "env:NAME", "file:/path" or "keyring:service/user", as it is now.

    Raises `ConfigError`, which begins with the field, for a source of another kind or without a secret.
    """
    return _check_value(_find_reader(source, field)(), field)


def _check_value(value: str, field: str) -> str:
    if not value:
        raise ConfigError(f"{field}: its source gave no text; set the secret there")
    return value


def _find_reader(source: str, field: str) -> Callable[[], str]:
    """Return the function that reads a source."""
    kind, colon, place = source.partition(":")
    if kind not in _READERS or not place:
        # It may be the secret itself, which can have a colon.
        got = "another kind, which is not shown" if colon else "a text without ':'"
        raise ConfigError(
            f"{field}: the source must be env:NAME, file:/path, keyring:service/user or a function, got {got}"
        )
    return lambda: _READERS[kind](field, place)


def _read_variable(field: str, place: str) -> str:
    value = os.environ.get(place)
    if value is None:
        raise ConfigError(f"{field}: the variable {place} is not set; set it")
    return value


def _read_file(field: str, place: str) -> str:
    """Return the text of a regular file that other users cannot read."""
    try:
        with open(place, "rb", opener=_open_without_waiting) as file:
            found = os.fstat(file.fileno())
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{field}: {place!r}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode) or len(content) > MAX_SECRET_BYTES:
        raise ConfigError(
            f"{field}: {place!r} must be a regular file of at most {MAX_SECRET_BYTES:,} bytes"
        )
    if found.st_mode & stat.S_IROTH:
        raise ConfigError(f"{field}: every user can read {place!r}: chmod o-r {place}")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{field}: {place!r} is not UTF-8") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; opening a pipe would wait for its writer otherwise."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_keyring(field: str, place: str) -> str:
    try:
        keyring: Any = import_module("keyring")
    except ImportError as error:
        raise ConfigError(
            f"{field}: needs keyring; run: pip install 'loopwright[keyring]'"
        ) from error
    service, _, user = place.rpartition("/")
    value = keyring.get_password(service, user)
    if value is None:
        raise ConfigError(f"{field}: the keyring has no {place!r}; add it")
    return str(value)


_READERS: Mapping[str, Callable[[str, str], str]] = {
    "env": _read_variable,
    "file": _read_file,
    "keyring": _read_keyring,
}


def check_store(store: SecretStore | None) -> SecretStore:
    """Return the store that a runtime was given, or an empty one; raise `ConfigError` for anything else."""
    if store is None:
        return NO_SECRETS
    if isinstance(store, SecretStore):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        return store
    raise ConfigError(
        f'secrets: must be a SecretStore({{"name": "env:NAME"}}), got {type(store).__name__}'
    )


NO_SECRETS = SecretStore({})
"""The store of a runtime that was given none."""
