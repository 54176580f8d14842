"""Calls that a model with native tool calls wrote as text: JSON of a tool behind a sentence, or in a code fence."""

import dataclasses

from ..messages import Completion
from ..parsing.bare_calls import BareCall, read_bare_call, strip_tags
from .base import Request

BARE_CALL = "bare_call"
"""The flag of a call that came as bare JSON."""


def recover_call(completion: Completion, request: Request) -> Completion:
    """Return the reply of a model that wrote a call as text in place of making it, with the call.

    A reply whose form the caller asked for, as a text or by a schema, stays as it is.
    """
    answer = completion.answer
    if answer is None or completion.is_cut or not _may_call(request):
        return completion
    if answer.strip() != completion.text.strip() or "{" not in answer:
        return completion
    bare = find_bare_call(answer, request)
    if bare is None:
        return completion
    return dataclasses.replace(
        completion,
        calls=(bare.call,),
        answer=None,
        thought=bare.thought or completion.thought,
        flags=(*completion.flags, BARE_CALL),
    )


def find_bare_call(text: str, request: Request) -> BareCall | None:
    """Return the call that a reply ends with as bare JSON; `None` without one, or if a tool's result has it."""
    for candidate in (text, strip_tags(text)):
        bare = None if candidate is None else read_bare_call(candidate, request.tools)
        if bare is not None:
            return None if repeats_result(bare.written, request) else bare
    return None


def repeats_result(text: str, request: Request) -> bool:
    """Return whether a tool's result in the conversation has a text."""
    part = text.strip()
    results = [m.content for m in request.conversation if m.role == "tool"]
    return any(part in content for content in results)


def _may_call(request: Request) -> bool:
    if request.schema is not None or request.as_text:
        return False
    return len(request.tools) > 0 and request.tool_choice == "auto"
