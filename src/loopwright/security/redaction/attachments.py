"""Prepare the images and documents of a tool's result for a run: counted, bounded, without secrets, named in words."""

import dataclasses
from collections.abc import Sequence

from ..._internal.regex import compile_late
from ...attachments import MAX_RESULT_ATTACHMENTS, MAX_RESULT_BYTES, Attachment
from ..spotlighting import strip_control_characters
from .redactor import Redactor

MAX_NAME = 80  # characters
_NOT_IN_NAME = compile_late(r"[^\w .\[\]-]+|\s+")


def clean_attachments(
    redactor: Redactor, sent: Sequence[Attachment], *, trusted: bool
) -> tuple[tuple[Attachment, ...], str]:
    """Return the attachments that a run may hold, and a line for each that was returned.

    An API shows a name outside of what encloses text from outside. So an attachment of a tool that is not trusted is
    sent as `image-1`, and its own name is in its line alone. Left out are those behind the 20th, those beyond
    10,000,000 bytes together, and those in which a registered secret stands in plain bytes or in the address.
    """
    kept: list[Attachment] = []
    lines: list[str] = []
    room = MAX_RESULT_BYTES
    for number, one in enumerate(sent[:MAX_RESULT_ATTACHMENTS], 1):
        named = _clean_name(redactor, one)
        shown = redactor.redact_text(named.describe())
        ending = _find_problem(redactor, one, room)
        if not ending:
            alias = f"{one.kind}-{number}"
            kept.append(named if trusted else dataclasses.replace(named, name=alias))
            ending = "" if trusted or not named.name else f"; sent as {alias}"
            room -= named.size
        lines.append(f"[{shown}{ending}]")
    if len(sent) > MAX_RESULT_ATTACHMENTS:
        lines.append(
            f"[the first {MAX_RESULT_ATTACHMENTS} attachments of {len(sent):,} are shown]"
        )
    return tuple(kept), "\n".join(lines)


def _clean_name(redactor: Redactor, sent: Attachment) -> Attachment:
    """Return the attachment with a name of one line without secrets and special signs."""
    name = redactor.redact_text(strip_control_characters(sent.name))
    name = _NOT_IN_NAME.sub("_", name)[:MAX_NAME]
    return sent if name == sent.name else dataclasses.replace(sent, name=name)


def _find_problem(redactor: Redactor, sent: Attachment, room: int) -> str:
    """Return why an attachment is left out, as the end of its line; an empty text if it is not."""
    if sent.size > room:
        return f", left out: a result has at most {MAX_RESULT_BYTES:,} bytes of attachments"
    try:
        is_clean = _is_clean(redactor, sent)
    except ValueError:
        return ", left out: its content is not base64"
    return "" if is_clean else ", left out: it holds a secret"


def _is_clean(redactor: Redactor, sent: Attachment) -> bool:
    if sent.url:
        return redactor.redact_text(sent.url) == sent.url
    content = sent.content.decode("latin-1")  # each byte is one character
    return redactor.registered_values.redact_text(content) is content
