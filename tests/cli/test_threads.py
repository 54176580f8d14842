"""`loopwright run --thread`: each command is a turn of one conversation."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from interruptions import cancel_host
from loopwright import ReActEngine, Runtime, Suspend
from loopwright._kernel.durability.transitions import park
from loopwright.agents.agent import AgentDefinition, define_agent
from loopwright.clock import SystemClock
from loopwright.events import RunParked
from loopwright.journals import SQLiteJournal
from loopwright.security import Ed25519Signer, KeyFile, PublicKey
from loopwright.testing import ScriptedProvider

from .scripted_cli import wipe
from .using import Invoke

TALK = (
    "--provider",
    "scripted:talk",
    "--tools",
    "scripted_cli:wipe",
    "--thread",
    "ada",
)
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


def test_a_thread_whose_turn_is_parked_says_how_to_end_it(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    invoke("run", "Go.", *wipe, "--thread", "ada", "--wait")
    [row] = map(json.loads, invoke("runs", "--json").stdout.splitlines())
    journal, run_id = SQLiteJournal("loopwright.db"), row["run_id"]
    asyncio.run(park(journal, SystemClock(), run_id, RunParked("4 deaths", 4)))
    blocked = invoke("run", "Hello?", *wipe, "--thread", "ada", "-q")

    assert "its last turn is parked: find the cause" in blocked.stderr
    assert f"or end it with `loopwright close {run_id}`" in blocked.stderr
    shown = invoke("chat", *wipe[1:], "--thread", "ada").stdout
    assert f"[parked: 4 deaths: `loopwright retry {run_id}` continues it, " in shown
    assert invoke("close", run_id, "--reason", "given up").exit_code == 0
    assert invoke("run", "Hello?", *wipe, "--thread", "ada", "--yes").exit_code == 0


def test_a_chat_uses_a_decision_that_was_sent_before_it_began(invoke: Invoke) -> None:
    wipe = ("--provider", "scripted:wipe", "--tools", "scripted_cli:wipe")
    invoke("run", "Go.", *wipe, "--thread", "ada", "--wait")
    asked = json.loads(invoke("approvals", "--json").stdout)
    for_thread = ("--for", "3600", "--scope", "thread", "--by", "Ada")
    invoke("approve", asked["run_id"], asked["id"], *for_thread)
    shown = invoke("chat", *wipe[1:], "--thread", "ada").stdout

    assert "y approves it" not in shown
    assert "I was told: wiped" in shown
    assert "by Ada" in invoke("approvals", "--thread", "ada").stdout


def test_a_thread_of_an_agent_says_how_a_run_without_one_continues_it(
    invoke: Invoke,
) -> None:
    talk = ("--provider", "scripted:talk")
    runtime = Runtime(ScriptedProvider(["Hi."]), journal=SQLiteJournal("loopwright.db"))
    runtime.agent("support").thread("ada").run_sync("Hello.")
    refused = invoke("run", "Hello?", *talk, "--thread", "ada")

    assert refused.exit_code == 2
    assert "is of agent 'support', got a run without an agent" in refused.stderr
    assert "loopwright chat package.module:agent --thread ada" in refused.stderr


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


def approve_wipe(invoke: Invoke, *options: str) -> str:
    """Approve the first turn's call for the thread, and return the turn."""
    assert invoke("run", "wipe", *TALK, "--wait", "-q", *options).exit_code == 5
    [waiting] = invoke("approvals", "--json").stdout.splitlines()
    asked: dict[str, Any] = json.loads(waiting)
    how = ("--for", "3600", "--scope", "thread", "--principal", "ann@acme:manager")
    assert invoke("approve", asked["run_id"], asked["id"], *how).exit_code == 0
    done = invoke("resume", asked["run_id"], *TALK[:4], "--wait", "-q")
    assert done.stdout == "the tool said wiped; you said wipe\n"
    return str(asked["run_id"])


def test_an_approval_for_a_thread_is_given_listed_used_and_revoked(
    invoke: Invoke,
) -> None:
    run_id = approve_wipe(invoke, "--principal", "bob@acme")
    again = invoke("run", "wipe", *TALK, "--wait", "-q", "--principal", "bob@acme")
    listed = invoke("approvals", "--thread", "ada")
    [line] = invoke("approvals", "--thread", "ada", "--json").stdout.splitlines()
    other = ("--principal", "eve@zen")
    hidden = invoke("approvals", "--thread", "ada", *other)
    refused = invoke("revoke", "ada", f"{run_id}#1", *other)
    revoked = invoke("revoke", "ada", f"{run_id}#1", "--by", "Bob", "--reason", "over")

    assert again.stdout == "the tool said wiped; you said wipe | wipe\n"
    assert listed.stdout.startswith(f"{run_id}#1  by ann@acme\n  wipe({{")
    assert f"revoke it: loopwright revoke ada '{run_id}#1'" in listed.stdout
    told = json.loads(line)
    assert told.pop("until") - told.pop("at") == 3600
    assert told == {
        "id": f"{run_id}#1", "tool": "wipe", "arguments": {"path": "/tmp/x"}, "policy_version": "default-1",
        "by": {"id": "ann", "tenant": "acme", "roles": ["manager"]},
    }  # fmt: skip
    assert (hidden.stdout, refused.exit_code) == ("", 2)
    assert "has no approval" in refused.stderr
    assert (revoked.exit_code, invoke("approvals", "--thread", "ada").stdout) == (0, "")
    third = invoke("run", "wipe", *TALK, "--wait", "-q", "--principal", "bob@acme")
    assert third.exit_code == 5


def test_a_turn_that_is_resumed_by_hand_uses_the_approvals_of_its_thread(
    invoke: Invoke,
) -> None:
    approve_wipe(invoke)
    turn, options = start_turn_and_suspend()
    done = invoke("resume", turn, *options, "--wait", "-q")

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "the tool said wiped; you said wipe | wipe\n"


def start_turn_and_suspend() -> tuple[str, tuple[str, ...]]:
    """Begin a turn in a process that stops before its model has answered."""
    journal = SQLiteJournal("loopwright.db")
    runtime = Runtime(
        ScriptedProvider([cancel_host]), tools=[wipe], journal=journal, approver=Suspend()
    )  # fmt: skip
    nameless = AgentDefinition("")
    agent = define_agent(runtime, ReActEngine(runtime), nameless, {})

    async def work() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await agent.thread("ada").run("wipe")
        turn = (await agent.thread("ada").turns())[-1]
        await journal.close()
        return turn.run_id

    return asyncio.run(work()), TALK[:4]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--scope", "thread"), "seconds: an approval for a whole thread ends"),
        (("--scope", "all", "--for", "9"), "Invalid value for '--scope'"),
    ],
)
def test_a_scope_of_an_approval_that_cannot_be_is_refused(
    invoke: Invoke, words: tuple[str, ...], error: str
) -> None:
    assert invoke("run", "wipe", *TALK, "--wait", "-q").exit_code == 5
    asked = json.loads(invoke("approvals", "--json").stdout)
    done = invoke("approve", asked["run_id"], asked["id"], *words)

    assert (done.exit_code, error in done.stderr) == (2, True)


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
