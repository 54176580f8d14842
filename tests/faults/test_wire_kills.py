"""Recorded conversations through ReAct, its process killed between two requests: the resumed run makes the same ones."""

import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from fault_sizes import LONG, figure
from recordings import MISSING, rows
from wire_checks import encode_response
from wire_replay import PROVIDERS, read_model_name

Row = dict[str, Any]
CHILD = Path(__file__).parents[1] / "support" / "wire_child.py"
PER_FAMILY = 1_000 if LONG else 1


def is_suitable(row: Row) -> bool:
    """Whether a row has a whole reply, and another one behind it."""
    if len(row["interactions"]) < 2:
        return False
    first, second = row["expected"][:2]
    if any("error" in one or one.get("refusal") for one in (first, second)):
        return False
    is_readable = all("arguments" in call for call in first["calls"])
    return is_readable and first["finish"] != "length" and not first.get("cut_off")


def has_provider_tools(row: Row) -> bool:
    return any(one.get("builtin") for one in row["expected"])


def choose_rows(family: str) -> list[Row]:
    """Return the rows of a family: the first of those with tools of the provider, and of the others."""
    suitable = sorted(
        filter(is_suitable, rows(f"wire/{family}.jsonl")), key=prefer_sealed
    )
    others = [row for row in suitable if not has_provider_tools(row)]
    return [
        *others[:PER_FAMILY],
        *list(filter(has_provider_tools, suitable))[:PER_FAMILY],
    ]


def prefer_sealed(row: Row) -> tuple[bool, bool]:
    """Order rows: with calls of functions first, and among those with signatures."""
    first = row["expected"][0]
    reasoning = first.get("reasoning") or ()
    is_sealed = any(one.get("signature_sha256") for one in reasoning)
    return not first["calls"], not is_sealed


ROWS = [
    pytest.param(family, row, id=f"{family}-{number}")
    for family in PROVIDERS
    for number, row in enumerate(choose_rows(family))
]
pytestmark = pytest.mark.skipif(not ROWS, reason=MISSING)


@dataclasses.dataclass
class Recorded:
    """A server that answers the n-th request with the n-th recorded reply; it may hold the second one back."""

    replies: list[Row]
    holds: bool = False
    url: str = ""
    bodies: list[bytes] = dataclasses.field(default_factory=list[bytes])
    held: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    next: int = 0

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of a connection."""
        with (
            contextlib.closing(writer),
            contextlib.suppress(asyncio.IncompleteReadError, ConnectionError),
        ):
            while True:
                self.bodies.append(await read_request(reader))
                if self.holds and len(self.bodies) == 2:
                    self.held.set()
                    await reader.read()  # until the process is dead
                    break
                reply = self.replies[min(self.next, len(self.replies) - 1)]
                self.next += 1
                body = encode_response(reply)
                head = (
                    f"HTTP/1.1 {reply['status']} X\r\ncontent-type: {reply['content_type']}\r\n"
                    f"content-length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lengths = [
        int(line.partition(":")[2])
        for line in head.splitlines()
        if line.startswith("content-length:")
    ]
    return await reader.readexactly(lengths[0])


@contextlib.asynccontextmanager
async def running(server: Recorded) -> AsyncGenerator[Recorded]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**24)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        listening.close()


async def start(verb: str, config: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), verb, str(config), stdout=asyncio.subprocess.PIPE
    )


def write_config(family: str, row: Row, url: str, folder: Path) -> Path:
    """Write what the process is to do."""
    folder.mkdir()
    tools = {call["name"] for one in row["expected"] for call in one.get("calls") or ()}
    config = {
        "family": family,
        "model": read_model_name(row["interactions"][0]["request"]),
        "url": url,
        "journal": str(folder / "runs.db"),
        "tools": sorted(tools),
        "streaming": row["streaming"],
        "turns": 1 if row["expected"][0]["calls"] else len(row["interactions"]),
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("family", "row"), ROWS)
async def test_run_killed_between_two_requests_makes_the_same_ones(
    family: str, row: Row, tmp_path: Path
) -> None:
    replies = [one["response"] for one in row["interactions"]]
    async with running(Recorded(replies)) as whole:
        config = write_config(family, row, whole.url, tmp_path / "whole")
        process = await start("run", config)
        wanted, _ = await process.communicate()
    async with running(Recorded(replies, holds=True)) as cut:
        config = write_config(family, row, cut.url, tmp_path / "cut")
        process = await start("run", config)
        await asyncio.wait_for(cut.held.wait(), 120)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        process = await start("resume", config)
        got, _ = await process.communicate()

    first, second, again, *rest = cut.bodies
    assert [first, second, again, *rest] == [*whole.bodies[:2], *whole.bodies[1:]]
    assert (process.returncode, got) == (0, wanted)
    figure(f"killed on the wire of {family}", wanted.decode()[:80])
