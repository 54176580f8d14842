"""A process that is killed after a delivery was received and before it is recorded: it is sent again under its key."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from delivery_child import application
from forked_processes import DEVNULL, Forked, fork

CHILD = Path(__file__).parents[1] / "support" / "delivery_child.py"
pytestmark = pytest.mark.faults


async def test_a_delivery_that_nobody_recorded_is_sent_again_under_its_key(
    tmp_path: Path,
) -> None:
    path, keys = tmp_path / "runs.db", list[str]()
    children: list[Forked] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        [key] = [line for line in head.split("\r\n") if line.startswith("idempotency")]
        keys.append(key)
        if len(keys) == 1:  # taken, and nobody will know
            os.kill(children[0].pid, signal.SIGKILL)
        writer.write(b"HTTP/1.1 204 x\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        children.append(fork(CHILD, path, url, stdout=DEVNULL, stderr=DEVNULL))
        status = await asyncio.to_thread(children[0].wait, 60)
        runtime = application(path, url)
        result = await runtime.resume("r@after:deliver")

    assert status == -signal.SIGKILL
    assert (result.status, result.answer) == ("completed", "delivered to 1")
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert (await runtime.resume("r")).answer == "It rains."
    await runtime.journal.close()
