"""World: several processes, a store, models, tools and people in one event loop that a seed decides."""

import asyncio
import contextlib
import contextvars
import dataclasses
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any

from ..._internal.log import capture_logs
from ..._kernel.control.run_control import RunControl
from ...engine import LoopEngine
from ...errors import LoopwrightError
from ...gates.base import Suspend
from ...journals.base import RESUMABLE, RunInfo
from ...journals.memory import MemoryJournal
from ...journals.owner import ACTIVE_TOKENS, Owner
from ...providers.base import Request
from ...result import Result
from ...runtime import Runtime
from ...security.redaction import Redactor
from ...worker import Worker
from ..contracts.models import polite
from .faults import CALM_AT, Faults
from .host import HostClock, SimulatedHost, SimulatedThreads, WorldClock
from .ledger import Ledger, WorldGate
from .loop import HOST, Host, make_loop
from .people import People
from .programs import DrawnEngine, Factory, Program, draw_program
from .services import WorldProvider, WorldTools
from .store import SimulatedJournal, StoreFaults

LEASE = 15.0
HOUR = 3600.0
"""How far the wall clocks of two processes may be apart, and how far one may be set."""
DRIFT = 0.02
"""By how much a second of a process's clock may be wrong."""
DEATH = 0.02
"""The chance that a process dies at a place where it may."""
MAX_DEATHS = 4
SETTLE_SECONDS = 5000.0 + HOUR
"""Virtual seconds in which every run must have ended once nothing goes wrong any more, and each clock is right again."""


class World:
    """One simulated world.

    Args:
        seed: decides everything.
        faults: the kinds of faults that may happen; the seed decides which of them do.
        engine: makes the engine that works in it; `None` lets the seed decide.
        model: what a sensible model says.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults,
        engine: Factory | None = None,
        model: Callable[[Request], Any] = polite,
    ) -> None:
        self.seed, self.model = seed, model
        self.faults = faults.draw(self.source("faults"))
        self.program = draw_program(self.source("program"), engine)
        self._random = self.source("world")
        width = self.source("width").choice((1, 2, 8))
        self.loop = make_loop(self.source("order"), width)
        self.desk = SimulatedHost("people", HostClock(self.loop))
        self.store_clock = WorldClock(self.desk.clock)
        self.store = MemoryJournal(keep_runs=1000, clock=self.store_clock)
        self.ledger = Ledger(self.store)
        if not self.faults.clocks:
            self.ledger.checked_threads = ("put", "send")
        self.hosts: dict[str, SimulatedHost] = {}
        self.journals: list[SimulatedJournal] = []
        self.results: dict[str, Result] = {}
        self.run_ids = [
            f"run-{n}" for n in range(self.source("runs").choice((1, 1, 2)))
        ]
        gate = self.source("gate")
        self._gate = WorldGate(
            self.ledger,
            asks=gate.choice((0.0, 0.0, 0.2)),
            denies=gate.choice((0.0, 0.1)),
        )
        self._on_unknown: Any = self.source("unknown").choice(("tell", "tell", "ask"))
        self.logs: list[Any] = []
        self.is_calm = False
        self.deaths = 0
        self._leased_at: dict[str, float] = {}
        self._leased_before: dict[str, float] = {}
        self._second_at = self.source("versions").uniform(0.0, CALM_AT)
        """When the second release of the code comes out, where versions change."""

    def source(self, name: str) -> random.Random:
        """Return a random source of this seed, whose numbers do not depend on the others'."""
        return random.Random(f"{self.seed}|{name}")  # noqa: S311 - a world must repeat

    def is_faulty(self, kind: str) -> bool:
        """Return whether faults of a kind happen now."""
        return not self.is_calm and getattr(self.faults, kind)

    # --- its life ---

    def run(self) -> None:
        """Live the world to its end; what is logged is kept in `logs`."""
        state = random.getstate()
        random.seed(self.seed)
        with capture_logs(self.logs):
            try:
                self.loop.run_until_complete(self._live())
            finally:
                self.loop.close()
                random.setstate(state)

    async def _live(self) -> None:
        for name in ("one", "two", "three")[: self.source("hosts").choice((1, 2, 3))]:
            self._start_host(name)
        for run_id in self.run_ids:
            await asyncio.sleep(self._random.uniform(0.0, 5.0))
            self._submit(run_id)
        self.spawn(self.desk, People(self).mind_runs())
        if not self.faults.is_none:
            self.spawn(None, self._do_harm())
            await asyncio.sleep(CALM_AT)
        await self._settle()

    async def _settle(self) -> None:
        """Let nothing go wrong any more, and wait until every run has ended."""
        self.is_calm = True
        for journal in self.journals:
            journal.faults = StoreFaults()
        until = self.loop.time() + SETTLE_SECONDS
        while not self.has_ended() and self.loop.time() < until:
            self._restart_dead()
            known = {info.run_id: info for info in self.store.runs()}
            for run_id in self.run_ids:
                if run_id not in known:
                    self._submit(run_id)
            await asyncio.sleep(10.0)

    def has_ended(self) -> bool:
        """Return whether every run has ended."""
        ended = [info for info in self.store.runs() if info.status not in RESUMABLE]
        return len(ended) == len(self.run_ids)

    # --- processes ---

    def _start_host(self, name: str) -> None:
        source = self.source(f"host {name} {len(self.journals)}")
        host = SimulatedHost(name, self._make_clock(name), self._choose_release())
        self.hosts[name] = host
        runtime = self._make_runtime(host, source)
        engine = self._make_engine(runtime, host.release)
        older = [str(release) for release in range(1, host.release)]
        worker = Worker(
            runtime, engines=[engine], poll=1.0, max_concurrency=4, accepts=older
        )
        self.spawn(host, worker.serve())

    def _choose_release(self) -> int:
        """Return the release of the code that starts now: once the second is out, each process gets it."""
        if not self.faults.versions:
            return 1
        return 2 if self.loop.time() > self._second_at else 1

    def _make_clock(self, name: str) -> HostClock:
        source = self.source(f"clock {name}")
        if not self.faults.clocks:
            return HostClock(self.loop)
        return HostClock(
            self.loop,
            offset=source.uniform(-HOUR / 2, HOUR / 2),
            rate=source.uniform(1 - DRIFT, 1 + DRIFT),
            started=source.uniform(0.0, 100_000.0),
            boot_id=name,
        )

    def _make_runtime(self, host: SimulatedHost, source: random.Random) -> Runtime:
        runtime = Runtime(
            WorldProvider(self, source),
            tools=WorldTools(self, source).list_tools(),
            journal=self._connect(host, f"{host.name} {len(self.journals)}"),
            gate=self._gate,
            limits=self.program.limits,
            approver=Suspend(),
            clock=host.clock,
            lease=LEASE,
            on_unknown=self._on_unknown,
            app_version=str(host.release) if self.faults.versions else "",
        )
        threads = SimulatedThreads(source, is_busy=self.is_faulty("pauses"))
        vars(runtime).update(worker_threads=threads)
        return runtime

    def _make_engine(self, runtime: Runtime, release: int) -> Any:
        engine = self.program.engine(runtime)
        if isinstance(engine, DrawnEngine):
            engine = dataclasses.replace(
                engine, effects=self._do_effect, reads=self._read, release=release
            )
        return engine

    async def _do_effect(self, run_id: str, name: str) -> None:
        self.ledger.note_effect(run_id, name)
        await asyncio.sleep(self._random.uniform(0.0, 0.5))

    async def _read(self, run_id: str, name: str) -> str:
        """Return a text that is never the same, and whose characters always have the same sum."""
        number = self.ledger.note_read(run_id, name)
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.3)))
        self.may_die(self._random)
        await asyncio.sleep(0.0)
        return f"{number:05d}{99_999 - number:05d}"

    def _connect(self, host: SimulatedHost, name: str) -> SimulatedJournal:
        faults = StoreFaults()
        if self.is_faulty("store") and host is not self.desk:
            faults = StoreFaults(failures=0.01, latency=0.3)
        source = self.source(f"store {name}")
        journal = SimulatedJournal(
            self.store,
            host,
            faults,
            source,
            self.may_die,
            self.note_claim,
            self.note_lease,
        )
        self.journals.append(journal)
        return journal

    def spawn(
        self, host: SimulatedHost | None, work: Coroutine[Any, Any, None]
    ) -> None:
        """Start work in a process; the loop keeps its task."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        task = self.loop.create_task(work, context=context)
        task.add_done_callback(_read_error)

    def control(self, run_id: str) -> RunControl:
        """Return the control of a run, for people."""
        return RunControl(self.store, Redactor(), run_id, self.desk.clock)

    def note_claim(self, before: RunInfo) -> None:
        """Check that a run which is claimed, as it was before, had no owner at work."""
        leased = self._leased_at.get(before.run_id, -math.inf)
        self._leased_before[before.run_id] = leased
        if before.status != "running" or before.owner is None:
            return
        is_active = Owner.parse(before.owner).token in ACTIVE_TOKENS
        passed = self.loop.time() - leased
        is_leased = passed < LEASE * (1 - 2 * DRIFT)
        if is_active and is_leased:
            self.ledger.problems.append(f"{before.run_id}: taken from {before.owner}")

    def note_lease(self, run_id: str, *, is_returned: bool = False) -> None:
        """Remember since when a run has its lease, by true time: now, or before a claim that was returned."""
        now = self.loop.time()
        self._leased_at[run_id] = self._leased_before[run_id] if is_returned else now

    def may_die(self, source: random.Random) -> None:
        """Kill the process that asks, perhaps."""
        host = HOST.get()
        is_weak = self.is_faulty("crashes") and isinstance(host, SimulatedHost)
        if is_weak and source.random() < DEATH:
            self.kill(host, source)

    def kill(self, host: Host | None, source: random.Random) -> None:
        """Kill a process, unless enough of them have died; others see it at once, or by its lease."""
        if self.deaths < MAX_DEATHS and isinstance(host, SimulatedHost):
            self.deaths += 1
            host.kill(seen=source.random() < 0.5)

    def _submit(self, run_id: str) -> None:
        """Start a run in a process that is alive, if there is one."""
        alive = [host for host in self.hosts.values() if host.is_alive]
        if alive:
            host = self._random.choice(alive)
            self.spawn(host, self._begin(host, run_id))

    async def _begin(self, host: SimulatedHost, run_id: str) -> None:
        runtime = self._make_runtime(
            host, self.source(f"begin {run_id} {len(self.journals)}")
        )
        engine = self._make_engine(runtime, host.release)
        task = f"What is blue? ({run_id})"
        with contextlib.suppress(LoopwrightError):  # another process has the run
            self.results[run_id] = await _start_run(self.program, engine, task, run_id)

    def _restart_dead(self) -> None:
        for name, host in list(self.hosts.items()):
            if not host.is_alive:
                self._start_host(name)

    # --- harm ---

    async def _do_harm(self) -> None:
        source = self.source("harm")
        while not self.is_calm:
            await asyncio.sleep(source.uniform(0.5, 8.0))
            host = source.choice(list(self.hosts.values()))
            chance = source.random()
            if not host.is_alive:
                if chance < 0.7:
                    self._start_host(host.name)
            elif chance < 0.3 and self.is_faulty("crashes"):
                self.kill(host, source)
            elif chance < 0.5 and self.is_faulty("pauses"):
                host.frozen_until = self.loop.time() + source.choice(
                    (0.5, 5.0, 20.0, 40.0)
                )
            elif chance < 0.6 and self.is_faulty("clocks"):
                host.clock.offset = source.uniform(-HOUR / 2, HOUR / 2)


async def _start_run(
    program: Program, engine: LoopEngine, task: str, run_id: str
) -> Result:
    """Run an engine, and watch its replies as they come where the program wants that."""
    if not program.streams:
        return await engine.run(task, run_id=run_id, saga=program.saga)
    started = engine.start(task, run_id=run_id, saga=program.saga, deltas=True)
    async with started as run:
        async for _ in run:
            pass
        return await run.result()


def _read_error(task: asyncio.Task[None]) -> None:
    """Hand what ended a task to the loop, which keeps it for the checks."""
    if task.cancelled() or task.exception() is None:
        return
    context = {"message": "a process failed", "exception": task.exception()}
    task.get_loop().call_exception_handler(context)
