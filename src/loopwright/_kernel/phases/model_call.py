"""The only place where a provider is called: breaker, deadline, retries."""

import asyncio
import contextlib
import dataclasses
import random
from typing import Any, cast

from ...errors import CircuitOpen, ProviderError, ProviderTimeout, format_error
from ...events.effects import AttemptFailed
from ...events.run import ErrorRecord
from ...messages import Completion, Usage
from ...providers.base import Provider, Request, check_size, stream_deltas
from ...providers.context import BYTES_PER_TOKEN
from ...resilience.circuit_breaker import CircuitBreaker
from ...security.redaction.errors import redact_error
from ..session.session import Session, out_of_time
from .stream import Telling

MAX_ATTEMPTS = 3
MAX_COOL_DOWNS = 3  # how often one call waits for a cool-down, beside its attempts
MAX_RETRY_AFTER = 60.0  # seconds; a server that asks for more is not waited for
FIRST_DELAY, MAX_DELAY = (
    0.5,
    8.0,
)  # seconds; the k-th pause is random in 0 … FIRST_DELAY * 2^k (full jitter)
TOO_MANY = 429  # nothing is broken: the provider is left alone for as long as it asks
BREAKING = (
    408,
    409,
)  # of the statuses below 500, those that say something about the provider's health


class ModelCall:
    """One model call: one effect, whatever number of attempts it takes."""

    def __init__(
        self, session: Session, key: str, provider: Provider, request: Request
    ) -> None:
        self._session, self._key, self._provider, self._request = (
            session,
            key,
            provider,
            request,
        )
        self.told = (
            False  # whether words were streamed to somebody: those cannot be taken back
        )
        self._made, self._cooled = (
            0,
            0,
        )  # attempts that the breaker let through, and those that met a cool-down
        self._paid = False  # whether the retry budget has paid for an attempt that is still to be made
        self._retries = session.services.retry_budget(provider)
        self._breaker: CircuitBreaker = session.services.breakers.get(
            f"{provider.name}/{provider.model}"
        )

    async def complete(self) -> Completion:
        """The reply, with usage. Raises `ProviderError`, or `LimitReached` when the run's time is over."""
        try:
            with self._session.active.working():
                async with asyncio.timeout(self._session.remaining()):
                    return await self._with_retries()
        except TimeoutError as error:
            if isinstance(error, ProviderTimeout):
                raise
            raise out_of_time() from None

    async def _with_retries(self) -> Completion:
        try:
            return await self._attempt()
        except ProviderError as error:
            if not self._may_retry(error):
                raise
            return await self._again(error)

    async def _again(self, first: ProviderError) -> Completion:
        """Retry with tenacity, which is handed the failure of the attempt that was made without it."""
        from tenacity import AsyncRetrying, retry_if_exception  # noqa: PLC0415 - loaded at the first failure; most runs have none

        failures = iter([first])

        async def attempt() -> Completion:
            for error in failures:
                raise error
            return await self._attempt()

        retrying = AsyncRetrying(
            retry=retry_if_exception(
                lambda e: isinstance(e, ProviderError) and self._may_retry(e)
            ),
            stop=self._too_late,
            wait=self._pause,
            sleep=self._session.services.clock.sleep,
            before_sleep=self._note,
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except CircuitOpen:
            if self._paid:
                self._retries.refund()
            raise

    def _may_retry(self, error: ProviderError) -> bool:
        """Whether another attempt is wise and within the budgets."""
        if (
            self.told
            or not error.retryable
            or (error.retry_after or 0.0) > MAX_RETRY_AFTER
        ):
            return False
        if isinstance(
            error, CircuitOpen
        ):  # a cool-down: to wait costs nothing but time
            return self._cooled < MAX_COOL_DOWNS
        if (
            self._breaker.state == "open"
            or self._made + self._session.replay.recoveries.failed_attempts(self._key)
            >= MAX_ATTEMPTS
        ):
            return False
        budget = self._session.budget
        most = budget.limits.max_llm_calls
        return (
            most is None or budget.llm_calls < most - budget.reserved_calls
        ) and self._retries.has_retry

    def _too_late(self, state: Any) -> bool:
        """Whether a pause would finish_despite_cancellation the run; by the run's clock, which tenacity does not know."""
        remaining = self._session.remaining()
        return remaining is not None and state.upcoming_sleep >= remaining

    def _pause(self, state: Any) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ProviderError) else None
        if asked is not None:
            return asked
        return random.uniform(  # noqa: S311 - jitter
            0, min(MAX_DELAY, FIRST_DELAY * 2 ** (state.attempt_number - 1))
        )

    def _note(self, state: Any) -> None:
        """Another attempt follows after a pause: pay for it, unless the one before was rejected and cost nothing."""
        error = state.outcome.exception()
        made = not isinstance(error, CircuitOpen)
        if (
            made and not self._retries.spend()
        ):  # another event loop took the last one meanwhile
            raise error
        pause = state.next_action.sleep
        self._session.writer.record(
            self._key, AttemptFailed(state.attempt_number, self._record(error), pause)
        )
        self._session.budget.llm_calls += made
        self._cooled += not made
        self._paid = self._paid or made

    def _record(self, error: ProviderError) -> ErrorRecord:
        return ErrorRecord.of(redact_error(self._session.secrets.redactor, error))

    async def _attempt(self) -> Completion:
        breaker, changed = self._breaker, self._session.breaker_changed
        given = breaker.acquire(changed)
        self._begin()
        verdict = False
        try:
            reply = await self._reply()
            if not isinstance(reply, Completion):  # pyright: ignore[reportUnnecessaryIsInstance] - strangers' providers
                raise TypeError(
                    f"complete() returned {type(reply).__name__}, not a Completion"
                )
            check_size(self._provider, reply)
            breaker.success(given, changed)
            verdict = True
        except ProviderError as error:
            if _is_unhealthy(error):
                breaker.failure(given, changed)
                verdict = True
            elif error.status == TOO_MANY:
                breaker.cool_down(error.retry_after or 0.0)
            raise
        except Exception as error:
            breaker.failure(given, changed)
            verdict = True
            text = f"{self._provider.name} raised {type(error).__name__}: {format_error(error)}"
            raise ProviderError(text) from error
        finally:
            if not verdict:
                breaker.cancel(given)
        return self._with_usage(reply)

    def _begin(self) -> None:
        """The breaker lets an attempt through: only such count."""
        self._made += 1
        self._paid = False
        if self._made == 1:
            self._retries.earn()

    async def _reply(self) -> Completion:
        """The reply: in one piece, or piece by piece if somebody watches."""
        session = self._session
        await session.writer.ensure_held()
        if not session.delta_watchers:
            return await self._provider.complete(self._request)
        reply: Completion | None = None
        telling = Telling(session.secrets.redactor, self._key, session.delta_watchers)
        async with contextlib.aclosing(
            stream_deltas(self._provider, self._request)
        ) as deltas:
            async for delta in deltas:
                telling.tell(delta)
                self.told = telling.begun
                reply = delta.completion or reply
        return cast("Completion", reply)  # `stream_deltas` ends with one, or raises

    def _with_usage(self, reply: Completion) -> Completion:
        """The reply with an estimate where the provider told no usage."""
        usage = reply.usage
        if usage.input_tokens is not None and usage.output_tokens is not None:
            return self._priced(reply)
        said = len(reply.text or reply.answer or "") + sum(
            len(thought.text) for thought in reply.reasoning
        )
        said += sum(len(call.name) + len(str(call.arguments)) for call in reply.calls)
        sent = self._request.conversation.size // BYTES_PER_TOKEN
        estimate = Usage(
            sent if usage.input_tokens is None else usage.input_tokens,
            said // BYTES_PER_TOKEN + 1
            if usage.output_tokens is None
            else usage.output_tokens,
            usage.cached_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
            usage.cost,
            estimated=True,
        )
        return self._priced(dataclasses.replace(reply, usage=estimate))

    def _priced(self, reply: Completion) -> Completion:
        """The reply with its cost, if the provider did not tell it and the price is known."""
        services, usage = self._session.services, reply.usage
        if usage.cost is not None or (
            not services.prices and services.limits.max_cost is None
        ):
            return reply
        price = services.prices.find(
            self._provider.name, self._provider.model, reply.model
        )
        if price is None:
            return reply
        return dataclasses.replace(
            reply, usage=dataclasses.replace(usage, cost=price.cost(usage))
        )


def _is_unhealthy(error: ProviderError) -> bool:
    """Whether a failure speaks of the provider's health; a rejection by some inner breaker is no failure."""
    if not error.retryable or isinstance(error, CircuitOpen):
        return False
    return error.status is None or error.status >= 500 or error.status in BREAKING
