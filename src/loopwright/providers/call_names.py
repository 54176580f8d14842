"""Ids and names of calls that one API gave, as another API takes them."""

import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..messages import Completion, Message, ToolCall
from .base import Delta

MAX_NAME = 64  # characters
MAX_DIGEST = 8  # characters
NINE = 9
MAX_LISTS = 256  # of tools whose changed names are kept
_get_name: Callable[[ToolCall], str] = operator.attrgetter("name")
_NAME = compile_late(r"[a-zA-Z_][a-zA-Z0-9_-]*")
_NOT_IN_NAME = compile_late(r"[^a-zA-Z0-9_-]")
_PLAIN_ID = compile_late(r"[a-zA-Z0-9_-]+")
_ALPHANUMERIC = compile_late(r"[a-zA-Z0-9]+")


def fit_name(name: str) -> str:
    """Return a tool's name in letters, digits, _ and -, at most 64 of them, with a letter or _ first.

    Most APIs refuse any other; that the first is a letter or _ is Gemini's. A tool may have another name
    ("browser.click"), and a model may invent one ("functions.search"), which its own API would refuse in each later request.
    """
    if len(name) <= MAX_NAME and _NAME.fullmatch(name):
        return name
    digest = _digest(name)[:MAX_DIGEST]
    kept = _NOT_IN_NAME.sub("_", name)
    if not _NAME.match(kept):
        kept = f"_{kept}"
    return f"{kept[: MAX_NAME - len(digest) - 1]}_{digest}"


@functools.lru_cache(MAX_LISTS)
def list_changed_names(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return the names of tools that APIs know by another one, by that other one."""
    changed = {fit_name(name): name for name in names}
    return {sent: name for sent, name in changed.items() if sent != name}


def restore_name(call: ToolCall, changed: Mapping[str, str]) -> ToolCall:
    """Return a call with the name of its tool."""
    name = changed.get(call.name)
    return call if name is None else dataclasses.replace(call, name=name)


def restore_names(reply: Completion, changed: Mapping[str, str]) -> Completion:
    """Return a reply whose calls have the names of the tools."""
    if changed.keys().isdisjoint(map(_get_name, reply.calls)):
        return reply
    calls = tuple(restore_name(call, changed) for call in reply.calls)
    return dataclasses.replace(reply, calls=calls)


def restore_delta(delta: Delta, changed: Mapping[str, str]) -> Delta:
    """Return a part of a stream whose calls have the names of the tools."""
    if not changed:
        return delta
    call, whole = delta.call, delta.completion
    if call is not None and call.name in changed:
        call = dataclasses.replace(call, name=changed[call.name])
    if whole is not None:
        whole = restore_names(whole, changed)
    return dataclasses.replace(delta, call=call, completion=whole)


def fit_plain_id(call_id: str, length: int = MAX_NAME) -> str:
    """Return an id if it has letters, digits, _ and - only, and not too many; else one made of it."""
    if len(call_id) <= length and _PLAIN_ID.fullmatch(call_id):
        return call_id
    return f"call_{_digest(call_id)[:32]}"


def fit_short_id(call_id: str, length: int) -> str:
    """Return an id if it is not too long; else one made of it."""
    return call_id if len(call_id) <= length else f"call_{_digest(call_id)[:32]}"


def fit_nine_id(call_id: str) -> str:
    """Return an id if it has nine letters and digits; else one made of it."""
    if len(call_id) == NINE and _ALPHANUMERIC.fullmatch(call_id):
        return call_id
    return _digest(call_id)[:NINE]


def _digest(call_id: str) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def make_ids_unique(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with another id for each call that repeats one, as models do that number their calls."""
    ids = [call.id for message in messages for call in message.calls]
    if len(set(ids)) == len(ids):
        return messages
    taken: set[str] = set()
    renamed: list[Message] = []
    waiting: dict[str, list[str]] = {}  # new ids of calls without a result, by old id
    for message in messages:
        if message.calls:
            waiting = {}
            message = _rename_calls(message, taken, waiting)
        elif message.role == "tool":
            new_id = waiting[message.call_id].pop(0)
            message = dataclasses.replace(message, call_id=new_id)
        renamed.append(message)
    return renamed


def _rename_calls(
    message: Message, taken: set[str], waiting: dict[str, list[str]]
) -> Message:
    calls: list[ToolCall] = []
    for call in message.calls:
        new_id = _find_free_id(call.id, taken)
        waiting.setdefault(call.id, []).append(new_id)
        calls.append(dataclasses.replace(call, id=new_id))
    return dataclasses.replace(message, calls=tuple(calls))


def _find_free_id(call_id: str, taken: set[str]) -> str:
    free, number = call_id, 2
    while free in taken:
        free, number = f"{call_id}_{number}", number + 1
    taken.add(free)
    return free
