"""What tests of crashes ask a journal: where a kind of entry comes, and which kinds there are."""

from loopwright import Runtime
from loopwright.events import Entry
from loopwright.testing import crashed

__all__ = ["crashed", "kinds", "upto"]


def upto(entries: list[Entry], kind: str, occurrence: int = 1) -> int:
    """How many entries there are up to and with the n-th of a kind."""
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
