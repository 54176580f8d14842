"""A worker that has no file descriptor for a while looks again."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from interruptions import cancel_host
from loopwright import ReActEngine, Runtime
from loopwright._kernel.session.session import SUSPEND_REASON
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

CHILD = Path(__file__).parents[1] / "support" / "descriptors_child.py"
PATIENCE = 120.0


async def release_run(path: Path) -> None:
    """Leave a run to the next worker."""
    runtime = Runtime(ScriptedProvider([cancel_host]), journal=SQLiteJournal(path))
    SUSPEND_REASON.set("released")
    with contextlib.suppress(asyncio.CancelledError):
        await ReActEngine(runtime).run("Go.", run_id="r")
    await runtime.journal.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
async def test_a_worker_that_starts_without_file_descriptors_looks_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    await asyncio.create_task(release_run(path))
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, errors = await asyncio.wait_for(child.communicate(), PATIENCE)

    assert said == b"schedules_unreadable, then completed\n", errors.decode()
