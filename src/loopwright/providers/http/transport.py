"""The HTTP transport: it posts bytes and returns a response, whole or streamed."""

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from types import MappingProxyType, TracebackType
from typing import Never, Self, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpcore
import httpx
from pydantic import SecretStr

from ...errors import ConfigError, ProviderError, ProviderTimeout
from .connections import ConnectionStack, Head, Post
from .headers import conceal_headers
from .proxies import ProxyClient, find_proxy, is_proxy_refusal, list_secrets
from .response import Response
from .sse import EventReader, ServerEvent
from .tokens import FetchedSecrets

CONNECT_TIMEOUT = 5.0  # seconds
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
READ_TIMEOUT = 600.0  # seconds; a safety net, since the runtime cancels a call earlier
MAX_BODY = 10_000_000  # bytes of a whole body, which is parsed in one step that blocks the event loop
MAX_STREAM = 50_000_000  # bytes of a stream, whose events are small and many
MAX_PARSED = (
    65_536  # bytes of events that are parsed before other tasks have their turn
)
MAX_QUOTED = 10_000  # characters of a text that are looked at for an excerpt
MAX_EXCERPT = 200  # characters
MAX_SECRET = 1_000  # characters of a secret that an excerpt may cut through
USAGE_TIMEOUT = 5.0  # seconds to wait for the usage and end marker of a complete reply
FINISH_TIMEOUT = 0.25  # seconds to wait for the end of a stream after its last event

MAX_CAUSES = 5
TLS_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")

Client: TypeAlias = httpx.AsyncClient
Authorize: TypeAlias = Callable[[bytes], Awaitable[Mapping[str, str]]]

TIMEOUTS = (httpcore.TimeoutException, httpx.TimeoutException)
FAILURES = (
    *TIMEOUTS,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpx.HTTPError,
    OSError,
    UnicodeError,  # a host name that cannot be looked up
)


def _tls() -> ssl.SSLContext:
    """Return one context for all connections, since creating it takes 17 ms; it honours SSL_CERT_FILE and SSL_CERT_DIR."""
    return _build_tls(*(os.environ.get(name, "") for name in TLS_VARIABLES))


@functools.cache
def _build_tls(*_files: str) -> ssl.SSLContext:
    return httpx.create_ssl_context()


class StreamingResponse:
    """A response whose head has arrived; read its body whole or event by event, as an async context manager.

    The reading methods raise `ProviderTimeout` and `ProviderError` as `HTTPTransport.post` does.
    """

    def __init__(
        self,
        transport: "HTTPTransport",
        status: int,
        headers: tuple[tuple[bytes, bytes], ...],
        chunks: AsyncIterator[bytes],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._transport, self._chunks, self.aclose = transport, chunks, close
        self.head = Response(status, headers, b"")
        self._size, self._max_size = 0, MAX_STREAM
        self._slices: Iterator[bytes] = iter(())  # of a large chunk that is being read
        self._events = EventReader()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"StreamingResponse({self.status})"  # a header may echo the key

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.head.status

    @property
    def is_event_stream(self) -> bool:
        """Whether the request succeeded and the body is a stream of events by its content type."""
        kind = self.head.header("content-type").partition(";")[0]
        return self.head.is_success and kind.strip().lower() == "text/event-stream"

    async def read_and_keep(self) -> Response:
        """Return the response with its whole body, which can be read again afterwards."""
        whole = await self.read()
        self._chunks = _repeat(whole.body)
        self._size = 0
        return whole

    async def read(self) -> Response:
        """Return the response with its whole body."""
        chunks: list[bytes] = []
        self._max_size = MAX_BODY
        try:
            while (chunk := await self._read_chunk()) is not None:
                chunks.append(chunk)
        except ProviderError:
            # The error's traceback would otherwise keep the chunks alive.
            chunks.clear()
            raise
        return Response(self.status, self.head.headers, b"".join(chunks))

    async def read_events(self) -> list[ServerEvent] | None:
        """Return the events that end in the next bytes, for any content type; `None` at the end of the body."""
        part = await self._read_slice()
        if part is None:
            return None
        try:
            return self._events.feed(part)
        except ValueError as error:
            # The error's traceback would otherwise keep the parser's content alive.
            self._events = EventReader()
            text = f"{self._transport.url} sent {error}"
            failure = ProviderError(text, status=self.status)
        # Raised outside the except block, since a chained error may show an echoed key.
        raise failure

    async def read_chunk(self) -> bytes | None:
        """Return the next bytes of the body, or `None` at its end, for formats that are not server-sent events."""
        return await self._read_slice()

    async def read_last_events(self) -> list[ServerEvent] | None:
        """Return as `read_events` for a complete reply; `None` if nothing more arrives within 5 s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(USAGE_TIMEOUT):
                return await self.read_events()
        return None

    async def finish(self) -> None:
        """Read to the end of a stream after its last event, for 0.25 s at most, so that its connection is kept."""
        with contextlib.suppress(TimeoutError, ProviderError):
            async with asyncio.timeout(FINISH_TIMEOUT):
                while await self._read_chunk() is not None:
                    pass

    async def _read_slice(self) -> bytes | None:
        """Return the next bytes, at most `MAX_PARSED`; a small chunk may have been unpacked to a large one."""
        part = next(self._slices, None)
        if part is not None:
            # A turn of the event loop, so that a deadline can interrupt a large chunk.
            await asyncio.sleep(0)
            return part
        chunk = await self._read_chunk()
        if chunk is None or len(chunk) <= MAX_PARSED:
            return chunk
        starts = range(0, len(chunk), MAX_PARSED)
        self._slices = (chunk[start : start + MAX_PARSED] for start in starts)
        return next(self._slices)

    async def _read_chunk(self) -> bytes | None:
        """Return the next chunk of the body, or `None` at its end."""
        try:
            chunk = await anext(self._chunks, None)
        except FAILURES as error:
            failure = self._transport.to_provider_error(error)
        else:
            self._size += len(chunk or b"")
            if self._size <= self._max_size:
                return chunk
            # The chunk may be large, and both this frame and its decoder would keep it alive.
            del chunk
            await self._stop_decoding()
            failure = self._transport.build_size_error(self._max_size, self.status)
        # Raised outside the except block, so that no error that knows the headers is chained to it.
        raise failure

    async def _stop_decoding(self) -> None:
        chunks: object = self._chunks
        if isinstance(chunks, AsyncGenerator):
            await cast("AsyncGenerator[bytes, None]", chunks).aclose()


class HTTPTransport:
    """Posts to one URL, over its own connections or over an injected client.

    Its own connections are kept alive, one set for each running event loop, and are closed by `aclose` or at the end of
    `asyncio.run`. They honour HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY as they were when the transport was made,
    and follow no redirect. For client certificates or other timeouts inject an `httpx.AsyncClient`. It is used as it is
    and never closed here, except that httpx's default timeout of 5 s is replaced by the timeout of this transport, since
    models think longer than that.

    Args:
        base_url: where the API lives; its query is kept.
        path: appended to the path of the base URL.
        headers: sent with each request; `SecretStr` values never appear in a repr, an error or a log.
        client: used in place of own connections.
        timeout: seconds to wait for the next bytes of a response.
        authorize: returns further headers for a body: a signature, or a token that is renewed.

    Raises:
        ConfigError: the URL or a header cannot be used.
    """

    url = ""  # so that the repr of a half-made transport works

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        headers: Mapping[str, str | SecretStr],
        client: Client | None = None,
        timeout: float = READ_TIMEOUT,
        authorize: Authorize | None = None,
    ) -> None:
        url = _parse_url(base_url, path)
        self.url = str(url.copy_with(query=None))
        self.host = url.netloc.decode()
        self._proxy = find_proxy(url) if client is None else None
        concealed = conceal_headers(
            {"host": self.host, **headers}, list_secrets(self._proxy)
        )
        self._headers, self._hide_secrets = concealed
        self._target = url
        self._wire = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        self._client, self._authorize = client, authorize
        self._fetched = FetchedSecrets()
        limits = httpx.Timeout(timeout, connect=CONNECT_TIMEOUT, pool=None)
        has_default = client is None or client.timeout == httpx.Timeout(5.0)
        self._timeout = limits if has_default else httpx.USE_CLIENT_DEFAULT
        self._extensions = {"timeout": limits.as_dict()}
        self._loops: WeakKeyDictionary[
            asyncio.AbstractEventLoop, ConnectionStack | ProxyClient
        ] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"HTTPTransport({self.url!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a transport holds an API key and open connections: it cannot be pickled or copied"
        )

    def excerpt(self, text: str | bytes) -> str:
        """Return the first 200 characters on one line, every secret header value replaced by asterisks."""
        start = text[: MAX_QUOTED + MAX_SECRET]
        if isinstance(start, bytes):
            start = start.decode(errors="replace")
        # Secrets are hidden before the cut, since a key that is cut would not be found.
        shown = self.hide_secrets(start)[:MAX_QUOTED]
        return " ".join(shown.split())[:MAX_EXCERPT]

    def hide_secrets(self, text: str) -> str:
        """Return the text with every secret header value replaced by asterisks."""
        return self._hide_secrets(self._fetched.hide(text))

    async def post(self, body: bytes) -> Response:
        """Send one request and return its response with the whole body.

        Raises:
            ProviderTimeout: no connection or no response in time; retryable.
            ProviderError: the connection failed (retryable), or the response is a redirect or larger than 10 MB.
        """
        async with await self.open(body) as response:
            return await response.read()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.aclose()

    async def open(
        self, body: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> StreamingResponse:
        """Send one request and return its response as soon as the head is there; raise as `post` does.

        Use it as `async with await transport.open(body) as response`. At the end of the block the connection is kept if
        the body was read to its end, and closed otherwise.
        """
        try:
            response = await self._send(body, headers)
        except FAILURES as error:
            failure = self.to_provider_error(error)
        else:
            if not 300 <= response.status < 400:
                return response
            await response.aclose()
            failure = self._build_redirect_error(response)
        # Raised outside the except block, so that no error that knows the headers is chained to it.
        raise failure

    def to_provider_error(self, error: Exception) -> ProviderError:
        """Return the error that a failed connection stands for."""
        kind = type(error).__name__
        if isinstance(error, TIMEOUTS):
            text = f"{self.url} gave no answer in time: {kind}"
            return ProviderTimeout(text, retryable=True)
        is_refused = _has_cause(error, ssl.SSLCertVerificationError)
        is_refused = is_refused or is_proxy_refusal(error)
        reason = ": ".join(filter(None, (kind, self.excerpt(str(error)))))
        text = f"the connection to {self.url} failed: {reason}"
        return ProviderError(text, retryable=not is_refused)

    def build_size_error(self, limit: int, status: int) -> ProviderError:
        """Return the error for a response of more than `limit` bytes."""
        megabytes = limit // 1_000_000
        text = f"{self.url} sent more than {megabytes} MB (status {status})"
        return ProviderError(text, status=status)

    def _build_redirect_error(self, response: StreamingResponse) -> ProviderError:
        target = self.excerpt(response.head.header("location")) or "nowhere"
        status = response.status
        text = f"{self.url} redirects to {target} (status {status}), which is not followed: correct base_url"
        return ProviderError(text, status=status)

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> StreamingResponse:
        """Send a request by the injected client, through the proxy, or over one of the own connections."""
        if self._client is not None:
            return await self._exchange_by_client(self._client, body, headers)
        connections = await self._find_connections()
        if isinstance(connections, ProxyClient):
            return await self._exchange_by_client(connections.client, body, headers)
        return await self._exchange(connections, body, headers)

    async def _list_headers(
        self, body: bytes, headers: Mapping[str, str]
    ) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request; those of the caller come before those of the transport."""
        if self._authorize is None and not headers:
            return self._headers(body)
        added = headers
        if self._authorize is not None:
            fetched = await self._authorize(body)
            self._fetched.remember(fetched)
            added = {**headers, **fetched}
        own = {name.lower().encode(): value.encode() for name, value in added.items()}
        kept = [pair for pair in self._headers(body) if pair[0] not in own]
        return [*kept, *own.items()]

    async def _exchange_by_client(
        self, client: Client, body: bytes, headers: Mapping[str, str]
    ) -> StreamingResponse:
        if client.is_closed:
            raise ProviderError(
                f"client: the one that was given for {self.url} is closed"
            )
        # The headers are in no variable here, where a report of an error would show them.
        request = client.build_request(
            "POST",
            self._target,
            content=body,
            headers=await self._list_headers(body, headers),
            timeout=self._timeout,
        )
        response = await client.send(request, stream=True)
        close = functools.partial(_close_quietly, response.aclose)
        received = tuple(response.headers.raw)
        return StreamingResponse(
            self, response.status_code, received, response.aiter_bytes(), close
        )

    async def _exchange(
        self,
        connections: ConnectionStack,
        body: bytes,
        headers: Mapping[str, str],
    ) -> StreamingResponse:
        request = Post(self._wire.target, await self._list_headers(body, headers), body)
        connection = await connections.acquire()
        timeouts = self._extensions["timeout"]
        try:
            head = await connection.post(request, timeouts)
        except BaseException:
            await connections.release(connection)
            raise

        async def close() -> None:
            try:
                await _close_quietly(connection.end)
            finally:
                await _close_quietly(connections.release, connection)

        chunks = _decode_body(head, connection.read_body(timeouts))
        return StreamingResponse(self, head.status, head.headers, chunks, close)

    async def _find_connections(self) -> ConnectionStack | ProxyClient:
        """Return the connections of the running event loop, and forget those of loops that are closed."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._forget_closed_loops()
            found = self._loops[loop] = self._build_connections()
            await found.start()
        return found

    def _build_connections(self) -> ConnectionStack | ProxyClient:
        if self._proxy is not None:
            return ProxyClient(self._proxy, _tls())
        tls = _tls() if self._wire.scheme == b"https" else None
        return ConnectionStack(self._wire.origin, tls)

    def _forget_closed_loops(self) -> None:
        references = list(self._loops.keyrefs())  # other threads may add their loops
        for loop in [reference() for reference in references]:
            if loop is not None and loop.is_closed():
                self._loops.pop(loop, None)


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Return whether an error, or what it was raised from, is of a kind; httpx wraps those of httpcore."""
    for _ in range(MAX_CAUSES):  # contexts can form a circle
        if error is None or isinstance(error, kind):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, kind)


async def _repeat(body: bytes) -> AsyncGenerator[bytes]:
    yield body


class _RawBody(httpx.AsyncByteStream):
    """The chunks that a connection reads, in the form that httpx decodes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


def _decode_body(head: Head, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if any(name.lower() == b"content-encoding" for name, _ in head.headers):
        return httpx.Response(
            head.status, headers=list(head.headers), stream=_RawBody(chunks)
        ).aiter_bytes()
    return chunks


async def _close_quietly(
    close: Callable[..., Awaitable[None]], *arguments: object
) -> None:
    """Close something that may be broken already; an earlier result or failure is what counts."""
    with contextlib.suppress(*FAILURES):
        await close(*arguments)


def _parse_url(base_url: str, path: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigError(
            f"base_url: {error}: give something like 'http://localhost:8080/v1'"
        ) from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError(
            "base_url: needs a scheme and a host, like 'http://localhost:8080/v1'"
        )
    if url.userinfo:
        raise ConfigError(
            "base_url: holds a user name or password, which would show up in errors: use api_key"
        )
    return url.copy_with(path=url.path.rstrip("/") + path, fragment=None)
