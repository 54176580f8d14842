"""A crash without a crash: a journal that ends after any entry, as a killed process would have left it."""

import socket
from collections.abc import Sequence

from ..events import Entry
from ..journal import MemoryJournal, RunHeader
from ..owner import Owner

NO_PROCESS = 2**31 - 1  # greater than any process number


def crashed(
    entries: Sequence[Entry], keep: int, journal: MemoryJournal | None = None, *, status: str = "suspended"
) -> MemoryJournal:
    """A journal that holds the first `keep` entries of a run whose process is dead: resume it and see what repeats.

    for keep in range(1, len(entries) + 1):
        runtime = Runtime(model, tools=tools, journal=crashed(entries, keep))
        assert (await MyEngine(runtime).resume(run_id)).answer == answer

    `status` is what the journal says of the run: with "running" a worker takes it up by itself.
    """
    journal = MemoryJournal() if journal is None else journal
    first = entries[0]
    dead = Owner(socket.gethostname(), NO_PROCESS, "", "dead")
    header = RunHeader(first.run_id, "any", "{}", "1", str(dead), first.at)
    claim = journal.create(header)
    journal.append(claim, entries[:keep], status=status)
    return journal
