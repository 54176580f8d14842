"""The retry budget: what pays for retries, and for how long."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from loopwright.resilience.retry_budget import RetryBudget
from loopwright.testing import FakeClock


def spend_all(budget: RetryBudget) -> int:
    """Spend until the budget is empty; return how many retries it paid for."""
    count = 0
    while budget.spend():
        count += 1
    return count


def test_retry_budget_reserve_is_used_up_and_refilled_by_time() -> None:
    clock = FakeClock()
    budget = RetryBudget(reserve=3, per_second=0.5, clock=clock)

    assert spend_all(budget) == 3
    clock.advance(1)
    assert not budget.spend()
    clock.advance(1)
    assert spend_all(budget) == 1
    clock.advance(1_000)
    assert spend_all(budget) == 3


def test_retry_budget_earned_pays_for_a_burst_of_any_size() -> None:
    budget = RetryBudget(reserve=10, clock=FakeClock())
    for _ in range(1_000):
        budget.earn()

    assert spend_all(budget) == 1_010


def test_retry_budget_earned_is_void_after_its_window() -> None:
    clock = FakeClock()
    budget = RetryBudget(reserve=0, per_second=0, window=10, clock=clock)
    for _ in range(20):
        budget.earn()
        clock.advance(1)

    assert spend_all(budget) == 10
    budget.earn()
    clock.advance(11)
    assert not budget.spend()


def test_retry_budget_shares_of_calls_add_up() -> None:
    budget = RetryBudget(reserve=0, per_second=0, earned=0.25, clock=FakeClock())

    for _ in range(3):
        budget.earn()
    assert not budget.spend()
    budget.earn()
    assert spend_all(budget) == 1


@given(st.lists(st.one_of(st.just("earn"), st.just("spend"), st.floats(0, 30))))
def test_retry_budget_in_any_period_keeps_its_bound(
    steps: list[str | float],
) -> None:
    clock = FakeClock()
    budget = RetryBudget(clock=clock)
    begun = clock.monotonic()
    earned: list[float] = []
    spent: list[float] = []
    for step in steps:
        if step == "earn":
            budget.earn()
            earned.append(clock.monotonic())
        elif step == "spend":
            if budget.spend():
                spent.append(clock.monotonic())
        elif not isinstance(step, str):
            clock.advance(step)

    for start in {begun, *spent}:
        retries = sum(at >= start for at in spent)
        paid = sum(at >= start - 11 for at in earned)
        assert retries <= 10 + (clock.monotonic() - start) + paid + 1e-6


def test_retry_budget_in_threads_never_spends_a_retry_twice() -> None:
    budget = RetryBudget(reserve=50, per_second=0, window=1_000)
    for _ in range(50):
        budget.earn()
    granted: list[bool] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(1000):
            granted.append(budget.spend())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(granted) == 100
