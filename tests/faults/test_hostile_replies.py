"""Hostile replies: whatever a server sends, a run has a typed ending in time, memory is bounded and the next run works.

Each attack is a server on this machine that gives its answer to every request of a run; then it behaves, and the same
runtime asks it once more.
"""

import asyncio
import contextlib
import dataclasses
import gzip
import json
import socket
import struct
import time
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from fault_sizes import LONG, figure
from lateness import LATEST, TRIES, allowed
from loopwright import Limits, ReActEngine, Result, Runtime, tool
from loopwright.clock import SystemClock
from loopwright.events import RunFinished, RunSuspended, ToolFinished
from loopwright.messages import check_call_results
from loopwright.providers import AnthropicProvider, OpenAIProvider

Stream: TypeAlias = asyncio.StreamWriter
Attack: TypeAlias = Callable[["Api", Stream], Awaitable[None]]
LIMIT = 0.5  # seconds that a run has
KEY = "sk-very-secret-1234567890"
OVER = (
    asyncio.CancelledError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
    OSError,
)
MEGABYTE = b"x" * 1_000_000


@dataclasses.dataclass(frozen=True)
class Api:
    """What an attack may be dressed as: one of the two wire formats, whole or streamed."""

    name: str
    watched: bool

    def __str__(self) -> str:
        return f"{self.name}-{'streamed' if self.watched else 'whole'}"

    def provider(self, url: str) -> Any:
        """Who asks."""
        made: Any = OpenAIProvider if self.name == "openai" else AnthropicProvider
        return made("m", base_url=url, api_key=KEY)

    @property
    def type(self) -> str:
        """The content type of a good answer."""
        return "text/event-stream" if self.watched else "application/json"

    def says(self, text: str = "", *calls: tuple[str, str], end: str = "") -> bytes:
        """The body of a good answer: words, or calls with their arguments as JSON text."""
        if self.name == "openai":
            return self._chat(text, calls, end)
        return self._messages(text, calls, end)

    def _chat(self, text: str, calls: tuple[tuple[str, str], ...], end: str) -> bytes:
        made = [
            {
                "index": i,
                "id": f"c{i}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": text} | (
            {"tool_calls": made} if made else {}
        )
        finish = end or ("tool_calls" if calls else "stop")
        if not self.watched:
            return encoded({"choices": [{"message": message, "finish_reason": finish}]})
        piece = {"choices": [{"index": 0, "delta": message}]}
        return (
            events(
                piece, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
            )
            + b"data: [DONE]\n\n"
        )

    def _messages(
        self, text: str, calls: tuple[tuple[str, str], ...], end: str
    ) -> bytes:
        stop = {"length": "max_tokens"}.get(end, end) or (
            "tool_use" if calls else "end_turn"
        )
        head: dict[str, Any] = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "usage": {},
        }
        if not self.watched:
            content: list[bytes] = (
                [encoded({"type": "text", "text": text})] if text else []
            )
            content += [
                b'{"type":"tool_use","id":"c%d","name":"%s","input":%s}'
                % (i, name.encode(), arguments.encode())
                for i, (name, arguments) in enumerate(calls)
            ]
            rest = encoded({**head, "stop_reason": stop})
            return b'{"content":[%s],' % b",".join(content) + rest[1:]
        told: list[Any] = [
            {"type": "message_start", "message": {**head, "content": []}}
        ]
        blocks: list[tuple[Any, Any]] = [
            ({"type": "tool_use", "id": f"c{i}", "name": name, "input": {}},
             {"type": "input_json_delta", "partial_json": arguments})
            for i, (name, arguments) in enumerate(calls)
        ]  # fmt: skip
        if text:
            blocks.insert(
                0, ({"type": "text", "text": ""}, {"type": "text_delta", "text": text})
            )
        for index, (block, delta) in enumerate(blocks):
            told += [
                {"type": "content_block_start", "index": index, "content_block": block},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        told += [
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {}},
            {"type": "message_stop"},
        ]
        return events(*told)


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def events(*told: Any) -> bytes:
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (e.get("type", "message").encode(), encoded(e))
        for e in told
    )


APIS = [
    Api(name, watched) for name in ("openai", "anthropic") for watched in (False, True)
]


class Server:
    """Attacks until it is told to behave; then it says "fine"."""

    def __init__(self, api: Api, attack: Attack) -> None:
        self._api, self._attack = api, attack
        self.behaves = False
        self.requests = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: Stream) -> None:
        """One connection."""
        with contextlib.suppress(
            asyncio.CancelledError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            OSError,
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(
                    int(
                        head.lower()
                        .partition(b"content-length: ")[2]
                        .partition(b"\r\n")[0]
                    )
                )
                self.requests += 1
                attack = (
                    answer(self._api.says("fine")) if self.behaves else self._attack
                )
                await attack(self._api, writer)
                await writer.drain()
                if writer.is_closing():
                    break
        writer.close()


@contextlib.asynccontextmanager
async def serving(api: Api, attack: Attack) -> AsyncGenerator[Server]:
    server = Server(api, attack)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=128)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=60)


# --- answers ---


def head(api: Api, *headers: str, status: int = 200) -> bytes:
    return "\r\n".join(
        [f"HTTP/1.1 {status} Told", f"content-type: {api.type}", *headers, "", ""]
    ).encode()


def answer(body: bytes, *headers: str, status: int = 200, type: str = "") -> Attack:
    """This body with its length."""

    async def send(api: Api, writer: Stream) -> None:
        told = head(api, f"content-length: {len(body)}", *headers, status=status)
        writer.write(told.replace(api.type.encode(), type.encode()) if type else told)
        writer.write(body)

    return send


def said(*calls: tuple[str, str], text: str = "", end: str = "") -> Attack:
    """These calls, or words."""

    async def send(api: Api, writer: Stream) -> None:
        await answer(api.says(text, *calls, end=end))(api, writer)

    return send


def raw(*parts: bytes, hang: float = 0.0, reset: bool = False) -> Attack:
    """These bytes, and then the end of the connection: at once, after a while, or with a reset."""

    async def send(api: Api, writer: Stream) -> None:
        for part in parts:
            writer.write(part)
        with contextlib.suppress(OSError):
            await writer.drain()
        await asyncio.sleep(hang)
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
        writer.close()

    return send


def changed(change: Callable[[bytes], bytes]) -> Attack:
    """A good answer, changed."""

    async def send(api: Api, writer: Stream) -> None:
        await answer(change(api.says("blue")))(api, writer)

    return send


def broken(after: float, *, reset: bool = False) -> Attack:
    """A good answer whose connection ends after a share of it."""

    async def send(api: Api, writer: Stream) -> None:
        body = api.says("blue " * 1_000)
        part = body[: int(len(body) * after)]
        await raw(
            head(api, f"content-length: {len(body)}"), part, hang=0.02, reset=reset
        )(api, writer)

    return send


async def drips(api: Api, writer: Stream) -> None:
    """A byte each 50 ms."""
    writer.write(head(api, "content-length: 100000"))
    for _ in range(400):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def drips_its_head(api: Api, writer: Stream) -> None:
    """The same, and not even the head comes to its end."""
    for byte in head(api, "x-long: " + "x" * 1_000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def drips_comments(api: Api, writer: Stream) -> None:
    """Signs of life and no more."""
    writer.write(head(api, "transfer-encoding: chunked"))
    for _ in range(400):
        writer.write(b"8\r\n: ping\n\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def never(api: Api, writer: Stream) -> None:
    """Nothing."""
    await asyncio.sleep(30)


async def floods(api: Api, writer: Stream) -> None:
    """A body without end."""
    writer.write(head(api, "transfer-encoding: chunked"))
    with contextlib.suppress(OSError):
        for _ in range(200):
            writer.write(b"%x\r\n%s\r\n" % (len(MEGABYTE), MEGABYTE))
            await writer.drain()


async def floods_events(api: Api, writer: Stream) -> None:
    """Events without end that say nothing."""
    writer.write(head(api, "transfer-encoding: chunked"))
    event = b"data: {}\n\n" * 50_000
    with contextlib.suppress(OSError):
        for _ in range(200):
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()


async def floods_its_head(api: Api, writer: Stream) -> None:
    """Headers without end."""
    writer.write(head(api)[:-2])
    with contextlib.suppress(OSError):
        for number in range(200_000):
            writer.write(b"x-%d: %s\r\n" % (number, b"y" * 100))
            if number % 100 == 0:
                await writer.drain()


def bomb(encoding: str) -> Attack:
    """A small body that unpacks to 200 MB: one packed megabyte as often as that, which each process packs once."""
    packer, ending = (zlib.compressobj(9, zlib.DEFLATED, -15) for _ in range(2))
    blocks = (packer.compress(MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)) * 200
    blocks += ending.flush()
    check = 0 if encoding == "gzip" else 1
    for _ in range(200):
        check = (zlib.crc32 if encoding == "gzip" else zlib.adler32)(MEGABYTE, check)
    if encoding == "gzip":
        head, size = gzip.compress(b"")[:10], 200 * len(MEGABYTE)
        packed = head + blocks + struct.pack("<II", check, size)
    else:
        packed = b"\x78\xda" + blocks + struct.pack(">I", check)
    return answer(packed, f"content-encoding: {encoding}")


def nested(depth: int) -> bytes:
    return b'{"choices":' + b"[" * depth + b"]" * depth + b"}"


def doubled(body: bytes) -> bytes:
    """Each event twice."""
    return b"".join(
        event + b"\n\n" + event + b"\n\n" for event in body.split(b"\n\n") if event
    )


IDLE = b'data: {"type": "ping", "choices": []}\n\n'
LOOK = ("look", '{"what": "sky"}')
ATTACKS: dict[str, Attack] = {
    "a body without end": floods,
    "events without end": floods_events,
    "a head without end": floods_its_head,
    "a gzip bomb": bomb("gzip"),
    "a deflate bomb": bomb("deflate"),
    "packed events": answer(gzip.compress(IDLE * 400_000), "content-encoding: gzip"),
    "a gzip that is none": answer(b"{}", "content-encoding: gzip"),
    "a gzip that is cut": answer(gzip.compress(MEGABYTE)[:100], "content-encoding: gzip"),
    "an unknown encoding": answer(b"{}", "content-encoding: rot13"),
    "invalid UTF-8": changed(lambda body: body.replace(b"blue", b"\xff\xfe\x80")),
    "half a surrogate pair": changed(lambda body: body.replace(b"blue", b"\\ud83d")),
    "zero bytes": changed(lambda body: body.replace(b"blue", b"\x00")),
    "events twice": changed(doubled),
    "events in the wrong order": changed(lambda body: b"\n\n".join(body.split(b"\n\n")[::-1])),
    "events without their end": changed(lambda body: body.rstrip(b"\n")),
    "half the answer": changed(lambda body: body[: len(body) // 2]),
    "two answers": changed(lambda body: body + body),
    "the wrong type": answer(b"\x89PNG\r\n", type="image/png"),
    "a page of HTML": answer(b"<html><body>Sign in</body></html>", type="text/html"),
    "HTML in place of JSON": answer(b"<html><body>Sign in</body></html>"),
    "an empty body": answer(b""),
    "white space": answer(b" \n" * 10_000),
    "no content": answer(b"", status=204),
    "JSON null": answer(b"null"),
    "JSON of another shape": answer(b'{"data": [1, 2, {"message": {}}]}'),
    "a list": answer(b"[]"),
    "a number": answer(b"1e999"),
    "deep JSON": answer(nested(100_000)),
    "deep events": answer(b"data: " + nested(100_000) + b"\n\n"),
    "a huge number": answer(b'{"choices":' + b"9" * 100_000 + b"}"),
    "a line without end": answer(b"data: " + b"x" * 11_000_000),
    "an event without end": answer((b"data: " + b"x" * 1_000 + b"\n") * 11_000),
    "slow bytes": drips,
    "a slow head": drips_its_head,
    "signs of life": drips_comments,
    "silence": never,
    "a reset at once": raw(reset=True),
    "the end at once": raw(),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "a reset in the middle": broken(0.5, reset=True),
    "the end in the middle": broken(0.5),
    "a chunk that breaks off": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n100\r\nabc"),
    "a chunk of a bad size": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n"),
    "a chunk of a negative size": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nabc\r\n"),
    "a huge chunk size": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nabc\r\n"),
    "two lengths": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}x"),
    "a negative length": raw(b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}"),
    "a line break in a header": raw(b"HTTP/1.1 200 OK\r\nx: a\rb\r\ncontent-length: 2\r\n\r\n{}"),
    "a status that is none": raw(b"HTTP/1.1 999 What\r\ncontent-length: 2\r\n\r\n{}"),
    "a redirect to itself": answer(b"", "location: /v1/chat/completions", status=307),
    "a redirect elsewhere": answer(b"", "location: http://127.0.0.1:1/", status=302),
    "an error of an odd shape": answer(b'{"error": [[["no"]]], "detail": {"a": NaN}}', status=500),
    "a long error": answer(b'{"error": {"message": "%s"}}' % MEGABYTE, status=400),
    "a limit for a long time": answer(b"{}", "retry-after: 100000", status=429),
    "a limit for a time that is none": answer(b"{}", "retry-after: nan", status=429),
    "the key in an error": answer(b'{"error": {"message": "bad key %s"}}' % KEY.encode(), status=401),
    "an unknown tool": said(("rm", "{}")),
    "arguments that are text": said(("look", '"sky"')),
    "arguments that are a list": said(("look", '["sky"]')),
    "arguments that are nothing": said(("look", "null")),
    "arguments of another type": said(("look", '{"what": {"a": [1]}}')),
    "arguments with NaN": said(("look", '{"what": NaN}')),
    "arguments with a huge number": said(("look", '{"what": %s}' % ("9" * 10_000))),
    "arguments that are cut": said(("look", '{"what": "sk')),
    "arguments with a key twice": said(("look", '{"what": "sky", "what": "sea"}')),
    "deep arguments": said(("look", f'{{"what": {"[" * 50_000}1{"]" * 50_000}}}')),
    "a call that is cut": said(LOOK, end="length"),
    "a refusal": said(text="No.", end="content_filter"),
    "an end that nobody knows": said(text="", end="whatever"),
}  # fmt: skip

RAN: list[str] = []


class Hasty(SystemClock):
    """Makes no pauses between attempts."""

    @staticmethod
    async def sleep(seconds: float, /) -> None:
        """Hardly."""
        await asyncio.sleep(0)


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    RAN.append(what)
    return f"{what} is blue"


async def run(runtime: Runtime, api: Api) -> Result:
    if not api.watched:
        return await ReActEngine(runtime).run("What is blue?")
    async with ReActEngine(runtime).start("What is blue?", deltas=True) as handle:
        return await handle.result()


def check(runtime: Runtime, result: Result) -> None:
    """The ending is typed, the journal whole and closed, and the key in none of it."""
    entries = runtime.journal.read(result.run_id)
    end = RunSuspended if result.status == "suspended" else RunFinished
    assert isinstance(entries[-1].event, end)
    assert sum(isinstance(entry.event, end) for entry in entries) == 1
    assert runtime.journal.verify(result.run_id, result.head_hash).ok
    check_call_results(result.conversation.messages)
    assert KEY not in repr(result) + "".join(str(entry.event) for entry in entries)
    (result.answer or "").encode()


# In the short size each attack meets one API plain and the other one streamed, in turn.
PAIRS = [
    (name, api)
    for n, name in enumerate(ATTACKS)
    for a, api in enumerate(APIS)
    if LONG or a in ((0, 3), (1, 2))[n % 2]
]


@pytest.mark.parametrize(
    ("name", "api"), PAIRS, ids=[f"{name}-{api}" for name, api in PAIRS]
)
async def test_whatever_a_server_sends_a_run_has_a_typed_ending_in_time(
    name: str, api: Api
) -> None:
    late: list[float] = []
    RAN.clear()
    while len(late) < TRIES and min(late, default=1.0) > LATEST:
        async with serving(api, ATTACKS[name]) as server:
            provider = api.provider(server.url)
            runtime = Runtime(
                provider,
                tools=[look],
                clock=Hasty(),
                limits=Limits(timeout=LIMIT, max_iterations=3),
            )
            before = time.monotonic()
            result = await run(runtime, api)
            late.append(time.monotonic() - before - LIMIT)
            check(runtime, result)
            assert result.status in (
                "completed",
                "failed",
                "limit",
                "stuck",
                "suspended",
            )
            assert result.status != "failed" or result.stop_reason in (
                "provider_error",
                "unreadable",
            )
            assert server.requests <= 4 * (
                1 + 3
            )  # each of three turns and the last word is tried three times at most
            server.behaves = True
            again = await run(
                Runtime(provider, tools=[look]), api
            )  # this provider, but not the breaker of before
            assert (again.status, again.answer) == ("completed", "fine")
            await provider.aclose()
    assert min(late) <= allowed()
    assert RAN == []
    if min(late) > 0:
        figure(f"{name} ({api})", f"{min(late) * 1000:.0f} ms late")


@pytest.mark.parametrize("api", APIS, ids=str)
@pytest.mark.parametrize(
    "name",
    ["a body without end", "events without end", "a head without end", "a gzip bomb"],
)
async def test_a_flood_is_not_kept(name: str, api: Api) -> None:
    async with serving(api, ATTACKS[name]) as server:
        provider = api.provider(server.url)
        tracemalloc.start()
        try:
            result = await run(
                Runtime(
                    provider,
                    clock=Hasty(),
                    limits=Limits(timeout=5.0, best_effort=False),
                ),
                api,
            )
            stays, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await provider.aclose()
    assert result.status in ("failed", "limit", "suspended")
    assert (
        peak < 250_000_000
    )  # what is read before it is too much, and one piece unpacked
    assert stays < 5_000_000
    figure(
        f"memory at {name} ({api})",
        f"peak {peak // 1_000_000} MB, {stays // 1_000_000} MB stay",
    )


@pytest.mark.parametrize(
    "attack",
    [
        said(text="blue " * 500_000),
        said(*[("look", f'{{"what": "{"sky" * 80_000}"}}')] * 10),
    ],
    ids=["words", "arguments"],
)
@pytest.mark.parametrize("api", APIS, ids=str)
async def test_a_reply_that_says_too_much_is_neither_kept_nor_obeyed(
    api: Api, attack: Attack
) -> None:
    RAN.clear()
    async with serving(api, attack) as server:
        provider = api.provider(server.url)
        runtime = Runtime(
            provider, tools=[look], clock=Hasty(), limits=Limits(best_effort=False)
        )
        result = await run(runtime, api)
        check(runtime, result)
        await provider.aclose()

    assert (result.stop_reason, server.requests, RAN) == ("provider_error", 1, [])
    assert "the reply has more than 2,000,000 characters" in str(result.error)
    assert (
        sum(len(str(entry)) for entry in runtime.journal.read(result.run_id)) < 20_000
    )


@pytest.mark.parametrize("api", APIS, ids=str)
async def test_a_thousand_calls_in_one_reply_are_each_settled(api: Api) -> None:
    RAN.clear()
    async with serving(
        api, said(*[("look", f'{{"what": "{n}"}}') for n in range(1_000)])
    ) as server:
        provider = api.provider(server.url)
        limits = Limits(
            max_iterations=1,
            max_calls_per_turn=None,
            max_tool_calls=None,
            max_tokens=None,
            best_effort=False,
        )
        result = await run(Runtime(provider, tools=[look], limits=limits), api)
        await provider.aclose()

    told = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    assert told == [f"{n} is blue" for n in range(1_000)]
    assert sorted(RAN, key=int) == [str(n) for n in range(1_000)]


@pytest.mark.parametrize("api", APIS, ids=str)
async def test_a_limit_on_tool_calls_holds_for_a_thousand_of_them(api: Api) -> None:
    RAN.clear()
    async with serving(
        api, said(*[("look", f'{{"what": "{n}"}}') for n in range(1_000)])
    ) as server:
        provider = api.provider(server.url)
        runtime = Runtime(provider, tools=[look], limits=Limits(max_tool_calls=7))
        result = await run(runtime, api)
        check(runtime, result)
        await provider.aclose()

    assert (result.stop_reason, len(RAN)) == ("max_tool_calls", 7)


@pytest.mark.parametrize("api", APIS, ids=str)
async def test_calls_with_the_same_id_are_told_apart(api: Api) -> None:
    async def twins(api: Api, writer: Stream) -> None:
        calls = ("look", '{"what": "sky"}'), ("look", '{"what": "sea"}')
        body = api.says("", *calls).replace(b'"c1"', b'"c0"')
        await answer(body)(api, writer)

    RAN.clear()
    async with serving(api, twins) as server:
        provider = api.provider(server.url)
        runtime = Runtime(
            provider,
            tools=[look],
            clock=Hasty(),
            limits=Limits(max_iterations=1, best_effort=False),
        )
        result = await run(runtime, api)
        check(runtime, result)
        await provider.aclose()

    finished = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ToolFinished)
    ]
    assert len({event.call_id for event in finished}) == len(finished)
    if (
        RAN
    ):  # streamed pieces with one id are one call, whose arguments are then no JSON
        assert sorted(RAN) == ["sea", "sky"]


# The events of a streamed call, in the order in which they come: 0 begins the reply and 1 the call, 2 is its arguments
# and 3 its end, 4 tells why the model stopped, and 5 is the end of the reply.
REPLAYS = {
    "a beginning twice": (0, 1, 1, 2, 3, 4, 5),
    "a beginning after a call": (0, 1, 2, 3, 1, 4, 5),
    "a call twice": (0, 1, 2, 3, 1, 2, 3, 4, 5),
    "a reply twice": (0, 1, 2, 3, 0, 1, 2, 3, 4, 5),
    "a reply twice, once cut": (0, 1, 0, 1, 2, 3, 4, 5),
    "the second reply ends first": (0, 1, 2, 3, 0, 4, 5),
    "no end of a call": (0, 1, 4, 5),
    "no end of a call, nor of the reply": (0, 1, 4),
    "arguments before their call": (0, 2, 1, 3, 4, 5),
    "arguments twice": (0, 1, 2, 2, 3, 4, 5),
}
# Without ids a call that comes twice is two: gateways that leave them out may number all blocks alike, too.
REPLAYED = [
    (name, has_ids)
    for name in REPLAYS
    for has_ids in (True, False)
    if has_ids or name != "a call twice"
]


@pytest.mark.parametrize(("name", "has_ids"), REPLAYED)
async def test_a_call_whose_events_come_again_or_not_at_all_is_never_made(
    name: str, has_ids: bool
) -> None:
    """Arguments have defaults here, so that half a call would be one too."""

    @tool(effect="write")
    async def clear(folder: str = "/") -> str:
        """Clear a folder."""
        RAN.append(folder)
        return "cleared"

    async def replays(api: Api, writer: Stream) -> None:
        body = api.says("", ("clear", '{"folder": "/tmp/x"}')).replace(
            b'"c0"', b'"c0"' if has_ids else b'""'
        )
        told = body.split(b"\n\n")
        await answer(b"".join([told[place] + b"\n\n" for place in REPLAYS[name]]))(
            api, writer
        )

    RAN.clear()
    api = Api("anthropic", watched=True)
    async with serving(api, replays) as server:
        provider = api.provider(server.url)
        runtime = Runtime(
            provider,
            tools=[clear],
            clock=Hasty(),
            limits=Limits(max_iterations=2, best_effort=False),
        )
        result = await run(runtime, api)
        check(runtime, result)
        await provider.aclose()

    assert result.status in ("failed", "limit", "suspended")
    assert RAN == []
