"""Plug-ins by entry point: installed engines, providers, toolboxes, gates, journals and knowledge, imported at first use."""

import difflib
import functools
import inspect
import os
import pkgutil
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from ._internal import dataclasses
from ._internal.log import logger
from .engine import LoopEngine
from .errors import ConfigError, LoopwrightError
from .events.payloads import Codec
from .gates.base import PolicyGate
from .journals.base import Journal
from .knowledge.base import Knowledge
from .providers.base import Provider
from .tools.base import Tool
from .tools.registry import ToolRegistry

State: TypeAlias = Literal["ok", "unchecked", "broken", "conflict", "shadowing", "off"]
if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUPS = (
    "engines", "providers", "toolboxes", "gates", "journals", "knowledge", "followups", "hooks", "webhooks"
)  # fmt: skip
OURS = "loopwright"
SWITCH = "LOOPWRIGHT_PLUGINS"
"""Environment variable: an empty text turns third-party plug-ins off, a comma-separated list names distributions."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One installed entry point."""

    name: str
    group: str
    distribution: str
    version: str
    target: str

    def load(self) -> Any:
        """Import the target; raise `ConfigError` with plug-in and distribution if that fails."""
        try:
            return pkgutil.resolve_name(self.target)
        except (Exception, SystemExit) as error:  # the import runs third-party code
            raise ConfigError(
                f"plug-in {self.name!r} of {self.distribution} {self.version} cannot be loaded from {self.target!r}: "
                f"{type(error).__name__}: {error}"
            ) from error


@dataclasses.dataclass(frozen=True)
class PluginState:
    """An installed entry point and whether it can be used.

    `state` is "ok", "unchecked" (not loaded), "broken" (`why` is the error), "conflict" (`why` names the other
    distributions of that name), "shadowing" (a built-in has the name, so this one is ignored) or "off" (by
    LOOPWRIGHT_PLUGINS).
    """

    plugin: Plugin
    state: State
    why: str = ""

    @property
    def description(self) -> str:
        """The state, with the reason if there is one."""
        return f"{self.state}: {self.why}" if self.why else self.state


def _is_allowed(distribution: str) -> bool:
    switch = os.environ.get(SWITCH)
    if distribution == OURS or switch is None:
        return True
    allowed = {_normalize(name.strip()) for name in switch.split(",")}
    return _normalize(distribution) in allowed


@functools.cache
def _find_installed() -> tuple[Plugin, ...]:
    from importlib.metadata import distributions  # noqa: PLC0415 - takes 15 ms, needed only by name

    found: list[Plugin] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            name = _read_name(distribution) or "a distribution without a name"
            if _normalize(name) not in seen:  # the first on the path counts
                found += _read_entry_points(distribution, name)
            seen.add(_normalize(name))
        except Exception as error:  # noqa: BLE001 - broken metadata must not affect other plug-ins
            where = getattr(distribution, "_path", "a distribution")
            logger().warning(
                "distribution_unreadable", distribution=str(where), error=repr(error)
            )
    return tuple(found)


_NAME = re.compile(r"^name:[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_GROUP = re.compile(rf"^\s*\[\s*{OURS}\.", re.MULTILINE)


def _read_name(distribution: "Distribution") -> str:
    """Return the name of a distribution; parsing all of its metadata takes 50 times as long."""
    headers, _, _ = (distribution.read_text("METADATA") or "").partition("\n\n")
    line = _NAME.search(headers)
    return line[1].strip() if line else _read_field(distribution, "Name")


def _read_field(distribution: "Distribution", field: str) -> str:
    """Return a field of the metadata; empty where it is missing, which later Pythons treat as an error."""
    metadata = distribution.metadata
    return metadata[field] if field in metadata else ""  # noqa: SIM401 - it has no `get` before 3.12


def _read_entry_points(distribution: "Distribution", name: str) -> list[Plugin]:
    """Return the plug-ins of a distribution; of several with the same name the last one."""
    if not _GROUP.search(distribution.read_text("entry_points.txt") or ""):
        return []
    version = _read_field(distribution, "Version") or "without a version"
    declared: dict[tuple[str, str], Plugin] = {}
    for entry in distribution.entry_points:
        prefix, _, group = entry.group.partition(".")
        if prefix != OURS or group not in GROUPS:
            continue
        target, _, _ = entry.value.partition("[")  # without extras
        key = group, entry.name
        declared[key] = Plugin(entry.name, group, name, version, target.strip())
    return list(declared.values())


def _normalize(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def plugins(group: str) -> dict[str, list[Plugin]]:
    """Return the plug-ins of a group by name; several under one name are a conflict, which `plugin` reports."""
    listed: dict[str, list[Plugin]] = {}
    for found in _find_installed():
        if found.group == group and _is_allowed(found.distribution):
            listed.setdefault(found.name, []).append(found)
    return {name: _drop_shadowing(claims) for name, claims in sorted(listed.items())}


def _drop_shadowing(claims: list[Plugin]) -> list[Plugin]:
    """Return only the built-in if it is among the plug-ins of a name: it cannot be shadowed."""
    return [claim for claim in claims if claim.distribution == OURS] or claims


def plugin(group: str, name: str) -> Plugin:
    """Return the plug-in of that name; raise `ConfigError` if there is none (with near names) or several."""
    installed = _find_installed()
    named = [one for one in installed if one.name == name and one.group == group]
    claims = _drop_shadowing([one for one in named if _is_allowed(one.distribution)])
    if len(claims) == 1:
        return claims[0]
    if claims:
        rivals = " and ".join(
            f"{claim.distribution} {claim.version}" for claim in claims
        )
        raise ConfigError(
            f"{group}: {name!r} is claimed by {rivals}: uninstall one, or choose with {SWITCH}"
        )
    listed = plugins(group)
    near = difflib.get_close_matches(name, listed, n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    raise ConfigError(
        f"{group}: there is no {name!r}{hint} Installed: {', '.join(listed) or 'none'}"
    )


def build(group: str, spec: str, **options: object) -> Any:
    """Build what a plug-in provides, by its name or by "name:argument", such as "openai:gpt-4.1-mini".

    The target of the entry point is called with the argument, or without one, and with `options`. Raises `ConfigError`
    with the name of the plug-in if that fails.
    """
    if not isinstance(spec, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f'{group}: name a plug-in, like "name" or "name:argument", got {spec!r}'
        )
    name, _, argument = spec.partition(":")
    found = plugin(group, name)
    target = found.load()
    if not callable(target):
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: {found.target} cannot be called"
        )
    try:
        return target(argument, **options) if argument else target(**options)
    except LoopwrightError:
        raise
    except Exception as error:
        hint = ""
        if isinstance(error, TypeError) and not argument:
            hint = f'; it may want an argument, "{name}:..."'
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution} {found.version} failed: {type(error).__name__}: {error}{hint}"
        ) from error


def build_provider(spec: str) -> Provider:
    """Build the provider of "name:model": "openai:gpt-4.1-mini", "ollama:qwen3", "local"."""
    name = spec.partition(":")[0]
    if name not in plugins("providers"):
        known = ", ".join(plugins("providers"))
        raise ConfigError(
            f"provider: {spec!r} does not begin with an installed provider's name ({known}): "
            'write it like "openai:gpt-4.1-mini"'
        )
    built: Provider = _check_method(build("providers", spec), "complete", spec)
    return built


def build_journal(spec: str, codec: Codec | None = None) -> Journal:
    """Build the journal of "name:place" ("sqlite:runs.db"), or a SQLite file by its path alone; `codec` is given to it."""
    name, colon, _ = spec.partition(":")
    installed = plugins("journals")
    if name not in installed:
        looks_like_name = re.fullmatch("[a-z][a-z0-9-]+", name) is not None
        if not spec or (colon and looks_like_name):
            known = ", ".join(installed)
            raise ConfigError(
                f'journal: {spec!r} names no installed journal ({known}) and no file: write "runs.db"'
            )
        spec = f"sqlite:{spec}"
    options = {} if codec is None else {"codec": codec}
    if options:
        _check_codec(spec.partition(":")[0])
    built: Journal = _check_method(build("journals", spec, **options), "barrier", spec)
    return built


def _check_codec(name: str) -> None:
    """Raise `ConfigError` for a journal that takes no codec."""
    parameters = inspect.signature(plugin("journals", name).load()).parameters.values()
    if not any(
        one.name == "codec" or one.kind is one.VAR_KEYWORD for one in parameters
    ):
        raise ConfigError(
            f"journal: {name!r} takes no codec, so it cannot encrypt with the keys that LOOPWRIGHT_JOURNAL_KEYS names; "
            "unset the variable, or use sqlite"
        )


def build_knowledge(spec: str) -> Knowledge:
    """Build the store of knowledge of "name" or "name:place", such as "sqlite:memory.db"."""
    built: Knowledge = _check_method(build("knowledge", spec), "search", spec)
    return built


def build_gate(spec: str) -> PolicyGate:
    """Build the policy gate of "name" or "name:argument"."""
    built: PolicyGate = _check_method(build("gates", spec), "evaluate", spec)
    return built


def load_hook(name: str) -> Any:
    """Load what the name of a hook stands for: its class, or a function that makes one."""
    return plugin("hooks", name).load()


def build_tools(spec: str) -> list[Tool]:
    """Build the tools of a toolbox, "name" or "name:argument": functions or `Tool` values."""
    built = build("toolboxes", spec)
    if not isinstance(built, Iterable):
        raise ConfigError(f"toolbox {spec!r} gave {built!r}, not a list of tools")
    return list(ToolRegistry(cast("Iterable[Tool]", built)))


def _check_method(built: Any, method: str, spec: str) -> Any:
    if not callable(getattr(built, method, None)):
        raise ConfigError(
            f"plug-in {spec!r} gave {built!r}, which has no method {method}"
        )
    return built


def available_engines() -> dict[str, Plugin]:
    """Return the installed engines by name, with distribution and version, without importing them."""
    return {
        name: claims[0]
        for name, claims in plugins("engines").items()
        if len(claims) == 1
    }


def load_engine_class(name: str) -> type[LoopEngine]:
    """Load the class of an engine; raise `ConfigError` if it is unknown, broken or not an engine."""
    found = plugin("engines", name)
    loaded = found.load()
    if not (isinstance(loaded, type) and issubclass(loaded, LoopEngine)):
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: {found.target} is not a subclass of LoopEngine"
        )
    if loaded.name != name:
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: its class calls itself {loaded.name!r}"
        )
    return loaded


def list_states(*, load: bool = True) -> list[PluginState]:
    """Return every installed entry point by group and name, with its state; import only with `load`."""
    order = sorted(
        _find_installed(),
        key=lambda found: (GROUPS.index(found.group), found.name, found.distribution),
    )
    return [_check_state(found, load=load) for found in order]


def _check_state(found: Plugin, *, load: bool) -> PluginState:
    if not _is_allowed(found.distribution):
        return PluginState(found, "off", f"{SWITCH} does not name {found.distribution}")
    claims = plugins(found.group)[found.name]
    if found not in claims:
        reason = f"{OURS} has a built-in of that name; this one is ignored"
        return PluginState(found, "shadowing", reason)
    if len(claims) > 1:
        rivals = ", ".join(claim.distribution for claim in claims if claim != found)
        return PluginState(found, "conflict", f"also claimed by {rivals}")
    if not load:
        return PluginState(found, "unchecked")
    try:
        load_engine_class(found.name) if found.group == "engines" else found.load()
    except ConfigError as error:
        return PluginState(found, "broken", str(error))
    return PluginState(found, "ok")
