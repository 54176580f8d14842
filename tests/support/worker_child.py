"""A process of the worker tests: begins runs, or serves as a worker, until it is told to end or is killed.

    python worker_child.py begin|serve JOURNAL NOTES LEASE [run ids]

Each tool call is noted in NOTES with the process that made it, flushed before the tool goes on.
"""

import asyncio
import os
import re
import sys
import time

from loopwright import Completion, ReActEngine, Runtime, Worker, tool
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call

STEPS = 4


def note(path: str, line: str) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {line}\n")
        file.flush()
        os.fsync(file.fileno())


def runtime(journal: str, notes: str, lease: float, pause: float) -> Runtime:
    def model(request: Request) -> Completion:
        steps = sum(message.role == "tool" for message in request.conversation)
        found = re.search(r"of (\S+)\.", request.conversation.task)
        name = found[1] if found else "?"
        return (
            call("work", run=name, step=steps)
            if steps < STEPS
            else Completion(text="done", answer="done")
        )

    @tool(effect="write")
    async def work(run: str, step: int) -> str:
        """Work."""
        note(notes, f"start {run} {step}")
        await asyncio.sleep(pause)
        note(notes, f"end {run} {step}")
        return f"step {step} done"

    return Runtime(
        ScriptedProvider(model),
        tools=[work],
        journal=SQLiteJournal(journal, busy_timeout=20),
        lease=lease,
    )


async def begin(parts: Runtime, names: list[str]) -> None:
    await asyncio.gather(
        *(ReActEngine(parts).run(f"The work of {name}.", run_id=name) for name in names)
    )


def main() -> None:
    mode, journal, notes, lease, pause, *names = sys.argv[1:]
    parts = runtime(journal, notes, float(lease), float(pause))
    if mode == "begin":
        asyncio.run(begin(parts, names))
    else:
        asyncio.run(Worker(parts, poll=0.05).serve())


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        note(sys.argv[3], f"ended {type(error).__name__} at {time.time()}")
        raise
