"""`audit`: who allowed what, by which policy version, as text, JSON Lines and OCSF, and whether that was signed."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from loopwright import ReActEngine, Runtime, Suspend, tool
from loopwright.journals import SQLiteJournal
from loopwright.journals.audit import audit
from loopwright.security import Ed25519Signer, KeyFile, PublicKey, SignedHeads
from loopwright.testing import ScriptedProvider, call

from .using import Invoke

SIGNER = Ed25519Signer("key-1", b"1" * 32)


@tool(effect="read")
def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


@tool(effect="destructive")
def wipe(what: str) -> str:
    """Wipe."""
    return f"{what} wiped"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A run that looked, asked whether it may wipe, and was approved by Ada; signed."""
    path = tmp_path / "runs.db"

    async def work() -> None:
        opened = SQLiteJournal(path)
        script = [call("look", what="sky"), call("wipe", what="disk"), "done"]
        runtime = Runtime(
            ScriptedProvider(script),
            tools=[look, wipe],
            journal=opened,
            approver=Suspend(),
        )
        engine = ReActEngine(runtime)
        result = await engine.run("Go.", run_id="r1")
        await runtime.control("r1").approve(result.pending[0].id, by="Ada")
        assert (await engine.resume("r1")).status == "completed"
        SignedHeads(opened, SIGNER, tmp_path / "anchors.jsonl").anchor()
        await opened.close()

    asyncio.run(work())
    KeyFile([PublicKey("key-1", SIGNER.public_key)]).write(tmp_path / "keys.json")
    return path


def test_it_prints_who_allowed_what_by_which_policy(
    journal: Path, invoke: Invoke
) -> None:
    result = invoke("audit", "r1", "--journal", str(journal))

    lines = [line.split("  ")[2:] for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [(line[0], line[1], line[2], line[4], line[5], line[-1]) for line in lines] == [
        ("0#0", "allow", "look", "by policy", "under default-1", "-> ok"),
        ("1#0", "ask", "wipe", "by policy", "under default-1", "-> not run (wipe is destructive: run it?)"),
        ("1#0", "allow", "wipe", "by Ada", "under default-1", "-> ok"),
    ]  # fmt: skip


def test_json_lines_and_ocsf_have_a_line_for_each_decision(
    journal: Path, invoke: Invoke
) -> None:
    records = audit(SQLiteJournal(journal).read("r1"))
    plain = invoke("audit", "--all", "--format", "jsonl", "--journal", str(journal))
    ocsf = invoke("audit", "--all", "--format", "ocsf", "--journal", str(journal))
    events = [json.loads(line) for line in ocsf.stdout.splitlines()]

    assert [json.loads(line) for line in plain.stdout.splitlines()] == [
        record.to_json() for record in records
    ]
    assert [
        (e["class_uid"], e["type_uid"], e["action_id"], e["actor"]["user"]["name"])
        for e in events
    ] == [
        (6003, 600302, 1, "policy"),
        (6003, 600304, 2, "policy"),
        (6003, 600304, 1, "Ada"),
    ]
    required = {"activity_id", "actor", "api", "category_uid", "class_uid", "metadata", "severity_id", "src_endpoint",
                "time", "type_uid"}  # fmt: skip
    assert all(required <= event.keys() for event in events)
    assert [event["unmapped"]["entry_hash"] for event in events] == [
        record.entry_hash for record in records
    ]


def test_it_checks_the_anchors_and_tells_what_was_changed(
    journal: Path, invoke: Invoke
) -> None:
    folder = journal.parent
    arguments = (
        "audit", "--all", "--journal", str(journal), "--anchors", str(folder / "anchors.jsonl"),
        "--keys", str(folder / "keys.json"),
    )  # fmt: skip
    whole = invoke(*arguments)
    with contextlib.closing(sqlite3.connect(journal)) as sql, sql:
        sql.execute("DELETE FROM events WHERE run_id = 'r1'")
        sql.execute("DELETE FROM runs WHERE run_id = 'r1'")
    sql.close()
    gone = invoke(*arguments)

    assert (whole.exit_code, whole.stderr) == (0, "1 anchors name 1 runs\n")
    assert gone.exit_code == 1
    assert (
        "problem: run 'r1': it is gone, and no anchor says that it was deleted"
        in gone.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "pass the id of one run, or --all"),
        (("r1", "--all"), "pass the id of one run, or --all"),
        (("r1", "--format", "xml"), "--format: must be text, jsonl or ocsf, got 'xml'"),
        (("r1", "--anchors", "a"), "--anchors and --keys belong together"),
        (("r1", "--anchors", "missing", "--keys", "missing"), "missing"),
    ],
)
def test_wrong_usage_says_what_to_pass(
    journal: Path, invoke: Invoke, arguments: tuple[str, ...], says: str
) -> None:
    result = invoke("audit", *arguments, "--journal", str(journal))

    assert result.exit_code == 2
    assert says in result.stderr
