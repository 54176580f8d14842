"""SettingsEditor: settings as a principal reads and writes them, checked against the code and by the gate."""

import asyncio
from collections.abc import Mapping, Sequence

from .._kernel.session.services import Services
from ..errors import ConfigError, Denied
from ..events.run_settings import RunSettings
from ..gates.base import Action, Allow, Ask, Deny, PolicyState
from ..gates.consultation import ask_gate
from ..messages import Json, JsonObject
from ..principals import Principal
from ..settings.base import SettingChange, Settings, list_values
from .setting_checks import check_setting

SET = "settings:set"
"""The action of writing settings: its arguments are the names, each with the value."""
ROLE = "admin"
MAX_SETTINGS = 500


class SettingsEditor:
    """The settings of a runtime, as one principal reads and writes them.

    Args:
        runtime: its settings, engines, agents, limits and gate.
        by: who writes.
    """

    def __init__(self, runtime: Services, by: Principal) -> None:
        if runtime.settings is None:
            raise ConfigError("settings: this runtime has none; pass Runtime(settings=SQLiteSettings(...))")  # fmt: skip
        self._runtime, self._by = runtime, by
        self._store: Settings = runtime.settings

    async def read(self) -> RunSettings:
        """Return all settings as they are now, with the version."""
        return await asyncio.to_thread(self._store.read)

    async def history(self, name: str = "") -> Sequence[SettingChange]:
        """Return the changes of a setting, or of all, the oldest first."""
        return await asyncio.to_thread(self._store.history, name)

    async def set(self, name: str, value: Json, *, reason: str = "") -> int:
        """Change a setting and return the new version; runs that begin from now on read it.

        `None` removes it, so that the code's own value counts again; an empty prompt stands for the built-in one.
        Raises `ConfigError` for a name or a value that the code does not take, and `Denied` for a principal without the
        role admin, or if a gate does not allow the action `settings:set`.
        """
        return await self.write({name: value}, reason=reason)

    async def write(
        self,
        changes: Mapping[str, Json],
        *,
        reason: str = "",
        expected: int | None = None,
    ) -> int:
        """Change several settings together and return the new version; see `set`.

        With `expected`, raise `SettingsError` unless the version is that one: another writer was faster.
        """
        now = await self.read()
        kept = {name: value for name, value in now.values.items() if name not in changes}  # fmt: skip
        self.check(changes)
        if len(kept) + len(changes) > MAX_SETTINGS:
            raise ConfigError(
                f"settings: are at most {MAX_SETTINGS}, got {len(kept) + len(changes)}; remove some"
            )
        version = now.version if expected is None else expected
        return await self._write(dict(changes), reason, version)

    def check(self, changes: Mapping[str, Json]) -> None:
        """Raise `ConfigError` for a name or a value that the code does not take, as `write` does; nothing is written."""
        for name, value in changes.items():
            check_setting(self._runtime, name, value)

    async def revert(
        self, version: int, *, reason: str = "", expected: int | None = None
    ) -> int:
        """Write the settings as they were in an earlier version, as a new one, and return that.

        They are checked as any others, since the code may take them no more. `expected` is as in `write`.
        """
        now, changes = await self.read(), await self.history()
        if not 0 <= version <= now.version:
            raise ConfigError(f"version: must be 0 to {now.version}, got {version!r}")
        before = list_values(changes, version)
        names = {**now.values, **before}
        differing = {name: before.get(name) for name in names if before.get(name) != now.values.get(name)}  # fmt: skip
        self.check(differing)
        why = reason or f"as in version {version}"
        known = now.version if expected is None else expected
        return await self._write(differing, why, known) if differing else now.version

    async def _write(self, changes: JsonObject, reason: str, version: int) -> int:
        await self._permit(changes)
        at, why = (
            self._runtime.clock.wall(),
            self._runtime.redactor.redact_text(reason),
        )
        return await asyncio.to_thread(
            self._store.write, changes, by=str(self._by), at=at, reason=why, expected=version,
        )  # fmt: skip

    async def _permit(self, changes: JsonObject) -> None:
        """Raise `Denied` unless the principal is an admin, and the gate of the runtime allows it."""
        if ROLE not in self._by.roles:
            raise Denied(
                f"settings: {self._by} may not write them; that needs a principal with the role {ROLE!r}"
            )
        action = Action(SET, changes, principal=self._by, source="engine")
        wall = self._runtime.clock.wall()
        state = PolicyState("", "", "settings", 0, 0, 0, at=wall, author="operator", principal=self._by)  # fmt: skip
        gate = self._runtime.gate
        ended = await ask_gate(gate, action, state)
        match ended.value:
            case Allow() if ended.error is None and not ended.timed_out:
                return
            case Deny(reason=reason):
                raise Denied(f"settings: the gate denies {SET!r}: {reason}")
            case Ask(question=question):
                raise Denied(f"settings: the gate asks about {SET!r}, which nothing answers here: {question}")  # fmt: skip
            case _:
                raise Denied(f"settings: the gate made no decision about {SET!r}")
