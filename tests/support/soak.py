"""A host under load for hours: fifty runs at once of all engines, one call in twenty fails, and a report of it all.

It is a process of its own, so that what a test suite holds does not count: `python soak.py FOLDER SECONDS STRETCHES`
prints a `Sample` each second, so that it need not hold them, and a `Report` in the end. Model, tools, gate, approver
and callers draw what goes wrong from one seeded source, so each process meets the same faults in the same order; which
run gets which follows the machine's timing.
"""

import asyncio
import contextlib
import dataclasses
import gc
import importlib
import itertools
import logging
import pkgutil
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import structlog
from pydantic import TypeAdapter

import loopwright
from gauges import Rest, Sample
from loopwright import (
    Entry,
    Journal,
    Limits,
    LoopEngine,
    MemoryJournal,
    Result,
    Runtime,
    Suspend,
    ToolRegistry,
    available_engines,
)
from loopwright.errors import ConfigError, JournalError, UnknownRun
from loopwright.events import GateDecided
from loopwright.events.effect_key import EffectKey
from loopwright.events.entry import EVENT_TYPES, decode_event
from loopwright.journals import SQLiteJournal
from loopwright.journals.owner import ACTIVE_TOKENS
from loopwright.resilience import CircuitBreakers
from loopwright.testing import ScriptedProvider
from needed_options import NEEDED
from random_faults import LATENCY, Moody, Ran, Trouble, Unsteady, person, tools_in

AT_ONCE = 50
KEPT = 300  # finished runs that the journal in memory keeps
RUNS_A_STRETCH = 700  # at least, however slow the machine: what is made once for each kind of call is made in the first
SEED = 20_260
THREADS = (
    24  # of the pool for tools, which keeps idle ones: each rest begins with as many
)
PATIENCE = 60.0  # seconds for what was left behind to come to its end
LIMITS = Limits(timeout=3.0, tool_timeout=0.1, max_llm_calls=40)
ENGINES = sorted(available_engines())
ENDED = ("completed", "failed", "limit", "stuck", "aborted")


@dataclasses.dataclass
class Report:
    """What a soak saw.

    Args:
        samples: a look each second at the process under load.
        rests: looks at the process when all runs had ended: after the warm-up, and after each stretch of work.
        endings: runs by how they ended: the engine's name, the status and the stop reason.
        faults: faults by kind.
        breaks: what must not be: broken promises of single runs, errors that nobody caught.
        registries: what each registry of the runtime in memory holds, at each rest.
    """

    samples: list[Sample] = dataclasses.field(default_factory=list)
    rests: list[Rest] = dataclasses.field(default_factory=list)
    endings: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    breaks: list[str] = dataclasses.field(default_factory=list)
    registries: list[dict[str, int]] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> "Report":
        """What a process printed."""
        *samples, report = text.splitlines()
        return dataclasses.replace(
            REPORT.validate_json(report),
            samples=[SAMPLE.validate_json(s) for s in samples],
        )


REPORT, SAMPLE = TypeAdapter(Report), TypeAdapter(Sample)


class Place:
    """A journal, and two runtimes on it: one where a person is asked, one where runs wait for a decision."""

    def __init__(
        self, journal: Journal, trouble: Trouble, breakers: CircuitBreakers
    ) -> None:
        self.journal, self.trouble = journal, trouble
        self.runtime, self.patient = (
            Runtime(
                Unsteady(trouble), tools=tools_in(trouble), journal=journal, gate=Moody(trouble), limits=LIMITS,
                approver=approver, breakers=breakers,
            )
            for approver in (person(trouble), Suspend())
        )  # fmt: skip

    async def run(self, how: str, number: int) -> tuple[str, Result]:
        """A run from its beginning to its end, watched, left, stopped or interrupted on the way."""
        name = self.trouble.source.choice(ENGINES)
        engine = self.runtime.engine(name, **NEEDED.get(name, {}))
        ran: Ran = []
        run_id = f"{how}-{number}"
        result: Result | None = await getattr(self, f"_{how}")(engine, run_id, ran)
        for _ in range(
            50
        ):  # what was interrupted or waits is taken up until it has ended
            if result is not None and result.status != "waiting":
                break
            try:
                result = await self.runtime.resume(run_id, deps=ran)
            except UnknownRun:  # it was interrupted before the journal had heard of it
                result = await engine.run("Which colour?", run_id=run_id, deps=ran)
        if result is None:
            raise AssertionError(f"{run_id} came to no end")
        await self.check(result, ran)
        return engine.name, result

    async def _waits(self, engine: LoopEngine, run_id: str, ran: Ran) -> Result:
        return await engine.run("Which colour?", run_id=run_id, deps=ran)

    async def _watches(self, engine: LoopEngine, run_id: str, ran: Ran) -> Result:
        async with engine.start(
            "Which colour?", run_id=run_id, deps=ran, deltas=True
        ) as handle:
            async for _ in handle:
                pass
            return await handle.result()

    async def _leaves(self, engine: LoopEngine, run_id: str, ran: Ran) -> Result:
        until = self.trouble.source.randrange(1, 30)
        async with engine.start(
            "Which colour?", run_id=run_id, deps=ran, deltas=True
        ) as handle:
            async for _ in handle:
                until -= 1
                if not until:
                    break
        return await handle.result()

    async def _aborts(self, engine: LoopEngine, run_id: str, ran: Ran) -> Result:
        async with engine.start("Which colour?", run_id=run_id, deps=ran) as handle:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self.trouble.source.uniform(0, 10 * LATENCY)
                ):
                    async for _ in handle:
                        pass
            return await handle.abort()

    async def _is_cancelled(
        self, engine: LoopEngine, run_id: str, ran: Ran
    ) -> Result | None:
        task = asyncio.ensure_future(self._waits(engine, run_id, ran))
        await asyncio.wait(
            (task,), timeout=self.trouble.source.uniform(0, 10 * LATENCY)
        )
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return None

    async def _asks(self, engine: LoopEngine, run_id: str, ran: Ran) -> Result:
        options = NEEDED.get(engine.name, {})
        patient = self.patient.engine(engine.name, **options)
        return await self._waits(patient, run_id, ran)

    async def check(self, result: Result, ran: Ran) -> None:
        """What holds for every run that has ended."""
        run_id = result.run_id
        if isinstance(self.journal, MemoryJournal):
            entries, found = (
                self.journal.read(run_id),
                self.journal.verify(run_id, result.head_hash),
            )
        else:
            entries = await asyncio.to_thread(self.journal.read, run_id)
            found = await asyncio.to_thread(
                self.journal.verify, run_id, result.head_hash
            )
        closings = [entry.seq for entry in entries if entry.kind == "run_finished"]
        allowed = {entry.key for entry in entries if _allows(entry)}
        sent = Counter(key for place, key in ran if _tool_at(entries, place) == "send")
        broken = {
            "no status": result.status not in ENDED,
            "an error of no type": (result.error is None)
            != (result.status == "completed"),
            "not one closing entry": closings != [len(entries)],
            f"not verified ({found.problem})": not found.ok,
            "a call without leave": not {place for place, _ in ran} <= allowed,
            "a side effect twice": any(times > 1 for times in sent.values()),
        }
        if any(broken.values()):
            said = ", ".join(name for name, is_so in broken.items() if is_so)
            raise AssertionError(f"{run_id}: {said}: {result}")


def _allows(entry: Entry) -> bool:
    return isinstance(entry.event, GateDecided) and entry.event.verdict in (
        "allow",
        "modify",
    )


def _tool_at(entries: list[Entry], place: str) -> str:
    return next(
        (
            e.event.tool
            for e in entries
            if e.key == place and isinstance(e.event, GateDecided)
        ),
        "",
    )


HABITS = {
    "waits": 12,
    "watches": 4,
    "leaves": 1,
    "aborts": 1,
    "is_cancelled": 2,
    "asks": 2,
}  # of callers, by frequency


class Soak:
    """Keeps fifty runs at work, half of them on a journal in memory, half on a file that is new after each rest."""

    def __init__(self, folder: Path) -> None:
        self.report, self.trouble, self.ended = Report(), Trouble(SEED), 0
        self.report.faults = self.trouble.counts
        self._folder, self._numbers, self._began = (
            folder,
            itertools.count(1),
            time.monotonic(),
        )
        self._breakers = CircuitBreakers(threshold=5, open_seconds=0.3)
        self._in_memory = Place(
            MemoryJournal(keep_runs=KEPT), self.trouble, self._breakers
        )
        self._stopped = True

    async def run(self, seconds: float, stretches: int) -> None:
        """Work in stretches of equal length, longer where it is slow, with a rest after each; the first is the warm-up."""
        for _ in range(stretches):
            await self._stretch(seconds / stretches)
            await self._rest()

    async def _stretch(self, seconds: float) -> None:
        until, enough = time.monotonic() + seconds, self.ended + RUNS_A_STRETCH
        path = self._folder / f"runs-{self.ended}.db"
        on_file = Place(SQLiteJournal(path), self.trouble, self._breakers)
        self._stopped = False
        async with on_file.runtime, on_file.patient:
            workers = [
                asyncio.ensure_future(self._work((self._in_memory, on_file)[n % 2]))
                for n in range(AT_ONCE)
            ]
            while (left := until - time.monotonic()) > 0 or self.ended < enough:
                await asyncio.sleep(min(left, 1.0) if left > 0 else 0.1)
                print(
                    SAMPLE.dump_json(
                        Sample.now(time.monotonic() - self._began)
                    ).decode(),
                    flush=True,
                )
            self._stopped = True
            await asyncio.gather(*workers)
        await on_file.journal.close()
        for file in self._folder.glob(f"{path.name}*"):
            file.unlink()

    async def _work(self, place: Place) -> None:
        """One run after the other."""
        while not self._stopped:
            (habit,) = self.trouble.source.choices(list(HABITS), list(HABITS.values()))
            try:
                name, result = await place.run(habit, next(self._numbers))
            except Exception:  # noqa: BLE001 - what a caller must never see is what this is about
                self.broke(traceback.format_exc())
                await asyncio.sleep(
                    LATENCY
                )  # what breaks at once must not keep the rest from their work
                continue
            ending = f"{name} {result.status} {result.stop_reason}"
            self.report.endings[ending] += 1
            self.ended += 1
            if result.status == "failed":  # a caller comes back after a while
                await asyncio.sleep(4 * LATENCY)

    async def _rest(self) -> None:
        """Wait for what was left behind, make what is kept the same each time, and look."""
        threads = self._in_memory.runtime.worker_threads
        for _ in range(int(PATIENCE / 0.05)):
            if len(asyncio.all_tasks()) == 1 and not threads.abandoned:
                break
            await asyncio.sleep(0.05)  # nobody tells when the last of them has ended
        EffectKey.parse.cache_clear()  # a bounded cache that is still filling is no leak
        plain = Runtime(
            ScriptedProvider(lambda request: "blue"), journal=self._in_memory.journal
        )
        for _ in range(KEPT):
            await plain.engine("react").run("Which colour?")
        del plain
        runtime = self._in_memory.runtime
        met = threading.Barrier(THREADS)
        await asyncio.gather(
            *(runtime.worker_threads.run(met.wait) for _ in range(THREADS))
        )
        self.report.registries.append({
            "runs kept": len(self._in_memory.journal.runs()), "at work": len(ACTIVE_TOKENS),
            "setups": len(runtime.setups), "retry budgets": len(runtime.retry_budgets),
        })  # fmt: skip
        self.report.rests.append(Rest.now(self.ended, "loopwright"))

    def broke(self, what: str) -> None:
        """Note what must not be; the first ones say enough."""
        if len(self.report.breaks) < 20:
            self.report.breaks.append(what)


def load_all() -> None:
    """Load and compile what waits for its first use, which would count as what stays of a run."""
    tools = ToolRegistry(tools_in(Trouble(SEED)))
    assert tools.find_problem("look", {"what": 1})  # jsonschema is loaded for it
    for kind in EVENT_TYPES:
        with contextlib.suppress(JournalError):  # of most an empty body is none
            decode_event(kind, b"{}")
    for found in pkgutil.walk_packages(loopwright.__path__, "loopwright."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ConfigError, ImportError):  # of an extra
                importlib.import_module(found.name)
    for kind in [one for one in gc.get_objects() if isinstance(one, type)]:
        if kind.__module__.startswith("loopwright."):
            _ = kind.__init__  # compiled when it is first asked for


def main(folder: str, seconds: str, stretches: str) -> None:
    """Soak for so many seconds, and print the report."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )
    load_all()
    soak = Soak(Path(folder))
    sys.unraisablehook = lambda found: soak.broke(
        f"unraisable: {found.exc_value!r} in {found.object!r}"
    )
    threading.excepthook = lambda found: soak.broke(f"in a thread: {found.exc_value!r}")

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, about: soak.broke(f"in the loop: {about!r}")
        )
        await soak.run(float(seconds), int(stretches))

    asyncio.run(work())
    print(REPORT.dump_json(soak.report).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
