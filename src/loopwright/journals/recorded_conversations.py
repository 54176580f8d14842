"""The conversations that a journal holds: that of a run at its end, and that of the runs that continue each other."""

import contextlib
from collections.abc import Sequence
from typing import Protocol

from .._internal import dataclasses
from ..errors import JournalError
from ..events.entry import Entry
from ..events.lifecycle import read_start
from ..events.run import Follows, RunFinished, RunStarted
from ..labels import highest
from ..messages import Conversation, mark_entry
from .access import KnownEntries, consult, find_reads, read_run
from .base import Journal
from .recorded_messages import RecordedMessages, delimiter_of
from .turn_marks import TurnMark


class ReadableJournal(Protocol):
    """What is read here: the entries of runs."""

    def read(self, run_id: str) -> list[Entry]:
        """Return all entries of a run, oldest first."""
        ...


@dataclasses.dataclass(frozen=True)
class RecordedHistory:
    """The conversation of runs that one continued the other, and which of these first began with its messages."""

    conversation: Conversation
    mark: TurnMark


def build_end(start: Conversation, entries: Sequence[Entry]) -> Conversation:
    """Return the conversation that a run ended with, of the one that it began with and its entries."""
    first, last = entries[0].event, entries[-1].event
    if not isinstance(first, RunStarted) or not isinstance(last, RunFinished):
        raise JournalError(f"run {entries[0].run_id!r} has not ended")
    if last.added is None:
        return _with_end(Conversation(last.messages), last)
    kept = start
    if last.kept != len(start):
        kept = Conversation().add(*start.messages[: last.kept])
    delimiter = first.boundary or delimiter_of(entries[0].run_id)
    recorded = RecordedMessages(entries, delimiter, lambda: start)
    for one in last.added:
        message = recorded.find(one) if isinstance(one, str) else one
        if isinstance(one, str) and message.origin == "model":
            # A model's text has the provenance of what the model had read.
            read = _with_end(kept, last) if recorded.is_answer(one) else kept
            message = dataclasses.replace(
                message, label=read.label, untrusted=read.untrusted
            )
        if isinstance(one, str):
            mark_entry(message, (entries[0].run_id, one))
        kept = kept.add(message)
    return _with_end(kept, last)


def _with_end(conversation: Conversation, ended: RunFinished) -> Conversation:
    """Return a conversation with the provenance of a run as it ended; early versions did not record that."""
    if not ended.label:
        label = highest(("normal", conversation.label))
        return conversation.with_provenance(label, untrusted=conversation.untrusted)
    return conversation.with_provenance(ended.label, untrusted=ended.untrusted)


def read_given(journal: ReadableJournal, started: RunStarted) -> Conversation:
    """Return the conversation that a run began with, with all its messages."""
    earlier = Conversation()
    if started.follows is not None:
        earlier = read_history(journal, started.follows).conversation
    given = earlier.add(*started.messages)
    return given.with_provenance(started.label, untrusted=started.untrusted)


async def fetch_history(journal: Journal, follows: Follows) -> RecordedHistory:
    """Return what `read_history` does, without a thread where a journal's reads are coroutines."""
    if find_reads(journal) is None:
        return await consult(read_history, journal, follows)
    known: dict[str, list[Entry]] = {}
    earlier: Follows | None = follows
    while earlier is not None:
        entries = await read_run(journal, earlier.run_id)
        known[earlier.run_id] = entries
        earlier = read_start(earlier.run_id, entries).follows
    return read_history(KnownEntries(known), follows)


def read_history(journal: ReadableJournal, follows: Follows) -> RecordedHistory:
    """Return the messages of a history, of all the runs that one continued the other."""
    runs: list[tuple[Follows, list[Entry]]] = []
    earlier: Follows | None = follows
    together = getattr(journal, "reading_together", contextlib.nullcontext)
    with together():
        while earlier is not None:
            entries = _read_run(journal, earlier)
            runs.append((earlier, entries))
            earlier = read_start(earlier.run_id, entries).follows
    first = follows.turn - len(runs) + 1
    conversation, mark = Conversation(), TurnMark(0, first)
    for turn, (known, entries) in enumerate(reversed(runs), first):
        started = read_start(known.run_id, entries)
        given = conversation.add(*started.messages)
        given = given.with_provenance(started.label, untrusted=started.untrusted)
        mark = mark.begin(len(conversation), turn)
        conversation = build_end(given, entries)
        mark = mark.end(known.run_id, count_kept(entries), turn)
        if conversation.digest.hex() != known.digest:
            raise JournalError(
                f"the messages of run {known.run_id!r}, which is continued, are not those that they were"
            )
    return RecordedHistory(conversation, mark)


def count_kept(entries: Sequence[Entry]) -> int:
    """Return how many messages that a run began with are the first of those that it ended with."""
    ended = entries[-1].event
    if not isinstance(ended, RunFinished) or ended.added is None:
        return 0
    return ended.kept


def _read_run(journal: ReadableJournal, follows: Follows) -> list[Entry]:
    """Return the entries of a run up to its end as it was continued."""
    entries = journal.read(follows.run_id)[: follows.seq]
    if not entries or (entries[-1].seq, entries[-1].hash) != (
        follows.seq,
        follows.hash,
    ):
        raise JournalError(
            f"run {follows.run_id!r}, which is continued, was changed: its entry {follows.seq} has another hash"
        )
    return entries
