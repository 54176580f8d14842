"""A process that serves the chat of `examples/fastapi_chat.py`: python chat_server.py SOCKET JOURNAL NOTES

SOCKET is the descriptor of a listening socket, which the parent keeps, so that a server that follows a killed one has its
address. The model answers with whose message it is, its number and how many messages it has read; each model call is a
line in NOTES.
"""

import asyncio
import importlib.util
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn

from loopwright import Completion, Delta, Request, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_chat.py"
MESSAGE = re.compile(r"(\S+) says (\d+)")


def load_example() -> Any:
    """Import the example, which is no package."""
    spec = importlib.util.spec_from_file_location("fastapi_chat", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fastapi_chat"] = module
    spec.loader.exec_module(module)
    return module


def answer(request: Request) -> str:
    """Say whose message it is, its number, and how many messages of that user were read; or that users are mixed up."""
    said = [m.content for m in request.conversation if m.role == "user"]
    found = [match for text in said if (match := MESSAGE.fullmatch(text))]
    users = {match[1] for match in found}
    if len(users) != 1 or len(found) != len(said):
        return f"mixed up: {said}"
    return f"{found[-1][1]} said {found[-1][2]} of {len(found)}"


class Echo:
    """A model that answers word by word, with a pause before each."""

    name = model = "echo"
    capabilities = ScriptedProvider([]).capabilities

    def __init__(self, notes: str, pause: float) -> None:
        self._pause = pause
        self._notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def complete(self, request: Request) -> Completion:
        os.write(self._notes, f"{request.conversation.task}\n".encode())
        text = answer(request)
        return Completion(text, answer=text)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        reply = await self.complete(request)
        for word in re.findall(r"\S+\s*", reply.text):
            await asyncio.sleep(self._pause)
            yield Delta(word)
        yield Delta(completion=reply)


async def main(descriptor: str, journal: str, notes: str, pause: str = "0.005") -> None:
    example = load_example()
    runtime = Runtime(
        Echo(notes, float(pause)), journal=SQLiteJournal(journal), lease=30.0
    )
    agent = runtime.agent("echo", instructions="You repeat.")
    config = uvicorn.Config(example.build_app(runtime, agent), log_level="error")
    listening = socket.socket(fileno=int(descriptor))
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
