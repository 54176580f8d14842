"""One provider out of several: where a model fails, the next one is asked within the same call."""

import contextlib
import dataclasses
import math
from collections.abc import AsyncGenerator, Callable, Iterable

from ..clock import Clock, SystemClock
from ..errors import (
    ConfigError,
    ContextTooLong,
    ProviderError,
    ProviderTimeout,
    text_of,
)
from ..messages import Completion
from .base import Capabilities, Delta, Provider, Request, deltas_of

LONGEST_REASON = 300  # letters of an error that a flag repeats


def another_may_do(error: ProviderError) -> bool:
    """Every failure but a conversation that is too long: the runtime shortens it and asks again.

    What a provider raises that is no `ProviderError` comes here as one that cannot be tried again, its cause with it.
    """
    return not isinstance(error, ContextTooLong)


class FallbackProvider:
    """Asks the first provider; where it fails, the next one, within the same call: the run does not begin again.

    A provider that failed for a passing reason (`ProviderError.retryable`) is then asked after the others, until it is
    asked and answers, or `cool_down` is over. A flag of the completion tells of each that was skipped, and why. For
    prices, limits and breakers the wrapper is one provider, named "fallback"; `Completion.model` says who answered.

    Args:
        providers: in order of preference, one at least.
        cool_down: seconds for which one that failed is passed over.
        when: whether an error lets the next one try; without it, every `ProviderError` but `ContextTooLong`.
        clock: time, for tests.

    Raises `ConfigError` without providers, or for something that is none.
    """

    def __init__(
        self,
        *providers: Provider,
        cool_down: float = 30.0,
        when: Callable[[ProviderError], bool] = another_may_do,
        clock: Clock | None = None,
    ) -> None:
        if not providers:
            raise ConfigError(
                "providers: FallbackProvider needs one at least, in order of preference"
            )
        for place, provider in enumerate(providers, 1):
            check_provider(f"provider {place} of FallbackProvider", provider)
        if not _is_seconds(cool_down):
            raise ConfigError(
                f"cool_down must be a number of seconds, 0 or more, got {cool_down!r}"
            )
        if not callable(when):  # pyright: ignore[reportUnnecessaryComparison] - callers without a type checker
            raise ConfigError(f"when: must be a function of the error, got {when!r}")
        self._members = [Member(provider) for provider in providers]
        self._cool_down, self._when = cool_down, when
        self._clock: Clock = clock or SystemClock()

    @property
    def name(self) -> str:
        """ "fallback"."""
        return "fallback"

    @property
    def model(self) -> str:
        """The models in order of preference: "gpt-4.1-mini|qwen3"."""
        return "|".join(member.provider.model for member in self._members)

    @property
    def capabilities(self) -> Capabilities:
        """What every one of them can do."""
        able = [member.provider.capabilities for member in self._members]
        return Capabilities(
            native_tools=all(one.native_tools for one in able),
            json_schema=all(one.json_schema for one in able),
            stop=all(one.stop for one in able),
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of all of them."""
        return tuple(
            key for member in self._members for key in secrets_of(member.provider)
        )

    def __repr__(self) -> str:
        return (
            f"FallbackProvider({', '.join(member.label for member in self._members)})"
        )

    async def complete(self, request: Request) -> Completion:
        """Ask them one after another, until one answers.

        Raises an error that must not be passed on (see `when`) as it is. When all have failed, the error names each of
        them and why, and is otherwise the one that promises most: `ContextTooLong`, which the runtime can mend; else
        the retryable one with the shortest wait; else the last.
        """
        attempt = self._attempt()
        for member in attempt.order:
            try:
                return attempt.flagged(member, await member.provider.complete(request))
            except Exception as error:  # noqa: BLE001 - strangers' providers may raise anything
                self._take_failure(attempt, member, _as_ours(member, error))
        raise attempt.failure()

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """`complete` piece by piece; the next one is asked only as long as nothing was told.

        One that cannot stream is asked for the whole.
        """
        attempt = self._attempt()
        for member in attempt.order:
            has_told = False
            try:
                async with contextlib.aclosing(
                    deltas_of(member.provider, request)
                ) as deltas:
                    async for delta in deltas:
                        has_told = has_told or bool(
                            delta.text or delta.reasoning or delta.call
                        )
                        completion = delta.completion and attempt.flagged(
                            member, delta.completion
                        )
                        yield dataclasses.replace(delta, completion=completion)
                return
            except Exception as error:  # noqa: BLE001 - strangers' providers may raise anything
                failure = _as_ours(member, error)
                self._take_failure(attempt, member, failure)
                if has_told:
                    raise failure from failure.__cause__
        raise attempt.failure()

    async def aclose(self) -> None:
        """Close each of them once, also where closing one fails."""
        await close_all(member.provider for member in self._members)

    def _attempt(self) -> "Attempt":
        now = self._clock.monotonic()
        resting = [member for member in self._members if member.rests_until > now]
        return Attempt(self._members, resting)

    def _take_failure(
        self, attempt: "Attempt", member: "Member", error: ProviderError
    ) -> None:
        """Keep the failure; raise it if it is not to be passed on."""
        if error.retryable:
            member.rests_until, member.reason = (
                self._clock.monotonic() + self._cool_down,
                _reason(error),
            )
        if not self._when(error):
            raise error from error.__cause__
        attempt.failures.append((member, error))


class Member:
    """A provider of a wrapper, and until when it rests after a failure."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.rests_until = -math.inf
        self.reason = ""

    @property
    def label(self) -> str:
        """Who serves which model."""
        return f"{self.provider.name}/{self.provider.model}"


class Attempt:
    """One call on its way from provider to provider; those that rest come last, since a call beats none."""

    def __init__(self, members: list[Member], resting: list[Member]) -> None:
        self._members, self._resting = members, resting
        self.order = [member for member in members if member not in resting] + resting
        self.failures: list[tuple[Member, ProviderError]] = []

    def flagged(self, member: Member, completion: Completion) -> Completion:
        """What `member` answered, with who was skipped and which model it was; it need not rest any more."""
        member.rests_until = -math.inf
        failed = {id(other): _reason(error) for other, error in self.failures}
        skipped: list[str] = []
        for other in self._members:
            if id(other) in failed:
                skipped.append(f"fallback: {other.label}: {failed[id(other)]}")
            elif other in self._resting and self._members.index(
                other
            ) < self._members.index(member):
                skipped.append(
                    f"fallback: {other.label}: passed over after {other.reason}"
                )
        model = completion.model or member.provider.model
        return dataclasses.replace(
            completion, model=model, flags=(*completion.flags, *skipped)
        )

    def failure(self) -> ProviderError:
        """The error that promises most, in the name of all; of those that promise as much, the last."""
        told = "; ".join(
            f"{member.label}: {text_of(error)}" for member, error in self.failures
        )
        main = max((error for _, error in reversed(self.failures)), key=_promise)
        kind = next(
            (
                kind
                for kind in (ContextTooLong, ProviderTimeout)
                if isinstance(main, kind)
            ),
            ProviderError,
        )
        failure = kind(
            f"every provider failed: {told}",
            status=main.status,
            retryable=main.retryable,
            retry_after=main.retry_after,
        )
        failure.__cause__ = main
        return failure


def _promise(error: ProviderError) -> tuple[bool, bool, float]:
    """What can be hoped for after an error, to be compared: one to mend, one to wait for, and how short the wait is."""
    wait = error.retry_after or 0.0 if error.retryable else 0.0
    return isinstance(error, ContextTooLong), error.retryable, -wait


def _as_ours(member: Member, error: Exception) -> ProviderError:
    """What a provider raised, as what it should have raised."""
    if isinstance(error, ProviderError):
        return error
    failure = ProviderError(
        f"{member.provider.name} raised {type(error).__name__}: {text_of(error)}"
    )
    failure.__cause__ = error
    return failure


def _reason(error: ProviderError) -> str:
    text = text_of(error)
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < math.inf


async def close_all(providers: Iterable[Provider]) -> None:
    """Close each provider that can be closed once, also where closing one fails."""
    async with contextlib.AsyncExitStack() as closing:
        for provider in {id(provider): provider for provider in providers}.values():
            close = getattr(provider, "aclose", None)
            if close is not None:
                closing.push_async_callback(close)


def secrets_of(provider: object) -> tuple[str, ...]:
    """The API keys that a provider tells of, so that they are taken out of all texts."""
    return tuple(getattr(provider, "secrets", ()))


def check_provider(field: str, provider: object) -> None:
    """Raise `ConfigError` naming the field unless something is a provider."""
    if isinstance(provider, type) or not callable(getattr(provider, "complete", None)):
        raise ConfigError(
            f"{field}: must be a provider, such as OpenAIProvider('gpt-4.1-mini'), got {provider!r}"
        )
