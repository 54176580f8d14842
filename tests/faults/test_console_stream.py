"""The console's stream cut anywhere, and its server killed: no entry is missing, and none comes twice."""

import asyncio
import os
import random
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from console_server import headers_of, read_events, serving
from function_engine import FunctionEngine
from loopwright import Limits, Run, Runtime
from loopwright.console import Console
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider
from ports import find_port

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
CHILD = Path(__file__).parents[1] / "support" / "console_child.py"
CUTS = 1000
TOKEN = "0123456789abcdef0123456789abcdef"


async def write_run(journal: SQLiteJournal, notes: int) -> None:
    """Write a run of so many facts while the stream is read."""

    async def solve(run: Run) -> str:
        for number in range(notes):
            run.note({"number": number})
            await asyncio.sleep(0)
        return "done"

    limits = Limits(timeout=None)
    runtime = Runtime(ScriptedProvider([]), journal=journal, limits=limits)
    await FunctionEngine(runtime, body=solve).run("Count.", run_id="cut")


async def test_a_stream_that_is_cut_a_thousand_times_has_each_entry_once(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    await write_run(journal, 3000)
    total = len(journal.read("cut"))
    console, chance = Console(journal, user="Ada"), random.Random(7)
    seqs: list[int] = []
    with serving(console.app) as address:
        async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
            for _ in range(CUTS):
                await read_a_piece(client, console, seqs, chance.randint(0, 1500))
            while seqs[-1] < total:
                await read_a_piece(client, console, seqs, 10**7, until=total)

    assert seqs == list(range(1, total + 1))


async def read_a_piece(
    client: httpx.AsyncClient,
    console: Console,
    seqs: list[int],
    size: int,
    until: int = 0,
) -> None:
    """Read the stream from where it was left, and cut it after so many bytes, be that within an entry."""
    last = str(seqs[-1] if seqs else 0)
    sent = headers_of(console, **{"Last-Event-ID": last})
    async with client.stream("GET", "/api/events?run=cut", headers=sent) as response:
        read = b""
        async for data in response.aiter_raw():
            read += data
            has_end = f"id: {until}\n".encode() in read
            if len(read) >= size or size < 200 or has_end:
                break
    whole, _, _ = read[:size].rpartition(b"\n\n")
    for part in whole.split(b"\n\n"):
        if part.startswith(b"id: "):
            seqs.append(int(part.partition(b"\n")[0][4:]))


async def test_a_stream_continues_after_its_server_was_killed(tmp_path: Path) -> None:
    path, port = tmp_path / "runs.db", find_port()
    seqs: list[int] = []
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), str(path), "far", "60", "0.05"
    )
    for _ in range(8):
        server = await start_server(path, port)
        await follow(port, seqs, seconds=1.0)
        os.kill(server.pid, signal.SIGKILL)
        await server.wait()
    assert await child.wait() == 0
    server = await start_server(path, port)
    total = len(SQLiteJournal(path).read("far"))
    await follow(port, seqs, seconds=30.0, until=total)
    server.kill()
    await server.wait()

    assert seqs == list(range(1, total + 1))


async def follow(port: int, seqs: list[int], *, seconds: float, until: int = 0) -> None:
    """Read the stream for some seconds, from where it was left."""
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "X-Loopwright-Console": "1",
        "Last-Event-ID": str(seqs[-1] if seqs else 0),
    }
    address = f"http://127.0.0.1:{port}/api/events?run=far"
    try:
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as client,
            client.stream("GET", address) as response,
        ):
            async for number, _, _ in read_events(response):
                seqs += [] if number is None else [number]
                if number == until:
                    return
    except TimeoutError:
        return


async def start_server(path: Path, port: int) -> Any:
    """Start `loopwright console` in a process of its own, and wait until it listens."""
    command = ["-m", "loopwright", "console", str(path), "--port", str(port)]
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env={**os.environ, "LOOPWRIGHT_CONSOLE_TOKEN": TOKEN},
        stderr=asyncio.subprocess.DEVNULL,
    )
    for _ in range(2000):
        assert server.returncode is None, "the server has ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        await asyncio.sleep(0.05)
    raise AssertionError("the server does not listen")
