"""What tests of the SQLite journal let another process do: `python child.py WHAT PATH [ARGUMENTS]`."""

import asyncio
import dataclasses
import os
import sys
from pathlib import Path

from journal_entries import ME, follow, header, write
from loopwright.errors import JournalError
from loopwright.journals import Claim, SQLiteJournal

NOBODY = 65534


async def take(journal: SQLiteJournal, run_id: str) -> Claim:
    """The claim to a run, begun before or not."""
    if any(info.run_id == run_id for info in journal.runs()):
        return await journal.claim(run_id, ME)
    return journal.create(header(run_id))


async def steps(journal: SQLiteJournal, run_id: str, count: int) -> None:
    """Write `count` steps of two entries, telling each number only after its barrier."""
    claim = await take(journal, run_id)
    for _ in range(count):
        await write(journal, claim, b'{"text":"%s"}' % (b"x" * 300), b"{}")
        print(run_id, claim.head_seq, flush=True)


async def several(path: str, count: str, *run_ids: str) -> None:
    """Write several runs at once; the journal is left open."""
    journal = SQLiteJournal(path)
    await asyncio.gather(*(steps(journal, run_id, int(count)) for run_id in run_ids))


async def crowd(path: str, hub: str, run_id: str, count: str) -> None:
    """Write one's own run and send to it and to everybody's; tell each number once it is durable."""
    journal = SQLiteJournal(path, busy_timeout=60)
    claim = await take(journal, run_id)
    for step in range(int(count)):
        await write(journal, claim, b'{"text":"%s"}' % (b"x" * 300), b"{}")
        print("entries", run_id, claim.head_seq, flush=True)
        for to in (hub, run_id):
            number = await asyncio.to_thread(
                journal.send, to, "note", {"of": run_id, "step": step}
            )
            print("command", to, number, flush=True)


async def zombie(path: str, lease: str) -> None:
    """Begin a run with a lease, tell its end, and go on with it only when something comes on standard input."""
    journal = SQLiteJournal(path)
    claim = journal.create(dataclasses.replace(header("r1"), lease=float(lease)))
    await write(journal, claim, b"1")
    print(claim.lease_until, flush=True)
    sys.stdin.readline()
    for use in (
        write(journal, claim, b"late"),
        journal.barrier(claim),
        journal.renew(claim, 60.0),
    ):
        try:
            await use
            print("went on", flush=True)
        except JournalError as error:
            print(type(error).__name__, flush=True)


async def restless(path: str, lease: str) -> None:
    """Begin a run with a lease, write it and renew its lease again and again, until that is refused."""
    journal = SQLiteJournal(path)
    claim = journal.create(dataclasses.replace(header("r1"), lease=float(lease)))
    try:
        while True:
            await asyncio.gather(
                write(journal, claim, b"{}"), journal.renew(claim, float(lease))
            )
            print(claim.head_seq, flush=True)
            await asyncio.sleep(0.01)
    except JournalError as error:
        print(type(error).__name__, flush=True)


async def fill(path: str, limit: str) -> None:
    """Write until no file may grow beyond `limit` bytes, then say what the journal says."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    journal = SQLiteJournal(path)
    try:
        await steps(journal, "full", 10_000)
    except JournalError as error:
        print("error", error, flush=True)
    claim = journal.create(header("after"))
    journal.append(claim, follow(claim, b"x" * int(limit)))
    try:
        await journal.barrier(claim)
    except JournalError as error:
        print("error", error, flush=True)


async def as_nobody(path: str) -> None:
    """Read, then try to write, without the rights of root."""
    Path(path).as_uri()  # loads what Python loads late, while it can still be read
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    journal = SQLiteJournal(path)
    try:
        print("ok", journal.runs(), flush=True)
        await steps(journal, "new", 1)
    except JournalError as error:
        print("error", error, flush=True)


if __name__ == "__main__":
    works = (several, crowd, zombie, restless, fill, as_nobody)
    asyncio.run({work.__name__: work for work in works}[sys.argv[1]](*sys.argv[2:]))
