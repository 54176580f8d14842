"""The tool `memory`: its six commands, below one directory, and not for what is more sensitive than its notes."""

import os
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    ConfigError,
    MemoryJournal,
    ReActEngine,
    Runtime,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.labels import Label
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.toolboxes.memory import memory


def context(label: Label = "normal") -> ToolContext[None]:
    return ToolContext("r", "0#0", "r:0#0", None, None, label=label)


class Notes:
    """Calls the tool as a model does."""

    def __init__(self, root: Path, **options: Any) -> None:
        [self.tool] = memory(root, **options)

    def __call__(self, command: str, path: str = "/memories", **options: Any) -> str:
        label = options.pop("run_label", "normal")
        text: str = self.tool.function(
            context(label), command=command, path=path, **options
        )
        return text

    def refusal(self, *arguments: Any, **options: Any) -> str:
        with pytest.raises(ToolError) as raised:
            self(*arguments, **options)
        return str(raised.value)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """Notes in a folder beside a secret."""
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("the secret of the neighbours")
    return Notes(tmp_path / "root")


def test_six_commands_keep_notes(notes: Notes) -> None:
    assert notes("view") == "[there are no notes yet]"
    assert (
        notes("create", "/memories/people/ada.md", file_text="tea\nviolin\n")
        == "written"
    )
    assert notes("view") == "/memories/people/\n/memories/people/ada.md"
    assert notes("view", "/memories/people") == "/memories/people/ada.md"
    notes("str_replace", "/memories/people/ada.md", old_str="tea", new_str="green tea")
    notes(
        "insert", "/memories/people/ada.md", insert_line=1, insert_text="nuts: allergic"
    )
    notes("rename", old_path="/memories/people/ada.md", new_path="/memories/ada.md")
    assert notes("view", "/memories/ada.md") == (
        "     1\tgreen tea\n     2\tnuts: allergic\n     3\tviolin\n     4\t"
    )
    assert (
        notes("view", "ada.md", view_range=(2, 3))
        == "     2\tnuts: allergic\n     3\tviolin"
    )
    assert notes("delete", "/memories/ada.md") == "deleted"
    assert notes("view") == "/memories/people/"


def test_a_line_is_inserted_behind_a_last_one_without_its_end(notes: Notes) -> None:
    notes("create", "a", file_text="one")
    notes("insert", "a", insert_text="two")
    notes("insert", "a", insert_line=0, insert_text="zero\n")

    assert notes("view", "a") == "     1\tzero\n     2\tone\n     3\ttwo\n     4\t"


@pytest.mark.parametrize(
    ("command", "options", "problem"),
    [
        ("view", {"path": "/memories/none"}, "does not exist: list the folder"),
        ("view", {"path": "/memories/../secret.txt"}, "leaves the folder"),
        ("view", {"path": "../secret.txt"}, "leaves the folder"),
        ("view", {"path": "/etc/passwd"}, "does not exist"),
        ("view", {"path": "/memoriesX"}, "does not exist"),
        ("create", {"path": "/memories/../x", "file_text": "x"}, "leaves the folder"),
        ("create", {"path": "a"}, "file_text: is needed"),
        ("create", {"path": "big", "file_text": "x" * 200}, "at most 100 are kept"),
        ("create", {"path": "/memories", "file_text": "x"}, "Name a file"),
        ("str_replace", {"path": "kept", "old_str": "z", "new_str": ""}, "occurs 0 times"),
        ("str_replace", {"path": "kept", "old_str": "a", "new_str": ""}, "occurs 2 times"),
        ("str_replace", {"path": "kept", "old_str": "", "new_str": ""}, "occurs 0 times"),
        ("insert", {"path": "kept", "insert_line": 9, "insert_text": "x"}, "has 1 lines"),
        ("rename", {"old_path": "kept", "new_path": "other"}, "exists already"),
        ("rename", {"old_path": "kept", "new_path": "../out"}, "leaves the folder"),
        ("rename", {"old_path": "kept"}, "new_path: is needed"),
        ("delete", {"path": "/memories/none"}, "does not exist"),
        ("delete", {"path": "link"}, "is a link"),
        ("view", {"path": "link"}, "is a link"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(
    command: str, options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("the secret of the neighbours")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "kept").write_text("a a\n")
    (root / "other").write_text("other")

    assert problem in Notes(root, max_bytes=100).refusal(command, **options)
    assert (root / "kept").read_text() == "a a\n"
    assert (root / "other").read_text() == "other"
    assert (tmp_path / "secret.txt").read_text() == "the secret of the neighbours"


async def test_a_run_that_read_a_secret_reads_notes_and_writes_none(
    tmp_path: Path,
) -> None:
    @tool(effect="read", label="secret")
    async def vault() -> str:
        """Read the vault."""
        return "1815"

    model = ScriptedProvider(
        [
            call("memory", command="create", path="/memories/a", file_text="before"),
            call("vault"),
            call("memory", command="create", path="/memories/b", file_text="1815"),
            call("memory", command="view", path="/memories/a"),
            "Done.",
        ]
    )
    await ReActEngine(Runtime(model, tools=[vault, *memory(tmp_path)])).run("Go.")
    results = [
        m.content for m in model.requests[-1].conversation.messages if m.role == "tool"
    ]

    assert os.listdir(tmp_path) == ["a"]
    assert "has read something secret, and notes here are normal" in results[2]
    assert "before" in results[3]


def test_secret_notes_take_what_is_as_sensitive(tmp_path: Path) -> None:
    notes = Notes(tmp_path, label="secret")

    assert notes("create", "a", file_text="1815", run_label="secret") == "written"
    assert notes("create", "b", file_text="x", run_label="normal") == "written"
    with pytest.raises(ConfigError, match="label"):
        memory(tmp_path, label="top")  # type: ignore[arg-type]


async def test_nothing_is_appended_twice_wherever_the_run_was_cut(
    tmp_path: Path,
) -> None:
    script = (
        call("memory", command="insert", path="/memories/log", insert_text="once"),
        "Done.",
    )
    (tmp_path / "log").write_text("")
    tools = memory(tmp_path)
    first = Runtime(ScriptedProvider(script), tools=tools, journal=MemoryJournal())
    await ReActEngine(first).run("Go.", run_id="r")
    entries = first.journal.read("r")
    started = next(e.seq for e in entries if e.kind == "tool_started")

    for keep in range(started, len(entries)):
        replies = sum(e.kind == "model_replied" for e in entries[:keep])
        journal = crashed(entries, keep)
        again = Runtime(
            ScriptedProvider(script[replies:]), tools=tools, journal=journal
        )
        assert (await ReActEngine(again).resume("r")).answer == "Done."

    assert (tmp_path / "log").read_text() == "once\n"


def test_it_is_found_by_name(tmp_path: Path) -> None:
    [found] = build_tools(f"memory:{tmp_path}")

    assert (found.name, found.effect, found.trusted) == ("memory", "write", False)
