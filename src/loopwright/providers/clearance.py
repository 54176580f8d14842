"""Clearance: a model call is a way out too, so a provider is sent only what it may see."""

import contextlib
from collections.abc import AsyncGenerator

from .._internal import dataclasses
from ..errors import ClearanceRefused
from ..labels import Label, check_label, is_at_least
from ..messages import Completion
from .base import Capabilities, Delta, Provider, Request, bounds_attempts, stream_deltas
from .fallback import check_provider, close_all, get_secrets


class ClearedProvider:
    """A provider that may see requests up to a label: `ClearedProvider(provider, "normal")`.

    A request of a run that has read something more sensitive is refused before anything is sent, which ends the run as
    failed; in a `FallbackProvider` it goes to the next that may see it. A request without a label is refused too. Put
    `TextTools` around it, or it around `TextTools`.

    Args:
        provider: the provider.
        clearance: the highest label that it may see: "public", "normal", "sensitive" or "secret".

    Raises `ConfigError` for a label that is none.
    """

    def __init__(self, provider: Provider, clearance: Label) -> None:
        check_provider("provider", provider)
        check_label(clearance)
        self._provider = provider
        self.clearance: Label = clearance

    @property
    def name(self) -> str:
        """That of the provider."""
        return self._provider.name

    @property
    def model(self) -> str:
        """That of the provider."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """Those of the provider, one reply for each request."""
        return dataclasses.replace(self._provider.capabilities, max_samples=1)

    @property
    def bounds_attempts(self) -> bool:
        """Whether the provider asks several others."""
        return bounds_attempts(self._provider)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those of the provider."""
        return get_secrets(self._provider)

    def __repr__(self) -> str:
        return f"ClearedProvider({self._provider!r}, {self.clearance!r})"

    async def complete(self, request: Request) -> Completion:
        """Ask the provider, if it may see the request."""
        self._check(request)
        return await self._provider.complete(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream the reply of the provider, if it may see the request."""
        self._check(request)
        async with contextlib.aclosing(
            stream_deltas(self._provider, request)
        ) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        """Close the provider."""
        await close_all([self._provider])

    def _check(self, request: Request) -> None:
        if request.label != self.clearance and is_at_least(
            request.label, self.clearance
        ):
            raise ClearanceRefused(
                f"{self.name}/{self.model}: the request is {request.label}, and it may see up to {self.clearance}",
                retryable=False,
            )
