"""libfaketime: the wall clock of a real process, set from outside; monotonic time is left alone."""

import glob
import os
import select
import time
from pathlib import Path

PLACES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
MISSING = "libfaketime is not installed: apt-get install faketime (`make faults` does so as root)"


def find_library() -> str:
    """Return where the library is, as `LOOPWRIGHT_FAKETIME` says or where packages put it; empty if nowhere."""
    named = os.environ.get("LOOPWRIGHT_FAKETIME", "")
    found = [named] if Path(named).is_file() else []
    return next(iter([*found, *(path for place in PLACES for path in glob.glob(place))]), "")  # fmt: skip


def shift_clock(file: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a process whose wall clock is `seconds` off; writing `file` sets it again."""
    set_clock(file, seconds)
    return {
        **os.environ,
        "LD_PRELOAD": find_library(),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }


def repair_sleep() -> None:
    """Let `time.sleep` wait in this process: the library refuses `clock_nanosleep` until a monotonic time."""
    if "FAKETIME_TIMESTAMP_FILE" in os.environ:
        time.sleep = lambda seconds: select.select([], [], [], seconds) and None


def set_clock(file: Path, seconds: float) -> None:
    """Set the wall clocks of the processes that read `file`, at once."""
    written = file.with_suffix(".new")
    written.write_text(f"{seconds:+.0f}\n")
    written.replace(file)
