"""Wall clocks that are set while runs are at work: nothing but timestamps changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fault_sizes import figure
from loopwright.journals import SQLiteJournal

CHILD = Path(__file__).parents[1] / "support" / "clocks_child.py"
HOUR, DAY = 3600, 86_400
LEASE = 0.6


@pytest.mark.parametrize("step", [-DAY, -HOUR, HOUR, DAY])
def test_a_step_of_the_wall_clock_stops_no_tool_of_a_run_with_a_lease(
    step: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, CHILD, tmp_path / "runs.db", str(step)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    status, told, seconds, renewals, _ = json.loads(done.stdout)

    assert (status, told) == (
        "completed",
        [f"step {number} done" for number in range(6)],
    )
    assert seconds < 10
    assert renewals <= seconds / (LEASE / 3) + 2
    journal = SQLiteJournal(tmp_path / "runs.db")
    assert journal.verify("r").ok
    times = [entry.at for entry in journal.read("r")]
    assert times == sorted(times)
    figure(
        "clocks",
        f"wall clock {step:+} s: 6 of 6 plain functions ran in {seconds:.1f} s, {renewals} renewals",
    )
