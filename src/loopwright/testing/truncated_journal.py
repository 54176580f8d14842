"""A truncated journal: the first entries of a run, as a killed process would have left it."""

import socket
from collections.abc import Sequence

from ..events.entry import Entry
from ..events.lifecycle import read_run_info
from ..journals.base import RESUMABLE, RunHeader
from ..journals.memory import MemoryJournal
from ..journals.owner import Owner

_LISTED = ("app_version", "tags", "thread", "agent")
NO_PROCESS = 2**31 - 1  # greater than any process number


def crashed(
    entries: Sequence[Entry],
    keep: int,
    journal: MemoryJournal | None = None,
    *,
    status: str = "suspended",
) -> MemoryJournal:
    """Return a journal with the first `keep` entries of a run whose process is dead, to resume it.

    for keep in range(1, len(entries) + 1):
        runtime = Runtime(model, tools=tools, journal=crashed(entries, keep))
        assert (await MyEngine(runtime).resume(run_id)).answer == answer

    `status` is the status of the run: a worker resumes it by itself if it is "running".
    """
    journal = MemoryJournal() if journal is None else journal
    first = entries[0]
    dead = Owner(socket.gethostname(), NO_PROCESS, "", "dead")
    info = read_run_info(entries[:keep])
    header = RunHeader(
        first.run_id, info.get("engine", "any"), info.get("options", "{}"), info.get("version", "1"), str(dead),
        info.get("created", first.at), info.get("parent_run"), info.get("fork_seq"),
        **{name: info[name] for name in _LISTED if name in info},
    )  # fmt: skip
    claim = journal.create(header)
    claim.wake_at = info.get("wake_at", 0.0)
    ended = info.get("status", "running") not in RESUMABLE
    journal.append(claim, entries[:keep], status=info["status"] if ended else status)
    return journal
