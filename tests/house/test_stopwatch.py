"""The stopwatch of timed tests stretches no bound so far that slow work passes."""

import time

import pytest

import stopwatch
from stopwatch import SLOWEST, quickest


def work_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_that_takes_longer_than_any_stretched_bound_is_not_quick() -> None:
    bound = 0.002

    assert quickest(lambda: work_for(bound * SLOWEST * 1.5), bound, tries=3) > bound


def test_work_counts_by_how_much_slower_than_usual_the_thread_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopwatch, "USUAL", stopwatch.USUAL / 4)

    assert quickest(lambda: work_for(0.02), 0.02, tries=3) < 0.02


def test_first_try_within_the_bound_is_the_last() -> None:
    tries: list[None] = []
    quickest(lambda: tries.append(None), 1.0)

    assert len(tries) == 1
