"""The library's logger: structlog, imported at first use and never configured here."""

import contextlib
import sys
from collections.abc import Generator
from typing import Any


def logger() -> Any:
    """Return the logger `loopwright`, which prints to stderr unless the application has configured structlog."""
    import structlog  # noqa: PLC0415 - imported at first use, since most runs log nothing

    if structlog.is_configured():
        return structlog.get_logger("loopwright")
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))


@contextlib.contextmanager
def capture_logs(logs: list[Any]) -> Generator[None]:
    """Return a context in which what is logged goes to a list; the application's configuration stays."""
    import structlog.testing  # noqa: PLC0415 - as above

    was_configured = structlog.is_configured()
    with structlog.testing.capture_logs() as captured:
        yield
    logs.extend(captured)
    if not was_configured:
        structlog.reset_defaults()
