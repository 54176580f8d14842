"""A process whose worker starts while the process has no free file descriptor, and gets some later.

    python descriptors_child.py JOURNAL

Prints what the worker logged first, and the status of the run that it resumed.
"""

import asyncio
import contextlib
import os
import resource
import sys

import structlog

from loopwright import Runtime, Worker
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider
from waiting import eventually

MAX_DESCRIPTORS = 64


def take_descriptors() -> list[int]:
    """Open files until there is no descriptor left."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
    taken = list[int]()
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


async def serve(path: str) -> None:
    """Serve without descriptors until a look has failed, then with them until the run has ended."""
    journal = SQLiteJournal(path)
    runtime = Runtime(ScriptedProvider(["done"]), journal=journal, lease=5.0)
    taken = take_descriptors()
    with structlog.testing.capture_logs() as logs:
        serving = asyncio.create_task(Worker(runtime, poll=0.01).serve())
        await eventually(lambda: bool(logs) or serving.done())
    for descriptor in taken:
        os.close(descriptor)
    await eventually(lambda: serving.done() or journal.runs()[0].status == "completed")
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    sys.stdout.write(f"{logs[0]['event']}, then {journal.runs()[0].status}\n")


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
