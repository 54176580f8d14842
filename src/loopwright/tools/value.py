"""ToolValue: what a tool returned, as text for the model and as attachments."""

import contextlib
import functools
import inspect
import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .._internal import dataclasses
from ..attachments import Attachment
from ..labels import Label, find_provenance
from ..resilience.timeouts import CodeOutcome, capture

MAX_PARTS = 10_000  # of a result that are looked at for attachments
PLAIN = frozenset({str, int, float, bool, type(None)})
"""The types of results that hold nothing else, and no label."""


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
    return capture(functools.partial(_separate, value, limit))


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
    """Return a result with its attachments apart: it is one, or a list, dict, dataclass or model that has some."""
    if type(value) in PLAIN:
        return ToolValue(as_text(value))
    label, untrusted = find_provenance(value)
    parts = _read_parts(value, limit)
    if label == "public" and not untrusted:
        return parts
    return dataclasses.replace(parts, label=label, untrusted=untrusted)


def _read_parts(value: Any, limit: int | None) -> ToolValue:
    """Return a result with its attachments apart."""
    if inspect.isgenerator(value):
        value = list(itertools.islice(value, limit))
    if not _has_attachment(value):
        return ToolValue(as_text(value, limit))
    sent: list[Attachment] = []
    if isinstance(value, (Attachment, list, tuple)):
        parts = [value] if isinstance(value, Attachment) else cast("list[Any]", value)
        kept = [part for part in parts if not _takes_out(part, sent)]
        texts = [as_text(_extract(part, sent)) for part in kept]
        return ToolValue("\n".join(texts), tuple(sent))
    return ToolValue(as_text(_extract(value, sent)), tuple(sent))


def _has_attachment(value: Any) -> bool:
    """Whether a value has an attachment among its first 10,000 parts."""
    waiting = [value]
    for _ in range(MAX_PARTS):
        if not waiting:
            return False
        part = waiting.pop()
        if isinstance(part, Attachment):
            return True
        waiting += _get_fields(part).values()
    return False


def _get_fields(value: Any) -> dict[Any, Any]:
    """Return what a value holds, by key, position or name; nothing for a value that is not a container."""
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType] - of any keys and values
    if isinstance(value, (list, tuple)):
        return dict(enumerate(cast("list[Any]", value)))
    if isinstance(value, BaseModel):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return vars(value) if hasattr(value, "__dict__") else {}
    return {}


def _takes_out(part: Any, sent: list[Attachment]) -> bool:
    """Add an attachment to those that are sent; return whether it is one. The content of a text document is text."""
    is_sent = isinstance(part, Attachment) and not (part.is_text and part.data)
    if is_sent:
        sent.append(part)
    return is_sent


def _extract(value: Any, sent: list[Attachment]) -> Any:
    """Return a value with words in place of its attachments, which are added to `sent`."""
    if _takes_out(value, sent):
        return f"[{value.kind} {len(sent)}]"
    if isinstance(value, Attachment):
        name = value.name or "document"
        return f"{name}:\n{value.content.decode('utf-8-sig', 'replace')}"
    if not _has_attachment(value):
        return value
    fields = {key: _extract(inner, sent) for key, inner in _get_fields(value).items()}
    return list(fields.values()) if isinstance(value, (list, tuple)) else fields
