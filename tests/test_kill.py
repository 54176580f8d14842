"""kill -9 at every barrier: a new process goes on to the same answer and repeats nothing that is recorded."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwright.events import Entry, ModelReplied, ModelRequested, ToolFinished, ToolStarted
from loopwright.journals import SQLiteJournal
from programs import PROGRAMS

CHILD = Path(__file__).parent / "support" / "killed.py"
PACKAGE = Path(__file__).parent / "third_party_engine"


class Server:
    """A process that forks one process for each job."""

    def __init__(self, site: Path, seed: int) -> None:
        path = os.pathsep.join(map(str, (site, CHILD.parent)))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, CHILD], stdin=pipe, stdout=pipe, text=True, env=environment)

    def work(self, folder: Path, program: str, barrier: int = 0, when: str = "-") -> tuple[int, str]:
        """One process's work on a run: its exit status and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{program} {folder / 'runs.db'} {folder / 'log'} {barrier} {when}\n")
        self._process.stdin.flush()
        status, said = json.loads(self._process.stdout.readline())
        return status, said

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two interpreters that hash differently; a stranger's engine was installed for them from its own pyproject."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(folder), str(PACKAGE)], check=True)
    both = Server(folder, 1), Server(folder, 2)
    yield both
    for server in both:
        server.close()


def entries(folder: Path) -> list[Entry]:
    """What the journal holds after a kill."""
    return SQLiteJournal(folder / "runs.db").read("the-run") if (folder / "runs.db").exists() else []


def lines(folder: Path, kind: str) -> list[str]:
    """The keys of the calls that really reached the model or a tool."""
    log = folder / "log"
    said = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in said if line.startswith(f"{kind} ")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_killed_at_any_barrier_resumes_in_a_new_process_to_the_same_answer(
    name: str, servers: tuple[Server, Server], tmp_path: Path
) -> None:
    first, second = servers
    whole = tmp_path / "whole"
    whole.mkdir()
    status, expected = first.work(whole, name)
    assert (status, expected.rsplit(" ", 3)[:2]) == (0, [PROGRAMS[name].answer, "verified"])
    barriers = 0
    for when in ("before", "after"):
        for barrier in range(1, 200):
            folder = tmp_path / f"{when}-{barrier}"
            folder.mkdir()
            status, printed = first.work(folder, name, barrier, when)
            if status == 0:
                assert printed == expected
                break
            assert status == -signal.SIGKILL
            barriers += 1
            kept = entries(folder) if (when, barrier) != ("before", 1) else []
            resumed(name, folder, second, expected, kept)
    assert barriers >= 2 * 4


def resumed(name: str, folder: Path, server: Server, expected: str, kept: list[Entry]) -> None:
    """Resume a killed run: the same answer, nothing recorded repeated, nothing written twice."""
    finished = {e.key for e in kept if isinstance(e.event, ToolFinished)}
    started = {e.key: e.event for e in kept if isinstance(e.event, ToolStarted)}
    replied = sum(isinstance(e.event, ModelReplied) for e in kept)
    asked = sum(isinstance(e.event, ModelRequested) for e in kept)
    before = Counter(lines(folder, "tool"))
    models_before = len(lines(folder, "model"))

    status, printed = server.work(folder, name)
    in_doubt = any(e.effect == "write" for key, e in started.items() if key not in finished)
    assert status == 0
    assert printed == expected or (in_doubt and printed.split()[:2] == expected.split()[:2])  # it may go another way
    ran = Counter(lines(folder, "tool"))
    assert {key: ran[key] for key in finished} == {key: before[key] for key in finished}
    writes = {e.key for e in entries(folder) if isinstance(e.event, ToolStarted) and e.event.effect == "write"}
    assert all(ran[key] <= 1 for key in writes)
    assert all(ran[key] == before[key] for key, event in started.items() if event.effect == "write")
    total = sum(isinstance(e.event, ModelReplied) for e in entries(folder))
    assert models_before <= asked
    assert len(lines(folder, "model")) - models_before == total - replied
    for line in (folder / "log").read_text().splitlines():
        if line.startswith("tool "):
            _, key, idempotency = line.split()
            assert idempotency == f"the-run:{key}"
    lessons = folder / "log.lessons"
    assert not lessons.exists() or len(lessons.read_text().splitlines()) <= 1  # one reflection, kept once
