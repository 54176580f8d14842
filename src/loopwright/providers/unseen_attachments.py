"""Attachments of tool results for models that do not take them: their description stays, with a flag of the reply."""

import re

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..errors import ContextTooLong, ProviderError
from ..messages import Completion, Conversation, Message
from .base import Capabilities

NOT_SHOWN = "[not shown: this model takes no {}]"
REFUSALS = (None, 400, 404, 415, 422)
"""The statuses of a request that is refused for its content; none where the request could not be written."""
_ABOUT_ATTACHMENTS = compile_late(
    r"image|vision|multi-?modal|modalit|document|attachment|\bfile\b|content (?:block|part|type)",
    re.IGNORECASE,
)
_ABOUT_MODEL = compile_late(
    r"(?:model|endpoint|deployment)\b.{0,80}(?:n't|\bnot) (?:\w+ )?support|image input|"
    r"only text|text[- ]only|only supported by|\bvision\b|multi-?modal|takes no|unknown variant",
    re.IGNORECASE,
)


def describe_unseen(
    conversation: Conversation, able: Capabilities
) -> tuple[Conversation, str]:
    """Return the conversation without the attachments of tool results that a model does not take.

    Each such result says so. The second value is a flag for the reply that says how many there are; empty for none.
    """
    refused = _list_refused(able)
    if not refused or not conversation.has_attachments:
        return conversation, ""
    count = 0
    messages: list[Message] = []
    for message in conversation.messages:
        has_some = message.attachments and message.role == "tool"
        clean = _describe(message, refused) if has_some else message
        count += len(message.attachments) - len(clean.attachments)
        messages.append(clean)
    if not count:
        return conversation, ""
    noun = "attachment" if count == 1 else "attachments"
    return Conversation(messages), f"attachments_described: {count} {noun} of tools"


def _list_refused(able: Capabilities) -> dict[str, str]:
    """Return the kinds that a model does not take, with the words for them."""
    kinds = {"image": able.images, "document": able.documents}
    return {kind: f"{kind}s" for kind, is_taken in kinds.items() if not is_taken}


def _describe(message: Message, refused: dict[str, str]) -> Message:
    kept = tuple(sent for sent in message.attachments if sent.kind not in refused)
    left_out = {sent.kind for sent in message.attachments} & refused.keys()
    if not left_out:
        return message
    note = NOT_SHOWN.format(" and no ".join(refused[kind] for kind in sorted(left_out)))
    content = f"{message.content}\n{note}"
    return dataclasses.replace(message, content=content, attachments=kept)


def is_about_attachments(error: ProviderError) -> bool:
    """Whether a request may have been refused for an image or a document in it."""
    if error.retryable or isinstance(error, ContextTooLong):
        return False
    is_refusal = error.status in REFUSALS
    return is_refusal and _ABOUT_ATTACHMENTS.search(str(error)) is not None


def is_about_model(error: ProviderError) -> bool:
    """Whether a refusal says that the model takes no attachments at all, not that one of them is broken or too many."""
    return error.status is not None and _ABOUT_MODEL.search(str(error)) is not None


def add_flag(completion: Completion, flag: str) -> Completion:
    """Return a reply with one more flag, unless that is empty."""
    if not flag:
        return completion
    return dataclasses.replace(completion, flags=(*completion.flags, flag))
