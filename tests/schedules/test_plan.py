"""What happens about a schedule at a moment: missed times, runs that overlap, pauses, clocks that go back."""

import pytest

from loopwright.errors import ConfigError
from loopwright.schedules import Missed, Overlap, Schedule
from loopwright.schedules.plan import plan_step

HOUR = 3600.0
START = 1_700_000_000.0 // HOUR * HOUR


def made(
    missed: Missed = "once", overlap: Overlap = "skip", **more: object
) -> Schedule:
    return Schedule(
        "digest", "agent", "Sum up.", "0 * * * *", missed=missed, overlap=overlap, seen_until=START, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def follow(
    schedule: Schedule, *moments: tuple[float, bool]
) -> tuple[list[float | None], Schedule]:
    """Look at a schedule at hours since the start; return the hours of the runs, and how it is left."""
    fired: list[float | None] = []
    for hours, is_at_work in moments:
        step = plan_step(schedule, START + hours * HOUR, is_at_work=is_at_work)
        if step is None:
            fired.append(None)
            continue
        schedule, at = step.schedule, step.fires_at
        fired.append(None if at is None else (at - START) / HOUR)
    return fired, schedule


@pytest.mark.parametrize(
    ("missed", "fired", "skipped"),
    [
        ("once", [3, None, None, 4], 2),
        ("skip", [None, None, None, 4], 3),
        ("all", [1, 2, 3, 4], 0),
    ],
)
def test_three_missed_times_are_made_up_for_as_asked(
    missed: Missed, fired: list[float | None], skipped: int
) -> None:
    looks = (3.5, False), (3.6, False), (3.7, False), (4.0, False)
    found, left = follow(made(missed), *looks)

    assert (found, left.skipped) == (fired, skipped)


def test_missed_times_of_all_wait_for_each_other_and_are_a_hundred_at_most() -> None:
    found, left = follow(made("all"), (250.5, False), (250.6, True), (250.7, False))

    assert found == [151, None, 152]
    assert (len(left.line), left.skipped) == (98, 0)


@pytest.mark.parametrize(
    ("overlap", "fired", "skipped"),
    [("skip", [1, None, None, None, 4], 2), ("queue", [1, None, None, 2, None], 2)],
)
def test_a_time_while_a_run_is_at_work_is_skipped_or_one_waits(
    overlap: Overlap, fired: list[float | None], skipped: int
) -> None:
    looks = (1.0, False), (2.0, True), (3.0, True), (3.5, False), (4.0, overlap == "queue")  # fmt: skip
    found, left = follow(made(overlap=overlap), *looks)

    assert found == fired
    assert left.skipped == skipped - (overlap == "queue")
    assert len(left.line) == (overlap == "queue")


def test_no_time_fires_again_when_the_clock_goes_back() -> None:
    looks = (2.0, False), (0.5, False), (1.0, False), (2.0, False), (3.0, False)
    found, _ = follow(made(), *looks)

    assert found == [2, None, None, None, 3]


def test_a_paused_schedule_does_only_what_it_is_told() -> None:
    paused = made(paused=True)
    assert plan_step(paused, START + 9 * HOUR, is_at_work=False) is None

    step = plan_step(
        paused.change(line=(START + 60.0,)), START + 9 * HOUR, is_at_work=False
    )
    assert step is not None
    assert step.fires_at == START + 60.0


def test_a_schedule_is_the_same_from_its_json_and_refuses_invalid_values() -> None:
    schedule = made("all", "queue", line=(1.5, 2.0), by="Ada", generation=3)

    assert Schedule.decode(schedule.encode()) == schedule
    assert schedule.run_id(START) == "digest.g3@2023-11-14T22:00Z"
    assert schedule.run_id(START + 1.25) == "digest.g3@2023-11-14T22:00:01.250000Z"
    for field, value in (
        ("name", "a b"),
        ("missed", "some"),
        ("overlap", "both"),
        ("task", " "),
        ("task", "x" * 10_001),
    ):
        with pytest.raises(ConfigError, match=f"^{field}: "):
            schedule.change(**{field: value})
