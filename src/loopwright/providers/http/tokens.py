"""Tokens that a callback fetches for each request: Entra for Azure, Google Cloud for Vertex."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from ...errors import ProviderError

TokenCallback: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns a bearer token that is valid now, at once or awaited; the library of the cloud caches and renews it."""


_HEADER_VALUE = re.compile(r"[!-~]++")


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
            fetched = self._fetch()
            token = await fetched if inspect.isawaitable(fetched) else fetched
        except Exception as error:
            kind = type(error).__name__
            text = f"token: the callback that was given raised {kind}"
            raise ProviderError(text, retryable=True) from error
        if not _is_token(token):
            raise ProviderError("token: the callback must return a token as text")
        return {"authorization": f"Bearer {token}"}


def _is_token(value: object) -> bool:
    """Return whether a value can stand in a header."""
    return isinstance(value, str) and _HEADER_VALUE.fullmatch(value) is not None
