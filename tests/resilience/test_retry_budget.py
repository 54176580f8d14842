"""The retry budget: what pays for retries, and how calls earn it back."""

import threading

from loopwright.resilience.retry_budget import RetryBudget


def test_retry_budget_is_used_up_and_earned_back_by_calls() -> None:
    budget = RetryBudget(max_retries=2, earned=0.5)

    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert budget.spend() is False
    budget.earn()
    assert [budget.spend(), budget.spend()] == [True, False]
    for _ in range(100):
        budget.earn()
    assert [budget.spend() for _ in range(3)] == [True, True, False]


def test_retry_budget_in_threads_never_spends_a_retry_twice() -> None:
    budget = RetryBudget(max_retries=100)
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
