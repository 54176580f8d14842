"""The settings of a runtime as the page shows and changes them."""

from collections.abc import Mapping
from typing import Any, cast

from ..agents.setting_list import KnownSetting, list_known
from ..agents.settings_editor import SettingsEditor
from ..errors import ConfigError
from ..events.run_settings import RunSettings
from ..messages import JsonObject
from ..runtime import Runtime
from .threads import call_in_thread
from .users import ConsoleUser

MAX_CHANGES = 200
"""The newest changes that the page shows."""


class ConsoleSettings:
    """Lists, checks, writes and reverts the settings of a console's runtime."""

    def __init__(self, runtime: Runtime | None) -> None:
        self._runtime = runtime

    def find_problem(self, user: ConsoleUser) -> str:
        """Return why there are no settings for a user; empty if there are."""
        if self._runtime is None:
            return (
                "needs the runtime that reads them: serve the page with --config agents.toml, or mount it in your "
                "application"
            )
        if self._runtime.settings is None:
            return (
                "this runtime has none: pass Runtime(settings=SQLiteSettings(...)), or write settings = "
                '"settings.db" below [runtime] of the file'
            )
        if user.tenant:
            return f"they are for all tenants, and {user.name} is of one"
        return ""

    def _edit(self, user: ConsoleUser) -> SettingsEditor:
        problem = self.find_problem(user)
        if problem:
            raise ConfigError(f"settings: {problem}")
        return SettingsEditor(cast("Runtime", self._runtime), user.admin)

    async def list(self, user: ConsoleUser) -> dict[str, Any]:
        """Return the settings with their current values and those of the code, and the newest changes."""
        editor = self._edit(user)
        now, history = await editor.read(), await editor.history()
        known = await call_in_thread(list_known, cast("Runtime", self._runtime))
        names = {one.name for settings in known.values() for one in settings}
        owners = [
            {"owner": owner, "settings": [_describe(one, now) for one in settings]}
            for owner, settings in known.items()
        ]
        return {
            "version": now.version,
            "owners": owners,
            "unknown": {
                name: value for name, value in now.values.items() if name not in names
            },
            "history": [vars(one) for one in history[: -MAX_CHANGES - 1 : -1]],
            "problem": user.find_problem("admin"),
        }

    async def change(
        self, body: Mapping[str, Any], user: ConsoleUser
    ) -> dict[str, Any]:
        """Check, write or revert settings, and return the version that there is then."""
        editor = self._edit(user)
        reason, expected = body.get("reason", ""), body.get("expected")
        if not isinstance(reason, str):
            raise ConfigError(f"reason: must be a text, got {reason!r:.80}")
        if expected is not None and not _is_number(expected):
            raise ConfigError(f"expected: must be a version, got {expected!r:.80}")
        if "revert" in body:
            version = body["revert"]
            if not _is_number(version):
                raise ConfigError(f"revert: must be a version, got {version!r:.80}")
            made = await editor.revert(version, reason=reason, expected=expected)
            return {"version": made}
        changes = _read_changes(body)
        if body.get("check"):
            await call_in_thread(editor.check, changes)
            return {"version": (await editor.read()).version}
        made = await editor.write(changes, reason=reason, expected=expected)
        return {"version": made}


def _describe(known: KnownSetting, now: RunSettings) -> dict[str, Any]:
    is_set = known.name in now.values
    return {
        **vars(known),
        "value": now.values.get(known.name, known.code),
        "is_set": is_set,
    }


def _read_changes(body: Mapping[str, Any]) -> JsonObject:
    changes = body.get("changes")
    if not isinstance(changes, dict) or not changes:
        raise ConfigError(
            f"changes: must be an object of settings with their values, got {changes!r:.80}"
        )
    return cast("JsonObject", changes)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
