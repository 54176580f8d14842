"""What an ended run's entries hold for memories: what people said, and which calls of tools succeeded."""

import re
from collections.abc import Iterator, Sequence

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..events.control import CommandReceived
from ..events.effects import CallsProposed, ModelReplied, ToolFinished
from ..events.entry import Entry
from ..messages import Json, Message, ToolCall
from .base import EndedRun

SPOKEN_COMMANDS = ("steer", "follow_up", "answer")
"""The commands in which a person speaks; added context may be a page."""
FENCE = "=== "
"""What the lines around quoted text from outside begin with."""
QUOTATION = compile_late(
    r"(?<![\w.,!?])(?:\u201c(?:[^\u201c\u201d]++|\u201c[^\u201c\u201d]*+\u201d){0,10}+\u201d"
    r"|\u201e(?:[^\u201c-\u201e]++|\u201e[^\u201c-\u201e]*+[\u201c\u201d]){0,10}+[\u201c\u201d]"
    r"|\u00ab(?:[^\u00ab\u00bb]++|\u00ab[^\u00ab\u00bb]*+\u00bb){0,10}+\u00bb"
    r"|\"(?:[^\"]++|(?<=[\s(])\"(?=\w)[^\"]*+\"){0,10}+\""
    r"|[\"\u201c\u201e\u00ab][^\"\u201c-\u201e\u00ab\u00bb]*[\"\u201c\u201d\u00bb])"
)
"""What stands between quotation marks, with quotations in it; those behind a number are inches."""
SEVERAL = compile_late(r"[.!?]\s|\n")
"""What several sentences or lines have in them."""


@dataclasses.dataclass(frozen=True)
class SucceededCall:
    """A call of a tool that succeeded, and the names of its arguments."""

    tool: str
    arguments: tuple[str, ...]


def read_people(ended: EndedRun) -> list[str]:
    """Return what people said in a run, in order: nothing that a tool, a model or a page did, nor quoted text."""
    texts = [
        message.content for message in ended.started.messages if _is_person(message)
    ]
    commands = (entry.event for entry in ended.entries)
    for command in commands:
        if isinstance(command, CommandReceived) and not command.refused:
            texts += _read_command(command)
    return [text for text in map(drop_quotations, texts) if text]


def _is_person(message: Message) -> bool:
    is_outside = message.untrusted is True or not message.trusted
    return message.role == "user" and message.origin == "caller" and not is_outside


def _read_command(command: CommandReceived) -> list[str]:
    text: Json = command.body.get("text")
    is_spoken = command.command in SPOKEN_COMMANDS
    return [text] if is_spoken and isinstance(text, str) else []


def drop_quotations(text: str) -> str:
    """Return a text without quotations, code and what stands between the delimiters of text from outside."""
    kept: list[str] = []
    end = ""
    for line in QUOTATION.sub(_drop_sentences, text).splitlines():
        mark = _find_mark(line)
        if end:
            end = "" if mark == end else end
        elif mark:
            end = mark
        elif not line.lstrip().startswith(">"):
            kept.append(line)
    return "\n".join(kept).strip()


def _drop_sentences(quotation: re.Match[str]) -> str:
    """Return a quotation of a word or of one sentence, which is part of what a person says; else a space."""
    quoted = quotation[0]
    return " " if SEVERAL.search(quoted, 1, len(quoted) - 1) else quoted


def _find_mark(line: str) -> str:
    """Return the mark with which a line begins or ends a quotation; empty for an ordinary line."""
    bare = line.strip()
    return next((mark for mark in ("```", FENCE) if bare.startswith(mark)), "")


def read_calls(entries: Sequence[Entry]) -> list[SucceededCall]:
    """Return the calls of tools that succeeded, in the order in which they ended."""
    proposed: dict[str, Sequence[ToolCall]] = {}
    calls: list[SucceededCall] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, CallsProposed):
            proposed[entry.key] = event.calls
        elif isinstance(event, ModelReplied):
            proposed[entry.key] = event.completion.calls
        elif isinstance(event, ToolFinished) and event.status == "ok":
            calls += _find_call(proposed, entry.key, event.tool)
    return calls


def _find_call(
    proposed: dict[str, Sequence[ToolCall]], key: str, tool: str
) -> Iterator[SucceededCall]:
    """Yield the call at a key, unless a substitute ran."""
    place, _, number = key.partition("#")
    calls = proposed.get(place, ())
    if number.isdigit() and int(number) < len(calls):
        call = calls[int(number)]
        if call.name == tool:
            yield SucceededCall(tool, tuple(call.arguments))
