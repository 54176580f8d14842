"""Tokens that a callback fetches for each request: Entra for Azure, Google Cloud for Vertex."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from pydantic import SecretStr

from ..._internal.regex import compile_late
from ...errors import ProviderError

TokenCallback: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a bearer token that is valid now, at once or awaited; the library of the cloud caches and renews it."""


_HEADER_VALUE = compile_late(r"[!-~]++")


MAX_FETCHED = 8  # tokens; those that requests under way may have
SECRET_HEADERS = frozenset({"authorization", "x-amz-security-token"})


class FetchedSecrets:
    """The last tokens and signatures that requests were sent with, which a server may echo."""

    def __init__(self) -> None:
        self._secrets: deque[SecretStr] = deque(maxlen=MAX_FETCHED)

    def remember(self, headers: Mapping[str, str]) -> None:
        """Hide the secret values of these headers from now on."""
        for name, value in headers.items():
            secret = SecretStr(value.removeprefix("Bearer "))
            if name.lower() in SECRET_HEADERS and secret not in self._secrets:
                self._secrets.append(secret)

    def hide(self, text: str) -> str:
        """Return the text with the secrets replaced by asterisks."""
        for secret in self._secrets:
            text = text.replace(secret.get_secret_value(), "***")
        return text


class BearerToken:
    """The header of a request with the token of a callback.

    Args:
        fetch: returns the token.
    """

    def __init__(self, fetch: TokenCallback) -> None:
        self._fetch = fetch

    async def __call__(self, body: bytes) -> Mapping[str, str]:
        """Return the header; raise a retryable `ProviderError` that names the error of the callback and no text of it."""
        try:
            token = await self._fetch_token()
        except Exception as error:  # noqa: BLE001 - a cloud's library raises what it likes
            kind = type(error).__name__
        else:
            if not _is_token(token):
                raise ProviderError("token: the callback must return a token as text")
            return {"authorization": f"Bearer {token}"}
        # Raised outside of the except block, since the error of the callback may show a secret.
        text = f"token: the callback that was given raised {kind}"
        raise ProviderError(text, retryable=True)

    async def _fetch_token(self) -> object:
        """Call the callback; a plain function in a thread, since it may ask a server."""
        if inspect.iscoroutinefunction(self._fetch):
            return await self._fetch()
        fetched = await asyncio.to_thread(self._fetch)
        return await fetched if inspect.isawaitable(fetched) else fetched


def _is_token(value: object) -> bool:
    """Return whether a value can stand in a header."""
    return isinstance(value, str) and _HEADER_VALUE.fullmatch(value) is not None
