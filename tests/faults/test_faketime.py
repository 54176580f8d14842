"""Real processes under libfaketime: wall clocks that are set, or are wrong, change nothing but timestamps."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faketime import MISSING, find_library, shift_clock
from fault_sizes import figure
from loopwright.journals import SQLiteJournal

pytestmark = [
    pytest.mark.skipif(not find_library(), reason=MISSING),
    pytest.mark.timeout(240),
]

SUPPORT = Path(__file__).parents[1] / "support"
HOUR, DAY = 3600, 86_400
LEASE = "3.0"
"""Long enough for a machine on which others work."""
TIMES = "seconds", "waited", "until", "delay", "time", "wake_at", "created", "deadline"
"""Fields of entries that hold times or durations."""
OWNERS = "owner", "boot_id", "journal_id", "boundary"
"""Fields that differ in any two processes, or files."""


def read_facts(path: Path) -> list[tuple[int, str, str, object]]:
    """Return a run's entries without their times, and without what differs in any two processes."""
    journal = SQLiteJournal(path)
    assert journal.verify("r").ok
    return [
        (entry.seq, entry.key, entry.kind, strip(json.loads(entry.body)))
        for entry in journal.read("r")
    ]


def strip(value: Any) -> Any:
    """Return a value without the fields that are times or name a process."""
    if isinstance(value, dict):
        return {
            name: strip(inner)
            for name, inner in value.items()
            if name not in (*TIMES, *OWNERS) and not name.endswith("idempotency_key")
        }
    return [strip(inner) for inner in value] if isinstance(value, list) else value


def run_busy(folder: Path, step: int) -> tuple[list[str], Path]:
    """Run the program of `faketime_child` with a step of its wall clock; return what it told, and its journal."""
    folder.mkdir()
    clock, journal = folder / "clock", folder / "runs.db"
    done = subprocess.run(
        [sys.executable, SUPPORT / "faketime_child.py", journal, clock, str(step)],
        capture_output=True, text=True, timeout=60, check=False, env=shift_clock(clock, 0),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), journal


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """Return what the program tells whose wall clock nobody sets, and the facts of its run: the same for all steps."""
    told, journal = run_busy(tmp_path_factory.mktemp("faketime") / "calm", 0)
    return told, read_facts(journal)


@pytest.mark.parametrize("step", [-DAY, -HOUR, HOUR, DAY])
def test_a_wall_clock_that_is_set_during_a_run_changes_only_timestamps(
    step: int, tmp_path: Path, calm: tuple[list[str], Any]
) -> None:
    (status, took, moved, answer), journal = run_busy(tmp_path / "set", step)
    expected, calm_facts = calm

    assert (status, answer) == (expected[0], expected[3])
    assert status == "completed"
    assert float(moved) == pytest.approx(step, abs=5)
    assert float(took) < 60
    facts = read_facts(journal)
    assert facts == calm_facts
    [info] = SQLiteJournal(journal).runs()
    assert info.fence == 1
    figure(
        "faketime",
        f"wall clock set by {step:+} s in the middle: {len(facts)} entries, 0 differences but times, {float(took):.1f} s",
    )


@contextlib.contextmanager
def start_host(path: Path, role: str, offset: int, boot: str) -> Iterator[Any]:
    """Start a process of a machine whose wall clock is off; it is killed at the end."""
    clock = path.with_name(f"clock-{role}-{offset}")
    with subprocess.Popen(
        [sys.executable, SUPPORT / "machine_child.py", path, role, "0", boot, LEASE],
        stdout=subprocess.PIPE, text=True, env=shift_clock(clock, offset),
    ) as child:  # fmt: skip
        yield child
        child.kill()


def work_beside_a_worker(path: Path, offset: int) -> list[str]:
    """Let a process work on a run beside a worker whose wall clock is off; return what the worker took."""
    with start_host(path, "worker", offset, "another") as thief:
        assert thief.stdout.readline() == "serves\n"
        with start_host(path, "owner", 0, "same") as owner:
            told = owner.stdout.read().splitlines()
        thief.kill()
        taken: list[str] = thief.stdout.read().splitlines()
    assert told[-1] == "ended completed"
    return taken


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """Return what a worker took beside a process of the same time, and the facts of that one's run."""
    path = tmp_path_factory.mktemp("faketime") / "together.db"
    return work_beside_a_worker(path, 0), read_facts(path)


@pytest.mark.parametrize("offset", [-HOUR, HOUR])
def test_two_hosts_an_hour_apart_differ_in_nothing_but_timestamps(
    offset: int, tmp_path: Path, together: tuple[list[str], Any]
) -> None:
    taken = work_beside_a_worker(tmp_path / "apart.db", offset)
    expected, expected_facts = together

    assert taken == expected == []
    facts = read_facts(tmp_path / "apart.db")
    assert facts == expected_facts
    figure(
        "faketime",
        f"two hosts {offset:+} s apart: {len(facts)} entries, 0 differences but times, 0 runs taken",
    )


@pytest.mark.parametrize("offset", [-HOUR, HOUR])
@pytest.mark.parametrize("boot", ["same", "another"])
def test_the_run_of_a_killed_host_continues_on_one_an_hour_apart(
    boot: str, offset: int, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with start_host(path, "worker", offset, boot) as heir:
        assert heir.stdout.readline() == "serves\n"
        with start_host(path, "owner", 0, "same") as owner:
            for _ in range(5):
                last = float(owner.stdout.readline().split()[2])
        taken = heir.stdout.readline().split()

    seconds = float(taken[2]) - last
    assert taken[:2] == ["worker", "4"]
    assert seconds < 30
    assert SQLiteJournal(path).verify("r").ok
    figure(
        "faketime",
        f"a host {offset:+} s off, {boot} boot: a killed owner's run continued after {seconds:.1f} s",
    )
