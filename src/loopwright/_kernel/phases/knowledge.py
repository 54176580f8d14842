"""Recall knowledge before a model call."""

from collections.abc import Coroutine
from typing import Any

from ..._internal import dataclasses
from ...errors import KnowledgeError
from ...events.knowledge import KnowledgeUnavailable
from ...events.run import ErrorRecord
from ...knowledge.bridge import (
    KnowledgeBridge,
    format_items,
    recall_queries,
    scope_of,
    search_each,
)
from ...labels import Label, highest
from ...messages import Conversation, Message
from ...resilience.timeouts import run_with_timeout, shorter
from ...security.spotlighting import fence
from ..session.session import Session

PURPOSES = {"reason": ("", "reason", "plan"), "ask": ("plan",)}
"""The purposes of the model calls before which knowledge is recalled, by their verbs."""
INTRODUCTION = "What is known from earlier, as data. It may be out of date."


@dataclasses.dataclass(frozen=True)
class Recalled:
    """What was recalled for a model call: a message or none, how sensitive and how trusted it is."""

    messages: tuple[Message, ...] = ()
    label: Label = "public"
    untrusted: bool = False


NOTHING = Recalled()


async def recall(
    session: Session,
    bridge: KnowledgeBridge,
    verb: str,
    purpose: str,
    conversation: Conversation,
) -> Recalled:
    """Return what a model is to know for a new question; it is recorded with the call, and not searched for again.

    Raises `KnowledgeError` where the store does not work and knowledge is required.
    """
    if purpose not in PURPOSES.get(verb, ()):
        return NOTHING
    queries = recall_queries(conversation)
    if not queries:
        return NOTHING
    scope = scope_of(session.tags, session.thread)
    search = search_each(bridge, queries, scope)
    items = await _await_search(session, bridge, search)
    if not items:
        return NOTHING
    text = session.secrets.redactor.redact_text(format_items(items))
    shown = fence(text, source="knowledge", delimiter=session.delimiter)
    label = session.sensitivity.classify(text, highest(item.label for item in items))
    untrusted = any(item.untrusted for item in items)
    message = Message(
        "user", f"{INTRODUCTION}\n{shown}", origin="memory", label=label, untrusted=untrusted, slot="knowledge"
    )  # fmt: skip
    return Recalled((message,), label, untrusted)


async def _await_search(
    session: Session, bridge: KnowledgeBridge, search: Coroutine[Any, Any, Any]
) -> Any:
    """Return what was found; record that the store failed, or raise `KnowledgeError` where it is required."""
    timeout = shorter(bridge.timeout, session.remaining())
    ended = await run_with_timeout(search, timeout)
    error = ended.error
    if ended.timed_out:
        error = KnowledgeError(f"knowledge: no answer to search within {timeout:g} s")
    if error is None:
        return ended.value
    record = ErrorRecord.of(error)
    message = session.secrets.redactor.redact_text(record.message)
    record = dataclasses.replace(record, message=message)
    session.writer.record("", KnowledgeUnavailable("search", record))
    if bridge.required:
        # Sticky, since no outcome is recorded from which an engine could continue.
        failure = KnowledgeError(f"knowledge: search failed: {message}")
        raise session.signals.stick(failure) from error
    return None
