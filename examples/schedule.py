"""A schedule: an agent writes a digest every hour, over two workers that share a journal, and no hour is done twice.

Both workers are away for three hours: one run makes up for what was missed. The clock is a test's: a day is a moment;
leave `clock=` out for the machine's own, and run `Worker(runtime).serve()` in each process.

No model is needed: `answer` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays. Needs the extra `schedule`.
"""

import asyncio
import tempfile
from pathlib import Path

from loopwright import Request, Runtime, Worker
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider

HOUR = 3600.0


def answer(request: Request) -> str:
    """Say what a model would say."""
    return "Nothing new in the mail."


def start(journal: Path, clock: FakeClock) -> Runtime:
    """Return one process of the application."""
    opened = SQLiteJournal(journal, clock=clock)
    runtime = Runtime(ScriptedProvider(answer), journal=opened, clock=clock, lease=30.0)
    runtime.agent("digest", instructions="You sum up the mail of the last hour.")
    return runtime


async def main() -> None:
    """Let time pass."""
    clock = FakeClock(wall=1_700_000_000)
    with tempfile.TemporaryDirectory() as folder:
        runtimes = [start(Path(folder) / "runs.db", clock) for _ in range(2)]
        workers = [Worker(runtime) for runtime in runtimes]
        for runtime in runtimes:  # each process says so when it starts
            await runtime.schedule("mail", "digest", "What came?", cron="0 * * * *")
        for hours in (1, 1, 3, 1):
            clock.advance(hours * HOUR)
            await asyncio.gather(*(worker.drain() for worker in workers))
        for listed in reversed(await runtimes[0].runs()):
            print(f"{listed.info.run_id}  {listed.info.status}")
        [schedule] = await runtimes[0].schedules.list()
        print(f"missed and made up for: {schedule.skipped}")
        for runtime in runtimes:
            await runtime.journal.close()


asyncio.run(main())
