"""Wall clocks that are set while runs are at work: nothing but timestamps changes."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fault_sizes import figure
from loopwright.journals import SQLiteJournal

CHILD = Path(__file__).parents[1] / "support" / "clocks_child.py"
HOUR, DAY = 3600, 86_400
LEASE = 0.6
LONGER = 1.5  # a lease that its owner renews in time on a machine where others work


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
    assert seconds < 60
    assert renewals <= seconds / (LEASE / 3) + 2
    journal = SQLiteJournal(tmp_path / "runs.db")
    assert journal.verify("r").ok
    times = [entry.at for entry in journal.read("r")]
    assert times == sorted(times)
    figure(
        "clocks",
        f"wall clock {step:+} s: 6 of 6 plain functions ran in {seconds:.1f} s, {renewals} renewals",
    )


MACHINE = Path(__file__).parents[1] / "support" / "machine_child.py"
STEPS = 20
APART = [
    (-HOUR, HOUR, "another"),
    (HOUR, -HOUR, "another"),
    (0, DAY, "another"),
    (0, -DAY, "another"),
    (0, DAY, "same"),
    (0, -DAY, "same"),
]
"""The wall clocks of an owner and a worker, and the machine of the worker."""


@contextlib.contextmanager
def process(
    path: Path, role: str, offset: int, boot: str, lease: float = LEASE
) -> Iterator[Any]:
    """A process of a machine, and what it tells; killed at the end."""
    with subprocess.Popen(
        [sys.executable, MACHINE, path, role, str(offset), boot, str(lease)],
        stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        yield child
        child.kill()


@pytest.mark.parametrize(("owner", "worker", "boot"), APART)
def test_a_worker_whose_wall_clock_is_wrong_takes_no_run_that_is_renewed(
    owner: int, worker: int, boot: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with process(path, "worker", worker, boot, LONGER) as thief:
        assert thief.stdout.readline() == "serves\n"
        with process(path, "owner", owner, "same", LONGER) as child:
            lines = child.stdout.read().splitlines()
        thief.kill()
        stolen = thief.stdout.read().splitlines()

    assert lines[-1] == "ended completed"
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["owner", str(step)] for step in range(STEPS)
    ]
    assert stolen == []
    assert SQLiteJournal(path).runs()[0].fence == 1
    figure(
        "clocks",
        f"wall clocks {worker - owner:+} s apart, {boot} boot: {STEPS} of {STEPS} steps by their owner, 0 taken",
    )


@pytest.mark.parametrize(("owner", "worker", "boot"), APART)
def test_a_worker_whose_wall_clock_is_wrong_continues_the_run_of_a_dead_process(
    owner: int, worker: int, boot: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with process(path, "worker", worker, boot) as heir:
        assert heir.stdout.readline() == "serves\n"
        with process(path, "owner", owner, "same") as child:
            for _ in range(5):
                last = float(child.stdout.readline().split()[2])
        taken = heir.stdout.readline().split()

    seconds = float(taken[2]) - last
    assert taken[:2] == ["worker", "4"]
    if (
        boot == "another"
    ):  # its lease is seen once more after the kill, and then for the whole of it
        assert seconds >= LEASE / 2
    assert seconds < 30
    assert SQLiteJournal(path).verify("r").ok
    figure(
        "clocks",
        f"wall clocks {worker - owner:+} s apart, {boot} boot: a killed owner's run continued after {seconds:.1f} s",
    )
