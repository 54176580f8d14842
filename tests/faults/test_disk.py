"""The disk fails under a run: no tool starts then, nothing acknowledged is lost, and the run can go on later."""

# ruff: noqa: ASYNC240 - the files of a test are small, and its event loop has nothing else to do

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import failing_disk
from failing_disk import ANSWER, RUN, TASK, TURNS, Telling, letters
from fault_sizes import figure, sized
from forked_processes import PIPE, Forked, fork
from loopwright.errors import JournalError, UnknownRun
from loopwright.events import Entry, ToolFinished, ToolStarted
from loopwright.journals import SQLiteJournal

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits and mounts as Linux has them"
)


@dataclass(frozen=True)
class Told:
    """What a process told of its run."""

    lines: list[str]
    result: dict[str, Any]

    @property
    def durable(self) -> int:
        """How many entries it was told to be durable."""
        return max(
            (int(line.split()[1]) for line in self.lines if line.startswith("durable")),
            default=0,
        )

    @property
    def barriers(self) -> int:
        """How many barriers it passed."""
        return sum(line.startswith("durable") for line in self.lines)

    def check_it_failed_safely(self) -> None:
        """A typed error, and nothing done after the barrier that failed."""
        ended = (
            self.result["status"],
            self.result["stop_reason"],
            self.result["error"],
        )
        assert ended == ("failed", "journal_error", "JournalError")
        behind = self.lines[self.lines.index("refused") :]
        assert [line for line in behind if line.startswith(("tool", "durable"))] == []


def process(
    *arguments: object, before: tuple[str, ...] = ()
) -> "Forked | subprocess.Popen[str]":
    """A process that sends the letters."""
    if not before:
        return fork(
            failing_disk.__file__,
            *arguments,
            options=("-W", "error"),
            stdin=PIPE,
            stdout=PIPE,
        )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    command = [
        *before,
        sys.executable,
        "-W",
        "error",
        failing_disk.__file__,
        *map(str, arguments),
    ]
    return subprocess.Popen(
        command, stdin=PIPE, stdout=PIPE, text=True, env=environment
    )


def told(child: "Forked | subprocess.Popen[str]", line: str = "") -> Told:
    """What it told until its end, which it reached alive."""
    lines = child.communicate(line, timeout=60)[0].splitlines()
    assert child.returncode == 0
    assert lines[-1].startswith("result ")
    return Told(lines, json.loads(lines[-1].removeprefix("result ")))


@contextlib.contextmanager
def paused(
    path: Path, witness: Path, turn: int, trouble: str = "pause"
) -> Iterator[Callable[[], Told]]:
    """A process that waits before that turn; calling what is given lets it go on, to its end."""
    with process(path, witness, trouble, turn) as child:
        assert child.stdout is not None
        before: list[str] = []
        while not before or before[-1] != f"turn {turn}":
            before.append(child.stdout.readline().strip())
            assert before[-1]

        def go_on() -> Told:
            after = told(child, "\n")
            return Told([*before, *after.lines], after.result)

        yield go_on


async def goes_on(path: Path, witness: Path, found: Told) -> None:
    """All that was acknowledged is there; when the disk is well again the run ends, each letter sent once."""
    journal = SQLiteJournal(path)
    entries = left(journal)
    assert len(entries) >= found.durable
    assert not entries or journal.verify(RUN).ok
    engine = letters(journal, witness, lambda _: None, lambda _: None)
    result = await (engine.resume(RUN) if entries else engine.run(TASK, run_id=RUN))
    assert (result.status, result.answer) == ("completed", ANSWER)
    assert journal.verify(RUN, result.head_hash).ok
    await journal.close()
    sent, doubt = witness.read_text().split(), in_doubt(entries)
    assert sorted(sent) == sorted(set(sent))
    assert set(map(str, range(TURNS))) - set(sent) <= doubt


def left(journal: SQLiteJournal) -> list[Entry]:
    """The entries of the run, if there are any."""
    try:
        return journal.read(RUN)
    except UnknownRun:
        return []


def in_doubt(entries: list[Entry]) -> set[str]:
    """The letters of which the journal knows that they began, and not that they ended."""
    ended = {entry.key for entry in entries if isinstance(entry.event, ToolFinished)}
    return {
        e.key.partition("#")[0]
        for e in entries
        if isinstance(e.event, ToolStarted) and e.key not in ended
    }


# A full disk


async def rooms(path: Path, witness: Path) -> list[int]:
    """How long the log is after each barrier of a run on a disk that is well."""
    found: list[int] = []

    def tell(line: str) -> None:
        if line.startswith("durable"):
            found.append(os.path.getsize(f"{path}-wal"))

    journal = Telling(path, tell)
    assert (
        await letters(journal, witness, tell, lambda _: None).run(TASK, run_id=RUN)
    ).answer == ANSWER
    await journal.close()
    return found


@linux
async def test_a_disk_that_is_full_at_any_barrier_stops_the_run_there(
    tmp_path: Path,
) -> None:
    room = await rooms(tmp_path / "well.db", tmp_path / "well")
    stopped: list[int] = []
    for size in [0, 5000, *(size + 50 for size in room[:-1])]:
        path, witness = tmp_path / f"{size}.db", tmp_path / f"{size}"
        found = told(process(path, witness, "small-files", size))
        found.check_it_failed_safely()
        stopped.append(found.barriers)
        await goes_on(path, witness, found)

    assert stopped == [0, 0, *range(1, len(room))]
    figure(
        "runs stopped by a full disk",
        f"{len(stopped)}, at each of {len(room)} barriers; each went on afterwards",
    )


def mounted(folder: Path, options: str) -> tuple[str, ...]:
    """What to write before a command to give it a small disk of its own, whose content stays in `<folder>.kept`."""
    mount = 'mount -t tmpfs -o "$1" none "$0"'
    script = f'{mount} || exit 77; folder=$0; shift; "$@"; code=$?; cp -a "$folder" "$folder.kept"; exit $code'
    return ("unshare", "--mount", "sh", "-c", script, str(folder), options)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder on which a disk of its own can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mounted(folder, "size=8k"), "true"]).returncode
    ):
        pytest.skip("no disk can be mounted: that takes the rights of root")
    shutil.rmtree(f"{folder}.kept")
    return folder


@linux
@pytest.mark.parametrize("size", [8, 64, 120, 160, 200, 240, 280, 320][:: sized(2, 1)])
async def test_a_real_disk_without_room_stops_the_run(
    disk: Path, tmp_path: Path, size: int
) -> None:
    witness = tmp_path / "witness"
    found = told(
        process(
            disk / "runs.db", witness, "none", before=mounted(disk, f"size={size}k")
        )
    )

    found.check_it_failed_safely()
    assert "disk" in found.result["text"]
    await goes_on(Path(f"{disk}.kept") / "runs.db", witness, found)


# A disk that cannot be written


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Path]:
    """A folder that others than its owner may enter, which tmp_path is not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@linux
@pytest.mark.parametrize(
    ("of_folder", "of_files", "problem"),
    [
        (0o555, 0o666, "may be written by other users"),
        (0o777, 0o444, "writable"),
        (0o555, 0o444, "writable"),
    ],
)
async def test_a_file_or_folder_that_is_read_only_starts_nothing(
    public: Path, of_folder: int, of_files: int, problem: str
) -> None:
    path, witness = public / "journal" / "runs.db", public / "witness"
    path.parent.mkdir()
    witness.touch()
    journal = SQLiteJournal(path)
    await letters(journal, witness, lambda _: None, lambda _: None).run(
        TASK, run_id="another"
    )
    await journal.close()
    witness.write_text("")
    witness.chmod(0o666)
    for file in path.parent.iterdir():
        file.chmod(of_files)
    path.parent.chmod(of_folder)
    found = told(process(path, witness, "nobody"))

    found.check_it_failed_safely()
    assert (found.barriers, witness.read_text()) == (0, "")
    assert problem in found.result["text"]
    path.parent.chmod(0o755)
    for file in path.parent.iterdir():
        file.chmod(0o600)
    assert [info.run_id for info in SQLiteJournal(path).runs()] == ["another"]
    await goes_on(path, witness, found)


@linux
async def test_a_disk_that_is_mounted_read_only_starts_nothing(
    disk: Path, tmp_path: Path
) -> None:
    found = told(
        process(
            disk / "runs.db", tmp_path / "witness", "none", before=mounted(disk, "ro")
        )
    )

    found.check_it_failed_safely()
    assert (found.barriers, (tmp_path / "witness").exists()) == (0, False)
    assert "read-only" in found.result["text"].lower()


@linux
@pytest.mark.parametrize("left_over", [0, 1, 2, 3][:: sized(3, 1)])
async def test_a_process_that_can_open_no_more_files_starts_nothing(
    tmp_path: Path, left_over: int
) -> None:
    path, witness = tmp_path / "runs.db", tmp_path / "witness"
    found = told(process(path, witness, "few-files", left_over))

    found.check_it_failed_safely()
    assert (found.barriers, witness.exists()) == (0, False)
    await goes_on(path, witness, found)


# A file that another process holds


@contextlib.contextmanager
def database_held(path: Path) -> Iterator[None]:
    """What a program does that wants the file for itself."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextlib.contextmanager
def lock_held(path: Path) -> Iterator[None]:
    """What a process does that hangs in the midst of a transaction."""
    with open(f"{path}.lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("turn", [0, 3])
@pytest.mark.parametrize("held", [database_held, lock_held])
async def test_a_file_that_is_held_for_too_long_stops_the_run(
    tmp_path: Path,
    held: Callable[[Path], contextlib.AbstractContextManager[None]],
    turn: int,
) -> None:
    path, witness = tmp_path / "runs.db", tmp_path / "witness"
    with paused(path, witness, turn) as go_on, held(path):
        found = go_on()

    found.check_it_failed_safely()
    assert "longer retry_timeout" in found.result["text"]
    assert found.barriers == 1 + 2 * turn
    await goes_on(path, witness, found)


HOLDERS = {
    "database": "other = sqlite3.connect(path, isolation_level=None); other.execute('BEGIN EXCLUSIVE')",
    "lock": "other = open(path + '.lock', 'a'); fcntl.flock(other, fcntl.LOCK_EX)",
}


@contextlib.contextmanager
def held_by_another_process(
    path: Path, held: str, seconds: float | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the file from now on, for some seconds, or until the end of the block."""
    wait = "sys.stdin.read()" if seconds is None else f"time.sleep({seconds})"
    program = f"""
import fcntl, sqlite3, sys, time
path = sys.argv[1]
{HOLDERS[held]}
print("held", flush=True)
{wait}
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    assert holder.returncode == 0


@pytest.mark.parametrize("turn", [0, 3])
@pytest.mark.parametrize("held", HOLDERS)
async def test_a_file_that_another_process_holds_for_a_while_delays_the_run(
    tmp_path: Path, held: str, turn: int
) -> None:
    path, witness = tmp_path / "runs.db", tmp_path / "witness"
    with paused(path, witness, turn, "patience") as go_on:
        began = time.monotonic()
        with held_by_another_process(path, held, 2.0):
            found = go_on()
    seconds = time.monotonic() - began

    assert (found.result["status"], found.result["error"]) == ("completed", "NoneType")
    assert "refused" not in found.lines
    assert seconds >= 2.0
    assert sorted(witness.read_text().split()) == list(map(str, range(TURNS)))
    assert SQLiteJournal(path).verify(RUN, found.result["head"]).ok
    figure(
        "file held for a while",
        f"{held} held for 2 s at turn {turn}: {TURNS} of {TURNS} letters sent once, in {seconds:.1f} s",
    )


@pytest.mark.parametrize("held", HOLDERS)
async def test_a_file_that_is_held_beyond_the_lease_stops_the_run_as_fenced(
    tmp_path: Path, held: str
) -> None:
    path, witness = tmp_path / "runs.db", tmp_path / "witness"
    with (
        paused(path, witness, 3, "lease") as go_on,
        held_by_another_process(path, held) as holder,
    ):
        found = go_on()
        assert holder.poll() is None, "the file is held until the run has ended"

    assert found.result["error"] == "Fenced"
    behind = found.lines[found.lines.index("refused") :]
    assert [line for line in behind if line.startswith(("tool", "durable"))] == []
    await goes_on(path, witness, found)


# A file that is damaged or goes while it is open


def overwritten(file: Path) -> None:
    size = file.stat().st_size
    with open(file, "r+b") as opened:
        opened.write(b"garbage!" * (size // 8))


def log_cut(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def log_overwritten(path: Path) -> None:
    overwritten(Path(f"{path}-wal"))


@pytest.mark.parametrize("damage", [overwritten, log_overwritten, log_cut])
def test_a_file_that_is_destroyed_under_a_run_never_gives_a_wrong_one(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path, witness = tmp_path / "runs.db", tmp_path / "witness"
    with paused(path, witness, 2) as go_on:
        damage(path)
        found = go_on()

    if (
        found.result["status"] != "completed"
    ):  # the process may not have had to look at what was destroyed
        found.check_it_failed_safely()
    with contextlib.suppress(JournalError, UnknownRun):
        verified = SQLiteJournal(path).verify(RUN, found.result["head"])
        assert (
            not verified.ok or len(left(SQLiteJournal(path))) == found.durable
        )  # all of it was in the log yet


def removed(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()


def file_removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("older"))
    path.with_name("older").rename(path)


def log_removed(path: Path) -> None:
    Path(f"{path}-wal").unlink()


@pytest.mark.parametrize("damage", [removed, file_removed, replaced, log_removed])
def test_a_file_that_is_taken_away_under_a_run_stops_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder, witness = tmp_path / "journal", tmp_path / "witness"
    folder.mkdir()
    with paused(folder / "runs.db", witness, 2) as go_on:
        damage(folder / "runs.db")
        found = go_on()

    found.check_it_failed_safely()
    assert "was removed or replaced" in found.result["text"]
