"""Secrets by name are read when they are asked for, and stay out of journals, errors and representations."""

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, MemoryJournal, ReActEngine, Runtime, tool
from loopwright.errors import ProviderError
from loopwright.journals import SQLiteJournal
from loopwright.security import REDACTED, Redactor, SecretStore
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import ToolContext

SECRET = "swordfish of the north"


def test_each_kind_of_source_is_read_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("from a file\n")
    path.chmod(0o600)
    monkeypatch.setenv("THE_KEY", "from a variable")
    kept = {("my/service", "ada"): "from a keyring"}
    fake = types.SimpleNamespace(get_password=lambda *place: kept.get(place))
    monkeypatch.setitem(sys.modules, "keyring", fake)
    values = iter(["first", "second"])
    store = SecretStore(
        {
            "variable": "env:THE_KEY",
            "file": f"file:{path}",
            "keyring": "keyring:my/service/ada",
            "manager": lambda: next(values),
        }
    )

    assert store.get("variable") == "from a variable"
    assert store.get("file") == "from a file"
    assert store.get("keyring") == "from a keyring"
    assert [store.get("manager"), store.get("manager")] == ["first", "second"]
    monkeypatch.setenv("THE_KEY", "another")
    assert store.get("variable") == "another"


async def test_a_secret_that_a_tool_uses_and_says_is_in_no_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", SECRET)
    store, used = SecretStore({"key": "env:THE_KEY"}), list[str]()

    @tool(effect="read", secrets=store)
    def look(what: str) -> str:
        """Look."""
        used.append(store.get("key"))
        return f"{what} by {store.get('key')}"

    journal = MemoryJournal()
    provider = ScriptedProvider([call("look", what="sky"), "done"])
    result = await ReActEngine(Runtime(provider, tools=[look], journal=journal)).run(
        "Go."
    )
    entries = journal.read(result.run_id)

    assert used == [SECRET]
    assert SECRET not in str([entry.body for entry in entries])
    assert REDACTED.encode() in b"".join(entry.body for entry in entries)
    assert Redactor(store).redact_text(f"It is {SECRET}.") == f"It is {REDACTED}."
    assert SECRET not in repr(store)


@pytest.mark.parametrize(
    "source",
    ["plain text", "env:", "vault:x", "", ":x", "sk-thesecretitself", "ada:hunter2"],
)
def test_a_source_of_an_unknown_kind_is_refused_when_it_is_given(source: str) -> None:
    with pytest.raises(
        ConfigError, match=r"secrets: 'key': the source must be env:NAME"
    ) as caught:
        SecretStore({"key": source})
    for part in filter(None, source.removeprefix("env").split(":")):
        assert len(part) == 1 or part not in str(caught.value)


def test_a_secret_that_is_not_there_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable, pipe = tmp_path / "readable", tmp_path / "pipe"
    readable.write_text(SECRET)
    readable.chmod(0o644)
    os.mkfifo(pipe)
    monkeypatch.delenv("THE_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)
    nothing: Any = lambda: None  # noqa: E731 - what a manager may return
    cases: dict[str, tuple[Any, str]] = {
        "variable": ("env:THE_KEY", "the variable THE_KEY is not set; set it"),
        "missing": (f"file:{tmp_path / 'missing'}", "No such file or directory"),
        "readable": (f"file:{readable}", "every user can read .*: chmod o-r"),
        "pipe": (f"file:{pipe}", "must be a regular file"),
        "keyring": ("keyring:s/u", r"pip install 'loopwright\[keyring\]'"),
        "manager": (nothing, "its source gave no text"),
    }
    store = SecretStore({name: source for name, (source, _) in cases.items()})
    for name, (_, says) in cases.items():
        with pytest.raises(ConfigError, match=f"secrets: '{name}'.*{says}") as raised:
            store.get(name)
        assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match="there is no 'other'; there are: variable,"):
        store.get("other")


def test_a_tool_asks_the_store_of_its_runtime_at_each_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_KEY", "ghx-1234567890")
    store = SecretStore({"github": "env:THE_KEY"})

    @tool(effect="read")
    def fetch(ctx: ToolContext[None]) -> str:
        """Fetch."""
        return f"fetched with {ctx.secrets.get('github')}"

    model = ScriptedProvider([call("fetch"), "The key is ghx-1234567890."])
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(model, tools=[fetch], journal=journal, secrets=store)
    result = ReActEngine(runtime).run_sync("Use ghx-1234567890.")

    assert result.answer == "The key is [redacted]."
    assert "fetched with [redacted]" in [one.content for one in result.conversation]
    assert not any(b"ghx-12345" in file.read_bytes() for file in tmp_path.iterdir())
    monkeypatch.setenv("THE_KEY", "another")
    assert runtime.secrets.get("github") == "another"


@pytest.mark.parametrize("where", ["result", "error", "undo"])
def test_a_secret_that_was_rotated_is_in_no_file_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    monkeypatch.setenv("THE_KEY", "ghx-1234567890")
    store, told = SecretStore({"github": "env:THE_KEY"}), list[str]()

    def tell(ctx: ToolContext[Any]) -> str:
        [same] = ctx.secrets
        assert same == ctx.secrets.get("github")
        told.append(same)
        return f"fetched with {same}"

    def undo(ctx: ToolContext[Any], result: str) -> None:
        raise ValueError(tell(ctx))

    @tool(effect="write", compensate=undo)
    def fetch(ctx: ToolContext[None]) -> str:
        """Fetch."""
        if where == "error":
            raise ValueError(tell(ctx))
        return tell(ctx) if where == "result" else "fetched"

    last = ProviderError("no", status=401) if where == "undo" else "It is rotated-0987."
    model = ScriptedProvider([call("fetch"), last])
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(model, tools=[fetch], journal=journal, secrets=store)
    monkeypatch.setenv("THE_KEY", "rotated-0987")
    result = ReActEngine(runtime).run_sync("Go.", saga=True)

    assert set(told) == {"rotated-0987"}
    assert not any(b"rotated" in file.read_bytes() for file in tmp_path.iterdir())
    assert where == "undo" or result.answer == "It is [redacted]."


def test_a_runtime_names_a_secret_that_is_not_there_when_it_is_made() -> None:
    store = SecretStore({"github": "env:NOT_THERE"})
    wrong: Any = {"github": "env:THE_KEY"}

    with pytest.raises(ConfigError, match="secrets: 'github': the variable NOT_THERE"):
        Runtime(ScriptedProvider([]), secrets=store)
    with pytest.raises(ConfigError, match="secrets: must be a SecretStore"):
        Runtime(ScriptedProvider([]), secrets=wrong)
