"""`--config`: run, resume, chat, worker and console with the services, agents and journal of a file."""

import json
import re
import shlex
from pathlib import Path

import pytest

from loopwright.cli.chat import ChatTarget
from loopwright.cli.config import CommandOptions
from loopwright.cli.config_file import find_journal
from loopwright.gates import Suspend
from loopwright.journals import SQLiteJournal

from .using import Invoke

FILE = """\
[runtime]
journal = "of-file.db"
agent = "clerk"
[providers.main]
provider = "scripted"
name = "wipe"
[providers.other]
provider = "scripted"
name = "capital"
[toolboxes.both]
object = "scripted_cli:both"
[agents.clerk]
instructions = "Be short."
engine = { engine = "react", max_iterations = 4 }
[engines.plain]
engine = "react"
"""
CONFIG = ("--config", "agents.toml")


@pytest.fixture(autouse=True)
def file(folder: Path) -> None:
    """The file."""
    text = FILE.replace("[runtime]\n", '[runtime]\nprovider = "main"\n')
    (folder / "agents.toml").write_text(text)


def test_run_of_a_file_waits_and_a_worker_of_the_file_resumes_it(
    invoke: Invoke, folder: Path
) -> None:
    waiting = invoke("run", "go", *CONFIG, "--wait", "--run-id", "one")
    assert waiting.exit_code == 5, waiting.stderr
    assert "resume one --config agents.toml --journal of-file.db" in waiting.stderr
    started = SQLiteJournal("of-file.db").read("one")[0].event
    assert (started.agent, started.options["max_iterations"]) == ("clerk", 4)  # type: ignore[attr-defined]

    (command,) = re.findall(r"loopwright (approve one .+)", waiting.stderr)
    approved = invoke(*shlex.split(command))
    assert approved.exit_code == 0, approved.stderr
    served = invoke("worker", *CONFIG, "--once", "--json")
    assert served.exit_code == 0, served.stderr
    assert json.loads(served.stdout)["answer"] == "I was told: wiped"

    resumed = invoke("resume", "one", *CONFIG)
    assert (resumed.exit_code, resumed.stdout) == (0, "I was told: wiped\n")
    checked = invoke("replay-check", "of-file.db", *CONFIG)
    assert (checked.exit_code, checked.stderr) == (0, "1 replayed\n")
    assert [path.name for path in folder.glob("loopwright.db*")] == []


def test_agent_names_an_engine_and_journal_takes_precedence(invoke: Invoke) -> None:
    given = (*CONFIG, "--agent", "plain", "--journal", "mine.db", "--yes", "--json")
    ended = json.loads(invoke("run", "go", "--quiet", *given, "--run-id", "two").stdout)

    assert ended["answer"] == "I was told: wiped"
    assert SQLiteJournal("mine.db").read("two")[0].event.agent == ""  # type: ignore[attr-defined]


def test_chat_opens_the_agent_of_a_file() -> None:
    chosen = CommandOptions(config="agents.toml")
    agent = ChatTarget("", None, "react", "").open(chosen, Suspend())
    engine = ChatTarget("plain", None, "react", "Be kind.").open(chosen, Suspend())

    assert (agent.name, engine.name, engine.engine.name) == ("clerk", "", "react")
    command = ChatTarget("", None, "react", "").format_command("t", chosen)
    assert command == "loopwright chat --thread t --config agents.toml"


def test_console_has_the_journal_of_a_file(invoke: Invoke) -> None:
    found = find_journal(CommandOptions(config="agents.toml"))
    other = find_journal(CommandOptions(config="agents.toml", journal="mine.db"))

    assert isinstance(found, SQLiteJournal)
    assert isinstance(other, SQLiteJournal)
    assert (found.path.name, other.path.name) == ("of-file.db", "mine.db")
    assert "--config" in invoke("console", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--provider", "scripted:x"), "--provider: agents.toml describes the services"),
        (("--max-tokens", "5"), "--max-tokens: agents.toml describes the services"),
        (("--agent", "clrk"), "agent: the file has no 'clrk'; did you mean clerk?"),
        (("--engine", "critic"), "--engine: agents.toml has the engines"),
        (("--thread", "t", "--system", "x"), "--system: agent 'clerk' has instructions"),
    ],
)  # fmt: skip
def test_option_that_the_file_stands_for_is_refused(
    invoke: Invoke, arguments: tuple[str, ...], problem: str
) -> None:
    refused = invoke("run", "go", *CONFIG, *arguments)

    assert refused.exit_code == 2
    assert problem in refused.stderr


def test_agent_without_a_file_is_refused(invoke: Invoke) -> None:
    refused = invoke("run", "go", "--provider", "scripted:x", "--agent", "clerk")

    assert refused.exit_code == 2
    assert "pass --config" in refused.stderr
