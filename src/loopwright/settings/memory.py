"""MemorySettings: settings that are gone with the process."""

import threading
from collections.abc import Mapping, Sequence

from ..errors import SettingsError
from ..events.run_settings import RunSettings
from ..messages import Json
from .base import SettingChange, list_values


class MemorySettings:
    """Settings that are gone with the process, for tests and examples."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: list[SettingChange] = []

    def read(self) -> RunSettings:
        """Return all settings as they are now; see `Settings`."""
        with self._lock:
            version = self._changes[-1].version if self._changes else 0
            return RunSettings(version, list_values(self._changes, version))

    def write(
        self,
        changes: Mapping[str, Json],
        *,
        by: str,
        at: float,
        reason: str = "",
        expected: int | None = None,
    ) -> int:
        """Write changes together and return the new version; see `Settings`."""
        with self._lock:
            version = self._changes[-1].version if self._changes else 0
            check_expected(version, expected)
            known = list_values(self._changes, version)
            self._changes += (
                SettingChange(version + 1, name, value, known.get(name), by, at, reason)
                for name, value in changes.items()
            )
            return version + 1 if changes else version

    def history(self, name: str = "") -> Sequence[SettingChange]:
        """Return the changes of a setting, or of all, the oldest first."""
        with self._lock:
            return [one for one in self._changes if name in ("", one.name)]


def check_expected(version: int, expected: int | None) -> None:
    """Raise `SettingsError` if the version is another one than the writer expects."""
    if expected not in (None, version):
        raise SettingsError(
            f"settings: version is {version}, got expected={expected}; read what was written meanwhile, then write again"
        )
