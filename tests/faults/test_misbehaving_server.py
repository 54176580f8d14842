"""Runs against a model server that has a bad day, over real connections: none of them is lost."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import pytest

from fault_sizes import figure, sized
from function_engine import FunctionEngine
from loopwright import Limits, MemoryJournal, Run, Runtime
from loopwright.providers import OpenAIProvider

Behavior = Callable[["Server", asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request badly, and returns whether the connection stays open."""
CALLS = 3  # of the model, a run
PATIENCE = Limits(model_timeout=1.0, timeout=None)


def response(status: int, body: object, *headers: str, length: int = 0) -> bytes:
    encoded = json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} Said", "content-type: application/json", *headers]
    head += [f"content-length: {length or len(encoded)}", "", ""]
    return "\r\n".join(head).encode() + encoded


MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "done"}}
GOOD = response(200, {"model": "m", "choices": [{**MESSAGE, "finish_reason": "stop"}]})


async def fail(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Answer with an internal error."""
    writer.write(response(500, {"error": {"message": "oops"}}))
    return True


async def refuse(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Ask to slow down."""
    writer.write(response(429, {"error": {"message": "slow"}}, "retry-after: 2"))
    return True


async def reset(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Reset the connection."""
    writer.transport.abort()
    return False


async def half_close(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Close in the middle of the body."""
    writer.write(GOOD[:-20])
    return False


async def promise_more(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Announce a longer body than is sent, and stay silent."""
    writer.write(GOOD.replace(b"content-length: ", b"content-length: 9"))
    await writer.drain()
    await server.closing.wait()
    return False


async def drip(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Send a byte now and then, so that no read ever takes long."""
    for byte in GOOD:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)
    return True


async def swallow(server: "Server", writer: asyncio.StreamWriter) -> bool:
    """Take the request and never answer."""
    await server.closing.wait()
    return False


class Server:
    """A model server; it answers a share of the requests badly, or all of them for some seconds.

    Args:
        behavior: how it answers badly.
        share: how many of the requests get that.
        seconds: how long all of them do, from the first request on.
    """

    def __init__(self, behavior: Behavior, share: float, seconds: float) -> None:
        self._behavior, self._share, self._seconds = behavior, share, seconds
        self._random = random.Random(1)
        self._began: float | None = None
        self.begun, self.closing = asyncio.Event(), asyncio.Event()
        self.requests, self.bad, self.during_outage = 0, 0, 0
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._connections.add(task)
        try:
            with contextlib.suppress(
                asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError
            ):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def stop(self) -> None:
        """End all connections: one that outlives its event loop is reported in whichever test runs later."""
        self.closing.set()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        self.requests += 1
        if self._is_bad():
            self.bad += 1
            stays_open = await self._behavior(self, writer)
        else:
            writer.write(GOOD)
            stays_open = True
        await writer.drain()
        return stays_open

    @property
    def recovers_at(self) -> float:
        """Monotonic time at which the outage is over."""
        assert self._began is not None
        return self._began + self._seconds

    def _is_bad(self) -> bool:
        if self._began is None:
            self._began = time.monotonic()
            self.begun.set()
        if time.monotonic() < self.recovers_at:
            self.during_outage += 1
            return True
        return self._random.random() < self._share


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncGenerator[OpenAIProvider]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=2000)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        provider = OpenAIProvider(
            "m", base_url=f"http://127.0.0.1:{port}/v1", api_key="a-key-of-some-length"
        )
        try:
            yield provider
        finally:
            await provider.aclose()
            await server.stop()


async def ask_thrice(run: Run) -> object:
    return "".join([await run.ask(f"{number}") for number in range(CALLS)])


DAYS: dict[str, tuple[Behavior, float, float]] = {
    "errors in 1 %": (fail, 0.01, 0.0),
    "errors in 5 %": (fail, 0.05, 0.0),
    "errors in 20 %": (fail, 0.2, 0.0),
    "resets in 20 %": (reset, 0.2, 0.0),
    "half-closed in 20 %": (half_close, 0.2, 0.0),
    "bodies shorter than announced in 20 %": (promise_more, 0.2, 0.0),
    "slow in 20 %": (drip, 0.2, 0.0),
    "no answer in 20 %": (swallow, 0.2, 0.0),
    "a storm of 429": (refuse, 0.0, sized(2, 8)),
    "an outage": (fail, 0.0, sized(2, 6)),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", sorted({50, sized(50, 200), sized(50, 1000)}))
@pytest.mark.parametrize("day", DAYS)
async def test_a_bad_day_of_the_server_loses_no_run(day: str, count: int) -> None:
    behavior, share, seconds = DAYS[day]
    server = Server(behavior, share, seconds)
    began = time.monotonic()
    async with serving(server) as provider:
        runtime = Runtime(provider, journal=MemoryJournal(), limits=PATIENCE)
        engine = FunctionEngine(runtime, body=ask_thrice)
        results = await asyncio.gather(*(engine.run("Go.") for _ in range(count)))
        again = [
            await engine.resume(result.run_id)
            for result in results
            if result.status == "suspended"
        ]

    took = time.monotonic() - began
    figure(
        "bad day",
        f"{day}: {count} runs in {took:.1f} s, {server.requests} requests, {server.bad} answered badly, "
        f"{server.during_outage} during an outage, {len(again)} runs suspended on the way",
    )
    ended = [result for result in results if result.status != "suspended"] + again
    assert {(result.status, result.answer) for result in ended} == {
        ("completed", "donedonedone")
    }
    assert len(ended) == count
    assert server.bad > 0 or share == 0.01


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", sorted({50, sized(50, 200), sized(50, 1000)}))
async def test_new_runs_answer_soon_after_the_server_recovered(count: int) -> None:
    """They begin when the outage is over, beside all the runs that waited for its end."""
    server = Server(fail, 0.0, sized(3, 6))
    async with serving(server) as provider:
        runtime = Runtime(provider, journal=MemoryJournal(), limits=PATIENCE)
        engine = FunctionEngine(runtime, body=ask_thrice)
        waiting = [asyncio.create_task(engine.run("Go.")) for _ in range(count)]
        await server.begun.wait()
        await asyncio.sleep(server.recovers_at - time.monotonic())

        async def answer_soon(pause: float) -> float:
            await asyncio.sleep(pause)
            began = time.monotonic()
            result = await engine.run("Now?")
            assert result.status == "completed"
            return time.monotonic() - began

        seconds = await asyncio.gather(*(answer_soon(n / 5) for n in range(10)))
        results = await asyncio.gather(*waiting)

    took = time.monotonic() - server.recovers_at
    figure(
        "recovery",
        f"{count} waiting runs, outage of {sized(3, 6)} s with {server.during_outage} requests: new runs answered in "
        f"{max(seconds):.1f} s at most, all of them after {took:.1f} s",
    )
    assert max(seconds) <= 5.0
    assert server.during_outage <= count + 11 + sized(3, 6)
    assert {result.status for result in results} <= {"completed", "suspended"}
