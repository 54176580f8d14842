"""The library's logger: structlog, imported at first use and never configured here."""

import sys
from typing import Any


def logger() -> Any:
    """Return the logger `loopwright`, which prints to stderr unless the application has configured structlog."""
    import structlog  # noqa: PLC0415 - imported at first use, since most runs log nothing

    if structlog.is_configured():
        return structlog.get_logger("loopwright")
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
