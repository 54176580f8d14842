"""A crash without a crash: a journal that ends after any entry, as a killed process would have left it."""

from collections.abc import Callable

from loopwright import MemoryJournal, Runtime
from loopwright.events import Entry
from loopwright.journal import RunHeader

Cut = Callable[[Entry], bool]


def crashed(entries: list[Entry], keep: int, journal: MemoryJournal | None = None) -> MemoryJournal:
    """A journal that holds the first `keep` entries of a run whose process is dead."""
    journal = journal or MemoryJournal()
    first = entries[0]
    header = RunHeader(first.run_id, "any", "{}", "1", "elsewhere|1||dead", first.at)
    claim = journal.create(header)
    journal.append(claim, entries[:keep], status="suspended")
    return journal


def upto(entries: list[Entry], kind: str, occurrence: int = 1) -> int:
    """How many entries there are up to and with the n-th of a kind."""
    seen = 0
    for entry in entries:
        seen += entry.kind == kind
        if seen == occurrence:
            return entry.seq
    raise AssertionError(f"no {occurrence}. entry of kind {kind}: {[e.kind for e in entries]}")


def kinds(runtime: Runtime, run_id: str) -> list[str]:
    """The kinds of a run's entries, in order."""
    return [entry.kind for entry in runtime.journal.read(run_id)]
