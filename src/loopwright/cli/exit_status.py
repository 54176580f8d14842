"""Exit statuses of commands, and how errors and closed streams end a command."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import TextIO

from ..errors import ConfigError, LoopwrightError
from ..events.run import Status
from .text import clean, one_line

EXIT_STATUS: dict[Status, int] = {
    "completed": 0,
    "failed": 1,
    "limit": 3,
    "stuck": 4,
    "waiting": 5,
    "aborted": 6,
    "suspended": 7,
}
FAILED, MISUSED = 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141  # as for a process that SIGINT or SIGPIPE ends


def run_work(work: Callable[[], int], *, debug: bool) -> int:
    """Run a command and return its exit status; report a Loopwright error on one line, with `debug` in full."""
    try:
        status = work()
        sys.stdout.flush()  # while an error of it can still be reported
        return status
    except BrokenPipeError:
        discard_output()
        return BROKEN_PIPE
    except (LoopwrightError, OSError) as error:
        with contextlib.suppress(OSError):
            report_error(error, debug=debug)
        discard_output()
        return MISUSED if isinstance(error, ConfigError) else FAILED


def report_error(error: BaseException, *, debug: bool) -> None:
    """Write an error to standard error on one line, with `debug` its traceback before it."""
    if debug:
        sys.stderr.write(clean("".join(traceback.format_exception(error))))
    sys.stderr.write(f"error: {one_line(str(error)) or type(error).__name__}\n")
    sys.stderr.flush()


def ensure_streams() -> None:
    """Open an empty stream for each that the process was started without; raise `ConfigError` without standard output."""
    closed = [
        name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None
    ]
    for name in closed:  # in this order, so that each gets its own number
        setattr(
            sys,
            name,
            open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"),  # noqa: SIM115
        )
    if "stdout" in closed:
        raise ConfigError(
            "standard output is closed: redirect it to /dev/null to discard the output"
        )


def escape_unencodable(stream: TextIO) -> None:
    """Make a stream escape the characters that its encoding lacks."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discard output that cannot be written any more, so that the interpreter exits without an error message."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
