"""Schedules: tasks that agents work on at the times of a cron line, once over all workers."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import Missed as Missed
    from .base import Overlap as Overlap
    from .base import Schedule as Schedule
    from .base import ScheduleStore as ScheduleStore

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__, {".base": ("Missed", "Overlap", "Schedule", "ScheduleStore")}
    )
