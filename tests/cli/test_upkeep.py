"""`delete`, `prune`, `export`, `import` and `backup`, and the filters of `runs`."""

import json
from pathlib import Path

import pytest

from .using import Invoke

ASK = (
    "run",
    "Go.",
    "--provider",
    "scripted:capital",
    "--tools",
    "scripted_cli:capital",
    "-q",
)


@pytest.fixture
def runs(invoke: Invoke) -> None:
    for run_id in ("r1", "r2", "r3"):
        assert invoke(*ASK, "--run-id", run_id).exit_code == 0


def names(invoke: Invoke, *options: str) -> list[str]:
    listed = invoke("runs", "--json", *options).stdout.splitlines()
    return [json.loads(line)["run_id"] for line in listed]


@pytest.mark.usefixtures("runs")
def test_runs_are_filtered_and_limited(invoke: Invoke) -> None:
    assert names(invoke, "--limit", "2") == ["r3", "r2"]
    assert names(invoke, "--text", "R2") == ["r2"]
    assert names(invoke, "--engine", "critic") == []
    assert names(invoke, "--tag", "user=42") == []
    wrong = invoke("runs", "--tag", "user")
    assert (wrong.exit_code, "--tag: must be NAME=VALUE" in wrong.stderr) == (2, True)


@pytest.mark.usefixtures("runs")
def test_runs_are_deleted_and_pruned(invoke: Invoke) -> None:
    assert invoke("delete", "r2", "--by", "Ada").stdout == "r2: deleted\n"
    assert "by Ada" in invoke("show", "r2").stderr
    assert invoke("prune", "--keep", "1").stdout == "r1: deleted\n"
    assert invoke("prune", "--older-than", "30d").stdout == ""
    assert names(invoke) == ["r3"]
    for options, message in (
        ((), "older_than: give an age"),
        (("--older-than", "soon"), "--older-than: must be a number with s, m, h or d"),
        (("--older-than", "30"), "--older-than: must be a number with s, m, h or d"),
        (("--keep", "0", "--status", "running"), "status: prune deletes runs"),
    ):
        wrong = invoke("prune", *options)
        assert (wrong.exit_code, message in wrong.stderr) == (2, True)


@pytest.mark.usefixtures("runs")
def test_runs_are_exported_imported_and_copied(invoke: Invoke, tmp_path: Path) -> None:
    file, copy = str(tmp_path / "x.jsonl"), str(tmp_path / "copy.db")
    exported = invoke("export", file, "--run", "r1", "--run", "r3")
    assert exported.stdout == "r1: exported\nr3: exported\n"
    imported = invoke("import", file, "--journal", str(tmp_path / "other.db"))
    assert imported.stdout == "r1: imported\nr3: imported\n"
    assert names(invoke, "--journal", str(tmp_path / "other.db")) == ["r3", "r1"]
    assert invoke("backup", copy).exit_code == 0
    assert names(invoke, "--journal", copy) == ["r3", "r2", "r1"]
    assert invoke("backup", copy).exit_code == 2
    assert invoke("export", file).exit_code == 2
