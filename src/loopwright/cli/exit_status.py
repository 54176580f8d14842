"""How a command ends: its exit status, its errors on one line, and quietly where nobody reads any more."""

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
}
FAILED, MISUSED, INTERRUPTED, BROKEN_PIPE = (
    1,
    2,
    130,
    141,
)  # the last two as of a process that SIGINT or SIGPIPE ends


def run_work(work: Callable[[], int], *, debug: bool) -> int:
    """Do a command's work and give its exit status; an error of ours is told on one line, with `debug` in full."""
    try:
        status = work()
        sys.stdout.flush()  # while an error of it can still be told
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
    """One line about an error on standard error; with `debug` also where it comes from."""
    if debug:
        sys.stderr.write(clean("".join(traceback.format_exception(error))))
    sys.stderr.write(f"error: {one_line(str(error)) or type(error).__name__}\n")
    sys.stderr.flush()


def ensure_streams() -> None:
    """Put an empty stream in the place of each that the process was started without; standard output must be there."""
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
    """Let a stream write what its encoding has no character for as an escape, in place of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Send what cannot be written any more nowhere, so that the end of the process does not complain of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
