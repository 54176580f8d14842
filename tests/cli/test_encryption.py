"""The commands with an encrypted journal: they read it with LOOPWRIGHT_JOURNAL_KEYS, and say so without."""

import json
from pathlib import Path

import pytest

from .using import Invoke

ASK = ("run", "Go.", "--provider", "scripted:capital", "--tools", "scripted_cli:capital", "-q")  # fmt: skip


@pytest.fixture
def keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_KEY", "A" * 43 + "=")
    (folder / "keys.toml").write_text('current = "one"\n[keys]\none = "env:JOURNAL_KEY"\n')  # fmt: skip
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL_KEYS", "keys.toml")


@pytest.mark.usefixtures("keys")
def test_commands_read_an_encrypted_journal_with_the_key_file(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert invoke(*ASK).exit_code == 0
    run_id = json.loads(invoke("runs", "--json").stdout.splitlines()[0])["run_id"]

    assert b"capital" not in (folder / "loopwright.db").read_bytes()
    assert "capital" in invoke("show", run_id).stdout
    assert '"tool":"capital"' in invoke("show", run_id, "--json").stdout.replace(" ", "")  # fmt: skip
    assert "success       100 %" in invoke("metrics").stdout
    monkeypatch.delenv("LOOPWRIGHT_JOURNAL_KEYS")
    assert invoke("runs").exit_code == 0
    assert invoke("verify", run_id).exit_code == 0
    refused = invoke("show", run_id)
    assert refused.exit_code != 0
    assert "LOOPWRIGHT_JOURNAL_KEYS" in refused.stderr


@pytest.mark.usefixtures("keys")
def test_a_key_file_with_a_mistake_is_named(invoke: Invoke, folder: Path) -> None:
    (folder / "keys.toml").write_text('current = "two"\n[keys]\none = "env:JOURNAL_KEY"\n')  # fmt: skip
    refused = invoke("runs")

    assert refused.exit_code == 2
    assert "LOOPWRIGHT_JOURNAL_KEYS: key file 'keys.toml'" in refused.stderr
    assert "there is no key 'two'; there are: one" in refused.stderr


def test_an_empty_variable_does_not_mean_that_nothing_is_encrypted(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPWRIGHT_JOURNAL_KEYS", "")
    refused = invoke(*ASK)

    assert refused.exit_code == 2
    assert "LOOPWRIGHT_JOURNAL_KEYS: is empty" in refused.stderr


@pytest.mark.usefixtures("keys")
def test_a_journal_that_takes_no_codec_is_refused_with_the_variable(
    invoke: Invoke,
) -> None:
    refused = invoke(*ASK, "--journal", "memory")

    assert refused.exit_code == 2
    assert "'memory' takes no codec" in refused.stderr
    assert "LOOPWRIGHT_JOURNAL_KEYS" in refused.stderr
    assert "TypeError" not in refused.stderr
