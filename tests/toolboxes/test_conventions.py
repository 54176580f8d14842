"""The rules of a project: the nearest file first, up to the root, each text once."""

from pathlib import Path

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, ToolError
from loopwright.knowledge import KnowledgeBridge, MemoryKnowledge
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.conventions import Conventions


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project in a directory that has rules too, which are not the project's."""
    made = tmp_path / "project"
    (made / "src" / "api").mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("Rules of others.")
    (made / "AGENTS.md").write_text("Write tests.\n")
    (made / "CONVENTIONS.md").write_text("Short lines.")
    (made / "src" / "AGENTS.md").write_text("Write tests.")
    (made / "src" / "api" / "AGENTS.md").write_text("Version every route.")
    return made


def found(root: Path, directory: str) -> list[tuple[str, str]]:
    return [(rule.topic, rule.text) for rule in Conventions(root).find(directory)]


def test_the_nearest_rules_come_first_and_each_text_once(root: Path) -> None:
    assert found(root, "src/api") == [
        ("src/api/AGENTS.md", "Version every route."),
        ("src/AGENTS.md", "Write tests."),
        ("CONVENTIONS.md", "Short lines."),
    ]
    assert found(root, ".") == [
        ("AGENTS.md", "Write tests."),
        ("CONVENTIONS.md", "Short lines."),
    ]


def test_a_file_or_a_directory_that_is_not_there_has_the_rules_around_it(
    root: Path,
) -> None:
    assert found(root, "src/api/new/route.py") == found(root, "src/api")


def test_no_path_and_no_link_leads_out_of_the_root(root: Path) -> None:
    (root / "src" / "api" / "AGENTS.md").unlink()
    (root / "src" / "api" / "AGENTS.md").symlink_to(root.parent / "AGENTS.md")
    (root / "away").symlink_to(root.parent)

    assert "Rules of others." not in str(found(root, "src/api") + found(root, "away"))
    for path in ("..", "/etc", "src/../../"):
        with pytest.raises(ToolError):
            found(root, path)


def test_names_that_are_paths_and_a_missing_root_are_refused(root: Path) -> None:
    for name in ("", "..", "a/b"):
        with pytest.raises(ConfigError, match="names"):
            Conventions(root, [name])
    with pytest.raises(ConfigError, match="root"):
        Conventions(root / "none")


async def test_a_model_recalls_the_rules_for_a_directory(root: Path) -> None:
    bridge = KnowledgeBridge(MemoryKnowledge(), conventions=Conventions(root))
    asked = call(
        "recall_knowledge", query="rules", scope="conventions", directory="src/api"
    )
    outside = call(
        "recall_knowledge", query="rules", scope="conventions", directory=".."
    )
    model = ScriptedProvider([asked, outside, "Done."])
    await ReActEngine(Runtime(model, knowledge=bridge)).run("Go.", tags={"user": "ada"})
    results = [
        m.content for m in model.requests[-1].conversation.messages if m.role == "tool"
    ]

    assert "Version every route." in results[0]
    assert results[0].index("Version") < results[0].index("Write tests.")
    assert "leaves the folder" in results[1]
