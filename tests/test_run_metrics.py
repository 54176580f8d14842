"""Metrics over all runs of a journal: the same from memory, from a file and from a journal without an index."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from loopwright import Completion, ReActEngine, Runtime, Suspend, Usage, tool
from loopwright.errors import ProviderError, ToolError
from loopwright.followups import EndedRun, FollowUp
from loopwright.journals import MemoryJournal, RunFilter, SQLiteJournal
from loopwright.journals.metrics import StoredEvent, measure_runs
from loopwright.journals.sqlite import statistics as sqlite_statistics
from loopwright.run import Run
from loopwright.testing import FakeClock, ScriptedProvider, call
from loopwright.tools import DeadLetter, Escalate


@tool(effect="write", recovery=DeadLetter("mail"))
def send(text: str) -> str:
    """Send a text."""
    raise ToolError("the mail server refuses it")


@tool(effect="write", recovery=Escalate())
def pay(euros: int) -> str:
    """Pay."""
    raise ToolError("the bank refuses it")


class Note(FollowUp):
    """A follow-up that is due."""

    name = "note"

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Note."""
        return "noted"


async def fill(journal: Any, clock: FakeClock) -> Runtime:
    """Two runs that complete, one that fails, one that waits, and a follow-up that is due."""

    def pass_time(entry: Any) -> None:
        clock.advance(1.0)

    def answer(text: str, cost: float) -> Completion:
        usage = Usage(input_tokens=100, output_tokens=20, cost=cost)
        return Completion(answer=text, usage=usage)

    script = [
        call("send", text="hello"), answer("not sent", 0.5),
        answer("yes", 0.25),
        ProviderError("no such model", status=404),
        call("pay", euros=7),
    ]  # fmt: skip
    runtime = Runtime(
        ScriptedProvider(script), tools=[send, pay], journal=journal, clock=clock, observers=[pass_time],
        approver=Suspend(), after=[Note()],
    )  # fmt: skip
    vars(runtime)["start_due"] = lambda run_ids: None
    engine = ReActEngine(runtime)
    for number in range(4):
        await engine.run("Go.", run_id=f"r{number}", tags={"team": "ab"[number % 2]})
    return runtime


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_metrics_are_those_of_all_runs(tmp_path: Path, kind: str) -> None:
    clock = FakeClock()
    journal: Any = MemoryJournal(clock=clock)
    if kind == "sqlite":
        journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    runtime = await fill(journal, clock)
    found = await runtime.metrics()

    assert dict(found.runs) == {"completed": 2, "failed": 1, "waiting": 1}
    assert (found.total, found.success_rate) == (4, pytest.approx(2 / 3))
    assert (found.waiting, found.due) == (1, 2)
    assert (found.dead_letters, found.escalations) == (1, 1)
    assert (found.llm_calls, found.tool_calls) == (pytest.approx(4 / 3), pytest.approx(1 / 3))  # fmt: skip
    assert (found.cost, found.total_cost) == (pytest.approx(0.375), 0.75)
    assert found.seconds is not None
    assert found.seconds > 1
    assert dict(found.breakers) == runtime.breakers.states()
    assert "send" in str(sorted(found.breakers))
    only = await runtime.metrics(RunFilter(tags={"team": "b"}))
    assert dict(only.runs) == {"completed": 1, "waiting": 1}
    assert (only.dead_letters, only.escalations) == (0, 1)
    await journal.close()


async def test_metrics_of_an_empty_journal_have_no_means(tmp_path: Path) -> None:
    for journal in (MemoryJournal(), SQLiteJournal(tmp_path / "runs.db")):
        found = await Runtime(ScriptedProvider([]), journal=journal).metrics()
        assert (found.total, found.success_rate, found.seconds) == (0, None, None)
        assert (found.total_cost, found.due, found.dead_letters) == (0, 0, 0)


async def test_an_ending_of_many_bytes_counts_too(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(ScriptedProvider([ProviderError("x" * 70_000, status=400)]), journal=journal)  # fmt: skip
    await ReActEngine(runtime).run("Go.", run_id="r")
    found = await runtime.metrics()

    assert (found.success_rate, found.llm_calls) == (0.0, 1.0)
    await journal.close()


async def test_metrics_by_the_index_of_a_file_are_those_of_its_runs(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    await fill(journal, clock)
    with sqlite3.connect(tmp_path / "runs.db") as file:
        file.execute("UPDATE runs SET tags = '{' WHERE run_id = 'r1'")
    filters = [None, RunFilter(tags={"team": "b"}), RunFilter(status=("completed",))]  # fmt: skip
    by_index = [measure_runs(journal, {}, 9.0, where) for where in filters]
    vars(journal)["statistics"] = None
    by_run = [measure_runs(journal, {}, 9.0, where) for where in filters]

    assert by_index == by_run
    assert by_index[0].runs["damaged"] == 1
    file.close()
    await journal.close()


INDEXES = [
    (None, ""),
    (RunFilter(tags={"team": "b"}), "INDEX tags_by_value"),
    (RunFilter(status=("completed",)), "INDEX runs_by_status"),
]


@pytest.mark.parametrize(("where", "index"), INDEXES)
async def test_statistics_of_a_file_read_no_entry_of_another_kind(
    tmp_path: Path, where: RunFilter | None, index: str
) -> None:
    """Explain the queries as they are asked, with and without a filter."""
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    await fill(journal, clock)
    statistics = journal.statistics
    asked = list[tuple[str, list[Any]]]()
    read = vars(type(statistics))["_read"]

    def note(statement: str, values: list[Any]) -> Any:
        asked.append((statement, values))
        return read(statistics, statement, values)

    vars(statistics)["_read"] = note
    assert [*statistics.read_events(where)]
    with contextlib.closing(sqlite3.connect(journal.path)) as file:
        plans = [explain(file, *query) for query in asked]

    of_runs, of_events = plans
    assert index in of_runs
    assert "INDEX events_counted" in of_events
    assert "SCAN events" not in of_events
    await journal.close()


def explain(file: sqlite3.Connection, statement: str, values: list[Any]) -> str:
    steps = file.execute(f"EXPLAIN QUERY PLAN {statement}", values)
    return "; ".join(step for *_, step in steps)


def find_run(event: StoredEvent) -> str:
    return event.run_id


@pytest.mark.parametrize("where", [None, RunFilter(tags={"team": "a"})])
async def test_statistics_in_several_pages_are_those_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: RunFilter | None
) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    await fill(journal, clock)
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"] * 5), journal=journal))
    for number in range(4, 9):
        await engine.run("Go.", run_id=f"r{number}", tags={"team": "ab"[number % 2]})
    whole = [*journal.statistics.read_events(where)]
    measured = measure_runs(journal, {}, 9.0, where)

    for size in (1, 2, 3):  # the last page is full, or not
        monkeypatch.setattr(sqlite_statistics, "_PAGE", size)
        in_pages = journal.statistics.read_events(where)
        assert sorted(in_pages, key=find_run) == sorted(whole, key=find_run)
        assert measure_runs(journal, {}, 9.0, where) == measured
    await journal.close()


@pytest.mark.parametrize(
    "body", ["x'00ff'", "42", "cast('{}' AS blob)", "cast('[1]' AS blob)"]
)
async def test_a_damaged_ending_spoils_the_figures_of_no_other_run(
    tmp_path: Path, body: str
) -> None:
    path, clock = tmp_path / "runs.db", FakeClock()
    runtime = await fill(SQLiteJournal(path, clock=clock), clock)
    await runtime.journal.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(f"UPDATE events SET body = {body} WHERE run_id = 'r0' AND kind = 'run_finished'")  # fmt: skip

    journal = SQLiteJournal(path, clock=clock)
    found = measure_runs(journal, {}, 9.0)

    assert (found.runs["completed"], found.unreadable) == (2, 1)
    assert found.total_cost == 0.25
    await journal.close()


@pytest.mark.parametrize("name", ["list_runs", "read_events"])
async def test_a_slow_reader_of_statistics_lets_a_writer_begin(
    name: str, tmp_path: Path
) -> None:
    """The writer that gives a copy its write-ahead log waits for all who read."""
    clock = FakeClock()
    original = SQLiteJournal(tmp_path / "original.db", clock=clock)
    await fill(original, clock)
    await original.backup(tmp_path / "runs.db")
    await original.close()
    statistics = SQLiteJournal(tmp_path / "runs.db", busy_timeout=0.2).statistics
    rows = iter(getattr(statistics, name)(None))
    next(rows)

    with statistics._file.writing() as connection:  # pyright: ignore[reportPrivateUsage]
        assert not connection.is_lost

    assert len([*rows]) > 1
