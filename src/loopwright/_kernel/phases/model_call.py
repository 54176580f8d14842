"""The only place where a provider is called: breaker, deadline, retries."""

import asyncio
import contextlib
import dataclasses
from typing import cast

from ...errors import (
    CircuitOpen,
    JournalError,
    LimitReached,
    ProviderError,
    ProviderTimeout,
    format_error,
)
from ...events.effects import AttemptFailed
from ...events.run import ErrorRecord
from ...messages import Completion, Usage
from ...providers.base import Provider, Request, check_size, stream_deltas
from ...providers.context import BYTES_PER_TOKEN, measure_request
from ...providers.final_tool import enforce_schema
from ...providers.recovered_calls import recover_call
from ...resilience.circuit_breaker import BreakerPass, CircuitBreaker
from ...resilience.timeouts import shorter
from ...security.redaction.errors import redact_error
from ..session.session import Session, out_of_time
from .provider_wait import FIRST_DELAY, ProviderWait
from .stream import ReplyStream

FIRST_OPEN_SECONDS, MAX_OPEN_SECONDS = 1.0, 3.0
"""How long a model's breaker stays open between two probes, unless the registry says otherwise.

Calls wait for it, so that a recovery is to be seen soon; one probe at a time costs a provider little.
"""
TOO_MANY_REQUESTS = 429
"""Nothing is broken: the provider is left alone for as long as it asks."""
UNHEALTHY_STATUSES = (408, 409)
"""Of the statuses below 500, those that say something about the provider's health."""


class ModelCall:
    """One model call: one effect, whatever number of attempts it takes.

    Attempt, pause, wait for the breaker, attempt: a transient failure is tried again as
    long as the run may wait for its provider; then the run is suspended.
    """

    def __init__(
        self,
        session: Session,
        key: str,
        provider: Provider,
        request: Request,
        earlier: int = 0,
    ) -> None:
        self._session, self._key = session, key
        self._provider = provider
        self._asked, self._request = enforce_schema(provider, request)
        self._retries = session.services.retry_budget(provider)
        name = f"{provider.name}/{provider.model}"
        self._breaker: CircuitBreaker = session.services.breakers.get(
            name, open_seconds=FIRST_OPEN_SECONDS, max_open_seconds=MAX_OPEN_SECONDS
        )
        failed = session.replay.recoveries.failed_attempts(key) + earlier
        self._wait = ProviderWait(session, key, name, failed)

    async def complete(self) -> Completion:
        """Return the reply, with usage.

        Raises `ProviderError` for a failure that is no use trying again, `Suspended` once
        it waited for too long, or `LimitReached` when the run's time is over.
        """
        while True:
            try:
                return await self._attempt(await self._admit())
            except ProviderError as error:
                if not error.retryable:
                    raise
                failed = error
            # Not inside the handler: an error raised there would carry this one, unredacted, as its context.
            await self._pause_after(failed)

    async def _admit(self) -> BreakerPass:
        """Return the permission of the breaker, once it gives one; waiters are served in order."""
        breaker, changed = self._breaker, self._session.breaker_changed
        try:
            while True:
                try:
                    return breaker.acquire(changed, waiter=self)
                except CircuitOpen as error:
                    if error.retry_after is None:  # a person switched the model off
                        raise
                    await self._wait.sleep_until_admitted(error)
        finally:
            breaker.remove_waiter(self)

    async def _pause_after(self, error: ProviderError) -> None:
        """Record a failed attempt, and wait until the next one may be made."""
        session, wait = self._session, self._wait
        delay = wait.next_delay(error)
        wait.failed += 1
        record = ErrorRecord.of(redact_error(session.secrets.redactor, error))
        wait.problem = record.message
        waited = session.active.take_waited()
        failed = AttemptFailed(wait.failed, record, delay, waited)
        session.writer.record(self._key, failed)
        await wait.sleep(delay)
        while not self._retries.spend():
            await wait.sleep(FIRST_DELAY)

    async def _attempt(self, ticket: BreakerPass) -> Completion:
        breaker, changed = self._breaker, self._session.breaker_changed
        reported = False
        try:
            reply = await self._bounded_reply()
            if not isinstance(reply, Completion):  # pyright: ignore[reportUnnecessaryIsInstance] - third-party providers
                kind = type(reply).__name__
                raise TypeError(f"complete() returned {kind}, not a Completion")
            check_size(self._provider, reply)
            reply = recover_call(reply, self._request)
            breaker.success(ticket, changed)
            reported = True
        except ProviderError as error:
            if _is_unhealthy(error):
                breaker.failure(ticket, changed)
                reported = True
            elif error.status == TOO_MANY_REQUESTS:
                breaker.cool_down(error.retry_after or 0.0)
            raise
        except (LimitReached, JournalError):
            raise
        except Exception as error:
            breaker.failure(ticket, changed)
            reported = True
            text = f"{self._provider.name} raised {type(error).__name__}: {format_error(error)}"
            raise ProviderError(text) from error
        finally:
            if not reported:
                breaker.cancel(ticket)
        self._retries.earn()
        return self._with_usage(reply)

    async def _bounded_reply(self) -> Completion:
        """Return the reply of one attempt, within its own time and the run's."""
        session, bound = self._session, self._request.timeout
        if getattr(self._provider, "bounds_attempts", False):
            bound = None  # it bounds each of its members
        remaining = session.remaining()
        timeout = shorter(bound, remaining)
        try:
            with session.active.working():
                async with asyncio.timeout(timeout):
                    return await self._reply()
        except ProviderTimeout:
            raise
        except TimeoutError as error:
            if timeout is None or timeout == remaining:
                raise out_of_time() from None
            text = f"{self._provider.name} gave no whole reply within {timeout:g} s"
            raise ProviderTimeout(text, retryable=True) from error

    async def _reply(self) -> Completion:
        """Return the reply: whole, or streamed if there are watchers."""
        session = self._session
        await session.writer.ensure_held()
        if not session.delta_watchers:
            return await self._asked.complete(self._request)
        reply: Completion | None = None
        shown = ReplyStream(
            session.secrets.redactor,
            self._key,
            self._wait.failed + 1,
            session.delta_watchers,
        )
        stream = stream_deltas(self._asked, self._request)
        async with contextlib.aclosing(stream) as deltas:
            async for delta in deltas:
                shown.receive(delta)
                reply = delta.completion or reply
        return cast("Completion", reply)  # `stream_deltas` ends with one, or raises

    def _with_usage(self, reply: Completion) -> Completion:
        """Return the reply with its usage, estimated if the provider did not tell it, and its cost."""
        usage = reply.usage
        meter = self._session.services.token_meter(self._provider)
        meter.learn(measure_request(self._request), usage.input_tokens)
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
            meter = self._session.services.token_meter(self._provider)
            sent = meter.estimate(measure_request(self._request))
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
