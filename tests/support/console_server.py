"""Serve a console on the loopback from a thread, and read what it streams."""

import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import uvicorn

from loopwright.console import Console


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application with uvicorn until the context ends; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def headers_of(console: Console, **more: str) -> dict[str, str]:
    """The headers that the console's own page sends."""
    sent = {"X-Loopwright-Console": "1", **more}
    return {"Authorization": f"Bearer {console.token}", **sent}


@contextlib.contextmanager
def client_of(console: Console) -> Iterator[httpx.Client]:
    """A client of a console that is being served."""
    with (
        serving(console.app) as address,
        httpx.Client(
            base_url=address, headers=headers_of(console), trust_env=False, timeout=20
        ) as client,
    ):
        yield client


async def read_events(
    response: httpx.Response,
) -> AsyncIterator[tuple[int | None, str, Any]]:
    """The events of a stream as they come: number, kind, value."""
    async for part in read_parts(response):
        found = dict(line.split(": ", 1) for line in part.split("\n") if ": " in line)
        if "data" in found:
            number = int(found["id"]) if "id" in found else None
            yield number, found["event"], json.loads(found["data"])


async def read_parts(response: httpx.Response) -> AsyncIterator[str]:
    """The parts of a stream, without the empty line behind each."""
    rest = ""
    async for text in response.aiter_text():
        *parts, rest = (rest + text).split("\n\n")
        for part in parts:
            yield part
