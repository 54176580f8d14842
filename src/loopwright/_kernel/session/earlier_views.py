"""The views with which an earlier run ended, so that a run that continues its conversation leaves out the same."""

from ...events.lifecycle import read_start
from ...messages import Conversation
from ..durability.history import ContinuedConversation
from ..durability.requests import RecordedRequests

MAX_RUNS = 8
"""How many runs are read at most: a turn may have asked about nothing that it was given."""


def read_earlier_requests(given: Conversation) -> RecordedRequests:
    """Return the requests of the newest run with views among those that a run continues; reads the journal.

    `given` is the conversation that the run began with.
    """
    if not isinstance(given, ContinuedConversation):
        return RecordedRequests()
    journal, follows = given.history.journal, given.history.follows
    for _ in range(MAX_RUNS):
        entries = journal.read(follows.run_id)[: follows.seq]
        recorded = RecordedRequests.read(entries)
        earlier = read_start(follows.run_id, entries).follows
        if recorded.views or earlier is None:
            return recorded
        follows = earlier
    return RecordedRequests()
