"""The times of a cron line in a time zone, by CronSim, which follows Debian's cron."""

import datetime
import functools
import importlib
import itertools
import zoneinfo
from collections.abc import Iterator
from typing import Any

from ..errors import ConfigError

FOLD_SECONDS = 3 * 3600.0
"""How far the clock of a time zone goes back, at most: some of its earlier times look later until that has passed."""
FIELDS = 5


@functools.cache
def _load_cronsim() -> Any:
    try:
        return importlib.import_module("cronsim")
    except ImportError:
        raise ConfigError(
            "cron: schedules need CronSim: pip install 'loopwright[schedule]'"
        ) from None


def check_cron(cron: str, zone: str, after: float) -> None:
    """Raise `ConfigError` for a line or a zone that cannot be read, or a line that never fires."""
    if find_next(cron, zone, after) is None:
        raise ConfigError(f"cron: {cron!r} never fires; name a day that exists")


def find_next(cron: str, zone: str, after: float) -> float | None:
    """Return the first time after another (wall clock, seconds); `None` if there is none within 50 years.

    A time that the zone's clock shows twice is the first one, and one that it leaves out is the first minute after the gap.
    A line for every hour (`*`) has neither: it follows the time that passes.
    """
    times = _iterate(cron, zone, after, reverse=False)
    return next((time for time in times if time > after), None)


def list_times(
    cron: str, zone: str, after: float, until: float, limit: int
) -> list[float]:
    """Return the last times after one time and up to another, at most `limit`, the oldest first."""
    times = _iterate(cron, zone, until + FOLD_SECONDS, reverse=True)
    passed = (time for time in times if time <= until)
    found = itertools.takewhile(lambda time: time > after, passed)
    return sorted(set(itertools.islice(found, limit)))


def _iterate(cron: str, zone: str, start: float, *, reverse: bool) -> Iterator[float]:
    """Return the times of a line forward or backward from a time; raise `ConfigError` for what cannot be read."""
    library = _load_cronsim()
    if len(cron.split()) != FIELDS:
        raise ConfigError(
            f"cron: must have {FIELDS} fields, as in '0 9 * * 1-5', got {cron!r:.80}"
        )
    begin = datetime.datetime.fromtimestamp(start, _find_zone(zone))
    try:
        times = library.CronSim(_name_times(cron), begin, reverse=reverse)
    except library.CronSimError as error:
        raise ConfigError(f"cron: {cron!r:.80} cannot be read: {error}") from None
    return (time.timestamp() for time in times)


def _name_times(cron: str) -> str:
    """Return a line without `*` for minutes and hours unless it is for every hour: CronSim lets others follow time, too."""
    minute, hour, *rest = cron.split()
    if hour == "*":
        return cron
    named = minute.replace("*", "0-59", 1), hour.replace("*", "0-23", 1)
    return " ".join((*named, *rest))


@functools.cache
def _find_zone(zone: str) -> datetime.tzinfo:
    if zone == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"zone: unknown, got {zone!r:.80}; name one of the IANA database, such as 'Europe/Berlin'"
        ) from None
