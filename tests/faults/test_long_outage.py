"""A provider that is away for ten minutes, with two workers on one journal: no run is lost."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from fault_sizes import figure, sized
from loopwright import ProviderError, ReActEngine, Request, Runtime, Worker
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider

OUTAGE, SPEED = 600.0, 50.0


class SharedClock(FakeClock):
    """A clock for many tasks: a sleep ends when the time has come for all."""

    def __init__(self) -> None:
        super().__init__()
        self._ticked = asyncio.Condition()

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by `seconds`."""
        until = self.monotonic() + seconds
        async with self._ticked:
            await self._ticked.wait_for(lambda: self.monotonic() >= until)

    async def run(self) -> None:
        """Advance, a second at a time, `SPEED` times as fast as the real clock."""
        while True:
            await asyncio.sleep(1 / SPEED)
            self.advance(1.0)
            async with self._ticked:
                self._ticked.notify_all()


class Provider:
    """What both processes call: it is away until `OUTAGE` seconds have passed."""

    def __init__(self, clock: SharedClock) -> None:
        self._clock, self.back_at = clock, clock.wall() + OUTAGE
        self.refused = 0

    def answer(self, request: Request) -> str:
        if self._clock.wall() < self.back_at:
            self.refused += 1
            raise ProviderError("away", status=503)
        return "done"


async def until_all_ended(journal: SQLiteJournal, count: int) -> set[str]:
    """Return the statuses of all runs once none of them waits any more."""
    while True:
        statuses = [info.status for info in journal.runs()]
        if len(statuses) == count and not {"running", "suspended"} & set(statuses):
            return set(statuses)
        await asyncio.sleep(0.1)


@pytest.mark.timeout(300)
async def test_ten_minutes_without_a_provider_lose_no_run(tmp_path: Path) -> None:
    count, clock = sized(50, 200), SharedClock()
    provider = Provider(clock)
    journals = [SQLiteJournal(tmp_path / "journal.db") for _ in range(2)]
    engines = [
        ReActEngine(
            Runtime(
                ScriptedProvider(provider.answer),
                journal=journal,
                clock=clock,
                lease=300.0,
            )
        )
        for journal in journals
    ]
    tasks = [asyncio.ensure_future(clock.run())]
    for engine in engines:
        worker = Worker(engine.runtime, engines=[engine], max_concurrency=count)
        tasks.append(asyncio.ensure_future(worker.serve()))
    begun = [engines[number % 2].run("Go.") for number in range(count)]

    first = await asyncio.gather(*begun)
    assert {result.status for result in first} == {"suspended"}
    statuses = await asyncio.wait_for(until_all_ended(journals[0], count), 240)
    late = clock.wall() - provider.back_at
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    for journal in journals:
        await journal.close()

    figure(
        "outage of ten minutes",
        f"{count} runs, two workers: {provider.refused} calls refused, all ended {late:.0f} s after it",
    )
    assert statuses == {"completed"}
    assert provider.refused <= 2 * (OUTAGE + count)
