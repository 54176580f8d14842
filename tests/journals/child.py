"""What tests of the SQLite journal let another process do: `python child.py WHAT PATH [ARGUMENTS]`."""

import asyncio
import os
import sys
from pathlib import Path

from entries import ME, follow, header, write

from loopwright.errors import JournalError
from loopwright.journal import Claim
from loopwright.journals.sqlite import SQLiteJournal

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
    asyncio.run({"several": several, "fill": fill, "as_nobody": as_nobody}[sys.argv[1]](*sys.argv[2:]))
