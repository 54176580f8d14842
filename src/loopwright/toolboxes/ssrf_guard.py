"""The SSRF guard: an httpx transport that connects only to addresses that it has checked."""

import asyncio
import contextlib
import copy
import functools
import ssl
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Self, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpcore
import httpx

from ..errors import ToolError
from ..resilience import name_lookups
from ..resilience.timeouts import WorkerThreads
from .ip_policy import PORTS, Address, Destinations, address_of, plain_host
from .option_checks import check_positive

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

CONNECT_TIMEOUT = 10.0
KEEP_ALIVE = 5.0
MAX_CONNECTIONS = 100
MAX_HANGING = 64  # look-ups that were abandoned and still run
MAX_TRIES = 4  # addresses of a host that are tried, one after the other
CHUNK = 65_536  # bytes that are decompressed at once

# By name, as httpx's own transport has it.
KINDS: dict[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.ReadError: httpx.ReadError,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.WriteTimeout: httpx.WriteTimeout,
}


_LOOK_UPS = WorkerThreads(8)


class RequestRefused(ToolError, httpx.TransportError):
    """A `GuardedTransport` refused a request or an answer.

    It is a `ToolError`, so that a tool need not catch it: its message is for the model, and names no
    address that was looked up. It is also an `httpx.TransportError`, for programs that expect one.
    """


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host, from the operating system. Raises `OSError`."""
    found = await name_lookups.look_up(_LOOK_UPS, host, port, MAX_HANGING)
    return [str(address[0]) for address in found]


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the shared context, with SSL_CERT_FILE and SSL_CERT_DIR; making one takes 17 ms."""
    return httpx.create_ssl_context()


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to checked addresses, without a second look-up (DNS rebinding)."""

    def __init__(self, destinations: Destinations, resolve: Resolve) -> None:
        self._destinations, self.resolve = destinations, resolve
        self._sockets = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers.

        Raises `RequestRefused` if one of them may not be reached. The caller checks the TLS
        certificate, for the name.
        """
        limit = CONNECT_TIMEOUT if timeout is None else min(timeout, CONNECT_TIMEOUT)
        addresses = (await self._addresses(host, port, limit))[:MAX_TRIES]
        failure: Exception = httpcore.ConnectError(f"no address of {host} is known")
        for address in addresses:
            try:
                return await self._sockets.connect_tcp(
                    str(address),
                    port,
                    limit / len(addresses),
                    local_address,
                    socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, port: int, limit: float) -> list[Address]:
        found = await self._look_up(host, port, limit)
        known = [address for address in dict.fromkeys(found) if address is not None]
        is_complete = len(known) == len(set(found))
        admitted = (self._destinations.admits(host, each) for each in known)
        # A single bad address refuses all: they come from one source.
        if not is_complete or not all(admitted):
            raise RequestRefused(f"{host} is not a public address")
        return known

    async def _look_up(
        self, host: str, port: int, limit: float
    ) -> list[Address | None]:
        literal = address_of(host)
        if literal is not None:
            return [literal]
        try:
            async with asyncio.timeout(limit):
                return [address_of(text) for text in await self.resolve(host, port)]
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(
                f"the address of {host} was not found in time"
            ) from error
        except OSError as error:
            raise httpcore.ConnectError(f"no address of {host} is known") from error


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport for `httpx.AsyncClient` that reaches public hosts, and hosts that are named.

    The host of every request, also of one after a redirect, is looked up once; each of its addresses
    is checked; and the connection goes to a checked address. TLS, `Host` and certificate are those of
    the name. No proxy is used and no redirect followed. A gzip body is decompressed here, in small
    chunks, so that it cannot grow beyond `max_bytes`. Needs asyncio; connections are kept for each
    running event loop.

    Args:
        allow: the only hosts that may be reached: names, `*.example.com` for all below a name,
            addresses, networks; several or one text with commas. Empty: every public host.
        deny: hosts, addresses and networks that may not be reached, even if something else allows
            them.
        allow_private: addresses and networks that may be reached though they are not public, and
            names that may have addresses of private networks (but not link-local ones, or the
            metadata of a cloud).
        ports: ports that may be reached.
        max_bytes: largest body, compressed and decompressed.
        timeout: seconds for one request in all, from the look-up to the end of the body.
        max_idle: connections that are kept for further requests; 0 closes each after its answer.
        resolve: finds the addresses of a host; by default the operating system.
        ssl_context: by default that of httpx.

    Raises:
        RequestRefused: the destination or the answer is refused. Other failures are httpx's errors.
        ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        allow: Iterable[str] | str = (),
        *,
        deny: Iterable[str] | str = (),
        allow_private: Iterable[str] | str = (),
        ports: Iterable[int] = PORTS,
        max_bytes: int = 10_000_000,
        timeout: float = 60.0,
        max_idle: int = 20,
        resolve: Resolve = look_up,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        check_positive(max_bytes=max_bytes, timeout=timeout)
        self.destinations = Destinations(
            allow, deny=deny, allow_private=allow_private, ports=ports
        )
        self._max_bytes, self._timeout, self._max_idle = max_bytes, timeout, max_idle
        self._ssl_context = ssl_context
        self._backend = CheckedBackend(self.destinations, resolve)
        self._pools: WeakKeyDictionary[
            asyncio.AbstractEventLoop, httpcore.AsyncConnectionPool
        ] = WeakKeyDictionary()

    def public_only(self) -> Self:
        """Return the same transport for public hosts only; it keeps no connections."""
        other = copy.copy(self)
        other.destinations = self.destinations.public_only()
        other._backend = CheckedBackend(other.destinations, self._backend.resolve)
        other._max_idle, other._pools = 0, WeakKeyDictionary()
        return other

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; see the class."""
        url = self._admitted(request.url)
        headers = request.headers.copy()
        headers["host"] = url.netloc.decode()  # not another host of the same server
        headers["accept-encoding"] = "gzip"
        wire = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=url.raw_scheme,
                host=url.raw_host,
                port=url.port,
                target=url.raw_path,
            ),
            headers=headers.raw,
            content=request.stream,
            extensions={
                key: value
                for key, value in request.extensions.items()
                if key in ("timeout", "trace")
            },
        )
        exchange = _Exchange(url.host, self._timeout, self._max_bytes)
        async with exchange.in_time():
            response = await self._pool().handle_async_request(wire)
        try:
            return _limit_response(response, exchange)
        except RequestRefused:
            await response.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def _admitted(self, url: httpx.URL) -> httpx.URL:
        """Return the URL with its host in plain form, if the host may be reached."""
        try:
            host = plain_host(url.raw_host.decode("ascii"))
        except ValueError as error:
            raise RequestRefused(str(error)) from None
        port = url.port or (443 if url.scheme == "https" else 80)
        problem = self.destinations.find_problem(url.scheme, host, port)
        if problem is not None:
            raise RequestRefused(problem)
        return url.copy_with(host=host)

    def _pool(self) -> httpcore.AsyncConnectionPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = httpcore.AsyncConnectionPool(
                ssl_context=self._ssl_context or _tls(),
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=self._max_idle,
                keepalive_expiry=KEEP_ALIVE,
                network_backend=self._backend,
            )
        return pool


class _Exchange:
    """The limits of one request, and the errors for them."""

    def __init__(self, host: str, seconds: float, max_bytes: int) -> None:
        self.host, self.max_bytes = host, max_bytes
        self._seconds, self._deadline = (
            seconds,
            asyncio.get_running_loop().time() + seconds,
        )

    @contextlib.asynccontextmanager
    async def in_time(self) -> AsyncGenerator[None]:
        """End a wait at the deadline, and translate httpcore's errors to httpx's."""
        try:
            async with asyncio.timeout_at(self._deadline):
                yield
        except TimeoutError as error:
            raise httpx.ReadTimeout(
                f"{self.host} did not answer in full within {self._seconds:g} seconds"
            ) from error
        except (
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
        ) as error:
            raise KINDS.get(type(error), httpx.TransportError)(str(error)) from error

    def check(self, size: int) -> None:
        """Raise `RequestRefused` for a body of more bytes than it may have."""
        if size > self.max_bytes:
            raise RequestRefused(
                f"{self.host} sent more than {self.max_bytes} bytes, which is more than is read"
            )


def _limit_response(response: httpcore.Response, exchange: _Exchange) -> httpx.Response:
    """Return the answer for httpx, with its body limited."""
    headers = httpx.Headers(response.headers)
    encoding = headers.pop("content-encoding", "").strip().lower()
    if encoding not in ("gzip", "x-gzip", "deflate", "identity", ""):
        raise RequestRefused(
            f"{exchange.host} sent a body with a content encoding that was not requested"
        )
    is_compressed = encoding not in ("identity", "")
    if is_compressed:
        headers.pop("content-length", None)
    body = _Body(response, exchange, _Decompressor() if is_compressed else None)
    extensions = cast("dict[str, Any]", response.extensions)
    return httpx.Response(
        response.status, headers=headers, stream=body, extensions=extensions
    )


class _Body(httpx.AsyncByteStream):
    """The body of an answer: in time, decompressed, and within the size limit."""

    def __init__(
        self,
        response: httpcore.Response,
        exchange: _Exchange,
        decompressor: "_Decompressor | None",
    ) -> None:
        self._response, self._exchange, self._decompressor = (
            response,
            exchange,
            decompressor,
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = size = 0
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                received += len(chunk)
                self._exchange.check(received)
                for part in self._decompress(chunk):
                    size += len(part)
                    self._exchange.check(size)
                    yield part
        if self._decompressor is not None and received:
            yield self._decompressor.finish()

    def _decompress(self, chunk: bytes) -> Iterable[bytes]:
        if self._decompressor is None:
            return (chunk,)
        return self._decompressor.decompress(chunk)

    async def aclose(self) -> None:
        """Release the connection, or close it if the body is not complete."""
        await self._response.aclose()

    async def _chunks(self) -> AsyncGenerator[bytes]:
        chunks = aiter(self._response.aiter_stream())
        while True:
            async with self._exchange.in_time():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk


class _Decompressor:
    """Decompresses gzip and deflate in chunks of at most 64 kB, so that a decompression bomb is found early."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=47)  # detects which of the two it is

    def decompress(self, compressed: bytes) -> Iterator[bytes]:
        """Return the content of the next bytes."""
        while compressed:
            if self._inflate.eof:  # gzip may have several members
                self._inflate = zlib.decompressobj(wbits=47)
            try:
                yield self._inflate.decompress(compressed, CHUNK)
            except zlib.error as error:
                raise httpx.DecodingError(
                    f"the body cannot be decompressed: {error}"
                ) from error
            compressed = self._inflate.unconsumed_tail or self._inflate.unused_data

    def finish(self) -> bytes:
        """Return the rest of the content. Raises `httpx.DecodingError` if the body is incomplete."""
        rest = self._inflate.flush()
        if not self._inflate.eof:
            raise httpx.DecodingError("the compressed body was cut short")
        return rest
