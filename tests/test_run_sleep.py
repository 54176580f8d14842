"""Sleep is an effect: in place when it is short, else the run is suspended until it is over."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after, kinds
from loopwright import (
    ConfigError,
    Limits,
    MemoryJournal,
    Result,
    Run,
    Runtime,
    Worker,
)
from loopwright.errors import ReplayDivergence
from loopwright.events import RunSuspended, SleepSet
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from loopwright.testing.simulation.host import HostClock
from virtual_time import in_virtual_time

Body = Callable[[Run], Awaitable[object]]
HOUR = 3600.0


def runtime(clock: FakeClock, journal: Any = None, **options: Any) -> Runtime:
    def answer(request: Any) -> str:
        return str(request.conversation.messages[-1].content).upper()

    journal = MemoryJournal() if journal is None else journal
    return Runtime(ScriptedProvider(answer), journal=journal, clock=clock, **options)


def engine(parts: Runtime, body: Body, **options: Any) -> FunctionEngine:
    return FunctionEngine(parts, body=body, **options)


def naps(seconds: float) -> Body:
    async def body(run: Run) -> object:
        first = await run.ask("first")
        await run.sleep(seconds)
        return first + await run.ask("second")

    return body


def ending(result: Result) -> tuple[str, str]:
    return result.status, result.stop_reason


async def test_a_short_sleep_waits_in_place() -> None:
    clock = FakeClock()
    parts = runtime(clock)

    result = await engine(parts, naps(59)).run("Go.", run_id="r")

    assert result.answer == "FIRSTSECOND"
    assert clock.slept == [59]
    assert "run_suspended" not in kinds(parts, "r")
    assert kinds(parts, "r")[3:5] == ["sleep_set", "effect_finished"]


async def test_a_long_sleep_suspends_the_run_until_it_is_over() -> None:
    clock = FakeClock()
    parts = runtime(clock)
    sleeper = engine(parts, naps(HOUR))
    wake_at = clock.wall() + HOUR

    assert ending(await sleeper.run("Go.", run_id="r")) == ("suspended", "sleeping")
    [info] = parts.journal.runs()
    assert (info.status, info.wake_at) == ("suspended", wake_at)

    clock.advance(HOUR / 2)
    assert ending(await sleeper.resume("r")) == ("suspended", "sleeping")
    assert parts.journal.runs()[0].wake_at == wake_at  # not an hour from then

    clock.advance(HOUR / 2)
    assert (await sleeper.resume("r")).answer == "FIRSTSECOND"
    assert kinds(parts, "r").count("sleep_set") == 1
    assert clock.slept == []


async def test_the_last_minute_of_a_long_sleep_passes_in_place() -> None:
    clock = FakeClock()
    sleeper = engine(runtime(clock), naps(HOUR))
    await sleeper.run("Go.", run_id="r")
    clock.advance(HOUR - 20)

    assert (await sleeper.resume("r")).answer == "FIRSTSECOND"
    assert clock.slept == [20]


async def test_until_names_a_wall_time() -> None:
    clock = FakeClock()
    tomorrow = datetime.fromtimestamp(clock.wall(), UTC) + timedelta(days=1)

    async def body(run: Run) -> object:
        await run.sleep(until=tomorrow)
        return run.now().isoformat()

    sleeper = engine(runtime(clock), body)
    assert ending(await sleeper.run("Go.", run_id="r")) == ("suspended", "sleeping")
    clock.advance(86_400)
    assert (await sleeper.resume("r")).answer == tomorrow.isoformat()


async def test_a_time_that_has_passed_takes_no_time() -> None:
    clock = FakeClock()

    async def body(run: Run) -> object:
        await run.sleep(until=datetime(2000, 1, 1, tzinfo=UTC))
        await run.sleep(0)
        await run.sleep(timedelta(0))
        return "done"

    assert (await engine(runtime(clock), body).run("Go.")).answer == "done"
    assert clock.slept == []


async def test_sleeping_takes_no_active_time() -> None:
    clock = FakeClock()
    limited = engine(runtime(clock, limits=Limits(timeout=5)), naps(50))

    assert (await limited.run("Go.", run_id="r")).answer == "FIRSTSECOND"


@pytest.mark.parametrize("seconds", [30.0, HOUR])
async def test_a_run_that_is_cut_anywhere_wakes_at_the_first_time(
    seconds: float,
) -> None:
    clock, journal = FakeClock(), MemoryJournal()
    sleeper = engine(runtime(clock, journal), naps(seconds))
    result = await sleeper.run("Go.", run_id="r")
    if result.status == "suspended":
        clock.advance(seconds)
        await sleeper.resume("r")
    entries = journal.read("r")
    for keep in range(1, len(entries)):
        cut = crashed(entries, keep)
        again = engine(runtime(clock, cut), naps(seconds))
        result = await again.resume("r")
        if result.status == "suspended":  # it was cut before the time was recorded
            clock.advance(seconds)
            result = await again.resume("r")
        assert result.answer == "FIRSTSECOND", keep
        assert kinds(again.runtime, "r").count("sleep_set") == 1, keep


async def test_a_sleeping_branch_does_not_hold_up_its_siblings() -> None:
    clock = FakeClock()
    parts = runtime(clock)

    async def sleeps(run: Run) -> str:
        await run.sleep(HOUR)
        return await run.ask("slept")

    async def works(run: Run) -> str:
        return await run.ask("worked")

    async def body(run: Run) -> object:
        return " ".join(await run.gather(sleeps, works))

    sleeper = engine(parts, body)
    assert ending(await sleeper.run("Go.", run_id="r")) == ("suspended", "sleeping")
    assert "model_replied" in kinds(parts, "r")
    clock.advance(HOUR)
    assert (await sleeper.resume("r")).answer == "SLEPT WORKED"
    assert kinds(parts, "r").count("model_replied") == 2


async def test_a_question_beside_a_sleeper_waits_with_a_time() -> None:
    clock = FakeClock()
    parts = runtime(clock)

    async def sleeps(run: Run) -> str:
        await run.sleep(HOUR)
        return "slept"

    async def asks(run: Run) -> str:
        return await run.ask_user("Which?")

    async def body(run: Run) -> object:
        return " ".join(await run.gather(sleeps, asks))

    sleeper = engine(parts, body)
    wake_at = clock.wall() + HOUR
    assert (await sleeper.run("Go.", run_id="r")).status == "waiting"
    [info] = parts.journal.runs()
    assert (info.status, info.wake_at) == ("waiting", wake_at)

    clock.advance(HOUR)
    assert (await sleeper.resume("r")).status == "waiting"
    [info] = parts.journal.runs()
    assert info.wake_at == 0  # the branch has slept; only the person is left


async def test_a_sleep_whose_gather_failed_replays() -> None:
    clock, journal = FakeClock(), MemoryJournal()

    async def sleeps(run: Run) -> str:
        await run.sleep(HOUR)
        return await run.ask("never")

    async def fails(run: Run) -> str:
        raise ValueError(await run.ask("no"))

    async def body(run: Run) -> object:
        try:
            await run.gather(sleeps, fails)
        except ValueError as error:
            return str(error) + await run.ask("after")

    assert (await engine(runtime(clock, journal), body).run("Go.", run_id="r")).answer
    entries = journal.read("r")
    gather_end = cut_after(entries, "model_requested", 2)
    clock.advance(2 * HOUR)  # the time has come, and must not wake the branch
    for keep in range(1, len(entries)):
        cut = crashed(entries, keep)
        result = await engine(runtime(clock, cut), body).resume("r")
        assert result.answer == "NOAFTER", keep
        if keep >= gather_end:
            assert [one.kind for one in cut.read("r")].count("model_requested") == 2, (
                keep
            )


async def test_a_child_that_sleeps_suspends_its_parent() -> None:
    clock = FakeClock()
    parts = runtime(clock)
    child = engine(parts, naps(HOUR))

    async def body(run: Run) -> object:
        return (await run.delegate(child, "Go.")).answer

    parent = engine(parts, body)
    assert ending(await parent.run("Go.", run_id="r")) == ("suspended", "sleeping")
    clock.advance(HOUR)
    assert (await parent.resume("r")).answer == "FIRSTSECOND"


async def test_a_worker_wakes_the_run_in_time(tmp_path: Any) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "journal.db")
    parts = runtime(clock, journal, lease=30.0)
    sleeper = engine(parts, naps(HOUR))
    await sleeper.run("Go.", run_id="r")
    worker = Worker(parts, engines=[sleeper])

    assert await worker.drain() == []
    clock.advance(HOUR)
    [result] = await worker.drain()
    assert result.answer == "FIRSTSECOND"
    await journal.close()


@in_virtual_time
async def test_a_stop_ends_a_sleep_in_place() -> None:
    async def body(run: Run) -> object:
        await run.sleep(50)
        return "slept"

    loop = asyncio.get_running_loop()
    clock = HostClock(loop)
    parts = Runtime(ScriptedProvider([]), journal=MemoryJournal(), clock=clock)
    task = asyncio.ensure_future(engine(parts, body).run("Go.", run_id="r"))
    await asyncio.sleep(10)  # now it sleeps
    await parts.control("r").stop()

    assert (await task).status == "aborted"
    assert loop.time() < 20  # a run that had slept would be stopped as well


@pytest.mark.parametrize("command", ["stop", "abort"])
async def test_a_worker_ends_a_sleeping_run_that_is_told_to_stop(
    command: str, tmp_path: Any
) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "journal.db")
    parts = runtime(clock, journal, lease=30.0)
    sleeper = engine(parts, naps(30 * 24 * HOUR))
    await sleeper.run("Go.", run_id="r")
    worker = Worker(parts, engines=[sleeper])
    assert await worker.drain() == []

    await getattr(parts.control("r"), command)()
    [result] = await worker.drain()

    assert result.status == "aborted"
    await journal.close()


async def test_an_answer_that_was_used_wakes_no_sleeping_run(tmp_path: Any) -> None:
    clock = FakeClock()
    journal = SQLiteJournal(tmp_path / "journal.db")
    parts = runtime(clock, journal, lease=30.0)

    async def body(run: Run) -> object:
        which = await run.ask_user("Which?")
        await run.sleep(24 * HOUR)
        return which

    sleeper = engine(parts, body)
    await sleeper.run("Go.", run_id="r")
    await parts.control("r").answer("blue")
    [slept] = await Worker(parts, engines=[sleeper]).drain()
    assert ending(slept) == ("suspended", "sleeping")
    head = len(kinds(parts, "r"))

    for worker in [Worker(parts, engines=[sleeper]) for _ in range(2)]:
        assert [await worker.drain() for _ in range(3)] == [[], [], []]

    assert len(kinds(parts, "r")) == head
    await journal.close()


async def test_a_run_that_sleeps_for_weeks_is_not_taken_for_one_without_a_provider() -> (
    None
):
    clock = FakeClock()
    parts = runtime(clock, lease=30.0)

    async def body(run: Run) -> object:
        for _ in range(20):
            await run.sleep(24 * HOUR)
        return "rested"

    sleeper = engine(parts, body)
    result = await sleeper.run("Go.", run_id="r")
    worker = Worker(parts, engines=[sleeper])
    for _ in range(20):
        assert result.status == "suspended"
        clock.advance(24 * HOUR)
        [result] = await worker.drain()

    assert result.answer == "rested"


async def test_code_that_does_not_sleep_any_more_diverges() -> None:
    clock, journal = FakeClock(), MemoryJournal()
    await engine(runtime(clock, journal), naps(HOUR)).run("Go.", run_id="r")

    async def awake(run: Run) -> object:
        return await run.ask("first") + await run.ask("second")

    with pytest.raises(ReplayDivergence, match="recorded: sleep; now: ask"):
        await engine(runtime(clock, journal), awake).resume("r")


async def test_an_effect_that_had_begun_is_not_taken_for_a_sleep() -> None:
    journal = MemoryJournal()

    async def body(run: Run) -> object:
        return await run.effect("own", lambda: asyncio.sleep(0, "made"), into=str)

    await engine(runtime(FakeClock(), journal), body).run("Go.", run_id="r")
    entries = journal.read("r")
    cut = crashed(entries, cut_after(entries, "effect_started"))

    with pytest.raises(ReplayDivergence, match="recorded: effect own; now: sleep"):
        await engine(runtime(FakeClock(), cut), naps_first).resume("r")


async def naps_first(run: Run) -> object:
    await run.sleep(1)
    return "slept"


@pytest.mark.parametrize(
    ("seconds", "until", "message"),
    [
        (None, None, "sleep: give either seconds or until=, got neither"),
        (1, datetime.now(UTC), "sleep: give either seconds or until=, got both"),
        (-1, None, "seconds: must be a number from 0 to 1e.11, got -1"),
        (float("nan"), None, "seconds: must be a number"),
        (True, None, "seconds: must be a number"),
        ("5", None, "seconds: must be a number from 0 to 1e.11, got '5'"),
        (None, datetime(2030, 1, 1), "until: must be a datetime with a time zone"),  # noqa: DTZ001
        (None, 5, "until: must be a datetime with a time zone, got 5"),
    ],
)
async def test_a_sleep_of_no_length_names_the_field(
    seconds: Any, until: Any, message: str
) -> None:
    journal = MemoryJournal()

    async def body(run: Run) -> object:
        await run.sleep(seconds, until=until)
        return "slept"

    result = await engine(runtime(FakeClock(), journal), body).run("Go.", run_id="r")
    assert isinstance(result.error, ConfigError)
    with pytest.raises(ConfigError, match=message):
        raise result.error
    assert not any(isinstance(one.event, SleepSet) for one in journal.read("r"))


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-12))], ids=str)
async def test_a_sleep_until_the_end_of_the_calendar_can_be_shown(
    zone: tzinfo,
) -> None:
    async def body(run: Run) -> None:
        await run.sleep(until=datetime.max.replace(tzinfo=zone))

    parts = runtime(FakeClock())
    result = await engine(parts, body).run("Go.", run_id="r")

    [sleep] = [e.event for e in parts.journal.read("r") if e.kind == "sleep_set"]
    assert ending(result) == ("suspended", "sleeping")
    assert sleep.summary() == "until 9999-12-31T23:59:59+00:00"


async def test_the_events_say_until_when() -> None:
    clock = FakeClock(wall=1_700_000_000.0)
    parts = runtime(clock)
    await engine(parts, naps(HOUR)).run("Go.", run_id="r")
    events = [entry.event for entry in parts.journal.read("r")]

    [sleep] = [event for event in events if isinstance(event, SleepSet)]
    assert sleep.summary() == "until 2023-11-14T23:13:20+00:00"
    assert isinstance(events[-1], RunSuspended)
    assert events[-1].wake_at == 1_700_003_600.0
