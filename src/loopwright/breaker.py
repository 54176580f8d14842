"""Circuit breakers: stop calling what keeps failing, and try again carefully later (Nygard, Release It!, ch. 5)."""

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, TypeAlias

from .clock import Clock, SystemClock
from .errors import CircuitOpen

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
Listener: TypeAlias = Callable[[str, BreakerState, BreakerState], None]


@dataclasses.dataclass(frozen=True)
class BreakerPass:
    """Leave to make one call; hand it back with `CircuitBreaker.success`, `failure` or `cancel`, exactly once.

    `generation` tells a late result of an earlier state from one that counts.
    """

    generation: int
    probe: bool


class CircuitBreaker:
    """Opens after `threshold` consecutive failures; after a while lets one probe at a time through.

    Args:
        name: what it protects: a tool, or a provider with its model.
        threshold: consecutive failures that open it.
        open_seconds: how long it stays open the first time; doubles with each failed probe, up to `max_open_seconds`.
        probe_seconds: a probe that never comes back stops counting after this long.
    """

    def __init__(
        self,
        name: str,
        *,
        threshold: int = 5,
        open_seconds: float = 30.0,
        max_open_seconds: float = 300.0,
        probe_seconds: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._threshold, self._first_open, self._max_open = threshold, open_seconds, max_open_seconds
        self._probe_seconds = probe_seconds
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._state: BreakerState = "closed"
        self._failures = 0
        self._generation = 0
        self._open_for = open_seconds
        self._open_until = 0.0
        self._probe_until: float | None = None

    @property
    def state(self) -> BreakerState:
        """`closed`, `open` or `half-open`, without side effects."""
        return self._state

    def acquire(self, changed: Listener | None = None) -> BreakerPass:
        """Leave to make one call, or `CircuitOpen`; a rejection is not a failure and changes no count."""
        with self._lock:
            now = self._clock.monotonic()
            before = self._state
            if before == "closed":
                return BreakerPass(self._generation, probe=False)
            if before == "open":
                if now < self._open_until:
                    raise self._rejection(self._open_until - now)
                self._move("half-open")
            elif self._probe_until is not None and now < self._probe_until:
                raise self._rejection(self._probe_until - now)
            else:
                self._generation += 1  # the lost probe's verdict no longer counts
            self._probe_until = now + self._probe_seconds
            given = BreakerPass(self._generation, probe=True)
        self._tell(changed, before)
        return given

    def success(self, given: BreakerPass, changed: Listener | None = None) -> None:
        """The call worked."""
        with self._lock:
            before = self._state
            if given.generation != self._generation:
                return
            self._failures = 0
            if given.probe:
                self._open_for = self._first_open
                self._move("closed")
        self._tell(changed, before)

    def failure(self, given: BreakerPass, changed: Listener | None = None) -> None:
        """The call failed, and not by the caller's own mistake."""
        with self._lock:
            before = self._state
            if given.generation != self._generation:
                return
            self._failures += 1
            if given.probe:
                self._open_for = min(self._open_for * 2, self._max_open)
                self._trip()
            elif self._failures >= self._threshold:
                self._trip()
        self._tell(changed, before)

    def cancel(self, given: BreakerPass) -> None:
        """The call gave no verdict (cancelled, or the caller's own mistake): a probe gives its place back."""
        with self._lock:
            if given.probe and given.generation == self._generation:
                self._probe_until = None

    def _trip(self) -> None:
        self._open_until = self._clock.monotonic() + self._open_for
        self._move("open")

    def _move(self, state: BreakerState) -> None:
        self._state = state
        self._generation += 1
        self._failures = 0
        self._probe_until = None

    def _rejection(self, wait: float) -> CircuitOpen:
        text = f"{self.name} failed too often; it is not called for another {wait:.1f} s"
        return CircuitOpen(text, retry_after=wait)

    def _tell(self, changed: Listener | None, before: BreakerState) -> None:
        if changed is not None and before != self._state:
            changed(self.name, before, self._state)


class CircuitBreakers:
    """The breakers of a runtime, by name; at most `keep` of them, the longest unused closed ones forgotten first."""

    def __init__(
        self, *, threshold: int = 5, open_seconds: float = 30.0, keep: int = 1000, clock: Clock | None = None
    ) -> None:
        self._threshold, self._open_seconds, self._keep, self._clock = threshold, open_seconds, keep, clock
        self._lock = threading.Lock()  # runtimes on several event loops may share these
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()

    def get(self, name: str) -> CircuitBreaker:
        """The breaker of that name, made at first use."""
        with self._lock:
            found = self._breakers.get(name)
            if found is None:
                found = self._breakers[name] = CircuitBreaker(
                    name, threshold=self._threshold, open_seconds=self._open_seconds, clock=self._clock
                )
                self._forget()
            else:
                self._breakers.move_to_end(name)
            return found

    def _forget(self) -> None:
        excess = len(self._breakers) - self._keep
        for name in [n for n, b in self._breakers.items() if b.state == "closed"][: max(excess, 0)]:
            del self._breakers[name]
