"""The connections of one event loop: over asyncio's own streams, which take fewer turns of the loop than anyio's."""

import asyncio
import collections
import contextlib
import enum
import ipaddress
import select
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import h11
import httpcore

from ..._internal import dataclasses
from ...resilience.name_lookups import SocketAddress, look_up
from ...resilience.timeouts import WorkerThreads

P = ParamSpec("P")
T = TypeVar("T")

KEEP_ALIVE = 60.0  # seconds that an idle connection is kept
MAX_HEAD = 100 * 1024  # bytes of the head of a response
SWITCHING_PROTOCOLS = 101  # what a server says that was asked for another protocol
READ_BYTES = 64 * 1024  # bytes that are read at a time, at most
MAX_HANGING = 64  # look-ups of host names that were abandoned and still run
Timeouts: TypeAlias = Mapping[str, float | None]
"""Seconds to wait to "connect", and to "read" the next bytes, as httpcore has them; `None` is without end."""
_LOOK_UPS = WorkerThreads(8)
SOCKET_NAMES = {"client_addr": "sockname", "server_addr": "peername"}  # asyncio's names


class CountingReader(asyncio.StreamReader):
    """A stream reader that knows how many bytes have arrived and are still unread."""

    unread = 0

    def feed_data(self, data: Any) -> None:
        """Add bytes that have arrived."""
        self.unread += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        """Return the next bytes."""
        data = await super().read(n)
        self.unread -= len(data)
        return data


class AsyncioStream(httpcore.AsyncNetworkStream):
    """One connection. Written bytes are sent with the next read, so that head and body leave in one packet."""

    def __init__(self, reader: CountingReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unsent: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Send what was written and return the next bytes; empty at the end of the stream."""
        if self._unsent:
            await self._send(timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Keep bytes for the next read."""
        if buffer:
            self._unsent.append(buffer)

    async def aclose(self) -> None:
        """Close the connection without waiting for the server to read the rest or to end TLS."""
        # After a failed `start_tls` the writer is closing too, and waiting for it would never end.
        if self._writer.is_closing():
            return
        transport = self._writer.transport
        is_plain = self._writer.get_extra_info("ssl_object") is None
        if is_plain and not transport.get_write_buffer_size():
            self._writer.close()
        else:
            transport.abort()
        try:
            await self._writer.wait_closed()
        except (OSError, ssl.SSLError):
            return  # the connection is gone already

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Upgrade the connection to TLS."""
        try:
            async with asyncio.timeout(timeout):
                await self._writer.start_tls(
                    ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            raise httpcore.ConnectError(str(error)) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks: whether unexpected bytes or the end of the stream wait, and TLS and addresses."""
        if info == "is_readable":
            return self._is_readable()
        if info in {"ssl_object", "socket", "client_addr", "server_addr"}:
            return self._writer.get_extra_info(SOCKET_NAMES.get(info, info))
        return None

    def _is_readable(self) -> bool:
        if self._reader.at_eof() or self._writer.is_closing():
            return True
        if self._reader.unread > 0:
            return True
        sock: socket.socket | None = self._writer.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock.fileno()], [], [], 0)[0])
        poll = select.poll()  # unlike `select`, it takes descriptors of any size
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    async def _send(self, timeout: float | None) -> None:
        unsent, self._unsent = b"".join(self._unsent), []
        writer, reader = self._writer, self._reader
        try:
            writer.write(unsent)
            is_sent = writer.transport.get_write_buffer_size() == 0
            if is_sent and not writer.is_closing() and reader.exception() is None:
                return  # most requests go into the system's buffer at once
            async with asyncio.timeout(timeout):
                await writer.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error


class AsyncioBackend(httpcore.AsyncNetworkBackend):
    """Opens connections with asyncio."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a server.

        Raises:
            httpcore.ConnectTimeout: no connection in time.
            httpcore.ConnectError: any other failure.
        """
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                stream = await _connect(host, port, local)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        stream.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)


async def _connect(
    host: str, port: int, local: tuple[str, int] | None
) -> AsyncioStream:
    """Connect to the first address of a host that answers; raise the `OSError` of the last one."""
    *others, last = await _find_addresses(host, port)
    for address in others:
        with contextlib.suppress(OSError):
            return await _connect_to(address, port, local)
    return await _connect_to(last, port, local)


async def _connect_to(
    address: str, port: int, local: tuple[str, int] | None
) -> AsyncioStream:
    loop = asyncio.get_running_loop()
    reader = CountingReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(
        lambda: protocol, address, port, local_addr=local
    )
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    return AsyncioStream(reader, writer)


async def _find_addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, at least one: itself if it is one, else those that are looked up.

    asyncio would look it up in a thread of the event loop's few, where journals are read too.
    """
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return [host]
    found = await look_up(_LOOK_UPS, host, port, MAX_HANGING)
    return list(map(_format_address, found))


def _format_address(address: SocketAddress) -> str:
    """Return the text of an address, with the scope that a link-local one of IPv6 has."""
    text, _, *ipv6 = address
    return f"{text}%{ipv6[1]}" if ipv6 and ipv6[1] else str(text)


_BACKEND = AsyncioBackend()
_HANDLE = httpcore.AsyncHTTPConnection.handle_async_request


@dataclasses.dataclass(frozen=True, slots=True)
class Post:
    """A request; its repr shows no headers, since one may hold an API key, and variables are shown in reports of errors."""

    target: bytes
    headers: Sequence[tuple[bytes, bytes]] = dataclasses.field(repr=False)
    body: bytes = dataclasses.field(repr=False)


class Head(NamedTuple):
    """The head of a response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


class State(enum.Enum):
    """What a connection is doing."""

    NEW = "new"
    BUSY = "busy"
    IDLE = "idle"
    CLOSED = "closed"


class Connection:
    """A connection to one server, opened with its first request; its user makes one request at a time.

    Args:
        origin: the server.
        tls: how its certificate is checked; `None` for a server without TLS.
        backend: opens the socket.

    The methods raise the errors of httpcore.
    """

    def __init__(
        self,
        origin: httpcore.Origin,
        tls: ssl.SSLContext | None,
        backend: httpcore.AsyncNetworkBackend,
    ) -> None:
        self._origin, self._tls, self._backend = origin, tls, backend
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._state, self._idle_until = State.NEW, 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the last response was read to its end, so that another request may follow."""
        return self._state is State.IDLE

    def has_expired(self) -> bool:
        """Whether an idle connection is too old, or the server has closed it."""
        if time.monotonic() > self._idle_until or self._stream is None:
            return True
        return bool(self._stream.get_extra_info("is_readable"))

    async def post(self, request: Post, timeouts: Timeouts) -> Head:
        """Send a request, and return the head of its response."""
        self._state = State.BUSY
        stream = self._stream or await self._open(timeouts["connect"])
        parts = _translate_errors(_encode, self._protocol, request)
        for part in parts:  # they leave together, with the next read
            await stream.write(part)
        while True:
            event = await self._receive(stream, timeouts["read"])
            if isinstance(event, h11.Response):
                return Head(event.status_code, tuple(event.headers.raw_items()))
            if (
                not isinstance(event, h11.InformationalResponse)
                or event.status_code == SWITCHING_PROTOCOLS
            ):
                raise httpcore.RemoteProtocolError(
                    "the server switched to another protocol"
                )

    async def read_body(self, timeouts: Timeouts) -> AsyncGenerator[bytes]:
        """Yield the body of the response in chunks, as it is sent."""
        while self._stream is not None:
            event = await self._receive(self._stream, timeouts["read"])
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)

    async def end(self) -> None:
        """End a request: the connection is idle if its response was read to the end, and closed otherwise."""
        protocol = self._protocol
        is_read = protocol.our_state is h11.DONE and protocol.their_state is h11.DONE
        # Bytes behind the response would be read as that to the next request.
        if is_read and not protocol.trailing_data[0]:
            protocol.start_next_cycle()
            self._state = State.IDLE
            self._idle_until = time.monotonic() + KEEP_ALIVE
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        self._state = State.CLOSED
        if self._stream is not None:
            await self._stream.aclose()

    async def _open(self, timeout: float | None) -> httpcore.AsyncNetworkStream:
        host = self._origin.host.decode("ascii")
        stream = await self._backend.connect_tcp(host, self._origin.port, timeout)
        self._stream = stream
        if self._tls is not None:
            self._tls.set_alpn_protocols(["http/1.1"])
            stream = self._stream = await stream.start_tls(self._tls, host, timeout)
        return stream

    async def _receive(
        self, stream: httpcore.AsyncNetworkStream, timeout: float | None
    ) -> object:
        """Return the next event of the protocol, reading until there is one."""
        protocol = self._protocol
        while True:
            event = _translate_errors(protocol.next_event)
            if event is not h11.NEED_DATA:
                return event
            data = await stream.read(READ_BYTES, timeout)
            if not data and protocol.their_state is h11.SEND_RESPONSE:
                raise httpcore.RemoteProtocolError(
                    "Server disconnected without sending a response."
                )
            _translate_errors(protocol.receive_data, data)


def _encode(protocol: h11.Connection, post: Post) -> list[bytes]:
    """Return the bytes of a request in parts; no variable has its headers."""
    head = protocol.send(
        h11.Request(method=b"POST", target=post.target, headers=list(post.headers))
    )
    parts = head, protocol.send(h11.Data(data=post.body))
    return [part for part in (*parts, protocol.send(h11.EndOfMessage())) if part]


def _translate_errors(
    function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
) -> T:
    """Call a function of h11; raise its errors as those of httpcore."""
    try:
        return function(*arguments, **options)
    except h11.RemoteProtocolError as error:
        raise httpcore.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpcore.LocalProtocolError(str(error)) from error


class WatchedConnection(Connection):
    """Sends by httpcore's connection, which a test replaced to see the requests, as respx does."""

    async def post(self, request: Post, timeouts: Timeouts) -> Head:
        """Send a request, and return the head of its response."""
        origin = self._origin
        url = httpcore.URL(
            scheme=origin.scheme,
            host=origin.host,
            port=origin.port,
            target=request.target,
        )
        sent = httpcore.Request(
            b"POST",
            url,
            headers=request.headers,
            content=request.body,
            extensions={"timeout": dict(timeouts)},
        )
        connection = httpcore.AsyncHTTPConnection(origin)
        response = await connection.handle_async_request(sent)
        self._body = await response.aread()
        return Head(response.status, tuple(response.headers))

    async def read_body(self, timeouts: Timeouts) -> AsyncGenerator[bytes]:
        """Yield the body of the response."""
        yield self._body


class ConnectionStack:
    """The idle connections of one event loop to one server, of which the last one used is taken first.

    httpcore's pool scans all its connections on every request; a stack of single connections looks at one.
    """

    def __init__(self, origin: httpcore.Origin, tls: ssl.SSLContext | None) -> None:
        self._origin, self._tls = origin, tls
        self._idle: collections.deque[Connection] = collections.deque()
        self._is_open = True
        self._lifetime = self._close_with_loop()

    async def start(self) -> None:
        """Have the idle connections closed when the event loop ends.

        `asyncio.run` closes async generators that are open, and with this one the connections.
        """
        await anext(self._lifetime)

    async def aclose(self) -> None:
        """Close the idle connections, and every other one when it is released."""
        await self._lifetime.aclose()

    async def acquire(self) -> Connection:
        """Return an idle connection that still works, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            # `has_expired` also looks at the socket, since the server may have closed it.
            if not connection.has_expired():
                return connection
            await connection.aclose()
        is_replaced = httpcore.AsyncHTTPConnection.handle_async_request is not _HANDLE
        kind = WatchedConnection if is_replaced else Connection
        return kind(self._origin, self._tls, _BACKEND)

    async def release(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it if it cannot be used again."""
        if not (self._is_open and connection.is_idle):
            await connection.aclose()
            return
        self._idle.append(connection)
        while len(self._idle) > 1 and self._idle[0].has_expired():
            await self._idle.popleft().aclose()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self._is_open = False
            while self._idle:
                await self._idle.popleft().aclose()
