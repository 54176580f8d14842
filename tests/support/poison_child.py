"""A process of the poison test: begins runs, or serves as a worker, until a tool of one run kills it.

    python poison_child.py begin|serve JOURNAL NOTES [run ids]

The tool of the run `poison` kills the process after half a second; those of the other runs take a little while.
"""

import asyncio
import os
import signal
import sys
import time

from loopwright import Completion, ReActEngine, Runtime, Worker, tool
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call

STEPS = 4
LEASE = 5.0


def model(request: Request) -> Completion:
    name = request.conversation.task
    steps = sum(message.role == "tool" for message in request.conversation)
    if steps < STEPS:
        return call("work", run=name, step=steps)
    return Completion(text="done", answer="done")


def note(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {time.time()}\n")


def build_runtime(journal: str, notes: str) -> Runtime:
    @tool(effect="read")
    async def work(run: str, step: int) -> str:
        """Work, or kill the process."""
        if run == "poison":
            await asyncio.sleep(0.5)
            note(notes)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.3)
        return f"step {step} done"

    return Runtime(
        ScriptedProvider(model),
        tools=[work],
        journal=SQLiteJournal(journal, busy_timeout=20),
        lease=LEASE,
    )


async def begin(runtime: Runtime, names: list[str]) -> None:
    await asyncio.gather(
        *(ReActEngine(runtime).run(name, run_id=name) for name in names)
    )


def main() -> None:
    mode, journal, notes, *names = sys.argv[1:]
    runtime = build_runtime(journal, notes)
    if mode == "begin":
        asyncio.run(begin(runtime, names))
    else:
        asyncio.run(Worker(runtime, poll=0.05).serve())


if __name__ == "__main__":
    main()
