"""The library's own log: structlog, loaded at first use, never configured here."""

import functools
from typing import Any


@functools.cache
def logger() -> Any:
    """The logger named `loopwright`; what becomes of its lines is the application's choice."""
    import structlog  # noqa: PLC0415 - loaded at first use: most runs log nothing

    return structlog.get_logger("loopwright")
