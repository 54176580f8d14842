"""The journals that released versions wrote are read for ever, and their runs go on."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loopwright.events import UnknownEvent
from loopwright.journals import SQLiteJournal
from released_journals import FOLDER, make, resumed

RELEASED = sorted(FOLDER.glob("*.db"))


def said(path: Path) -> dict[str, Any]:
    """What stands beside a journal: of each run its engine, its head, and how it ends when it is resumed."""
    runs: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return runs


@pytest.fixture(params=RELEASED, ids=[path.stem for path in RELEASED])
def released(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def copy(released: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(released, tmp_path))


def test_there_are_journals_of_releases() -> None:
    assert RELEASED, f"none in {FOLDER}: were they left out of the repository?"


def test_every_run_is_listed_and_verifies_with_the_head_that_was_kept(
    released: Path, copy: Path
) -> None:
    journal, runs = SQLiteJournal(copy), said(released)

    assert {info.run_id for info in journal.runs()} == runs.keys()
    assert {
        run_id: journal.verify(run_id, run["head"]).problem
        for run_id, run in runs.items()
    } == dict.fromkeys(runs, "")


def test_every_entry_is_read(released: Path, copy: Path) -> None:
    journal, runs = SQLiteJournal(copy), said(released)
    entries = [entry for run_id in runs for entry in journal.read(run_id)]

    assert len(entries) == sum(run["entries"] for run in runs.values())
    assert not any(isinstance(entry.event, UnknownEvent) for entry in entries)
    assert len({entry.kind for entry in entries}) >= 22


async def test_every_run_ends_as_it_would_have_ended_then(
    released: Path, copy: Path
) -> None:
    """A finished run gives what it recorded; the others go on, and repeat nothing."""
    runs = said(released)
    for run_id, run in runs.items():
        assert not (run["finished"] and run["ran"])
        found = await resumed(copy, run_id, run["engine"])
        assert found == {name: run[name] for name in found}, run_id


async def test_the_journal_of_the_next_release_can_be_made(tmp_path: Path) -> None:
    path = tmp_path / "next.db"
    await make(path)

    runs = said(path)
    assert all(run["verified"] for run in runs.values())
    assert path.stat().st_size < 400_000
    assert {
        file.name for file in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    } == {"next.db", "next.json"}
    before = said(RELEASED[-1])
    assert {
        run_id: (run["status"], run["answer"]) for run_id, run in before.items()
    }.items() <= {
        run_id: (run["status"], run["answer"]) for run_id, run in runs.items()
    }.items()
