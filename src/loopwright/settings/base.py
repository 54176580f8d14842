"""The port for settings: a store of named values in versions, each with who wrote it and when."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from .._internal import dataclasses
from ..events.run_settings import RunSettings
from ..messages import Json, JsonObject


@dataclasses.dataclass(frozen=True)
class SettingChange:
    """One change of one setting.

    Args:
        version: the version that it belongs to; all changes of a version were written together.
        name: the setting, such as `engine.react.max_iterations`.
        value: its value since then; `None` for the one that the code has.
        before: its value before then.
        by: who wrote it.
        at: wall clock, seconds since the Unix epoch.
        reason: what that person said about it.
    """

    version: int
    name: str
    value: Json
    before: Json
    by: str
    at: float
    reason: str = ""


class Settings(Protocol):
    """Stores settings; `SettingsEditor` checks them before they are written.

    Methods raise `SettingsError`, and may be called in any thread.
    """

    def read(self) -> RunSettings:
        """Return all settings as they are now, with the version; version 0 has none. A run calls it when it begins."""
        ...

    def write(
        self,
        changes: Mapping[str, Json],
        *,
        by: str,
        at: float,
        reason: str = "",
        expected: int | None = None,
    ) -> int:
        """Write changes together and return the new version; `None` removes a setting.

        With `expected`, raise `SettingsError` unless the version is that one: another writer was faster.
        """
        ...

    def history(self, name: str = "") -> Sequence[SettingChange]:
        """Return the changes of a setting, or of all, the oldest first."""
        ...


def list_values(changes: Sequence[SettingChange], version: int) -> JsonObject:
    """Return the settings as they were in a version, by the changes of all."""
    values = {one.name: one.value for one in changes if one.version <= version}
    return {name: value for name, value in values.items() if value is not None}
