"""What is to happen about a schedule now: which of its times fires, which wait, and which get no run."""

from .._internal import dataclasses
from .base import Schedule
from .cron import list_times

GRACE = 60.0
"""Seconds after which a time counts as missed."""
MAX_LINE = 100
"""Times that wait, at most."""


@dataclasses.dataclass(frozen=True)
class Step:
    """The next revision of a schedule, and the time of the run to store with it, if any."""

    schedule: Schedule
    fires_at: float | None = None


def plan_step(
    schedule: Schedule, now: float, *, is_at_work: bool, grace: float = GRACE
) -> Step | None:
    """Return what happens to a schedule now (wall clock, seconds), `None` for nothing.

    Args:
        schedule: the schedule.
        now: wall time, seconds.
        is_at_work: whether its last run has not ended.
        grace: seconds after which a time counts as missed.
    """
    passed: list[float] = []
    if not schedule.paused:
        passed = list_times(
            schedule.cron, schedule.zone, schedule.seen_until, now, MAX_LINE
        )
    line = _extend_line(schedule, passed, now - grace, is_at_work)
    fires_at = line.pop(0) if line and not is_at_work else None
    if not passed and fires_at is None:
        return None
    left = len(schedule.line) + len(passed) - len(line) - (fires_at is not None)
    changes: dict[str, object] = {
        "line": tuple(line),
        "skipped": schedule.skipped + left,
    }
    if passed:
        changes["seen_until"] = passed[-1]
    if fires_at is not None:
        changes |= {"last_run": schedule.run_id(fires_at), "last_at": fires_at}
    return Step(schedule.change(**changes), fires_at)


def _extend_line(
    schedule: Schedule, passed: list[float], late: float, is_at_work: bool
) -> list[float]:
    """Return the times that wait once those that have passed are added; those before `late` were missed."""
    line, missed = list(schedule.line), [time for time in passed if time < late]
    if missed and schedule.missed == "all":
        return [*line, *passed][-MAX_LINE:]
    if missed and schedule.missed == "once":
        passed = passed[-1:]
    elif missed:
        passed = passed[len(missed) :]
    can_wait = schedule.overlap == "queue" or not is_at_work
    if passed and can_wait and not line:
        line.append(passed[0])
    return line
