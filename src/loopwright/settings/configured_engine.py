"""An engine with the prompts, options and limits of settings in the place of those of the code."""

from collections.abc import Iterator
from typing import Any, Protocol, cast

from .._internal import dataclasses
from .._internal.options import Options, read_stored
from ..errors import ConfigError
from ..events.run_settings import RunSettings
from ..limits import Limits
from ..messages import Json, JsonObject
from ..prompts import PromptSet
from .names import SettingName


class _Redactor(Protocol):
    def redact_value(self, value: Json | JsonObject) -> Json: ...


def read_settings(services: Any) -> RunSettings | None:
    """Return the settings as they are now, for a run that begins; `None` for a runtime without any."""
    if services.settings is None:
        return None
    found: RunSettings = services.settings.read()
    redactor: _Redactor = services.redactor
    values: Any = redactor.redact_value(found.values)
    return RunSettings(found.version, values)


def configure(engine: Any, settings: RunSettings | None) -> Any:
    """Return an engine with the settings of its name, and over those the ones of its agent, on the model that it names.

    Raises `ConfigError` for an engine or an agent that is turned off, and for a value that the code takes no more.
    """
    found = _change(engine, settings)
    return found if found.model is None else _use_model(found)


def _use_model(engine: Any) -> Any:
    """Return an engine on the model that it names, and so the engines in it that have its services."""
    services = engine.runtime
    chosen = services.with_model(engine.model)
    is_own = chosen.provider is services.provider
    return engine if is_own else rebind(engine, chosen)


def _change(engine: Any, settings: RunSettings | None) -> Any:
    if settings is None or not settings.values:
        return engine
    changes = _Changes(engine, settings.version)
    own = list(_select(settings, engine.name, engine.runtime.agent_name))
    for full, value in own:
        changes.add(full, SettingName.parse(full), value)
    return changes.build() if own else engine


def _select(
    settings: RunSettings, engine: str, agent: str
) -> Iterator[tuple[str, Json]]:
    """Iterate over the settings of an engine, then those of an agent."""
    for kind, owner in (("engine", engine), ("agent", agent)):
        prefix = f"{kind}.{owner}."
        for full, value in settings.values.items():
            if owner and full.startswith(prefix):
                yield full, value


class _Changes:
    """What settings change of an engine."""

    def __init__(self, engine: Any, version: int) -> None:
        self._engine, self._version = engine, version
        self._options: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        self._instructions = engine.runtime.instructions

    def add(self, full: str, name: SettingName, value: Any) -> None:
        """Add a setting; raise `ConfigError` for one that turns the engine off, or that does not fit."""
        match name.part:
            case "enabled":
                self._check_enabled(full, name, value)
            case "limits":
                self._limits[name.field] = self._read(Limits, name.field, value)
            case "instructions":
                self._instructions = value or self._instructions
            case "prompts":
                self._override(full, name.field, value)
            case "option":
                kind = type(cast("object", self._engine))
                self._options[name.field] = self._read(kind, name.field, value)

    def _read(self, kind: type[Any], field: str, value: Any) -> Any:
        """Return a value; one of a version is stored, or is that of a run that has begun, so it counts as it did."""
        return read_stored(kind, field, value) if self._version else value

    def _check_enabled(self, full: str, name: SettingName, value: Any) -> None:
        if value is False:
            raise ConfigError(
                f"{full}: version {self._version} of the settings turns the {name.kind} {name.owner!r} off; "
                "turn it on, or take another"
            )

    def _override(self, full: str, prompt: str, text: str) -> None:
        """Put a text in the place of a prompt; an empty one stands for the engine's own."""
        self._options |= override_prompt(
            self._engine, self._options, full, prompt, text
        )

    def build(self) -> Any:
        """Return the engine as it is with the changes."""
        services = self._engine.runtime
        limits = restrict_limits(services.limits, self._limits)
        before = services.limits, services.instructions
        if (limits, self._instructions) != before:
            services = services.with_agent(
                services.agent_name, self._instructions, tools=None, limits=limits
            )
        return rebind(self._engine, services, self._options, self._version)


def override_prompt(
    engine: Any, options: dict[str, Any], full: str, prompt: str, text: str
) -> dict[str, PromptSet]:
    """Return the prompts of an engine, or of its class, with a text in the place of one, by option; none for no text.

    Raises `ConfigError` for a prompt that it does not have, and for a placeholder that there is not.
    """
    for field in dataclasses.fields(engine):
        known = options.get(field.name, getattr(engine, field.name, None))
        if isinstance(known, PromptSet) and prompt in known:
            return {field.name: known.override(**{prompt: text})} if text else {}
    raise ConfigError(
        f"{full}: {engine.name} has no prompt {prompt!r}; remove the setting"
    )


def restrict_limits(code: Limits, limits: dict[str, Any]) -> Limits:
    """Return the limits of the code, lowered by those of the settings; no setting lifts or raises one."""
    known = {name: value for name, value in limits.items() if value is not None}
    lower: dict[str, Any] = {}
    for name, value in known.items():
        own = getattr(code, name, None)
        lower[name] = value if own is None else min(own, value)
    return Limits(**{**vars(code), **lower}) if lower else code


def rebind(
    engine: Any, services: Any, options: dict[str, Any] | None = None, version: int = 0
) -> Any:
    """Return an engine with other options on other services, and so the engines in it that have the same as it."""
    own = engine.runtime
    nested: dict[str, Any] = {}
    for field in dataclasses.fields(engine):
        value: Any = getattr(engine, field.name)
        bound = _rebind_parts(value, own, services)
        if bound is not value:
            nested[field.name] = bound
    changes = {**nested, **(options or {})}
    try:
        return dataclasses.replace(engine, runtime=services, **changes)
    except (ConfigError, TypeError) as error:
        if not options:
            raise
        raise ConfigError(
            f"settings of version {version} do not fit the engine {engine.name!r}: {error}"
        ) from error


def _rebind_parts(value: Any, own: Any, services: Any) -> Any:
    """Return an option with the engines in it on other services that have those of its engine; itself without any."""
    if isinstance(value, tuple):
        parts = cast("tuple[Any, ...]", value)  # type: ignore[redundant-cast] # for basedpyright
        bound = tuple(_rebind_parts(part, own, services) for part in parts)
        has_changed = any(new is not old for new, old in zip(bound, parts, strict=True))
        return bound if has_changed else parts
    if isinstance(value, Options) and getattr(value, "runtime", None) is own:
        return rebind(value, services)
    return value
