"""`loopwright run --thread`: each command is a turn of one conversation."""

from pathlib import Path

import pytest

from loopwright.security import Ed25519Signer, KeyFile, PublicKey

from .using import Invoke

WHAT = ("--provider", "scripted:what", "--thread", "ada/1")


def test_a_thread_continues_what_was_said_in_the_commands_before(
    invoke: Invoke,
) -> None:
    assert invoke("run", "I am Ada.", *WHAT, "-q").exit_code == 0
    done = invoke("run", "Who am I?", *WHAT, "-q", "--system", "Be brief.")

    assert "I am Ada." in done.stdout
    assert "Who am I?" in done.stdout
    assert "Be brief." in done.stdout
    # The instructions of one turn are not those of the next.
    again = invoke("run", "And now?", *WHAT)
    assert "Be brief." not in again.stdout.partition("And now?")[2]
    assert "run      t:" in again.stderr
    listed = invoke("runs", "--thread", "ada/1", "--json").stdout.splitlines()
    assert len(listed) == 3


def test_a_thread_whose_turn_waits_says_how_to_resume_it(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    waiting = invoke("run", "Go.", *wipe, "--thread", "ada", "--wait")
    assert waiting.exit_code == 5
    blocked = invoke("run", "Hello?", *wipe, "--thread", "ada", "-q")

    assert (blocked.exit_code, blocked.stdout) == (1, "")
    assert "error: thread 'ada': its last turn is waiting" in blocked.stderr
    assert "loopwright resume t:" in blocked.stderr
    run_id = blocked.stderr.partition("loopwright resume ")[2].split()[0]
    resumed = invoke("resume", run_id, *wipe, "--yes", "-q")
    assert resumed.stdout == "I was told: wiped\n"
    assert invoke("run", "Hello?", *wipe, "--thread", "ada", "-q").exit_code == 0


def test_a_thread_takes_the_next_command_as_an_answer(invoke: Invoke) -> None:
    ask = ("--provider", "scripted:ask", "--tools", "loopwright:ask_user")
    asked = invoke("run", "Go.", *ask, "--thread", "ada", "-q")
    assert asked.exit_code == 5
    assert invoke("run", "Blue.", *ask, "--thread", "ada", "-q").exit_code == 0
    assert len(invoke("runs", "--thread", "ada", "--json").stdout.splitlines()) == 1


def test_a_thread_names_its_turns_itself(invoke: Invoke) -> None:
    done = invoke("run", "Hi", *WHAT, "--run-id", "r1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: --run-id: a turn of a thread gets its id by itself" in done.stderr
    empty = invoke("run", "Hi", "--provider", "scripted:what", "--thread", "")
    assert empty.exit_code == 2
    assert "error: id: must be a text, got ''" in empty.stderr


def test_a_principal_starts_a_run_and_another_approves_a_call(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    started = ("--run-id", "r", "--wait", "--principal", "ann@acme:buyer")
    assert invoke("run", "Go.", *wipe, *started).exit_code == 5
    wrong = invoke("approve", "r", "0#0", "--principal", "@acme")
    assert (wrong.exit_code, "principal: must be like" in wrong.stderr) == (2, True)
    given = invoke("approve", "r", "0#0", "--principal", "bob@acme:manager")
    assert given.exit_code == 0
    assert invoke("resume", "r", *wipe, "--wait", "-q").exit_code == 0

    assert '"principal":{"id":"bob","tenant":"acme"' in invoke(
        "show", "r", "--json"
    ).stdout.replace(" ", "")
    assert len(invoke("runs", "--tenant", "acme", "--json").stdout.splitlines()) == 1
    assert invoke("runs", "--tenant", "other", "--json").stdout == ""


def test_a_run_takes_the_commands_that_are_signed_by_a_key(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    signer, private_key = Ed25519Signer.generate("desk")
    (tmp_path / "key").write_text(private_key)
    KeyFile([PublicKey("desk", signer.public_key)]).write(tmp_path / "keys.json")
    monkeypatch.setenv("LOOPWRIGHT_COMMAND_KEYS", str(tmp_path / "keys.json"))
    assert invoke("run", "Go.", *wipe, "--run-id", "r", "--wait").exit_code == 5
    invoke("approve", "r", "0#0", "--by", "Eve")
    assert invoke("resume", "r", *wipe, "--wait", "-q").exit_code == 5

    monkeypatch.setenv("LOOPWRIGHT_SIGNING_KEY", f"desk:{tmp_path / 'key'}")
    assert invoke("approve", "r", "0#0", "--by", "Ada").exit_code == 0
    assert invoke("resume", "r", *wipe, "--wait", "-q").exit_code == 0
    monkeypatch.setenv("LOOPWRIGHT_SIGNING_KEY", "desk:nowhere")
    wrong = invoke("approve", "r", "0#0")
    assert (wrong.exit_code, "must be KEY_ID:FILE" in wrong.stderr) == (2, True)


def test_a_value_is_endorsed_for_a_run(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    assert invoke("run", "Go.", *wipe, "--run-id", "r", "--wait").exit_code == 5
    assert invoke("endorse", "r", "bob@example.com").exit_code == 2
    given = ("bob@example.com", "--reason", "he called", "--by", "Ada")
    assert invoke("endorse", "r", *given).exit_code == 0
    assert invoke("resume", "r", *wipe, "--wait", "-q").exit_code == 5
    shown = invoke("show", "r").stdout
    assert "endorse" in shown
    assert "he called" in shown
