"""The facts that the runs of a thread noted."""

from ..events.effects import FactNoted
from ..messages import Json
from .base import Journal
from .capabilities import list_page
from .listing import RunFilter


def find_thread_facts(
    journal: Journal, thread: str, run_id: str, name: str
) -> list[Json]:
    """Return the facts of a name that the other runs of a thread noted, the oldest first."""
    if not thread:
        return []
    turns = list_page(journal, RunFilter(thread=thread))
    earlier = [turn.run_id for turn in turns if turn.run_id != run_id]
    entries = [entry for turn in reversed(earlier) for entry in journal.read(turn)]
    events = [entry.event for entry in entries]
    return [
        event.value
        for event in events
        if isinstance(event, FactNoted) and event.name == name
    ]
