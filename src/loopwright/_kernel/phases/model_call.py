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
from .stream import ReplyStream

MAX_ATTEMPTS = 3
MAX_COOL_DOWNS = 3  # how often one call waits for a cool-down, beside its attempts
MAX_RETRY_AFTER = 60.0  # seconds; a server that asks for more is not waited for
FIRST_DELAY, MAX_DELAY = 0.5, 8.0
"""Seconds: the k-th pause is random in 0 … FIRST_DELAY * 2^k (full jitter)."""
TOO_MANY_REQUESTS = 429
"""Nothing is broken: the provider is left alone for as long as it asks."""
UNHEALTHY_STATUSES = (408, 409)
"""Of the statuses below 500, those that say something about the provider's health."""


class ModelCall:
    """One model call: one effect, whatever number of attempts it takes."""

    def __init__(
        self, session: Session, key: str, provider: Provider, request: Request
    ) -> None:
        self._session, self._key = session, key
        self._provider, self._request = provider, request
        self.has_streamed = False
        """Whether text was shown to a watcher: it cannot be recalled."""
        self._made = 0  # attempts that the breaker admitted
        self._cooled = 0  # attempts that met a cool-down
        self._paid = False  # whether the retry budget has paid for the next attempt
        self._retries = session.services.retry_budget(provider)
        name = f"{provider.name}/{provider.model}"
        self._breaker: CircuitBreaker = session.services.breakers.get(name)

    async def complete(self) -> Completion:
        """Return the reply, with usage.

        Raises `ProviderError`, or `LimitReached` when the run's time is over.
        """
        try:
            with self._session.active.working():
                async with asyncio.timeout(self._session.remaining()):
                    try:
                        return await self._attempt()
                    except ProviderError as error:
                        if not self._may_retry(error):
                            raise
                        return await self._retry(error)
        except TimeoutError as error:
            if isinstance(error, ProviderTimeout):
                raise
            raise out_of_time() from None

    async def _retry(self, first: ProviderError) -> Completion:
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
        """Whether another attempt makes sense and is within the budgets."""
        if self.has_streamed or not error.retryable:
            return False
        if (error.retry_after or 0.0) > MAX_RETRY_AFTER:
            return False
        if isinstance(error, CircuitOpen):  # a cool-down costs nothing but time
            return self._cooled < MAX_COOL_DOWNS
        recoveries, budget = self._session.replay.recoveries, self._session.budget
        made = self._made + recoveries.failed_attempts(self._key)
        if self._breaker.state == "open" or made >= MAX_ATTEMPTS:
            return False
        return budget.has_model_call and self._retries.has_retry

    def _too_late(self, state: Any) -> bool:
        """Whether a pause would outlast the run, by the run's clock, which tenacity does not have."""
        return self._session.is_too_long(state.upcoming_sleep)

    def _pause(self, state: Any) -> float:
        """Return the seconds before the next attempt; only a `ProviderError` is retried."""
        error: ProviderError = state.outcome.exception()
        if error.retry_after is not None:
            return error.retry_after
        max_delay = FIRST_DELAY * 2 ** (state.attempt_number - 1)
        return random.uniform(0, min(MAX_DELAY, max_delay))  # noqa: S311 - jitter

    def _note(self, state: Any) -> None:
        """Record the failure, and pay for the next attempt unless this one was rejected."""
        error = state.outcome.exception()
        made = not isinstance(error, CircuitOpen)
        if made and not self._retries.spend():
            raise error  # another event loop has taken the last retry meanwhile
        pause, budget = state.next_action.sleep, self._session.budget
        failed = AttemptFailed(state.attempt_number, self._record(error), pause)
        self._session.writer.record(self._key, failed)
        budget.llm_calls += made
        self._cooled += not made
        self._paid |= made

    def _record(self, error: ProviderError) -> ErrorRecord:
        return ErrorRecord.of(redact_error(self._session.secrets.redactor, error))

    async def _attempt(self) -> Completion:
        breaker, changed = self._breaker, self._session.breaker_changed
        ticket = breaker.acquire(changed)
        self._made += 1
        self._paid = False
        if self._made == 1:
            self._retries.earn()
        reported = False
        try:
            reply = await self._reply()
            if not isinstance(reply, Completion):  # pyright: ignore[reportUnnecessaryIsInstance] - third-party providers
                kind = type(reply).__name__
                raise TypeError(f"complete() returned {kind}, not a Completion")
            check_size(self._provider, reply)
            breaker.success(ticket, changed)
            reported = True
        except ProviderError as error:
            if _is_unhealthy(error):
                breaker.failure(ticket, changed)
                reported = True
            elif error.status == TOO_MANY_REQUESTS:
                breaker.cool_down(error.retry_after or 0.0)
            raise
        except Exception as error:
            breaker.failure(ticket, changed)
            reported = True
            text = f"{self._provider.name} raised {type(error).__name__}: {format_error(error)}"
            raise ProviderError(text) from error
        finally:
            if not reported:
                breaker.cancel(ticket)
        return self._with_usage(reply)

    async def _reply(self) -> Completion:
        """Return the reply: whole, or streamed if there are watchers."""
        session = self._session
        await session.writer.ensure_held()
        if not session.delta_watchers:
            return await self._provider.complete(self._request)
        reply: Completion | None = None
        redactor = session.secrets.redactor
        shown = ReplyStream(redactor, self._key, session.delta_watchers)
        stream = stream_deltas(self._provider, self._request)
        async with contextlib.aclosing(stream) as deltas:
            async for delta in deltas:
                shown.receive(delta)
                self.has_streamed = shown.has_begun
                reply = delta.completion or reply
        return cast("Completion", reply)  # `stream_deltas` ends with one, or raises

    def _with_usage(self, reply: Completion) -> Completion:
        """Return the reply with its usage, estimated if the provider did not tell it, and its cost."""
        usage = reply.usage
        if usage.input_tokens is None or usage.output_tokens is None:
            usage = self._estimate(reply)
        services, limits = self._session.services, self._session.services.limits
        if usage.cost is None and (limits.max_cost is not None or services.prices):
            provider = self._provider
            price = services.prices.find(provider.name, provider.model, reply.model)
            if price is not None:
                usage = dataclasses.replace(usage, cost=price.cost(usage))
        if usage is reply.usage:
            return reply
        return dataclasses.replace(reply, usage=usage)

    def _estimate(self, reply: Completion) -> Usage:
        """Return the usage of a reply, estimated where the provider did not tell it."""
        usage = reply.usage
        sent, received = usage.input_tokens, usage.output_tokens
        if sent is None:
            sent = self._request.conversation.size // BYTES_PER_TOKEN
        if received is None:
            characters = len(reply.text or reply.answer or "")
            characters += sum(len(thought.text) for thought in reply.reasoning)
            for call in reply.calls:
                characters += len(call.name) + len(str(call.arguments))
            received = characters // BYTES_PER_TOKEN + 1
        return dataclasses.replace(
            usage, input_tokens=sent, output_tokens=received, estimated=True
        )


def _is_unhealthy(error: ProviderError) -> bool:
    """Whether a failure is a sign of the provider's health; a rejection by an inner breaker is not."""
    if not error.retryable or isinstance(error, CircuitOpen):
        return False
    if error.status is None or error.status >= 500:
        return True
    return error.status in UNHEALTHY_STATUSES
