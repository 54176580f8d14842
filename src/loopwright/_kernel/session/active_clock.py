"""ActiveClock: the time of a run in which something is at work; it stops while only people are waited for."""

from types import TracebackType

from ...clock import Clock


class ActiveClock:
    """Counts a run's active seconds: not downtime, not waiting for people while nothing else is in flight."""

    def __init__(self, clock: Clock, spent: float) -> None:
        self._monotonic, self._spent = clock.monotonic, spent
        self._running_since: float | None = clock.monotonic()
        self._stopped_since = 0.0  # while it is stopped
        self._waited = 0.0
        self._working_count, self._waiting_count = 0, 0
        self.working = Span(self, 1, 0)
        """The context in which a model or a tool is at work."""
        self.waiting = Span(self, 0, 1)
        """The context in which a person, a provider or a time is waited for."""

    def seconds(self) -> float:
        """Return the active seconds so far."""
        if self._running_since is None:
            return self._spent
        return self._spent + (self._monotonic() - self._running_since)

    def shift(self, working: int, waiting: int) -> None:
        """Begin or end spans; the clock stops while all that is open waits for people."""
        self._working_count += working
        self._waiting_count += waiting
        must_stop = self._waiting_count > 0 and self._working_count == 0
        if must_stop and self._running_since is not None:
            self._spent, self._running_since = self.seconds(), None
            self._stopped_since = self._monotonic()
        elif not must_stop and self._running_since is None:
            self._running_since = self._monotonic()
            self._waited += self._running_since - self._stopped_since

    def take_waited(self) -> float:
        """Return the seconds that the clock was stopped since the last call of this method.

        They are recorded, so that active time can be computed from a journal.
        """
        if self._running_since is None:
            now = self._monotonic()
            self._waited += now - self._stopped_since
            self._stopped_since = now
        waited, self._waited = self._waited, 0.0
        return round(waited, 6)


class Span:
    """A context of work or of waiting; it keeps no state, so one serves all that are open."""

    def __init__(self, clock: ActiveClock, working: int, waiting: int) -> None:
        self._clock, self._working, self._waiting = clock, working, waiting

    def __enter__(self) -> float:
        """Begin it; return the active seconds so far."""
        self._clock.shift(self._working, self._waiting)
        return self._clock.seconds()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clock.shift(-self._working, -self._waiting)
