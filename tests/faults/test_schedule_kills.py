"""A worker is killed before and after each commit while it fires a schedule: each time has one run in the end."""

import asyncio
import signal
from pathlib import Path

import pytest

from forked_processes import DEVNULL, fork
from loopwright import Worker
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock
from schedule_child import HOUR, SCHEDULE, START, application

CHILD = Path(__file__).parents[1] / "support" / "schedule_child.py"
MAX_COMMITS = 40
EXPECTED = [
    f"d.g1@2023-11-{one}Z" for one in ("14T23:00", "15T00:00", "15T01:00", "15T02:00")
]
pytestmark = pytest.mark.faults


def run_killed(folder: Path, commit: int, moment: str) -> int:
    """Run the worker, killed at a commit; return how it ended."""
    child = fork(
        CHILD, folder / "runs.db", folder / "told", 3.5, commit, moment, stdout=DEVNULL, stderr=DEVNULL
    )  # fmt: skip
    return child.wait(timeout=60)


async def begin(folder: Path) -> None:
    """Add the schedule."""
    runtime = application(folder / "runs.db", FakeClock(wall=START), folder / "told")
    await runtime.schedule("d", "digest", "Sum up.", **SCHEDULE)  # type: ignore[arg-type]
    await runtime.journal.close()


async def finish(folder: Path) -> SQLiteJournal:
    """Let a worker that lives do the rest."""
    clock = FakeClock(wall=START + 4 * HOUR)
    runtime = application(folder / "runs.db", clock, folder / "told")
    worker = Worker(runtime)
    for _ in range(3):
        await worker.drain()
        clock.advance(31)  # the lease of the worker that was killed is over
    assert isinstance(runtime.journal, SQLiteJournal)
    return runtime.journal


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_killed_at_each_commit_fires_no_time_twice(
    tmp_path: Path, moment: str
) -> None:
    killed = 0
    for commit in range(1, MAX_COMMITS):
        folder = tmp_path / f"{moment}-{commit}"
        folder.mkdir()
        asyncio.run(begin(folder))
        status = run_killed(folder, commit, moment)
        killed += status == -signal.SIGKILL
        journal = asyncio.run(finish(folder))
        infos = {info.run_id: info.status for info in journal.runs()}

        assert sorted(infos) == EXPECTED, commit
        assert set(infos.values()) == {"completed"}
        [schedule] = journal.schedules.read()
        assert (schedule.line, schedule.skipped) == ((), 0)
        # A model call that was in flight may be made again, once.
        assert len((folder / "told").read_text().splitlines()) <= len(infos) + 1
        if status == 0:
            break

    assert killed >= 8
