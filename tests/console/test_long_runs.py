"""Runs of thousands of entries on the console: what is shown before all of them are read, and what stays hidden."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from console_server import client_of
from function_engine import FunctionEngine
from loopwright import Limits, ReActEngine, Run, Runtime, tool
from loopwright.console import Console
from loopwright.console.digests import BATCH, Digests
from loopwright.events import Declassified, Entry
from loopwright.journals import SQLiteJournal
from loopwright.security import AESCodec
from loopwright.testing import ScriptedProvider, call
from waiting import eventually

MANY = BATCH + 1000
UNBOUNDED = Limits(max_iterations=None, max_llm_calls=None, timeout=None)


@tool(effect="read", label="secret")
async def read_key() -> str:
    """Read a key."""
    return "the key is hunter2"


def build_runtime(path: Path, *script: Any, **more: Any) -> Runtime:
    journal = SQLiteJournal(path, **more)
    return Runtime(ScriptedProvider(list(script)), tools=[read_key], journal=journal, limits=UNBOUNDED)  # fmt: skip


async def run_long(runtime: Runtime, *, is_secret: bool = False) -> None:
    """Run an engine that notes many facts after its first step."""

    async def solve(run: Run) -> str:
        proposal = await run.reason(run.conversation)
        for number in range(MANY):
            run.note({"number": number})
            if is_secret and number == 100:  # neither of the first nor of the newest
                await run.act(await run.gate(proposal))
        return "done"

    await FunctionEngine(runtime, body=solve).run("Count.", run_id="long")


async def test_a_long_run_that_is_damaged_in_the_middle_is_said_to_be(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Hello.")
    await run_long(runtime)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as file, file:
        file.execute("UPDATE events SET body = x'7b' WHERE seq = 1000")
    with client_of(Console(runtime.journal, user="Ada")) as client:

        def read() -> httpx.Response:
            return client.get("/api/run?run=long")

        assert read().json()["unread"] > 0
        await eventually(lambda: read().status_code == 503)
        [listed] = client.get("/api/runs").json()["runs"]

    assert "entry 1000 was changed" in listed["damage"]


async def test_a_long_run_is_shown_before_all_of_it_is_read(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Hello.")
    await run_long(runtime)
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [listed] = client.get("/api/runs").json()["runs"]
    with client_of(Console(runtime.journal, user="Ada")) as client:
        first = client.get("/api/run?run=long").json()
        last = first["entries"]
        address = f"/api/entries?run=long&after={last - 10}"
        rows = client.get(address).json()["rows"]
        shown = first
        while shown["unread"]:
            shown = client.get("/api/run?run=long").json()

    assert min(first["unread"], listed["unread"]) > BATCH
    assert (first["task"], first["answer"]) == ("Count.", "done")
    assert "still being read" in first["reasons"]["retry"]
    assert "nothing to retry" in shown["reasons"]["retry"]
    assert [row["seq"] for row in rows] == list(range(last - 9, last + 1))
    assert (shown["task"], shown["answer"], shown["seq"]) == ("Count.", "done", last)
    assert (shown["facts"], shown["total"]["calls"]) == (first["facts"], 1)


@pytest.mark.parametrize("has_codec", [False, True], ids=["plain", "encoded"])
async def test_what_a_long_run_has_read_is_secret_at_the_first_look(
    tmp_path: Path, has_codec: bool
) -> None:
    codec = AESCodec({"k": bytes(32)}, current="k") if has_codec else None
    runtime = build_runtime(tmp_path / "runs.db", call("read_key"), codec=codec)
    await run_long(runtime, is_secret=True)
    with client_of(Console(runtime.journal, user="Ada")) as client:
        shown = client.get("/api/run?run=long").json()
        rows = client.get("/api/entries?run=long&after=1500&limit=500").json()["rows"]
        [listed] = client.get("/api/runs").json()["runs"]
        entry = client.get("/api/entry?run=long&seq=2000")

    assert len(rows) == 500
    assert all(row["hidden"] and not row["lines"] for row in rows)
    assert (shown["hidden"], shown["answer"], listed["task"]) == (True, None, "")
    assert (shown["unread"] == 0) is has_codec, "encoded entries cannot be searched"
    assert (entry.status_code, "secret" in entry.json()["error"]) == (409, True)


async def test_entries_are_found_by_kind_and_by_a_text_of_their_bodies(
    tmp_path: Path,
) -> None:
    large = "needle" * 20_000  # stored beside the entries, since it is large
    runtime = build_runtime(tmp_path / "runs.db", large, "x")
    await ReActEngine(runtime).run("Say it.", run_id="one")
    await ReActEngine(runtime).run("needle", run_id="two")
    journal = runtime.journal
    assert isinstance(journal, SQLiteJournal)

    def find(run_id: str, text: bytes) -> list[int] | None:
        return journal.search.find(run_id, text, Declassified.kind)

    having = [e.seq for e in journal.read("one") if b"needle" in e.payload]
    finished = [e.seq for e in journal.read("one") if e.kind == "run_finished"]

    assert find("one", b"needle") == having != []
    assert journal.search.find("one", b"no such text", "run_finished") == finished
    assert (find("two", b"no such text"), find("none", b"needle")) == ([], [])


async def test_a_state_of_a_run_that_was_returned_does_not_change(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Hi.", "Hello.")
    first, second = await record(runtime, "one"), await record(runtime, "two")
    stored: list[Entry] = first[:3]

    def read_stored(run: str, after: int, limit: int) -> list[Entry]:
        return stored[after:][:limit]

    digests = Digests(runtime.journal, read_stored)
    early = digests.read("one")
    before = json.dumps(early.to_json())
    stored = first
    late = digests.read("one", first[-1].hash)
    stored = []
    kept = digests.read("one", first[-1].hash)
    stored = second
    other = digests.read("one")

    assert json.dumps(early.to_json()) == before
    assert (early.answer, late.answer, kept is late) == ("", "Hi.", True)
    assert (other.answer, other.seq) == ("Hello.", len(second)), "another run, of that name"  # fmt: skip


async def record(runtime: Runtime, run_id: str) -> Any:
    await ReActEngine(runtime).run("Greet.", run_id=run_id)
    return runtime.journal.read(run_id)
