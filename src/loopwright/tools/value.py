"""ToolValue: what a tool returned, as text for the model and as attachments."""

import contextlib
import dataclasses
import inspect
import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from pydantic_core import to_jsonable_python

from ..attachments import Attachment
from ..labels import Label, find_provenance
from ..resilience.timeouts import CodeOutcome, capture


@dataclasses.dataclass(frozen=True, slots=True)
class ToolValue:
    """What a tool returned: text, and the images and documents that are not text."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    label: Label = "public"
    untrusted: bool = False


async def collect_values(
    values: AsyncGenerator[Any, Any], limit: int | None
) -> list[Any]:
    """Return what an async generator yields, at most one value for each of `limit` characters."""
    collected: list[Any] = []
    async with contextlib.aclosing(values):
        async for value in values:
            collected.append(value)
            if len(collected) == limit:
                break
    return collected


def read_value(value: Any, limit: int | None) -> Any:
    """Return the outcome with a result as a `ToolValue`, or with the error that prevents that.

    What must be awaited, and what was read already, is returned as it is.
    """
    if isinstance(value, CodeOutcome):
        return value
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        return value
    return capture(lambda: _separate(value, limit))


def as_text(value: Any, limit: int | None = None) -> str:
    """Return a tool's result as the model reads it: text as it is, everything else as JSON.

    Of a generator, no more values are taken than there can be in `limit` characters.
    """
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, too
    if inspect.isgenerator(value):
        value = list(itertools.islice(value, limit))
    if value is None:
        return "done"
    return json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False)


def _separate(value: Any, limit: int | None) -> ToolValue:
    """Return a result with its attachments apart: it is one, or a list or tuple that has some."""
    label, untrusted = find_provenance(value)
    parts = _read_parts(value, limit)
    if label == "public" and not untrusted:
        return parts
    return dataclasses.replace(parts, label=label, untrusted=untrusted)


def _read_parts(value: Any, limit: int | None) -> ToolValue:
    """Return a result with its attachments apart."""
    if inspect.isgenerator(value):
        value = list(itertools.islice(value, limit))
    parts = [value] if isinstance(value, Attachment) else value
    if not isinstance(parts, (list, tuple)):
        return ToolValue(as_text(value, limit))
    listed = cast("list[Any]", parts)
    if not any(isinstance(part, Attachment) for part in listed):
        return ToolValue(as_text(value, limit))
    sent = [part for part in listed if _is_sent(part)]
    texts = [_write(part) for part in listed if not _is_sent(part)]
    return ToolValue("\n".join(texts), tuple(sent))


def _is_sent(part: Any) -> bool:
    """Whether a part of a result is sent as an attachment; the content of a text document is text."""
    return isinstance(part, Attachment) and not (part.is_text and part.data)


def _write(part: Any) -> str:
    if not isinstance(part, Attachment):
        return as_text(part)
    return f"{part.name or 'document'}:\n{part.content.decode('utf-8-sig', 'replace')}"
