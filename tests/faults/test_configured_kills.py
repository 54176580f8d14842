"""kill -9 at every barrier of runs with settings, of a file, and with a person as critic: as if nothing had been."""

from pathlib import Path
from typing import Any

import pytest

from configured_programs import configured_program
from fault_sizes import figure, sized
from loopwright.journals import SQLiteJournal
from loopwright.settings import SQLiteSettings
from loopwright.testing import kill_everywhere
from loopwright.testing.crash_harness import Killed


def check_settings(killed: Killed, entries: list[Any]) -> None:
    """The operator had written another version, and the run kept its own."""
    kept = entries[0].event.settings
    now = SQLiteSettings(killed.folder / "settings.db").read()

    assert (kept.version, now.version) == (1, 2)
    assert set(kept.values.values()) == {"told 1"}
    assert set(now.values.values()) == {"told 2"}


def check_file(killed: Killed, entries: list[Any]) -> None:
    """Nothing of the file is code, so that any process with it can resume the run."""
    assert entries[0].event.opaque == ()
    followed = SQLiteJournal(killed.folder / "runs.db").read("the-run@after:critique")
    assert followed[-1].event.status == "completed"  # type: ignore[union-attr]


def check_reviews(killed: Killed, entries: list[Any]) -> None:
    """Each draft was reviewed once, by the person."""
    facts = [
        one.event.value
        for one in entries
        if one.kind == "fact_noted" and one.event.name == "DraftReview"
    ]
    assert [(fact["round"], fact["reviewer"], fact["dimensions"]["plain words"]) for fact in facts] == [
        (1, "human", 0.9), (2, "human", 0.2),
    ]  # fmt: skip
    assert sum(one.kind == "command_received" for one in entries) == 2


CHECKS = {"settings": check_settings, "file": check_file, "reviewed": check_reviews}


@pytest.mark.timeout(sized(300, 1800))
@pytest.mark.parametrize("name", list(CHECKS))
def test_a_configured_run_killed_at_any_barrier_ends_as_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    kills = 0
    for killed in kill_everywhere(
        configured_program, name, folder=tmp_path, every=sized(3, 1)
    ):
        entries = SQLiteJournal(killed.folder / "runs.db").read("the-run")
        if killed.barrier > 1 or name != "settings":  # before, there was no run yet
            CHECKS[name](killed, entries)
        kills += 1

    assert kills >= 2 * sized(2, 5)
    figure(f"kills of {name}", f"{kills} kills, each the same end")
