"""HTTP for providers: posts bytes, returns an answer whole or as it comes, and is the only module that knows httpx."""

import asyncio
import collections
import contextlib
import functools
import ssl
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from types import TracebackType
from typing import Never, Self, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpcore
import httpx
from pydantic import SecretStr

from ...errors import ConfigError, ProviderError, ProviderTimeout
from .replies import Reply as Reply
from .replies import retry_after as retry_after
from .replies import worth_retrying as worth_retrying
from .sockets import AsyncioBackend
from .sse import EventReader, ServerEvent

CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 600.0  # only a net under the runtime, which cancels a call earlier
KEEP_ALIVE = 60.0
MAX_BODY = 10_000_000  # bytes of an answer in one piece, which is read in one go: nothing else runs meanwhile
MAX_STREAM = 50_000_000  # bytes of a stream, whose events are small and many
MAX_AT_ONCE = 65_536  # bytes of events that are read before others get their turn
MAX_READ = 10_000
MAX_EXCERPT = 200
MAX_LAST_EVENTS = (
    5.0  # seconds to wait for usage, and the mark of the end, of a reply that has ended
)
MAX_FAREWELL = (
    0.25  # seconds to wait for the end mark of a stream whose last event has come
)
LONGEST_SECRET = 1_000
SHORTEST_SECRET = 6  # shorter keys are placeholders ("none", "x"), and hiding those would garble every text

Client: TypeAlias = httpx.AsyncClient

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


@functools.cache
def _tls() -> ssl.SSLContext:
    """One context for all connections (making one takes 17 ms); SSL_CERT_FILE and SSL_CERT_DIR are honoured."""
    return httpx.create_ssl_context()


_SOCKETS = AsyncioBackend()


class _Connections:
    """The idle connections of one event loop to one server, the one used last taken first.

    A pool scans all its connections on every request; a stack of single connections looks at one.
    """

    def __init__(self, origin: httpcore.Origin) -> None:
        self._origin = origin
        self._idle: collections.deque[httpcore.AsyncHTTPConnection] = (
            collections.deque()
        )
        self._open = True
        self._lifetime = self._until_the_loop_ends()

    async def start(self) -> None:
        """Ask the running loop to close what is idle when it ends (`asyncio.run` closes generators that are open)."""
        await anext(self._lifetime)

    async def aclose(self) -> None:
        await self._lifetime.aclose()

    async def take(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if (
                not connection.has_expired()
            ):  # looks at the socket too: the server may have hung up
                return connection
            await connection.aclose()
        tls = _tls() if self._origin.scheme == b"https" else None
        return httpcore.AsyncHTTPConnection(
            self._origin, tls, keepalive_expiry=KEEP_ALIVE, network_backend=_SOCKETS
        )

    async def give_back(self, connection: httpcore.AsyncHTTPConnection) -> None:
        if not (self._open and connection.is_available()):
            await connection.aclose()
            return
        self._idle.append(connection)
        while len(self._idle) > 1 and self._idle[0].has_expired():
            await self._idle.popleft().aclose()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._open = False
            while self._idle:
                await self._idle.popleft().aclose()


class _Chunks(httpx.AsyncByteStream):
    """Lets httpx decode the chunks that a connection reads."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class OpenReply:
    """An answer whose head has come: read the rest whole, or event by event.

    `read` and `read_events` raise `ProviderTimeout` and `ProviderError` as `HTTPTransport.post` does.
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
        self._head = Reply(status, headers, b"")
        self._size, self._most = 0, MAX_STREAM
        self._parts: Iterator[bytes] = iter(
            ()
        )  # of a chunk whose events are being read
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
        return f"OpenReply({self.status})"  # a header may echo the key

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._head.status

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Header pairs as they came."""
        return self._head.headers

    @property
    def is_events(self) -> bool:
        """Whether the server calls its body a stream of events."""
        return (
            self.header("content-type").partition(";")[0].strip().lower()
            == "text/event-stream"
        )

    def header(self, name: str) -> str:
        """The value of a header (several values joined by commas), or an empty string."""
        return self._head.header(name)

    async def read(self) -> Reply:
        """The whole answer."""
        parts: list[bytes] = []
        self._most = MAX_BODY
        try:
            while (chunk := await self._next()) is not None:
                parts.append(chunk)
        except ProviderError:
            parts.clear()  # or the error would hold on to them, as long as anybody keeps it
            raise
        return Reply(self.status, self.headers, b"".join(parts))

    async def read_events(self) -> list[ServerEvent] | None:
        """The events that end in the next bytes, whatever the content type; `None` at the end of the body."""
        part = await self._next_part()
        if part is None:
            return None
        try:
            return self._events.feed(part)
        except ValueError as error:
            self._events = (
                EventReader()
            )  # or the error would hold on to what it had read
            failure = ProviderError(
                f"{self._transport.url} sent {error}", status=self.status
            )
        raise failure  # outside the except block: what cannot be read may echo the key

    async def read_last_events(self) -> list[ServerEvent] | None:
        """As `read_events`, of a stream that has told all that matters: what has not come in 5 s is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_LAST_EVENTS):
                return await self.read_events()
        return None

    async def finish(self) -> None:
        """Wait for the end of a stream whose last event has come, 0.25 s at most, so that its connection is kept."""
        with contextlib.suppress(TimeoutError, ProviderError):
            async with asyncio.timeout(MAX_FAREWELL):
                while await self._next() is not None:
                    pass

    async def _next_part(self) -> bytes | None:
        """The next bytes in parts: a small chunk may have unpacked to so much that its events take seconds to read."""
        part = next(self._parts, None)
        if part is not None:
            await asyncio.sleep(
                0
            )  # so that a deadline is met in the middle of a chunk too
            return part
        chunk = await self._next()
        if chunk is None or len(chunk) <= MAX_AT_ONCE:
            return chunk
        self._parts = (
            chunk[start : start + MAX_AT_ONCE]
            for start in range(0, len(chunk), MAX_AT_ONCE)
        )
        return next(self._parts)

    async def _next(self) -> bytes | None:
        """The next bytes of the body; `None` at its end."""
        try:
            chunk = await anext(self._chunks, None)
        except FAILURES as error:
            failure = self._transport.told(error)
        else:
            self._size += len(chunk or b"")
            if self._size <= self._most:
                return chunk
            del (
                chunk
            )  # as large as it may be, unpacked; whoever unpacked it holds on to it too
            unpacking: object = self._chunks
            if isinstance(unpacking, AsyncGenerator):
                await cast("AsyncGenerator[bytes, None]", unpacking).aclose()
            failure = self._transport.too_large(self._most, self.status)
        raise failure  # outside the except block, so that nothing that knows the headers is chained to it


class HTTPTransport:
    """Posts to one URL, over connections of its own or over a client that it is given.

    Its own connections are kept alive, one set for each running event loop, and are closed by `aclose` or at the end of
    `asyncio.run`. They take no proxy from the environment and follow no redirect. For proxies, client certificates
    or other timeouts inject an `httpx.AsyncClient`: it is used as it is and never closed here (a client whose timeout
    is httpx's default of 5 s gets the timeout of this transport, since models think longer than that).

    Args:
        base_url: where the API lives; a query in it is kept.
        path: added to the base URL's path.
        headers: sent with each request; `SecretStr` values never appear in a repr, an error or a log.
        client: used in place of own connections.
        timeout: seconds to wait for the next bytes of an answer.

    Raises:
        ConfigError: the URL or a header cannot be used.
    """

    url = ""  # so that a half-made transport has a repr too

    def __init__(
        self,
        base_url: str,
        path: str,
        *,
        headers: Mapping[str, str | SecretStr],
        client: Client | None = None,
        timeout: float = READ_TIMEOUT,
    ) -> None:
        url = _parse(base_url, path)
        self.url = str(url.copy_with(query=None))
        self.host = url.netloc.decode()
        self._headers, self._hide = _seal({"host": self.host, **headers})
        self._target = url
        self._wire = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        self._client = client
        limits = httpx.Timeout(timeout, connect=CONNECT_TIMEOUT, pool=None)
        self._timeout = (
            limits
            if client is not None and client.timeout == httpx.Timeout(5.0)
            else httpx.USE_CLIENT_DEFAULT
        )
        self._extensions = {"timeout": limits.as_dict()}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = (
            WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"HTTPTransport({self.url!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a transport holds an API key and open connections: it cannot be pickled or copied"
        )

    def excerpt(self, text: str | bytes) -> str:
        """The first 200 characters on one line, every secret header value replaced by asterisks."""
        most = MAX_READ + LONGEST_SECRET
        start = (
            text[:most]
            if isinstance(text, str)
            else text[:most].decode(errors="replace")
        )
        shown = self._hide(start)[
            :MAX_READ
        ]  # hidden first: a key that is cut is still half a key
        return " ".join(shown.split())[:MAX_EXCERPT]

    def hidden(self, text: str) -> str:
        """The text with every secret header value replaced by asterisks."""
        return self._hide(text)

    async def post(self, body: bytes) -> Reply:
        """Send one request and read its answer whole.

        Raises:
            ProviderTimeout: no connection or no answer in time; retryable.
            ProviderError: the connection failed (retryable), or the answer is a redirect or larger than 10 MB.
        """
        async with await self.open(body) as reply:
            return await reply.read()

    async def aclose(self) -> None:
        """Close the connections of the running loop; an injected client stays open."""
        connections = self._loops.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.aclose()

    async def open(self, body: bytes) -> OpenReply:
        """Send one request and hand out its answer as soon as the head is there: `async with await transport.open(b)`.

        Leaving the context ends it: the connection is kept for the next request if the answer was read to its end, and
        closed otherwise. Raises as `post` does.
        """
        try:
            reply = await (
                self._exchange(body)
                if self._client is None
                else self._ask(self._client, body)
            )
        except FAILURES as error:
            failure = self.told(error)
        else:
            if not 300 <= reply.status < 400:
                return reply
            await reply.aclose()
            to = self.excerpt(reply.header("location")) or "nowhere"
            text = f"{self.url} redirects to {to} (status {reply.status}), which is not followed: correct base_url"
            failure = ProviderError(text, status=reply.status)
        raise failure  # outside the except block, so that no exception that knows the headers is chained to it

    def told(self, error: Exception) -> ProviderError:
        """The error that a failed connection stands for."""
        if isinstance(error, TIMEOUTS):
            return ProviderTimeout(
                f"{self.url} gave no answer in time: {type(error).__name__}",
                retryable=True,
            )
        detail = self.excerpt(str(error))
        text = f"the connection to {self.url} failed: {type(error).__name__}{': ' if detail else ''}{detail}"
        return ProviderError(
            text,
            retryable=not isinstance(error.__cause__, ssl.SSLCertVerificationError),
        )

    async def _ask(self, client: Client, body: bytes) -> OpenReply:
        if client.is_closed:
            raise ProviderError(
                f"client: the one that was given for {self.url} is closed"
            )
        request = client.build_request(  # the headers are in no variable, where a report of an error would show them
            "POST",
            self._target,
            content=body,
            headers=self._headers(body),
            timeout=self._timeout,
        )
        response = await client.send(request, stream=True)
        close = functools.partial(_quietly, response.aclose)
        return OpenReply(
            self,
            response.status_code,
            tuple(response.headers.raw),
            response.aiter_bytes(),
            close,
        )

    async def _exchange(self, body: bytes) -> OpenReply:
        connections = await self._connections()
        connection = await connections.take()
        request = httpcore.Request(
            b"POST",
            self._wire,
            headers=self._headers(body),
            content=body,
            extensions=self._extensions,
        )
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await connections.give_back(connection)
            raise

        async def close() -> None:
            try:
                await _quietly(response.aclose)
            finally:
                await _quietly(connections.give_back, connection)

        return OpenReply(
            self, response.status, tuple(response.headers), _decoded(response), close
        )

    def too_large(self, most: int, status: int) -> ProviderError:
        """The error that an answer is larger than anybody wants to keep."""
        return ProviderError(
            f"{self.url} sent more than {most // 1_000_000} MB (status {status})",
            status=status,
        )

    async def _connections(self) -> _Connections:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for other in [
                known() for known in self._loops.keyrefs()
            ]:  # a list: other threads may add their loops
                if other is not None and other.is_closed():
                    self._loops.pop(other, None)
            found = self._loops[loop] = _Connections(self._wire.origin)
            await found.start()
        return found


async def _quietly(close: Callable[..., Awaitable[None]], *what: object) -> None:
    """Close something that may be broken already: what was read, or went wrong before, is what counts."""
    with contextlib.suppress(*FAILURES):
        await close(*what)


def _decoded(response: httpcore.Response) -> AsyncIterator[bytes]:
    chunks = response.aiter_stream()
    if any(name.lower() == b"content-encoding" for name, _ in response.headers):
        return httpx.Response(
            response.status, headers=response.headers, stream=_Chunks(chunks)
        ).aiter_bytes()
    return chunks


def _parse(base_url: str, path: str) -> httpx.URL:
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


def _seal(
    headers: Mapping[str, str | SecretStr],
) -> tuple[Callable[[bytes], list[tuple[bytes, bytes]]], Callable[[str], str]]:
    """Two functions that know the header values, so that no attribute holds them: one lists them, one hides them."""
    for name in headers:
        if not _is_sendable(headers[name]):
            raise ConfigError(
                f"the header {name} holds characters that HTTP does not allow, such as a line break"
            )
    pairs = [
        (name.encode("ascii"), _plain(value).encode("ascii"))
        for name, value in headers.items()
    ]
    keys = [
        _plain(value).removeprefix("Bearer ")
        for value in headers.values()
        if isinstance(value, SecretStr)
    ]
    secrets = [key for key in keys if len(key) >= SHORTEST_SECRET]

    def listed(body: bytes) -> list[tuple[bytes, bytes]]:
        return [*pairs, (b"content-length", b"%d" % len(body))]

    def hidden(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    return listed, hidden


def _plain(value: str | SecretStr) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _is_sendable(value: str | SecretStr) -> bool:
    return _plain(value).isascii() and _plain(value).isprintable()
