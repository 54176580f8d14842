"""kill -9 at every barrier of a run that is handed off: the same answer, and nothing recorded is repeated."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault_sizes import sized
from handoff_programs import STRATEGIES, handed_off
from loopwright.events import HandedOff, RunFinished
from loopwright.journals import SQLiteJournal
from loopwright.testing import kill_everywhere
from third_party_package import install_third_party


@pytest.fixture(scope="module", autouse=True)
def _third_party() -> Iterator[None]:
    """The processes that are killed find a third party's engine, installed from its own pyproject."""
    sys.path.insert(0, str(install_third_party()))
    yield
    sys.path.remove(str(install_third_party()))


@pytest.mark.timeout(sized(300, 1800))
@pytest.mark.parametrize("name", [*STRATEGIES, "parallel"])
def test_a_handed_off_run_killed_at_any_barrier_ends_with_the_same_agent(
    name: str, tmp_path: Path
) -> None:
    barriers, last = 0, "fourth" if name == "parallel" else "second"
    every = sized(2, 1) if name == "turn" else 1
    racing = name == "parallel"
    kills = kill_everywhere(
        handed_off, name, folder=tmp_path, every=every, racing=racing
    )
    for killed in kills:
        barriers += 1
        journal = SQLiteJournal(killed.folder / "runs.db")
        events = [entry.event for entry in journal.read("the-run")]
        handoffs = [event for event in events if isinstance(event, HandedOff)]
        ended = events[-1]

        assert isinstance(ended, RunFinished)
        assert (ended.agent, len(handoffs)) == (last, 3 if racing else 1)

    assert barriers >= 2 * 4 // every
