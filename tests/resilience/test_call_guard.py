"""The breakers of one model call: how its attempts end for them, and its place in their queues."""

import asyncio
import contextlib

import pytest

from loopwright import CircuitBreakers, ProviderError
from loopwright.errors import CircuitOpen, JournalError, LimitReached
from loopwright.resilience.call_guard import CallGuard
from loopwright.testing import FakeClock

Change = tuple[str, ...]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breakers(clock: FakeClock) -> CircuitBreakers:
    return CircuitBreakers(threshold=1, clock=clock)


@pytest.fixture
def heard() -> list[Change]:
    return []


@pytest.fixture
def guard(breakers: CircuitBreakers, heard: list[Change]) -> CallGuard:
    return CallGuard(breakers, lambda *change: heard.append(change))


DOWN = ProviderError("down", status=500, retryable=True)


def attempt(guard: CallGuard, model: str, error: BaseException | None = None) -> None:
    """Make one attempt that ends with an error, or without one."""
    with contextlib.suppress(BaseException), guard.admit(model):
        if error is not None:
            raise error


def wait_of(guard: CallGuard, model: str) -> float | None:
    with pytest.raises(CircuitOpen) as rejection:
        guard.admit(model)
    return rejection.value.retry_after


def test_model_that_fails_is_probed_after_one_two_and_then_every_three_seconds(
    guard: CallGuard, clock: FakeClock, heard: list[Change]
) -> None:
    waits: list[float] = []
    for _ in range(4):
        attempt(guard, "api/m", DOWN)
        wait = wait_of(guard, "api/m")
        assert wait is not None
        waits.append(wait)
        clock.advance(wait)
    attempt(guard, "api/m")

    assert waits == pytest.approx([1, 2, 3, 3])
    assert heard[0] == ("api/m", "closed", "open", "")
    assert heard[-2:] == [
        ("api/m", "open", "half-open", ""),
        ("api/m", "half-open", "closed", ""),
    ]
    assert len(heard) == 9


def test_changes_of_the_breaker_are_reported_when_they_come(
    guard: CallGuard, clock: FakeClock, heard: list[Change]
) -> None:
    attempt(guard, "api/m", DOWN)
    assert heard == [("api/m", "closed", "open", "")]

    clock.advance(1)
    with guard.admit("api/m"):
        assert heard[1:] == [("api/m", "open", "half-open", "")]
    assert heard[2:] == [("api/m", "half-open", "closed", "")]


def test_periods_that_the_registry_says_count_for_models_too(clock: FakeClock) -> None:
    breakers = CircuitBreakers(
        threshold=1, open_seconds=7, max_open_seconds=11, clock=clock
    )
    guard = CallGuard(breakers, lambda *change: None)
    attempt(guard, "api/m", DOWN)
    assert wait_of(guard, "api/m") == pytest.approx(7)

    clock.advance(7)
    attempt(guard, "api/m", DOWN)
    assert wait_of(guard, "api/m") == pytest.approx(11)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "closed"),
        *[
            (ProviderError("no", status=status, retryable=True), state)
            for status, state in [
                (None, "open"), (400, "closed"), (407, "closed"), (408, "open"), (409, "open"), (410, "closed"),
                (429, "closed"), (499, "closed"), (500, "open"), (501, "open"), (599, "open"),
            ]
        ],
        (ProviderError("no", status=500, retryable=False), "closed"),
        (CircuitOpen("an inner breaker", retryable=True), "closed"),
        (ValueError("a bug of an adapter"), "open"),
        (LimitReached("tokens"), "closed"),
        (JournalError("the disk is full"), "closed"),
        (asyncio.CancelledError(), "closed"),
    ],
)  # fmt: skip
def test_breaker_counts_what_says_something_about_the_provider_s_health(
    guard: CallGuard,
    breakers: CircuitBreakers,
    error: BaseException | None,
    state: str,
) -> None:
    attempt(guard, "api/m", error)

    assert breakers.get("api/m").state == state


def test_model_that_asks_for_time_is_left_alone_as_long_as_it_asks(
    guard: CallGuard,
) -> None:
    def busy(seconds: float | None) -> ProviderError:
        return ProviderError("busy", status=429, retryable=True, retry_after=seconds)

    attempt(guard, "api/a", busy(None))
    guard.admit("api/a")  # it said no time

    attempt(guard, "api/a", busy(12))
    assert wait_of(guard, "api/a") == pytest.approx(12)
    refused = ProviderError("no", status=403, retryable=False, retry_after=12)
    attempt(guard, "api/b", refused)
    guard.admit("api/b")  # only a 429 asks for time


def test_call_that_is_served_or_gives_up_leaves_the_queues_to_the_next(
    breakers: CircuitBreakers, clock: FakeClock
) -> None:
    first, second, third = (CallGuard(breakers, lambda *change: None) for _ in range(3))
    attempt(first, "api/m", DOWN)
    for one in (first, second, third):
        assert wait_of(one, "api/m") == pytest.approx(1)
    clock.advance(1)
    assert wait_of(second, "api/m") == pytest.approx(0.103)  # the first is before it

    first.admit("api/other")  # served elsewhere
    assert wait_of(third, "api/m") == pytest.approx(0.102)
    second.cancel_waiting()
    probe = third.admit("api/m")
    with probe:
        pass
    assert breakers.get("api/m").state == "closed"
