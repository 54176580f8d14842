"""CallGuard: the circuit breakers of one model call, which may ask several models one after another."""

import contextlib
from types import TracebackType

from .._internal import dataclasses
from ..errors import CircuitOpen, JournalError, LimitReached, ProviderError
from .circuit_breaker import BreakerPass, CircuitBreaker, CircuitBreakers, StateCallback

FIRST_OPEN_SECONDS, MAX_OPEN_SECONDS = 1.0, 3.0
"""How long a model's breaker stays open between two probes, unless the registry says otherwise.

Calls wait for it, so that a recovery is to be seen soon; one probe at a time costs a provider little.
"""
TOO_MANY_REQUESTS = 429
"""Nothing is broken: the provider is left alone for as long as it asks."""
UNHEALTHY_STATUSES = (408, 409)
"""Of the statuses below 500, those that say something about the provider's health."""


@dataclasses.dataclass(eq=False)
class CallGuard:
    """Asks the breaker of a model before each attempt of one model call, and tells it how the attempt ended.

    A call that is rejected has its place in the queue of that breaker until it is admitted somewhere, or cancels it.

    Args:
        breakers: the breakers of the runtime.
        changed: called with each change of a breaker's state.
    """

    _breakers: CircuitBreakers
    _changed: StateCallback
    queues: dict[str, CircuitBreaker] = dataclasses.field(
        default_factory=dict[str, CircuitBreaker], init=False
    )
    """The breakers that it waits for, by model."""

    def admit(self, model: str) -> "Admission":
        """Return permission for one attempt of a model, "PROVIDER/MODEL", or raise `CircuitOpen`.

        The attempt is made inside `with admission:`.
        """
        breaker = self._breakers.get(
            model, open_seconds=FIRST_OPEN_SECONDS, max_open_seconds=MAX_OPEN_SECONDS
        )
        try:
            ticket = breaker.acquire(self._changed, waiter=self)
        except CircuitOpen:
            self.queues[model] = breaker
            raise
        if self.queues:  # a call that is served must not hold up the others there
            self.cancel_waiting()
        return Admission(breaker, ticket, self._changed)

    def cancel_waiting(self) -> None:
        """Give up every place in a queue: the call does not wait for a breaker now."""
        for breaker in self.queues.values():
            breaker.remove_waiter(self)
        self.queues.clear()


@dataclasses.dataclass(eq=False)
class Admission(contextlib.AbstractContextManager["Admission"]):
    """Permission for one attempt, and the context in which it is made: how it ends is told to the breaker.

    A failure counts if it says something about the provider's health; after a 429 the model is left alone.
    """

    _breaker: CircuitBreaker
    _ticket: BreakerPass
    _changed: StateCallback

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell the breaker how the attempt ended."""
        if error is None:
            self._breaker.success(self._ticket, self._changed)
        elif _is_unhealthy(error):
            self._breaker.failure(self._ticket, self._changed)
        else:
            if isinstance(error, ProviderError) and error.status == TOO_MANY_REQUESTS:
                self._breaker.cool_down(error.retry_after or 0.0)
            self._breaker.cancel(self._ticket)


def _is_unhealthy(error: BaseException) -> bool:
    """Whether a failure is a sign of the provider's health; a rejection by an inner breaker is not."""
    if not isinstance(error, ProviderError):
        # A limit and a failed journal are the run's own; any other exception is a fault of the provider's code.
        return isinstance(error, Exception) and not isinstance(
            error, (LimitReached, JournalError)
        )
    if not error.retryable or isinstance(error, CircuitOpen):
        return False
    if error.status is None or error.status >= 500:
        return True
    return error.status in UNHEALTHY_STATUSES
