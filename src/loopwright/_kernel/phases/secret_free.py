"""What engines hand on, without secrets; as it was recorded where a secret of it was not known then."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from ..._internal import dataclasses
from ...messages import (
    Conversation,
    Json,
    JsonObject,
    ToolCall,
    canonical_json,
    hash_arguments,
)
from ...security.redaction import REDACTED, Redactor
from ...security.redaction.forms import list_call_forms, list_forms, list_message_forms
from ...security.redaction.messages import redact_calls, redact_conversation
from ..durability.history import grow_from
from .fingerprints import fingerprint

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class WrittenCalls:
    """The calls that an engine wrote, without secrets; the arguments of those that had some, and their fingerprint."""

    calls: tuple[ToolCall, ...]
    originals: Mapping[int, JsonObject]
    fingerprint: str


def clean_calls(
    redactor: Redactor, calls: tuple[ToolCall, ...], recorded: Any
) -> WrittenCalls:
    """Return calls of an engine without secrets; the same ones where an entry has them so."""
    found = _fingerprint_calls(calls)
    if _is_recorded(recorded, found):
        return WrittenCalls(calls, {}, found)
    clean, originals = redact_calls(redactor, calls)
    if _is_changed(recorded, _fingerprint_calls(clean)):
        forms = list_call_forms(calls, clean)
        fits = _find_fitting(recorded, forms, _fingerprint_calls)
        clean = fits or clean
        hidden = [
            one.arguments != made.arguments
            for one, made in zip(calls, clean, strict=True)
        ]
        originals = {
            number: originals[number] for number in originals if hidden[number]
        }
    return WrittenCalls(clean, originals, _fingerprint_calls(clean))


def clean_conversation(
    redactor: Redactor, what: str, conversation: Conversation, recorded: Any
) -> Conversation:
    """Return a conversation that is handed on without secrets; the same one where an entry has its fingerprint."""
    if _is_recorded(recorded, fingerprint(what, conversation.digest)):
        return conversation
    clean = redact_conversation(redactor, conversation)
    if not _is_changed(recorded, fingerprint(what, clean.digest)):
        return clean
    forms = list_message_forms(conversation.messages, clean.messages)
    grown = map(functools.partial(grow_from, Conversation()), forms)
    found = _find_fitting(recorded, grown, lambda one: fingerprint(what, one.digest))
    if found is None:
        return clean
    label, untrusted = conversation.label, conversation.untrusted
    return found.with_provenance(label, untrusted=untrusted)


def clean_arguments(redactor: Redactor, arguments: JsonObject) -> dict[str, Json]:
    """Return arguments of something that an engine itself does, without secrets."""
    return cast("dict[str, Json]", redactor.redact_value(dict(arguments)))


def was_recorded(hashed: str, arguments: JsonObject, clean: JsonObject) -> bool:
    """Return whether a recorded hash is that of arguments, with any of what is secret in them today in plain."""
    if hashed in map(hash_arguments, (clean, arguments)):
        return True
    forms = cast("list[JsonObject]", list_forms(dict(arguments), dict(clean)))
    return hashed in map(hash_arguments, forms)


def hides_secret(arguments: JsonObject) -> bool:
    """Return whether a secret was taken out of arguments."""
    return REDACTED.encode() in canonical_json(dict(arguments))


def _find_fitting(
    recorded: Any, forms: Iterable[T], identify: Callable[[T], str]
) -> T | None:
    """Return the form that an entry has: when it was recorded only some of today's secrets were known."""
    return next(
        (form for form in forms if _is_recorded(recorded, identify(form))), None
    )


def _is_changed(recorded: Any, found: str) -> bool:
    return getattr(recorded, "fingerprint", found) != found


def _is_recorded(recorded: Any, found: str) -> bool:
    return getattr(recorded, "fingerprint", None) == found


def _fingerprint_calls(calls: tuple[ToolCall, ...]) -> str:
    content = [[call.name, dict(call.arguments), call.id] for call in calls]
    return fingerprint("propose", canonical_json(content))
