"""Replies that nearly have the form of a dialect: inside a code fence, between foreign tags, or a call as bare JSON."""

import dataclasses
import re
from collections.abc import Iterable, Iterator

from ...parsing.arguments import find_tool
from ...parsing.bare_calls import strip_tags, unwrap_reply, unwrap_tag
from ..base import Request
from ..recovered_calls import BARE_CALL, find_bare_call, is_quotation
from .dialect import Dialect, Parsed

_LONE_CALL = re.compile(r"\s*+(?P<name>[\w.-]{1,128}+)\s*+[\[(][^\n]*+\s*+")


def read_near_form(
    dialect: Dialect, text: str, request: Request, *, calls_only: bool
) -> Parsed | None:
    """Return what a reply means that has no form of the dialect; `None` if that is not plain.

    A call counts if its tool is there. What the conversation says is not read, however the model repeats it.
    """
    candidates = [*_list_candidates(text)]
    candidates += _list_lone_calls([text, *candidates], request)
    for candidate in candidates:
        parsed = dialect.parse(candidate, request.tools)
        is_answer = parsed.answer is not None and not calls_only
        is_read = is_answer or _calls_registered(parsed, request)
        if is_read and not is_quotation(candidate, parsed.calls, request):
            return dataclasses.replace(parsed, complete=False)
    bare = find_bare_call(text, request)
    if bare is None:
        return None
    flags = (BARE_CALL,)
    return Parsed(bare.thought, (bare.call,), None, None, flags, complete=False)


def _list_candidates(text: str) -> Iterator[str]:
    """Yield the contents of the fence around a whole reply, and the reply without tags."""
    unwrapped = unwrap_reply(text, may_be_open=True)
    if unwrapped is not None:
        yield unwrapped
    inner = unwrap_tag(text if unwrapped is None else unwrapped)
    if inner is not None:
        yield inner
    stripped = strip_tags(text if unwrapped is None else unwrapped)
    if stripped is not None:
        yield stripped


def _list_lone_calls(texts: Iterable[str], request: Request) -> Iterator[str]:
    """Yield the texts that are one line with a call of a tool, with the marker of an action before it."""
    for text in texts:
        found = _LONE_CALL.fullmatch(text)
        if found is not None and find_tool(found["name"], request.tools) is not None:
            yield f"Action: {text.strip()}"


def _calls_registered(parsed: Parsed, request: Request) -> bool:
    """Return whether there are calls, and of registered tools alone."""
    found = [find_tool(call.name, request.tools) for call in parsed.calls]
    return len(found) > 0 and None not in found
