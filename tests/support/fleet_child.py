"""A process of an application of some version: begins runs, or serves as a worker, until it is stopped or killed.

    python fleet_child.py begin|serve VERSION JOURNAL NOTES [run ids]

Version 1 makes three payments. Version 2 makes a fourth one, behind `Run.patched`, and accepts runs of version 1.
Version 3 asks something else and makes five; it cannot replay runs of the others.
"""

import asyncio
import os
import signal
import sys
from typing import ClassVar

from loopwright import LoopEngine, Run, Runtime, ToolCall, Worker, tool
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

ACCEPTS = {"1": (), "2": ("1",), "3": ()}
PAUSE, LEASE, POLL = 0.02, 2.0, 0.05


class Paying(LoopEngine):
    """Asks before each payment, and pays."""

    name = "paying"
    version: ClassVar[str] = ""

    async def solve(self, run: Run) -> str:
        """Pay a few times, as the version does."""
        for step in range(3):
            await self._pay(run, step)
        if self.version == "1":
            return "paid 3"
        if self.version == "2" and not run.patched("fourth-payment"):
            return "paid 3"
        await self._pay(run, 3)
        if self.version == "2":
            return "paid 4"
        await self._pay(run, 4)
        return "paid 5"

    async def _pay(self, run: Run, step: int) -> None:
        prompt = "Shall I make" if self.version == "3" else "Make"
        await run.ask(f"{prompt} payment {step}?")
        await run.call(ToolCall("pay", {"run": run.run_id, "step": step}))


def build_engine(version: str, journal: str, notes: str) -> Paying:
    Paying.version = version

    @tool(effect="write")
    async def pay(run: str, step: int) -> str:
        """Pay."""
        with open(notes, "a") as file:  # noqa: ASYNC230 - one line, before the payment counts
            file.write(f"{run} {step} {version} {os.getpid()}\n")
        await asyncio.sleep(PAUSE)
        return "paid"

    model = ScriptedProvider(lambda request: "yes")
    store = SQLiteJournal(journal, busy_timeout=20)
    return Paying(
        Runtime(model, tools=[pay], journal=store, lease=LEASE, app_version=version)
    )


async def begin(engine: Paying, names: list[str]) -> None:
    await asyncio.gather(*(engine.run("Pay.", run_id=name) for name in names))


async def serve(engine: Paying, version: str) -> None:
    worker = Worker(
        engine.runtime,  # type: ignore[arg-type]
        engines=[engine],
        poll=POLL,
        accepts=ACCEPTS[version],
        max_concurrency=40,
    )
    await worker.serve()


def main() -> None:
    mode, version, journal, notes, *names = sys.argv[1:]
    engine = build_engine(version, journal, notes)
    asyncio.run(begin(engine, names) if mode == "begin" else serve(engine, version))


if __name__ == "__main__":
    # A shell starts its background jobs, and so all that they start, without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
