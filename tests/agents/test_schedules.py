"""Schedules: each time gets one run over all workers, whatever is deleted, added again or changed meanwhile."""

import asyncio
import contextlib
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import structlog

from loopwright import ConfigError, LoopEngine, Run, Runtime, Worker, tool
from loopwright.agents import recorded_principals
from loopwright.events import Entry, ModelRequested
from loopwright.gates import Action, Allow, PolicyState
from loopwright.journals import Journal, MemoryJournal, RunFilter, SQLiteJournal
from loopwright.labels import Untrusted
from loopwright.principals import Principal
from loopwright.testing import FakeClock, ScriptedProvider, call

HOUR = 3600.0


class Nap(LoopEngine):
    """Sleeps, then answers."""

    name = "nap"
    seconds: float = 600.0

    async def solve(self, run: Run) -> str:
        """Sleep."""
        await run.sleep(self.seconds)
        return "awake"


class Watching:
    """Allows each call, and notes for whom."""

    version = "1"

    def __init__(self) -> None:
        self.seen: list[Principal | None] = []

    async def evaluate(self, action: Action, state: PolicyState) -> Allow:
        """Allow it."""
        self.seen.append(state.principal)
        return Allow()


@tool(effect="read")
def look(what: str) -> str:
    """Look."""
    return what


def application(
    journal: Journal, clock: FakeClock, engine: str | None = "react", **options: Any
) -> Runtime:
    """A process with an agent `digest`, or without one."""
    runtime = Runtime(
        ScriptedProvider(lambda request: "done"), journal=journal, clock=clock, lease=30.0, **options,
    )  # fmt: skip
    if engine == "nap":
        runtime.agent("digest", engine=Nap(runtime))
    elif engine:
        runtime.agent("digest", engine=engine)
    return runtime


def ids(journal: Journal) -> list[str]:
    return sorted(info.run_id for info in journal.runs())


async def test_two_workers_and_twenty_times_make_twenty_runs(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "runs.db"
    journals = [SQLiteJournal(path, clock=clock) for _ in range(2)]
    asked: Counter[str] = Counter()

    def note(entry: Entry) -> None:
        asked[entry.run_id] += isinstance(entry.event, ModelRequested)

    runtimes = [application(one, clock, observers=[note]) for one in journals]
    workers = [Worker(one) for one in runtimes]
    await runtimes[0].schedule("d", "digest", "Sum up.", cron="0 * * * *")

    for _ in range(20):
        clock.advance(HOUR)
        await asyncio.gather(*(one.drain() for one in workers))

    fired = ids(journals[0])
    assert len(fired) == 20
    assert asked == dict.fromkeys(fired, 1)
    statuses = {info.status for info in journals[0].runs(where=RunFilter(tags={"schedule": "d"}))}  # fmt: skip
    assert statuses == {"completed"}
    assert all(journals[0].verify(one).ok for one in fired)
    for journal in journals:
        await journal.close()


async def test_only_a_worker_with_the_agent_and_the_version_fires() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    old = application(journal, clock, app_version="1")
    await old.schedule("d", "digest", "Sum up.", cron="0 * * * *")
    clock.advance(HOUR)
    for options in ({"engine": None, "app_version": "1"}, {"app_version": "2"}):
        assert await Worker(application(journal, clock, **options)).drain() == []
    assert ids(journal) == []

    accepting = Worker(application(journal, clock, app_version="2"), accepts=["1"])
    assert len(await accepting.drain()) == 1


async def test_an_application_that_starts_again_changes_its_schedule() -> None:
    clock = FakeClock()
    runtime = application(MemoryJournal(clock=clock), clock)
    first = await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *", by="Ada")
    assert (
        await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *", by="Bo")
        == first
    )
    clock.advance(5 * HOUR)

    changed = await runtime.schedule("d", "digest", "Tell.", cron="30 * * * *", by="Bo")

    assert (changed.task, changed.by, changed.generation) == ("Tell.", "Bo", 1)
    assert await runtime.drain() == []  # no time of the new line has passed
    clock.advance(HOUR)
    [result] = await runtime.drain()
    assert result.run_id.endswith(":30Z")


async def test_a_deleted_schedule_that_is_added_again_fires_no_time_twice(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    runtime = application(journal, clock)
    await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *")
    clock.advance(HOUR)
    [result] = await runtime.drain()
    await journal.delete(result.run_id)  # retention: only a tombstone is left
    await runtime.schedules.delete("d")
    assert await runtime.schedules.list() == []
    clock.advance(-HOUR / 2)  # the clock is set back

    again = await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *")
    clock.advance(HOUR / 2)
    assert again.generation == 2
    assert await runtime.drain() == []
    clock.advance(HOUR)
    [later] = await runtime.drain()
    assert later.run_id.startswith("d.g2@")
    await journal.close()


async def test_a_lost_schedule_row_cannot_fire_a_deleted_run_again(
    tmp_path: Path,
) -> None:
    """The tombstone of a run outlives retention, so its id is not used again."""
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "runs.db", clock=clock)
    runtime = application(journal, clock)
    before = await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *")
    clock.advance(HOUR)
    [result] = await runtime.drain()
    await journal.delete(result.run_id)
    [now] = journal.schedules.read()
    rewound = now.change(seen_until=before.seen_until)
    assert await journal.schedules.store(rewound)

    assert await runtime.drain() == []
    assert ids(journal) == []
    await journal.close()


async def test_a_run_that_sleeps_costs_no_worker_and_is_not_overlapped() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    runtime = application(journal, clock, "nap")
    await runtime.schedule("d", "digest", "Nap.", cron="*/5 * * * *")
    clock.advance(300)
    worker = Worker(runtime, max_concurrency=1)

    [slept] = await worker.drain()
    assert (slept.status, worker._tasks) == ("suspended", {})
    clock.advance(300)
    assert await worker.drain() == []  # the run is at work, as it sleeps
    assert len(ids(journal)) == 1
    clock.advance(300)
    [woken] = await worker.drain()
    assert (woken.run_id, woken.answer) == (slept.run_id, "awake")
    [schedule] = await runtime.schedules.list()
    assert schedule.skipped == 2


async def test_a_schedule_is_paused_run_by_hand_and_continued() -> None:
    clock = FakeClock()
    runtime = application(MemoryJournal(clock=clock), clock)
    await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *")
    await runtime.schedules.pause("d")
    clock.advance(5 * HOUR)
    assert await runtime.drain() == []

    asked = await runtime.schedules.run("d")
    assert [result.run_id for result in await runtime.drain()] == [asked]
    await runtime.schedules.unpause("d")
    assert await runtime.drain() == []  # what passed meanwhile was not missed
    clock.advance(HOUR)
    assert len(await runtime.drain()) == 1
    with pytest.raises(ConfigError, match="there is no schedule 'x'"):
        await runtime.schedules.pause("x")


async def test_drain_waits_for_the_times_of_schedules() -> None:
    clock = FakeClock()
    runtime = application(MemoryJournal(clock=clock), clock)
    await runtime.schedule("d", "react", "Sum up.", cron="0 * * * *")

    assert len(await runtime.drain(until=clock.wall() + 3 * HOUR)) == 3


async def test_what_cannot_be_scheduled_is_refused() -> None:
    clock = FakeClock()
    runtime = application(MemoryJournal(clock=clock), clock)
    for options, problem in (
        ({"agent": "nobody"}, "agent: there is no agent or engine 'nobody'"),
        ({"cron": "0 9 30 2 *"}, "cron"),
        ({"zone": "Nowhere"}, "zone"),
        ({"task": ""}, "task"),
        ({"task": 7}, "task"),
        ({"task": Untrusted("Go.")}, "task: the text is untrusted, which a schedule"),
        ({"missed": "never"}, "missed"),
        ({"name": "a/b"}, "name"),
        ({"name": 7}, "name: must be a text, got 7"),
        ({"cron": 7}, "cron: must be a text, got 7"),
        ({"zone": None}, "zone: must be a text, got None"),
    ):
        given: Any = {"name": "d", "agent": "digest", "task": "Go.", "cron": "0 9 * * *", **options}  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            await runtime.schedule(**given)

    class Bare(MemoryJournal):
        def __init__(self) -> None:
            super().__init__()
            del self.schedules

    bare = Runtime(ScriptedProvider([]), journal=Bare())
    with pytest.raises(ConfigError, match="journal: Bare keeps no schedules"):
        await bare.schedule("d", "react", "Go.", cron="0 9 * * *")


async def test_a_schedule_that_cannot_fire_is_logged_and_hurts_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    runtime = application(MemoryJournal(clock=clock), clock)
    for name in ("a", "b"):
        await runtime.schedule(name, "digest", f"Task of {name}.", cron="0 * * * *")
    plan = LoopEngine.plan

    def fail_once(self: LoopEngine, task: Any, **options: Any) -> Any:
        if task == "Task of a." and clock.wall() < broken_until:
            raise ConfigError("engine: broken for now")
        return plan(self, task, **options)

    monkeypatch.setattr(LoopEngine, "plan", fail_once)
    clock.advance(HOUR)
    broken_until = clock.wall() + 1
    worker = Worker(runtime)
    with structlog.testing.capture_logs() as logs:
        assert [one.run_id[:1] for one in await worker.drain()] == ["b"]
        clock.advance(10)
        assert await worker.drain() == []  # it rests
    clock.advance(30)
    assert [one.run_id[:1] for one in await worker.drain()] == ["a"]
    events = [log["event"] for log in logs if log.get("schedule") == "a"]
    assert events == ["schedule_not_fired"]


@pytest.mark.parametrize("how", ["worker", "drain"])
async def test_a_damaged_schedule_is_named_and_the_others_fire(
    tmp_path: Path, how: str
) -> None:
    clock = FakeClock()
    path = tmp_path / "runs.db"
    runtime = application(SQLiteJournal(path, clock=clock), clock)
    damage = {
        "brace": "'{'",
        "list": "'[]'",
        "number": "7",
        "cron": "json_set(body, '$.cron', 'never')",
        "zone": "json_set(body, '$.zone', 5)",
        "times": "json_set(body, '$.seen_until', 'noon')",
        "line": "json_set(body, '$.line', json('[\"x\"]'))",
    }
    for name in (*damage, "whole"):
        await runtime.schedule(name, "digest", "Task.", cron="0 * * * *")
    await runtime.journal.close()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        for name, body in damage.items():
            update = f"UPDATE schedules SET body = {body} WHERE name = ?"
            file.execute(update, (name,))
    runtime = application(SQLiteJournal(path, clock=clock), clock)
    clock.advance(HOUR)

    with structlog.testing.capture_logs() as logs:
        drain = Worker(runtime).drain if how == "worker" else runtime.drain
        done = await drain()

    assert [one.run_id.partition(".")[0] for one in done] == ["whole"]
    said = {log["schedule"]: log["error"] for log in logs if "schedule" in log}
    assert sorted(said) == sorted(damage)
    for name, error in said.items():
        assert f"loopwright schedule delete {name}" in error
        await runtime.schedules.delete(name)
    assert [one.name for one in await runtime.schedules.list()] == ["whole"]
    await runtime.journal.close()


async def test_draining_continues_where_schedules_cannot_be_read(
    tmp_path: Path,
) -> None:
    clock, path = FakeClock(), tmp_path / "runs.db"
    runtime = application(SQLiteJournal(path, clock=clock), clock, "nap")
    await runtime.schedule("daily", "digest", "Task.", cron="0 9 * * *")
    sleeper = runtime.agent("sleeper", engine=Nap(runtime))
    assert (await sleeper.run("Sleep.", run_id="r")).status == "suspended"
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("ALTER TABLE schedules RENAME COLUMN body TO lost")
    with structlog.testing.capture_logs() as logs:
        clock.advance(HOUR)
        [woken] = await runtime.drain()

    assert (woken.run_id, woken.answer) == ("r", "awake")
    assert {log["event"] for log in logs} == {"schedules_unreadable"}
    await runtime.journal.close()


async def test_a_schedule_runs_for_its_principal_and_gates_see_it_each_time() -> None:
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)
    ann = Principal("ann", "acme", ("buyer",))
    gate = Watching()
    runtime = Runtime(
        ScriptedProvider([call("look", what="a"), "done"] * 2), journal=journal, clock=clock, gate=gate, tools=[look],
    )  # fmt: skip
    added = await runtime.schedule("d", "react", "Look.", cron="0 * * * *", principal=ann)  # fmt: skip
    same = await runtime.schedule("d", "react", "Look.", cron="0 * * * *", principal=ann)  # fmt: skip
    assert (added, added.by) == (same, "ann@acme")
    for _ in range(2):
        clock.advance(HOUR)
        await runtime.drain()

    assert gate.seen == [ann, ann]
    assert (
        len(journal.runs(where=RunFilter(tags={"tenant": "acme", "user": "ann"}))) == 2
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_rights_are_those_of_the_time_at_which_a_schedule_fires(
    is_async: bool,
) -> None:
    clock = FakeClock()
    roles: dict[str, tuple[str, ...]] = {"ann": ("buyer", "admin")}

    def look_up(known: Principal) -> Principal | None:
        found = roles.get(known.id)
        return None if found is None else Principal(known.id, known.tenant, found)

    async def look_up_later(known: Principal) -> Principal | None:
        return look_up(known)

    find: Any = look_up_later if is_async else look_up
    gate = Watching()
    runtime = Runtime(
        ScriptedProvider([call("look", what="a"), "done"] * 3), journal=MemoryJournal(clock=clock), clock=clock,
        gate=gate, tools=[look], find_principal=find,
    )  # fmt: skip
    ann = Principal("ann", "acme", ("buyer", "admin"))
    await runtime.schedule("d", "react", "Look.", cron="0 * * * *", principal=ann)
    for given in (("buyer", "admin"), ("buyer",), None, ("buyer",)):
        roles = {} if given is None else {"ann": given}
        clock.advance(HOUR)
        await runtime.drain()

    assert [one and one.roles for one in gate.seen] == [("buyer", "admin"), ("buyer",), ("buyer",)]  # fmt: skip


@pytest.mark.parametrize("fault", ["gone", "other", "no principal", "fails", "hangs"])
async def test_a_principal_that_cannot_be_looked_up_starts_nothing_and_hurts_no_other(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_principals, "LOOKUP_SECONDS", 0.01)
    clock = FakeClock()

    async def find(known: Principal) -> Principal | None:
        if known.id == "bob":
            return known
        if fault == "fails":
            raise OSError("the directory is down")
        if fault == "hangs":
            await asyncio.Event().wait()
        found: Any = {"gone": None, "no principal": True}
        return found.get(fault, Principal("eve", "acme"))

    runtime = application(MemoryJournal(clock=clock), clock, find_principal=find)
    for name in ("ann", "bob"):
        who = Principal(name, "acme")
        await runtime.schedule(name, "digest", "Sum up.", cron="0 * * * *", principal=who)  # fmt: skip
    clock.advance(HOUR)
    with structlog.testing.capture_logs() as logs:
        await runtime.drain()

    assert [one.partition(".")[0] for one in ids(runtime.journal)] == ["bob"]
    [log] = [one for one in logs if one["event"] == "schedule_not_fired"]
    assert log["schedule"] == "ann"
    assert "'ann@acme'" in log["error"]


async def test_a_schedule_is_stored_only_behind_the_revision_before_it(
    tmp_path: Path,
) -> None:
    """Of two processes that look at the same moment, one moves the schedule on."""
    clock = FakeClock()
    for journal in (MemoryJournal(clock=clock), SQLiteJournal(tmp_path / "runs.db")):
        runtime = application(journal, clock)
        known = await runtime.schedule("d", "digest", "Sum up.", cron="0 * * * *")
        first, second = known.change(skipped=1), known.change(skipped=2)

        assert await journal.schedules.store(first)
        assert not await journal.schedules.store(second)
        assert journal.schedules.read() == [first]
        await journal.close()
