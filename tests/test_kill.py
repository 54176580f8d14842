"""kill -9 at every barrier: a new process goes on to the same answer and repeats nothing that is recorded."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from loopwright.events import ModelReplied, ToolFinished, ToolStarted
from loopwright.journals import SQLiteJournal

CHILD = Path(__file__).parent / "support" / "killed.py"
PACKAGE = Path(__file__).parent / "third_party_engine"


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a stranger's engine was installed from its own pyproject."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(folder), str(PACKAGE)], check=True)
    return folder


def work(folder: Path, engine: str, site: Path, barrier: int = 0, when: str = "-", seed: int = 0) -> tuple[int, str]:
    """One process's work on the run: its exit status and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONHASHSEED": str(seed)}
    arguments = [sys.executable, str(CHILD), engine, str(folder / "runs.db"), str(folder / "log"), str(barrier), when]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.strip()


def recorded(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """What the journal holds after a kill: keys of finished tools, turns of the model, keys of tools in doubt."""
    entries = SQLiteJournal(folder / "runs.db").read("the-run")
    finished = [e.key for e in entries if isinstance(e.event, ToolFinished)]
    replied = [str(n) for n, _ in enumerate(e for e in entries if isinstance(e.event, ModelReplied))]
    started = [e.key for e in entries if isinstance(e.event, ToolStarted)]
    return finished, replied, [key for key in started if key not in finished]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("engine", ["react", "tiny"])
def test_a_run_killed_at_any_barrier_resumes_in_a_new_process_to_the_same_answer(
    engine: str, strangers: Path, tmp_path: Path
) -> None:
    kills = 0
    for when in ("before", "after"):
        for barrier in range(1, 30):
            folder = tmp_path / f"{when}-{barrier}"
            folder.mkdir()
            status, printed = work(folder, engine, strangers, barrier, when, seed=barrier)
            if status == 0:
                assert printed == "blue verified 3 4"
                break
            kills += 1
            begun = (folder / "runs.db").exists() and (when, barrier) != ("before", 1)
            finished, replied, doubtful = recorded(folder) if begun else ([], [], [])
            sent_before = sends(folder)

            assert work(folder, engine, strangers, seed=barrier + 1000) == (0, "blue verified 3 4")
            log = Counter(line.rsplit(" ", 1)[0] for line in (folder / "log").read_text().splitlines())
            assert {key: log[f"tool {key}"] for key in finished} == dict.fromkeys(finished, 1)
            assert {turn: log[f"model {turn}"] for turn in replied} == dict.fromkeys(replied, 1)
            assert all(log[f"tool {key}"] <= 1 for key in ("0#1", "1#0"))  # the writes, in doubt or not
            assert len(sends(folder)) == 2 - len([k for k in doubtful if k in ("0#1", "1#0") and k not in sent_before])
            keys = {
                line.split()[1]: line.split()[2] for line in (folder / "log").read_text().splitlines() if "#" in line
            }
            assert all(idempotency == f"the-run:{key}" for key, idempotency in keys.items())
    assert kills == 2 * (4 + 3 + 1)  # a barrier for each of four calls and three model calls, and one at the end


def sends(folder: Path) -> list[str]:
    """Keys of the calls of the writing tool that really happened."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines if line.startswith(("tool 0#1 ", "tool 1#0 "))]
