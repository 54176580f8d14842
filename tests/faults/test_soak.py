"""A host under load: fifty runs at once of all engines, one call in twenty fails, and nothing grows and nothing breaks.

The short size is for seconds, in which memory itself says little: there it is objects that are counted, when all runs
have ended, and memory only must not run away. The long size is two hours, and memory must grow by less than a megabyte
an hour.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

import soak
from fault_sizes import LONG, figure, sized
from gauges import MEGABYTE, STATM, Rest, slope
from soak import AT_ONCE, ENDED, ENGINES, KEPT, Report

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="needs /proc")

SECONDS = sized(15, 7200)
STRETCHES = sized(5, 12)
WARM_UP = sized(
    3, 4
)  # stretches, in which what is compiled at its first use has its first use
SLOPE = 1.0  # megabytes an hour
RUNS_AWAY = sized(12, 6)  # megabytes at rest; the caches are not full after seconds
OBJECTS_A_RUN = 0.1  # that stay when a run has ended; a leaked run has hundreds
BYTES_A_RUN = (
    1.0 if LONG else 1000.0
)  # of the bounded caches of pydantic and Python, which are not full after seconds
KINDS = 20  # of what is made once for each kind of call, some for the first time after the warm-up
TASKS = 20  # of one run at most: branches, tools, and what watches over them
THREADS = {
    "MainThread": 1,
    "loopwright-tool": 32,
    "asyncio": 36,
}  # pools, which keep idle ones


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("soak")
    command = [
        sys.executable,
        "-W",
        "error",
        soak.__file__,
        str(folder),
        str(SECONDS),
        str(STRETCHES),
    ]
    patience = SECONDS + STRETCHES * soak.PATIENCE
    # Python takes memory by the megabyte, and glibc keeps a heap for each thread and free pieces beside it, which all
    # fill slowly to what was needed at most: that is no leak, and would hide one. With one heap for all, and nothing
    # beside it, what the C library has given out is what somebody holds.
    env = {
        **os.environ,
        "PYTHONMALLOC": "malloc",
        "GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience, check=False, env=env
    )
    assert (done.returncode, done.stderr, list(folder.iterdir())) == (0, "", [])
    return Report.read(done.stdout)


def at_rest(report: Report) -> list[Rest]:
    """The looks at the process when nothing was at work, from the end of the warm-up on."""
    return report.rests[WARM_UP - 1 :]


@pytest.mark.timeout(SECONDS + STRETCHES * soak.PATIENCE + 60)
def test_every_run_under_load_ends_in_a_status_and_a_journal_that_verifies(
    report: Report,
) -> None:
    runs = sum(report.endings.values())
    endings = Counter(ending.split()[1] for ending in report.endings.elements())
    figure("soak: runs", f"{runs} in {SECONDS} s, {AT_ONCE} at once: {dict(endings)}")
    figure("soak: faults", f"{report.faults.total()} of {len(report.faults)} kinds")

    assert report.breaks == []
    assert {ending.split()[0] for ending in report.endings} == set(ENGINES)
    assert {"completed", "failed", "aborted"} <= set(endings) <= {*ENDED}
    assert runs == at_rest(report)[-1].runs > AT_ONCE * STRETCHES


def test_nothing_of_a_run_stays_when_it_has_ended(report: Report) -> None:
    first, last = at_rest(report)[0], at_rest(report)[-1]
    runs = last.runs - first.runs
    objects, held = (
        (last.objects - first.objects) / runs,
        (last.held - first.held) / runs,
    )
    more = {name: count - first.ours.get(name, 0) for name, count in last.ours.items()}
    figure(
        "soak: what stays of a run",
        f"{objects:.3f} objects, {held:.2f} bytes of memory, after {runs} runs",
    )

    assert {name: count for name, count in more.items() if count > KINDS} == {}
    assert objects < OBJECTS_A_RUN
    assert held < BYTES_A_RUN


def test_tasks_threads_and_files_come_back_to_where_they_were(report: Report) -> None:
    most = {
        what: max(getattr(s, what) for s in report.samples)
        for what in ("tasks", "threads", "files")
    }
    figure(
        "soak: at most at once",
        ", ".join(f"{count} {what}" for what, count in most.items()),
    )
    rests = at_rest(report)

    assert most["tasks"] < AT_ONCE * TASKS
    assert {rest.tasks for rest in rests} == {1}
    assert len({rest.files for rest in rests}) == 1
    assert [
        threads
        for rest in rests
        for threads in rest.threads.items()
        if threads[1] > THREADS.get(threads[0], 0)
    ] == []


def test_what_a_runtime_remembers_is_bounded(report: Report) -> None:
    for held in report.registries[WARM_UP - 1 :]:
        assert (held["runs kept"], held["at work"]) == (KEPT, 0)
        assert held["setups"] <= KINDS
        assert held["retry budgets"] <= KINDS


def test_memory_does_not_grow(report: Report) -> None:
    begun = SECONDS * WARM_UP / STRETCHES
    points = [(s.at / 3600, s.rss / MEGABYTE) for s in report.samples if s.at > begun]
    first, last = at_rest(report)[0].rss / MEGABYTE, at_rest(report)[-1].rss / MEGABYTE
    figure(
        "soak: memory",
        f"{first:.1f} MB at rest after the warm-up, {last:.1f} MB at the end, "
        f"at most {max(mb for _, mb in points):.1f} MB",
    )

    assert last - first < RUNS_AWAY
    if LONG:
        grows = slope(points)
        figure(
            "soak: slope of memory",
            f"{grows:+.3f} MB an hour over {points[-1][0] - points[0][0]:.2f} hours",
        )
        assert grows < SLOPE


def test_the_slope_is_that_of_the_line_of_least_squares() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(0, 0), (1, 1), (2, 0), (3, 1)]) == pytest.approx(0.2)
    assert slope([(0, 7), (5, 7)]) == 0
