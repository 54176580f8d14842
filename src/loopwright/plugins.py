"""Entry points: which engines, providers, toolboxes, gates and journals are installed, without importing them."""

import dataclasses
import difflib
import functools
import os
import pkgutil
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from ._internal.log import logger
from .engine import LoopEngine
from .errors import ConfigError, LoopwrightError
from .gates.base import PolicyGate
from .journals.base import Journal
from .providers.base import Provider
from .tools.base import Tool
from .tools.registry import ToolRegistry

State: TypeAlias = Literal["ok", "unchecked", "broken", "conflict", "shadowing", "off"]
if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUPS = ("engines", "providers", "toolboxes", "gates", "journals")
OURS = "loopwright"
SWITCH = "LOOPWRIGHT_PLUGINS"  # set to an empty text, it turns foreign plug-ins off; else a comma list of distributions


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One installed entry point."""

    name: str
    group: str
    distribution: str
    version: str
    target: str

    def load(self) -> Any:
        """Import what it names. Raises `ConfigError` naming plug-in and distribution if that fails."""
        try:
            return pkgutil.resolve_name(self.target)
        except (Exception, SystemExit) as error:  # importing is running foreign code
            raise ConfigError(
                f"plug-in {self.name!r} of {self.distribution} {self.version} cannot be loaded from {self.target!r}: "
                f"{type(error).__name__}: {error}"
            ) from error


@dataclasses.dataclass(frozen=True)
class PluginState:
    """An installed entry point and whether it can be used.

    `state` is "ok", "unchecked" (not loaded), "broken" (`why` is the error), "conflict" (`why` names who else claims
    the name), "shadowing" (a built-in has the name, so this one is ignored) or "off" (by LOOPWRIGHT_PLUGINS).
    """

    plugin: Plugin
    state: State
    why: str = ""

    @property
    def told(self) -> str:
        """The state in words."""
        return f"{self.state}: {self.why}" if self.why else self.state


def _allowed(distribution: str) -> bool:
    switch = os.environ.get(SWITCH)
    if distribution == OURS or switch is None:
        return True
    return _normalized(distribution) in {
        _normalized(part.strip()) for part in switch.split(",")
    }


@functools.cache
def _installed() -> tuple[Plugin, ...]:
    from importlib.metadata import distributions  # noqa: PLC0415 - 15 ms that only look-ups by name pay

    found: list[Plugin] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"] or "a distribution without a name"
            if (
                _normalized(name) not in seen
            ):  # else another of that name comes before it on the path
                found += _declared(distribution, name)
            seen.add(_normalized(name))
        except Exception as error:  # noqa: BLE001 - its files may hold anything, and hurt nobody else
            where = getattr(distribution, "_path", "a distribution")
            logger().warning(
                "distribution_unreadable", distribution=str(where), error=repr(error)
            )
    return tuple(found)


def _declared(distribution: "Distribution", name: str) -> list[Plugin]:
    version = distribution.version or "without a version"
    declared: dict[tuple[str, str], Plugin] = {}
    for entry in distribution.entry_points:
        prefix, _, group = entry.group.partition(".")
        if prefix == OURS and group in GROUPS:
            target = entry.value.partition("[")[
                0
            ].strip()  # without the extras that it may name
            declared[group, entry.name] = Plugin(
                entry.name, group, name, version, target
            )
    return list(declared.values())


def _normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def plugins(group: str) -> dict[str, list[Plugin]]:
    """The plug-ins of a group by name; more than one under a name is a conflict, which only `plugin` complains of."""
    listed: dict[str, list[Plugin]] = {}
    for found in _installed():
        if found.group == group and _allowed(found.distribution):
            listed.setdefault(found.name, []).append(found)
    return {name: _unshadowed(claims) for name, claims in sorted(listed.items())}


def _unshadowed(claims: list[Plugin]) -> list[Plugin]:
    """A built-in cannot be shadowed: where it is one of the claims, it is the only one."""
    return [claim for claim in claims if claim.distribution == OURS] or claims


def plugin(group: str, name: str) -> Plugin:
    """The plug-in of that name. Raises `ConfigError` if there is none (with near names) or more than one."""
    listed = plugins(group)
    claims = listed.get(name, [])
    if len(claims) == 1:
        return claims[0]
    if claims:
        rivals = " and ".join(
            f"{claim.distribution} {claim.version}" for claim in claims
        )
        raise ConfigError(
            f"{group}: {name!r} is claimed by {rivals}: uninstall one, or choose with {SWITCH}"
        )
    near = difflib.get_close_matches(name, listed, n=2)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    raise ConfigError(
        f"{group}: there is no {name!r}{hint} Installed: {', '.join(listed) or 'none'}"
    )


def build(group: str, spec: str) -> Any:
    """What a plug-in makes, by its name, or by "name:argument" where it wants one: "openai:gpt-4.1-mini".

    The target of an entry point is called with the argument, or without any. Raises `ConfigError` naming the plug-in if
    that fails.
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
        return target(argument) if argument else target()
    except LoopwrightError:
        raise
    except Exception as error:
        wants = (
            f'; it may want an argument, "{name}:..."'
            if isinstance(error, TypeError) and not argument
            else ""
        )
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution} {found.version} failed: {type(error).__name__}: {error}{wants}"
        ) from error


def build_provider(spec: str) -> Provider:
    """The provider that "name:model" names: "openai:gpt-4.1-mini", "ollama:qwen3", "local"."""
    name = spec.partition(":")[0]
    if name not in plugins("providers"):
        known = ", ".join(plugins("providers"))
        raise ConfigError(
            f"provider: {spec!r} does not begin with an installed provider's name ({known}): "
            'write it like "openai:gpt-4.1-mini"'
        )
    made: Provider = _with(build("providers", spec), "complete", spec)
    return made


def build_journal(spec: str) -> Journal:
    """The journal that "name:place" names ("sqlite:runs.db"), or a SQLite file by its path alone."""
    name, colon, _ = spec.partition(":")
    if not spec or (
        colon
        and name not in plugins("journals")
        and re.fullmatch("[a-z][a-z0-9-]+", name)
    ):
        known = ", ".join(plugins("journals"))
        raise ConfigError(
            f'journal: {spec!r} names no installed journal ({known}) and no file: write "runs.db"'
        )
    if name not in plugins("journals"):
        spec = f"sqlite:{spec}"
    made: Journal = _with(build("journals", spec), "barrier", spec)
    return made


def build_gate(spec: str) -> PolicyGate:
    """The policy gate that "name" or "name:argument" names."""
    made: PolicyGate = _with(build("gates", spec), "evaluate", spec)
    return made


def build_tools(spec: str) -> list[Tool]:
    """The tools of a toolbox: "name" or "name:argument" of an entry point, which gives functions or `Tool` values."""
    made = build("toolboxes", spec)
    if not isinstance(made, Iterable):
        raise ConfigError(f"toolbox {spec!r} gave {made!r}, not a list of tools")
    return list(ToolRegistry(cast("Iterable[Tool]", made)))


def _with(made: Any, method: str, spec: str) -> Any:
    if not callable(getattr(made, method, None)):
        raise ConfigError(
            f"plug-in {spec!r} gave {made!r}, which has no method {method}"
        )
    return made


def available_engines() -> dict[str, Plugin]:
    """The installed engines by name, each with its distribution and version; imports none of them."""
    return {
        name: claims[0]
        for name, claims in plugins("engines").items()
        if len(claims) == 1
    }


def engine_class(name: str) -> type[LoopEngine]:
    """The class of the engine of that name. Raises `ConfigError` if it is unknown, broken or no engine."""
    found = plugin("engines", name)
    loaded = found.load()
    if not (isinstance(loaded, type) and issubclass(loaded, LoopEngine)):
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: {found.target} is no subclass of LoopEngine"
        )
    if loaded.name != name:
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: its class calls itself {loaded.name!r}"
        )
    return loaded


def survey(*, load: bool = True) -> list[PluginState]:
    """Every installed entry point by group and name, with its state; without `load` nothing is imported."""
    order = sorted(
        _installed(),
        key=lambda found: (GROUPS.index(found.group), found.name, found.distribution),
    )
    return [_state(found, load=load) for found in order]


def _state(found: Plugin, *, load: bool) -> PluginState:
    if not _allowed(found.distribution):
        return PluginState(found, "off", f"{SWITCH} does not name {found.distribution}")
    claims = plugins(found.group)[found.name]
    if found not in claims:
        return PluginState(
            found,
            "shadowing",
            f"{OURS} has a built-in of that name; this one is ignored",
        )
    if len(claims) > 1:
        rivals = ", ".join(claim.distribution for claim in claims if claim != found)
        return PluginState(found, "conflict", f"also claimed by {rivals}")
    if not load:
        return PluginState(found, "unchecked")
    try:
        engine_class(found.name) if found.group == "engines" else found.load()
    except ConfigError as error:
        return PluginState(found, "broken", str(error))
    return PluginState(found, "ok")
