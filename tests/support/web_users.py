"""Users of the chat of `examples/fastapi_chat.py` over HTTP, whose connections break, and the process that serves it."""

import asyncio
import contextlib
import dataclasses
import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import httpx

from waiting import eventually

SERVER = Path(__file__).with_name("chat_server.py")


class ChatServer:
    """A uvicorn in a process of its own, which can be killed; another one then serves the same address."""

    def __init__(self, folder: Path, pause: float = 0.005) -> None:
        self.journal, self.notes = folder / "chat.db", folder / "notes"
        self.pause = (
            pause  # before each word of an answer, of servers that start from now on
        )
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.process: subprocess.Popen[str] | None = None
        self.kills = 0
        self._lock, self._is_over = threading.Lock(), False

    @property
    def url(self) -> str:
        """Its address."""
        return "http://{}:{}".format(*self._socket.getsockname())

    def start(self) -> None:
        """Begin to serve."""
        number = self._socket.fileno()
        arguments = [str(number), str(self.journal), str(self.notes), str(self.pause)]
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), *arguments], pass_fds=[number], text=True
        )

    def kill(self, between: Callable[[], object] = lambda: None) -> None:
        """Kill it, do something, and begin to serve again, unless this server is left already."""
        with self._lock:
            if self._is_over:
                return
            assert self.process is not None
            self.process.kill()
            self.process.wait()
            self.kills += 1
            between()
            self.start()

    def check(self) -> None:
        """Raise `AssertionError` if it has ended by itself: its address still takes connections, which wait."""
        if not self._lock.acquire(blocking=False):
            return  # it is killed just now
        try:
            status = None if self.process is None else self.process.poll()
        finally:
            self._lock.release()
        assert self._is_over or status is None, f"the server ended with {status}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:  # a kill in a thread may be starting another process
            self._is_over = True
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


NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP alone; one that httpx makes loads all certificates each time."""
MAX_TRIES = 600
"""How often a thread is asked for while its server is away: half a minute."""
MAX_TURN = 300.0
"""Seconds for a turn of one user among a hundred, on a machine that does a lot besides."""
MAX_DEATHS = 2
"""Kills that a turn may live through: the worker works on one alone after three deaths, and parks it after another."""


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
        assert about["kind"] != "run_parked", "the turn was killed too often: it waits"
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
    answered_at: int | None = 0
    """How often its server was killed before the last answer; `None` once it has all."""

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, url: str, name: str, seed: int) -> AsyncIterator[Self]:
        """Open a browser of its own: a pool of connections that many share looks at each of them at each request."""
        async with httpx.AsyncClient(
            base_url=url, timeout=120, trust_env=False, verify=NO_TLS
        ) as client:
            yield cls(client, name, random.Random(seed))

    async def talk(self, turns: int, server: ChatServer) -> list[Watched]:
        """Say something that often, each time once the answer is there."""
        seen: list[Watched] = []
        for number in range(1, turns + 1):
            seen.append(await self.say(number))
            self.answered_at = server.kills
        self.answered_at = None
        return seen

    async def say(self, number: int) -> Watched:
        """Say something, and watch the turn to its end; raise `AssertionError` if it does not end."""
        message = {"text": f"{self.name} says {number}", "id": f"{self.name}-{number}"}
        watched = Watched()
        try:
            async with asyncio.timeout(MAX_TURN):
                run_id = await self._send(message)
                while not watched.has_ended:
                    try:
                        await self._watch(run_id, watched)
                    except httpx.TransportError:
                        self.broken += 1
                        await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"{message['id']} did not end in {MAX_TURN:.0f} s after {watched}"
            ) from None
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
    server: ChatServer, users: int, turns: int, seed: int, kills: int = 0
) -> list[WebUser]:
    """Let users talk at once, and check that none was mixed up with another, and that nothing was lost or said twice.

    Meanwhile the server is killed up to so often. It fails where the server ends by itself or a turn does not end.
    """
    async with contextlib.AsyncExitStack() as stack:
        people = [
            await stack.enter_async_context(
                WebUser.at(server.url, f"user{n}", seed + n)
            )
            for n in range(users)
        ]
        async with asyncio.TaskGroup() as group:
            besides = [
                group.create_task(_kill_often(server, people, kills)),
                group.create_task(_check_often(server)),
            ]
            talks = [group.create_task(one.talk(turns, server)) for one in people]
            await asyncio.wait(talks, return_when=asyncio.FIRST_EXCEPTION)
            for task in besides:
                task.cancel()
        for person, talk in zip(people, talks, strict=True):
            seen = talk.result()
            answers = [f"{person.name} said {n} of {n}" for n in range(1, turns + 1)]
            assert [one.answer for one in seen] == answers
            for one in seen:
                assert one.numbers == list(range(1, len(one.numbers) + 1))
            stored = await person.read_thread()
            assert [turn["answer"] for turn in stored] == answers
            texts = [f"{person.name} says {n}" for n in range(1, turns + 1)]
            assert [turn["text"] for turn in stored] == texts
    return people


async def _kill_often(server: ChatServer, people: list[WebUser], kills: int) -> None:
    """Kill a server every few seconds, but no turn so often that the worker takes it for the cause."""
    for number in range(kills):
        await asyncio.sleep(2 + number % 3)
        await eventually(lambda: _may_be_killed(server, people), seconds=MAX_TURN)
        await asyncio.to_thread(server.kill)


def _may_be_killed(server: ChatServer, people: list[WebUser]) -> bool:
    """Whether no turn that is not answered yet has lived through as many kills as it may."""
    asked = [one.answered_at for one in people if one.answered_at is not None]
    return all(server.kills - kills < MAX_DEATHS for kills in asked)


async def _check_often(server: ChatServer) -> None:
    """Fail once the server has ended by itself."""
    while True:
        server.check()
        await asyncio.sleep(0.5)
