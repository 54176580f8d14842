"""Delete, prune, export, import and back up the runs of a SQLite journal."""

# ruff: noqa: ASYNC240 - the files of a test are small, and its event loop has nothing else to do

import asyncio
import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import random
import resource
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from journal_entries import LIVE, ME, header, write
from loopwright import Limits, ReActEngine, Runtime, ToolContext, ask_user, tool
from loopwright.agents import Agent
from loopwright.errors import (
    ConfigError,
    JournalError,
    ProviderError,
    RunBusy,
    UnknownRun,
)
from loopwright.journals import Journal, Owner, RunFilter, RunInfo, SQLiteJournal
from loopwright.journals.retention import choose_pruned, hash_name
from loopwright.storage.drafts import drafting
from loopwright.testing import ScriptedProvider, call

SECRET = "Ada-Lovelace-1815"
"""What must be gone from every file."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SQLiteJournal]:
    journal = SQLiteJournal(path)
    yield journal
    await journal.close()


async def add(journal: Journal, run_id: str, *bodies: bytes, **given: Any) -> None:
    """Write a run that has ended."""
    claim = journal.create(dataclasses.replace(header(run_id), **given))
    await write(journal, claim, *(bodies or (b"{}",)), status="completed")


def files_with(path: Path, text: str) -> list[str]:
    """Return the files beside a journal that hold a text."""
    return [
        file.name
        for file in sorted(path.parent.iterdir())
        if text.encode() in file.read_bytes()
    ]


# --- delete ---


@pytest.mark.faults
async def test_nothing_of_a_deleted_run_is_left_in_any_file(
    journal: SQLiteJournal, path: Path
) -> None:
    body, large = SECRET.encode() * 20, SECRET.encode() * 9000
    for number in range(300):
        name = f"{SECRET}-{number}" if number % 3 else f"other-{number}"
        text = (body, large) if number == 100 else (body if number % 3 else b"kept",)
        tags = {"user": SECRET if number % 3 else "nobody"}
        await add(journal, name, *text, tags=tags, thread=f"thread of {name}")
        journal.send(name, "steer", {"text": SECRET if number % 3 else "kept"})
    assert {"runs.db", "runs.db.inbox"} <= set(files_with(path, SECRET))

    for info in journal.runs(where=RunFilter(tags={"user": SECRET})):
        await journal.delete(info.run_id)

    assert files_with(path, SECRET) == []
    assert len(journal.runs()) == 100
    assert all(journal.verify(info.run_id).ok for info in journal.runs())
    assert [one.body for one in journal.inbox("other-0")] == [{"text": "kept"}]


@pytest.mark.faults
async def test_no_copy_of_a_run_is_left_whatever_the_order_of_deletion(
    path: Path,
) -> None:
    """SQLite leaves copies of rows where it splits and joins pages, which `secure_delete` does not know."""
    source, held, gone = random.Random(5), list[str](), list[str]()
    journal = SQLiteJournal(path, synchronous="NORMAL")
    for _ in range(900):
        word = f"q{source.getrandbits(48):012x}"
        await add(journal, f"run-{word}", word.encode() * 20, tags={"user": word})
        held.append(word)
        if source.random() < 0.5:
            gone.append(held.pop(source.randrange(len(held))))
            await journal.delete(f"run-{gone[-1]}")
    await journal.close()

    stored = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert [word for word in gone if word.encode() in stored] == []
    assert [word for word in held if word.encode() not in stored] == []


async def test_a_deleted_run_says_so_and_its_name_is_not_used_again(
    journal: SQLiteJournal, path: Path
) -> None:
    await add(journal, "user-42")
    head = journal.runs()[0].head_hash
    assert await journal.delete("user-42", deleted_by="Ada") == ["user-42"]

    for look in (journal.read, journal.verify):
        with pytest.raises(UnknownRun, match=f"was deleted on .* by Ada.*{head}"):
            look("user-42")
    with pytest.raises(ConfigError, match="'user-42' is that of a deleted run"):
        await add(journal, "user-42")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (row,) = connection.execute("SELECT * FROM tombstones").fetchall()
    assert row[:3] == (hash_name("user-42"), head, "Ada")
    assert journal.runs() == []


async def test_an_unknown_run_cannot_be_deleted(
    journal: SQLiteJournal, path: Path
) -> None:
    with pytest.raises(UnknownRun, match="nowhere"):
        await journal.delete("nowhere")
    assert not path.exists()
    await add(journal, "r1")
    with pytest.raises(UnknownRun, match="nowhere"):
        await journal.delete("nowhere")


async def test_a_run_at_work_is_busy_and_stays(journal: SQLiteJournal) -> None:
    await write(journal, journal.create(header(owner=LIVE)), b"1")
    with pytest.raises(RunBusy):
        await journal.delete("r1")
    assert journal.verify("r1").ok


async def test_a_run_at_work_is_aborted_first_on_request(
    journal: SQLiteJournal,
) -> None:
    began = asyncio.Event()

    @tool(effect="read")
    async def hold() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedProvider([call("hold")])
    engine = ReActEngine(Runtime(model, tools=[hold], journal=journal))
    async with engine.start("Wait.", run_id="r1") as run:
        await began.wait()
        with pytest.raises(RunBusy):
            await journal.delete("r1")
        assert await journal.delete("r1", abort=True) == ["r1"]
        assert (await run.result()).status == "aborted"
    assert journal.runs() == []


async def test_a_run_that_others_follow_is_deleted_with_them_or_refused(
    journal: SQLiteJournal,
) -> None:
    await add(journal, "a")
    await add(journal, "b", follows="a")
    await add(journal, "c", follows="b")
    await add(journal, "d")
    with pytest.raises(
        ConfigError, match=r"'a' is continued by 'b', 'c'.*cascade=True"
    ):
        await journal.delete("a")
    assert len(journal.runs()) == 4

    assert sorted(await journal.delete("a", cascade=True)) == ["a", "b", "c"]
    assert [info.run_id for info in journal.runs()] == ["d"]


async def test_a_large_body_goes_with_its_last_reference(
    journal: SQLiteJournal, path: Path
) -> None:
    large = b"x" * 100_000
    for run_id in ("a", "b"):
        await add(journal, run_id, large)

    def count() -> int:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("SELECT count(*) FROM blobs").fetchone()[0])

    await journal.delete("a")
    assert (count(), journal.read("b")[0].body) == (1, large)
    await journal.delete("b")
    assert count() == 0


async def test_what_is_new_is_told_after_the_newest_entries_were_deleted(
    journal: SQLiteJournal,
) -> None:
    for run_id in ("a", "b"):
        await add(journal, run_id)
        journal.send(run_id, "steer", {})
    mark, _ = journal.news(0)
    commands, _ = journal.inbox_news(0)
    await journal.delete("b")
    await add(journal, "c")
    journal.send("c", "steer", {})

    assert journal.news(mark)[1] == {"c"}
    assert journal.inbox_news(commands)[1] == {"c"}
    await journal.delete("c")
    await journal.delete("a")
    assert journal.news(0)[1] == journal.inbox_news(0)[1] == frozenset()


@pytest.mark.faults
async def test_50_live_runs_go_on_while_others_are_deleted_and_copied(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    other = SQLiteJournal(tmp_path / "other.db")
    await add(other, "brought")
    await other.export(tmp_path / "other.jsonl", ["brought"])
    for number in range(120):
        await add(journal, f"old-{number}", b"x" * 500)

    async def work(number: int) -> str:
        engine = ReActEngine(
            Runtime(ScriptedProvider(["yes"] * 20), journal=journal, lease=5.0)
        )
        results = [
            await engine.run("Is it?", run_id=f"live-{number}-{n}") for n in range(4)
        ]
        return ",".join(result.status for result in results)

    async def delete() -> None:
        for number in range(20):
            await journal.delete(f"old-{number}")
        await journal.export(tmp_path / "old.jsonl", ["old-30", "old-31"])
        await journal.prune(keep=200)
        await journal.import_(tmp_path / "other.jsonl")
        await journal.backup(tmp_path / "copy.db")

    *statuses, _ = await asyncio.gather(*map(work, range(50)), delete())
    assert set(statuses) == {"completed,completed,completed,completed"}
    for kept in (journal, copy := SQLiteJournal(tmp_path / "copy.db")):
        assert all(kept.verify(info.run_id).ok for info in kept.runs())
    assert "brought" in {info.run_id for info in copy.runs()}


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of the system")
async def test_live_runs_go_on_where_a_deletion_finds_no_room_for_its_rewrite(
    journal: SQLiteJournal, path: Path
) -> None:
    for number in range(48):
        await add(journal, f"kept-{number}", b"x" * 60_000)
    await add(journal, "gone")
    await journal.close()
    journal = SQLiteJournal(path)

    async def work(number: int) -> str:
        engine = ReActEngine(Runtime(ScriptedProvider(["yes"]), journal=journal))
        return (await engine.run("Is it?", run_id=f"live-{number}")).status

    with room_for(1_500_000):
        deletion = asyncio.ensure_future(journal.delete("gone"))
        ends = await asyncio.gather(*map(work, range(40)))
        with pytest.raises(JournalError, match=r"full|disk"):
            await deletion
    assert set(ends) == {"completed"}
    with pytest.raises(UnknownRun, match="was deleted on"):
        await journal.delete("gone")
    await journal.close()


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_deletion_that_a_reader_held_up_is_completed_when_it_is_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.storage.rewrite.PATIENCE", 0.1)
    journal = SQLiteJournal(path, busy_timeout=0.1)
    await add(journal, "r1", SECRET.encode())
    await add(journal, "r2")
    journal.send("r1", "steer", {"text": SECRET})
    with contextlib.ExitStack() as readers:
        for name in ("runs.db", "runs.db.inbox"):
            reader = sqlite3.connect(path.parent / name)
            readers.enter_context(contextlib.closing(reader))
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with pytest.raises(JournalError, match="delete again"):
            await journal.delete("r1")
    assert files_with(path, SECRET)

    with pytest.raises(UnknownRun, match="was deleted on"):
        await journal.delete("r1")
    assert files_with(path, SECRET) == []
    await journal.close()


async def test_the_commands_to_all_deleted_runs_go_when_a_deletion_is_repeated(
    path: Path,
) -> None:
    journal = SQLiteJournal(path, busy_timeout=0.1)
    await add(journal, "a")
    await add(journal, "b", follows="a")
    await add(journal, "kept")
    for run_id in ("a", "b", "kept"):
        journal.send(run_id, "steer", {"text": f"{SECRET}-{run_id}"})
    with contextlib.closing(sqlite3.connect(f"{path}.inbox")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match=r"the runs are deleted.*delete again"):
            await journal.delete("a", cascade=True)
    assert files_with(path, f"{SECRET}-b")

    with pytest.raises(UnknownRun, match="was deleted on"):
        await journal.delete("a")
    assert files_with(path, f"{SECRET}-a") == files_with(path, f"{SECRET}-b") == []
    assert journal.inbox("kept")[0].body == {"text": f"{SECRET}-kept"}
    await journal.close()


async def test_a_run_whose_owner_cannot_be_read_is_deleted_after_a_take_over(
    journal: SQLiteJournal, path: Path
) -> None:
    away = ScriptedProvider(lambda _: ProviderError("it is away", status=503))
    limits = Limits(max_provider_wait=0.0)
    runtime = Runtime(away, journal=journal, limits=limits)
    await ReActEngine(runtime).run("Is it?", run_id="r1")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET owner = 'x'")
    with pytest.raises(JournalError, match=r"owner that cannot be read.*take_over"):
        await journal.delete("r1")

    await runtime.control("r1").close("it was changed", take_over=True)
    assert await journal.delete("r1") == ["r1"]


# --- prune ---


@pytest.mark.parametrize(
    ("held", "begin"), [("runs.db", "BEGIN"), ("runs.db.inbox", "BEGIN IMMEDIATE")]
)
async def test_prune_completes_a_deletion_that_was_held_up(
    path: Path, monkeypatch: pytest.MonkeyPatch, held: str, begin: str
) -> None:
    monkeypatch.setattr("loopwright.storage.rewrite.PATIENCE", 0.1)
    journal = SQLiteJournal(path, busy_timeout=0.1)
    await add(journal, "r1", SECRET.encode())
    journal.send("r1", "steer", {"text": SECRET})
    with contextlib.closing(sqlite3.connect(path.parent / held)) as reader:
        reader.execute(begin)
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with pytest.raises(JournalError, match="delete again"):
            await journal.prune(older_than=0)
    assert files_with(path, SECRET)

    assert await journal.prune(older_than=0) == []
    assert files_with(path, SECRET) == []
    await journal.close()


@pytest.mark.faults
async def test_prune_leaves_a_thread_that_is_continued_meanwhile(
    journal: SQLiteJournal, path: Path
) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(lambda _: "yes"), journal=journal))
    first = await engine.run("Is it?", run_id="first")
    assert first.conversation is not None
    for number in range(250):
        await add(journal, f"old-{number}", SECRET.encode())

    pruning = asyncio.ensure_future(journal.prune(older_than=0))
    while len(journal.runs(limit=200)) == 200:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0)
    next_turn = await engine.run(first.conversation.user("And now?"), run_id="second")

    assert (next_turn.status, len(await pruning)) == ("completed", 250)
    assert {info.run_id for info in journal.runs()} == {"first", "second"}
    assert journal.verify("second").ok
    assert files_with(path, SECRET) == []


async def test_prune_deletes_old_ended_runs_and_keeps_the_newest(
    journal: SQLiteJournal,
) -> None:
    for number in range(6):
        await add(journal, f"r{number}", created=1000.0 + number)
    await write(journal, journal.create(header("open", owner=ME)), b"1")

    assert await journal.prune(older_than=60, keep=4) == ["r1", "r0"]
    assert await journal.prune(older_than=60, status="failed") == []
    assert await journal.prune(older_than=60) == ["r5", "r4", "r3", "r2"]
    assert [info.run_id for info in journal.runs()] == ["open"]


async def test_wrong_options_of_exports_and_copies_name_the_field(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    wrong: Any = 7
    await write(journal, journal.create(header()), b"1")
    target = tmp_path / "out.jsonl"
    for work, message in (
        (journal.export(wrong, run_ids=["r"]), "path: must be the path of a file"),
        (journal.export(target, run_ids="r"), "run_ids: must be a list of ids"),
        (journal.export(target, where=wrong), "where: must be a RunFilter, got 7"),
        (journal.import_(wrong), "path: must be the path of a file, got 7"),
        (journal.backup(wrong), "path: must be the path of a file, got 7"),
    ):
        with pytest.raises(ConfigError, match=message):
            await work
    assert not target.exists()


@pytest.mark.parametrize("timeout", [-1, "x", None, float("nan")])
def test_a_wrong_time_to_retry_writes_is_refused(timeout: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retry_timeout must be seconds"):
        SQLiteJournal(tmp_path / "runs.db", retry_timeout=timeout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "older_than: give an age in seconds, or keep"),
        ({"older_than": -1}, "older_than: must be seconds of at least 0, got -1"),
        ({"older_than": "1d"}, "older_than: must be seconds of at least 0, got '1d'"),
        ({"older_than": float("nan")}, "older_than: must be seconds"),
        ({"keep": -1}, "keep: must be a whole number of at least 0, got -1"),
        ({"keep": True}, "keep: must be a whole number of at least 0, got True"),
        ({"keep": 0, "status": 7}, "status: must be a status or several, got 7"),
        (
            {"keep": 0, "status": "running"},
            "status: prune deletes runs that have ended",
        ),
        ({"keep": 0, "status": ("completed", "waiting")}, "status: .*got 'waiting'"),
        ({"keep": 0, "status": []}, "status: is empty; leave it out for all"),
        ({"older_than": True}, "older_than: must be seconds of at least 0, got True"),
        ({"keep": 0, "deleted_by": 7}, "deleted_by: must be a printable text, got 7"),
    ],
)
async def test_wrong_options_of_prune_name_the_field(
    journal: SQLiteJournal, options: dict[str, Any], message: str
) -> None:
    await add(journal, "r1")
    with pytest.raises(ConfigError, match=message):
        await journal.prune(**options)
    assert len(journal.runs()) == 1


def test_a_thread_is_pruned_as_one_or_not_at_all() -> None:
    def info(run_id: str, created: float, status: str, follows: str | None) -> RunInfo:
        return RunInfo(
            run_id, "e", "{}", "1", status, None, 1, 1, "", created, follows=follows
        )

    infos = [
        info("new", 9.0, "completed", "old"),
        info("b2", 3.0, "completed", "b1"),
        info("b1", 2.0, "completed", None),
        info("open", 2.0, "waiting", "a1"),
        info("a1", 1.0, "completed", None),
        info("old", 0.0, "completed", None),
    ]
    assert choose_pruned(infos, ["completed"], 5.0, None) == [["b2", "b1"]]
    assert choose_pruned(infos, ["completed"], 5.0, 1) == [["b2", "b1"]]
    assert choose_pruned(infos, ["completed"], 99.0, 1) == [["b2", "b1"]]
    assert choose_pruned(infos, ["completed"], 99.0, 2) == []


# --- export, import, backup ---


async def test_exported_runs_are_imported_with_their_chain(
    journal: SQLiteJournal, path: Path, tmp_path: Path
) -> None:
    await add(journal, "a", b"{}", bytes(range(256)), tags={"user": "42"}, thread="t")
    await add(journal, "b", b"x" * 100_000, follows="a")
    await add(journal, "c")
    exported = await journal.export(tmp_path / "b.jsonl", ["b"])
    assert exported == ["a", "b"]
    assert (tmp_path / "b.jsonl").stat().st_mode & 0o777 == 0o600

    other = SQLiteJournal(tmp_path / "other.db")
    assert await other.import_(tmp_path / "b.jsonl") == ["a", "b"]
    for run_id in ("a", "b"):
        assert other.read(run_id) == journal.read(run_id)
        assert other.verify(run_id).ok
    assert other.runs() == journal.runs()[1:]
    assert [info.run_id for info in other.runs(where=RunFilter(tags={"user": "42"}))] == ["a"]  # fmt: skip
    with pytest.raises(ConfigError, match=r"'a' exists already.*nothing was imported"):
        await other.import_(tmp_path / "b.jsonl")
    await other.close()


async def test_a_filter_exports_its_runs_and_wrong_choices_are_refused(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    await add(journal, "a", tags={"user": "42"})
    await add(journal, "b")
    where = RunFilter(tags={"user": "42"})
    assert await journal.export(tmp_path / "x", where=where) == ["a"]
    for options in ({}, {"run_ids": ["a"], "where": where}):
        with pytest.raises(ConfigError, match="run_ids: give either"):
            await journal.export(tmp_path / "y", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"path: .*exists already"):
        await journal.export(tmp_path / "x", ["a"])
    with pytest.raises(UnknownRun, match="nowhere"):
        await journal.export(tmp_path / "y", ["nowhere"])
    assert not list(tmp_path.glob("y*"))


async def test_a_run_is_imported_behind_the_very_run_that_it_continues(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    await continue_run(journal)
    await journal.export(tmp_path / "both", ["b"])
    lines = (tmp_path / "both").read_bytes().splitlines(keepends=True)
    [begin] = [n for n, line in enumerate(lines) if b'"run_id": "b"' in line and b'{"run"' in line]  # fmt: skip
    (tmp_path / "b").write_bytes(seal([lines[0], *lines[begin:-1]]))
    other, same = SQLiteJournal(tmp_path / "o.db"), SQLiteJournal(tmp_path / "s.db")
    await ReActEngine(Runtime(ScriptedProvider(["no"]), journal=other)).run("?", run_id="a")  # fmt: skip
    (tmp_path / "a").write_bytes(seal(lines[:begin]))

    with pytest.raises(ConfigError, match=r"'b' continues another 'a'.* nothing was"):
        await other.import_(tmp_path / "b")
    assert [info.run_id for info in other.runs()] == ["a"]
    assert await same.import_(tmp_path / "a") == ["a"]
    assert await same.import_(tmp_path / "b") == ["b"]
    assert same.verify("b").ok
    await other.close()
    await same.close()


async def continue_run(journal: SQLiteJournal) -> None:
    """Let a run `b` continue a run `a`."""
    engine = ReActEngine(Runtime(ScriptedProvider(["yes", "no"]), journal=journal))
    first = await engine.run("Is it?", run_id="a")
    assert first.conversation is not None
    await engine.run(first.conversation.user("Really?"), run_id="b")


def seal(lines: list[bytes]) -> bytes:
    """Return the lines of an export with the last one that they need."""
    text = b"".join(lines)
    digest = hashlib.sha256(text).hexdigest()
    return text + json.dumps({"sha256": digest}).encode() + b"\n"


async def test_a_waiting_run_is_imported_with_the_commands_that_were_sent_to_it(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    def open_runtime(store: SQLiteJournal, *script: Any) -> Runtime:
        return Runtime(ScriptedProvider(script), tools=[ask_user], journal=store)

    runtime = open_runtime(journal, call("ask_user", question="Who?"))
    await ReActEngine(runtime).run("Ask.", run_id="r1")
    control = runtime.control("r1")
    await control.pause()
    await control.unpause()
    assert (await runtime.resume("r1")).status == "waiting"  # it received both
    await control.steer("Be brief.")
    await journal.export(tmp_path / "r1.jsonl", ["r1"])
    other = SQLiteJournal(tmp_path / "other.db")
    await other.import_(tmp_path / "r1.jsonl")

    assert other.inbox("r1") == journal.inbox("r1")
    assert len(other.inbox("r1")) == 3
    there = open_runtime(other, "Ada it is.")
    await there.control("r1").answer("Ada")
    assert (await there.resume("r1")).answer == "Ada it is."
    assert other.verify("r1").ok
    await other.close()


async def test_runs_are_not_imported_where_their_commands_cannot_be_stored(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    await add(journal, "r1")
    journal.send("r1", "stop", {})
    await journal.export(tmp_path / "r1.jsonl", ["r1"])
    other = SQLiteJournal(tmp_path / "other.db", busy_timeout=0.1)
    await add(other, "r2")
    other.send("r2", "stop", {})
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db.inbox")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another program holds it"):
            await other.import_(tmp_path / "r1.jsonl")
    assert [info.run_id for info in other.runs()] == ["r2"]

    assert await other.import_(tmp_path / "r1.jsonl") == ["r1"]
    assert [one.kind for one in other.inbox("r1")] == ["stop"]
    await other.close()


async def test_a_thread_is_not_imported_into_another_one_of_its_name(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    other = SQLiteJournal(tmp_path / "other.db")
    for store, word in ((journal, "here"), (other, "there")):
        await agent_of(store).thread("chat").run(word)
    await other.export(tmp_path / "chat.jsonl", where=RunFilter(thread="chat"))

    with pytest.raises(ConfigError, match="thread 'chat' of the export is another"):
        await journal.import_(tmp_path / "chat.jsonl")
    history = await agent_of(journal).thread("chat").history()
    assert [message.content for message in history] == ["here", "yes"]
    await other.close()


def agent_of(journal: SQLiteJournal) -> Agent[None]:
    return Runtime(ScriptedProvider(lambda _: "yes"), journal=journal).agent("bot")


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"entry": {"body": ""}}\n'],
        [b"[" * 100_000 + b"\n"],
        [b'{"run": null}\n'],
        [b'{"command": [1, 2, "stop", "{}", "x"]}\n'],
        [b"7\n"],
    ],
    ids=["entry of no run", "deep", "no run", "command of no run", "number"],
)
async def test_a_file_that_is_no_export_is_refused_as_damaged(
    journal: SQLiteJournal, tmp_path: Path, lines: list[bytes]
) -> None:
    (tmp_path / "x").write_bytes(seal([b'{"loopwright_export": 1}\n', *lines]))
    with pytest.raises(JournalError, match="is damaged, so nothing was imported"):
        await journal.import_(tmp_path / "x")


async def test_a_damaged_export_imports_nothing(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    for run_id in ("a", "b"):
        await add(journal, run_id, b'{"a":1}', b'{"b":2}')
    file, other = tmp_path / "x.jsonl", SQLiteJournal(tmp_path / "other.db")
    await journal.export(file, ["a", "b"])
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = [
        *(b"".join(lines[:n] + lines[n + 1 :]) for n in range(len(lines))),
        *(whole[:n] for n in range(0, len(whole), 97)),
        *(whole.replace(b"completed", b"failed", 1) for _ in range(1)),
        whole.replace(b'\\"a\\":1', b'\\"a\\":2'),
        b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]),
        b"not an export",
    ]
    for copy in damaged:
        file.write_bytes(copy)
        with pytest.raises(JournalError, match="nothing was imported"):
            await other.import_(file)
    assert other.runs() == []
    file.write_bytes(whole)
    assert await other.import_(file) == ["a", "b"]
    await other.close()


async def test_an_import_without_the_run_that_it_continues_is_refused(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    await add(journal, "b", follows="gone")
    with pytest.raises(UnknownRun, match="gone"):
        await journal.export(tmp_path / "x", ["b"])


async def test_a_backup_is_one_state_while_runs_are_at_work(
    journal: SQLiteJournal, path: Path, tmp_path: Path
) -> None:
    claims = [journal.create(header(f"r{number}")) for number in range(20)]
    for claim in claims:
        await write(journal, claim, b"1")
    journal.send("r1", "steer", {"text": "left"})
    stop = asyncio.Event()

    async def work() -> None:
        while not stop.is_set():
            await asyncio.gather(
                *(write(journal, claim, b"2", b"3") for claim in claims)
            )

    working = asyncio.create_task(work())
    for number in range(5):
        await journal.backup(tmp_path / f"copy-{number}.db")
    stop.set()
    await working

    for number in range(5):
        copy = SQLiteJournal(tmp_path / f"copy-{number}.db")
        assert len(copy.runs()) == 20
        assert all(copy.verify(info.run_id).ok for info in copy.runs())
        heads = [info.head_seq for info in copy.runs()]
        assert max(heads) - min(heads) <= 2  # the entries of one step of work
        assert copy.id == journal.id
        assert [one.body for one in copy.inbox("r1")] == [{"text": "left"}]
        assert (tmp_path / f"copy-{number}.db").stat().st_mode & 0o777 == 0o600
    new = await copy.new_id()
    assert new == copy.id != journal.id
    await copy.close()
    with pytest.raises(ConfigError, match=r"path: .*exists already"):
        await journal.backup(path)


async def test_a_run_of_a_copy_from_another_machine_is_ended_by_a_take_over(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    away = ScriptedProvider(lambda _: ProviderError("it is away", status=503))
    limits = Limits(max_provider_wait=0.0)
    runtime = Runtime(away, journal=journal, limits=limits)
    await ReActEngine(runtime).run("Is it?", run_id="r1")
    await journal.claim("r1", str(Owner("another-host", 7, "8", "token")))
    with pytest.raises(RunBusy, match="another-host"):
        await runtime.control("r1").close("its machine is gone")
    with pytest.raises(RunBusy, match="another-host"):
        await journal.delete("r1")

    await runtime.control("r1").close("its machine is gone", take_over=True)
    assert [info.status for info in journal.runs()] == ["aborted"]
    assert journal.verify("r1").ok
    assert await journal.delete("r1") == ["r1"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of the system")
async def test_a_backup_that_fails_leaves_no_file(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    for number in range(10):
        await add(journal, f"r{number}", b"x" * 60_000)
    journal.send("r1", "steer", {"text": "left"})
    (tmp_path / "b").mkdir()
    copy = tmp_path / "b" / "copy.db"
    with room_for(300_000), pytest.raises(JournalError, match="the disk failed"):
        await journal.backup(copy)
    assert list(copy.parent.iterdir()) == []
    (copy.parent / "copy.db.inbox").touch()
    with pytest.raises(ConfigError, match=r"path: .*copy.db.inbox' exists already"):
        await journal.backup(copy)

    (copy.parent / "copy.db.inbox").unlink()
    await journal.backup(copy)
    files = sorted(file.name for file in copy.parent.iterdir())
    assert files == ["copy.db", "copy.db.inbox"]
    assert len(SQLiteJournal(copy).runs()) == 10


def test_the_lines_of_an_export_are_json(tmp_path: Path) -> None:
    async def make() -> None:
        journal = SQLiteJournal(tmp_path / "r")
        await add(journal, "a", b'{"a":1}')
        await journal.export(tmp_path / "x", ["a"])
        await journal.close()

    asyncio.run(make())
    lines = [json.loads(line) for line in (tmp_path / "x").read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["loopwright_export", "run", "entry", "sha256"]  # fmt: skip
    assert lines[2]["entry"]["body"] == '{"a":1}'


# --- the journal's id in idempotency keys ---


async def test_idempotency_keys_begin_with_the_id_of_the_journal_that_a_run_began_in(
    tmp_path: Path,
) -> None:
    keys: list[str] = []

    @tool(effect="write")
    async def pay(ctx: ToolContext[None]) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    async def work(journal: SQLiteJournal) -> None:
        model = ScriptedProvider([call("pay"), "done"])
        engine = ReActEngine(Runtime(model, tools=[pay], journal=journal))
        await engine.run("Pay.", run_id="r")

    first, second = (SQLiteJournal(tmp_path / name) for name in ("first", "second"))
    await work(first)
    await work(second)
    assert keys == [f"{first.id}:r:0#0", f"{second.id}:r:0#0"]
    assert first.id != second.id

    await first.export(tmp_path / "x", ["r"])
    third = SQLiteJournal(tmp_path / "third")
    await third.import_(tmp_path / "x")
    engine = ReActEngine(
        Runtime(ScriptedProvider([call("pay"), "done"]), tools=[pay], journal=third)
    )
    await engine.fork("r", at=1, new_id="f")
    await engine.resume("f")
    assert keys[2:] == [f"{first.id}:f:0#0"]
    for journal in (first, second, third):
        await journal.close()


async def test_of_two_backups_to_one_path_each_is_whole_or_refused(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    for number in range(20):
        await add(journal, f"r{number}", b"x" * 60_000)
    journal.send("r1", "steer", {"text": "left"})
    (tmp_path / "b").mkdir()
    copy = tmp_path / "b" / "copy.db"
    made = await asyncio.gather(
        *(journal.backup(copy) for _ in range(4)), return_exceptions=True
    )
    refused = [one for one in made if one is not None]

    assert len(refused) == 3
    assert all("exists already" in str(one) for one in refused), refused
    files = sorted(file.name for file in copy.parent.iterdir())
    assert files == ["copy.db", "copy.db.inbox"]
    assert all(SQLiteJournal(copy).verify(f"r{number}").ok for number in range(20))


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSPC])
async def test_files_are_named_where_there_are_no_links_and_all_or_none_else(
    journal: SQLiteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    await add(journal, "r1")
    journal.send("r1", "steer", {"text": "left"})
    link, targets = (
        os.link,
        [tmp_path / "b" / name for name in ("copy.db", "runs.jsonl")],
    )
    targets[0].parent.mkdir()

    def fail(made: Path, name: Path) -> None:
        if code == errno.ENOSPC and name.suffix == ".inbox":
            return link(made, name)
        raise OSError(code, os.strerror(code), str(made), None, str(name))

    monkeypatch.setattr(os, "link", fail)

    async def export() -> None:
        await journal.export(targets[1], ["r1"])

    for begin in (lambda: journal.backup(targets[0]), export):
        if code == errno.ENOSPC:
            with pytest.raises(JournalError, match="the disk is full"):
                await begin()
        else:
            await begin()
    files = sorted(file.name for file in targets[0].parent.iterdir())
    if code == errno.ENOSPC:
        assert files == []
    else:
        assert files == ["copy.db", "copy.db.inbox", "runs.jsonl"]
        assert SQLiteJournal(targets[0]).verify("r1").ok
        with pytest.raises(ConfigError, match="exists already"):
            await journal.backup(targets[0])


async def test_what_a_backup_that_was_killed_has_left_goes_with_the_next_one(
    journal: SQLiteJournal, tmp_path: Path
) -> None:
    await add(journal, "r1")
    left = tmp_path / "copy.db.abcdefgh.part"
    left.mkdir()
    (left / "copy.db").write_text(SECRET)
    with drafting(tmp_path / "copy.db") as used:
        await journal.backup(tmp_path / "copy.db")
        assert (left.exists(), used.exists()) == (False, True)
