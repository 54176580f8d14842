"""A provider made of several: where one fails, the next one is asked within the same call."""

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import AsyncGenerator, Callable, Iterable

from .._internal.own_errors import read_own_error
from ..clock import Clock, SystemClock
from ..errors import (
    CircuitOpen,
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
    format_error,
)
from ..messages import Completion
from .base import (
    Capabilities,
    Delta,
    Provider,
    Request,
    admit_attempt,
    bounds_attempts,
    stream_deltas,
)
from .unseen_attachments import add_flag, describe_unseen

MAX_REASON = 300  # characters of an error that a flag repeats


def should_fall_back(error: ProviderError) -> bool:
    """Return whether another provider may succeed: always, except for a conversation that is too long.

    The runtime shortens such a conversation and asks again.
    """
    return not isinstance(error, ContextTooLong)


class FallbackProvider:
    """Asks the first provider and, where it fails, the next one within the same call; the run continues.

    A provider that failed for a transient reason (`ProviderError.retryable`) is asked last for `cool_down` seconds, or
    until it answers. A flag of the completion names each provider that was skipped, and why. Each provider has
    `Limits.model_timeout` and its own circuit breaker, named "PROVIDER/MODEL": one whose breaker is open is skipped, and
    if all are, the call waits for the first that lets it through. Prices and limits see one provider, named "fallback";
    `Completion.model` names the model that answered.

    Args:
        providers: at least one, in order of preference.
        cool_down: seconds during which a provider that failed is asked last.
        when: whether an error lets the next provider try; by default every `ProviderError` but `ContextTooLong`. An
            exception of another type is converted to a `ProviderError` that is not retryable, with the cause.
        clock: the source of monotonic time, for tests.

    Raises:
        ConfigError: there is no provider, or an argument has the wrong type.
    """

    def __init__(
        self,
        *providers: Provider,
        cool_down: float = 30.0,
        when: Callable[[ProviderError], bool] = should_fall_back,
        clock: Clock | None = None,
    ) -> None:
        if not providers:
            raise ConfigError(
                "providers: FallbackProvider needs one at least, in order of preference"
            )
        for place, provider in enumerate(providers, 1):
            check_provider(f"provider {place} of FallbackProvider", provider)
        if not _is_duration(cool_down):
            raise ConfigError(
                f"cool_down must be a number of seconds, 0 or more, got {cool_down!r}"
            )
        if not callable(when):  # pyright: ignore[reportUnnecessaryComparison] - callers without a type checker
            raise ConfigError(f"when: must be a function of the error, got {when!r}")
        self._members = [
            Member(rank, provider) for rank, provider in enumerate(providers)
        ]
        self._cool_down, self._when = cool_down, when
        self._clock: Clock = clock or SystemClock()

    bounds_attempts = True
    """Whether `Request.timeout` and `Request.guard` are applied to each member, and not to the whole."""

    @property
    def name(self) -> str:
        """The text "fallback"."""
        return "fallback"

    @property
    def model(self) -> str:
        """The models in order of preference: "gpt-4.1-mini|qwen3"."""
        return "|".join(member.provider.model for member in self._members)

    @property
    def capabilities(self) -> Capabilities:
        """What all of the providers support; attachments that only some take are described to the others."""
        supported = [member.provider.capabilities for member in self._members]
        return Capabilities(
            native_tools=all(one.native_tools for one in supported),
            json_schema=all(one.json_schema for one in supported),
            stop=all(one.stop for one in supported),
            schema_with_tools=all(one.schema_with_tools for one in supported),
            context_tokens=_find_least(one.context_tokens for one in supported),
            max_output_tokens=_find_greatest(
                one.max_output_tokens for one in supported
            ),
            provider_tools=tuple(
                kind
                for kind in supported[0].provider_tools
                if all(kind in one.provider_tools for one in supported)
            ),
            images=any(one.images for one in supported),
            documents=any(one.documents for one in supported),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of all providers."""
        return tuple(
            key for member in self._members for key in get_secrets(member.provider)
        )

    def __repr__(self) -> str:
        return (
            f"FallbackProvider({', '.join(member.label for member in self._members)})"
        )

    async def complete(self, request: Request) -> Completion:
        """Ask the providers one after another until one answers.

        An error that `when` refuses is raised as it is. If all fail, the error names each provider with its reason; its
        type and fields are those of the most useful error: `ContextTooLong`, which the runtime can repair, else the
        retryable one with the shortest wait, else the `CircuitOpen` with the shortest, else the last.
        """
        call = self._begin_call()
        for member in call.order:
            try:
                asked, flag = member.adapt(request)
                with admit_attempt(member.provider, asked):
                    async with asyncio.timeout(member.find_bound(asked)):
                        completion = await member.provider.complete(asked)
                return call.accept(member, add_flag(completion, flag))
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a third-party provider may raise anything
                self._record_failure(call, member, _to_provider_error(member, error))
        raise call.build_error()

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream what `complete` returns; the next provider is asked only while nothing has been yielded.

        A provider that cannot stream is asked for the whole reply.
        """
        call = self._begin_call()
        for member in call.order:
            has_yielded = False
            try:
                asked, flag = member.adapt(request)
                with admit_attempt(member.provider, asked):
                    stream = stream_deltas(member.provider, asked)
                    bound = member.find_bound(asked)
                    async with contextlib.aclosing(stream) as deltas:
                        async for delta in _bound_stream(deltas, bound):
                            has_yielded = has_yielded or _has_content(delta)
                            yield call.accept_delta(member, delta, flag)
                return
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a third-party provider may raise anything
                failure = _to_provider_error(member, error)
                self._record_failure(call, member, failure)
                if has_yielded:
                    raise failure from failure.__cause__
        raise call.build_error()

    async def aclose(self) -> None:
        """Close each provider once, even if closing another fails."""
        await close_all(member.provider for member in self._members)

    def _begin_call(self) -> "FallbackCall":
        now = self._clock.monotonic()
        cooling = [member for member in self._members if member.cooling_until > now]
        return FallbackCall(self._members, cooling)

    def _record_failure(
        self, call: "FallbackCall", member: "Member", error: ProviderError
    ) -> None:
        """Record the failure, and raise it if the next provider must not try."""
        # A rejection says nothing new: the breaker knows better when the provider is worth asking.
        if error.retryable and not isinstance(error, CircuitOpen):
            member.cooling_until = self._clock.monotonic() + self._cool_down
            member.reason = _summarize(error)
        if not self._when(error):
            raise error from error.__cause__
        call.failures[member] = error


class Member:
    """A provider of the wrapper, its rank in order of preference, and until when it cools down."""

    def __init__(self, rank: int, provider: Provider) -> None:
        self.rank = rank
        self.provider = provider
        self.cooling_until = -math.inf
        self.reason = ""

    @property
    def label(self) -> str:
        """The provider and the model, as "PROVIDER/MODEL"."""
        return f"{self.provider.name}/{self.provider.model}"

    def adapt(self, request: Request) -> tuple[Request, str]:
        """Return the request without attachments of tools that it does not take, and a flag that says so."""
        able = self.provider.capabilities
        conversation, flag = describe_unseen(request.conversation, able)
        if not flag:
            return request, flag
        return dataclasses.replace(request, conversation=conversation), flag

    def find_bound(self, request: Request) -> float | None:
        """Return the seconds that an attempt may take; one that asks several others bounds each of them itself."""
        return None if bounds_attempts(self.provider) else request.timeout


class FallbackCall:
    """One call that passes from provider to provider; those that cool down are asked last rather than not at all."""

    def __init__(self, members: list[Member], cooling: list[Member]) -> None:
        self._members, self._cooling = members, cooling
        self.order = [member for member in members if member not in cooling] + cooling
        self.failures: dict[Member, ProviderError] = {}

    def accept(self, member: Member, completion: Completion) -> Completion:
        """End the cool-down of `member`; return its completion with the skipped providers and its model's name."""
        member.cooling_until = -math.inf
        skipped = [self._explain_skip(other, member) for other in self._members]
        return dataclasses.replace(
            completion,
            model=completion.model or member.provider.model,
            flags=(*completion.flags, *filter(None, skipped)),
        )

    def accept_delta(self, member: Member, delta: Delta, flag: str) -> Delta:
        """Return the delta, its completion as `accept` returns it, with one more flag unless that is empty."""
        if delta.completion is None:
            return delta
        completion = self.accept(member, add_flag(delta.completion, flag))
        return dataclasses.replace(delta, completion=completion)

    def _explain_skip(self, other: Member, answered: Member) -> str:
        """Return a flag that says why `other` did not answer; an empty text if it was not asked to."""
        failure = self.failures.get(other)
        if failure is not None:
            return f"fallback: {other.label}: {_summarize(failure)}"
        if other in self._cooling and other.rank < answered.rank:
            return f"fallback: {other.label}: passed over after {other.reason}"
        return ""

    def build_error(self) -> ProviderError:
        """Return an error that names every failure and has the fields of the most useful one."""
        reasons = "; ".join(
            f"{member.label}: {format_error(error)}"
            for member, error in self.failures.items()
        )
        # `max` returns the first of equals, so the last failure wins a tie.
        main = max(reversed(self.failures.values()), key=_rate_usefulness)
        failure = _choose_type(main)(
            f"every provider failed: {reasons}",
            status=main.status,
            retryable=main.retryable,
            retry_after=main.retry_after,
        )
        failure.__cause__ = main
        return failure


async def _bound_stream(
    deltas: AsyncGenerator[Delta], timeout: float | None
) -> AsyncGenerator[Delta]:
    """Yield the deltas of a stream; raise `TimeoutError` if they do not end in time."""
    loop = asyncio.get_running_loop()
    until = math.inf if timeout is None else loop.time() + timeout
    while True:
        # A time-out may not span a `yield`: the consumer runs in between.
        async with asyncio.timeout_at(None if math.isinf(until) else until):
            delta = await anext(deltas, None)
        if delta is None:
            return
        yield delta


def _has_content(delta: Delta) -> bool:
    return bool(delta.text or delta.reasoning or delta.call)


def _choose_type(error: ProviderError) -> type[ProviderError]:
    """Return the library's own type of an error, whose constructor is known."""
    for kind in (ContextTooLong, CircuitOpen, ProviderTimeout):
        if isinstance(error, kind):
            return kind
    return ProviderError


def _rate_usefulness(error: ProviderError) -> tuple[int, float]:
    """Return a sort key: what the runtime can repair, retry, wait for; then the shortest wait first."""
    wait = -(error.retry_after or 0.0)
    if isinstance(error, ContextTooLong):
        return 3, wait
    if isinstance(error, CircuitOpen):
        return 0 if error.retry_after is None else 1, wait
    return (2, wait) if error.retryable else (0, 0.0)


def _to_provider_error(
    member: Member, raised: Exception | asyncio.CancelledError
) -> ProviderError:
    """Return the error itself, or a `ProviderError` with it as the cause; raise the cancellation of the task."""
    error = read_own_error(raised)
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, TimeoutError):
        text = f"{member.provider.name} gave no whole reply in time"
        return ProviderTimeout(text, retryable=True)
    failure = ProviderError(
        f"{member.provider.name} raised {type(error).__name__}: {format_error(error)}",
        retryable=error is not raised,
    )
    failure.__cause__ = error
    return failure


def _summarize(error: ProviderError) -> str:
    text = format_error(error)
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


async def close_all(providers: Iterable[Provider]) -> None:
    """Close each provider that can be closed once, even if closing another fails."""
    async with contextlib.AsyncExitStack() as closing:
        for provider in {id(provider): provider for provider in providers}.values():
            close = getattr(provider, "aclose", None)
            if close is not None:
                closing.push_async_callback(close)


def get_secrets(provider: object) -> tuple[str, ...]:
    """Return the texts, such as API keys, that a provider asks the runtime to remove from everything it records."""
    return tuple(getattr(provider, "secrets", ()))


def check_provider(field: str, provider: object) -> None:
    """Raise `ConfigError` with the field's name unless the value is a provider."""
    if isinstance(provider, type) or not callable(getattr(provider, "complete", None)):
        raise ConfigError(
            f"{field}: must be a provider, such as OpenAIProvider('gpt-4.1-mini'), got {provider!r}"
        )


def _find_greatest(sizes: Iterable[int | None]) -> int | None:
    """Return the greatest of sizes; `None` if one is not known."""
    known = [*sizes]
    return None if None in known else max(filter(None, known))


def _find_least(sizes: Iterable[int | None]) -> int | None:
    """Return the least of sizes; `None` if one is not known."""
    known = [*sizes]
    return None if None in known else min(filter(None, known))
