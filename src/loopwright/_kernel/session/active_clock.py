"""The clock of a run: it counts the time in which something is at work, and stands still while only people think."""

from types import TracebackType

from ...clock import Clock


class ActiveClock:
    """Counts a run's active seconds: not downtime, not waiting for people while nothing else is in flight."""

    def __init__(self, clock: Clock, spent: float) -> None:
        self._clock, self._spent = clock, spent
        self._since: float | None = clock.monotonic()
        self._at_work, self._waiting = 0, 0
        self._stood: float | None = None  # since when it stands still
        self._waited = 0.0

    def seconds(self) -> float:
        """Active seconds so far."""
        return self._spent + (
            0.0 if self._since is None else self._clock.monotonic() - self._since
        )

    def working(self) -> "Span":
        """While a model or a tool is at work, as a context."""
        return Span(self, 1, 0)

    def waiting(self) -> "Span":
        """While a person is asked, as a context."""
        return Span(self, 0, 1)

    def shift(self, at_work: int, waiting: int) -> None:
        """Something began or ended: the clock goes on or stands still."""
        self._at_work += at_work
        self._waiting += waiting
        stands_still = self._waiting > 0 and self._at_work == 0
        if stands_still and self._since is not None:
            self._spent, self._since, self._stood = (
                self.seconds(),
                None,
                self._clock.monotonic(),
            )
        elif not stands_still and self._since is None:
            self._since = self._clock.monotonic()
            self._waited += self._since - (self._stood or self._since)

    def take_waited(self) -> float:
        """Seconds for which the clock stood still since this was asked last; a journal needs them to fold its time."""
        if (
            self._since is None and self._stood is not None
        ):  # it stands still now, and will go on to
            now = self._clock.monotonic()
            self._waited, self._stood = self._waited + now - self._stood, now
        waited, self._waited = self._waited, 0.0
        return round(waited, 6)


class Span:
    """A stretch of work or of waiting."""

    def __init__(self, clock: ActiveClock, at_work: int, waiting: int) -> None:
        self._clock, self._at_work, self._waiting = clock, at_work, waiting

    def __enter__(self) -> None:
        self._clock.shift(self._at_work, self._waiting)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clock.shift(-self._at_work, -self._waiting)
