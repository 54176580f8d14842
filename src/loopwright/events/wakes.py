"""What the entries of an unfinished run say about waking it: when, how often in vain, and with what code it failed."""

from collections.abc import Sequence

from .control import CommandReceived
from .effects import (
    BreakerChanged,
    DriftNoticed,
    EffectFinished,
    ModelReplied,
    ToolFinished,
)
from .entry import Entry
from .lifecycle import find_diverged_versions
from .run import RunResumed, RunRetried, RunSuspended

VAIN_WAKES = 10
"""How often a run is woken without anything that comes of it, before that counts as in vain."""
MAX_DIVERGENCES = 5
"""Divergences in a row of code without a version, after which code without one leaves a run to an operator."""
_PROGRESS = (ModelReplied, ToolFinished, EffectFinished, RunRetried)
"""Events which show that a run which was woken got further."""
_REPEATED = (RunResumed, BreakerChanged, CommandReceived, DriftNoticed)
"""What each process may record again that resumes a run."""


def find_wake_time(entries: Sequence[Entry]) -> float:
    """Return when a run continues by itself (wall clock, seconds): it slept, or a question expires; 0 for never."""
    last = entries[-1].event
    if not isinstance(last, RunSuspended):
        return 0.0
    times = [last.wake_at, *(question.expires for question in last.pending)]
    return min(filter(None, times), default=0.0)


def find_seconds_in_vain(entries: Sequence[Entry]) -> float:
    """Return for how long a run was woken again and again without anything that came of it."""
    since, count = entries[-1].at, 0
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, _PROGRESS):
            break
        if isinstance(event, RunSuspended) and _waits_for_provider(event):
            since, count = entry.at, count + 1
    return entries[-1].at - since if count >= VAIN_WAKES else 0.0


def _waits_for_provider(event: RunSuspended) -> bool:
    """Return whether a suspended run is to be woken, and not because it sleeps."""
    return event.wake_at > 0 and event.reason != "sleeping"


def has_diverged(version: str, entries: Sequence[Entry]) -> bool:
    """Return whether a version of the application failed to replay a run before.

    Code without a version may be other code each time, so it is tried a few times.
    """
    if version:
        return version in find_diverged_versions(entries)
    return _count_divergences(entries) >= MAX_DIVERGENCES


def _count_divergences(entries: Sequence[Entry]) -> int:
    """Count how often code could not replay a run, since the last code that could."""
    count = 0
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, RunSuspended) and event.reason == "diverged":
            count += 1
        elif not isinstance(event, _REPEATED):
            break
    return count
