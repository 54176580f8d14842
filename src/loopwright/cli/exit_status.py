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

OF_STATUS: dict[Status, int] = {
    "completed": 0,
    "failed": 1,
    "limit": 3,
    "stuck": 4,
    "waiting": 5,
    "aborted": 6,
}
FAILED, MISUSED, INTERRUPTED, UNREAD = (
    1,
    2,
    130,
    141,
)  # the last two as of a process that SIGINT or SIGPIPE ends


def carried_out(work: Callable[[], int], *, debug: bool) -> int:
    """Do a command's work and give its exit status; an error of ours is told on one line, with `debug` in full."""
    try:
        status = work()
        sys.stdout.flush()  # while an error of it can still be told
        return status
    except BrokenPipeError:
        read_by_nobody()
        return UNREAD
    except (LoopwrightError, OSError) as error:
        with contextlib.suppress(OSError):
            tell_error(error, debug=debug)
        read_by_nobody()
        return MISUSED if isinstance(error, ConfigError) else FAILED


def tell_error(error: BaseException, *, debug: bool) -> None:
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
            "standard output is closed: write >/dev/null if nobody shall read it"
        )


def printable(stream: TextIO) -> None:
    """Let a stream write what its encoding has no character for as an escape, in place of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def read_by_nobody() -> None:
    """Send what cannot be written any more nowhere, so that the end of the process does not complain of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
