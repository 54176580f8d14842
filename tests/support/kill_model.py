"""A model server on this machine that speaks Chat Completions, answers by what it is asked, and counts the requests."""

import asyncio
import dataclasses
import itertools
import json
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from loopwright.messages import (
    Completion,
    Conversation,
    Message,
    ToolCall,
    canonical_json,
)
from loopwright.providers import Request
from loopwright.testing.chunks import split_completion
from programs import Line

T = TypeVar("T")
LATENCY = 0.002, 0.008
"""Seconds that a reply takes, by its content."""
BETWEEN_PIECES = 0.001


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that came whole: who sent it, what about, and what it was said to use (input and output tokens)."""

    number: int
    place: str
    run: str
    life: int
    about: bytes
    tokens: tuple[int, int]

    @property
    def stamp(self) -> str:
        """What the reply calls its model, by which a journal tells to which request a reply belongs."""
        return f"model-{self.number:08}"


@dataclasses.dataclass(eq=False)
class _Connection:
    """One that is open, and from which place as soon as that is known."""

    place: str = ""


class ModelServer:
    """Serves in a thread of its own, as a context; `models` says who answers, by the name that requests ask for.

    The address of a process is `<url>/<place>/<run>/<life>/v1`, so that each request is known as somebody's.
    """

    def __init__(self, models: Mapping[str, Callable[[Request], Line]]) -> None:
        self._models = models
        self._asked: dict[str, list[Asked]] = {}
        self._numbers = itertools.count(1)
        self._open: list[_Connection] = []
        self._closed = (
            asyncio.Condition()
        )  # of a connection that closed, or whose place became known
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="model-server"
        )
        self._server: asyncio.Server | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        port: int = self._do(self._start()).result()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._stop()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def take(self, place: str) -> list[Asked]:
        """All that was asked from a place; waits until nobody there is connected: what the dead sent may be late."""
        self._do(self._settled(place)).result()
        return self._asked.pop(place, [])

    def _do(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> int:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, backlog=1000
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._until(lambda: not self._open)

    async def _settled(self, place: str) -> None:
        """Wait until all that connected from a place before has been heard to its end."""
        if self._server is None:
            return
        host, port = self._server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(
            host, port
        )  # it comes after all who connected before
        writer.write_eof()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        await self._until(
            lambda: all(
                connection.place not in ("", place) for connection in self._open
            )
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._closed:
            await self._closed.wait_for(condition)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = _Connection()
        self._open.append(connection)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *pairs = head.decode().strip().split("\r\n")
                headers = {
                    name.lower(): value
                    for name, _, value in (pair.partition(": ") for pair in pairs)
                }
                path = line.split()[1]
                await self._belongs(connection, path.split("/")[1])
                body = json.loads(
                    await reader.readexactly(int(headers["content-length"]))
                )
                async for piece in self._answers(path, body):
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done, or dead
        finally:
            writer.close()
            async with self._closed:
                self._open.remove(connection)
                self._closed.notify_all()

    async def _belongs(self, connection: _Connection, place: str) -> None:
        if connection.place != place:
            async with self._closed:
                connection.place = place
                self._closed.notify_all()

    async def _answers(self, path: str, body: Any) -> AsyncIterator[bytes]:
        """The answer to one request, as it goes over the wire."""
        _, place, run, life, *_ = path.split("/")
        messages = canonical_json(body["messages"])
        about = canonical_json(
            {k: v for k, v in body.items() if not k.startswith("stream")}
        )
        number = next(self._numbers)
        completion = _completion(self._models[body["model"]](_request(body)), number)
        asked = Asked(
            number,
            place,
            run,
            int(life),
            about,
            (len(messages) // 4, _said(completion) // 4 + 1),
        )
        self._asked.setdefault(place, []).append(asked)
        least, most = LATENCY
        await asyncio.sleep(least + (most - least) * zlib.crc32(about) / 2**32)
        if not body.get("stream"):
            yield _http(
                "application/json", json.dumps(_whole(completion, asked)).encode()
            )
            return
        yield _head("text/event-stream")
        for event in _events(completion, asked):
            yield _chunk(f"data: {event}\n\n".encode())
            await asyncio.sleep(BETWEEN_PIECES)
        yield _chunk(b"data: [DONE]\n\n") + _chunk(b"")


# --- what is asked ---


def _request(body: Any) -> Request:
    """The conversation of a request, as far as our models look at it."""
    conversation = Conversation([_message(message) for message in body["messages"]])
    return Request(conversation, tool_choice=body.get("tool_choice", "auto"))


def _message(wire: Any) -> Message:
    calls = tuple(
        ToolCall(
            call["function"]["name"],
            json.loads(call["function"]["arguments"]),
            call["id"],
        )
        for call in wire.get("tool_calls", ())
    )
    return Message(
        wire["role"], wire["content"] or "", calls, wire.get("tool_call_id", "")
    )


# --- what is answered ---


def _completion(line: Line, number: int) -> Completion:
    """A line as a completion whose calls have ids of their own."""
    if isinstance(line, Completion):
        return line
    if isinstance(line, str):
        return Completion(line)
    made = [line] if isinstance(line, ToolCall) else line
    calls = tuple(
        dataclasses.replace(call, id=f"call_{number:08}_{index}")
        for index, call in enumerate(made)
    )
    return Completion(calls=calls, finish_reason="tool_calls")


def _said(completion: Completion) -> int:
    return len(completion.text) + sum(
        len(canonical_json(dict(call.arguments))) for call in completion.calls
    )


def _usage(asked: Asked) -> dict[str, int]:
    return {
        "prompt_tokens": asked.tokens[0],
        "completion_tokens": asked.tokens[1],
        "total_tokens": sum(asked.tokens),
    }


def _whole(completion: Completion, asked: Asked) -> object:
    message: dict[str, object] = {
        "role": "assistant",
        "content": completion.text or None,
    }
    if completion.calls:
        message["tool_calls"] = [
            {
                "id": c.id,
                "type": "function",
                "function": {
                    "name": c.name,
                    "arguments": json.dumps(dict(c.arguments)),
                },
            }
            for c in completion.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": completion.finish_reason}
    return {
        "object": "chat.completion",
        "model": asked.stamp,
        "choices": [choice],
        "usage": _usage(asked),
    }


def _events(completion: Completion, asked: Asked) -> Iterable[str]:
    """The chunks of a stream: words, calls in pieces, the end, and what it used."""
    choices: list[dict[str, object]] = []
    for delta in split_completion(completion):
        if delta.text:
            choices.append({"index": 0, "delta": {"content": delta.text}})
        if delta.call is not None:
            call = delta.call
            function = (
                {"name": call.name, "arguments": ""}
                if call.name
                else {"arguments": call.arguments}
            )
            piece = {
                "index": call.index,
                **({"id": call.id} if call.id else {}),
                "function": function,
            }
            choices.append({"index": 0, "delta": {"tool_calls": [piece]}})
    choices.append({"index": 0, "delta": {}, "finish_reason": completion.finish_reason})
    chunk = {"object": "chat.completion.chunk", "model": asked.stamp}
    for choice in choices:
        yield json.dumps({**chunk, "choices": [choice]})
    yield json.dumps({**chunk, "choices": [], "usage": _usage(asked)})


def _head(content_type: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _http(content_type: str, body: bytes) -> bytes:
    return _head(content_type) + _chunk(body) + _chunk(b"")
