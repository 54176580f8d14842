"""Take secrets out of what engines write for a model, before it is compared, sent and recorded."""

import operator
from collections.abc import Sequence
from typing import TypeAlias

from ..._internal import dataclasses
from ..._internal.encoder import find_code
from ...labels import CONFIDENTIAL, highest
from ...messages import Conversation, Message
from ...security.redaction import Redactor
from ...security.redaction.messages import redact_messages
from ..durability.history import ContinuedConversation, grow_from, list_own_messages
from .sensitivity import Sensitivity

Known: TypeAlias = tuple[tuple[Message, ...], tuple[int, bytes]]
"""The own messages of a conversation, and its length and digest."""


class Prompts:
    """The messages of one run that engines write themselves; all others were cleaned when they entered the run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._clean: dict[str, Known] = {}
        """The last question of each scope."""
        self._given: Known = (), (0, b"")
        self._given_ids: set[int] = set()

    def begin(self, given: Conversation) -> None:
        """Know the conversation that the run began with, which is clean."""
        own = list_own_messages(given)
        self._given = own, (len(given), given.digest)
        self._given_ids = set(map(id, own))

    def clean(
        self, path: str, conversation: Conversation, redactor: Redactor
    ) -> Conversation:
        """Return a conversation of a scope without secrets; the same one if it has none."""
        own = (
            conversation.added
            if isinstance(conversation, ContinuedConversation)
            else conversation.messages
        )
        count = self._count_known(path, conversation, own)
        new = tuple(filter(self._is_written, own[count:]))
        clean = _redact(redactor, own, new) if new else own
        if clean is not own:
            conversation = grow_from(conversation, clean)
        self._clean[path] = clean, (len(conversation), conversation.digest)
        return conversation

    def clean_end(
        self, conversation: Conversation, redactor: Redactor, read: Sensitivity
    ) -> Conversation:
        """Return a conversation that the run ends with as its last entry may hold it; the same one if it has no secrets.

        That entry has whatever no other entry of the run has. What engines wrote may repeat what the run has read.
        """
        own = list_own_messages(conversation)
        stored = [one for one in own if not find_code(one.entry, self._run_id)]
        clean = _redact(redactor, own, stored)
        if read.untrusted or read.label in CONFIDENTIAL:
            clean = tuple(self._label(one, read) for one in clean)
        return conversation if clean is own else grow_from(conversation, clean)

    def _label(self, message: Message, read: Sensitivity) -> Message:
        """Return a message with the label and the trust of the run if its engine wrote it for a model."""
        is_prompt = message.origin == "engine" and message.role == "user"
        if not is_prompt or message.entry or not self._is_written(message):
            return message
        label, untrusted = highest((message.label, read.label)), message.untrusted
        return dataclasses.replace(
            message, label=label, untrusted=read.untrusted or untrusted
        )

    def _count_known(
        self, path: str, conversation: Conversation, own: tuple[Message, ...]
    ) -> int:
        """Return how many of its own messages are those of the last question of the scope, which are clean.

        One that grew from that question, as in each turn, is not compared with it: that would take longer with each turn.
        """
        known, place = self._clean.get(path, self._given)
        if place in conversation.grown_from:
            return len(known)
        return len(known) if own[: len(known)] == known else 0

    def _is_written(self, message: Message) -> bool:
        """Whether an engine wrote a message: it is neither made of an entry of this run nor what that was given.

        One that is made of an entry of another run was cleaned of the secrets that were known then.
        """
        is_own = bool(find_code(message.entry, self._run_id))
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
