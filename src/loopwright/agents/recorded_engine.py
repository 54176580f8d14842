"""Rebuild the engine of a run from its recorded name and options."""

from collections.abc import Mapping
from typing import Any, cast

from .._kernel.session.services import Services
from ..engine import LoopEngine
from ..plugins import load_engine_class


def build_recorded(
    runtime: Services,
    name: str,
    recorded: Mapping[str, Any],
    own: type[LoopEngine] | None = None,
) -> LoopEngine:
    """Build an engine, of its `own` class or by name, with the options that a run recorded, nested engines too."""
    options = {
        option: _restore_option(runtime, value) for option, value in recorded.items()
    }
    return (own or load_engine_class(name))(runtime, **options)


def _restore_option(runtime: Services, value: Any) -> Any:
    """Return a recorded option; rebuild a nested engine."""
    if not isinstance(value, dict):
        return value
    nested = cast("dict[str, Any]", value)
    if nested.keys() != {"engine", "options"}:
        return nested
    return build_recorded(runtime, nested["engine"], nested["options"])
