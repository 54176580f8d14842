"""A run whose tool kills its process, beside innocent ones: they finish, and it is parked."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault_sizes import figure, sized
from forked_processes import DEVNULL, Forked, fork
from loopwright.events import RunParked, RunResumed
from loopwright.journals import SQLiteJournal

CHILD = Path(__file__).parents[1] / "support" / "poison_child.py"
SECONDS = 150.0


@contextlib.contextmanager
def worker(folder: Path) -> Iterator[Forked]:
    arguments = "serve", folder / "runs.db", folder / "notes"
    with fork(CHILD, *arguments, stdout=DEVNULL, stderr=DEVNULL) as process:
        yield process


def begin(folder: Path, names: list[str]) -> None:
    """Start the runs in a process that the poisonous one kills."""
    arguments = "begin", folder / "runs.db", folder / "notes", *names
    with fork(CHILD, *arguments, stdout=DEVNULL, stderr=DEVNULL) as process:
        assert process.wait(100) == -9


def serve_until_settled(folder: Path) -> int:
    """Start a worker whenever the last one was killed, until each run has ended or is parked; return their number."""
    journal, end, workers = (
        SQLiteJournal(folder / "runs.db"),
        time.monotonic() + SECONDS,
        0,
    )
    while True:
        workers += 1
        with worker(folder) as process:
            while process.poll() is None:
                statuses = {info.status for info in journal.runs()}
                if statuses <= {"completed", "parked"}:
                    return workers
                assert time.monotonic() < end, f"it took too long: {statuses}"
                time.sleep(0.05)


@pytest.mark.timeout(sized(300, 7200))
def test_a_tool_that_kills_its_process_is_parked_and_its_nine_neighbours_finish(
    tmp_path: Path,
) -> None:
    rounds, seconds = sized(1, 20), list[float]()
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = [*(f"innocent-{n}" for n in range(9)), "poison"]
        began = time.monotonic()
        begin(folder, names)
        workers = serve_until_settled(folder)
        seconds.append(time.monotonic() - began)

        journal = SQLiteJournal(folder / "runs.db")
        infos = {info.run_id: info for info in journal.runs()}
        assert {name: infos[name].status for name in names} == {
            **dict.fromkeys(names[:9], "completed"),
            "poison": "parked",
        }
        assert all(journal.verify(name).ok for name in names)
        kills = (folder / "notes").read_text().count("\n")
        *_, parked = (entry.event for entry in journal.read("poison"))
        assert isinstance(parked, RunParked)
        assert parked.deaths == kills == workers
        lone = [
            entry.event
            for entry in journal.read("poison")
            if isinstance(entry.event, RunResumed) and entry.event.alone
        ]
        assert 1 <= len(lone) <= 3
    figure(
        "poison",
        f"{rounds} rounds: 9 of 9 neighbours finished, the tenth parked after {kills} deaths; "
        f"{max(seconds):.0f} s at most",
    )
