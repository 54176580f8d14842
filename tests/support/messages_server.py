"""A real server on this machine that answers like the Messages API, for the tests of the provider that asks it."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from loopwright.messages import Completion
from loopwright.providers import AnthropicProvider, Request

KEY = "sk-ant-very-secret-1234567890"
STREAMS = Path(__file__).parent.parent / "providers" / "anthropic" / "streams"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server says to one request; `breaks_off` leaves the body without the end that it announces."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    breaks_off: bool = False

    @classmethod
    def json(cls, body: object, status: int = 200, *headers: str) -> "Answer":
        return cls(json.dumps(body).encode(), status, headers=headers)

    @classmethod
    def events(cls, body: bytes, *, breaks_off: bool = False) -> "Answer":
        return cls(
            body, content_type="text/event-stream; charset=utf-8", breaks_off=breaks_off
        )

    def on_the_wire(self) -> bytes:
        head = [
            f"HTTP/1.1 {self.status} Told",
            f"content-type: {self.content_type}",
            *self.headers,
        ]
        end = b"" if self.breaks_off else b"0\r\n\r\n"
        chunk = b"%x\r\n%s\r\n" % (len(self.body), self.body) if self.body else b""
        return (
            "\r\n".join([*head, "transfer-encoding: chunked", "", ""]).encode()
            + chunk
            + end
        )


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: JsonValue


class MessagesServer:
    """Gives its answers in order, the last one for all further requests; `asked` holds the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.connections = 0
        self.url = ""
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def bodies(self) -> list[JsonValue]:
        return [asked.body for asked in self.asked]

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *pairs = head.decode().strip().split("\r\n")
                headers = dict([pair.split(": ", 1) for pair in pairs])
                body = await reader.readexactly(int(headers["content-length"]))
                self.asked.append(Asked(line, headers, json.loads(body)))
                answer = (
                    self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                )
                writer.write(answer.on_the_wire())
                await writer.drain()
                if answer.breaks_off:
                    break
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
async def serving(*answers: Answer) -> AsyncGenerator[MessagesServer]:
    server = MessagesServer(*answers)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield server
        finally:
            server.hang_up()


def recorded(name: str) -> tuple[bytes, JsonValue]:
    """A reply twice: as the stream of events, and in one piece."""
    whole: JsonValue = json.loads(
        (STREAMS / f"{name}.json").read_text(encoding="utf-8")
    )
    return (STREAMS / f"{name}.sse").read_bytes(), whole


def text(words: str) -> dict[str, str]:
    """A block of text."""
    return {"type": "text", "text": words}


def said(
    *content: object, stop_reason: object = "end_turn", **top: object
) -> dict[str, object]:
    """The reply of these blocks."""
    return {
        "type": "message",
        "role": "assistant",
        "content": list(content),
        "stop_reason": stop_reason,
        **top,
    }


async def exchange(
    answer: Answer, request: Request, **options: Any
) -> tuple[Completion, Asked]:
    """Ask once: what came of it, and what the server was sent."""
    async with serving(answer) as server:
        made: dict[str, Any] = {
            "model": "claude-sonnet-4-5",
            "base_url": server.url,
            "api_key": KEY,
            **options,
        }
        provider = AnthropicProvider(**made)
        try:
            return await provider.complete(request), server.asked[0]
        finally:
            await provider.aclose()
