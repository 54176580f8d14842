"""A crash without a crash: a journal that ends after any entry, as a killed process would have left it."""

from collections.abc import Sequence

from ..events import Entry
from ..journal import MemoryJournal, RunHeader


def crashed(entries: Sequence[Entry], keep: int, journal: MemoryJournal | None = None) -> MemoryJournal:
    """A journal that holds the first `keep` entries of a run whose process is dead: resume it and see what repeats.

    for keep in range(1, len(entries) + 1):
        runtime = Runtime(model, tools=tools, journal=crashed(entries, keep))
        assert (await MyEngine(runtime).resume(run_id)).answer == answer
    """
    journal = MemoryJournal() if journal is None else journal
    first = entries[0]
    header = RunHeader(first.run_id, "any", "{}", "1", "elsewhere|1||dead", first.at)
    claim = journal.create(header)
    journal.append(claim, entries[:keep], status="suspended")
    return journal
