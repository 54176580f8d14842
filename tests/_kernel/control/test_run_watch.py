"""`runtime.attach`: a run is watched wherever it is at work, without a gap and without an entry twice."""

import asyncio
import contextlib
import gc
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from held_tool import HeldTool
from loopwright import (
    AllowAll,
    Completion,
    ConfigError,
    Delta,
    Entry,
    Fenced,
    LoopEngine,
    MemoryJournal,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    tool,
)
from loopwright._kernel.control import run_feeds
from loopwright._kernel.control.journal_poller import INTERVAL
from loopwright.errors import UnknownRun
from loopwright.events import ModelReplied
from loopwright.journals import Journal, SQLiteJournal
from loopwright.testing import ScriptedProvider, call
from waiting import eventually

WORDS = ("Once ", "upon ", "a ", "time.")


@tool(effect="read")
async def look(step: int) -> str:
    """Look."""
    return f"step {step}"


@tool(effect="destructive")
async def wipe() -> str:
    """Wipe."""
    return "wiped"


def steps(count: int) -> Callable[[Request], Any]:
    """A model that looks so many times, and answers."""

    def model(request: Request) -> Any:
        done = sum(message.role == "tool" for message in request.conversation)
        return call("look", step=done) if done < count else "done"

    return model


def looking(journal: Journal, count: int = 3) -> Runtime:
    return Runtime(ScriptedProvider(steps(count)), tools=[look], journal=journal)


async def numbers(watch: Any) -> list[int]:
    return [entry.seq async for entry in watch]


class Speaker:
    """A provider that speaks word by word: the first, and then each when the test lets it."""

    name, model = "speaker", "speaker"
    capabilities = ScriptedProvider([]).capabilities

    def __init__(self) -> None:
        self.go = asyncio.Semaphore(0)
        self.streamed = 0

    async def complete(self, request: Request) -> Completion:
        text = "".join(WORDS)
        return Completion(text, answer=text)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.streamed += 1
        for word in WORDS:
            yield Delta(word)
            await self.go.acquire()
        yield Delta(completion=await self.complete(request))


@pytest.fixture(autouse=True)
def told_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers learn what they are told; they do not look by themselves after a silence."""
    monkeypatch.setattr(run_feeds, "MAX_SILENCE", 1_000)


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: Any, tmp_path: Path) -> AsyncIterator[Journal]:
    made: Journal = MemoryJournal()
    if request.param == "sqlite":
        made = SQLiteJournal(tmp_path / "runs.db")
    yield made
    await made.close()


async def test_a_run_that_has_ended_is_watched_from_any_entry(journal: Journal) -> None:
    runtime = looking(journal)
    await ReActEngine(runtime).run("Go.", run_id="r")
    count = len(journal.read("r"))

    assert [e async for e in runtime.attach("r")] == journal.read("r")
    for after in range(count + 1):
        watched = await numbers(runtime.attach("r", after=after))
        assert watched == list(range(after + 1, count + 1))


async def test_a_run_at_work_is_watched_to_its_end(journal: Journal) -> None:
    held = HeldTool()
    script = [call("hold", what="it"), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=held.tools(), journal=journal)
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        early = asyncio.ensure_future(numbers(runtime.attach("r")))
        late = asyncio.ensure_future(numbers(runtime.attach("r", after=3)))
        await asyncio.sleep(0.05)
        assert not early.done()
        held.go.set()
        await run.result()
        count = len(journal.read("r"))

        assert await early == list(range(1, count + 1))
        assert await late == list(range(4, count + 1))


async def test_a_run_is_watched_as_soon_as_it_is_started(journal: Journal) -> None:
    runtime = looking(journal)
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        watched = await numbers(runtime.attach("r"))
        await run.result()

    assert watched == list(range(1, len(journal.read("r")) + 1))


async def test_a_run_whose_id_is_taken_gives_its_watcher_the_first_one(
    journal: Journal,
) -> None:
    runtime = looking(journal)
    await ReActEngine(runtime).run("Go.", run_id="r")
    recorded = journal.read("r")
    # Memory refuses the second one where it is created.
    watched: list[Entry] = []

    async def begin_another() -> None:
        async with ReActEngine(runtime).start("Other.", run_id="r") as run:
            watched.extend([entry async for entry in runtime.attach("r")])
            await run.result()

    with pytest.raises(ConfigError, match="exists already"):
        await begin_another()
    assert watched in ([], recorded)


class Undurable(MemoryJournal):
    """A journal whose barriers wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Any] = []
        self.durable, self.waits = asyncio.Event(), False

    def append(self, claim: Any, entries: Any, *, status: str | None = None) -> None:
        if self.waits:
            self.held.append((claim, list(entries), status))
        else:
            super().append(claim, entries, status=status)

    async def barrier(self, claim: Any) -> None:
        if self.waits:
            await self.durable.wait()
            self.waits = False
            for held, entries, status in self.held:
                super().append(held, entries, status=status)
        await super().barrier(claim)


async def test_an_entry_is_not_shown_before_it_is_durable() -> None:
    journal = Undurable()
    runtime = looking(journal)
    shown: list[int] = []

    async def watch() -> None:
        async for entry in runtime.attach("r"):
            shown.append(entry.seq)

    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        async for entry in run:
            if entry.kind == "model_replied":
                break
        durable = len(journal.read("r"))
        journal.waits = True
        watching = asyncio.ensure_future(watch())
        await eventually(lambda: len(shown) == durable)
        await asyncio.sleep(0.3)
        assert len(shown) == durable  # the reply is recorded, and in no journal yet
        journal.durable.set()
        await run.result()
        await watching

    assert shown == list(range(1, len(journal.read("r")) + 1))


async def test_a_watch_goes_on_while_the_run_waits_for_a_person(
    journal: Journal,
) -> None:
    script = [call("wipe"), "wiped it"]
    runtime = Runtime(
        ScriptedProvider(script), tools=[wipe], journal=journal, approver=Suspend()
    )
    engine = ReActEngine(runtime)
    watch = runtime.attach("r")
    waiting = await engine.run("Wipe.", run_id="r")
    seen = [await anext(watch) for _ in range(len(journal.read("r")))]
    assert seen[-1].kind == "run_suspended"

    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await runtime.control("r").approve(waiting.pending[0].key)
    await engine.resume("r")
    rest = [await following, *[entry async for entry in watch]]

    assert [*seen, *rest] == journal.read("r")


async def test_a_run_of_another_process_is_watched(tmp_path: Path) -> None:
    ours, theirs = SQLiteJournal(tmp_path / "r.db"), SQLiteJournal(tmp_path / "r.db")
    held = HeldTool()
    script = [call("hold", what="it"), "done"]
    there = Runtime(ScriptedProvider(script), tools=held.tools(), journal=theirs)
    here = looking(ours)
    async with ReActEngine(there).start("Go.", run_id="r") as run:
        await held.reached.wait()
        watching = asyncio.ensure_future(numbers(here.attach("r", after=1)))
        await asyncio.sleep(0.05)
        held.go.set()
        await run.result()

        assert await watching == list(range(2, len(theirs.read("r")) + 1))
    await ours.close()
    await theirs.close()


async def test_a_watcher_in_another_event_loop_sees_the_same(journal: Journal) -> None:
    held = HeldTool()
    script = [call("hold", what="it"), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=held.tools(), journal=journal)
    seen: list[int] = []

    def watch() -> None:
        seen.extend(asyncio.run(numbers(runtime.attach("r", after=1))))

    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        thread = threading.Thread(target=watch)
        thread.start()
        await asyncio.sleep(0.1)
        held.go.set()
        await run.result()
        await asyncio.to_thread(thread.join, 60)

    assert seen == list(range(2, len(journal.read("r")) + 1))


async def test_a_watcher_gets_the_words_of_the_reply_that_is_in_progress() -> None:
    speaker = Speaker()
    runtime = Runtime(speaker)
    engine = ReActEngine(runtime)
    async with engine.start(
        "Speak.", run_id="r", deltas=True, on_disconnect="continue"
    ) as run:
        await eventually(lambda: speaker.streamed)
        speaker.go.release()
        await asyncio.sleep(0.01)
        watch = runtime.attach("r", deltas=True)
        first = [await anext(watch) for _ in range(4)]
        for _ in WORDS:
            speaker.go.release()
        rest = [item async for item in watch]
        await run.result()

    items = [*first, *rest]
    texts = [item.text for item in items if isinstance(item, Delta)]
    entries = [item for item in items if isinstance(item, Entry)]
    assert texts == [*WORDS]  # the last one with the whole reply
    assert entries == runtime.journal.read("r")
    places = [
        isinstance(item, Delta) or isinstance(item.event, ModelReplied)
        for item in items
    ]
    assert sum(places) == len(WORDS) + 1
    assert "".join("x" if place else "." for place in places).strip(".") == "xxxxx"


async def test_a_run_that_nobody_watches_streams_for_those_who_come_later() -> None:
    speaker = Speaker()
    runtime = Runtime(speaker)
    async with ReActEngine(runtime).start(
        "Speak.", run_id="r", deltas=True, on_disconnect="continue"
    ):
        pass
    for _ in WORDS:
        speaker.go.release()
    await runtime.drain()

    assert speaker.streamed == 1
    assert runtime.journal.runs()[0].status == "completed"


async def test_an_interrupted_wait_for_the_next_entry_loses_nothing(
    journal: Journal,
) -> None:
    held = HeldTool()
    script = [call("hold", what="it"), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=held.tools(), journal=journal)
    seen: list[int] = []
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        watch = runtime.attach("r")
        for pause in range(200):
            try:
                entry = await asyncio.wait_for(anext(watch), pause / 20_000)
                seen.append(entry.seq)
            except TimeoutError:
                pass
            except StopAsyncIteration:
                break
            if pause == 100:
                held.go.set()
        seen += await numbers(watch)
        await run.result()

    assert seen == list(range(1, len(journal.read("r")) + 1))


async def test_an_interrupted_read_is_made_again(journal: Journal) -> None:
    runtime = looking(journal)
    await ReActEngine(runtime).run("Go.", run_id="r")
    watch = runtime.attach("r")
    reading = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait((reading,))
    runtime.feeds.poller.discard(watch._subscribe())  # nothing is told any more

    assert [entry async for entry in watch] == journal.read("r")


async def two_processes(path: Path, held: HeldTool) -> tuple[Runtime, Runtime]:
    """Two runtimes on one file; in the first one a tool holds the run."""
    script = [call("hold", what="it"), "done"]
    tools = held.tools()
    ours, theirs = SQLiteJournal(path), SQLiteJournal(path)
    here = Runtime(ScriptedProvider(script), tools=tools, journal=ours)
    open_tool = HeldTool()
    open_tool.go.set()
    there = Runtime(ScriptedProvider(["done"]), tools=open_tool.tools(), journal=theirs)
    return here, there


async def test_entries_that_were_not_told_are_read(tmp_path: Path) -> None:
    here, there = await two_processes(tmp_path / "r.db", HeldTool())
    async with ReActEngine(here).start("Go.", run_id="r") as run:
        async for entry in run:
            if entry.kind == "tool_started":
                break
        await run.suspend()
    watch = here.attach("r")
    here.feeds.poller.discard(watch._subscribe())
    seen = [await anext(watch) for _ in range(len(here.journal.read("r")))]
    await ReActEngine(there).resume("r")
    recorded = here.journal.read("r")
    here.feeds.open("r").publish(recorded[-1:])  # the one before was not told
    seen += [entry async for entry in watch]

    assert seen == recorded
    await here.journal.close()
    await there.journal.close()


async def test_a_run_that_another_process_took_over_is_watched_to_its_end(
    tmp_path: Path,
) -> None:
    held = HeldTool()
    here, there = await two_processes(tmp_path / "r.db", held)
    engine = ReActEngine(here)
    working = asyncio.ensure_future(engine.run("Go.", run_id="r"))
    await held.reached.wait()
    watching = asyncio.ensure_future(numbers(here.attach("r")))
    await asyncio.sleep(2 * INTERVAL)
    await ReActEngine(there).resume("r", take_over=True)
    await asyncio.sleep(2 * INTERVAL)  # the news is no news while it is at work here
    held.go.set()
    with pytest.raises(Fenced):
        await working

    assert await watching == list(range(1, len(there.journal.read("r")) + 1))
    await here.journal.close()
    await there.journal.close()


class SlowReader(MemoryJournal):
    """A journal whose reads wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go = threading.Event(), threading.Event()
        self.go.set()

    def read(self, run_id: str, **options: Any) -> list[Entry]:
        self.reading.set()
        self.go.wait(60)
        return super().read(run_id, **options)


async def test_the_words_of_a_reply_that_was_read_meanwhile_are_left_out() -> None:
    speaker, journal = Speaker(), SlowReader()
    runtime = Runtime(speaker, journal=journal)
    async with Twice(runtime).start("Speak.", run_id="r", deltas=True) as run:
        await eventually(lambda: speaker.streamed)
        journal.go.clear()
        journal.reading.clear()
        watch = runtime.attach("r", deltas=True)
        first = asyncio.ensure_future(anext(watch))
        await asyncio.to_thread(journal.reading.wait, 60)
        for _ in WORDS:
            speaker.go.release()
        await eventually(lambda: speaker.streamed == 2)
        journal.go.set()
        items = [await first, *[await anext(watch) for _ in range(4)]]
        for _ in WORDS:
            speaker.go.release()
        items += [item async for item in watch]
        await run.result()

    assert [item for item in items if isinstance(item, Entry)] == journal.read("r")
    keys = [item.key for item in items if isinstance(item, Delta)]
    assert keys == ["1"] * len(WORDS)


class Twice(LoopEngine):
    """Asks two questions."""

    name = "twice"

    async def solve(self, run: Run) -> str:
        await run.ask("First?")
        return await run.ask("Second?")


async def test_a_dropped_watch_is_forgotten() -> None:
    held = HeldTool()
    script = [call("hold", what="it"), "done"]
    runtime = Runtime(ScriptedProvider(script), tools=held.tools())
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        async for _ in runtime.attach("r", deltas=True):
            break
        gc.collect()
        await asyncio.sleep(0)
        feed = runtime.feeds.open("r")
        assert feed.subscriptions == []
        assert feed.delta_watchers == []
        assert runtime.feeds.poller._pollers == {}
        held.go.set()
        await run.result()


async def test_a_watch_that_was_closed_ends() -> None:
    held = HeldTool()
    runtime = Runtime(ScriptedProvider([call("hold", what="it")]), tools=held.tools())
    async with ReActEngine(runtime).start("Go.", run_id="r"):
        async with runtime.attach("r") as watch:
            assert watch.run_id == "r"
            assert (await anext(watch)).seq == 1

        assert await numbers(watch) == []


async def test_a_deleted_run_ends_its_watch_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_feeds, "MAX_SILENCE", 0.1)
    journal = SQLiteJournal(tmp_path / "r.db")
    runtime = Runtime(
        ScriptedProvider([call("wipe")]),
        tools=[wipe],
        journal=journal,
        approver=Suspend(),
    )
    await ReActEngine(runtime).run("Wipe.", run_id="r")
    watch = runtime.attach("r", after=len(journal.read("r")))
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(4 * INTERVAL)  # until nothing is new to the poller
    await journal.delete("r")

    with pytest.raises(UnknownRun, match="'r'"):
        await waiting
    await watch.aclose()
    await journal.close()


class ReadsAll:
    """A journal of the bare port: it reads runs as a whole and has no marks."""

    def __init__(self) -> None:
        self._journal = MemoryJournal()

    def read(self, run_id: str) -> list[Entry]:
        return self._journal.read(run_id)

    def __getattr__(self, name: str) -> Any:
        if name in ("head_mark", "news", "inbox_mark"):
            raise AttributeError(name)
        return getattr(self._journal, name)


async def test_a_journal_without_ranges_and_marks_is_watched() -> None:
    journal: Any = ReadsAll()
    there, here = looking(journal), looking(journal)
    await ReActEngine(there).run("Go.", run_id="r")
    count = len(journal.read("r"))

    assert await numbers(here.attach("r", after=count - 2)) == [count - 1, count]


@pytest.mark.parametrize("after", [-1, 1.0, True, "3", None])
async def test_a_place_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(ConfigError, match=r"^after: must be the number of an entry"):
        looking(MemoryJournal()).attach("r", after=after)


async def test_a_place_behind_the_end_is_refused(journal: Journal) -> None:
    runtime = looking(journal)
    await ReActEngine(runtime).run("Go.", run_id="r")
    count = len(journal.read("r"))

    with pytest.raises(
        ConfigError, match=rf"^after: run 'r' has {count} entries, got {count + 1}"
    ):
        await anext(runtime.attach("r", after=count + 1))


async def test_an_unknown_run_is_refused(journal: Journal) -> None:
    runtime = looking(journal)

    with pytest.raises(UnknownRun, match="'gone'"):
        await anext(runtime.attach("gone"))
    with pytest.raises(ConfigError, match="run_id"):
        runtime.attach("no body")


class Wide(LoopEngine):
    """Works in branches, so that entries are recorded while others become durable."""

    name = "wide"
    rounds: int = 10

    async def solve(self, run: Run) -> str:
        for turn in range(self.rounds):
            works = [_work(turn, branch) for branch in range(3)]
            await run.gather(*works)
        return "done"


def _work(turn: int, branch: int) -> Callable[[Run], Any]:
    async def work(run: Run) -> int:
        async def pause() -> int:
            await asyncio.sleep(0.001 * ((turn + branch) % 3))
            return branch

        return await run.effect("pause", pause, into=int)

    return work


CUTS = 1_000


class Watcher:
    """One that watches a run, is cut off anywhere, and continues with the last entry it has seen."""

    def __init__(self, runtime: Runtime, run_id: str, chance: random.Random) -> None:
        self.runtime, self.run_id, self.chance = runtime, run_id, chance
        self.seen: list[Entry] = []
        self.cuts = 0

    async def watch(self) -> list[Entry]:
        while not await self._watch_once():
            self.cuts += 1
        return self.seen

    async def _watch_once(self) -> bool:
        """Watch until the end or a cut; return whether it was the end."""
        stream = self.runtime.attach(self.run_id, after=len(self.seen))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.chance.expovariate(200)):
                async for entry in stream:
                    self.seen.append(entry)
                    if self.chance.random() < 0.1:
                        return False
                return True
        if self.chance.random() < 0.5:
            await stream.aclose()
        return False


@pytest.mark.faults
async def test_a_watcher_that_is_cut_off_1_000_times_misses_nothing(
    tmp_path: Path,
) -> None:
    chance, path = random.Random(7), tmp_path / "r.db"
    ours, theirs = SQLiteJournal(path), SQLiteJournal(path)
    here = Runtime(ScriptedProvider([]), journal=ours, gate=AllowAll())
    there = Runtime(ScriptedProvider([]), journal=theirs, gate=AllowAll())
    cuts = number = 0
    while cuts < CUTS:
        run_id, number = f"r{number}", number + 1
        async with Wide(there).start("Go.", run_id=run_id) as run:
            await anext(there.attach(run_id))
            sides = (there, there, here)  # of the run's process, and of another one
            watchers = [Watcher(side, run_id, chance) for side in sides]
            watched = await asyncio.gather(*(one.watch() for one in watchers))
            await run.result()
        cuts += sum(watcher.cuts for watcher in watchers)

        recorded = theirs.read(run_id)
        assert watched == [recorded] * 3
        assert [entry.seq for entry in recorded] == list(range(1, len(recorded) + 1))
    await ours.close()
    await theirs.close()
