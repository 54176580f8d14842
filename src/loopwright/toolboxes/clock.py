"""A tool that tells the time, in any time zone."""

import contextlib
import datetime
import difflib
import functools
import re
import zoneinfo

from ..clock import Clock, SystemClock
from ..errors import ConfigError, ToolError
from ..tools.base import Tool, tool

NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")
SYSTEM = SystemClock()


def clock(zone: str = "UTC", *, time: Clock = SYSTEM) -> list[Tool]:
    """Return one tool, `current_time`: date, time, offset and weekday.

    Its result does not come from outside, so it is trusted; repeated calls are normal.

    Args:
        zone: the default time zone, like "Europe/Berlin".
        time: the clock; a test passes its own.

    Raises:
        ConfigError: there is no such time zone.
    """
    default = zone
    try:
        _find_zone(default)
    except ToolError as error:
        raise ConfigError(f"zone: {error}") from None

    @tool(effect="read", trusted=True, repeatable=True)
    def current_time(zone: str = default) -> str:
        """The date and time of now, in ISO 8601 with its offset from UTC, and the weekday.

        Args:
            zone: The time zone, by its IANA name like "Europe/Berlin" or "America/New_York".
        """
        now = datetime.datetime.fromtimestamp(time.wall(), _find_zone(zone))
        return f"{now.isoformat(timespec='seconds')} {WEEKDAYS[now.weekday()]}"

    return [current_time]


# strftime would use the locale.
WEEKDAYS = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)


def _find_zone(name: str) -> datetime.tzinfo:
    if name == "UTC":
        return datetime.UTC  # also on a system without a database of time zones
    if NAME.fullmatch(name):
        # A directory of zones is an OSError.
        with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return zoneinfo.ZoneInfo(name)
    near = difflib.get_close_matches(name[:64], _zone_names(), n=3)
    hint = f" Near to it: {', '.join(near)}." if near else ""
    raise ToolError(
        f"There is no time zone {name[:64]!r}. Give an IANA name like 'Europe/Berlin'.{hint}"
    )


@functools.cache
def _zone_names() -> list[str]:
    return sorted(zoneinfo.available_timezones())
