"""Counts of the calls that were allowed recently, shared by threads and event loops."""

import threading
from collections import deque
from typing import Protocol

from ..clock import Clock

MAX_TIMES = 100_000
"""Calls that a counter remembers; a full one allows no more until some of them have expired."""


class SharedRates(Protocol):
    """Counts calls for several processes, such as `SQLiteRates` beside a journal."""

    def take(self, key: str, at_most: int, every: float) -> bool:
        """Count one more call, and return whether it was counted: at most so many in `every` seconds.

        An error denies the call.
        """
        ...


class RateCounter:
    """The times of the calls that were allowed, by key; times that no longer count are dropped."""

    def __init__(self, max_times: int = MAX_TIMES) -> None:
        self._max_times = max_times
        self._lock = threading.Lock()
        # The key that was counted last is the last one.
        self._times: dict[str, deque[float]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def take(self, key: str, clock: Clock, at_most: int, every: float) -> bool:
        """Count one more call, and return whether it was counted.

        It is, if that makes no more than `at_most` calls in the last `every` seconds.
        """
        with self._lock:
            now = clock.monotonic()
            self._forget_keys(now - every)
            times = self._times.get(key) or deque()
            self._forget_times(times, now - every)
            if len(times) >= at_most or self._size >= self._max_times:
                return False
            times.append(now)
            self._size += 1
            self._times.pop(key, None)
            self._times[key] = times
            return True

    def _forget_times(self, times: deque[float], until: float) -> None:
        while times and times[0] <= until:
            times.popleft()
            self._size -= 1

    def _forget_keys(self, until: float) -> None:
        """Forget the keys whose last call was at that time or before."""
        while self._times:
            key, times = next(iter(self._times.items()))
            if times[-1] > until:
                return
            del self._times[key]
            self._size -= len(times)
