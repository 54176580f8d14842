"""The only place where a provider is called: breaker, deadline, retries."""

import asyncio
import contextlib
import functools
import itertools
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, cast

from ..._internal import dataclasses
from ..._internal.own_errors import read_own_error
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
from ...messages import Completion, ToolSpec, Usage
from ...providers.base import (
    Provider,
    Request,
    SamplingProvider,
    admit_attempt,
    bounds_attempts,
    check_size,
    stream_deltas,
)
from ...providers.call_names import (
    list_changed_names,
    restore_delta,
    restore_names,
)
from ...providers.context.tokens import BYTES_PER_TOKEN, TokenMeter
from ...providers.final_tool import enforce_schema, find_sent
from ...providers.recovered_calls import recover_call
from ...resilience.call_guard import CallGuard
from ...resilience.timeouts import shorter
from ...security.redaction.errors import redact_error
from ..session.session import Session, out_of_time
from .provider_wait import FIRST_DELAY, ProviderWait
from .stream import ReplyStream

_get_name: Callable[[ToolSpec], str] = operator.attrgetter("name")
_get_provider_calls = operator.attrgetter("provider_calls")
Announce: TypeAlias = Callable[[Request], Awaitable[None]]
"""Records what is sent, durable on return."""


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
        announce: Announce,
        meter: TokenMeter,
        earlier: int = 0,
        agent: str = "",
    ) -> None:
        self._session, self._key, self._agent = session, key, agent
        self._announce, self._meter, self._earlier = announce, meter, earlier
        self._provider = self._asked = provider
        self._guard = CallGuard(session.services.breakers, session.breaker_changed)
        self._request = dataclasses.replace(request, guard=self._guard)
        if request.schema is not None:
            self._asked, self._request = enforce_schema(provider, self._request)
        self._retries = session.services.retry_budget(provider)

    @functools.cached_property
    def _wait(self) -> ProviderWait:
        """The waiting of this call; attempts that failed before make its pauses longer."""
        session, provider = self._session, self._provider
        name = f"{provider.name}/{provider.model}"
        failed = session.replay.recoveries.failed_attempts(self._key) + self._earlier
        return ProviderWait(session, self._key, name, failed)

    @functools.cached_property
    def _changed_names(self) -> Mapping[str, str]:
        return list_changed_names(tuple(map(_get_name, self._request.tools)))

    async def complete(self) -> tuple[Completion, ...]:
        """Return the reply, with usage; several where the request asks for them, with their usage in the first.

        Raises `ProviderError` for a failure that is no use trying again, `Suspended` once
        it waited for too long, or `LimitReached` when the run's time is over.
        """
        sent = self._request
        if self._asked is not self._provider:
            sent = find_sent(self._asked, sent)
        await self._announce(sent)
        try:
            while True:
                try:
                    return await self._attempt()
                except ProviderError as error:
                    failed = error
                # Not inside the handler: an error raised there would carry this one, unredacted, as its context.
                await self._wait_after(failed)
        finally:
            if self._guard.queues:
                self._guard.cancel_waiting()

    async def _wait_after(self, error: ProviderError) -> None:
        """Wait until another attempt may be made; raise the error if it is no use trying again."""
        if isinstance(error, CircuitOpen) and error.retry_after is not None:
            await self._wait.sleep_until_admitted(error)
        elif error.retryable:
            await self._pause_after(error)
        else:
            raise error

    async def _pause_after(self, error: ProviderError) -> None:
        """Record a failed attempt, and wait until the next one may be made."""
        self._guard.cancel_waiting()  # while it waits by itself, others go first
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

    async def _attempt(self) -> tuple[Completion, ...]:
        """Make one attempt; raise `CircuitOpen` if no breaker lets it through."""
        sent = self._session.budget.sent
        # One that asks several others bounds the attempt of each.
        bound = None if bounds_attempts(self._provider) else self._request.timeout
        try:
            with admit_attempt(self._provider, self._request):
                sent[self._key] = self._estimate_sent
                replies = tuple(map(self._accept, await self._bounded_replies(bound)))
        except (ProviderError, LimitReached, JournalError):
            raise
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - a third-party provider may raise anything
            error = read_own_error(raised)
            text = f"{self._provider.name} raised {type(error).__name__}: {format_error(error)}"
            # A task that it shares with other calls was cancelled, which says nothing of this request.
            raise ProviderError(text, retryable=error is not raised) from error
        finally:
            sent.pop(self._key, None)
        self._retries.earn()
        return self._with_usage(replies)

    def _accept(self, reply: Completion) -> Completion:
        """Return what a provider returned as a reply that can be used; raise `TypeError` or `ProviderError`."""
        if not isinstance(reply, Completion):  # pyright: ignore[reportUnnecessaryIsInstance] - third-party providers
            kind = type(reply).__name__
            raise TypeError(f"complete() returned {kind}, not a Completion")
        check_size(self._provider, reply)
        if not reply.calls:
            return recover_call(reply, self._request)
        changed = self._changed_names
        return restore_names(reply, changed) if changed else reply

    async def _bounded_replies(self, bound: float | None) -> tuple[Completion, ...]:
        """Return the replies of one attempt, within so many seconds and the run's time."""
        session = self._session
        timeout = remaining = bound
        try:
            with session.active.working as seconds:
                remaining = session.remaining_at(seconds)
                timeout = shorter(bound, remaining)
                async with asyncio.timeout(timeout):
                    return await self._ask()
        except ProviderTimeout:
            raise
        except TimeoutError as error:
            if timeout is None or timeout == remaining:
                raise out_of_time() from None
            text = f"{self._provider.name} gave no whole reply within {timeout:g} s"
            raise ProviderTimeout(text, retryable=True) from error

    async def _ask(self) -> tuple[Completion, ...]:
        """Return the reply: whole, or streamed if there are watchers; several come whole."""
        await self._session.writer.ensure_held()
        if self._request.sampling.n is not None:
            provider = cast("SamplingProvider", self._provider)
            return (await provider.sample(self._request))[: self._request.sampling.n]
        if not self._session.wants_deltas:
            return (await self._asked.complete(self._request),)
        return (await self._stream(),)

    async def _stream(self) -> Completion:
        session = self._session
        reply: Completion | None = None
        shown = ReplyStream(
            session.secrets.redactor,
            self._key,
            self._wait.failed + 1,
            session.held.find_watcher(self._key),
            self._agent,
        )
        stream = stream_deltas(self._asked, self._request)
        async with contextlib.aclosing(stream) as deltas:
            async for delta in deltas:
                shown.receive(restore_delta(delta, self._changed_names))
                reply = delta.completion or reply
        return cast("Completion", reply)  # `stream_deltas` ends with one, or raises

    def _with_usage(self, replies: tuple[Completion, ...]) -> tuple[Completion, ...]:
        """Return the replies with their usage in the first, estimated if the provider did not tell it, and its cost."""
        if not replies:
            raise ProviderError(f"{self._provider.name} returned no reply")
        reply, *others = replies
        usage = reply.usage
        self._meter.learn(self._request, usage.input_tokens)
        if usage.input_tokens is None or usage.output_tokens is None:
            usage = self._estimate(replies)
        used = itertools.chain.from_iterable(map(_get_provider_calls, replies))
        usage = self._add_cost(usage, reply.model, used)
        if usage is reply.usage:
            return replies
        return (dataclasses.replace(reply, usage=usage), *others)

    def _add_cost(
        self, usage: Usage, model: str = "", used: Iterable[str] = ()
    ) -> Usage:
        """Return a usage with its cost, where it has none and there are prices."""
        services, provider = self._session.services, self._provider
        has_prices = services.limits.max_cost is not None or services.prices.are_any
        if usage.cost is not None or not has_prices:
            return usage
        price = services.prices.find(provider.name, provider.model, model)
        if price is None:
            return usage
        return dataclasses.replace(usage, cost=price.cost(usage, used))

    def _estimate_sent(self) -> Usage:
        """Return what the request uses if there is never a reply."""
        tokens = self._meter.count_request(self._request)
        return self._add_cost(Usage(tokens, 0, estimated=True))

    def _estimate(self, replies: tuple[Completion, ...]) -> Usage:
        """Return the usage of replies, estimated where the provider did not tell it."""
        usage = replies[0].usage
        sent, received = usage.input_tokens, usage.output_tokens
        if sent is None:
            sent = self._meter.count_request(self._request)
        if received is None:
            characters = sum(map(_count_characters, replies))
            received = characters // BYTES_PER_TOKEN + 1
        return dataclasses.replace(
            usage, input_tokens=sent, output_tokens=received, estimated=True
        )


def _count_characters(reply: Completion) -> int:
    characters = len(reply.text or reply.answer or "")
    characters += sum(len(thought.text) for thought in reply.reasoning)
    calls = [len(call.name) + len(str(call.arguments)) for call in reply.calls]
    return characters + sum(calls)
