"""Rebuild the engine of a run from its recorded name and options."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from ..engine import LoopEngine
from ..providers.base import Sampling

BuildEngine: TypeAlias = Callable[..., LoopEngine]
"""Returns the engine of a name with options, as `Runtime.engine` does."""


def build_recorded(
    build: BuildEngine,
    name: str,
    recorded: Mapping[str, Any],
    own: Callable[..., LoopEngine] | None = None,
) -> LoopEngine:
    """Build an engine, by `own` or by its name, with the options that a run recorded, nested engines too."""
    options = {
        option: _restore_option(build, value) for option, value in recorded.items()
    }
    sampling = options.get("sampling")
    if isinstance(sampling, dict):  # earlier versions took a number that is a text
        given = cast("dict[str, Any]", sampling)
        options["sampling"] = Sampling.from_options(given)
    return build(name, **options) if own is None else own(**options)


def _restore_option(build: BuildEngine, value: Any) -> Any:
    """Return a recorded option; rebuild nested engines."""
    if isinstance(value, list):
        items = cast("list[Any]", value)  # type: ignore[redundant-cast] # for basedpyright
        return [_restore_option(build, item) for item in items]
    if not isinstance(value, dict):
        return value
    nested = cast("dict[str, Any]", value)
    if nested.keys() != {"engine", "options"}:
        return nested
    return build_recorded(build, nested["engine"], nested["options"])
