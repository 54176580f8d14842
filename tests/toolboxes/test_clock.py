"""The clock toolbox: the time of an injected clock, in any zone, and a hint where there is no such zone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import ConfigError, ReActEngine, Runtime, ToolError
from loopwright.plugins import build_tools
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.toolboxes.clock import clock

STILL = FakeClock(wall=1_700_000_000)  # 14 November 2023, 22:13:20 UTC


def test_it_tells_date_time_offset_and_weekday() -> None:
    (current_time,) = clock(time=STILL)

    assert current_time() == "2023-11-14T22:13:20+00:00 Tuesday"
    assert current_time("Asia/Kathmandu") == "2023-11-15T03:58:20+05:45 Wednesday"
    assert (
        current_time("America/Argentina/Ushuaia") == "2023-11-14T19:13:20-03:00 Tuesday"
    )
    assert (current_time.effect, current_time.trusted, current_time.repeatable) == (
        "read",
        True,
        True,
    )


def test_the_zone_for_a_call_that_names_none_is_set_up() -> None:
    assert (
        clock("Europe/Berlin", time=STILL)[0]() == "2023-11-14T23:13:20+01:00 Tuesday"
    )
    assert build_tools("clock:Europe/Berlin")[0]().partition("T")[2][8:14] in (
        "+01:00",
        "+02:00",
    )
    with pytest.raises(ConfigError, match="zone: There is no time zone 'Mars'"):
        clock("Mars")


def test_time_passes_as_the_clock_says() -> None:
    moving = FakeClock(wall=0)
    (current_time,) = clock(time=moving)
    moving.advance(86_400)

    assert current_time() == "1970-01-02T00:00:00+00:00 Friday"


def test_a_zone_that_is_none_is_answered_with_near_ones() -> None:
    with pytest.raises(
        ToolError,
        match=r"'Europe/Berln'\. Give an IANA name .* Near to it: Europe/Berlin",
    ) as raised:
        clock()[0]("Europe/Berln")

    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "/etc/passwd",
        "../../etc/passwd",
        "Europe",
        "a\0b",
        "UTC/",
        "x" * 10_000,
        "posix/..",
    ],
)
def test_a_zone_is_no_way_to_other_files(zone: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        clock()[0](zone)


@given(st.text(max_size=40))
def test_any_text_is_a_zone_or_is_refused(zone: str) -> None:
    try:
        told = clock(time=STILL)[0](zone)
    except ToolError as error:
        told = str(error)

    assert told.startswith(("2023-11-1", "There is no time zone"))


async def test_a_model_asks_for_the_time_as_often_as_it_likes() -> None:
    script = [*[call("current_time")] * 6, "It is late."]
    result = await ReActEngine(
        Runtime(ScriptedProvider(script), tools=clock(time=STILL))
    ).run("What time is it?")

    told = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    assert (result.answer, told) == (
        "It is late.",
        ["2023-11-14T22:13:20+00:00 Tuesday"] * 6,
    )
