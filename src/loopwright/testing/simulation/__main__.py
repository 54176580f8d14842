"""Live simulated worlds on every core: `python -m loopwright.testing.simulation 100000`, or `17-17` for one seed."""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from .runner import SimulationFailed, SimulationReport, simulate

CHUNK = 50


def main(seeds: str) -> int:
    """Live the worlds; print each failure with its seed, and return 1 if there was one."""
    first, _, last = seeds.partition("-")
    start, end = (int(first), int(last) + 1) if last else (0, int(first))
    began, worlds, runs, resumes = time.monotonic(), 0, 0, 0
    failures: list[str] = []
    with ProcessPoolExecutor() as pool:
        for report, failed in pool.map(_live_chunk, _split(start, end)):
            failures += failed
            for text in failed:
                _print(text)
            worlds, runs = worlds + report.worlds, runs + report.runs
            resumes += report.resumes
    seconds = time.monotonic() - began
    _print(
        f"{end - start:,} worlds, {runs:,} runs, {resumes:,} resumes in {seconds:,.0f} s on {os.cpu_count()} cores: "
        f"{len(failures)} broke a promise"
    )
    return min(len(failures), 1)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _split(start: int, end: int) -> Iterator[range]:
    for at in range(start, end, CHUNK):
        yield range(at, min(at + CHUNK, end))


def _live_chunk(seeds: range) -> tuple[SimulationReport, list[str]]:
    """Simulate some worlds; return them and their failures."""
    report, failures = SimulationReport(), list[str]()
    for seed in seeds:
        try:
            report += simulate(seeds=[seed])
        except SimulationFailed as failed:
            failures.append(str(failed))
    return report, failures


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
