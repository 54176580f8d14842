"""A tool that tells the time, in any time zone."""

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
    """One tool, `current_time`: date, time, offset and weekday.

    Its result comes from no outside, so it is trusted, and asking again and again is fine.

    Args:
        zone: the time zone where the model names none, like "Europe/Berlin".
        time: where the time is read; a test brings its own.

    Raises:
        ConfigError: if there is no such time zone.
    """
    usual = zone
    try:
        _zone(usual)
    except ToolError as error:
        raise ConfigError(f"zone: {error}") from None

    @tool(effect="read", trusted=True, repeatable=True)
    def current_time(zone: str = usual) -> str:
        """The date and time of now, in ISO 8601 with its offset from UTC, and the weekday.

        Args:
            zone: The time zone, by its IANA name like "Europe/Berlin" or "America/New_York".
        """
        now = datetime.datetime.fromtimestamp(time.wall(), _zone(zone))
        return f"{now.isoformat(timespec='seconds')} {WEEKDAYS[now.weekday()]}"

    return [current_time]


WEEKDAYS = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)  # strftime asks the locale


def _zone(name: str) -> datetime.tzinfo:
    if name == "UTC":
        return datetime.UTC  # also on a system without a database of time zones
    if NAME.fullmatch(name):
        try:
            return zoneinfo.ZoneInfo(name)
        except (
            zoneinfo.ZoneInfoNotFoundError,
            ValueError,
            OSError,
        ):  # a folder of zones is an OSError
            pass
    near = difflib.get_close_matches(name[:64], _names(), n=3)
    hint = f" Near to it: {', '.join(near)}." if near else ""
    raise ToolError(
        f"There is no time zone {name[:64]!r}. Give an IANA name like 'Europe/Berlin'.{hint}"
    )


@functools.cache
def _names() -> list[str]:
    return sorted(zoneinfo.available_timezones())
