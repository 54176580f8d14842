"""kill -9 at every barrier of agents at work together: the same answer, and no finished task is worked on again."""

from pathlib import Path

import pytest

from fault_sizes import figure, sized
from loopwright.engines import Board
from loopwright.journals import SQLiteJournal
from loopwright.testing import kill_everywhere
from team_programs import team_program


@pytest.mark.timeout(sized(300, 1800))
@pytest.mark.parametrize("name", ["team", "toolbox"])
def test_agents_killed_at_any_barrier_repeat_no_finished_task(
    name: str, tmp_path: Path
) -> None:
    kills = 0
    for killed in kill_everywhere(team_program, name, folder=tmp_path):
        kills += 1
        board = Board.of(SQLiteJournal(killed.folder / "runs.db").read("the-run"))

        assert [task.status for task in board.tasks] == ["completed"] * (2 if name == "team" else 0)  # fmt: skip

    assert kills >= 2 * 6
    figure(f"kills of {name}", f"{kills} kills, 0 finished tasks repeated")
