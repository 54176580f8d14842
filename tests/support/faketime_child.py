"""A process at work on a run with a lease, whose wall clock is set in its middle from within one of its tools.

    python faketime_child.py JOURNAL CLOCK SECONDS

CLOCK is the file that says what the wall clock shows; SECONDS are written into it during the second call.
"""

import asyncio
import sys
import time
from pathlib import Path

from faketime import repair_sleep, set_clock
from loopwright import (
    LoopEngine,
    ProviderError,
    Run,
    Runtime,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.errors import TimedOut
from loopwright.journals import SQLiteJournal
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider
from loopwright.tools import Retry

LEASE = 2.0


class Busy(LoopEngine):
    """Works, sleeps, bounds a work by time, retries a model and a tool, and works on."""

    name = "busy"

    async def solve(self, run: Run) -> str:
        """Do it."""
        words: list[str] = []
        for step in range(4):
            made = await run.call(ToolCall("work", {"step": step}))
            words.append(f"{made.status} {await run.ask(f'after step {step}')}")
            await run.sleep(0.2)

        async def hang(branch: Run) -> str:
            return (await branch.call(ToolCall("hang", {}))).content

        try:
            words.append(await run.timeout(1.5, hang))
        except TimedOut:
            words.append("in time")
        missed = await run.call(ToolCall("miss", {}))
        words.append(missed.status)
        return ", ".join(words)


def main() -> None:
    """Run, and print how it ended and how many monotonic seconds it took."""
    repair_sleep()
    journal, clock, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    failures = [ProviderError("busy", status=503, retry_after=0.1)]

    def model(request: Request) -> str:
        if failures:
            raise failures.pop()
        return "yes"

    @tool(effect="write")
    def work(step: int) -> str:
        """Work in a thread; in the second step the wall clock is set."""
        if step == 1:
            set_clock(clock, seconds)
        time.sleep(0.5)
        return f"step {step} done"

    @tool(effect="read")
    async def hang() -> str:
        """Never answer."""
        await asyncio.sleep(600)
        return "at last"

    @tool(effect="read", recovery=Retry(max_attempts=3, base_delay=0.05))
    def miss() -> str:
        """Fail."""
        raise ToolError("it is not there")

    async def begin() -> None:
        runtime = Runtime(
            ScriptedProvider(model),
            tools=[work, hang, miss],
            journal=SQLiteJournal(journal),
            lease=LEASE,
        )
        began, wall = time.monotonic(), time.time()
        result = await Busy(runtime).run("Work.", run_id="r")
        took, moved = time.monotonic() - began, time.time() - wall
        print(result.status, took, moved - took, result.answer, sep="\n")

    asyncio.run(begin())


if __name__ == "__main__":
    main()
