"""Sockets for httpcore over asyncio's own streams, without anyio's extra turns of the event loop at each step."""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore


class CountingReader(asyncio.StreamReader):
    """Knows how many bytes have come that nobody has read yet."""

    unread = 0

    def feed_data(self, data: Any) -> None:
        """Bytes have come."""
        self.unread += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        """The next bytes."""
        data = await super().read(n)
        self.unread -= len(data)
        return data


class AsyncioStream(httpcore.AsyncNetworkStream):
    """One connection. What is written goes out with the next read, so that head and body leave together."""

    def __init__(self, reader: CountingReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unsent: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Send what was written, and wait for the next bytes; none at the end of the stream."""
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
        """Hang up, without waiting for the other side: neither for its goodbye over TLS nor until it reads the rest."""
        if self._writer.is_closing():
            return  # also after a failed `start_tls`, whose writer nobody would tell that it is closed
        transport = self._writer.transport
        if (
            self._writer.get_extra_info("ssl_object") is None
            and not transport.get_write_buffer_size()
        ):
            self._writer.close()
        else:
            transport.abort()
        try:
            await self._writer.wait_closed()
        except (OSError, ssl.SSLError):
            return  # it is gone already

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Go on encrypted."""
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
        """What httpcore asks about a connection: whether the server has hung up (or spoken out of turn), and TLS."""
        if info == "is_readable":
            over = self._reader.at_eof() or self._writer.is_closing()
            return over or self._reader.unread > 0 or self._is_readable()
        if info in {"ssl_object", "socket", "client_addr", "server_addr"}:
            names = {"client_addr": "sockname", "server_addr": "peername"}
            return self._writer.get_extra_info(names.get(info, info))
        return None

    def _is_readable(self) -> bool:
        sock: socket.socket | None = self._writer.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return True
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock.fileno()], [], [], 0)[0])
        poll = select.poll()  # takes descriptors of any size, unlike select
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
        """Connect, or raise `httpcore.ConnectError` or `httpcore.ConnectTimeout`."""
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
        """Wait."""
        await asyncio.sleep(seconds)
