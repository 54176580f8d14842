"""Read who a schedule's runs are started by, with the rights of the moment."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, format_error
from ..principals import FindPrincipal, Principal

LOOKUP_SECONDS = 5.0
"""Seconds that a look-up may take."""


async def find_starter(
    recorded: Mapping[str, Any] | None, find: FindPrincipal | None
) -> Principal | None:
    """Return a principal that was recorded as JSON, as it is now; as it was recorded if nothing looks it up.

    Raises `ConfigError` if it may start nothing any more, or cannot be looked up.
    """
    if recorded is None:
        return None
    known = Principal(recorded["id"], recorded["tenant"], tuple(recorded["roles"]))
    if find is None:
        return known
    found = await _look_up(known, find)
    if found is None:
        raise ConfigError(f"principal: {str(known)!r} may start no runs any more")
    if not isinstance(found, Principal) or found.tags != known.tags:
        raise ConfigError(
            f"principal: looking {str(known)!r} up gave another one, {found!r:.80}"
        )
    return found


async def _look_up(known: Principal, find: FindPrincipal) -> object:
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            given: Any = find(known)
            return await given if inspect.isawaitable(given) else given
    except Exception as error:  # the application's directory may fail in any way
        problem = f"principal: {str(known)!r} could not be looked up"
        raise ConfigError(f"{problem}: {format_error(error)}") from error
