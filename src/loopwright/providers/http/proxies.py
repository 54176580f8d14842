"""Proxies of the environment, as curl and httpx read it: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."""

import asyncio
import base64
import contextlib
import ssl
import urllib.request
from collections.abc import AsyncGenerator
from urllib.parse import unquote

import httpx
from pydantic import SecretStr

from ...errors import ConfigError

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""As many connections as there are calls; httpx allows 100 otherwise, and others would wait."""
SCHEMES = ("http", "https", "socks5", "socks5h")


def find_proxy(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy that the environment names for a URL; `None` for a direct connection.

    Raises:
        ConfigError: the variable holds no URL of a proxy. Its value, which may have a password, is not shown.
    """
    found = urllib.request.getproxies()
    given = (found.get(url.scheme) or found.get("all") or "").strip()
    # With the port, since NO_PROXY may name one.
    if not given or urllib.request.proxy_bypass(f"{url.host}:{_find_port(url)}"):
        return None
    variable = f"{url.scheme.upper()}_PROXY" if url.scheme in found else "ALL_PROXY"
    with contextlib.suppress(ValueError, httpx.InvalidURL):
        proxy = httpx.Proxy(given if "://" in given else f"http://{given}")
        if proxy.url.scheme in SCHEMES and proxy.url.host:
            return proxy
    raise ConfigError(
        f"{variable}: not the URL of a proxy, such as http://proxy.example:3128; correct it, or name {url.host} in NO_PROXY"
    )


def _find_port(url: httpx.URL) -> int:
    return url.port or {"https": 443}.get(url.scheme, 80)


def list_secrets(proxy: httpx.Proxy | None) -> list[SecretStr]:
    """Return the password of a proxy, as it is written, as it is meant, and as a header sends it with the name."""
    if proxy is None or proxy.raw_auth is None:
        return []
    password = proxy.raw_auth[1].decode()
    header = base64.b64encode(b":".join(proxy.raw_auth)).decode()
    return [SecretStr(text) for text in {password, unquote(password), header} if text]


def is_proxy_refusal(error: Exception) -> bool:
    """Whether a proxy wants another name and password, which no further attempt has."""
    return isinstance(error, httpx.ProxyError) and str(error).startswith("407")


class ProxyClient:
    """The connections of one event loop through a proxy; httpx speaks with it."""

    def __init__(self, proxy: httpx.Proxy, tls: ssl.SSLContext) -> None:
        try:
            self.client = httpx.AsyncClient(
                proxy=proxy, verify=tls, trust_env=False, limits=LIMITS
            )
        except ImportError as error:
            raise ConfigError(
                f"a SOCKS proxy needs httpx with its extra: pip install 'httpx[socks]' ({error})"
            ) from None
        self._lifetime = self._close_with_loop()

    async def start(self) -> None:
        """Have the connections closed when the event loop ends, as `asyncio.run` closes open generators."""
        await anext(self._lifetime)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._lifetime.aclose()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self.client.aclose()
