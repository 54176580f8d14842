"""How long something works, in CPU seconds of its thread, as on a machine whose other processes take nothing from it.

CPU time leaves out what waits, but a thread still works slower where others share its core or its cache. So a fixed
piece of work is measured before and after, and the time counts by how much slower than usual that was.
"""

import gc
import re
import time
from collections.abc import Callable

USUAL = 0.0011  # CPU seconds of the fixed work on the machine that the bounds were set on, with nothing else to do
SLOWEST = 8.0  # times; a bound is never stretched by more
_TEXT = "Thought: result\n" * 4096
_LABEL = re.compile(r"^\w+:(?=\s*\w)", re.MULTILINE)


def quickest(work: Callable[[], object], bound: float, tries: int = 8) -> float:
    """Return the CPU seconds of the best of so many tries; the first one that takes less than the bound is enough."""
    best = float("inf")
    while tries and best >= bound:
        slowness = _slowness()
        seconds = _measure(work)
        slowness = (slowness + _slowness()) / 2
        best, tries = min(best, seconds / slowness), tries - 1
    return best


def measure_slowness() -> float:
    """Return how many times slower than usual this machine works now, at least 1: the least of twenty looks."""
    return min(_slowness() for _ in range(20))


def _slowness() -> float:
    """Return how many times slower than usual this thread works now, at least 1."""
    return min(max(_measure(_work) / USUAL, 1.0), SLOWEST)


def _work() -> None:
    {found.start(): found[0] for found in _LABEL.finditer(_TEXT)}
    _TEXT.splitlines()


def _measure(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a piece of work, without the collector, which walks the heap of the whole suite."""
    gc.disable()
    try:
        begun = time.thread_time()
        work()
        return time.thread_time() - begun
    finally:
        gc.enable()
