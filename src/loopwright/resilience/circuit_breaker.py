"""Circuit breakers: stop calling what keeps failing, and try again carefully later (Nygard, Release It!, ch. 5)."""

import dataclasses
import math
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal, TypeAlias, TypedDict, Unpack
from weakref import WeakValueDictionary

from pydantic import Field

from .._internal.log import logger
from .._internal.options import Options
from ..clock import Clock, SystemClock
from ..errors import CircuitOpen, ConfigError

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]
Listener: TypeAlias = Callable[[str, BreakerState, BreakerState, str], None]
"""Told of a change: the breaker's name, the state before and after, and the reason if a person made it."""

Change: TypeAlias = tuple[BreakerState, BreakerState, str]

MOST_UNTOLD = 20  # changes that a breaker keeps for the next listener

# One lock for all breakers and retry budgets: what it guards takes a microsecond, and a fork waits until it is free, so
# that no child inherits it taken. Reentrant, since a signal handler may force a breaker open in the middle of anything.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


class BreakerKeywords(TypedDict, total=False):
    """The options of a breaker as keywords; what they mean and their defaults: `BreakerOptions`."""

    threshold: int | None
    rate: float | None
    window: int
    least: int
    slow_seconds: float | None
    slow_rate: float
    open_seconds: float
    max_open_seconds: float
    probes: int
    probe_seconds: float


class BreakerOptions(Options):
    """When a breaker opens, and how it tries again. `None` switches a rule off.

    Args:
        threshold: consecutive failures that open it.
        rate: share of failures among the last calls that opens it.
        window: how many of the last calls the shares are taken of.
        least: a share means nothing before that many calls.
        slow_seconds: a call that works but takes longer is slow.
        slow_rate: share of slow calls among the last ones that opens it.
        open_seconds: how long it stays open the first time; doubles with each failed probe.
        max_open_seconds: the longest that it stays open, and the longest cool-down.
        probes: how many calls at once may try whether it works again; one that works closes the breaker.
        probe_seconds: a probe that never comes back holds its place that long.
    """

    threshold: int | None = Field(default=5, ge=1)
    rate: float | None = Field(default=0.5, gt=0, le=1)
    window: int = Field(default=20, ge=1)
    least: int = Field(default=10, ge=1)
    slow_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    slow_rate: float = Field(default=0.5, gt=0, le=1)
    open_seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    max_open_seconds: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    probes: int = Field(default=1, ge=1)
    probe_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)

    def __post_init__(self) -> None:
        if self.least > self.window:
            raise ConfigError(
                f"least: no more than window={self.window} calls are remembered, got {self.least}"
            )


class RegistryOptions(BreakerOptions):
    """The options of `CircuitBreakers`: those of each breaker, and how many are kept."""

    keep: int = Field(default=1000, ge=1)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class BreakerPass:
    """Leave to make one call; hand it back with `CircuitBreaker.success`, `failure` or `cancel`, exactly once.

    `generation` tells a late result of an earlier state from one that counts; `since` is when the call began.
    """

    generation: int
    probe: bool
    since: float = 0.0


class CircuitBreaker:
    """Opens when calls fail too often; after a while lets a probe through, and closes when that works.

    It opens at `threshold` consecutive failures, or where failures (or slow calls) are too large a share of the last
    calls. A call without a verdict (`cancel`) changes nothing, nor does a rejection. Safe in threads and event loops.

    Args:
        name: what it protects: "tool/NAME", or a model as "PROVIDER/MODEL".
        clock: time, for tests; wall time plays no part.
        options: as in `BreakerOptions`. A bad one raises `ConfigError` naming it.
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
        self._threshold, self._rate = (
            chosen.threshold or math.inf,
            chosen.rate or math.inf,
        )
        self._remembered = (1 << chosen.window) - 1
        self._max_open = max(chosen.open_seconds, chosen.max_open_seconds)
        self._clock: Clock = clock or SystemClock()
        self._untold: deque[Change] = deque(maxlen=MOST_UNTOLD)
        self._forced: str | None = None  # why a person keeps it open
        self._open_for = chosen.open_seconds
        self._open_until = self._cool_until = -math.inf
        self._probes: dict[BreakerPass, float] = {}  # until when each holds its place
        self._why = ""
        self._generation = self._row = self._seen = 0
        self._failed = self._slow = 0  # one bit for each of the last calls
        self._begin("closed")

    @property
    def state(self) -> BreakerState:
        """`closed`, `open` or `half-open`, without side effects."""
        return self._state

    @property
    def idle(self) -> bool:
        """Whether little is lost if it is forgotten: it is closed and does not cool down."""
        return self._state == "closed" and self._clock.monotonic() >= self._cool_until

    def acquire(self, changed: Listener | None = None) -> BreakerPass:
        """Leave to make one call, or `CircuitOpen`; a rejection is not a failure and changes no count.

        A rejection is `retryable` if the breaker only cools down. `changed` is also told what was changed before and
        nobody was told. Listeners are called outside of any lock; an error in one goes to the log.
        """
        now = self._clock.monotonic()
        with LOCK:
            answer = self._answer(now)
            news = self._news(changed)
        if changed is not None:
            self._tell(changed, news)
        if isinstance(answer, CircuitOpen):
            raise answer
        return answer

    def success(
        self,
        given: BreakerPass,
        changed: Listener | None = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """The call worked, and took `seconds`; without them the breaker's own clock says how long it took."""
        slow = False
        if self._options.slow_seconds is not None:
            slow = (
                self._clock.monotonic() - given.since if seconds is None else seconds
            ) > self._options.slow_seconds
        with LOCK:
            if given.probe:
                self._probed(given, worked=not slow)
            elif given.generation == self._generation:
                self._count(failed=False, slow=slow)
            news = self._news(changed)
        if changed is not None:
            self._tell(changed, news)

    def failure(self, given: BreakerPass, changed: Listener | None = None) -> None:
        """The call failed, and not by the caller's own mistake."""
        with LOCK:
            if given.probe:
                self._probed(given, worked=False)
            elif given.generation == self._generation:
                self._count(failed=True, slow=False)
            news = self._news(changed)
        if changed is not None:
            self._tell(changed, news)

    def cancel(self, given: BreakerPass) -> None:
        """The call gave no verdict (cancelled, or the caller's own mistake): a probe gives its place back."""
        with LOCK:
            self._probes.pop(given, None)

    def cool_down(self, seconds: float) -> None:
        """Reject calls for `seconds` without counting a failure: what is called asked to be left alone.

        A cool-down that holds is never shortened; one that is longer than `max_open_seconds` is cut to that.
        """
        until = self._clock.monotonic() + min(seconds, self._max_open)
        with LOCK:
            self._cool_until = max(
                self._cool_until, until
            )  # in this order: NaN is no more than anything

    def force_open(self, reason: str) -> None:
        """Reject every call until `reset`; rejections tell the reason."""
        with LOCK:
            if self._forced != reason:
                self._forced = reason
                self._move("open", reason)

    def reset(self) -> None:
        """Close it, whatever opened it or cools it down, and forget all failures; results of before do not count."""
        with LOCK:
            self._forced, self._cool_until, self._open_for = (
                None,
                -math.inf,
                self._options.open_seconds,
            )
            self._move("closed", "reset")

    def _answer(self, now: float) -> BreakerPass | CircuitOpen:
        if self._state != "closed" or now < self._cool_until:
            rejection = self._rejection(now)
            if rejection is not None:
                return rejection
        if self._state == "closed":
            return (
                self._shared
                if self._options.slow_seconds is None
                else BreakerPass(self._generation, False, now)
            )
        if self._state == "open":
            self._move("half-open")
        given = BreakerPass(self._generation, True, now)
        self._probes[given] = now + self._options.probe_seconds
        return given

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
        cools = rejects_until <= now
        why = "asked to be left alone" if cools else self._why
        text = f"{self.name} {why}; it is not called for another {wait:.1f} s"
        return CircuitOpen(text, retryable=cools, retry_after=wait)

    def _probed(self, given: BreakerPass, *, worked: bool) -> None:
        if given not in self._probes:
            return  # lost, or of an earlier try
        if worked:
            self._open_for = self._options.open_seconds
            self._move("closed")
        else:
            self._open_for = min(self._open_for * 2, self._max_open)
            self._trip(self._why)

    def _count(self, *, failed: bool, slow: bool) -> None:
        """Remember one call, and open if it was one too many."""
        if not (
            failed or slow or self._failed or self._slow
        ):  # all is well; the row is part of `_failed`
            self._seen += 1
            return
        self._row = self._row + 1 if failed else 0
        self._failed = (self._failed << 1 | failed) & self._remembered
        self._slow = (self._slow << 1 | slow) & self._remembered
        self._seen += 1
        seen = min(self._seen, self._options.window)
        rated = seen >= self._options.least
        if self._row >= self._threshold or (
            rated and self._failed.bit_count() / seen >= self._rate
        ):
            self._trip("failed too often")
        elif rated and self._slow.bit_count() / seen >= self._options.slow_rate:
            self._trip("was too slow too often")

    def _trip(self, why: str) -> None:
        self._why = why
        self._open_until = self._clock.monotonic() + self._open_for
        self._move("open")

    def _move(self, state: BreakerState, reason: str = "") -> None:
        before = self._state
        if before != state or self._forced is not None:
            self._untold.append((before, state, reason))
        self._begin(state)

    def _begin(self, state: BreakerState) -> None:
        """A new generation: what was counted or let through before has no say in it."""
        self._state: BreakerState = state
        self._generation += 1
        self._row = self._failed = self._slow = self._seen = 0
        self._probes.clear()
        self._shared = BreakerPass(
            self._generation, probe=False
        )  # for all calls that nothing is measured of

    def _news(self, changed: Listener | None) -> Sequence[Change]:
        """The changes that nobody was told yet, for a listener: its own call's, and those made outside of any."""
        if not self._untold or changed is None:
            return ()
        news = tuple(self._untold)
        self._untold.clear()
        return news

    def _tell(self, changed: Listener, news: Sequence[Change]) -> None:
        for before, after, reason in news:
            try:
                changed(self.name, before, after, reason)
            except Exception as error:  # noqa: BLE001 - a listener is foreign code and may not hurt the call
                logger().warning(
                    "breaker_listener_failed", breaker=self.name, error=repr(error)
                )


class CircuitBreakers:
    """The breakers of a runtime, by name: "tool/NAME" for a tool, "PROVIDER/MODEL" for a model.

    Args:
        keep: how many are remembered; beyond, the longest unused idle ones are forgotten once nobody holds them.
        clock: time, for tests.
        options: those of each breaker, as in `BreakerOptions`. A bad one raises `ConfigError` naming it.
    """

    def __init__(
        self,
        *,
        keep: int = 1000,
        clock: Clock | None = None,
        **options: Unpack[BreakerKeywords],
    ) -> None:
        RegistryOptions(
            keep=keep, **options
        )  # what is wrong with them is said here, and not at the first call
        self._keep, self._clock, self._options = keep, clock, options
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()
        self._held: WeakValueDictionary[str, CircuitBreaker] = (
            WeakValueDictionary()
        )  # also while a call is in flight

    def get(self, name: str) -> CircuitBreaker:
        """The breaker of that name, made at first use."""
        with LOCK:
            found = self._breakers.get(name)
            if found is None:
                found = self._held.get(name) or CircuitBreaker(
                    name, clock=self._clock, **self._options
                )
                self._breakers[name] = self._held[name] = found
                self._forget()
            else:
                self._breakers.move_to_end(name)
            return found

    def force_open(self, name: str, reason: str) -> None:
        """Reject every call of that tool or model until `reset`; rejections tell the reason."""
        self.get(name).force_open(reason)

    def reset(self, name: str) -> None:
        """Close the breaker of that name, whatever opened it or cools it down."""
        self.get(name).reset()

    def states(self) -> dict[str, BreakerState]:
        """The state of each breaker that is remembered, the longest unused first."""
        with LOCK:
            return {name: breaker.state for name, breaker in self._breakers.items()}

    def _forget(self) -> None:
        """Forget the longest unused idle ones, if there are too many; the last one is just being asked for."""
        excess = len(self._breakers) - self._keep
        if excess > 0:
            others = islice(self._breakers.items(), len(self._breakers) - 1)
            for name in list(
                islice((name for name, breaker in others if breaker.idle), excess)
            ):
                del self._breakers[name]
