"""How late control may be after a deadline, on a machine that may have other things to do."""

import os

LATEST = 0.1  # seconds, as promised
TRIES = (
    8  # a busy machine may be late a few times; the first try that is in time is enough
)


def allowed() -> float:
    """Seconds by which control may be late: more than promised only where more processes wait than can run."""
    waiting = (
        os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    )
    return LATEST * (1.0 if waiting <= 1.0 else 2.0 * waiting)
