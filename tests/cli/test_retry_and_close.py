"""`retry` and `close`: a run that failed because of its provider, and one whose code is gone."""

import json
from pathlib import Path

import pytest

from loopwright import ReActEngine, Runtime
from loopwright.errors import ProviderError
from loopwright.events import RunFinished, RunRetried
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider

from .using import Invoke

WIPE = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
WRONG_KEY = ProviderError("the key is wrong", status=401)


def run(script: list[object], run_id: str = "r1") -> str:
    """Run on the journal that the command line uses by default; return the status."""
    journal = SQLiteJournal("loopwright.db")
    engine = ReActEngine(Runtime(ScriptedProvider(script), journal=journal))
    return engine.run_sync("Go.", run_id=run_id).status


def resume(script: list[object], run_id: str = "r1") -> str | None:
    journal = SQLiteJournal("loopwright.db")
    engine = ReActEngine(Runtime(ScriptedProvider(script), journal=journal))
    return engine.resume_sync(run_id).answer


def status(invoke: Invoke, run_id: str = "r1") -> str:
    rows = [json.loads(line) for line in invoke("runs", "--json").stdout.splitlines()]
    [row] = [row for row in rows if row["run_id"] == run_id]
    return str(row["status"])


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_that_failed_because_of_its_provider_continues(invoke: Invoke) -> None:
    assert run([WRONG_KEY]) == "failed"

    done = invoke("retry", "r1", "--reason", "the key is right now")

    assert (done.exit_code, done.stderr) == (
        0,
        "released; a worker resumes it, or `loopwright resume` does\n",
    )
    assert status(invoke) == "released"
    events = [entry.event for entry in SQLiteJournal("loopwright.db").read("r1")]
    [retried] = [event for event in events if isinstance(event, RunRetried)]
    assert retried.reason == "the key is right now"
    assert resume(["It is blue."]) == "It is blue."


def test_a_run_that_completed_is_not_retried(invoke: Invoke) -> None:
    assert run(["It is blue."]) == "completed"

    done = invoke("retry", "r1")

    assert done.exit_code == 2
    assert "r1" in done.stderr
    assert "neither parked nor failed by a provider" in done.stderr
    assert status(invoke) == "completed"


def test_a_run_that_waits_for_ever_is_closed_once(invoke: Invoke) -> None:
    invoke("run", "Go.", *WIPE, "--run-id", "r1", "--wait", "-q")
    assert status(invoke) == "waiting"

    done = invoke("close", "r1", "--reason", "its engine is uninstalled")
    again = invoke("close", "r1", "--reason", "once more")

    assert (done.exit_code, done.stderr) == (0, "closed as aborted\n")
    assert status(invoke) == "aborted"
    assert again.exit_code == 2
    assert "r1" in again.stderr
    last = SQLiteJournal("loopwright.db").read("r1")[-1].event
    assert isinstance(last, RunFinished)
    assert "its engine is uninstalled" in str(last.error)


@pytest.mark.parametrize(
    "words", [("retry", "nobody"), ("close", "nobody", "--reason", "x")]
)
def test_an_unknown_run_is_named(invoke: Invoke, words: tuple[str, ...]) -> None:
    run(["It is blue."])
    done = invoke(*words)

    assert done.exit_code == 2
    assert "nobody" in done.stderr


def test_a_run_is_not_closed_without_a_reason(invoke: Invoke) -> None:
    invoke("run", "Go.", *WIPE, "--run-id", "r1", "--wait", "-q")

    missing = invoke("close", "r1")
    empty = invoke("close", "r1", "--reason", "")

    assert (missing.exit_code, empty.exit_code) == (2, 2)
    assert "--reason" in missing.stderr
    assert "reason" in empty.stderr
    assert status(invoke) == "waiting"
