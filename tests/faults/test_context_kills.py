"""A run whose context is summarized is killed at barriers around its summaries, and resumed by another interpreter."""

import signal
from collections import Counter
from pathlib import Path

import pytest

import context_child
from forked_processes import run
from loopwright.events import ModelReplied
from loopwright.journals import SQLiteJournal

SUPPORT = Path(__file__).parents[1] / "support" / "context_child.py"


FIRST: tuple[str, ...] = ()
SECOND = ("-B",)
"""Options of two interpreters that fork, each with a hash seed of its own."""


def live(
    folder: Path, barrier: int, when: str, options: tuple[str, ...] = FIRST
) -> tuple[int, str]:
    """Run the child in a fork of one of the interpreters; return how it ended and what it printed."""
    child = (SUPPORT, folder, barrier, when)
    ended = run(*child, timeout=60, options=options)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode, ended.stdout.strip()


def read_requests(folder: Path) -> list[str]:
    return (folder / "requests").read_text().splitlines()


def list_summaries(folder: Path) -> list[str]:
    entries = SQLiteJournal(folder / "runs.db").read(context_child.RUN_ID)
    replies = [entry for entry in entries if isinstance(entry.event, ModelReplied)]
    return [entry.key for entry in replies if "~c" in entry.key]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str], int]:
    """What the run says without a kill, what it asks, and how many summaries it has."""
    folder = tmp_path_factory.mktemp("unharmed")
    _, said = live(folder, 0, "before")
    requests = read_requests(folder)
    assert sum(line.startswith("summary") for line in requests) >= 2
    return said, requests, len(list_summaries(folder))


# Each step has three barriers, so that these lie around both summaries.
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("barrier", range(28, 55, 3))
def test_recorded_summary_is_not_asked_for_again_after_a_kill(
    tmp_path: Path, unharmed: tuple[str, list[str], int], barrier: int, when: str
) -> None:
    code, _ = live(tmp_path, barrier, when)
    assert code == -signal.SIGKILL
    journal = tmp_path / "runs.db"
    recorded = len(list_summaries(tmp_path)) if journal.exists() else 0
    asked = Counter(read_requests(tmp_path))
    code, printed = live(tmp_path, 0, "before", SECOND)
    said, requests, summaries = unharmed

    assert (code, printed) == (0, said)
    assert len(list_summaries(tmp_path)) == summaries
    again = Counter(read_requests(tmp_path)) - asked
    repeated = sum(n for line, n in again.items() if line.startswith("summary"))
    assert repeated == summaries - recorded, "only what was not recorded is asked for"
    assert Counter(requests) <= Counter(read_requests(tmp_path))
