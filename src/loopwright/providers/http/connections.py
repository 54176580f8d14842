"""Connections for httpcore: over asyncio's own streams, which take fewer turns of the event loop than anyio's."""

import asyncio
import collections
import select
import socket
import ssl
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import httpcore

KEEP_ALIVE = 60.0  # seconds that an idle connection is kept
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
        try:
            self._writer.write(unsent)
            async with asyncio.timeout(timeout):
                await self._writer.drain()
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
                loop = asyncio.get_running_loop()
                reader = CountingReader(loop=loop)
                protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
                transport, _ = await loop.create_connection(
                    lambda: protocol, host, port, local_addr=local
                )
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        writer.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        return AsyncioStream(reader, writer)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        await asyncio.sleep(seconds)


_BACKEND = AsyncioBackend()


class ConnectionStack:
    """The idle connections of one event loop to one server, of which the last one used is taken first.

    httpcore's pool scans all its connections on every request; a stack of single connections looks at one.
    """

    def __init__(self, origin: httpcore.Origin, tls: ssl.SSLContext | None) -> None:
        self._origin, self._tls = origin, tls
        self._idle: collections.deque[httpcore.AsyncHTTPConnection] = (
            collections.deque()
        )
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

    async def acquire(self) -> httpcore.AsyncHTTPConnection:
        """Return an idle connection that still works, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            # `has_expired` also looks at the socket, since the server may have closed it.
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            self._origin,
            self._tls,
            keepalive_expiry=KEEP_ALIVE,
            network_backend=_BACKEND,
        )

    async def release(self, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep a connection for the next request, or close it if it cannot be used again."""
        if not (self._is_open and connection.is_available()):
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
