"""A process of a machine of its own: another boot, another uptime, another wall clock.

    python machine_child.py JOURNAL ROLE OFFSET BOOT [LEASE]

OFFSET seconds are added to the wall clock. The role `owner` works on the run `r` of plain functions, and `worker` serves
the journal and takes what is free; both tell on standard output, a line each, what they do.
"""

import asyncio
import sys
import time

path, role, offset, boot = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
_wall, _monotonic = time.time, time.monotonic
time.time = lambda: _wall() + offset  # before the package reads it

from faketime import repair_sleep  # noqa: E402
from loopwright import Completion, ReActEngine, Runtime, Worker, tool  # noqa: E402
from loopwright.clock import SystemClock  # noqa: E402
from loopwright.journals import SQLiteJournal  # noqa: E402
from loopwright.providers import Request  # noqa: E402
from loopwright.testing import ScriptedProvider, call  # noqa: E402

LEASE, STEPS = float((*sys.argv[5:], 0.6)[0]), 20
UPTIME = 1000.0 * len(boot)

if boot != "same":
    SystemClock.boot_id = boot
    SystemClock.monotonic = staticmethod(lambda: _monotonic() + UPTIME)
    SystemClock.boot = staticmethod(lambda: _monotonic() + UPTIME)


def model(request: Request) -> Completion:
    steps = sum(message.role == "tool" for message in request.conversation)
    if steps < STEPS:
        return call("work", step=steps)
    return Completion(text="done", answer="done")


@tool(effect="idempotent")
def work(step: int) -> str:
    """Work in a thread."""
    print(f"{role} {step} {_monotonic()}", flush=True)
    time.sleep(0.1)
    return f"step {step} done"


async def main() -> None:
    repair_sleep()
    journal = SQLiteJournal(path)
    runtime = Runtime(
        ScriptedProvider(model), tools=[work], journal=journal, lease=LEASE
    )
    if role == "owner":
        result = await ReActEngine(runtime).run("Work.", run_id="r")
        print(f"ended {result.status}", flush=True)
    else:
        print("serves", flush=True)
        await Worker(runtime, poll=0.05).serve()
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main())
