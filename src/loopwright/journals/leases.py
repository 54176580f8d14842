"""How the work of a run's earlier owner ended, as the one that claims the run next sees it."""

from ..events.run import Ending
from .base import RunInfo
from .owner import Owner


def find_ending(info: RunInfo) -> Ending:
    """Return how the earlier owner's work ended, before the run is claimed again.

    That a process `died` is only said where it is known: its pid is comparable and gone. An owner that may still be
    alive, whose lease is over or that is fenced off on purpose, has `lost` the run.
    """
    if info.status != "running" or info.owner is None:
        return "left"
    try:
        owner = Owner.parse(info.owner)
    except ValueError:
        return "lost"
    is_known = info.lease_until is None or owner.has_comparable_pid
    return "died" if is_known and not owner.is_alive else "lost"
