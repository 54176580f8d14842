"""The conversation that a run continues: it is in the journal already, and read only where its messages are wanted."""

import itertools
from collections.abc import Sequence
from typing import Any, Self, cast

from ..._internal import dataclasses
from ..._internal.encoder import find_code
from ...events.entry import Entry
from ...events.run import Follows, RunStarted
from ...journals.base import Journal, RunHeader
from ...journals.recorded_conversations import (
    RecordedHistory,
    count_kept,
    fetch_history,
    read_history,
)
from ...journals.turn_marks import FIRST_TURN, TurnMark
from ...labels import Label
from ...messages import Conversation, Message, are_any_attached


class History:
    """The messages of a conversation that a journal has, as the last entry of an earlier run left them.

    Args:
        journal: holds them.
        follows: which they are.
        known: the same conversation, where this process has it.
        mark: which of the runs that continue each other first began with its messages, where that is known.
    """

    def __init__(
        self,
        journal: Journal,
        follows: Follows,
        known: Conversation | None = None,
        mark: TurnMark | None = None,
    ) -> None:
        self.journal, self.follows = journal, follows
        # Whatever a run began with can be named by the number of that run.
        self.mark = mark or TurnMark(0, follows.turn + 1)
        self.label: Label = "normal" if known is None else known.label
        self.untrusted = known is not None and known.untrusted
        self._known = known
        # Kept, so that asking never goes back through all runs that this process continued.
        self._was_loaded = known is not None and is_loaded(known)
        self._has_attachments: bool | None = None
        if known is not None and self._was_loaded:
            self._has_attachments = known.has_attachments

    @property
    def is_loaded(self) -> bool:
        """Whether this process has the messages."""
        if self._was_loaded:
            return True
        return self._known is not None and is_loaded(self._known)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the messages; raise `JournalError` if the journal does not have them as they were."""
        if self._known is None:
            return self._keep(read_history(self.journal, self.follows)).messages
        return self._known.messages

    @property
    def has_attachments(self) -> bool:
        """Return whether one of the messages has an attachment; raise as `messages` does."""
        if self._has_attachments is None:
            self._has_attachments = are_any_attached(self.messages)
        return self._has_attachments

    async def load(self) -> None:
        """Read the messages, unless this process has them."""
        if not self.is_loaded:
            self._keep(await fetch_history(self.journal, self.follows))

    def _keep(self, read: RecordedHistory) -> Conversation:
        self._known, self.mark = read.conversation, read.mark
        return read.conversation

    def is_in(self, journal: Journal) -> bool:
        """Whether a journal has these messages."""
        if journal is self.journal:
            return True
        other: Any = getattr(journal, "id", "")
        return bool(other) and other == getattr(self.journal, "id", "")


class ContinuedConversation(Conversation):
    """A conversation that grows from one that a journal has, whose messages are read when they are wanted."""

    __slots__ = ("_is_attached", "_messages", "added", "history")
    history: History
    added: tuple[Message, ...]
    """The messages after those of the history."""
    _messages: tuple[Message, ...] | None
    _is_attached: bool
    """Whether one of those has an attachment."""

    @classmethod
    def begin(cls, history: History) -> Self:
        """Return the conversation with the messages of a history and no others."""
        follows, begun = history.follows, object.__new__(cls)
        begun.history, begun.added, begun._messages = history, (), None
        begun.digest, begun.size = bytes.fromhex(follows.digest), follows.size
        begun.label, begun.untrusted = history.label, history.untrusted
        begun._joined, begun.grown_from, begun._is_attached = {}, (), False
        return begun

    def __copy__(self) -> Self:
        """Return a copy with the same history, of which nothing is read."""
        copied = ContinuedConversation.begin(self.history)
        copied.digest, copied.size, copied._joined = (
            self.digest,
            self.size,
            self._joined,
        )
        copied.label, copied.untrusted = self.label, self.untrusted
        copied.added, copied._messages = self.added, self._messages
        copied.grown_from, copied._is_attached = self.grown_from, self._is_attached
        return cast("Self", copied)

    @property
    def messages(self) -> tuple[Message, ...]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride] - read when wanted
        """All messages; raises `JournalError` if the journal does not have the history as it was."""
        if self._messages is None:
            self._messages = self.history.messages + self.added
        return self._messages

    @property
    def has_attachments(self) -> bool:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride] - read when wanted
        """Whether one of its messages has an attachment; raises as `messages` does."""
        return self._is_attached or self.history.has_attachments

    @property
    def is_loaded(self) -> bool:
        """Whether this process has all messages."""
        return self._messages is not None or self.history.is_loaded

    def _take(self, other: Conversation, messages: tuple[Message, ...]) -> None:
        grown_from = cast("ContinuedConversation", other)
        self.history, self.added = grown_from.history, grown_from.added + messages
        known = grown_from._messages  # pyright: ignore[reportPrivateUsage] - of its own class
        self._messages = None if known is None else known + messages
        attached = grown_from._is_attached  # pyright: ignore[reportPrivateUsage] - of its own class
        self._is_attached = attached or are_any_attached(messages)

    def with_system(self, text: str) -> Conversation:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - begins anew
        """Return a conversation of its own with `text` added to its system message, or as one."""
        return make_plain(self.messages, self.label, self.untrusted).with_system(text)

    @property
    def task(self) -> str:
        """The latest user text, or an empty string."""
        new = (m.content for m in reversed(self.added) if m.role == "user")
        found = next(new, None)
        return super().task if found is None else found

    def __len__(self) -> int:
        return self.history.follows.messages + len(self.added)

    def __reduce__(self) -> tuple[Any, ...]:
        """Become an ordinary conversation in another process, which may have another journal."""
        return make_plain, (self.messages, self.label, self.untrusted)


def make_plain(
    messages: tuple[Message, ...], label: Label, untrusted: bool
) -> Conversation:
    """Return a conversation that continues none."""
    return Conversation(messages).with_provenance(label, untrusted=untrusted)


async def load_messages(conversation: Conversation) -> None:
    """Read the messages of the runs that a conversation continues; raise `JournalError` as `messages` does."""
    if isinstance(conversation, ContinuedConversation):
        await conversation.history.load()


def is_loaded(conversation: Conversation) -> bool:
    """Whether this process has all messages of a conversation."""
    if not isinstance(conversation, ContinuedConversation):
        return True
    return conversation.is_loaded


def list_own_messages(conversation: Conversation) -> tuple[Message, ...]:
    """Return the messages of a conversation after those of its history, which nothing reads for this."""
    if isinstance(conversation, ContinuedConversation):
        return conversation.added
    return conversation.messages


def grow_from(conversation: Conversation, own: Sequence[Message]) -> Conversation:
    """Return a conversation with other messages after those of its history."""
    grown: Conversation
    if isinstance(conversation, ContinuedConversation):
        grown = ContinuedConversation.begin(conversation.history).add(*own)
    else:
        grown = Conversation().add(*own)
    label, untrusted = conversation.label, conversation.untrusted
    return grown.with_provenance(label, untrusted=untrusted)


def replace_last(conversation: Conversation, message: Message) -> Conversation:
    """Return a conversation with another last message."""
    own = list_own_messages(conversation)
    if not own:
        return grow_from(Conversation(), (*conversation.messages[:-1], message))
    return grow_from(conversation, (*own[:-1], message))


def split_history(
    conversation: Conversation, journal: Journal
) -> tuple[Follows | None, tuple[Message, ...]]:
    """Return what of a conversation a journal has as that of an earlier run, and the messages after it."""
    if isinstance(conversation, ContinuedConversation):
        history = conversation.history
        if history.is_in(journal):
            return history.follows, conversation.added
    return None, conversation.messages


def without_entries_of(
    conversation: Conversation, journal: Journal, run_id: str
) -> Conversation:
    """Return a conversation in which no message is known as one of a run that has only begun.

    A run of another journal may have the same id.
    """
    follows, own = split_history(conversation, journal)
    if not any(find_code(one.entry, run_id) for one in own):
        return conversation
    label, untrusted = conversation.label, conversation.untrusted
    begun = make_plain((), label, untrusted) if follows is None else conversation
    return grow_from(begun, [dataclasses.replace(one) for one in own])


def refer(header: RunHeader, follows: Follows | None) -> RunHeader:
    """Return the header of a run as that of one that continues an earlier one."""
    if follows is None:
        return header
    entry = follows.seq, follows.hash
    return dataclasses.replace(header, follows=follows.run_id, follows_entry=entry)


@dataclasses.dataclass(frozen=True)
class TurnStart:
    """How a run begins as a turn of a thread, which `Thread` says of it.

    Args:
        is_first: whether it begins the thread, so that it is refused where the journal has a turn of it.
        commands: the numbers of the messages to the turn before that the run begins with.
    """

    is_first: bool = False
    commands: tuple[int, ...] = ()


NO_TURN = TurnStart()
"""A run that is not a turn of a thread."""


def begin_whole(
    started: RunStarted, conversation: Conversation, turn: TurnStart
) -> RunStarted | None:
    """Return the first entry of a run as that of one that holds all its messages itself.

    `None` for a turn: it must not bring back a thread that was deleted meanwhile.
    """
    if turn is not NO_TURN:
        return None
    return dataclasses.replace(started, messages=conversation.messages, follows=None)


def count_messages(started: RunStarted) -> int:
    """Return the number of the messages that a run began with."""
    earlier = started.follows.messages if started.follows else 0
    return earlier + len(started.messages)


def open_conversation(journal: Journal, started: RunStarted) -> Conversation:
    """Return the conversation that a run began with."""
    given: Conversation
    if started.follows is None:
        given = Conversation(started.messages)
    else:
        history = History(journal, started.follows)
        given = ContinuedConversation.begin(history).add(*started.messages)
    return given.with_provenance(started.label, untrusted=started.untrusted)


def mark_given(given: Conversation, journal: Journal) -> TurnMark:
    """Return the mark of the last messages that a run began with; its `turn` is the number of the run."""
    follows, _ = split_history(given, journal)
    if follows is None or not isinstance(given, ContinuedConversation):
        return FIRST_TURN
    return given.history.mark.begin(follows.messages, follows.turn + 1)


def offer_conversation(
    journal: Journal, last: Entry, start: Conversation, end: Conversation
) -> Conversation:
    """Return the conversation with which a run ended, as one that a new run can continue.

    `last` is the last entry of the run, `start` the conversation that it began with.
    """
    digest, begun = end.digest.hex(), mark_given(start, journal)
    follows = Follows(
        last.run_id, last.seq, last.hash, digest, end.size, len(end), begun.turn
    )  # fmt: skip
    mark = begun.end(last.run_id, count_kept((last,)), begun.turn)
    return ContinuedConversation.begin(History(journal, follows, end, mark))


# --- what the last entry of a run holds ---


def describe_end(
    run_id: str, start: Conversation, end: Conversation
) -> tuple[int, tuple[Message | str, ...]]:
    """Return how many messages of its start the end of a run keeps, and those that come after them.

    A message that is made of an entry of the run is named by its code.
    """
    kept, before, after = _split(start, end)
    pairs = zip(before, after, strict=False)
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    shared = sum(1 for _ in common)
    new = after[shared:]
    return kept + shared, tuple(_name_message(run_id, one) for one in new)


def _split(
    start: Conversation, end: Conversation
) -> tuple[int, tuple[Message, ...], tuple[Message, ...]]:
    """Return how many messages both begin with for certain, and the others of each."""
    match start, end:
        case ContinuedConversation(), ContinuedConversation():
            if start.history is end.history:
                return start.history.follows.messages, start.added, end.added
        case _:
            pass
    # An end that began anew is kept whole where comparing would mean to read the history.
    return 0, start.messages if is_loaded(start) else (), end.messages


def _name_message(run_id: str, message: Message) -> Message | str:
    return find_code(message.entry, run_id) or message
