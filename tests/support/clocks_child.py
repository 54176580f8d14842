"""A process whose wall clock is stepped while a run of plain functions is at work.

    python clocks_child.py JOURNAL STEP

STEP seconds are added to the wall clock within the second of six calls. Prints how the run ended, as JSON.
"""

import asyncio
import json
import sys
import time

_wall, _offset = time.time, [0.0]
time.time = lambda: _wall() + _offset[0]  # before the package reads it

from loopwright import Completion, ReActEngine, Runtime, tool  # noqa: E402
from loopwright.journals import SQLiteJournal  # noqa: E402
from loopwright.providers import Request  # noqa: E402
from loopwright.testing import ScriptedProvider, call  # noqa: E402

LEASE, STEPS = 0.6, 6


class Counting(SQLiteJournal):
    """Counts the renewals of leases."""

    renewals = 0

    async def renew(self, claim, lease):
        """Renew."""
        self.renewals += 1
        await super().renew(claim, lease)


def model(request: Request) -> Completion:
    steps = sum(message.role == "tool" for message in request.conversation)
    if steps < STEPS:
        return call("work", step=steps)
    return Completion(text="done", answer="done")


def main() -> None:
    path, step = sys.argv[1], float(sys.argv[2])
    journal = Counting(path)

    @tool(effect="write")
    def work(step: int) -> str:
        """Work in a thread."""
        if step == 1:
            _offset[0] = float(sys.argv[2])
        time.sleep(0.1)
        return f"step {step} done"

    runtime = Runtime(
        ScriptedProvider(model), tools=[work], journal=journal, lease=LEASE
    )

    async def begin() -> None:
        began = time.monotonic()
        result = await ReActEngine(runtime).run("Work.", run_id="r")
        seconds = time.monotonic() - began
        told = [m.content for m in result.conversation if m.role == "tool"]
        print(json.dumps([result.status, told, seconds, journal.renewals, step]))
        await journal.close()

    asyncio.run(begin())


if __name__ == "__main__":
    main()
