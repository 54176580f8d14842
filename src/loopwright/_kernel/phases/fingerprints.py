"""Fingerprints: by which a replay sees that code asks for what the journal holds."""

import functools
import hashlib
from collections.abc import Callable

from ..._internal import dataclasses
from ...events.effects import ModelRequested
from ...messages import Conversation, Message
from ...security.redaction import Redactor
from ...security.redaction.forms import list_message_forms
from ...security.redaction.messages import redact_messages
from ..durability.history import grow_from, list_own_messages
from .question import Question


def fingerprint(what: str, about: bytes) -> str:
    """Return the SHA-256 (hex) over an effect's verb with its options, and its subject."""
    return hashlib.sha256(f"{len(what)}:{what}".encode() + about).hexdigest()


def fingerprint_question(question: Question, delivered: tuple[Message, ...]) -> str:
    """Return the fingerprint of a question with what is delivered with it."""
    asked = question.conversation
    if delivered:
        asked = asked.add(*delivered)
    what = f"{question.verb} tools={question.tools} into={question.into}"
    return fingerprint(what, asked.digest)


def has_changed(question: Question, intent: ModelRequested) -> bool:
    """Return whether code asks something else than a recorded intent."""
    return fingerprint_question(question, intent.delivered) != intent.fingerprint


def restate(
    redactor: Redactor, question: Question, known: ModelRequested
) -> ModelRequested:
    """Return a recorded intent of a question without what became a secret since."""
    about = redactor.redact_text(known.about)
    delivered = redact_messages(redactor, known.delivered)
    stated = dataclasses.replace(known, about=about, delivered=delivered)
    if delivered == known.delivered:
        return stated
    # It is recorded again, and is compared with what that entry says from then on.
    asked = fingerprint_question(question, delivered)
    return dataclasses.replace(stated, fingerprint=asked)


def find_recorded(
    question: Question,
    clean: Conversation,
    is_recorded: Callable[[Question], bool | None],
) -> Question | None:
    """Return a question as it was recorded when only some of its secrets were known; `clean` is without all."""
    plain = question.conversation
    forms = list_message_forms(*map(list_own_messages, (plain, clean)))
    grown = map(functools.partial(grow_from, plain), forms)
    asked = (dataclasses.replace(question, conversation=one) for one in grown)
    return next(filter(is_recorded, asked), None)


def are_same(one: ModelRequested, other: ModelRequested) -> bool:
    """Return whether two intents are about the same question."""
    return one.fingerprint == other.fingerprint
