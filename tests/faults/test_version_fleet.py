"""Old and new workers on one journal, rolled and killed while runs are at work: none diverges, and none is left over."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fleet_child
from fault_sizes import figure, sized
from loopwright.events import RunResumed, RunSuspended
from loopwright.events.lifecycle import read_app_version
from loopwright.journals import SQLiteJournal

RUNS = sized(40, 200)
PATIENCE = sized(90, 300)  # seconds until every run has ended
ANSWERS = {"1": {"paid 3", "paid 4"}, "3": {"paid 5"}}


class Fleet:
    """The processes of an application, of several versions at a time."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.notes = folder / "runs.db", folder / "payments"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.deaths = 0

    def start(self, mode: str, version: str, *names: str) -> subprocess.Popen[bytes]:
        """Start a process of a version."""
        command = [
            sys.executable, fleet_child.__file__, mode, version, str(self.journal), str(self.notes), *names,
        ]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self._processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """Stop a process: SIGINT releases its runs, SIGKILL leaves them."""
        process.send_signal(how)
        process.wait(timeout=60)
        self.deaths += how == signal.SIGKILL

    def stop_all(self) -> None:
        """Kill what is still there."""
        for process in self._processes:
            process.kill()
            process.wait()

    def payments(self) -> list[tuple[str, str, str]]:
        """Return the run, the step and the version of each payment."""
        if not self.notes.exists():
            return []
        lines = self.notes.read_text().splitlines()
        return [(run, step, version) for run, step, version, _ in map(str.split, lines)]

    def statuses(self) -> Counter[str]:
        """Return how many runs have each status."""
        if not self.journal.exists():
            return Counter()
        return Counter(info.status for info in SQLiteJournal(self.journal).runs())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail if it does not come true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not in {PATIENCE} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.stop_all()


def test_versions_are_rolled_while_runs_are_at_work(fleet: Fleet) -> None:
    half = RUNS // 2
    names = {
        "1": [f"old-{n}" for n in range(half)],
        "3": [f"new-{n}" for n in range(half)],
    }
    began = time.monotonic()

    first = fleet.start("begin", "1", *names["1"])
    wait_until(lambda: len(fleet.payments()) > half, "the first version is at work")
    fleet.stop(first, signal.SIGKILL)
    olds = [fleet.start("serve", "1") for _ in range(2)]
    newest = [fleet.start("serve", "3")]
    second = fleet.start("begin", "3", *names["3"])
    wait_until(
        lambda: sum(version == "3" for _, _, version in fleet.payments()) > half,
        "the third version is at work",
    )
    fleet.stop(second, signal.SIGKILL)
    fleet.stop(olds[0], signal.SIGINT)
    patched = fleet.start("serve", "2")
    fleet.stop(olds[1], signal.SIGKILL)
    newest.append(fleet.start("serve", "3"))
    fleet.stop(newest[0], signal.SIGINT)
    wait_until(lambda: fleet.statuses()["completed"] == RUNS, str(fleet.statuses()))
    fleet.stop(patched, signal.SIGINT)

    seconds = time.monotonic() - began
    executions = check_runs(fleet)
    figure(
        "version fleet",
        f"{RUNS} runs, 3 versions, {fleet.deaths} processes killed, {executions} executions, 0 diverged, 0 stranded, "
        f"{seconds:.0f} s",
    )


def check_runs(fleet: Fleet) -> int:
    """Check every run; return how often one was resumed."""
    journal, executions = SQLiteJournal(fleet.journal), 0
    paid = Counter((run, step) for run, step, _ in fleet.payments())
    assert max(paid.values()) == 1, "a payment was made twice"
    payers = {(run, version) for run, _, version in fleet.payments()}
    for info in journal.runs():
        entries = journal.read(info.run_id)
        version = read_app_version(entries)
        suspensions = [e.event for e in entries if isinstance(e.event, RunSuspended)]
        assert [one for one in suspensions if one.reason == "diverged"] == []
        assert entries[-1].event.answer in ANSWERS[version]  # type: ignore[union-attr]
        resumed = [e.event for e in entries if isinstance(e.event, RunResumed)]
        served = {"1": {"1", "2"}, "3": {"3"}}[version]
        assert {one.app_version for one in resumed} <= served
        assert {by for run, by in payers if run == info.run_id} <= served
        assert journal.verify(info.run_id).ok
        executions += len(resumed)
    return executions
