"""Own sockets: good certificates work, bad ones are refused for good, and troubles have names that httpcore knows."""

import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore
import pytest

from loopwright import Conversation, ProviderError, Request
from loopwright.providers import OpenAIProvider
from loopwright.providers.http import transport
from loopwright.providers.http.connections import (
    AsyncioBackend,
    Connection,
    Post,
    Timeouts,
)
from waiting import eventually

ANSWER = json.dumps(
    {"choices": [{"message": {"content": "over TLS"}, "finish_reason": "stop"}]}
).encode()
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(ANSWER)
)
ASKED = Request(Conversation.of("x"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost with its key, made for this test."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        *subject,
    ]
    subprocess.run(
        [*make, "-keyout", str(file), "-out", str(file) + ".crt"],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate, trusted by the connections of this test."""
    monkeypatch.setattr(
        transport,
        "_tls",
        lambda: ssl.create_default_context(cafile=str(certificate) + ".crt"),
    )
    return certificate


@asynccontextmanager
async def server(certificate: Path) -> AsyncIterator[tuple[int, list[int]]]:
    """A TLS server that answers every request; its port, and the number of requests on each connection."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(0)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(
                    int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                )
                requests[-1] += 1
                writer.write(HEAD + ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, details: None
    )  # a refused handshake is expected
    try:
        yield listening.sockets[0].getsockname()[1], requests
    finally:
        listening.close()


async def test_calls_over_tls_share_one_connection(trusted: Path) -> None:
    async with server(trusted) as (port, requests):
        provider = OpenAIProvider(
            "m", base_url=f"https://localhost:{port}/v1", api_key="a-long-key"
        )
        answers = [(await provider.complete(ASKED)).answer for _ in range(3)]
        await provider.aclose()

    assert answers == ["over TLS"] * 3
    assert requests == [3]


async def test_a_certificate_of_another_host_is_refused_and_not_tried_again(
    trusted: Path,
) -> None:
    async with server(trusted) as (port, _):
        provider = OpenAIProvider(
            "m", base_url=f"https://127.0.0.1:{port}/v1", api_key="a-long-key"
        )
        with pytest.raises(ProviderError, match="certificate verify failed") as raised:
            await provider.complete(ASKED)
        await provider.aclose()

    assert not raised.value.retryable


async def test_a_call_over_tls_that_is_cancelled_does_not_wait_for_the_server_s_goodbye(
    trusted: Path,
) -> None:
    async def silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked.set()
        await over.wait()
        writer.transport.abort()

    asked, over = asyncio.Event(), asyncio.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted)
    async with await asyncio.start_server(
        silent, "127.0.0.1", 0, ssl=context
    ) as listening:
        port = listening.sockets[0].getsockname()[1]
        provider = OpenAIProvider(
            "m", base_url=f"https://localhost:{port}/v1", api_key="x"
        )
        call = asyncio.ensure_future(provider.complete(ASKED))
        await asked.wait()
        call.cancel()
        done, _ = await asyncio.wait(
            [call], timeout=10
        )  # the goodbye would be waited for three times as long
        over.set()

    assert done == {call}


# --- one connection ---

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connection(serve: Serve) -> AsyncIterator[httpcore.AsyncNetworkStream]:
    """A connection to a server on this machine that does what `serve` says, until it is over."""

    async def until_over(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await serve(reader, writer)
        await over.wait()
        writer.transport.abort()

    over = asyncio.Event()
    async with await asyncio.start_server(until_over, "127.0.0.1", 0) as listening:
        stream = await AsyncioBackend().connect_tcp(
            "127.0.0.1", listening.sockets[0].getsockname()[1], timeout=5
        )
        try:
            yield stream
        finally:
            over.set()
            await stream.aclose()


async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that neither reads nor writes."""


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that throws the connection away after the first byte."""
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that says again what comes first, and hangs up."""
    writer.write(await reader.read(100))
    writer.close()


async def test_what_is_written_leaves_with_the_next_read_and_an_end_is_no_bytes() -> (
    None
):
    async with connection(echo) as stream:
        for part in (b"o", b"", b"ne"):
            await stream.write(part)

        assert await stream.read(100, timeout=60) == b"one"
        assert await stream.read(100, timeout=60) == b""


async def test_a_server_that_says_nothing_is_a_read_timeout() -> None:
    async with connection(quiet) as stream:
        with pytest.raises(httpcore.ReadTimeout):
            await stream.read(100, timeout=0.01)


async def test_a_server_that_reads_nothing_is_a_write_timeout() -> None:
    async with connection(quiet) as stream:
        await stream.write(
            bytes(32 * 2**20)
        )  # more than the system keeps for a connection
        with pytest.raises(httpcore.WriteTimeout):
            await stream.read(100, timeout=0.1)


async def test_hanging_up_does_not_wait_for_a_server_that_reads_nothing() -> None:
    async with connection(quiet) as stream:
        await stream.write(bytes(32 * 2**20))
        with pytest.raises(httpcore.WriteTimeout):
            await stream.read(100, timeout=0.01)
        closing = asyncio.ensure_future(stream.aclose())
        done, _ = await asyncio.wait([closing], timeout=60)
        assert done == {closing}


async def test_a_reset_connection_is_a_read_error_then_a_write_error_and_closes() -> (
    None
):
    async with connection(resetting) as stream:
        await stream.write(b"x")
        with pytest.raises(httpcore.ReadError):
            await stream.read(100, timeout=60)
        await stream.write(b"x")
        with pytest.raises(httpcore.WriteError):
            await stream.read(100, timeout=60)
        await stream.aclose()


async def test_a_silent_tls_server_is_a_connect_timeout_that_leaves_nothing_open() -> (
    None
):
    async def silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        hello.set_result(await reader.read())  # to the end: the client hangs up
        writer.close()

    hello = asyncio.get_running_loop().create_future()
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        stream = await AsyncioBackend().connect_tcp("127.0.0.1", port, timeout=60)
        with pytest.raises(httpcore.ConnectTimeout):
            await stream.start_tls(
                ssl.create_default_context(), "localhost", timeout=0.3
            )

        assert b"localhost" in await hello


async def test_an_unaccepted_connection_is_a_timeout_and_a_closed_port_an_error() -> (
    None
):
    backend = AsyncioBackend()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(httpcore.ConnectTimeout):
            await backend.connect_tcp("127.0.0.1", port, timeout=0.0)
    await backend.sleep(0.0)
    with pytest.raises(httpcore.ConnectError):
        await backend.connect_tcp("127.0.0.1", port, timeout=60)


Addresses = list[tuple[Any, ...]]


def answer_names(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Callable[[], Addresses]]
) -> list[str]:
    """Answer the look-ups of these hosts; return the list of all hosts that are asked for from now on."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> Any:
        asked.append(host)
        return answers[host]() if host in answers else real(host, *options, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def stream_address(*address: Any) -> tuple[Any, ...]:
    family = socket.AF_INET if len(address) == 2 else socket.AF_INET6
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address


async def test_a_name_server_that_does_not_answer_takes_no_thread_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def hang() -> Addresses:
        go.wait(60)
        raise OSError("no answer")

    answer_names(monkeypatch, {"slow.example": hang})
    backend = AsyncioBackend()
    try:
        slow = [backend.connect_tcp("slow.example", 80, timeout=0.2) for _ in range(40)]
        ends = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(end) for end in ends} == {httpcore.ConnectTimeout}

        async with asyncio.timeout(30):
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(40)))
            async with await asyncio.start_server(echo, "127.0.0.1", 0) as listening:
                port = listening.sockets[0].getsockname()[1]
                stream = await backend.connect_tcp("localhost", port)
                await stream.aclose()
    finally:
        go.set()


async def test_a_host_whose_first_address_does_not_answer_is_reached_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        found = [stream_address(ip, port) for ip in ("127.0.0.2", "127.0.0.1")]
        answer_names(monkeypatch, {"two.example": lambda: found})
        stream = await AsyncioBackend().connect_tcp("two.example", port, timeout=5)
        assert stream.get_extra_info("server_addr") == ("127.0.0.1", port)
        await stream.aclose()

        del found[1]
        with pytest.raises(httpcore.ConnectError):
            await AsyncioBackend().connect_tcp("two.example", port, timeout=5)


async def test_a_link_local_address_keeps_its_scope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> Addresses:
        raise OSError("no such scope")

    found = [stream_address("fe80::1", 80, 0, 7)]
    answers = {"box.local": lambda: found, "fe80::1%7": refuse}
    asked = answer_names(monkeypatch, answers)
    with pytest.raises(httpcore.ConnectError, match="no such scope"):
        await AsyncioBackend().connect_tcp("box.local", 80, timeout=5)

    assert asked == ["box.local", "fe80::1%7"]


async def test_a_connection_may_bind_a_local_address_and_reports_both_ends() -> None:
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as listening:
        server = listening.sockets[0].getsockname()
        stream = await AsyncioBackend().connect_tcp(
            "127.0.0.1", server[1], timeout=5, local_address="127.0.0.2"
        )
        told = [
            stream.get_extra_info(info)
            for info in ("server_addr", "ssl_object", "nothing of this name")
        ]
        assert told == [server, None, None]
        assert stream.get_extra_info("client_addr")[0] == "127.0.0.2"
        await stream.aclose()


@pytest.mark.parametrize(
    ("last_words", "hangs_up", "used_again"),
    [(b"", False, True), (b"x", False, False), (b"", True, False)],
)
async def test_only_a_connection_on_which_nothing_waits_is_used_again(
    last_words: bytes, hangs_up: bool, used_again: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(1) + last_words)
        if hangs_up:
            writer.close()
            await writer.wait_closed()

    async with connection(serve) as stream:
        await stream.write(b"x")
        assert await stream.read(1, timeout=60) == b"x"
        if used_again:
            await asyncio.sleep(0.05)
            assert not stream.get_extra_info("is_readable")
        else:
            await eventually(lambda: stream.get_extra_info("is_readable"))
        await stream.aclose()
        assert stream.get_extra_info("is_readable")


# --- requests on one connection ---

TIMEOUTS: Timeouts = {"connect": 5.0, "read": 5.0}
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@asynccontextmanager
async def connected(*answers: bytes) -> AsyncGenerator[Connection]:
    """A connection to a server that gives one answer after the other, and then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        origin = httpcore.Origin(b"http", b"127.0.0.1", port)
        connection = Connection(origin, None, AsyncioBackend())
        try:
            yield connection
        finally:
            await connection.aclose()


async def post(connection: Connection) -> tuple[int, bytes]:
    headers = [(b"host", b"here"), (b"content-length", b"2")]
    head = await connection.post(Post(b"/v1", headers, b"{}"), TIMEOUTS)
    chunks = [chunk async for chunk in connection.read_body(TIMEOUTS)]
    await connection.end()
    return head.status, b"".join(chunks)


async def test_a_connection_is_used_again_once_a_response_was_read_to_its_end() -> None:
    async with connected(RESPONSE, RESPONSE) as connection:
        assert [await post(connection), await post(connection)] == [(200, b"hello")] * 2
        assert connection.is_idle


@pytest.mark.parametrize("rest", [RESPONSE, b"x"], ids=["response", "byte"])
async def test_a_connection_with_bytes_behind_a_response_is_not_used_again(
    rest: bytes,
) -> None:
    async with connected(RESPONSE + rest, RESPONSE) as connection:
        assert await post(connection) == (200, b"hello")

        assert not connection.is_idle
        assert connection.has_expired()


async def test_early_hints_before_a_response_are_skipped() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"

    async with connected(hints + hints + RESPONSE) as connection:
        assert await post(connection) == (200, b"hello")


async def test_a_server_that_switches_protocols_is_refused() -> None:
    switch = (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    )

    async with connected(switch) as connection:
        with pytest.raises(httpcore.RemoteProtocolError):
            await post(connection)


@pytest.mark.parametrize(
    "answer",
    [
        RESPONSE[:-2],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
        b"220 mail.example ESMTP\r\n\r\n",
        b"",
    ],
    ids=["cut", "chunk", "two_lengths", "large_head", "other_protocol", "nothing"],
)
async def test_a_response_that_is_not_http_is_a_protocol_error(answer: bytes) -> None:
    async with connected(answer) as connection:
        with pytest.raises(httpcore.RemoteProtocolError):
            await post(connection)

        assert not connection.is_idle


async def test_a_response_that_is_left_before_its_end_closes_the_connection() -> None:
    async with connected(RESPONSE[:-2], RESPONSE) as connection:
        headers = [(b"host", b"here"), (b"content-length", b"2")]
        await connection.post(Post(b"/v1", headers, b"{}"), TIMEOUTS)
        await connection.end()

        assert not connection.is_idle
        assert connection.has_expired()


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with connected(RESPONSE) as connection:
        headers = [(b"host", b"here"), (b"x", b"a\r\nb: c")]
        with pytest.raises(httpcore.LocalProtocolError):
            await connection.post(Post(b"/v1", headers, b"{}"), TIMEOUTS)


def test_a_request_shows_no_headers() -> None:
    assert "secret" not in repr(Post(b"/v1", [(b"authorization", b"secret")], b"{}"))
