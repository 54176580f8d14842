"""Calls that a model with native tool calls wrote as text: JSON of a tool behind a sentence, or in a code fence."""

import re
from collections.abc import Iterator, Mapping, Sequence

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..messages import Completion, Json, Message, ToolCall, ToolSpec
from ..parsing.bare_calls import BareCall, read_bare_call, strip_tags
from .base import Request
from .call_names import list_changed_names, restore_name

BARE_CALL = "bare_call"
"""The flag of a call that came as bare JSON."""
NEAR = 200
"""Characters around a tool's name in a text in which the arguments of a quoted call stand."""
_ESCAPE = compile_late(r"\\+u([0-9A-Fa-f]{4})")
_UNSEEN = compile_late(r"[\W_]+")


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
    """Return the call that a reply ends with as bare JSON; `None` without one, or if the model only quotes it."""
    changed = list_changed_names(tuple(one.name for one in request.tools))
    tools = [*request.tools, *_list_sent(request.tools, changed)]
    for candidate in (text, strip_tags(text)):
        bare = None if candidate is None else read_bare_call(candidate, tools)
        if bare is not None:
            call = restore_name(bare.call, changed)
            is_quoted = is_quotation(bare.written, (bare.call, call), request)
            return None if is_quoted else bare._replace(call=call)
    return None


def _list_sent(
    tools: Sequence[ToolSpec], changed: Mapping[str, str]
) -> Iterator[ToolSpec]:
    """Yield the tools that APIs know by another name, by that name, which is the one that their models write."""
    by_name = {tool.name: tool for tool in tools}
    for sent, name in changed.items():
        yield dataclasses.replace(by_name[name], name=sent)


def is_quotation(written: str, calls: Sequence[ToolCall], request: Request) -> bool:
    """Return whether the conversation has a call that a model wrote as text, so that the model may only quote it.

    The text counts as repeated whatever became of its spaces, quotes and escapes, and in messages of all but the model. In
    what tools returned, and in what is marked untrusted, a call counts too if the name of its tool stands near the
    values of its arguments; in other texts the name must be the value of a key.
    """
    messages = [m for m in request.conversation if m.role != "assistant"]
    text = _fold(written)
    if any(text in _fold(message.content) for message in messages):
        return True
    return any(
        _has_call(message, call, len(written)) for message in messages for call in calls
    )


def _has_call(message: Message, call: ToolCall, length: int) -> bool:
    """Return whether a message has the name of a call's tool, and the values of its arguments near it."""
    values = [_fold(value) for value in _list_values(dict(call.arguments))]
    values = [value for value in values if value]
    if not values:  # a name alone is in many a text
        return False
    name = re.escape(call.name)
    is_outside = message.untrusted or not message.trusted
    form = rf"(?<!\w){name}(?!\w)" if is_outside else rf":\s*+[\\\"']++{name}[\\\"']"
    surroundings = _list_surroundings(message.content, form, NEAR + 2 * length)
    return any(
        all(value in around for value in values) for around in map(_fold, surroundings)
    )


def _list_surroundings(content: str, form: str, reach: int) -> Iterator[str]:
    """Yield what stands around a name; a name so near to the last one that its surroundings were yielded is skipped."""
    end = 0
    for found in re.finditer(form, content, re.IGNORECASE):
        if found.end() > end:
            end = found.end() + reach
            yield content[max(0, found.start() - reach) : end + reach]


def _list_values(value: Json) -> Iterator[str]:
    """Yield the strings, numbers and truth values in JSON, as text."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _list_values(inner)
    elif value is not None:
        yield str(value)


def _fold(text: str) -> str:
    """Return the letters and digits of a text, which spaces, quotes, escapes and marks do not change."""
    readable = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    for escape in ("\\n", "\\t", "\\r"):
        readable = readable.replace(escape, " ")
    return _UNSEEN.sub("", readable).casefold()


def _may_call(request: Request) -> bool:
    if request.schema is not None or request.as_text:
        return False
    return len(request.tools) > 0 and request.tool_choice == "auto"
