"""Circuit breakers: calls to a failing tool or model stop, and probes find out when it works again.

Source: Nygard, Release It!, chapter 5.
"""

import asyncio
import math
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal, TypeAlias, TypedDict, Unpack
from weakref import WeakValueDictionary

from pydantic import Field

from .._internal import dataclasses
from .._internal.log import logger
from .._internal.options import Options
from ..clock import Clock, SystemClock
from ..errors import CircuitOpen, ConfigError

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
StateCallback: TypeAlias = Callable[[str, BreakerState, BreakerState, str], None]
"""Called with the breaker's name, the states before and after a change, and the operator's reason if there is one."""

Change: TypeAlias = tuple[BreakerState, BreakerState, str]

MAX_RAMP = 64
"""Calls at a time that end the ramp after a recovery: beyond it, all are admitted."""
FIRST_RAMP = 2
QUEUE_SECONDS, QUEUE_SECONDS_EACH = 0.1, 0.001
"""How long a caller that is not the next one waits before it asks again, and more for each that waits."""
MAX_UNREPORTED = 20  # changes that a breaker keeps for the next listener

# One lock for all breakers and retry budgets: it is held for microseconds, and a fork waits until it is free, so that
# no child process inherits it locked. It is reentrant, since a signal handler may force a breaker open at any point.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


class BreakerKeywords(TypedDict, total=False):
    """The options of a breaker as keywords; `BreakerOptions` has their meaning and defaults."""

    threshold: int | None
    rate: float | None
    window: int
    min_calls: int
    slow_seconds: float | None
    slow_rate: float
    open_seconds: float
    max_open_seconds: float
    max_cool_down: float
    probes: int
    probe_seconds: float


class BreakerOptions(Options):
    """When a breaker opens and how it probes; `None` switches a rule off.

    Args:
        threshold: number of consecutive failures that open it.
        rate: share of failures in the window that opens it.
        window: number of recent calls that both shares are computed over.
        min_calls: number of calls below which no share is computed.
        slow_seconds: duration above which a successful call counts as slow.
        slow_rate: share of slow calls in the window that opens it.
        open_seconds: how long it stays open the first time; each failed probe doubles it.
        max_open_seconds: upper bound of an open period.
        max_cool_down: upper bound of a cool-down.
        probes: number of concurrent probes while half-open; the first one that succeeds closes the breaker.
        probe_seconds: time after which a probe without a result no longer counts as in flight.
    """

    threshold: int | None = Field(default=5, ge=1)
    rate: float | None = Field(default=0.5, gt=0, le=1)
    window: int = Field(default=20, ge=1)
    min_calls: int = Field(default=10, ge=1)
    slow_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    slow_rate: float = Field(default=0.5, gt=0, le=1)
    open_seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    max_open_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    max_cool_down: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    probes: int = Field(default=1, ge=1)
    probe_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)

    def __post_init__(self) -> None:
        if self.min_calls > self.window:
            raise ConfigError(
                f"min_calls: must not exceed window={self.window}, got {self.min_calls}"
            )


class RegistryOptions(BreakerOptions):
    """The options of `CircuitBreakers`: the options of each breaker, and how many breakers are kept."""

    keep: int = Field(default=1000, ge=1)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class BreakerPass:
    """Permission for one call; return it exactly once, by `CircuitBreaker.success`, `failure` or `cancel`.

    `generation` tells a late result of an earlier state from one that counts; `since` is the start of the call,
    `order` its place among the starts and failures of all calls.
    """

    generation: int
    probe: bool
    since: float = 0.0
    order: int = 0


class CircuitBreaker:
    """Rejects calls to something that fails too often, until a probe succeeds.

    It opens at `threshold` consecutive failures of calls that did not overlap, or when failures or slow calls are too
    large a share of the recent calls and of those in flight. After a while it lets a probe through, and closes if the
    probe succeeds. A cancelled call and a rejection change nothing. Safe in threads and event loops.

    A caller that waits instead of giving up passes itself as `waiter` and asks again: waiters are admitted in the order
    in which they came, one at a time as probes, and after a recovery more with each success.

    Args:
        name: what it protects: "tool/NAME", or a model as "PROVIDER/MODEL".
        clock: the source of monotonic time, for tests; wall time is not used.
        options: as in `BreakerOptions`. A bad one raises `ConfigError` with its name.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        **options: Unpack[BreakerKeywords],
    ) -> None:
        self.name = name
        self._options = chosen = BreakerOptions(**options)
        self._threshold = chosen.threshold or math.inf
        self._rate = chosen.rate or math.inf
        self._window_mask = (1 << chosen.window) - 1
        self._max_open = max(chosen.open_seconds, chosen.max_open_seconds)
        self._clock: Clock = clock or SystemClock()
        self._unreported: deque[Change] = deque(maxlen=MAX_UNREPORTED)
        self._forced: str | None = None  # the operator's reason for keeping it open
        self._open_for = chosen.open_seconds
        self._open_until = self._cool_until = -math.inf
        self._probes: dict[BreakerPass, float] = {}  # when each counts as lost
        self._cause = ""
        self._generation = self._consecutive = self._seen = 0
        self._failed = self._slow = 0  # one bit for each call in the window
        self._in_flight = self._order = self._failed_at = 0
        self._waiters: dict[object, None] = {}
        self._ramp: float = math.inf
        self._begin("closed")

    @property
    def state(self) -> BreakerState:
        """`closed`, `open` or `half-open`; reading it has no side effect."""
        return self._state

    @property
    def idle(self) -> bool:
        """Whether it can be discarded: it is closed and not cooling down."""
        return self._state == "closed" and self._clock.monotonic() >= self._cool_until

    def acquire(
        self, changed: StateCallback | None = None, *, waiter: object = None
    ) -> BreakerPass:
        """Return permission for one call, or raise `CircuitOpen`; a rejection is not counted as a failure.

        A rejection is `retryable` if the breaker only cools down. `changed` also receives earlier changes that no
        listener has received. Listeners are called without the lock; an error in a listener is logged. A `waiter` that
        is rejected has its place in the queue until it is admitted or `remove_waiter` is called.
        """
        now = self._clock.monotonic()
        with LOCK:
            admission = self._admit(now, waiter)
            changes = self._take_changes(changed) if self._unreported else ()
        if changed is not None and changes:
            self._report(changed, changes)
        if isinstance(admission, CircuitOpen):
            raise admission
        return admission

    def success(
        self,
        given: BreakerPass,
        changed: StateCallback | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """Record that the call succeeded in `seconds`, or in the time that the breaker's clock measured."""
        slow = False
        if self._options.slow_seconds is not None:
            slow = self._is_slow(given, seconds, self._options.slow_seconds)
        with LOCK:
            if given.probe:
                self._finish_probe(given, succeeded=not slow)
            elif given.generation == self._generation:
                self._ramp = self._ramp + 1 if self._ramp < MAX_RAMP else math.inf
                self._count(failed=False, slow=slow)
            changes = self._take_changes(changed) if self._unreported else ()
        if changed is not None and changes:
            self._report(changed, changes)

    def failure(self, given: BreakerPass, changed: StateCallback | None = None) -> None:
        """Record that the call failed, other than by the caller's own mistake."""
        with LOCK:
            if given.probe:
                self._finish_probe(given, succeeded=False)
            elif given.generation == self._generation:
                if given.order > self._failed_at:
                    self._consecutive += 1
                self._order += 1
                self._failed_at = self._order
                self._count(failed=True, slow=False)
            changes = self._take_changes(changed)
        if changed is not None and changes:
            self._report(changed, changes)

    def cancel(self, given: BreakerPass) -> None:
        """Record that the call says nothing about health: it was cancelled, or failed by the caller's own mistake."""
        with LOCK:
            self._probes.pop(given, None)
            if not given.probe and given.generation == self._generation:
                self._in_flight = max(self._in_flight - 1, 0)

    def remove_waiter(self, waiter: object) -> None:
        """Give up the place of a waiter in the queue, if it has one."""
        if not self._waiters:
            return
        with LOCK:
            self._waiters.pop(waiter, None)

    def cool_down(self, seconds: float) -> None:
        """Reject calls for `seconds`, as a server asked with `Retry-After`, without counting a failure.

        A shorter cool-down does not replace a longer one, and none exceeds `max_cool_down`.
        """
        until = self._clock.monotonic() + min(seconds, self._options.max_cool_down)
        with LOCK:
            # In this order, since NaN is not greater than any number.
            self._cool_until = max(self._cool_until, until)
            self._ramp = FIRST_RAMP

    def force_open(self, reason: str) -> None:
        """Reject every call until `reset`; rejections give the reason."""
        with LOCK:
            if self._forced != reason:
                self._forced = reason
                self._move("open", reason)

    def reset(self) -> None:
        """Close it, end a forced opening or a cool-down, and discard all counts; results of earlier calls do not count."""
        with LOCK:
            self._forced = None
            self._cool_until = -math.inf
            self._open_for = self._options.open_seconds
            self._move("closed", "reset")

    def _admit(self, now: float, waiter: object) -> BreakerPass | CircuitOpen:
        rejection, is_closed = None, self._state == "closed"
        if not is_closed or now < self._cool_until:
            rejection = self._rejection(now)
        if rejection is None and waiter is not None:
            is_calm = is_closed and math.isinf(self._ramp)
            rejection = None if is_calm else self._queue(waiter)
        if rejection is not None:
            if waiter is not None:
                self._waiters[waiter] = None
            return rejection
        self._waiters.pop(waiter, None)
        return self._issue_pass(now)

    def _issue_pass(self, now: float) -> BreakerPass:
        self._order += 1
        if self._state == "closed":
            self._in_flight += 1
            return BreakerPass(self._generation, False, now, self._order)
        if self._state == "open":
            self._move("half-open")
        given = BreakerPass(self._generation, True, now, self._order)
        self._probes[given] = now + self._options.probe_seconds
        return given

    def _queue(self, waiter: object) -> CircuitOpen | None:
        """Return the rejection of a waiter whose turn has not come."""
        free = self._ramp - self._in_flight
        if self._state != "closed":
            free = self._options.probes - len(self._probes)
        if math.isinf(free):
            return None
        first = list(islice(self._waiters, max(int(free), 0)))
        has_place = len(first) < free
        if waiter in first or (has_place and waiter not in self._waiters):
            return None
        text = f"{self.name} works again; other calls are made first"
        pause = QUEUE_SECONDS + len(self._waiters) * QUEUE_SECONDS_EACH
        return CircuitOpen(text, retryable=True, retry_after=pause)

    def _rejection(self, now: float) -> CircuitOpen | None:
        if self._forced is not None:
            return CircuitOpen(f"{self.name} is switched off: {self._forced}")
        rejects_until = self._open_until if self._state == "open" else -math.inf
        if self._state == "half-open":
            self._probes = {
                probe: until for probe, until in self._probes.items() if until > now
            }
            if len(self._probes) >= self._options.probes:
                rejects_until = min(self._probes.values())
        wait = max(rejects_until, self._cool_until) - now
        if wait <= 0:
            return None
        is_cooling_down = rejects_until <= now
        cause = "asked to be left alone" if is_cooling_down else self._cause
        text = f"{self.name} {cause}; it is not called for another {wait:.1f} s"
        return CircuitOpen(text, retryable=is_cooling_down, retry_after=wait)

    def _is_slow(self, given: BreakerPass, seconds: float | None, limit: float) -> bool:
        took = self._clock.monotonic() - given.since if seconds is None else seconds
        return took > limit

    def _finish_probe(self, given: BreakerPass, *, succeeded: bool) -> None:
        if given not in self._probes:
            return  # it counts as lost, or belongs to an earlier half-open period
        if succeeded:
            self._open_for = self._options.open_seconds
            self._move("closed")
            self._ramp = FIRST_RAMP
        else:
            self._open_for = min(self._open_for * 2, self._max_open)
            self._trip(self._cause)

    def _count(self, *, failed: bool, slow: bool) -> None:
        """Record in the window how a call ended, and open if a rule says so."""
        self._in_flight = max(self._in_flight - 1, 0)
        in_window = self._failed | self._slow
        if not (failed or slow or in_window):  # there are no bits to shift
            self._seen += 1
            return
        if not failed:
            self._consecutive = 0
        self._failed = (self._failed << 1 | failed) & self._window_mask
        self._slow = (self._slow << 1 | slow) & self._window_mask
        self._seen += 1
        cause = self._find_cause()
        if cause is not None:
            self._trip(cause)

    def _find_cause(self) -> str | None:
        """Return why it must open, or `None`."""
        if self._consecutive >= self._threshold:
            return "failed too often"
        seen = min(self._seen, self._options.window)
        if seen < self._options.min_calls:
            return None
        # Failures come back faster than answers: what is in flight may still succeed.
        if self._failed.bit_count() / (seen + self._in_flight) >= self._rate:
            return "failed too often"
        if self._slow.bit_count() / seen >= self._options.slow_rate:
            return "was too slow too often"
        return None

    def _trip(self, cause: str) -> None:
        self._cause = cause
        self._open_until = self._clock.monotonic() + self._open_for
        self._move("open")

    def _move(self, state: BreakerState, reason: str = "") -> None:
        before = self._state
        if before != state or self._forced is not None:
            self._unreported.append((before, state, reason))
        self._begin(state)

    def _begin(self, state: BreakerState) -> None:
        """Start a new generation; counts and permissions of earlier generations no longer matter."""
        self._state: BreakerState = state
        self._generation += 1
        self._consecutive = self._failed = self._slow = self._seen = 0
        self._probes.clear()
        self._in_flight, self._ramp = 0, math.inf

    def _take_changes(self, changed: StateCallback | None) -> Sequence[Change]:
        """Remove and return the changes that no listener has received, if there is a listener now."""
        if not self._unreported or changed is None:
            return ()
        changes = tuple(self._unreported)
        self._unreported.clear()
        return changes

    def _report(self, changed: StateCallback, changes: Sequence[Change]) -> None:
        for before, after, reason in changes:
            try:
                changed(self.name, before, after, reason)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a third-party listener must not fail the call
                logger().warning(
                    "breaker_listener_failed", breaker=self.name, error=repr(error)
                )


class CircuitBreakers:
    """The breakers of a runtime, by name: "tool/NAME" for a tool, "PROVIDER/MODEL" for a model.

    Args:
        keep: how many breakers are kept; beyond it the least recently used idle ones are discarded.
        clock: the source of monotonic time, for tests.
        options: the options of each breaker, as in `BreakerOptions`. A bad one raises `ConfigError` with its name.
    """

    def __init__(
        self,
        *,
        keep: int = 1000,
        clock: Clock | None = None,
        **options: Unpack[BreakerKeywords],
    ) -> None:
        # Validated here, so that a bad option is reported before the first call.
        RegistryOptions(keep=keep, **options)
        self._keep, self._clock, self._options = keep, clock, options
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()
        # A breaker that a caller still holds, as during a call, stays the only one of its name.
        self._held: WeakValueDictionary[str, CircuitBreaker] = WeakValueDictionary()

    def get(self, name: str, **defaults: Unpack[BreakerKeywords]) -> CircuitBreaker:
        """Return the breaker of that name; the first use creates it, with defaults for what the registry does not say."""
        with LOCK:
            found = self._breakers.get(name)
            if found is None:
                options: BreakerKeywords = {**defaults, **self._options}
                found = self._held.get(name) or CircuitBreaker(
                    name, clock=self._clock, **options
                )
                self._breakers[name] = self._held[name] = found
                self._discard_idle()
            else:
                self._breakers.move_to_end(name)
            return found

    def force_open(self, name: str, reason: str) -> None:
        """Reject every call of that tool or model until `reset`; rejections give the reason."""
        self.get(name).force_open(reason)

    def reset(self, name: str) -> None:
        """Close the breaker of that name and end a forced opening or a cool-down."""
        self.get(name).reset()

    def states(self) -> dict[str, BreakerState]:
        """Return the state of each breaker by name, the least recently used first."""
        with LOCK:
            return {name: breaker.state for name, breaker in self._breakers.items()}

    def _discard_idle(self) -> None:
        """Discard the least recently used idle breakers beyond `keep`, but not the newest, which is being returned."""
        excess = len(self._breakers) - self._keep
        if excess <= 0:
            return
        older = islice(self._breakers.items(), len(self._breakers) - 1)
        idle = (name for name, breaker in older if breaker.idle)
        for name in list(islice(idle, excess)):
            del self._breakers[name]
