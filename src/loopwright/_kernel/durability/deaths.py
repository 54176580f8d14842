"""The processes that died at work on a run: how long it rests, whether it gets a worker for itself, or is parked."""

from collections.abc import Iterator, Sequence

from ..._internal import dataclasses
from ...events.entry import Entry
from ...events.recovery import UndoFinished
from ...events.run import (
    Ending,
    RunForked,
    RunResumed,
    RunRetried,
    RunStarted,
    RunSuspended,
)
from .effects import OUTCOMES

FIRST_BACKOFF = 1.0
MAX_BACKOFF = 300.0
ISOLATION_DEATHS = 3
"""Deaths in a row after which a run gets a worker for itself."""
LONE_DEATHS = 3
"""Deaths alone in a row after which a run is parked although it made progress each time."""


@dataclasses.dataclass(frozen=True)
class Life:
    """The work of one process on a run: whether it had it alone, how it ended, whether it recorded an outcome."""

    alone: bool
    ending: Ending
    made_progress: bool


@dataclasses.dataclass(frozen=True)
class Deaths:
    """The deaths in a row of processes that worked on a run, the last ones.

    Args:
        count: all of them.
        alone: those of processes that worked on nothing else.
        in_vain: those of them that recorded no outcome before they died.
    """

    count: int = 0
    alone: int = 0
    in_vain: int = 0

    @property
    def backoff(self) -> float:
        """Seconds until the run is claimed again."""
        if self.count == 0:
            return 0.0
        exponent = min(self.count - 1, 16)
        return min(FIRST_BACKOFF * 2.0**exponent, MAX_BACKOFF)

    @property
    def needs_isolation(self) -> bool:
        """Whether the next process must have the run alone, to learn which one kills it."""
        return self.count >= ISOLATION_DEATHS

    @property
    def is_poison(self) -> bool:
        """Whether the run itself kills its processes."""
        return self.in_vain > 0 or self.alone >= LONE_DEATHS


def count_deaths(entries: Sequence[Entry], ending: Ending) -> Deaths:
    """Return the deaths since a process left the run in order, if the last one's work had this `ending`.

    A process that lost the run (it was stopped, or its lease was over) did not die of it, and is passed over. One that
    died after it had claimed the run and before it wrote anything counts once, as a death that is not of the work before.
    """
    count = alone = in_vain = 0
    if _is_released(entries):
        return Deaths(int(ending == "died"))
    for life in iterate_lives(entries, ending):
        if life.ending == "lost":
            continue
        if life.ending != "died":
            break
        is_vain = life.alone and not life.made_progress
        count, alone, in_vain = count + 1, alone + life.alone, in_vain + is_vain
    return Deaths(count, alone, in_vain)


def correct_ending(entries: Sequence[Entry], ending: Ending) -> Ending:
    """Return how the work ended that the last entries are of, if the run's last owner ended with this `ending`.

    An owner that claimed a released run and wrote nothing did not work on it.
    """
    return "left" if _is_released(entries) else ending


def _is_released(entries: Sequence[Entry]) -> bool:
    """Return whether the last process that wrote anything released the run."""
    return any(isinstance(entry.event, RunSuspended) for entry in entries[-1:])


def iterate_lives(entries: Sequence[Entry], ending: Ending) -> Iterator[Life]:
    """Yield the lives of a run from the last one back to its start, its fork, or the last time it was retried."""
    made_progress = False
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, RunResumed):
            yield Life(event.alone, ending, made_progress)
            ending, made_progress = event.after, False
        elif isinstance(event, RunStarted):
            yield Life(False, ending, made_progress)
        elif isinstance(event, (RunForked, RunRetried)):
            return
        else:
            made_progress |= isinstance(event, (*OUTCOMES, UndoFinished))
