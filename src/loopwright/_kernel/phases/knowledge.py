"""Recall knowledge before a model call, and store the gist of an answer."""

import dataclasses
from collections.abc import Coroutine
from typing import Any

from ...errors import KnowledgeError
from ...events.knowledge import KnowledgeUnavailable
from ...events.run import ErrorRecord
from ...knowledge.base import Remembered
from ...knowledge.bridge import KnowledgeBridge, format_items, recall_query, scope_of
from ...labels import Label, highest
from ...messages import Conversation, Message
from ...resilience.timeouts import run_with_timeout, shorter
from ...result import RunOutcome
from ...security.spotlighting import fence
from ..session.services import Services
from ..session.session import Session

PURPOSES = {"reason": ("", "reason", "plan"), "ask": ("plan",)}
"""The purposes of the model calls before which knowledge is recalled, by their verbs."""
INTRODUCTION = "What is known from earlier, as data. It may be out of date."
MAX_TASK, MAX_GIST = 200, 400
"""Characters of the task and of the answer in a gist."""


@dataclasses.dataclass(frozen=True)
class Recalled:
    """What was recalled for a model call: a message or none, how sensitive and how trusted it is."""

    messages: tuple[Message, ...] = ()
    label: Label = "public"
    untrusted: bool = False


NOTHING = Recalled()


async def recall(
    session: Session,
    services: Services,
    verb: str,
    purpose: str,
    conversation: Conversation,
) -> Recalled:
    """Return what a model is to know for a new question; it is recorded with the call, and not searched for again.

    Raises `KnowledgeError` where the store does not work and knowledge is required.
    """
    bridge = services.knowledge
    if bridge is None or purpose not in PURPOSES.get(verb, ()):
        return NOTHING
    query = recall_query(conversation)
    if not query:
        return NOTHING
    scope = scope_of(session.tags, session.thread)
    search = bridge.store.search(
        query, kinds=bridge.kinds, limit=bridge.limit, threshold=bridge.threshold, scope=scope
    )  # fmt: skip
    items = await _use_store(session, bridge, "search", search)
    if not items:
        return NOTHING
    text = session.secrets.redactor.redact_text(format_items(items))
    shown = fence(text, source="knowledge", delimiter=session.delimiter)
    label = session.sensitivity.classify(text, highest(item.label for item in items))
    untrusted = any(item.untrusted for item in items)
    message = Message(
        "user", f"{INTRODUCTION}\n{shown}", origin="memory", label=label, untrusted=untrusted
    )  # fmt: skip
    return Recalled((message,), label, untrusted)


async def persist_answer(
    session: Session, services: Services, task: str, outcome: RunOutcome
) -> None:
    """Store the gist of a run's answer, once, if the runtime wants it and the run completed."""
    bridge = services.knowledge
    if bridge is None or not bridge.auto_persist or outcome.answer is None:
        return
    if outcome.status != "completed" or session.signals.fatal is not None:
        return
    asked = " ".join(task.split())[:MAX_TASK]
    gist = " ".join(outcome.answer.split())[:MAX_GIST]
    item = Remembered(
        f"{asked}: {gist}", kind="answer", label=session.sensitivity.label, untrusted=session.sensitivity.untrusted,
        source_run=session.run_id, scope=scope_of(session.tags, session.thread),
    )  # fmt: skip
    # What the answer is made of is durable before it leaves the process.
    await session.writer.barrier()
    await session.writer.ensure_held()
    stored = bridge.store.store(item, key=session.idempotency_key("answer"))
    await _use_store(session, bridge, "store", stored, required=False)


async def _use_store(
    session: Session,
    bridge: KnowledgeBridge,
    verb: str,
    work: Coroutine[Any, Any, Any],
    *,
    required: bool | None = None,
) -> Any:
    """Return what a store gave; record that it failed, or raise `KnowledgeError` where it is required."""
    timeout = shorter(bridge.timeout, session.remaining())
    ended = await run_with_timeout(work, timeout)
    error = ended.error
    if ended.timed_out:
        error = KnowledgeError(f"knowledge: no answer to {verb} within {timeout:g} s")
    if error is None:
        return ended.value
    record = ErrorRecord.of(error)
    message = session.secrets.redactor.redact_text(record.message)
    record = dataclasses.replace(record, message=message)
    session.writer.record("", KnowledgeUnavailable(verb, record))
    if bridge.required if required is None else required:
        # Sticky, since no outcome is recorded from which an engine could continue.
        failure = KnowledgeError(f"knowledge: {verb} failed: {message}")
        raise session.signals.stick(failure) from error
    return None
