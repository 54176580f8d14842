"""The gate of a host: permissive only where that is said, by its policy files, else closed."""

from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    AllowAll,
    Ask,
    ConfigError,
    Decision,
    Deny,
    PolicyState,
)
from loopwright.gates import AllOf, DenyAll, PolicyGate, RuleGate, choose_gate

STATE = PolicyState("r", "0#0", "react", 1, 1, 0)
SHARED = """
otherwise = "allow"
[[rules]]
name = "never wipe"
tools = ["wipe"]
then = "deny"
"""
CHAT = """
[[rules]]
name = "look"
tools = ["look", "wipe"]
then = "allow"
[[rules]]
name = "mail"
tools = ["send_*"]
then = "ask"
"""


async def decide(gate: PolicyGate, tool: str) -> Decision:
    return await gate.evaluate(Action(tool, {}, "c", "write"), STATE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shared.toml").write_text(SHARED)
    (tmp_path / "chat.toml").write_text(CHAT)
    return tmp_path


async def test_shared_rules_and_those_of_the_surface_must_both_allow(
    folder: Path,
) -> None:
    gate = choose_gate(folder, "chat", tools=["look", "wipe", "send_mail"])

    assert isinstance(gate, AllOf)
    assert await decide(gate, "look") == Allow()
    assert isinstance(await decide(gate, "send_mail"), Ask)
    assert await decide(gate, "wipe") == Deny("refused by the rule 'never wipe'")
    assert await decide(gate, "other") == Deny("no rule allows it")


async def test_one_file_is_enough_and_without_any_everything_is_denied(
    folder: Path,
) -> None:
    (folder / "shared.toml").unlink()

    assert isinstance(choose_gate(folder, "chat"), RuleGate)
    for closed in (
        choose_gate(folder, "webhook"),
        choose_gate(None, "chat"),
        choose_gate(folder / "missing", "chat"),
    ):
        assert isinstance(closed, DenyAll)
        assert isinstance(await decide(closed, "look"), Deny)


@pytest.mark.parametrize("flag", [False, None, "", "yes", 1, "true", object()])
def test_nothing_but_the_flag_itself_is_permissive(folder: Path, flag: Any) -> None:
    assert not isinstance(choose_gate(None, "chat", permissive=flag), AllowAll)
    assert isinstance(choose_gate(None, "chat", permissive=True), AllowAll)


@pytest.mark.parametrize(
    "surface", ["", "shared", "../chat", "Chat", "a/b", "a.toml", "-x"]
)
def test_a_surface_that_is_no_name_is_refused(folder: Path, surface: str) -> None:
    with pytest.raises(ConfigError, match="surface: must be a name"):
        choose_gate(folder, surface)


def test_a_bad_file_or_two_of_one_name_or_an_unknown_tool_is_an_error(
    folder: Path,
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"rule 'look': tools: there is no tool 'wipe'; did you mean 'wipes'\?",
    ):
        RuleGate.from_file(folder / "chat.toml").check_tools(["look", "wipes"])
    with pytest.raises(ConfigError, match="there is no tool 'wipe'"):
        choose_gate(folder, "chat", tools=["look"])
    (folder / "chat.yaml").write_text("rules: []")
    with pytest.raises(ConfigError, match=r"has chat.toml and chat.yaml; keep one"):
        choose_gate(folder, "chat")
    (folder / "chat.yaml").unlink()
    (folder / "chat.toml").write_text("rules = 1")
    with pytest.raises(ConfigError, match=r"chat.toml"):
        choose_gate(folder, "chat")
    (folder / "chat.toml").unlink()
    (folder / "chat.toml").symlink_to(folder / "gone")
    with pytest.raises(ConfigError, match="cannot be read"):
        choose_gate(folder, "chat")


@pytest.mark.parametrize("name", ["chat.TOML", "Chat.toml", "chat.json", "CHAT.YML"])
def test_a_file_that_would_not_be_read_is_an_error(folder: Path, name: str) -> None:
    (folder / "chat.toml").rename(folder / name)

    with pytest.raises(ConfigError, match=f"has {name}, which is not read; name it"):
        choose_gate(folder, "chat")
    assert isinstance(choose_gate(folder, "webhook"), RuleGate)


@pytest.mark.parametrize("name", ["Chat.toml", "chat.json"])
def test_a_file_beside_the_one_that_is_read_is_an_error(
    folder: Path, name: str
) -> None:
    (folder / name).write_text(CHAT)

    with pytest.raises(ConfigError, match=f"{name}, which is not read; keep that or"):
        choose_gate(folder, "chat")
    (folder / name).unlink()
    (folder / name).symlink_to(folder / "chat.toml")
    assert isinstance(choose_gate(folder, "chat"), AllOf)
