"""Approvals for a whole thread on the console: given, listed, used and revoked, by whom, and what of them is hidden."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from console_server import client_of
from loopwright import Runtime, Suspend, tool
from loopwright.agents import Thread
from loopwright.console import Console
from loopwright.gates import ApprovalGate
from loopwright.journals import SQLiteJournal
from loopwright.principals import Principal
from loopwright.testing import Line, ScriptedProvider, call

BOB = Principal("bob", "acme", ("operate",))
ANN = Principal("ann", "acme", ("approve",))
EVE = Principal("eve", "umbrella", ("admin",))
MAIL: list[Line] = [call("send", to="ada@x.org", text="hello"), "Sent."]


@tool(outbound=True, destinations=("to",), content=("text",))
def send(to: str, text: str) -> str:
    """Send a mail."""
    return "sent"


@tool(effect="read", label="secret")
def read_key() -> str:
    """Read a key."""
    return "the key is hunter2"


def open_thread(path: Path, script: list[Line]) -> tuple[Runtime, Thread[Any]]:
    runtime = Runtime(
        ScriptedProvider(script), tools=[send, read_key], gate=ApprovalGate(["send"]), approver=Suspend(),
        journal=SQLiteJournal(path / "runs.db"),
    )  # fmt: skip
    return runtime, runtime.agent("clerk").thread("desk")


@contextmanager
def asking(runtime: Runtime, user: str | Principal) -> Generator[httpx.Client]:
    with client_of(Console(runtime.journal, user=lambda request: user)) as client:
        yield client


def approve(client: httpx.Client, **more: Any) -> httpx.Response:
    [question] = client.get("/api/questions").json()["questions"]
    assert question["thread"] == "desk"
    asked = {"run": question["run_id"], "question": question["id"]}
    return client.post("/api/control", json={"action": "approve", **asked, **more})


def read_held(client: httpx.Client) -> list[dict[str, Any]]:
    found = client.get("/api/approvals?thread=desk")
    assert found.status_code == 200
    approvals: list[dict[str, Any]] = found.json()["approvals"]
    return approvals


def revoke(client: httpx.Client, approval: str, **more: Any) -> httpx.Response:
    given = {"thread": "desk", "approval": approval, **more}
    return client.post("/api/revoke", json=given)


async def test_a_call_is_approved_for_the_thread_until_that_is_revoked(
    tmp_path: Path,
) -> None:
    runtime, thread = open_thread(tmp_path, MAIL * 3)
    waiting = await thread.run("Write to Ada.", principal=BOB)
    with asking(runtime, ANN) as client:
        assert approve(client, seconds=3600, scope="thread").status_code == 200
        await thread.resume()
        again = await thread.run("Once more.", principal=BOB)
        [held] = read_held(client)
        done = revoke(client, held["id"], reason="she left")
        third = await thread.run("And again.", principal=BOB)
        gone = revoke(client, held["id"])

        assert again.answer == "Sent."
        assert held.pop("until") > 0
        assert held == {
            "id": f"{waiting.run_id}#1", "run_id": waiting.run_id, "tool": "send", "by": "ann@acme",
            "arguments": {"to": "ada@x.org", "text": "hello"}, "hidden": False, "problem": "",
        }  # fmt: skip
        assert (done.status_code, third.status, read_held(client)) == (200, "waiting", [])  # fmt: skip
        assert (gone.status_code, "has no approval" in gone.text) == (409, True)
    denials = [one.body for one in runtime.journal.inbox(waiting.run_id)][1:]
    assert [(one["by"], one["reason"]) for one in denials] == [("ann", "she left")]
    await runtime.aclose()


async def test_approvals_of_a_thread_are_for_those_who_may_approve_in_its_tenant(
    tmp_path: Path,
) -> None:
    runtime, thread = open_thread(tmp_path, MAIL)
    await thread.run("Write to Ada.", principal=BOB)
    wide = {"seconds": 60, "scope": "thread"}
    with asking(runtime, BOB) as client:
        refused = approve(client, **wide).status_code
    with asking(runtime, ANN) as client:
        wrong = [approve(client, **one) for one in ({"scope": "thread"}, {"seconds": 60, "scope": "all"})]  # fmt: skip
        approve(client, **wide)
        await thread.resume()
        [held] = read_held(client)
    with asking(runtime, BOB) as client:
        [seen] = read_held(client)
        unnamed = client.get("/api/approvals")
        by_bob = revoke(client, held["id"])
    with asking(runtime, EVE) as client:
        hidden, by_eve = read_held(client), revoke(client, held["id"])
        nameless = client.post("/api/revoke", json={"approval": held["id"]})

    assert refused == by_bob.status_code == 403
    assert (unnamed.status_code, "name the thread" in unnamed.text) == (409, True)
    assert [one.status_code for one in wrong] == [409, 409]
    assert seen == {**held, "problem": seen["problem"]}
    assert "needs the right to 'approve'" in seen["problem"]
    assert (hidden, by_eve.status_code, nameless.status_code) == ([], 409, 409)
    assert len(await thread.approvals()) == 1
    await runtime.aclose()


@pytest.mark.parametrize("user", ["Ada", Principal("root", "", ("admin",))])
async def test_arguments_of_a_secret_run_are_shown_once_they_are_revealed(
    tmp_path: Path, user: str | Principal
) -> None:
    script: list[Line] = [call("read_key"), call("send", to="ada@x.org", text="hunter2"), "Sent."]  # fmt: skip
    runtime, thread = open_thread(tmp_path, script)
    waiting = await thread.run("Send the key.")
    with asking(runtime, user) as client:
        approve(client, seconds=60, scope="thread")
        await thread.resume()
        [before] = read_held(client)
        client.post("/api/reveal", json={"run": waiting.run_id})
        [after] = read_held(client)
    with asking(runtime, ANN) as client:
        assert read_held(client) == [], "it is of no tenant, and she is of one"
        assert revoke(client, after["id"]).status_code == 409

    assert (before["hidden"], before["arguments"]) == (True, {})
    assert after["arguments"] == {"to": "ada@x.org", "text": "hunter2"}
    await runtime.aclose()
