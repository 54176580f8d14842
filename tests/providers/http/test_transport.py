"""The transport: bytes out, bytes back, and every way in which a connection can fail."""

import asyncio
import contextlib
import gc
import gzip
import pickle
import traceback
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

import httpx
import pytest
from pydantic import SecretStr

from loopwright.errors import ConfigError, ProviderError, ProviderTimeout
from loopwright.providers.http.response import (
    Response,
    is_retryable,
    read_retry_after,
)
from loopwright.providers.http.sse import ServerEvent
from loopwright.providers.http.transport import HTTPTransport, StreamingResponse
from waiting import eventually

KEY = "sk-very-secret-1234567890"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server on this machine that answers each request with `answer` and keeps what it was asked."""

    def __init__(self, answer: bytes | Answer) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.connections = 0
        self.url = ""
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(
                    head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                )
                self.requests.append(head + await reader.readexactly(length))
                if isinstance(self.answer, bytes):
                    writer.write(self.answer)
                    await writer.drain()
                else:
                    await self.answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done
        finally:
            self._open.discard(writer)
            writer.close()

    def hang_up(self) -> None:
        """Close the connections that clients keep; since Python 3.12 a server waits for them when it closes."""
        for writer in self._open:
            writer.close()


@contextlib.asynccontextmanager
async def serving(answer: bytes | Answer, port: int = 0) -> AsyncIterator[Server]:
    server = Server(answer)
    async with await asyncio.start_server(server.serve, "127.0.0.1", port) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        try:
            yield server
        finally:
            server.hang_up()


@contextlib.asynccontextmanager
async def connected(
    answer: bytes | Answer, timeout: float = 5.0
) -> AsyncIterator[tuple[Server, HTTPTransport]]:
    async with serving(answer) as server:
        transport = to(server.url, timeout=timeout)
        yield server, transport
        await transport.aclose()


def to(url: str, **options: object) -> HTTPTransport:
    headers = {
        "authorization": SecretStr(f"Bearer {KEY}"),
        "content-type": "application/json",
    }
    return HTTPTransport(url, "/chat/completions", headers=headers, **options)  # type: ignore[arg-type]


def through(reply: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(reply))


async def test_a_post_sends_the_body_and_brings_back_status_headers_and_body() -> None:
    async with connected(OK) as (server, transport):
        reply = await transport.post(b'{"a":1}')

    assert reply == Response(
        200, ((b"content-type", b"text/plain"), (b"content-length", b"5")), b"hello"
    )
    host = server.url.removeprefix("http://").removesuffix("/v1")
    assert server.requests == [
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n"
        'content-type: application/json\r\ncontent-length: 7\r\n\r\n{"a":1}'.encode()
    ]


async def test_a_status_of_an_error_is_a_reply_like_any_other() -> None:
    async with connected(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    ) as (_, transport):
        reply = await transport.post(b"{}")

    assert (
        reply.status,
        reply.header("retry-after"),
        reply.header("x-none"),
        reply.body,
    ) == (503, "7", "", b"")


async def test_calls_one_after_another_share_a_connection() -> None:
    async with connected(OK) as (server, transport):
        for _ in range(5):
            await transport.post(b"{}")

    assert (len(server.requests), server.connections) == (5, 1)


async def test_sixty_concurrent_calls_open_connections_that_the_next_sixty_reuse() -> (
    None
):
    waiting = asyncio.Event()

    async def when_all_are_here(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(server.requests) % 60 == 0:
            waiting.set()
        await waiting.wait()
        writer.write(OK)

    async with connected(when_all_are_here) as (server, transport):
        for _ in range(2):
            waiting.clear()
            replies = await asyncio.gather(*(transport.post(b"{}") for _ in range(60)))
            assert {reply.body for reply in replies} == {b"hello"}

    assert (len(server.requests), server.connections) == (120, 60)


async def test_a_connection_that_the_server_has_hung_up_is_not_used_again() -> None:
    async def once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)  # without saying that the connection closes
        await writer.drain()
        writer.close()

    async with connected(once) as (server, transport):
        await transport.post(b"{}")
        (connections,) = transport._loops.values()
        await eventually(connections._idle[0].has_expired)
        reply = await transport.post(b"{}")

    assert (reply.body, server.connections) == (b"hello", 2)


async def test_a_connection_that_the_server_closed_is_let_go_when_another_one_comes_back() -> (
    None
):
    both, first_may_end, first_is_back = (
        asyncio.Barrier(2),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def first_hangs_up(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        place = len(server.requests)
        if place <= 2:
            await both.wait()
        if place == 2:  # so that the first comes back first and lies at the bottom
            await first_is_back.wait()
        writer.write(OK)
        if place == 1:
            await first_may_end.wait()
            writer.close()

    async with connected(first_hangs_up) as (server, transport):
        posts = [asyncio.ensure_future(transport.post(b"{}")) for _ in range(2)]
        await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
        first_is_back.set()
        await asyncio.gather(*posts)
        (connections,) = transport._loops.values()
        assert len(connections._idle) == 2
        first_may_end.set()
        await eventually(connections._idle[0].has_expired)
        await transport.post(b"{}")

        assert (len(connections._idle), server.connections) == (1, 2)


@pytest.mark.parametrize(
    ("encoding", "encoded"),
    [("gzip", gzip.compress(b"hello")), ("deflate", zlib.compress(b"hello"))],
    ids=["gzip", "deflate"],
)
async def test_a_compressed_body_is_decoded(encoding: str, encoded: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(encoded)}\r\n\r\n"

    async with connected(head.encode() + encoded) as (_, transport):
        assert (await transport.post(b"{}")).body == b"hello"


async def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    async def never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with connected(never, timeout=0.05) as (server, transport):
        with pytest.raises(ProviderTimeout) as caught:
            await transport.post(b"{}")

        assert caught.value.retryable
        assert f"{server.url}/chat/completions gave no answer in time" in str(
            caught.value
        )
        assert isinstance(caught.value, TimeoutError)


async def test_a_server_that_stops_in_the_middle_is_a_timeout() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK[:-2])
        await reader.read()

    async with connected(half, timeout=0.05) as (_, transport):
        with pytest.raises(ProviderTimeout):
            await transport.post(b"{}")


@pytest.mark.parametrize(
    "start", [b"", OK[:10], OK[:-2], b"SSH-2.0-OpenSSH_9.9\r\n\r\n"]
)
async def test_a_connection_that_breaks_is_worth_another_try(start: bytes) -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        writer.transport.abort() if start == OK[:-2] else writer.close()

    async with connected(reset) as (server, transport):
        with pytest.raises(ProviderError, match="the connection to") as caught:
            await transport.post(b"{}")

        assert (caught.value.retryable, caught.value.status) == (True, None)
        assert server.url in str(caught.value)


async def test_a_server_that_is_down_is_named_and_worth_another_try() -> None:
    async with serving(OK) as server:
        url = server.url

    with pytest.raises(
        ProviderError,
        match=r"the connection to http://127\.0\.0\.1:\d+/v1/chat/completions failed",
    ) as caught:
        await to(url).post(b"{}")

    assert caught.value.retryable


async def test_a_host_that_cannot_be_looked_up_is_a_failed_connection() -> None:
    with pytest.raises(ProviderError, match="failed") as caught:
        await to("http://a..b/v1").post(b"{}")

    assert caught.value.retryable


async def test_tls_with_a_server_that_speaks_plain_http_is_a_failed_connection() -> (
    None
):
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        with pytest.raises(
            ProviderError,
            match=r"the connection to https://.* failed: ConnectError: .*SSL",
        ) as caught:
            await to(
                f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
            ).post(b"{}")

    assert caught.value.retryable


async def test_a_redirect_is_not_followed_and_says_where_it_leads() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere/v1\r\nContent-Length: 0\r\n\r\n"

    async with connected(redirect) as (server, transport):
        with pytest.raises(
            ProviderError, match=r"redirects to https://elsewhere/v1 \(status 302\)"
        ) as caught:
            await transport.post(b"{}")

        assert (caught.value.retryable, caught.value.status, len(server.requests)) == (
            False,
            302,
            1,
        )


async def test_a_body_without_end_is_cut_off_at_ten_megabytes() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"100000\r\n" + bytes(0x100000) + b"\r\n")
            await writer.drain()

    async with connected(endless) as (_, transport):
        with pytest.raises(ProviderError, match="sent more than 10 MB") as caught:
            await transport.post(b"{}")

    assert not caught.value.retryable


async def test_a_small_body_that_unpacks_to_more_than_ten_megabytes_is_cut_off() -> (
    None
):
    packed = gzip.compress(bytes(12_000_000), compresslevel=1)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()

    async with connected(head + packed) as (_, transport):
        with pytest.raises(ProviderError, match="sent more than 10 MB"):
            await transport.post(b"{}")


async def test_after_a_cancelled_call_the_next_one_gets_its_own_answer() -> None:
    async def late_at_first(
        _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(server.requests) == 1:
            asked.set()
            await asyncio.sleep(0.05)
            writer.write(OK.replace(b"hello", b"stale"))
        else:
            writer.write(OK)

    asked = asyncio.Event()
    async with connected(late_at_first) as (server, transport):
        call = asyncio.create_task(transport.post(b"{}"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.1)
        reply = await transport.post(b"{}")

    assert (reply.body, server.connections) == (b"hello", 2)


async def test_a_closed_transport_opens_a_new_connection_when_it_is_used_again() -> (
    None
):
    async with connected(OK) as (server, transport):
        await transport.post(b"{}")
        await transport.aclose()
        await transport.aclose()
        await transport.post(b"{}")

    assert server.connections == 2


async def test_a_call_in_flight_while_the_transport_closes_leaves_nothing_open() -> (
    None
):
    async def after_a_while(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked.set()
        await go_on.wait()
        writer.write(OK)
        ended.set_result(await reader.read())

    asked, go_on, ended = (
        asyncio.Event(),
        asyncio.Event(),
        asyncio.get_running_loop().create_future(),
    )
    async with connected(after_a_while) as (_, transport):
        call = asyncio.create_task(transport.post(b"{}"))
        await asked.wait()
        await transport.aclose()
        go_on.set()

        assert (await call).body == b"hello"
        assert await ended == b""  # the server sees that the connection is closed


def test_two_event_loops_one_after_the_other_share_no_connection_and_leave_none_open() -> (
    None
):
    async def run(port: int) -> int:
        async with serving(OK, port) as server:
            for _ in range(2):
                assert (await transport.post(b"{}")).body == b"hello"
            return server.connections

    async def free_port() -> str:
        async with serving(OK) as server:
            return server.url

    url = asyncio.run(free_port())
    port = int(url.split(":")[2].split("/")[0])
    transport = to(url)

    assert [asyncio.run(run(port)), asyncio.run(run(port))] == [1, 1]
    gc.collect()  # a socket that is still open would warn here


def test_a_loop_that_ended_without_a_word_is_forgotten() -> None:
    async def post() -> None:
        with pytest.raises(ProviderError):
            await transport.post(b"{}")

    transport = to("http://127.0.0.1:1/v1")
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(post())
        loop.close()

    assert len(transport._loops) == 1


async def test_an_injected_client_is_used_as_it_is_and_stays_open() -> None:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, text="hello")

    async with through(reply) as client:
        transport = to("http://models/v1", client=client)
        answer = await transport.post(b"{}")
        await transport.aclose()

        assert (answer.status, answer.body, client.is_closed) == (200, b"hello", False)
    assert (seen[0].method, str(seen[0].url), seen[0].content) == (
        "POST",
        "http://models/v1/chat/completions",
        b"{}",
    )
    assert seen[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("own", "used"), [(httpx.Timeout(5.0), 600.0), (httpx.Timeout(7.0), 7.0)]
)
async def test_a_client_with_the_default_timeout_gets_one_that_suits_models(
    own: httpx.Timeout, used: float
) -> None:
    seen: list[dict[str, float]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request.extensions["timeout"])
        return httpx.Response(200)

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(reply), timeout=own
    ) as client:
        await to("http://models/v1", client=client).post(b"{}")

    assert seen[0]["read"] == used


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ReadTimeout("late"), ProviderTimeout),
        (httpx.ConnectError("down"), ProviderError),
        (httpx.DecodingError("bad gzip"), ProviderError),
    ],
)
async def test_the_errors_of_an_injected_client_become_ours(
    raised: Exception, expected: type[ProviderError]
) -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise raised

    async with through(fail) as client:
        with pytest.raises(ProviderError) as caught:
            await to("http://models/v1", client=client).post(b"{}")

    assert (type(caught.value), caught.value.retryable) == (expected, True)


async def test_a_body_of_an_injected_client_has_the_same_limit() -> None:
    async with through(
        lambda _: httpx.Response(200, content=bytes(10_000_001))
    ) as client:
        with pytest.raises(ProviderError, match="sent more than 10 MB"):
            await to("http://models/v1", client=client).post(b"{}")


EVENTS = b"".join(
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n",
        b"Transfer-Encoding: chunked\r\nX-One: 1\r\n\r\n",
        *(
            b"%x\r\n%s\r\n" % (len(piece), piece)
            for piece in (b"data: one\n\nda", b"ta: two\n\nevent: end\nd")
        ),
        b"c\r\nata: last\r\n\n\r\n0\r\n\r\n",
    ]
)


async def events_of(reply: StreamingResponse) -> AsyncGenerator[ServerEvent]:
    """Its events, one by one."""
    while (events := await reply.read_events()) is not None:
        for event in events:
            yield event


THREE = [
    ServerEvent("message", "one"),
    ServerEvent("message", "two"),
    ServerEvent("end", "last"),
]


async def test_streaming_response_gives_head_then_events_and_keeps_connection() -> None:
    async with connected(EVENTS) as (server, transport):
        for _ in range(2):
            async with await transport.open(b"{}") as reply:
                assert (
                    reply.status,
                    reply.is_event_stream,
                    reply.head.header("x-one"),
                ) == (
                    200,
                    True,
                    "1",
                )
                assert [event async for event in events_of(reply)] == THREE

    assert (len(server.requests), server.connections) == (2, 1)


async def test_an_open_answer_can_be_read_whole() -> None:
    async with connected(OK) as (server, transport):
        for _ in range(2):
            async with await transport.open(b"{}") as reply:
                assert not reply.is_event_stream
                assert await reply.read() == Response(200, reply.head.headers, b"hello")

    assert server.connections == 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_events_are_decoded_as_they_come(encoding: str) -> None:
    async def in_halves(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        for text in (b"data: one\n\n", b"data: two\n\n"):
            packed = packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)
            writer.write(b"%x\r\n%s\r\n" % (len(packed), packed))
            await writer.drain()
            await seen.get()
        writer.write(b"0\r\n\r\n")

    seen: asyncio.Queue[str] = asyncio.Queue()
    async with (
        connected(in_halves) as (_, transport),
        await transport.open(b"{}") as reply,
    ):
        async for event in events_of(reply):
            seen.put_nowait(event.data)
            last = event

    assert last == THREE[1]


async def test_a_reply_left_early_is_closed_and_one_read_to_its_end_is_kept_alive() -> (
    None
):
    async with connected(EVENTS) as (server, transport):
        async with (
            await transport.open(b"{}") as reply,
            contextlib.aclosing(events_of(reply)) as events,
        ):
            assert await anext(events) == THREE[0]
        assert server.connections == 1
        async with await transport.open(b"{}") as reply:
            async with contextlib.aclosing(events_of(reply)) as events:
                while await anext(events) != THREE[-1]:
                    pass
            await reply.finish()
        assert server.connections == 2
        await transport.post(b"{}")

    assert server.connections == 2


async def test_a_caller_s_own_error_closes_the_answer_and_comes_through() -> None:
    async with connected(EVENTS) as (server, transport):
        with pytest.raises(KeyError):
            async with await transport.open(b"{}"):
                raise KeyError
        await transport.post(b"{}")

    assert server.connections == 2


async def test_an_open_redirect_is_refused_and_does_not_lead_anywhere() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: https://elsewhere/v1\r\nContent-Length: 0\r\n\r\n"

    async with connected(redirect) as (_, transport):
        with pytest.raises(
            ProviderError, match=r"redirects to https://elsewhere/v1 \(status 302\)"
        ):
            async with await transport.open(b"{}"):
                raise AssertionError("nobody gets here")


@pytest.mark.parametrize("client", [False, True])
async def test_a_stream_has_a_limit_too(client: bool) -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"100000\r\n" + b":" + b"x" * 0xFFFFE + b"\n\r\n")
            await writer.drain()

    async with serving(endless) as server, httpx.AsyncClient(trust_env=False) as theirs:
        transport = to(server.url, client=theirs if client else None)
        with pytest.raises(ProviderError, match="sent more than 50 MB") as caught:
            async with await transport.open(b"{}") as reply:
                [event async for event in events_of(reply)]
        await transport.aclose()

    assert not caught.value.retryable


async def test_an_open_answer_of_an_injected_client_is_the_same_and_is_closed() -> None:
    async with serving(EVENTS) as server, httpx.AsyncClient(trust_env=False) as theirs:
        transport = to(server.url, client=theirs)
        for _ in range(2):
            async with await transport.open(b"{}") as reply:
                assert (
                    reply.status,
                    reply.is_event_stream,
                    reply.head.header("x-one"),
                ) == (
                    200,
                    True,
                    "1",
                )
                assert [event async for event in events_of(reply)] == THREE
        assert server.connections == 1
        async with await transport.open(b"{}"):
            pass
        await transport.post(b"{}")

    assert server.connections == 2


async def broken_streams() -> AsyncIterator[ProviderError]:
    """One error of each kind that ends a stream in its middle, with a key that is echoed wherever that can be."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"

    async def silent(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(head)
        await reader.read()

    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await writer.drain()
        writer.transport.abort()

    async def garbage(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head + f"{KEY}\r\n".encode())

    for answer, timeout in ((silent, 0.2), (reset, 30.0), (garbage, 30.0)):
        for client in (None, httpx.AsyncClient(trust_env=False, timeout=timeout)):
            async with serving(answer) as server:
                transport = to(server.url, timeout=timeout, client=client)
                try:
                    async with await transport.open(b"{}") as reply:
                        assert [event.data async for event in events_of(reply)] == [
                            "never whole"
                        ]
                except ProviderError as error:
                    yield error
                await transport.aclose()
                if client is not None:
                    await client.aclose()


async def test_a_stream_that_breaks_is_retryable_and_its_error_hides_the_key() -> None:
    errors = [error async for error in broken_streams()]

    assert [(type(error), error.retryable) for error in errors] == [
        *[(ProviderTimeout, True)] * 2,
        *[(ProviderError, True)] * 4,
    ]
    for error in errors:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [
            frame.locals for frame in shown.stack if "src/loopwright" in frame.filename
        ]
        assert ours
        assert KEY not in f"{ours} {error} {error!r} {vars(error)}"
        assert (error.__cause__, error.__context__) == (None, None)


async def failures() -> AsyncIterator[ProviderError]:
    """One error of each kind, made by servers that echo the key wherever they can."""
    echo = f"HTTP/1.1 307 No\r\nLocation: https://x/?k={KEY}\r\nContent-Length: 0\r\n\r\n".encode()
    unfinished = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"
    garbage = f"{KEY}\r\n\r\n".encode()
    for answer, timeout in ((echo, 30.0), (garbage, 30.0), (unfinished, 0.2)):
        async with serving(answer) as server:
            transport = to(server.url, timeout=timeout)
            try:
                await transport.post(b"{}")
            except ProviderError as error:
                yield error
            await transport.aclose()

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(
            f"could not send {dict(request.headers)}", request=request
        )

    async with through(fail) as client:
        try:
            await to("http://models/v1", client=client).post(b"{}")
        except ProviderError as error:
            yield error


async def test_the_key_is_in_no_error_and_in_no_traceback_even_with_all_local_variables() -> (
    None
):
    errors = [error async for error in failures()]

    assert len(errors) == 4
    for error in errors:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        ours = [frame for frame in shown.stack if "src/loopwright" in frame.filename]
        assert ours
        assert (
            KEY
            not in f"{[frame.locals for frame in ours]} {error} {error!r} {vars(error)}"
        )
        assert (error.__cause__, error.__context__) == (None, None)


def test_the_key_is_in_no_repr_no_attribute_and_no_pickle() -> None:
    transport = to("http://models/v1")

    assert KEY not in f"{transport!r} {transport} {vars(transport)!r}"
    assert repr(transport) == "HTTPTransport('http://models/v1/chat/completions')"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(transport)


def test_an_excerpt_hides_the_key_before_it_cuts() -> None:
    transport = to("http://models/v1")

    assert transport.excerpt("x" * 195 + KEY) == "x" * 195 + "***"
    assert (
        transport.excerpt(f"a\n\n  {KEY} {KEY}\xff".encode("latin-1"))
        == "a *** ***\ufffd"
    )


def test_a_placeholder_for_a_key_does_not_garble_texts() -> None:
    transport = HTTPTransport(
        "http://models/v1", "/x", headers={"authorization": SecretStr("Bearer none")}
    )

    assert transport.excerpt("none of these models") == "none of these models"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models/v1",
        "ftp://models/v1",
        "http://",
        "http://me:pass@models/v1",
        "http://models:port/v1",
    ],
)
def test_a_url_that_cannot_be_used_is_a_configuration_error_that_names_the_field(
    url: str,
) -> None:
    with pytest.raises(ConfigError, match=r"^base_url: "):
        to(url)


def test_a_query_is_sent_but_not_shown() -> None:
    transport = to("http://models:8080/v1/?version=2#top")

    assert transport.url == "http://models:8080/v1/chat/completions"
    assert transport._wire.target == b"/v1/chat/completions?version=2"


@pytest.mark.parametrize("key", ["sk-\n123456", "sk-ключ-123", "sk-\x00123456"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="header authorization") as caught:
        HTTPTransport(
            "http://models/v1", "/x", headers={"authorization": SecretStr(key)}
        )

    assert key not in str(caught.value)


def date_tests() -> Iterator[tuple[str, float | None]]:
    yield "Wed, 21 Oct 2015 07:28:30 GMT", 30.0
    yield "Wed, 21 Oct 2015 07:28:00 GMT", 0.0
    yield "Wed, 21 Oct 2015 07:27:00 GMT", None
    yield "Wed, 21 Oct 2015 07:28:30 GMT, Wed, 21 Oct 2015 07:28:30 GMT", None
    yield "Wed, 99 Oct 2015 07:28:30 GMT", None
    yield "soon, GMT", None


UNCLEAR = [
    "",
    ".",
    "-1",
    "+1",
    "inf",
    "nan",
    "1e3",
    "0x10",
    "1_000",
    "9" * 400,
    "120, 60",
]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 1.5 ", 1.5),
        *((value, None) for value in UNCLEAR),
        *date_tests(),
    ],
)
def test_retry_after_is_read_only_if_it_is_clear(
    value: str, seconds: float | None
) -> None:
    reply = Response(429, ((b"Retry-After", value.encode()),), b"")

    assert read_retry_after(reply, now=lambda: 1445412480.0) == seconds


def test_the_digits_of_other_scripts_are_no_seconds() -> None:
    for digits in (
        b"\xb2",
        "\u0663".encode(),
    ):  # a superscript two in Latin-1, an Arabic three
        assert (
            read_retry_after(
                Response(
                    429, ((b"retry-after", digits), (b"retry-after-ms", digits)), b""
                )
            )
            is None
        )


def test_retry_after_prefers_milliseconds_and_refuses_two_answers() -> None:
    assert (
        read_retry_after(
            Response(429, ((b"retry-after", b"9"), (b"retry-after-ms", b"250")), b"")
        )
        == 0.25
    )
    assert (
        read_retry_after(
            Response(429, ((b"retry-after", b"9"), (b"retry-after-ms", b"-1")), b"")
        )
        == 9.0
    )
    assert (
        read_retry_after(
            Response(429, ((b"retry-after", b"9"), (b"Retry-After", b"1")), b"")
        )
        is None
    )
    assert read_retry_after(Response(429, (), b"")) is None


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_the_server_is_busy_or_broken_is_retryable_unless_it_says_no(
    status: int,
) -> None:
    assert is_retryable(Response(status, (), b""))
    assert not is_retryable(Response(status, ((b"X-Should-Retry", b"false"),), b""))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_the_callers_own_mistake_is_not_retryable_unless_the_server_says_so(
    status: int,
) -> None:
    assert not is_retryable(Response(status, (), b""))
    assert is_retryable(Response(status, ((b"x-should-retry", b"true"),), b""))


async def test_unrequested_response_is_never_given_to_the_next_request() -> None:
    """Not even where the event loop has read it already: the connection is dropped."""
    spoken = asyncio.Event()

    async def talkative(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        if not spoken.is_set():
            await asyncio.sleep(0.01)
            writer.write(OK.replace(b"hello", b"never"))
            await writer.drain()
            spoken.set()

    async with connected(talkative) as (server, transport):
        first = await transport.post(b"{}")
        await spoken.wait()
        await asyncio.sleep(0.02)  # the loop takes the bytes from the socket
        second = await transport.post(b"{}")

    assert (first.body, second.body, server.connections) == (b"hello", b"hello", 2)


async def test_a_closed_client_is_named() -> None:
    client = httpx.AsyncClient()
    await client.aclose()

    with pytest.raises(
        ProviderError, match=r"^client: the one that was given for http://models/v1"
    ):
        await to("http://models/v1", client=client).post(b"{}")
