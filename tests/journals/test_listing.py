"""What runs are listed by: tags, threads and filters; parts of runs, and news."""

import contextlib
import dataclasses
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from journal_entries import follow, header, write
from large_journal import make_large_journal
from loopwright import ReActEngine, Runtime
from loopwright.errors import ConfigError, JournalError, UnknownRun
from loopwright.events import Entry
from loopwright.journals import (
    Journal,
    MemoryJournal,
    RunFilter,
    RunInfo,
    SQLiteJournal,
)
from loopwright.journals.capabilities import iterate_runs
from loopwright.journals.sqlite.listing import RunQuery
from loopwright.testing import ScriptedProvider
from stopwatch import quickest


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return (
        MemoryJournal() if request.param == "memory" else SQLiteJournal(tmp_path / "r")
    )


async def test_tags_and_thread_of_a_run_are_listed_recorded_and_kept_by_a_fork(
    journal: Journal,
) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"]), journal=journal))
    await engine.run("Is it?", run_id="r", tags={"user": "42"}, thread="chat 7")
    await engine.fork("r", at=1, new_id="f")

    for info in journal.runs():
        assert (info.tags, info.thread) == ({"user": "42"}, "chat 7")
        assert journal.verify(info.run_id).ok


async def test_a_secret_in_a_tag_is_redacted(journal: Journal) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"]), journal=journal))
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2n" * 3
    await engine.run("Is it?", tags={"key": key}, thread=key)

    (info,) = journal.runs()
    assert key not in repr((info, journal.read(info.run_id)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": ["user"]}, "tags: must be a mapping"),
        ({"tags": {"user": 42}}, r"tags\['user'\]: must be 1 to 256 printable"),
        ({"tags": {"user": "a\nb"}}, r"tags\['user'\]: must be 1 to 256 printable"),
        ({"tags": {"": "a"}}, "tags: a name must be 1 to 64 printable"),
        ({"tags": {f"{n}": "a" for n in range(33)}}, "tags: at most 32, got 33"),
        ({"thread": 7}, "thread: must be at most 256 printable"),
        ({"thread": "x" * 257}, "thread: must be at most 256 printable"),
    ],
)
async def test_wrong_tags_and_threads_are_refused_by_name(
    options: dict[str, object], message: str
) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"])))
    with pytest.raises(ConfigError, match=message):
        await engine.run("Is it?", **options)  # type: ignore[arg-type]


# --- filters, pages, ranges and news ---


def begin(
    journal: Journal, run_id: str, status: str = "running", **given: Any
) -> list[Entry]:
    claim = journal.create(dataclasses.replace(header(run_id), **given))
    entries = follow(claim, b"1")
    journal.append(claim, entries, status=status)
    return entries


@pytest.fixture
async def listed(
    journal: MemoryJournal | SQLiteJournal,
) -> MemoryJournal | SQLiteJournal:
    for number in range(20):
        begin(
            journal,
            f"r{number}",
            ("completed", "failed")[number % 2],
            engine=("react", "critic")[number % 4 // 2],
            agent="" if number % 5 else "clerk",
            thread=f"t{number % 3}" if number % 4 else "straße",
            tags={"user": str(number % 10), "ünï": "☃"} if number > 4 else {},
            created=1000.0 + number,
        )
    if isinstance(journal, SQLiteJournal):
        await journal.close()
        return SQLiteJournal(journal.path)
    return journal


FILTERS = (
    RunFilter(),
    RunFilter(status="failed"),
    RunFilter(status=("failed", "completed")),
    RunFilter(engine="critic", thread="t1"),
    RunFilter(agent="clerk"),
    RunFilter(tags={"user": "7"}),
    RunFilter(tags={"user": "7", "ünï": "☃"}),
    RunFilter(tags={"user": "7", "no": "x"}),
    RunFilter(since=1003, until=1009),
    RunFilter(text="R1"),
    RunFilter(text="☃", status="completed"),
    RunFilter(text="%"),
    RunFilter(text="ÜNÏ"),
    RunFilter(text="STRASSE"),
    RunFilter(text='"user"'),
    RunFilter(text="'user'"),
    RunFilter(tags={"ünï": "☃"}, since=1010, engine="react"),
)


@pytest.mark.parametrize("where", FILTERS, ids=repr)
async def test_a_filter_selects_the_same_runs_everywhere_page_by_page(
    listed: MemoryJournal | SQLiteJournal, where: RunFilter
) -> None:
    whole = listed.runs()
    matching = [info for info in whole if where.matches(info)]
    assert [info.run_id for info in whole] == [f"r{n}" for n in range(19, -1, -1)]
    assert listed.runs(where=where) == matching
    assert listed.count_runs(where) == Counter(info.status for info in matching)

    paged: list[RunInfo] = []
    while page := listed.runs(
        where=where, limit=3, before=paged[-1].run_id if paged else None
    ):
        assert len(page) <= 3
        paged += page
    assert paged == matching


@pytest.mark.parametrize("text", ["ÜNÏ", "ünï", "STRASSE", "Clerk"])
async def test_capitals_of_no_script_matter_where_a_text_is_searched(
    listed: MemoryJournal | SQLiteJournal, text: str
) -> None:
    assert listed.runs(where=RunFilter(text=text))


async def test_runs_are_iterated_to_the_end_though_one_between_two_pages_is_deleted(
    journal: MemoryJournal | SQLiteJournal,
) -> None:
    for number in range(5):
        claim = journal.create(header(f"r{number}"))
        await write(journal, claim, b"1", status="completed")
    listed = [info.run_id for info in journal.runs()]
    runs = iterate_runs(journal, None, 2)
    first = [next(runs).run_id, next(runs).run_id]
    await journal.delete(first[-1])

    assert first + [info.run_id for info in runs] == listed


async def test_a_page_behind_a_deleted_run_is_no_end_of_the_list(
    journal: MemoryJournal | SQLiteJournal,
) -> None:
    for number in range(4):
        claim = journal.create(header(f"r{number}"))
        await write(journal, claim, b"1", status="completed")
    last = journal.runs(limit=2)[-1].run_id
    await journal.delete(last)
    with pytest.raises(UnknownRun, match=f"before: no run '{last}', which may have"):
        journal.runs(limit=2, before=last)
    assert [info.run_id for info in journal.runs()] == ["r3", "r1", "r0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"status": 7}, "status: must be a status or several, got 7"),
        ({"status": (7,)}, "status: must be of running, released"),
        ({"status": "wating"}, "got 'wating'"),
        ({"engine": None}, "engine: must be a text, got None"),
        ({"tags": "user"}, "tags: must be a mapping"),
        ({"since": "now"}, "since: must be seconds, got 'now'"),
        ({"since": float("nan")}, "since: must be seconds, got nan"),
        ({"until": float("inf")}, "until: must be seconds, got inf"),
        ({"text": 7}, "text: must be a text, got 7"),
    ],
)
def test_a_wrong_filter_names_its_field(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        RunFilter(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": -1}, "limit: must be a whole number of at least 0, got -1"),
        ({"limit": True}, "limit: must be a whole number of at least 0, got True"),
        ({"before": 7}, "before: must be the id of a run, got 7"),
        ({"where": {"status": "failed"}}, "where: must be a RunFilter, got {"),
    ],
)
def test_a_wrong_page_names_its_field(
    journal: MemoryJournal | SQLiteJournal, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        journal.runs(**given)


@pytest.mark.parametrize("keep", [0, "x", None, True, 2.5])
def test_a_wrong_number_of_runs_to_keep_is_refused(keep: Any) -> None:
    with pytest.raises(ConfigError, match="keep_runs"):
        MemoryJournal(keep_runs=keep)


async def test_a_part_of_a_run_is_read_by_numbers(
    journal: MemoryJournal | SQLiteJournal,
) -> None:
    claim = journal.create(header())
    entries = await write(journal, claim, *(b"%d" % n for n in range(10)))

    assert journal.read("r1", after=4) == entries[4:]
    assert journal.read("r1", after=4, limit=2) == entries[4:6]
    assert journal.read("r1", limit=0) == []
    assert journal.read("r1", last=3) == entries[7:]
    assert journal.read("r1", after=8, last=3) == entries[8:]
    assert journal.read("r1", last=99) == entries
    assert journal.read("r1", after=10) == journal.read("r1", after=99) == []
    for wrong, message in (
        ({"after": -1}, "after: must be a whole number"),
        ({"limit": 1.5}, "limit: must be a whole number"),
        ({"last": 1, "limit": 1}, "last: gives the end"),
    ):
        with pytest.raises(ConfigError, match=message):
            journal.read("r1", **wrong)  # type: ignore[arg-type]


async def test_a_changed_entry_is_found_in_the_part_that_is_read(
    tmp_path: Path,
) -> None:
    journal = SQLiteJournal(tmp_path / "r")
    entries = await write(journal, journal.create(header()), *(b"1" for _ in range(9)))
    with contextlib.closing(sqlite3.connect(tmp_path / "r")) as connection:
        connection.execute("UPDATE events SET body = x'32' WHERE seq = 5")
        connection.commit()

    assert journal.read("r1", after=5) == entries[5:]
    assert journal.read("r1", limit=4) == entries[:4]
    for part in ({}, {"after": 4}, {"after": 3, "limit": 2}, {"last": 5}):
        with pytest.raises(JournalError, match="entry 5 was changed"):
            journal.read("r1", **part)
    with contextlib.closing(sqlite3.connect(tmp_path / "r")) as connection:
        connection.execute("DELETE FROM events WHERE seq = 9")
        connection.commit()
    with pytest.raises(JournalError, match="should have 9 entries, found 8"):
        journal.read("r1", after=6)


async def test_news_names_the_runs_that_got_entries(
    journal: MemoryJournal | SQLiteJournal,
) -> None:
    assert journal.news(0) == (0, frozenset())
    claims = [journal.create(header(f"r{n}")) for n in range(3)]
    for claim in claims:
        await write(journal, claim, b"1")
    before = journal.head_mark()
    mark, changed = journal.news(0)
    assert changed == {"r0", "r1", "r2"}

    await write(journal, claims[1], b"2", b"3")
    assert journal.head_mark() != before
    mark, changed = journal.news(mark)
    assert changed == {"r1"}
    assert journal.news(mark) == (mark, frozenset())


async def test_one_damaged_row_spoils_one_run(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "r")
    for number in range(3):
        await write(journal, journal.create(header(f"r{number}")), b"1")
    with contextlib.closing(sqlite3.connect(tmp_path / "r")) as connection:
        connection.execute(
            "UPDATE runs SET tags = 'x', fence = 'y' WHERE run_id = 'r1'"
        )
        connection.commit()

    damaged = journal.runs()[1]
    assert [info.run_id for info in journal.runs()] == ["r2", "r1", "r0"]
    assert (damaged.status, damaged.owner) == ("damaged", None)
    assert "column 6 is 'y'" in damaged.damage


# --- 100,000 runs ---


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SQLiteJournal:
    return make_large_journal(tmp_path_factory.mktemp("large") / "runs.db", 100_000)


SELECTIVE = {
    "runs_by_status": RunFilter(status="waiting"),
    "runs_by_engine": RunFilter(engine="rare"),
    "runs_by_agent": RunFilter(agent="clerk"),
    "runs_by_thread": RunFilter(thread="t7"),
    "tags_by_value": RunFilter(tags={"user": "42"}),
    "runs_by_time": RunFilter(since=1e9 + 50_000, until=1e9 + 50_040),
}


@pytest.mark.parametrize("index", SELECTIVE)
def test_a_filter_of_one_value_uses_its_index(large: SQLiteJournal, index: str) -> None:
    statement, values = RunQuery(SELECTIVE[index]).build(50, None)
    with contextlib.closing(sqlite3.connect(large.path)) as connection:
        plan = str(
            connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        )
    assert index in plan
    assert "SCAN runs" not in plan


def test_a_page_of_100_000_runs_takes_less_than_20_ms(large: SQLiteJournal) -> None:
    pages = {"all": None, "tag of all": RunFilter(tags={"tenant": "acme"}), **SELECTIVE}
    took = {name: measure_page(large, where) for name, where in pages.items()}
    assert max(took.values()) < 0.02, took


def measure_page(journal: SQLiteJournal, where: RunFilter | None) -> float:
    assert journal.runs(where=where, limit=50)
    return quickest(lambda: journal.runs(where=where, limit=50), 0.02)
