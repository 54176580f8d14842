"""`settings`: an operator changes what the runs of an application's file read, and sees who changed what."""

import json
from pathlib import Path

import pytest

from loopwright.journals import SQLiteJournal

from .using import Invoke

FILE = """\
[runtime]
journal = "runs.db"
settings = "settings.db"
[limits]
max_llm_calls = 20
[providers.main]
provider = "scripted"
name = "what"
[agents.clerk]
instructions = "Be long."
"""
ADMIN = ("--principal", "ann:admin")


@pytest.fixture(autouse=True)
def file(folder: Path) -> None:
    """The file of the application."""
    (folder / "agents.toml").write_text(FILE)


def test_setting_is_changed_shown_read_by_a_run_and_reverted(invoke: Invoke) -> None:
    first = invoke("settings", "set", "agent.clerk.instructions", "Be short.", *ADMIN, "--reason", "too long")  # fmt: skip
    second = invoke("settings", "set", "agent.clerk.limits.max_llm_calls", "9", *ADMIN)
    assert (first.stdout, second.stdout) == ("version 1\n", "version 2\n"), second.stderr  # fmt: skip

    assert invoke("settings", "get").stdout.splitlines() == [
        'agent.clerk.instructions = "Be short."',
        "agent.clerk.limits.max_llm_calls = 9",
    ]
    ran = invoke("run", "Hi", "--config", "agents.toml", "--quiet", "--run-id", "one")
    assert ran.exit_code == 0, ran.stderr
    started = SQLiteJournal("runs.db").read("one")[0].event
    assert (started.settings.version, started.limits["max_llm_calls"]) == (2, 9)  # type: ignore[attr-defined]

    assert invoke("settings", "revert", "1", *ADMIN).stdout == "version 3\n"
    lines = invoke("settings", "history").stdout.splitlines()
    assert lines == [
        '1  ann  agent.clerk.instructions: null -> "Be short."  (too long)',
        "2  ann  agent.clerk.limits.max_llm_calls: null -> 9",
        "3  ann  agent.clerk.limits.max_llm_calls: 9 -> null  (as in version 1)",
    ]
    (only,) = invoke("settings", "history", "agent.clerk.instructions", "--json").stdout.splitlines()  # fmt: skip
    assert json.loads(only)["value"] == "Be short."


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("agent.clerk.limits.max_llm_calls", "21", *ADMIN), "must be at most 20"),
        (("runtime.gates", "[]", *ADMIN), "gates, approvers, hooks"),
        (("engine.react.enabled", "false", "--principal", "bob"), "bob may not write"),
    ],
)
def test_setting_that_is_not_allowed_is_refused(
    invoke: Invoke, folder: Path, arguments: tuple[str, ...], problem: str
) -> None:
    refused = invoke("settings", "set", *arguments)

    assert refused.exit_code in (1, 2)
    assert problem in refused.stderr
    assert not (folder / "settings.db").exists()
