"""One journal file and many processes: all that each was told to be durable is there, and a stopped one writes no more.

A process is stopped with SIGSTOP, as by a debugger or a machine that sleeps, and wakes up after another took its run.
"""

import asyncio
import contextlib
import random
import signal
import time
from pathlib import Path

import pytest

import journal_child
from forked_processes import PIPE, Forked, fork
from journal_entries import ME, header, write
from loopwright.errors import JournalError
from loopwright.journals import Claim, SQLiteJournal

CHILD = Path(journal_child.__file__)
LEASE = 0.3
CROWD, STEPS = 5, 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def child(*arguments: object) -> Forked:
    """Another process that does what child.py calls by the first argument; it is gone in the end."""
    return fork(
        CHILD, *arguments, options=("-X", "dev", "-W", "error"), stdin=PIPE, stdout=PIPE
    )


def line(process: Forked) -> str:
    """The next line that a process tells."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def told(output: str) -> list[tuple[str, str, int]]:
    """What a process said to be durable: entries or a command, of which run, which number."""
    words = [
        text.split() for text in output.splitlines(keepends=True) if text.endswith("\n")
    ]
    return [(what, run_id, int(number)) for what, run_id, number in words]


async def begun(path: Path, run_id: str) -> None:
    """A run to which all may send."""
    journal = SQLiteJournal(path)
    await write(journal, journal.create(header(run_id)), b"{}")
    await journal.close()


async def until(moment: float) -> None:
    """Wait for a moment by the wall clock."""
    await asyncio.sleep(max(moment - time.time(), 0.0) + 0.05)


async def claimed(journal: SQLiteJournal) -> Claim | None:
    """The claim to a run whose lease is over; None if its owner was stopped while it held the file."""
    try:
        return await journal.claim("r1", ME, lease=60.0)
    except JournalError as error:
        if "another process held it" not in str(error):
            raise
        return None


# Many at once


async def test_a_crowd_of_processes_writes_and_sends_and_nothing_is_lost(
    path: Path,
) -> None:
    await begun(path, "hub")
    names = [f"r{number}" for number in range(CROWD)]
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(child("crowd", path, "hub", name, STEPS))
            for name in names
        ]
        said = [told(process.communicate(timeout=90)[0]) for process in crowd]
    journal = SQLiteJournal(path)

    assert [len(journal.read(name)) for name in names] == [STEPS * 2] * CROWD
    assert all(journal.verify(info.run_id).ok for info in journal.runs())
    assert [len(telling) for telling in said] == [STEPS * 3] * CROWD
    notes = journal.inbox("hub")
    assert [note.number for note in notes] == list(range(1, CROWD * STEPS + 1))
    for name, telling in zip(names, said, strict=True):
        mine = [
            (note.number, note.body["step"])
            for note in notes
            if note.body["of"] == name
        ]
        numbers = [
            number
            for what, run_id, number in telling
            if (what, run_id) == ("command", "hub")
        ]
        assert mine == list(zip(numbers, range(STEPS), strict=True))
        assert [note.body for note in journal.inbox(name)] == [
            {"of": name, "step": step} for step in range(STEPS)
        ]


async def test_of_a_crowd_that_is_killed_at_any_moment_nothing_acknowledged_is_lost(
    path: Path,
) -> None:
    await begun(path, "hub")
    chance, said = random.Random(5), list[tuple[str, str, int]]()
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(child("crowd", path, "hub", f"r{n}", 10_000))
            for n in range(CROWD)
        ]
        for process in crowd:
            assert process.stdout is not None
            output = "".join(
                process.stdout.readline() for _ in range(chance.randrange(3, 9))
            )
            process.kill()
            said += told(output + process.stdout.read())
    journal = SQLiteJournal(path)
    lost = [
        (what, run_id, number)
        for what, run_id, number in said
        if (what == "entries" and len(journal.read(run_id)) < number)
        or (
            what == "command"
            and number not in {command.number for command in journal.inbox(run_id)}
        )
    ]

    assert lost == []
    assert len(said) >= CROWD * 3
    assert all(journal.verify(info.run_id).ok for info in journal.runs())
    assert journal.send("hub", "note", {}) == len(journal.inbox("hub"))


# One that was stopped


async def test_a_process_that_slept_through_its_lease_writes_nothing_when_it_wakes(
    path: Path,
) -> None:
    with child("zombie", path, LEASE) as sleeper:
        lease_until = float(line(sleeper))
        sleeper.send_signal(signal.SIGSTOP)
        journal = SQLiteJournal(path)
        await until(lease_until)
        claim = await journal.claim("r1", ME, lease=60.0)
        entries = await write(journal, claim, b"2", status="running")
        sleeper.send_signal(signal.SIGCONT)
        heard = sleeper.communicate("go on\n", timeout=30)[0].splitlines()

    assert heard == ["Fenced", "Fenced", "Fenced"]
    assert [entry.body for entry in journal.read("r1")] == [b"1", b"2"]
    assert journal.verify("r1", entries[-1].hash).ok
    assert [(info.owner, info.fence, info.lease_until) for info in journal.runs()] == [
        (ME, 2, claim.lease_until)
    ]
    await journal.close()


async def test_a_process_stopped_at_work_adds_nothing_after_it_was_fenced_off(
    tmp_path: Path,
) -> None:
    """Wherever it stood. If it holds the file itself nobody can write until it wakes, and is told so."""
    chance, fenced, held = random.Random(8), 0, 0
    for number in range(6):
        path = tmp_path / f"{number}.db"
        journal = SQLiteJournal(path, busy_timeout=0.3, retry_timeout=0.3)
        with child("restless", path, LEASE) as sleeper:
            for _ in range(chance.randrange(2, 20)):
                line(sleeper)
            await asyncio.sleep(chance.random() * 0.03)
            sleeper.send_signal(signal.SIGSTOP)
            await until(journal.runs()[0].lease_until or 0.0)
            claim = await claimed(journal)
            if claim is None:
                held += 1
                await journal.close()
                continue
            before = journal.read("r1")
            sleeper.send_signal(signal.SIGCONT)
            heard = sleeper.communicate(timeout=30)[0].split()
            entries = await write(journal, claim, b"mine")
        fenced += 1
        assert heard[-1] == "Fenced"
        assert journal.read("r1") == [*before, *entries]
        assert journal.verify("r1", entries[-1].hash).ok
        await journal.close()
    print(f"fenced {fenced}, held the file {held}")

    assert fenced > 0
