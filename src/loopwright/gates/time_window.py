"""Times of the week in a named time zone, at which a rule applies."""

import re
from datetime import datetime
from typing import Annotated, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import Field

from .._internal.options import Options
from ..errors import ConfigError

Day: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

MINUTES_OF_DAY = 1440
_TIME = re.compile("([01][0-9]|2[0-3]):([0-5][0-9])")


class Hours(Options):
    """A stretch of some days of the week in local time, with daylight saving time.

    Args:
        days: the days on which it begins; by default every day.
        start: the time at which it begins, "09:00".
        end: the time at which it ends, "17:30"; if that is before `start`, on the day after.
        zone: name of the time zone in the IANA database, "Europe/Berlin".

    Raises `ConfigError`.
    """

    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    start: str = "00:00"
    end: str = "24:00"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Check what the types do not express."""
        start, end = self._minutes()
        if start == MINUTES_OF_DAY:
            raise ConfigError('start: write "00:00" for the beginning of a day')
        if start == end:
            raise ConfigError(
                'end: the same as start; write "00:00" and "24:00" for a whole day'
            )
        find_zone(self.zone)

    def include(self, at: float) -> bool:
        """Whether a time is within them; `at` is seconds since the Unix epoch."""
        now = datetime.fromtimestamp(at, find_zone(self.zone))
        minute = now.hour * 60 + now.minute
        is_today = DAYS[now.weekday()] in self.days
        start, end = self._minutes()
        if start < end:
            return is_today and start <= minute < end
        if minute >= start:
            return is_today
        return minute < end and DAYS[now.weekday() - 1] in self.days

    def _minutes(self) -> tuple[int, int]:
        return _parse_minute("start", self.start), _parse_minute("end", self.end)


def find_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name, which `zoneinfo` caches. Raises `ConfigError`."""
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise ConfigError(
            f'zone: {name!r} is not a known time zone; write one like "Europe/Berlin" '
            "(`pip install tzdata` adds time zones to a system that has none)"
        ) from None


def _parse_minute(field: str, text: str) -> int:
    """Return the minute of the day."""
    if text == "24:00":
        return MINUTES_OF_DAY
    matched = _TIME.fullmatch(text)
    if matched is None:
        raise ConfigError(
            f'{field}: {text!r} is not a time of day; write it like "09:00"'
        )
    return int(matched[1]) * 60 + int(matched[2])
