"""Simulated worlds of random programs: what goes wrong is decided by a seed, and no promise may break."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from fault_sizes import figure, sized
from loopwright import ReActEngine
from loopwright.events import PatchDecided, RunResumed
from loopwright.testing import Faults, SimulationFailed, SimulationReport, simulate
from loopwright.testing.simulation.ledger import WorldGate
from loopwright.testing.simulation.runner import live_each
from loopwright.testing.simulation.world import World

SEEDS = sized(2_000, 100_000)
SLICES = 8


PIECE = 250
"""Seeds whose worlds are lived together: a test that needs some of them by itself lives no more, in a long run too."""

Lived: TypeAlias = tuple[SimulationReport, Counter[str]]
"""The report of a world, and how often each kind of entry happened in it."""


@functools.cache
def _live_piece(piece: int) -> list[Lived]:
    """Live the worlds of a piece once for all tests."""
    seeds = range(piece * PIECE, (piece + 1) * PIECE)
    return [(report, _count_kinds(world)) for world, report in live_each(seeds)]


def _live_seeds(seeds: range) -> Iterator[Lived]:
    """Return what was lived with each of the seeds, in turn."""
    return (_live_piece(seed // PIECE)[seed % PIECE] for seed in seeds)


def _count_kinds(world: World) -> Counter[str]:
    found = Counter({"streams": int(world.program.streams)})
    for run_id in world.run_ids:
        for event in (entry.event for entry in world.store.read(run_id)):
            found[type(event).__name__] += 1
            if isinstance(event, PatchDecided):
                found["new code" if event.active else "old code"] += 1
            if isinstance(event, RunResumed) and event.app_version == "2":
                found["resumed by the second release"] += 1
    return found


def _sum_reports(seeds: range) -> SimulationReport:
    reports = (report for report, _ in _live_seeds(seeds))
    return sum(reports, SimulationReport())


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(SLICES))
def test_random_programs_keep_every_promise_in_simulated_worlds(part: int) -> None:
    size = SEEDS // SLICES

    report = _sum_reports(range(part * size, (part + 1) * size))

    assert report.worlds == size
    assert report.resumes > size / 10
    figure(f"simulation, part {part}", _describe(report))


def _describe(report: SimulationReport) -> str:
    an_hour = report.worlds / report.seconds * 3600
    return (
        f"{report.worlds:,} worlds, {report.runs:,} runs, {report.resumes:,} resumes, "
        f"{report.entries:,} entries, 0 broken promises; {an_hour:,.0f} worlds an hour on one core"
    )


@pytest.mark.timeout(1800)
def test_a_seed_replays_exactly() -> None:
    first, second = _sum_reports(range(40)), simulate(seeds=range(40))

    assert first.worlds == second.worlds == 40
    assert first.trace == second.trace
    assert first.trace != _sum_reports(range(40, 80)).trace


@pytest.mark.timeout(1800)
def test_the_worlds_have_streams_sagas_recoveries_and_releases() -> None:
    found: Counter[str] = Counter()
    for _, kinds in _live_seeds(range(200)):
        found += kinds

    for kind in (
        "streams",
        "UndoFinished",
        "RecoveryTriggered",
        "new code",
        "old code",
        "resumed by the second release",
    ):
        assert found[kind] > 0, (kind, found)


def test_an_engine_of_ones_own_is_simulated() -> None:
    report = simulate(ReActEngine, seeds=30, faults=Faults(people=False))

    assert report.worlds == 30
    assert report.runs >= 30


def test_a_failure_names_its_seed_and_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def note_nothing(*_: object) -> None: ...

    monkeypatch.setattr(WorldGate, "_note", note_nothing)
    with pytest.raises(SimulationFailed, match="ran without an allow") as failed:
        simulate(seeds=itertools.count())

    with pytest.raises(SimulationFailed) as again:
        simulate(seeds=[failed.value.seed])

    assert f"seeds=[{failed.value.seed}]" in str(failed.value)
    assert str(again.value) == str(failed.value)
