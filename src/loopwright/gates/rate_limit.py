"""How often something was allowed of late, counted for threads and event loops alike."""

import threading
from collections import deque

from ..clock import Clock

MOST = 100_000
"""Calls that a tally remembers; where it is full, no more are allowed until some of them are long enough ago."""


class Tally:
    """The times of the calls that were allowed, by key; forgotten when they are too long ago to count."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._times: dict[
            str, deque[float]
        ] = {}  # the key that was counted last comes last
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def take(self, key: str, clock: Clock, at_most: int, every: float) -> bool:
        """Count one more, if that makes no more than `at_most` in the last `every` seconds; whether it was counted."""
        with self._lock:
            now = clock.monotonic()
            self._forget(now - every)
            times = self._times.get(key) or deque()
            while times and times[0] <= now - every:
                times.popleft()
                self._size -= 1
            taken = len(times) < at_most and self._size < self._most
            if taken:
                times.append(now)
                self._size += 1
                self._times.pop(key, None)
                self._times[key] = times
            return taken

    def _forget(self, before: float) -> None:
        """Forget the keys that were counted last before that."""
        while self._times:
            key, times = next(iter(self._times.items()))
            if times[-1] > before:
                return
            del self._times[key]
            self._size -= len(times)
