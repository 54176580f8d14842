"""The times of a cron line: clock changes, lines that never fire, what cannot be read."""

import datetime
import random
import zoneinfo

import pytest

from loopwright.errors import ConfigError
from loopwright.schedules.cron import check_cron, find_next, list_times

SPRING, AUTUMN = datetime.date(2026, 3, 29), datetime.date(2026, 10, 25)
"""When the clocks of Berlin leave out 2:00 to 3:00, and when they show it twice."""


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()


def times_on(day: datetime.date, cron: str, zone: str = "Europe/Berlin") -> list[str]:
    """Return the times of a line on one day of a zone, in UTC."""
    begin = datetime.datetime.combine(day, datetime.time(), zoneinfo.ZoneInfo(zone))
    end = begin + datetime.timedelta(days=1)
    found = list_times(
        cron, zone, begin.timestamp() - 1, end.timestamp() - 1, limit=2_000
    )
    return [
        f"{datetime.datetime.fromtimestamp(one, datetime.UTC):%H:%M}" for one in found
    ]


@pytest.mark.parametrize(
    ("day", "cron", "expected"),
    [
        (SPRING, "30 2 * * *", ["01:00"]),  # the first minute after the gap
        (SPRING, "0,30 2 * * *", ["01:00"]),
        (SPRING, "*/20 2 * * *", ["01:00"]),
        (AUTUMN, "30 2 * * *", ["00:30"]),  # the first of both
        (AUTUMN, "*/30 2 * * *", ["00:00", "00:30"]),
        (AUTUMN, "0 */2 * * *", ["22:00", "00:00", "03:00"]),
        (AUTUMN, "0 3 * * *", ["02:00"]),
    ],
)
def test_a_time_in_a_gap_comes_after_it_and_one_in_a_fold_once(
    day: datetime.date, cron: str, expected: list[str]
) -> None:
    assert times_on(day, cron)[: len(expected)] == expected
    if "*/2 " not in cron:
        assert times_on(day, cron) == expected


def test_a_line_for_every_hour_follows_the_time_that_passes() -> None:
    assert len(times_on(SPRING, "0 * * * *")) == 23
    assert len(times_on(AUTUMN, "0 * * * *")) == 25


def test_times_are_the_same_forward_and_backward() -> None:
    source = random.Random(7)
    zones = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
    for _ in range(60):
        minute, hour = (
            source.choice(("*/20", "0", "15,45")),
            source.choice(("*", "*/3", "2", "1-3")),
        )
        cron, zone = f"{minute} {hour} * * *", source.choice(zones)
        start = seconds("2026-01-01") + source.randrange(365 * 86_400)
        forward, at = list[float](), start
        while (at := find_next(cron, zone, at) or 0.0) <= start + 3 * 86_400:
            forward.append(at)

        assert list_times(cron, zone, start, start + 3 * 86_400, 10_000) == forward, (
            cron,
            zone,
            start,
        )


def test_the_last_times_of_a_year_are_found_at_once() -> None:
    found = list_times(
        "* * * * *", "UTC", seconds("2025-01-01"), seconds("2026-01-01"), 100
    )

    assert len(found) == 100
    assert found[-1] == seconds("2026-01-01")


@pytest.mark.parametrize(
    ("cron", "zone", "problem"),
    [
        ("0 9 30 2 *", "UTC", "cron"),
        ("0 9 31 4,6 *", "Europe/Berlin", "cron"),
        ("0 0 */31 * MON#2", "UTC", "cron: .* never fires"),
        ("61 * * * *", "UTC", "cron: .* cannot be read: Bad minute"),
        ("0 9 * *", "UTC", "cron: must have 5 fields"),
        ("0 0 9 * * *", "UTC", "cron: must have 5 fields"),
        ("0 9 * * *", "Mars/Base", "zone: unknown, got 'Mars/Base'"),
        ("0 9 * * *", "../../etc/passwd", "zone: unknown"),
    ],
)
def test_a_line_that_never_fires_or_cannot_be_read_is_refused(
    cron: str, zone: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_cron(cron, zone, seconds("2026-01-01"))
