"""A crash without a crash: a journal that ends after any entry, as a killed process would have left it."""

import socket
from collections.abc import Sequence

from ..events.entry import Entry
from ..events.lifecycle import read_run_info
from ..journals.base import RESUMABLE, RunHeader
from ..journals.memory import MemoryJournal
from ..journals.owner import Owner

NO_PROCESS = 2**31 - 1  # greater than any process number


def crashed(
    entries: Sequence[Entry],
    keep: int,
    journal: MemoryJournal | None = None,
    *,
    status: str = "suspended",
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
    told = read_run_info(entries[:keep])
    header = RunHeader(
        first.run_id, told.get("engine", "any"), told.get("options", "{}"), told.get("version", "1"), str(dead),
        told.get("created", first.at), told.get("parent_run"), told.get("fork_seq"),
    )  # fmt: skip
    claim = journal.create(header)
    ended = told.get("status", "running") not in RESUMABLE
    journal.append(claim, entries[:keep], status=told["status"] if ended else status)
    return journal
