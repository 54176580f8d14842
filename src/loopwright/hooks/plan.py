"""Read the hooks that a runtime, an agent or an engine is given, and put those of a run in order."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from ..errors import ConfigError
from .base import ENGINE_STAGES, METHODS, STAGES, Hook, PlannedHook, Stage

LoadHook = Callable[[str], Any]
"""Returns what a name of the group `loopwright.hooks` stands for."""


def plan_hooks(
    given: Any, load: LoadHook, *, objects: bool = False
) -> tuple[PlannedHook, ...]:
    """Return hooks by their names, `{"hook": name, option: value}` or, with `objects`, as they are; raise `ConfigError`."""
    if isinstance(given, (str, Mapping)) or not hasattr(given, "__iter__"):
        raise ConfigError(f"hooks: must be a list, got {given!r:.80}")
    planned = [_plan(one, load, objects) for one in given]
    names = [one.name for one in planned]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"hooks: {twice!r} is given twice; remove one")
    return tuple(sorted(planned, key=lambda one: (one.priority, one.name)))


def _plan(given: Any, load: LoadHook, objects: bool) -> PlannedHook:
    if isinstance(given, str):
        return _describe(_build(load, given, {}), given, {})
    if isinstance(given, Mapping):
        options = dict(cast("Mapping[str, Any]", given))
        name = options.pop("hook", None)
        if not isinstance(name, str):
            raise ConfigError(
                f'hooks: needs {{"hook": name, ...options}}, got {given!r:.80}'
            )
        return _describe(_build(load, name, options), name, options)
    if not objects:
        raise ConfigError(
            f"hooks: needs names, got {given!r:.80}; objects are for Runtime(hooks=...) alone"
        )
    return _describe(given, getattr(given, "name", "") or type(given).__name__, {})


def _build(load: LoadHook, name: str, options: Mapping[str, Any]) -> Any:
    target = load(name)
    try:
        return target(**options)
    except Exception as error:
        raise ConfigError(
            f"hooks: {name!r} cannot be made with {dict(options)!r:.80}: {error}"
        ) from error


def _describe(hook: Any, name: str, options: Mapping[str, Any]) -> PlannedHook:
    found = _find_methods(hook)
    if isinstance(hook, type) or not found:
        raise ConfigError(
            f"hooks: {name!r} has none of the methods {', '.join(METHODS)}, got {hook!r:.80}"
        )
    timeout = getattr(hook, "timeout", Hook.timeout)
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ConfigError(f"hooks: {name!r} needs a timeout above 0, got {timeout!r}")
    return PlannedHook(
        hook, name, _identify(hook, name, options), getattr(hook, "priority", Hook.priority), timeout,
        bool(getattr(hook, "required", Hook.required)), tuple(getattr(hook, "purposes", Hook.purposes)), found,
    )  # fmt: skip


def _find_methods(hook: Any) -> dict[Stage, Any]:
    """Return the methods of a hook by stage; `stage` is that of all stages of engines."""
    of_engines = getattr(hook, "stage", None)
    methods: dict[Stage, Any] = dict.fromkeys(ENGINE_STAGES, of_engines)
    methods |= {
        stage: getattr(hook, stage, None)
        for stage in STAGES
        if stage not in ENGINE_STAGES
    }
    return {stage: method for stage, method in methods.items() if callable(method)}


def _identify(hook: Any, name: str, options: Mapping[str, Any]) -> str:
    """Return what a run records of a hook: its name, its version, and a hash of its options."""
    version = getattr(hook, "version", "")
    found = f"{name}@{version}" if version else name
    if not options:
        return found
    try:
        encoded = to_json(options)
    except PydanticSerializationError as error:
        raise ConfigError(
            f"hooks: the options of {name!r} must be JSON: {error}"
        ) from None
    return f"{found}:{hashlib.sha256(encoded).hexdigest()[:12]}"


def list_stages(
    engines: Sequence[Any],
) -> Mapping[str, tuple[PlannedHook, ...]]:
    """Return the hooks of an engine by stage: its own, then those of the engines around it, each once."""
    found: dict[str, PlannedHook] = {}
    for engine in reversed(engines):
        own = (*engine.runtime.hooks, *getattr(engine, "planned_hooks", ()))
        for hook in sorted(own, key=lambda one: (one.priority, one.name)):
            found.setdefault(hook.name, hook)
    return {
        stage: tuple(hook for hook in found.values() if stage in hook.methods)
        for stage in STAGES
    }
