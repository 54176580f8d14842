"""What a tool declares about data: where its arguments send it, and what its results vouch for."""

from typing import Any

from ..errors import ConfigError
from ..messages import JsonObject


def list_names(tool: str, field: str, given: Any) -> tuple[str, ...]:
    """Return names that a tool declares: one text, or several; raise `ConfigError` for anything else."""
    if isinstance(given, str):
        return (given,)
    try:
        names: tuple[Any, ...] = tuple(given)
    except TypeError:
        names = (None,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"tool {tool!r}: {field}: must be names, got {given!r:.80}")
    return names


def check_parameters(
    tool: str, field: str, names: tuple[str, ...], schema: JsonObject
) -> None:
    """Raise `ConfigError` for a name that is not a parameter of the tool."""
    if not names:
        return
    properties = schema.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    for name in names:
        if name not in known:
            raise ConfigError(
                f"tool {tool!r}: {field}: has no parameter {name!r}; it has {', '.join(known) or 'none'}"
            )
