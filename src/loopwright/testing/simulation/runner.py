"""simulate: run an engine in many simulated worlds, each decided by its seed."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..._internal import dataclasses
from ...engine import LoopEngine
from ...events.run import RunResumed, RunStarted
from ...providers.base import Request
from ...runtime import Runtime
from ..contracts.models import polite
from .checks import find_differences, find_problems
from .faults import ALL_FAULTS, NO_FAULTS, Faults
from .world import World


class SimulationFailed(AssertionError):
    """A world broke a promise; `seed` lives it again."""

    def __init__(self, seed: int, faults: str, problems: list[str]) -> None:
        self.seed, self.problems = seed, tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(
            f"seed {seed} (faults: {faults}):\n{lines}\n"
            f"live it again with simulate(..., seeds=[{seed}])"
        )


@dataclasses.dataclass(frozen=True)
class SimulationReport:
    """What was simulated: worlds, runs, processes that were started, entries, seconds, and each world's trace."""

    worlds: int = 0
    runs: int = 0
    resumes: int = 0
    entries: int = 0
    seconds: float = 0.0
    trace: str = ""
    """A hash of all that happened; the same seeds give the same."""

    def __add__(self, other: "SimulationReport") -> "SimulationReport":
        """Return the report of both."""
        return SimulationReport(
            self.worlds + other.worlds,
            self.runs + other.runs,
            self.resumes + other.resumes,
            self.entries + other.entries,
            self.seconds + other.seconds,
            hashlib.sha256(f"{self.trace}{other.trace}".encode()).hexdigest(),
        )


def simulate(
    engine: Callable[[Runtime], LoopEngine] | None = None,
    *,
    seeds: int | Iterable[int] = 1000,
    faults: Faults = ALL_FAULTS,
    model: Callable[[Request], Any] = polite,
) -> SimulationReport:
    """Run an engine in simulated worlds; raise `SimulationFailed` for the first that breaks a promise.

    Args:
        engine: makes the engine of a runtime, in every process that works on a run; `None` draws random programs of
            all verbs, and the built-in engines.
        seeds: how many worlds, or which ones.
        faults: the kinds of faults that may happen.
        model: what a sensible model says; some worlds have a model that says anything.
    """
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    lived = live_each(chosen, engine, faults, model)
    return sum((report for _, report in lived), SimulationReport())


def live_each(
    seeds: Iterable[int],
    engine: Callable[[Runtime], LoopEngine] | None = None,
    faults: Faults = ALL_FAULTS,
    model: Callable[[Request], Any] = polite,
) -> Iterator[tuple[World, SimulationReport]]:
    """Live worlds one after the other, as `simulate` does; yield each with the report of it."""
    for seed in seeds:
        began = time.monotonic()
        world = live(seed, engine, faults, model)
        yield world, _report(world, time.monotonic() - began)


def _report(world: World, seconds: float) -> SimulationReport:
    entries = [entry for run_id in world.run_ids for entry in world.store.read(run_id)]
    resumes = sum(isinstance(entry.event, RunResumed) for entry in entries)
    trace = hashlib.sha256(read_trace(world).encode()).hexdigest()
    return SimulationReport(
        1, len(world.run_ids), resumes, len(entries), seconds, trace
    )


def live(
    seed: int,
    engine: Callable[[Runtime], LoopEngine] | None = None,
    faults: Faults = ALL_FAULTS,
    model: Callable[[Request], Any] = polite,
) -> World:
    """Live one world, and check it; raise `SimulationFailed`."""
    world = _make_world(seed, engine, faults, model)
    problems = _live(world)
    if not problems and world.faults.keeps_answers and not world.faults.is_none:
        calm = _make_world(seed, engine, NO_FAULTS, model)
        problems = _live(calm) or find_differences(world, calm)
    if problems:
        raise SimulationFailed(seed, world.faults.describe(), problems)
    return world


def _make_world(
    seed: int,
    engine: Callable[[Runtime], LoopEngine] | None,
    faults: Faults,
    model: Callable[[Request], Any],
) -> World:
    return World(seed, faults, engine, model)


def _live(world: World) -> list[str]:
    """Live a world, and return what is wrong with it."""
    try:
        world.run()
    except RuntimeError as error:
        return [f"the world stopped: {error}", *world.ledger.problems]
    return find_problems(world)


def read_trace(world: World) -> str:
    """Return all that happened in a world as a text; owners' tokens are left out, which no seed decides."""
    lines = [f"{world.seed} {world.loop.steps} {world.loop.time()!r}"]
    for run_id in world.run_ids:
        for entry in world.store.read(run_id):
            is_named = isinstance(entry.event, (RunStarted, RunResumed))
            body = "" if is_named else entry.payload.decode()
            lines.append(
                f"{run_id} {entry.seq} {entry.key} {entry.kind} {entry.at!r} {body}"
            )
    lines += [str(one) for one in world.ledger.executions]
    return "\n".join(lines)
