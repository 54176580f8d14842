"""Users of the chat of `examples/fastapi_chat.py` over HTTP, whose connections break, and the process that serves it."""

import asyncio
import contextlib
import dataclasses
import json
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx

SERVER = Path(__file__).with_name("chat_server.py")


class ChatServer:
    """A uvicorn in a process of its own, which can be killed; another one then serves the same address."""

    def __init__(self, folder: Path, pause: float = 0.005) -> None:
        self.journal, self.notes = folder / "chat.db", folder / "notes"
        self._pause = pause
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.process: subprocess.Popen[str] | None = None
        self.kills = 0

    @property
    def url(self) -> str:
        """Its address."""
        return "http://{}:{}".format(*self._socket.getsockname())

    def start(self) -> None:
        """Begin to serve."""
        number = self._socket.fileno()
        arguments = [str(number), str(self.journal), str(self.notes), str(self._pause)]
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), *arguments], pass_fds=[number], text=True
        )

    def kill(self) -> None:
        """Kill it, and begin to serve again."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.kills += 1
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self._socket.close()

    def count_model_calls(self) -> Counter[str]:
        """Return how often a model was asked about each message."""
        return Counter(self.notes.read_text().splitlines())


MAX_TRIES = 600
"""How often a thread is asked for while its server is away: half a minute."""


@dataclasses.dataclass
class Watched:
    """What a browser has seen of a turn: the numbers of the entries, and the answer."""

    numbers: list[int] = dataclasses.field(default_factory=list[int])
    answer: str | None = None
    has_ended: bool = False

    def see(self, event: dict[str, str]) -> None:
        """Take an event."""
        if event.get("event") == "end":
            self.has_ended = True
        if event.get("event") != "entry":
            return
        self.numbers.append(int(event["id"]))
        about = json.loads(event["data"])
        if about["kind"] == "run_finished":
            self.answer = about["answer"]


@dataclasses.dataclass
class WebUser:
    """A person whose browser loses its connection with a chance of `cuts` at each event."""

    client: httpx.AsyncClient
    name: str
    chance: random.Random
    cuts: float = 0.05
    broken: int = 0
    """Connections that broke, by chance or since the server was killed."""

    async def talk(self, turns: int) -> list[Watched]:
        """Say something that often, each time once the answer is there."""
        return [await self.say(number) for number in range(1, turns + 1)]

    async def say(self, number: int) -> Watched:
        """Say something, and watch the turn to its end."""
        message = {"text": f"{self.name} says {number}", "id": f"{self.name}-{number}"}
        run_id, watched = await self._send(message), Watched()
        while not watched.has_ended:
            try:
                await self._watch(run_id, watched)
            except httpx.TransportError:
                self.broken += 1
                await asyncio.sleep(0.05)
        return watched

    async def _send(self, message: dict[str, str]) -> str:
        """Send a message until it is known to be there, as a browser does that does not know whether it was."""
        path = f"/threads/{self.name}/messages"
        while True:
            limit = httpx.Timeout(120)
            if self.chance.random() < self.cuts:  # it leaves before the answer is there
                limit = httpx.Timeout(120, read=self.chance.uniform(0.001, 0.05))
            try:
                response = await self.client.post(path, json=message, timeout=limit)
            except httpx.TransportError:
                self.broken += 1
                await asyncio.sleep(0.05)
                continue
            response.raise_for_status()
            run_id: str = response.json()["run_id"]
            return run_id

    async def _watch(self, run_id: str, watched: Watched) -> None:
        """Watch a turn from the last event that was seen, until its end or until the connection breaks."""
        seen = watched.numbers[-1] if watched.numbers else 0
        headers = {"Last-Event-ID": str(seen)}
        path = f"/runs/{run_id}/events"
        async with self.client.stream("GET", path, headers=headers) as response:
            response.raise_for_status()
            async for event in read_events(response):
                watched.see(event)
                if not watched.has_ended and self.chance.random() < self.cuts:
                    self.broken += 1
                    return

    async def read_thread(self) -> list[dict[str, Any]]:
        """Return the turns of the thread, asked for again where the server was killed meanwhile."""
        for _ in range(MAX_TRIES):
            with contextlib.suppress(httpx.TransportError):
                response = await self.client.get(f"/threads/{self.name}")
                turns: list[dict[str, Any]] = response.json()
                return turns
            await asyncio.sleep(0.05)
        raise AssertionError("the server did not come back")


async def read_events(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    """Read server-sent events: the fields of each."""
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            field, _, value = line.partition(": ")
            event[field] = value
        elif event:
            yield event
            event = {}


async def hold_conversations(
    server: ChatServer, users: int, turns: int, seed: int
) -> list[WebUser]:
    """Let users talk at once, and check that none was mixed up with another, and that nothing was lost or said twice."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=users)
    async with httpx.AsyncClient(
        base_url=server.url, timeout=120, limits=limits
    ) as client:
        people = [
            WebUser(client, f"user{n}", random.Random(seed + n)) for n in range(users)
        ]
        watched = await asyncio.gather(*(one.talk(turns) for one in people))
        for person, seen in zip(people, watched, strict=True):
            answers = [f"{person.name} said {n} of {n}" for n in range(1, turns + 1)]
            assert [one.answer for one in seen] == answers
            for one in seen:
                assert one.numbers == list(range(1, len(one.numbers) + 1))
            stored = await person.read_thread()
            assert [turn["answer"] for turn in stored] == answers
            texts = [f"{person.name} says {n}" for n in range(1, turns + 1)]
            assert [turn["text"] for turn in stored] == texts
    return people
