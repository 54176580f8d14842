"""CPU time of a chat turn over HTTP: the application of the example beside a bare pass-through of httpx.

    python tests/benchmarks/bench_web_chat.py [USERS] [TURNS]

Both servers stream the same words from the same endpoint of this machine, which speaks Chat Completions. The
pass-through sends on each line that it gets, and keeps nothing; the example keeps a thread for each user, in a SQLite
journal. What is measured is the CPU time of the server's process for a turn, without that of the endpoint and of the
users.
"""

import asyncio
import json
import multiprocessing
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from chat_server import load_example
from loopwright import Runtime
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIProvider

WORDS = 30


def build_endpoint() -> FastAPI:
    """Return an endpoint that streams words."""
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> StreamingResponse:
        await request.body()

        async def words() -> AsyncIterator[str]:
            for number in range(WORDS):
                yield _chunk({"content": f"word{number} "})
            yield _chunk({}, "stop")
            yield "data: [DONE]\n\n"

        return StreamingResponse(words(), media_type="text/event-stream")

    return app


def _chunk(delta: dict[str, str], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {
        "id": "1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    }
    return f"data: {json.dumps(body)}\n\n"


def build_pass_through(endpoint: str) -> FastAPI:
    """Return a server that sends on what the endpoint streams."""
    app, client = FastAPI(), httpx.AsyncClient(base_url=endpoint, timeout=60)

    @app.post("/threads/{thread}/questions")
    async def ask(thread: str, request: Request) -> StreamingResponse:
        text = (await request.json())["text"]
        body = {
            "model": "m",
            "stream": True,
            "messages": [{"role": "user", "content": text}],
        }

        async def lines() -> AsyncIterator[str]:
            path = "/v1/chat/completions"
            async with client.stream("POST", path, json=body) as response:
                async for line in response.aiter_lines():
                    yield f"{line}\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    return app


def build_chat(endpoint: str, folder: str) -> FastAPI:
    """Return the application of the example."""
    provider = OpenAIProvider("m", base_url=f"{endpoint}/v1", api_key="none")
    runtime = Runtime(provider, journal=SQLiteJournal(f"{folder}/chat.db"), lease=30.0)
    app: FastAPI = load_example().build_app(runtime, runtime.agent("support"))
    return app


def serve(kind: str, endpoint: str, folder: str, ours: Any) -> None:
    """Serve in a process of its own; tell the address, and the CPU time whenever it is asked for."""

    async def main() -> None:
        builds = {
            "endpoint": build_endpoint,
            "pass-through": lambda: build_pass_through(endpoint),
        }
        app = builds.get(kind, lambda: build_chat(endpoint, folder))()
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        serving = asyncio.create_task(server.serve([listening]))
        ours.send("http://{}:{}".format(*listening.getsockname()))
        while await asyncio.to_thread(ours.recv) == "cpu":
            used = resource.getrusage(resource.RUSAGE_SELF)
            ours.send(used.ru_utime + used.ru_stime)
        server.should_exit = True
        await serving

    asyncio.run(main())


class Served:
    """A server in a process of its own."""

    def __init__(self, kind: str, endpoint: str = "", folder: str = "") -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=serve, args=(kind, endpoint, folder, theirs)
        )
        self._process.start()
        self.url: str = self._pipe.recv()

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        self._pipe.send("cpu")
        seconds: float = self._pipe.recv()
        return seconds

    def end(self) -> None:
        """End the process."""
        self._pipe.send("end")
        self._process.join()


async def talk(url: str, users: int, turns: int) -> None:
    """Let users talk at once."""

    async def user(number: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for turn in range(turns):
                message = {"text": f"message {turn}", "id": f"{number}-{turn}"}
                response = await client.post(
                    f"/threads/user{number}/questions", json=message
                )
                assert f"word{WORDS - 1}" in response.text

    await asyncio.gather(*(user(number) for number in range(users)))


def measure(kind: str, endpoint: str, users: int, turns: int) -> float:
    """Return the CPU milliseconds of a turn."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(kind, endpoint, folder)
        asyncio.run(talk(server.url, 2, 2))  # what is loaded at the first request
        before, began = server.cpu(), time.monotonic()
        asyncio.run(talk(server.url, users, turns))
        used, seconds = server.cpu() - before, time.monotonic() - began
        server.end()
    each = 1000 * used / (users * turns)
    print(
        f"{kind:<14} {each:6.2f} ms of CPU a turn, {seconds:5.1f} s for {users} x {turns}"
    )
    return each


def main(users: int = 100, turns: int = 20) -> None:
    """Measure both."""
    endpoint = Served("endpoint")
    bare = measure("pass-through", endpoint.url, users, turns)
    chat = measure("chat", endpoint.url, users, turns)
    endpoint.end()
    print(f"{chat / bare:.1f} times the pass-through")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
