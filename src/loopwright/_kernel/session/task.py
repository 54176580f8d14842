"""The task of a run: a text, or a conversation that ends with one."""

import dataclasses
from collections.abc import Mapping

from ...errors import ConfigError, PhaseError
from ...journals.listing import check_tags
from ...labels import highest
from ...messages import Conversation, Message, check_call_results
from ...principals import ApprovalRule, Principal, tag_principal
from ...security.redaction import Redactor
from ...security.redaction.messages import redact_conversation
from ..durability.history import replace_last
from .services import Services


def read_task(task: object, system: str | None, redactor: Redactor) -> Conversation:
    """Return what an engine works on, without secrets."""
    return redact_conversation(redactor, _parse_task(task, system))


def _parse_task(task: object, system: object) -> Conversation:
    if system is not None and not isinstance(system, str):
        raise ConfigError(f"system: must be a text, got {system!r:.80}")
    if isinstance(task, str) and task.strip():
        try:
            return Conversation.of(task, system=system)
        except ConfigError as error:
            raise ConfigError(f"task: {error}") from None
    if not isinstance(task, Conversation) or not task.messages:
        given = "an empty text" if isinstance(task, str) else repr(task)
        raise ConfigError(f"task: give the engine something to do, got {given}")
    try:
        check_call_results(task.messages)
    except PhaseError as error:
        raise ConfigError(f"task: the conversation is not complete: {error}") from None
    last = task.messages[-1]
    if (
        last.role == "user" and last.origin == "engine"
    ):  # `conversation.user(...)`, called by who starts the run
        task = replace_last(task, dataclasses.replace(last, origin="caller"))
    return _replace_system(task, system) if system else task


def _replace_system(task: Conversation, text: str) -> Conversation:
    """Return a conversation with that system message in place of its own."""
    first, rest = task.messages[0], task.messages
    if first.role == "system":
        if first.content == text:
            return task
        rest = rest[1:]
    label, untrusted = task.label, task.untrusted
    replaced = Conversation([Message("system", text), *rest])
    return replaced.with_provenance(
        highest((label, replaced.label)), untrusted=untrusted or replaced.untrusted
    )


def redact_tags(
    services: Services, tags: Mapping[str, str] | None, principal: Principal | None
) -> dict[str, str]:
    """Return the tags of a run without secrets, with those of its principal."""
    redact = services.redactor.redact_text
    given = tag_principal(check_tags(tags), principal)
    return {name: redact(value) for name, value in given.items()}


def check_options(options: Mapping[str, object]) -> None:
    """Raise `ConfigError` for an option of a run that no journal could keep, before anything is stored."""
    saga = options.get("saga", False)
    if not isinstance(saga, bool):
        raise ConfigError(f"saga: must be True or False, got {saga!r:.80}")
    principal, approvals = options.get("principal"), options.get("approvals")
    if principal is not None and not isinstance(principal, Principal):
        raise ConfigError(
            f"principal: must be Principal(id, tenant, roles), got {principal!r:.80}"
        )
    if approvals is not None and not isinstance(approvals, ApprovalRule):
        raise ConfigError(
            f'approvals: must be ApprovalRule(role="manager"), got {approvals!r:.80}'
        )
