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

_TIME = re.compile("([01][0-9]|2[0-3]):([0-5][0-9])")


class Hours(Options):
    """A stretch of some days of the week, as the clocks on the wall show it, summer time too.

    Args:
        days: the days on which it begins; without them every day.
        start: when it begins, "09:00".
        end: when it is over, "17:30"; if that is before `start`, on the day after.
        zone: name of the time zone in the IANA database, "Europe/Berlin".

    Raises `ConfigError`.
    """

    days: Annotated[tuple[Day, ...], Field(min_length=1)] = DAYS
    start: str = "00:00"
    end: str = "24:00"
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Check what the types do not tell."""
        if _minute("start", self.start) == 1440:
            raise ConfigError('start: write "00:00" for the beginning of a day')
        if _minute("start", self.start) == _minute("end", self.end):
            raise ConfigError(
                'end: the same as start: write "00:00" and "24:00" for a whole day'
            )
        zone(self.zone)

    def include(self, at: float) -> bool:
        """Whether a time lies in them; `at` is seconds since the Unix epoch."""
        now = datetime.fromtimestamp(at, zone(self.zone))
        minute, today = now.hour * 60 + now.minute, now.weekday()
        start, end = _minute("start", self.start), _minute("end", self.end)
        if start < end:
            return start <= minute < end and DAYS[today] in self.days
        return (minute >= start and DAYS[today] in self.days) or (
            minute < end and DAYS[today - 1] in self.days
        )


def zone(name: str) -> ZoneInfo:
    """The time zone of that name, which `zoneinfo` keeps at hand. Raises `ConfigError`."""
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise ConfigError(
            f'zone: {name!r} is no known time zone: write one like "Europe/Berlin" '
            "(a system that has no time zones gets them by `pip install tzdata`)"
        ) from None


def _minute(field: str, text: str) -> int:
    """The minute of the day."""
    if text == "24:00":
        return 1440
    read = _TIME.fullmatch(text)
    if read is None:
        raise ConfigError(f'{field}: {text!r} is no time of day: write it like "09:00"')
    return int(read[1]) * 60 + int(read[2])
