"""Find positions and kinds of entries in a journal, for tests that cut it."""

from loopwright import Runtime
from loopwright.events import Entry


def cut_after(entries: list[Entry], kind: str, occurrence: int = 1) -> int:
    """Return the number of entries up to and including the n-th of a kind."""
    seen = 0
    for entry in entries:
        seen += entry.kind == kind
        if seen == occurrence:
            return entry.seq
    raise AssertionError(
        f"no {occurrence}. entry of kind {kind}: {[e.kind for e in entries]}"
    )


def kinds(runtime: Runtime, run_id: str) -> list[str]:
    """The kinds of a run's entries, in order."""
    return [entry.kind for entry in runtime.journal.read(run_id)]
