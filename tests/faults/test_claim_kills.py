"""A worker that is killed between the claims of several runs and the work on them: other workers continue each run once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from claim_child import make_runtime
from fault_sizes import figure
from forked_processes import DEVNULL, fork
from loopwright import ReActEngine, Worker
from loopwright.events import RunResumed
from loopwright.journals import SQLiteJournal

CHILD = Path(__file__).parents[1] / "support" / "claim_child.py"
NAMES = [f"run-{number}" for number in range(9)]


async def release(journal: SQLiteJournal, notes: Path) -> None:
    engine = ReActEngine(make_runtime(journal, notes))
    for name in NAMES:
        new = engine.plan(name, run_id=name)
        claim = journal.create(new.header)
        journal.append(claim, new.entries, status="released")
        await journal.barrier(claim)


async def drain_twice(journal: SQLiteJournal, notes: Path) -> int:
    """Have two workers do what there is; return how many runs they ended."""
    workers = [Worker(make_runtime(journal, notes)) for _ in range(2)]
    results = await asyncio.gather(*(worker.drain() for worker in workers))
    return sum(map(len, results))


@pytest.mark.faults
@pytest.mark.parametrize("when", ["claimed", "reading"])
def test_runs_claimed_by_a_worker_that_is_killed_continue_in_others(
    tmp_path: Path, when: str
) -> None:
    path, notes = tmp_path / "runs.db", tmp_path / "notes"
    journal = SQLiteJournal(path)
    asyncio.run(release(journal, notes))
    before = {name: journal.read(name) for name in NAMES}
    with fork(CHILD, path, notes, when, stdout=DEVNULL, stderr=DEVNULL) as child:
        assert child.wait(60) == -9

    infos = {info.run_id: info for info in journal.runs()}
    assert [infos[name].status for name in NAMES] == ["running"] * 6 + ["released"] * 3
    assert {name: journal.read(name) for name in NAMES} == before
    assert asyncio.run(drain_twice(journal, notes)) == len(NAMES)
    assert Counter(notes.read_text().split()) == Counter(NAMES)
    lives = [
        entry.event.after
        for name in NAMES
        for entry in journal.read(name)
        if isinstance(entry.event, RunResumed)
    ]
    assert lives == ["left"] * len(NAMES)
    assert all(journal.verify(name).ok for name in NAMES)
    figure(f"claim kills, {when}", "6 runs claimed, 6 continued once, 0 deaths counted")
