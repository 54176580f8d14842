"""Circuit breakers: when they open, how they try again, and what they never count."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from loopwright import (
    AllowAll,
    CircuitBreaker,
    CircuitBreakers,
    ConfigError,
    Limits,
    ProviderError,
    ReActEngine,
    Result,
    Runtime,
    ToolError,
    tool,
)
from loopwright.errors import CircuitOpen, ProviderTimeout
from loopwright.events import BreakerChanged, ToolFinished, ToolStarted
from loopwright.resilience.circuit_breaker import BreakerPass
from loopwright.testing import FakeClock, ScriptedProvider, call
from stopwatch import quickest


class Wandering(FakeClock):
    """A clock whose wall time jumps about."""

    def wall(self) -> float:
        """A day earlier at every look."""
        self._wall -= 86_400
        return super().wall()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> CircuitBreaker:
    return CircuitBreaker("tool/x", clock=clock)


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        breaker.failure(breaker.acquire())


def state_of(breaker: CircuitBreaker) -> str:
    """Its state, as something that may be another at the next look."""
    return breaker.state


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    fail(breaker, 5)
    assert state_of(breaker) == "open"
    return breaker


def rejected(breaker: CircuitBreaker) -> CircuitOpen:
    with pytest.raises(CircuitOpen) as rejection:
        breaker.acquire()
    return rejection.value


def test_it_opens_at_the_fifth_failure_in_a_row_and_not_before(
    breaker: CircuitBreaker,
) -> None:
    fail(breaker, 4)
    assert state_of(breaker) == "closed"

    fail(breaker)
    assert state_of(breaker) == "open"


def test_a_success_ends_the_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 4)
    breaker.success(breaker.acquire())
    fail(breaker, 4)

    assert state_of(breaker) == "closed"


def test_a_call_without_a_verdict_neither_counts_nor_ends_the_row(
    breaker: CircuitBreaker,
) -> None:
    fail(breaker, 4)
    breaker.cancel(breaker.acquire())
    assert state_of(breaker) == "closed"

    fail(breaker)
    assert state_of(breaker) == "open"


def test_an_open_breaker_says_how_long_to_wait(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(10)
    rejection = rejected(breaker)

    assert rejection.retry_after == pytest.approx(20)
    assert rejection.retryable is False
    assert (
        str(rejection) == "tool/x failed too often; it is not called for another 20.0 s"
    )


def test_a_rejection_is_not_a_failure_and_does_not_lengthen_the_wait(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    for _ in range(100):
        rejected(breaker)
    clock.advance(30)
    breaker.success(breaker.acquire())

    assert state_of(breaker) == "closed"
    fail(breaker, 4)
    assert state_of(breaker) == "closed"


def test_after_the_wait_one_probe_of_fifty_is_let_through(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(30)
    passes: list[BreakerPass] = []
    for _ in range(50):
        try:
            passes.append(breaker.acquire())
        except CircuitOpen:
            continue

    assert [given.probe for given in passes] == [True]
    assert state_of(breaker) == "half-open"


def test_a_probe_that_works_closes_it_and_the_row_starts_anew(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(30)
    breaker.success(breaker.acquire())
    assert state_of(breaker) == "closed"

    fail(breaker, 4)
    assert state_of(breaker) == "closed"
    fail(breaker)
    assert rejected(breaker).retry_after == pytest.approx(30)


def test_each_failed_probe_doubles_the_wait_up_to_a_bound(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    waits: list[float] = []
    for _ in range(6):
        wait = rejected(breaker).retry_after
        assert wait is not None
        waits.append(wait)
        clock.advance(wait)
        fail(breaker)

    assert waits == pytest.approx([30, 60, 120, 240, 300, 300])
    clock.advance(300)
    breaker.success(breaker.acquire())
    fail(breaker, 5)
    assert rejected(breaker).retry_after == pytest.approx(30)


def test_it_says_the_same_reason_after_a_probe_that_failed(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    before = str(rejected(breaker))
    clock.advance(30)
    fail(breaker)

    assert before == "tool/x failed too often; it is not called for another 30.0 s"
    assert (
        str(rejected(breaker))
        == "tool/x failed too often; it is not called for another 60.0 s"
    )


def test_a_cancelled_probe_gives_its_place_back(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(30)
    breaker.cancel(breaker.acquire())

    assert state_of(breaker) == "half-open"
    breaker.success(breaker.acquire())
    assert state_of(breaker) == "closed"


def test_a_probe_that_never_comes_back_makes_room_after_a_while(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(30)
    lost = breaker.acquire()
    assert rejected(breaker).retry_after == pytest.approx(60)
    clock.advance(60)
    second = breaker.acquire()

    breaker.failure(lost)
    breaker.success(lost)
    breaker.cancel(lost)
    assert state_of(breaker) == "half-open"
    rejected(breaker)
    breaker.success(second)
    assert state_of(breaker) == "closed"


@pytest.mark.parametrize("verdict", ["success", "failure", "cancel"])
def test_a_late_verdict_of_an_earlier_state_changes_nothing(
    breaker: CircuitBreaker, clock: FakeClock, verdict: str
) -> None:
    late = breaker.acquire()
    opened(breaker)
    getattr(breaker, verdict)(late)
    assert state_of(breaker) == "open"

    clock.advance(30)
    probe = breaker.acquire()
    getattr(breaker, verdict)(late)
    assert state_of(breaker) == "half-open"
    rejected(breaker)

    breaker.success(probe)
    getattr(breaker, verdict)(late)
    fail(breaker, 4)
    assert state_of(breaker) == "closed"
    getattr(breaker, verdict)(late)
    fail(breaker)
    assert state_of(breaker) == "open"


@pytest.mark.parametrize("jump", [86_400, -86_400])
def test_the_wall_clock_has_no_say(jump: int) -> None:
    clock = Wandering(wall=1_700_000_000.0 + jump)
    breaker = opened(CircuitBreaker("tool/x", clock=clock))

    assert rejected(breaker).retry_after == pytest.approx(30)
    clock.advance(30)
    assert breaker.acquire().probe


def test_listener_receives_each_change_and_may_read_the_breaker(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    heard: list[tuple[str, str, str, str]] = []

    def listen(name: str, before: str, after: str, reason: str) -> None:
        heard.append((name, before, after, breaker.state))

    for _ in range(5):
        breaker.failure(breaker.acquire(listen), listen)
    clock.advance(30)
    breaker.failure(breaker.acquire(listen), listen)
    clock.advance(60)
    breaker.success(breaker.acquire(listen), listen)

    assert heard == [
        ("tool/x", "closed", "open", "open"),
        ("tool/x", "open", "half-open", "half-open"),
        ("tool/x", "half-open", "open", "open"),
        ("tool/x", "open", "half-open", "half-open"),
        ("tool/x", "half-open", "closed", "closed"),
    ]


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_eight_threads_get_one_probe_between_them(clock: FakeClock) -> None:
    for _ in range(20):
        breaker = opened(CircuitBreaker("tool/x", clock=clock))
        clock.advance(30)
        passes: list[BreakerPass] = []
        start = threading.Barrier(8)

        def probe(
            breaker: CircuitBreaker = breaker,
            start: threading.Barrier = start,
            passes: list[BreakerPass] = passes,
        ) -> None:
            start.wait()
            try:
                passes.append(breaker.acquire())
            except CircuitOpen:
                return

        in_threads(probe)

        assert len(passes) == 1


def test_threads_share_the_registry() -> None:
    breakers = CircuitBreakers(keep=50)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for i in range(500):
            fail(breakers.get(f"tool/{i % 100}"))

    before = threading.excepthook
    problems: list[Any] = []
    threading.excepthook = problems.append
    try:
        in_threads(work)
    finally:
        threading.excepthook = before

    assert [
        problem.exc_type for problem in problems if problem.exc_type is not CircuitOpen
    ] == []


def test_one_breaker_serves_several_event_loops(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)

    async def fails() -> None:
        fail(breakers.get("tool/x"))

    for _ in range(5):
        asyncio.run(fails())

    assert breakers.get("tool/x").state == "open"


def test_each_name_has_a_breaker_of_its_own(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("tool/x"))

    assert breakers.get("tool/x") is breakers.get("tool/x")
    assert breakers.get("tool/y").state == "closed"


def test_the_longest_unused_closed_breaker_is_forgotten_first_and_an_open_one_never(
    clock: FakeClock,
) -> None:
    breakers = CircuitBreakers(keep=3, clock=clock)
    opened(breakers.get("open"))
    fail(breakers.get("a"), 4)
    fail(breakers.get("b"), 4)
    breakers.get("a")
    breakers.get("c")  # one too many: b goes
    fail(breakers.get("a"))
    fail(breakers.get("b"))

    assert [breakers.get(name).state for name in ("open", "a", "b")] == [
        "open",
        "open",
        "closed",
    ]


def verdicts(breaker: CircuitBreaker, told: str) -> None:
    """Make calls: `f` fails, `s` works, `-` gives no verdict."""
    for letter in told:
        given = breaker.acquire()
        {"f": breaker.failure, "s": breaker.success, "-": breaker.cancel}[letter](given)


# --- how often is too often ---


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ("fs" * 4 + "s", "closed"),  # 4 of 9
        ("fsffsfsfs", "closed"),  # 5 of 9: too few calls to say
        ("fsffsfsff", "closed"),  # 6 of 9
        ("sf" * 5, "open"),  # 5 of 10
        ("fs" * 5, "open"),  # so they are where the tenth call works
        ("s" * 11 + "ffffs" + "ffff", "closed"),  # 8 of 20
        ("s" * 10 + "ffffs" * 2 + "s", "closed"),  # 8 of the last 20
        ("s" * 10 + "ffffs" * 2 + "f", "closed"),  # 9 of the last 20
        ("s" * 10 + "ffffs" * 2 + "ff", "open"),  # 10 of the last 20
        (
            "ffff" + "s" * 20 + "ffff" + "s" + "ffff",
            "closed",
        ),  # the first four are forgotten
        ("sf" * 4 + "-" * 50, "closed"),  # what gives no verdict is not among them
        ("sf" * 4 + "-" * 50 + "sf", "open"),
    ],
)
def test_it_opens_where_half_of_the_last_twenty_calls_failed_once_there_are_ten(
    breaker: CircuitBreaker, told: str, state: str
) -> None:
    verdicts(breaker, told)

    assert state_of(breaker) == state


def test_the_share_and_the_calls_that_it_is_taken_of_are_options(
    clock: FakeClock,
) -> None:
    def after(told: str, **options: Any) -> str:
        breaker = CircuitBreaker("tool/x", clock=clock, **options)
        verdicts(breaker, told)
        return breaker.state

    assert after("fffs" * 3, rate=0.8, window=4, min_calls=4) == "closed"
    assert after("fffs", rate=0.75, window=4, min_calls=4) == "open"
    assert after("sf", min_calls=2) == "open"
    assert after("s", rate=0.01, min_calls=1) == "closed"
    assert after("s" * 50 + "f", rate=0.01, window=100) == "open"
    assert after("sssf" * 3, rate=0.25) == "open"
    assert after("ssssf" * 4, rate=0.25) == "closed"


def test_each_rule_can_be_switched_off(clock: FakeClock) -> None:
    by_share = CircuitBreaker("tool/x", threshold=None, clock=clock)
    in_a_row = CircuitBreaker("tool/x", rate=None, clock=clock)
    never = CircuitBreaker("tool/x", threshold=None, rate=None, clock=clock)
    fail(by_share, 9)
    verdicts(in_a_row, "ffffs" * 100)
    fail(never, 1000)

    assert [b.state for b in (by_share, in_a_row, never)] == ["closed"] * 3
    fail(by_share)
    assert state_of(by_share) == "open"
    assert str(rejected(by_share)).startswith("tool/x failed too often; ")


# --- slow calls ---


def takes(breaker: CircuitBreaker, clock: FakeClock, *seconds: float) -> None:
    for taken in seconds:
        given = breaker.acquire()
        clock.advance(taken)
        breaker.success(given)


def test_calls_that_work_but_take_too_long_open_it_too(clock: FakeClock) -> None:
    breaker = CircuitBreaker("tool/x", slow_seconds=10, clock=clock)
    takes(breaker, clock, *[10, 11] * 4, 10)
    assert state_of(breaker) == "closed"

    takes(breaker, clock, 11)
    assert (
        str(rejected(breaker))
        == "tool/x was too slow too often; it is not called for another 30.0 s"
    )


def test_call_duration_may_be_passed(clock: FakeClock) -> None:
    breaker = CircuitBreaker(
        "tool/x", slow_seconds=10, slow_rate=1, min_calls=3, window=3, clock=clock
    )
    for seconds in (11.0, 10.0, 11.0, 11.0):
        breaker.success(breaker.acquire(), seconds=seconds)
    takes(breaker, clock, 0)
    assert state_of(breaker) == "closed"

    for _ in range(3):
        breaker.success(breaker.acquire(), seconds=11)
    assert state_of(breaker) == "open"


def test_slow_calls_at_the_same_time_are_measured_each_for_itself(
    clock: FakeClock,
) -> None:
    breaker = CircuitBreaker("tool/x", slow_seconds=10, min_calls=4, clock=clock)
    early = [breaker.acquire(), breaker.acquire()]
    clock.advance(8)
    late = [breaker.acquire(), breaker.acquire()]
    clock.advance(8)
    for given in late + early:
        breaker.success(given)

    assert state_of(breaker) == "open"  # two of four


def test_a_probe_that_is_slow_does_not_close_it(clock: FakeClock) -> None:
    breaker = opened(CircuitBreaker("tool/x", slow_seconds=10, clock=clock))
    clock.advance(30)
    takes(breaker, clock, 11)
    assert rejected(breaker).retry_after == pytest.approx(60)

    clock.advance(60)
    takes(breaker, clock, 10)
    assert state_of(breaker) == "closed"


def test_without_slow_seconds_no_call_is_too_slow(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    takes(breaker, clock, *[10_000] * 30)

    assert state_of(breaker) == "closed"


# --- cool-downs ---


def test_a_cool_down_rejects_until_it_is_over_and_counts_nothing(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    fail(breaker, 4)
    breaker.cool_down(20)
    rejection = rejected(breaker)

    assert (
        str(rejection)
        == "tool/x asked to be left alone; it is not called for another 20.0 s"
    )
    assert (rejection.retryable, rejection.retry_after, state_of(breaker)) == (
        True,
        20.0,
        "closed",
    )
    clock.advance(19)
    assert rejected(breaker).retry_after == pytest.approx(1)
    clock.advance(1)
    fail(breaker)
    assert state_of(breaker) == "open"  # the row went on


def test_a_cool_down_is_never_shortened_and_never_endless(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    breaker.cool_down(20)
    for seconds in (5, 0, -1, float("nan"), float("-inf")):
        breaker.cool_down(seconds)
    assert rejected(breaker).retry_after == pytest.approx(20)

    breaker.cool_down(float("inf"))
    assert rejected(breaker).retry_after == pytest.approx(300)


@pytest.mark.parametrize("seconds", [0.1, 1 / 3, 17.7, 59.99, 299.123456789])
@pytest.mark.parametrize("now", [0.3, 1e3 / 7, 123_456.789])
def test_caller_that_waits_as_long_as_asked_is_admitted(
    seconds: float, now: float
) -> None:
    clock = FakeClock()
    clock.advance(now)
    cooling, broken = (
        CircuitBreaker("a", clock=clock),
        CircuitBreaker("b", open_seconds=seconds, clock=clock),
    )
    cooling.cool_down(seconds)
    opened(broken)
    clock.advance(seconds / 3)
    clock.advance(
        max(rejected(cooling).retry_after or 0.0, rejected(broken).retry_after or 0.0)
    )

    assert [cooling.acquire().probe, broken.acquire().probe] == [False, True]


def test_a_call_in_flight_may_end_during_a_cool_down(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    given = breaker.acquire()
    breaker.cool_down(20)
    breaker.success(given)

    rejected(breaker)


def test_an_open_breaker_that_also_cools_down_rejects_for_the_longer_time(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    breaker.cool_down(40)
    first = rejected(breaker)
    clock.advance(30)
    second = rejected(breaker)

    assert (first.retryable, first.retry_after) == (False, 40.0)
    assert (second.retryable, second.retry_after) == (True, 10.0)
    clock.advance(10)
    assert breaker.acquire().probe


def test_probe_that_must_wait_releases_its_place(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    opened(breaker)
    clock.advance(30)
    probe = breaker.acquire()
    breaker.cool_down(10)
    breaker.cancel(probe)
    assert rejected(breaker).retryable is True

    clock.advance(10)
    assert breaker.acquire().probe


# --- several probes ---


@pytest.fixture
def three(clock: FakeClock) -> CircuitBreaker:
    """A breaker that may make three probes now."""
    breaker = opened(CircuitBreaker("tool/x", probes=3, clock=clock))
    clock.advance(30)
    return breaker


def test_as_many_probes_as_were_asked_for_are_in_flight_and_never_more(
    three: CircuitBreaker,
) -> None:
    passes = [three.acquire() for _ in range(3)]
    rejected(three)
    three.cancel(passes[1])
    again = three.acquire()
    rejected(three)

    assert [given.probe for given in [*passes, again]] == [True] * 4


def test_the_first_probe_that_works_closes_it_and_the_others_come_too_late(
    three: CircuitBreaker,
) -> None:
    first, second, third = three.acquire(), three.acquire(), three.acquire()
    three.success(second)
    three.failure(first)
    three.failure(third)

    assert state_of(three) == "closed"
    fail(three, 4)
    assert state_of(three) == "closed"


def test_the_first_probe_that_fails_opens_it_and_the_others_come_too_late(
    three: CircuitBreaker, clock: FakeClock
) -> None:
    first, second, third = three.acquire(), three.acquire(), three.acquire()
    three.failure(second)
    three.success(first)
    assert rejected(three).retry_after == pytest.approx(60)

    clock.advance(60)
    three.acquire()
    three.cancel(third)  # of the earlier try: frees no place of this one
    three.acquire()
    three.acquire()
    rejected(three)


def test_of_several_probes_only_the_lost_ones_make_room(
    three: CircuitBreaker, clock: FakeClock
) -> None:
    lost = three.acquire()
    clock.advance(40)
    kept = [three.acquire(), three.acquire()]
    assert rejected(three).retry_after == pytest.approx(20)
    clock.advance(20)
    three.acquire()
    rejected(three)

    three.success(lost)
    assert state_of(three) == "half-open"
    three.success(kept[0])
    assert state_of(three) == "closed"


def test_probe_pass_returned_twice_counts_once(
    three: CircuitBreaker,
) -> None:
    first, _, _ = three.acquire(), three.acquire(), three.acquire()
    three.cancel(first)
    three.acquire()
    three.cancel(first)
    three.success(first)
    three.failure(first)

    assert state_of(three) == "half-open"
    rejected(three)


# --- people ---


def test_a_breaker_that_a_person_forced_open_stays_open_until_it_is_reset(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    late = breaker.acquire()
    breaker.force_open("maintenance until noon")
    breaker.failure(late)
    breaker.success(late)
    clock.advance(1_000_000)
    rejection = rejected(breaker)

    assert str(rejection) == "tool/x is switched off: maintenance until noon"
    assert (rejection.retryable, rejection.retry_after, breaker.state) == (
        False,
        None,
        "open",
    )
    breaker.reset()
    fail(breaker, 4)
    assert state_of(breaker) == "closed"


def test_a_reset_closes_it_whatever_was_and_forgets_all(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    for _ in range(3):  # waits 30, 60, 120 s
        fail(breaker, 5 if breaker.state == "closed" else 1)
        clock.advance(rejected(breaker).retry_after or 0.0)
    probe = breaker.acquire()
    breaker.cool_down(100)
    breaker.reset()
    breaker.failure(probe)

    assert state_of(breaker) == "closed"
    fail(breaker, 4)
    assert state_of(breaker) == "closed"
    fail(breaker)
    assert rejected(breaker).retry_after == pytest.approx(30)


def test_a_cool_down_after_a_reset_is_not_lengthened_by_the_wait_of_before(
    breaker: CircuitBreaker,
) -> None:
    opened(breaker)
    breaker.reset()
    breaker.cool_down(2)
    rejection = rejected(breaker)

    assert (
        str(rejection)
        == "tool/x asked to be left alone; it is not called for another 2.0 s"
    )
    assert rejection.retryable
    assert rejection.retry_after == pytest.approx(2)


def test_only_the_next_call_with_a_listener_receives_operator_changes(
    breaker: CircuitBreaker,
) -> None:
    heard: list[tuple[str, ...]] = []

    def listen(*change: str) -> None:
        heard.append(change)

    breaker.force_open("maintenance")
    breaker.force_open("maintenance")
    breaker.force_open("still maintenance")
    rejected(breaker)
    with pytest.raises(CircuitOpen):
        breaker.acquire(listen)
    breaker.reset()
    breaker.reset()
    for _ in range(3):
        breaker.success(breaker.acquire(listen), listen)

    assert heard == [
        ("tool/x", "closed", "open", "maintenance"),
        ("tool/x", "open", "open", "still maintenance"),
        ("tool/x", "open", "closed", "reset"),
    ]


def test_of_many_unreported_changes_the_last_ones_are_kept(
    breaker: CircuitBreaker,
) -> None:
    heard: list[str] = []
    for number in range(1000):
        breaker.force_open(f"{number}")
    with pytest.raises(CircuitOpen):
        breaker.acquire(lambda name, before, after, reason: heard.append(reason))

    assert heard == [f"{number}" for number in range(980, 1000)]


def test_the_registry_forces_resets_and_shows_states(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("tool/a"))
    opened(breakers.get("tool/b"))
    breakers.force_open("openai/gpt-4.1-mini", "the bill")
    clock.advance(30)
    breakers.get("tool/a").acquire()
    breakers.reset("tool/b")
    breakers.reset("tool/c")

    assert breakers.states() == {
        "openai/gpt-4.1-mini": "open",
        "tool/a": "half-open",
        "tool/b": "closed",
        "tool/c": "closed",
    }


# --- listeners ---


def test_an_error_in_a_listener_goes_to_the_log_and_not_to_the_call(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    def broken(*change: str) -> None:
        raise ValueError("no room left")

    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            breaker.failure(breaker.acquire(broken), broken)
        clock.advance(30)
        given = breaker.acquire(broken)

    assert given.probe
    line = {
        "event": "breaker_listener_failed",
        "log_level": "warning",
        "breaker": "tool/x",
    }
    assert logs == [{**line, "error": "ValueError('no room left')"}] * 2


def test_a_listener_may_use_the_breaker_from_another_thread(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    """Shows that no lock is held while a listener is called."""
    seen: list[str] = []

    def look() -> None:
        breaker.cool_down(0)  # as good as nothing, but it takes the lock
        seen.append(breaker.state)

    def listen(*change: str) -> None:
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(timeout=30)
        seen.append("told")

    fail(breaker, 4)
    breaker.failure(breaker.acquire(listen), listen)
    clock.advance(30)
    breaker.success(breaker.acquire(listen), listen)

    assert seen == ["open", "told", "half-open", "told", "closed", "told"]


# --- the registry ---


def test_breaker_held_by_a_caller_is_returned_again(
    clock: FakeClock,
) -> None:
    breakers = CircuitBreakers(keep=1, clock=clock)
    held = breakers.get("a")
    fail(held, 4)
    given = held.acquire()
    for number in range(10):
        breakers.get(f"other {number}")
    held.failure(given)

    assert breakers.get("a") is held
    assert breakers.get("a").state == "open"


def test_failures_of_calls_that_overlap_are_not_consecutive(clock: FakeClock) -> None:
    breaker = CircuitBreaker("a", clock=clock, threshold=3, rate=None)
    together = [breaker.acquire() for _ in range(10)]
    for given in together:
        breaker.failure(given)
    assert breaker.state == "closed"

    fail(breaker, 2)
    assert breaker.state == "open"


def test_failures_that_come_back_before_the_answers_are_no_majority(
    clock: FakeClock,
) -> None:
    breaker = CircuitBreaker("a", clock=clock, threshold=None, rate=0.5, min_calls=10)
    together = [breaker.acquire() for _ in range(50)]
    for given in together[:10]:
        breaker.failure(given)
    assert breaker.state == "closed"  # 10 failed of 50, and 40 may still succeed

    for given in together[10:29]:
        breaker.failure(given)
    assert state_of(breaker) == "closed"  # the last 20 failed, and 21 may still succeed
    breaker.failure(together[29])
    assert state_of(breaker) == "open"


def test_waiters_are_admitted_in_order_and_more_with_each_success(
    clock: FakeClock,
) -> None:
    breaker = CircuitBreaker("a", clock=clock, threshold=1, open_seconds=1)
    fail(breaker, 1)
    waiters = list(range(10))
    for waiter in waiters:
        with pytest.raises(CircuitOpen):
            breaker.acquire(waiter=waiter)
    clock.advance(1)

    with pytest.raises(CircuitOpen):
        breaker.acquire(waiter=1)  # it is not its turn
    probe = breaker.acquire(waiter=0)
    with pytest.raises(CircuitOpen):
        breaker.acquire(waiter=1)  # one probe at a time
    breaker.success(probe)

    with pytest.raises(CircuitOpen):
        breaker.acquire(waiter=9)
    first, second = breaker.acquire(waiter=1), breaker.acquire(waiter=2)
    with pytest.raises(CircuitOpen):
        breaker.acquire(waiter="a newcomer")
    breaker.remove_waiter(3)
    breaker.success(first)
    breaker.success(second)
    for waiter in (4, 5, 6):
        breaker.acquire(waiter=waiter)
    breaker.acquire()  # one that does not wait is no part of the queue


def queue_up(breaker: CircuitBreaker, waiters: range) -> None:
    for waiter in waiters:
        with pytest.raises(CircuitOpen):
            breaker.acquire(waiter=waiter)


def recover(breaker: CircuitBreaker, clock: FakeClock, waiters: int) -> None:
    """Have a breaker that opens at the first failure closed again by a probe, while others wait for it."""
    fail(breaker)
    queue_up(breaker, range(waiters))
    clock.advance(30)
    breaker.success(breaker.acquire())


def admit_in_order(breaker: CircuitBreaker, waiters: range) -> list[BreakerPass]:
    """Admit waiters until the first that has to go on waiting."""
    admitted: list[BreakerPass] = []
    for waiter in waiters:
        try:
            admitted.append(breaker.acquire(waiter=waiter))
        except CircuitOpen:
            break
    return admitted


@pytest.fixture
def quick(clock: FakeClock) -> CircuitBreaker:
    """A breaker that opens at the first failure."""
    return CircuitBreaker("tool/x", threshold=1, clock=clock)


def test_waiter_whose_turn_has_not_come_learns_when_to_ask_again(
    quick: CircuitBreaker, clock: FakeClock
) -> None:
    recover(quick, clock, waiters=10)
    with pytest.raises(CircuitOpen) as rejection:
        quick.acquire(waiter=9)

    assert str(rejection.value) == "tool/x works again; other calls are made first"
    assert rejection.value.retryable is True
    assert rejection.value.retry_after == pytest.approx(0.11)  # 0.1 s and 1 ms for each


def test_ramp_after_a_recovery_grows_to_64_calls_and_ends_with_the_next_success(
    quick: CircuitBreaker, clock: FakeClock
) -> None:
    recover(quick, clock, waiters=200)
    verdicts(quick, "s" * 62)
    admitted = admit_in_order(quick, range(200))
    assert len(admitted) == 64
    with pytest.raises(CircuitOpen):
        quick.acquire(waiter=64)  # the next one, for which there is no place

    quick.success(admitted.pop())
    assert len(admit_in_order(quick, range(64, 200))) == 136


def test_calls_without_a_verdict_free_their_places_on_the_ramp(
    quick: CircuitBreaker, clock: FakeClock
) -> None:
    late = quick.acquire()
    recover(quick, clock, waiters=9)
    first, second = admit_in_order(quick, range(9))
    quick.cancel(late)  # of before the recovery: it has no place here
    assert admit_in_order(quick, range(2, 9)) == []

    quick.cancel(first)
    (third,) = admit_in_order(quick, range(2, 9))
    quick.cancel(second)
    quick.cancel(third)
    assert len(admit_in_order(quick, range(3, 9))) == 2


def test_waiters_are_admitted_two_at_a_time_after_a_cool_down(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    together = [breaker.acquire() for _ in range(5)]
    breaker.cool_down(20)
    queue_up(breaker, range(9))
    clock.advance(20)
    assert admit_in_order(breaker, range(9)) == []  # five are still out

    for given in together:
        breaker.cancel(given)
    assert len(admit_in_order(breaker, range(9))) == 2


def test_several_probes_are_given_to_the_first_waiters(
    clock: FakeClock,
) -> None:
    breaker = CircuitBreaker("tool/x", threshold=1, probes=3, clock=clock)
    fail(breaker)
    queue_up(breaker, range(9))
    clock.advance(30)
    assert breaker.acquire(waiter=0).probe
    with pytest.raises(CircuitOpen, match="other calls are made first"):
        breaker.acquire(waiter=3)  # 1 and 2 come before

    assert [breaker.acquire(waiter=waiter).probe for waiter in (2, 1)] == [True, True]
    with pytest.raises(CircuitOpen, match=r"not called for another 60\.0 s"):
        breaker.acquire(waiter=3)


def test_newcomer_is_admitted_where_the_ramp_has_room_for_all_who_wait(
    quick: CircuitBreaker, clock: FakeClock
) -> None:
    recover(quick, clock, waiters=1)
    quick.acquire(waiter="a newcomer")
    with pytest.raises(CircuitOpen):
        quick.acquire(waiter="another newcomer")  # the other place is of the waiter

    quick.acquire(waiter=0)


def test_waiter_that_gives_up_moves_the_others_up(
    quick: CircuitBreaker, clock: FakeClock
) -> None:
    quick.remove_waiter("nobody waits yet")
    recover(quick, clock, waiters=9)
    quick.remove_waiter("one that never waited")
    queue_up(quick, range(2, 9))
    quick.remove_waiter(0)
    quick.remove_waiter(1)

    assert len(admit_in_order(quick, range(2, 9))) == 2


def test_a_breaker_that_cools_down_is_not_forgotten(clock: FakeClock) -> None:
    breakers = CircuitBreakers(keep=2, clock=clock)
    breakers.get("cooling").cool_down(20)
    breakers.get("a")
    breakers.get("b")
    rejected(breakers.get("cooling"))
    clock.advance(20)
    breakers.get("c")
    breakers.get("d")

    assert list(breakers.states()) == ["c", "d"]


def test_registry_keeps_as_many_as_configured_and_a_thousand_by_default() -> None:
    one, many = CircuitBreakers(keep=1), CircuitBreakers()
    for number in range(1001):
        one.get(f"tool/{number}")
        many.get(f"tool/{number}")

    assert list(one.states()) == ["tool/1000"]
    assert list(many.states()) == [f"tool/{number}" for number in range(1, 1001)]


def test_the_registry_shrinks_again_when_open_ones_close(clock: FakeClock) -> None:
    breakers = CircuitBreakers(keep=2, clock=clock)
    for number in range(10):
        opened(breakers.get(f"open {number}"))
    assert len(breakers.states()) == 10

    for number in range(10):
        breakers.reset(f"open {number}")
    breakers.get("one more")
    assert list(breakers.states()) == ["open 9", "one more"]


# --- options ---


def one_breaker(**options: Any) -> CircuitBreaker:
    return CircuitBreaker("tool/x", **options)


@pytest.mark.parametrize("make", [one_breaker, CircuitBreakers])
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"threshold": 0}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"rate": 0}, "rate"),
        ({"rate": 1.01}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"window": 0}, "window"),
        ({"window": None}, "window"),
        ({"min_calls": 0}, "min_calls"),
        ({"window": 5}, "min_calls"),
        ({"slow_seconds": -1}, "slow_seconds"),
        ({"slow_rate": 0}, "slow_rate"),
        ({"open_seconds": 0}, "open_seconds"),
        ({"open_seconds": float("inf")}, "open_seconds"),
        ({"max_open_seconds": "long"}, "max_open_seconds"),
        ({"probes": 0}, "probes"),
        ({"probe_seconds": -1}, "probe_seconds"),
        ({"treshold": 3}, "treshold"),
    ],
)
def test_bad_breaker_option_raises_at_construction_by_name(
    make: Callable[..., object], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError, match=rf"\b{field}: "):
        make(**options)


def test_a_registry_needs_room() -> None:
    with pytest.raises(ConfigError, match="keep: "):
        CircuitBreakers(keep=0)


def test_the_registry_passes_its_options_on(clock: FakeClock) -> None:
    breaker = CircuitBreakers(threshold=2, open_seconds=400, clock=clock).get("tool/x")
    fail(breaker, 2)

    assert rejected(breaker).retry_after == pytest.approx(400)
    clock.advance(400)
    fail(breaker)
    assert rejected(breaker).retry_after == pytest.approx(
        400
    )  # no longer than `max_open_seconds`, but no shorter either


# --- other people's vectors ---

# Symbiont's circuit breaker: its threshold and concurrent probes, what is done to it, and the state that it ends in.
VECTORS = [
    (3, 1, "fail fail allow fail deny", "open"),
    (3, 1, "fail fail ok fail fail", "closed"),
    (1, 2, "fail wait allow allow deny", "half-open"),
    (1, 1, "fail wait allow ok", "closed"),
    (1, 1, "fail wait allow fail", "open"),
]


@pytest.mark.parametrize(("threshold", "probes", "steps", "state"), VECTORS)
def test_it_agrees_with_another_breaker_s_vectors(
    clock: FakeClock, threshold: int, probes: int, steps: str, state: str
) -> None:
    breaker = CircuitBreaker(
        "tool/x", threshold=threshold, probes=probes, open_seconds=0.01, clock=clock
    )
    passes: list[BreakerPass] = []
    for step in steps.split():
        if step == "allow":
            passes.append(breaker.acquire())
        elif step == "deny":
            rejected(breaker)
        elif step == "wait":
            clock.advance(0.01)
        else:  # the verdict of a call that was let through, or of one in between
            given = passes.pop() if passes else breaker.acquire()
            (breaker.failure if step == "fail" else breaker.success)(given)

    assert state_of(breaker) == state


def test_a_rejected_call_beside_a_probe_does_not_reopen_even_if_reported_failed(
    breaker: CircuitBreaker, clock: FakeClock
) -> None:
    """Measured at Symbiont: such a report opened it, and the late success then closed it from open."""
    earlier = breaker.acquire()
    opened(breaker)
    clock.advance(30)
    probe = breaker.acquire()
    rejected(breaker)
    breaker.failure(earlier)  # a rejected caller has no pass but one of before
    assert state_of(breaker) == "half-open"

    breaker.success(probe)
    assert state_of(breaker) == "closed"


# --- speed and processes ---


def test_a_rejection_takes_microseconds() -> None:
    breaker = opened(CircuitBreaker("tool/x"))

    def batch() -> None:
        for _ in range(500):
            with contextlib.suppress(CircuitOpen):
                breaker.acquire()

    assert quickest(batch, 500 * 20e-6, tries=20) / 500 < 20e-6


FORKS = """
import os, signal, threading, warnings
from loopwright import CircuitBreakers

warnings.simplefilter("ignore")  # that a process with threads is forked is the point
breakers = CircuitBreakers()

def work():
    while True:
        breaker = breakers.get("tool/x")
        breaker.success(breaker.acquire())

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(40):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        breaker = breakers.get("tool/x")
        for _ in range(5):
            breaker.failure(breaker.acquire())
        os._exit(0 if breaker.state == "open" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(breakers.get("tool/x").state)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_process_that_is_forked_in_the_middle_of_other_threads_calls_can_go_on() -> (
    None
):
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=100
    )

    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


# --- in a run ---


def finished(runtime: Runtime, result: Result) -> list[tuple[str, str]]:
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [
        (event.status, event.content)
        for event in events
        if isinstance(event, ToolFinished)
    ]


def changes(runtime: Runtime, result: Result) -> list[BreakerChanged]:
    events = [entry.event for entry in runtime.journal.read(result.run_id)]
    return [event for event in events if isinstance(event, BreakerChanged)]


def starts(runtime: Runtime, result: Result) -> int:
    return sum(
        isinstance(entry.event, ToolStarted)
        for entry in runtime.journal.read(result.run_id)
    )


class Flaky:
    """A tool that fails until it is repaired."""

    def __init__(self) -> None:
        self.runs, self.broken = 0, True

    async def __call__(self, n: int) -> str:
        """Look something up."""
        self.runs += 1
        if self.broken:
            raise ConnectionError(f"attempt {n} failed")
        return "fine"


async def test_a_tool_that_fails_five_times_is_not_started_until_a_probe_succeeds(
    clock: FakeClock,
) -> None:
    flaky = Flaky()

    def repaired(request: Any) -> Any:
        flaky.broken = False
        clock.advance(30)
        return call("look", n=7)

    script: list[Any] = [
        *(call("look", n=n) for n in range(6)),
        repaired,
        call("look", n=8),
        "done",
    ]
    runtime = Runtime(
        ScriptedProvider(script),
        tools=[tool(name="look", repeatable=True)(flaky)],
        clock=clock,
    )
    result = await ReActEngine(runtime).run("Go.")

    assert (result.status, flaky.runs, starts(runtime, result), result.tool_calls) == (
        "completed",
        7,
        7,
        7,
    )
    told = finished(runtime, result)
    assert [status for status, _ in told] == ["error"] * 5 + ["rejected", "ok", "ok"]
    assert (
        told[5][1] == "tool/look failed too often; it is not called for another 30.0 s"
    )
    assert changes(runtime, result) == [
        BreakerChanged("tool/look", "closed", "open"),
        BreakerChanged("tool/look", "open", "half-open"),
        BreakerChanged("tool/look", "half-open", "closed"),
    ]


async def test_an_open_breaker_of_one_tool_leaves_the_others_alone(
    clock: FakeClock,
) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("tool/look"))

    @tool
    async def other() -> str:
        """Do."""
        return "done"

    turn = [call("look", n=1), call("other")]
    runtime = Runtime(
        ScriptedProvider([turn, "end"]),
        tools=[tool(name="look")(Flaky()), other],
        breakers=breakers,
    )
    result = await ReActEngine(runtime).run("Go.")

    assert [status for status, _ in finished(runtime, result)] == ["rejected", "ok"]


async def test_a_tool_that_takes_too_long_counts_as_failing() -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        """Take long."""
        await asyncio.sleep(10)

    breakers = CircuitBreakers(threshold=2)
    script = [call("slow"), call("slow"), "end"]
    await ReActEngine(
        Runtime(ScriptedProvider(script), tools=[slow], breakers=breakers)
    ).run("Go.")

    assert breakers.get("tool/slow").state == "open"


async def test_refusals_and_expected_errors_of_a_tool_never_open_its_breaker() -> None:
    @tool(effect="destructive")
    async def erase(what: str) -> str:
        """Erase."""
        raise ToolError("there is no such thing")

    breakers = CircuitBreakers(threshold=1)
    script: list[Any] = [call("erase", what=1), call("erase", what="a"), "end"]
    await ReActEngine(
        Runtime(ScriptedProvider(script), tools=[erase], breakers=breakers)
    ).run("Go.")
    assert breakers.get("tool/erase").state == "closed"

    script = [call("erase", what="a"), "end"]
    await ReActEngine(
        Runtime(ScriptedProvider(script), tools=[erase], breakers=breakers, gate=AllowAll())
    ).run("Go.")  # fmt: skip
    assert breakers.get("tool/erase").state == "closed"


async def test_a_cancelled_tool_gives_no_verdict() -> None:
    at_work = asyncio.Event()

    @tool
    async def slow() -> None:
        """Take long."""
        at_work.set()
        await asyncio.sleep(30)

    breakers = CircuitBreakers(threshold=1)
    runtime = Runtime(ScriptedProvider([call("slow")]), tools=[slow], breakers=breakers)
    async with ReActEngine(runtime).start("Go.") as handle:
        await at_work.wait()
        await handle.abort()

    assert breakers.get("tool/slow").state == "closed"


async def test_a_provider_that_keeps_failing_is_only_probed(clock: FakeClock) -> None:
    provider = ScriptedProvider(lambda request: ProviderError("overloaded", status=503))
    runtime = Runtime(provider, clock=clock)
    results = [await ReActEngine(runtime).run("Go.") for _ in range(5)]

    assert {result.stop_reason for result in results} == {"provider_unavailable"}
    assert changes(runtime, results[0])[0] == BreakerChanged(
        "scripted/script", "closed", "open"
    )
    # Each of the runs waits for up to 120 s, and a probe is sent every 3 s at most.
    assert len(provider.requests) <= 5 + 5 * 120 / 1.0


async def test_breakers_of_providers_are_kept_apart_by_model(clock: FakeClock) -> None:
    breakers = CircuitBreakers(clock=clock)
    opened(breakers.get("scripted/small"))

    small = await ReActEngine(
        Runtime(
            ScriptedProvider(["hi"], model="small"),
            breakers=breakers,
            limits=Limits(max_provider_wait=0),
        )
    ).run("Go.")
    large = await ReActEngine(
        Runtime(ScriptedProvider(["hi"], model="large"), breakers=breakers)
    ).run("Go.")

    assert (small.status, large.status) == ("suspended", "completed")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ProviderError("bad request", status=400), "closed"),
        (ProviderError("who are you", status=401), "closed"),
        (ProviderError("no such model", status=404), "closed"),
        (
            ProviderError("slow down", status=429, retryable=True, retry_after=120),
            "closed",
        ),
        (
            ProviderError("conflict", status=409, retryable=True, retry_after=120),
            "open",
        ),
        (ProviderError("broken", status=500, retryable=True, retry_after=120), "open"),
        (
            ProviderError("overloaded", status=529, retryable=True, retry_after=120),
            "open",
        ),
        (ProviderError("connection reset", retryable=True, retry_after=120), "open"),
        (ProviderTimeout("no answer", retryable=True, retry_after=120), "open"),
        (ValueError("a bug in the adapter"), "open"),
    ],
)
async def test_only_what_speaks_of_the_provider_s_health_opens_its_breaker(
    error: Exception, state: str
) -> None:
    breakers = CircuitBreakers(threshold=1)
    limits = Limits(max_provider_wait=0)
    provider = ScriptedProvider([error])
    await ReActEngine(Runtime(provider, breakers=breakers, limits=limits)).run("Go.")

    assert breakers.get("scripted/script").state == state


# --- people, in a run ---


@tool(effect="read")
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} is fine"


async def test_what_a_person_switched_off_is_not_called_and_one_run_has_it_in_its_journal(
    clock: FakeClock,
) -> None:
    breakers = CircuitBreakers(clock=clock)
    breakers.force_open("tool/look", "maintenance")
    runtime = Runtime(
        ScriptedProvider([call("look", n=1), "a", call("look", n=1), "b"]),
        tools=[look],
        breakers=breakers,
    )
    first, second = [await ReActEngine(runtime).run("Go.") for _ in range(2)]

    assert finished(runtime, first) == [
        ("rejected", "tool/look is switched off: maintenance")
    ]
    assert (starts(runtime, first), starts(runtime, second)) == (0, 0)
    assert changes(runtime, first) == [
        BreakerChanged("tool/look", "closed", "open", "maintenance")
    ]
    assert changes(runtime, second) == []


async def test_tool_reset_by_an_operator_runs_and_its_run_records_that(
    clock: FakeClock,
) -> None:
    breakers = CircuitBreakers(clock=clock)
    breakers.force_open("tool/look", "maintenance")

    def repaired(request: Any) -> Any:
        breakers.reset("tool/look")
        return call("look", n=2)

    script: list[Any] = [call("look", n=1), repaired, "end"]
    runtime = Runtime(ScriptedProvider(script), tools=[look], breakers=breakers)
    result = await ReActEngine(runtime).run("Go.")

    assert [status for status, _ in finished(runtime, result)] == ["rejected", "ok"]
    assert changes(runtime, result) == [
        BreakerChanged("tool/look", "closed", "open", "maintenance"),
        BreakerChanged("tool/look", "open", "closed", "reset"),
    ]


async def test_a_model_that_a_person_switched_off_is_not_asked() -> None:
    provider, breakers = ScriptedProvider(["never"]), CircuitBreakers()
    breakers.force_open("scripted/script", "the bill is not paid")
    result = await ReActEngine(Runtime(provider, breakers=breakers)).run("Go.")

    assert (result.status, result.stop_reason, provider.requests) == (
        "failed",
        "provider_error",
        [],
    )
    assert str(result.error) == "scripted/script is switched off: the bill is not paid"


async def test_tools_that_answer_too_slowly_are_left_alone(clock: FakeClock) -> None:
    @tool(effect="read", repeatable=True)
    async def slow() -> str:
        """Take long."""
        clock.advance(20)
        return "at last"

    breakers = CircuitBreakers(slow_seconds=10, window=2, min_calls=2, clock=clock)
    runtime = Runtime(
        ScriptedProvider([*[call("slow")] * 3, "end"]),
        tools=[slow],
        breakers=breakers,
        clock=clock,
    )
    result = await ReActEngine(runtime).run("Go.")

    assert [status for status, _ in finished(runtime, result)] == [
        "ok",
        "ok",
        "rejected",
    ]
