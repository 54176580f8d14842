"""The facts that the runs of a thread noted."""

from ..events.effects import FactNoted
from ..messages import Json
from .base import Journal
from .capabilities import list_page
from .listing import RunFilter


def find_thread_facts(
    journal: Journal, thread: str, run_id: str, name: str, last: int | None = None
) -> list[Json]:
    """Return the facts of a name that the other runs of a thread noted, the oldest first; the `last` ones, or all."""
    if not thread:
        return []
    turns = list_page(journal, RunFilter(thread=thread))
    found: list[Json] = []
    for turn in turns:  # the newest first
        if last is not None and len(found) >= last:
            break
        if turn.run_id != run_id:
            found[:0] = _read_facts(journal, turn.run_id, name)
    return found if last is None else found[-last:]


def _read_facts(journal: Journal, run_id: str, name: str) -> list[Json]:
    events = [entry.event for entry in journal.read(run_id)]
    return [
        event.value
        for event in events
        if isinstance(event, FactNoted) and event.name == name
    ]
