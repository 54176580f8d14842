"""The library's own log: structlog, loaded at first use, never configured here."""

import sys
from typing import Any


def logger() -> Any:
    """The logger named `loopwright`; what becomes of its lines is the application's choice, else they go to stderr."""
    import structlog  # noqa: PLC0415 - loaded at first use: most runs log nothing

    if structlog.is_configured():
        return structlog.get_logger("loopwright")
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
