"""Web servers on this machine that answer as they are told, and count who comes."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

import pytest

Answer: TypeAlias = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Site:
    """A server: what it says by path, the connections it had, and the heads of the requests it got."""

    answers: dict[str, Answer]
    port: int = 0
    connections: int = 0
    heads: list[str] = field(default_factory=list)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        self._serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        # asyncio's own callback of a connection cannot take a task that was cancelled
        with contextlib.suppress(
            OSError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            await self._answer(reader, writer)
            writer.close()
            await writer.wait_closed()
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            answer = self.answers.get(
                head.split(" ")[1], answered(b"not here", status=404)
            )
            if not isinstance(answer, bytes):
                return await answer(writer)
            writer.write(answer)
            await writer.drain()

    async def end(self) -> None:
        """Hang up on everybody."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)

    @property
    def asked(self) -> list[str]:
        """The first lines of the requests, without the version."""
        return [head.partition(" HTTP/")[0] for head in self.heads]


@contextlib.asynccontextmanager
async def website(
    answers: dict[str, Answer] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Site]:
    """A server that runs as long as the context."""
    site = Site(answers or {"/": answered(b"hello", type="text/plain")})
    listening = await asyncio.start_server(site.serve, host, port, ssl=tls)
    site.port = listening.sockets[0].getsockname()[1]
    async with listening:
        try:
            yield site
        finally:
            await site.end()


def secure(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server of that name, with a certificate made for it, and for a client that trusts it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here to make a certificate with")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    name_it = [
        "-subj",
        f"/CN={name}",
        "-addext",
        f"subjectAltName=DNS:{name}",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run([*make, *name_it], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


def answered(
    body: bytes = b"", *, status: int = 200, type: str = "text/html", **headers: str
) -> bytes:
    """An answer of HTTP/1.1; underscores in the names of headers stand for dashes."""
    fields = {"content-type": type, "content-length": str(len(body)), **headers}
    lines = "".join(
        f"{name.replace('_', '-')}: {value}\r\n"
        for name, value in fields.items()
        if value
    )
    return f"HTTP/1.1 {status} Word\r\n{lines}\r\n".encode() + body


def redirected(to: str, status: int = 302) -> bytes:
    """An answer that leads elsewhere."""
    return answered(status=status, location=to)
