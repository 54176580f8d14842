"""The views of the last model calls of a run, so that the next one continues the one before, in a resumed run too."""

from collections.abc import Mapping

from ..._internal import dataclasses
from ...events.request_records import ViewRecord
from ...journals.recorded_requests import adapt_message
from ...messages import (
    Conversation,
    Json,
    Message,
)
from ...providers.context.base import View
from ..durability.requests import RecordedRequests

MAX_KEPT = 4
"""How many views of a scope are kept: an engine may ask by turns about some conversations."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a model call sends of a conversation.

    Args:
        asked: the conversation.
        view: which part of it is sent.
        history: the messages of the view, without those that have a slot.
        slots: the newest message of each slot.
        conversation: what is sent: the history, with the aids.
        aids: what stands among the history without being part of it.
        place: how many messages of the history come before the aids.
        before: the beginning of the digest (hex) of these messages.
    """

    asked: Conversation
    view: View
    history: Conversation
    slots: Mapping[str, Message]
    conversation: Conversation
    aids: tuple[Message, ...] = ()
    place: int = 0
    before: str = ""


def has_grown_from(conversation: Conversation, length: int, digest: bytes) -> bool:
    """Whether a conversation is known to begin with the `length` messages of the one with that digest.

    Only the last conversations that it grew from are known, so `False` says nothing.
    """
    is_same = digest == conversation.digest
    return is_same or (length, digest) in conversation.grown_from


class RecentViews:
    """The last views of each scope of a run, with what they showed."""

    def __init__(self, recorded: RecordedRequests) -> None:
        self._recorded = recorded
        self._shown: dict[str, list[Shown]] = {}
        self.paths = set(recorded.views)
        """The scopes with a view that the next one may continue."""
        self._restored: set[str] = set()
        self.earlier: RecordedRequests | None = None
        """The requests of the run that this one continues, once they were read."""

    def find(self, path: str, conversation: Conversation) -> Shown | None:
        """Return the last view of a conversation that this one continues; `None` without one."""
        for shown in reversed(self._shown.get(path, [])):
            if has_grown_from(conversation, shown.view.length, shown.asked.digest):
                return shown
        return None

    def keep(self, path: str, shown: Shown) -> None:
        """Keep what a call showed."""
        self.paths.add(path)
        self._shown[path] = [*self._shown.get(path, [])[1 - MAX_KEPT :], shown]

    def restore(self, path: str, conversation: Conversation) -> View | None:
        """Return the view that an earlier process recorded last in a scope, if the conversation continues that; once.

        Its size is not known.
        """
        record = self._recorded.views.get(path)
        if record is None or path in self._restored:
            return None
        self._restored.add(path)
        if not record.begins(conversation.messages):
            return None
        return build_view(record, self._recorded.contents)


def find_earlier_view(
    earlier: RecordedRequests, conversation: Conversation
) -> View | None:
    """Return the last view of an earlier run whose messages a conversation begins with."""
    records = reversed(earlier.views.values())
    views = (
        build_view(record, earlier.contents)
        for record in records
        if record.begins(conversation.messages)
    )
    return next(views, None)


def build_view(record: ViewRecord, contents: Mapping[str, Json]) -> View:
    """Return a recorded view, whose notes are among the contents of its run; its size is not known."""
    notes = (contents[code] for code in record.notes)
    return View(
        record.length, record.spans, masked=record.masked, shortened=record.shortened,
        notes=tuple(map(adapt_message().validate_python, notes)),
        summary_key=record.summary_key, summarized=record.summarized,
    )  # fmt: skip
