"""Take secrets out of what engines write for a model, before it is compared, sent and recorded."""

import operator
from collections.abc import Sequence

from ..._internal.encoder import find_code
from ...messages import Conversation, Message
from ...security.redaction import Redactor
from ...security.redaction.messages import redact_messages
from ..durability.history import ContinuedConversation, grow_from, list_own_messages


class Prompts:
    """The messages of one run that engines write themselves; all others were cleaned when they entered the run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._clean: dict[str, tuple[Message, ...]] = {}
        """The messages of the last question of each scope."""
        self._given: tuple[Message, ...] = ()
        self._given_ids: set[int] = set()

    def begin(self, given: Conversation) -> None:
        """Know the conversation that the run began with, which is clean."""
        self._given = list_own_messages(given)
        self._given_ids = set(map(id, self._given))

    def clean(
        self, path: str, conversation: Conversation, redactor: Redactor
    ) -> Conversation:
        """Return a conversation of a scope without secrets; the same one if it has none."""
        own = (
            conversation.added
            if isinstance(conversation, ContinuedConversation)
            else conversation.messages
        )
        known = self._clean.get(path, self._given)
        count = len(known) if own[: len(known)] == known else 0
        new = tuple(filter(self._is_written, own[count:]))
        clean = _redact(redactor, own, new) if new else own
        self._clean[path] = clean
        return conversation if clean is own else grow_from(conversation, clean)

    def clean_end(self, conversation: Conversation, redactor: Redactor) -> Conversation:
        """Return a conversation that the run ends with as its last entry may hold it; the same one if it has no secrets.

        That entry has whatever no other entry of the run has.
        """
        own = list_own_messages(conversation)
        stored = [one for one in own if not find_code(one.entry, self._run_id)]
        clean = _redact(redactor, own, stored)
        return conversation if clean is own else grow_from(conversation, clean)

    def _is_written(self, message: Message) -> bool:
        """Whether an engine wrote a message: it is neither made of an entry of this run nor what that was given.

        One that is made of an entry of another run was cleaned of the secrets that were known then.
        """
        entry = message.entry
        is_own = entry is not None and entry[0] == self._run_id
        return not is_own and id(message) not in self._given_ids


def _redact(
    redactor: Redactor, own: tuple[Message, ...], searched: Sequence[Message]
) -> tuple[Message, ...]:
    """Return messages with those that are searched without secrets; the same ones if they have none."""
    clean = redact_messages(redactor, searched)
    if all(map(operator.is_, clean, searched)):
        return own
    cleaned = dict(zip(map(id, searched), clean, strict=True))
    return tuple(cleaned.get(id(one), one) for one in own)
