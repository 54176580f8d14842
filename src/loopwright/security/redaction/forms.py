"""The forms in which values may have been recorded when only some of their secrets were known."""

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from ..._internal import dataclasses
from ...messages import Message, ToolCall
from .heuristics import REDACTED

_HIDDEN = re.compile(f"((?:{re.escape(REDACTED)})+)")
MAX_SECRETS = 8
"""Any beyond these are taken out in each form."""


def list_forms(plain: Any, clean: Any) -> Iterator[Any]:
    """Yield a JSON value with each choice of its secrets taken out; `clean` is without all."""
    secrets = [*dict.fromkeys(_find_secrets(plain, clean))][:MAX_SECRETS]
    for count in range(len(secrets) + 1):
        for known in itertools.combinations(secrets, count):
            yield _keep(plain, clean, known)


def list_message_forms(
    plain: Sequence[Message], clean: Sequence[Message]
) -> Iterator[tuple[Message, ...]]:
    """Yield messages with each choice of the secrets of their texts and calls taken out; `clean` are without all."""
    values = [_read_texts(message) for message in plain]
    for form in list_forms(values, [_read_texts(message) for message in clean]):
        yield tuple(map(_write_texts, clean, form))


def list_call_forms(
    plain: Sequence[ToolCall], clean: Sequence[ToolCall]
) -> Iterator[tuple[ToolCall, ...]]:
    """Yield calls with each choice of the secrets of their arguments taken out; `clean` are without all."""
    for form in list_forms(_read_arguments(plain), _read_arguments(clean)):
        yield _write_arguments(clean, form)


def _read_arguments(calls: Sequence[ToolCall]) -> list[Any]:
    return [dict(call.arguments) for call in calls]


def _write_arguments(
    calls: Sequence[ToolCall], values: list[Any]
) -> tuple[ToolCall, ...]:
    pairs = zip(calls, values, strict=True)
    return tuple(dataclasses.replace(call, arguments=value) for call, value in pairs)


def _read_texts(message: Message) -> list[Any]:
    return [message.content, _read_arguments(message.calls)]


def _write_texts(message: Message, texts: list[Any]) -> Message:
    if texts == _read_texts(message):
        return message
    content, arguments = texts
    calls = _write_arguments(message.calls, arguments)
    return dataclasses.replace(message, content=content, calls=calls)


def _list_places(plain: Any, clean: Any) -> list[Any]:
    """Return the names or indexes of the parts that both values have; none of values that have other ones."""
    kinds = type(cast("object", plain)), type(cast("object", clean))
    if kinds == (dict, dict) and plain.keys() == clean.keys():
        return list(plain)
    if kinds == (list, list) and len(plain) == len(clean):
        return list(range(len(plain)))
    return []


def _find_secrets(plain: Any, clean: Any) -> Iterator[str]:
    places = _list_places(plain, clean)
    for place in places:
        yield from _find_secrets(plain[place], clean[place])
    if places or plain == clean:
        return
    if isinstance(plain, str) and isinstance(clean, str):
        for secret, _, _ in _split(plain, clean)[1]:
            yield secret
    else:
        yield repr(plain)


def _keep(plain: Any, clean: Any, kept: Collection[str]) -> Any:
    """Return a value without its secrets but for those that are kept."""
    places = _list_places(plain, clean)
    if places:
        parts = {place: _keep(plain[place], clean[place], kept) for place in places}
        return parts if type(plain) is dict else [*parts.values()]
    if isinstance(plain, str) and isinstance(clean, str):
        first, behind = _split(plain, clean)
        texts = [(one if one in kept else two) + end for one, two, end in behind]
        return "".join((first, *texts))
    return plain if repr(plain) in kept else clean


def _split(plain: str, clean: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Return a text up to its first secret, then each secret, its placeholder and the text behind it.

    Secrets right behind one another are taken for one.
    """
    first, *rest = _HIDDEN.split(clean)
    parts: list[tuple[str, str, str]] = []
    position = len(first)
    for hidden, behind in zip(rest[::2], rest[1::2], strict=True):
        found = plain.find(behind, position + 1) if behind else len(plain)
        parts.append((plain[position:found], hidden, behind))
        position = found + len(behind)
    return first, parts
