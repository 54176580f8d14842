"""The messages that are made of the entries of a run, and the short codes that name them."""

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..errors import JournalError
from ..events.control import FollowedUp
from ..events.effects import (
    CallsProposed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
)
from ..events.entry import Entry
from ..events.request_records import Excerpt
from ..events.run import RunFinished
from ..labels import Label
from ..messages import Completion, Conversation, Message, ToolCall, is_untrusted
from ..parsing.spotlighting import spotlight

RENDERER = 1
"""The version of the rules of this module: a journal that has codes has messages by the rules of its version."""
_get_id: Callable[[ToolCall], str] = operator.attrgetter("id")
_ANSWER, _TEXT, _DELIVERED = "=", "!", "+"
_CODE = compile_late(r"([^=!+]*)([=!+]?)([0-9]*)")
_SOURCES = (
    ModelReplied, CallsProposed, ToolFinished, ModelRequested, FollowedUp, RunFinished,
)  # fmt: skip


def answer_code(key: str) -> str:
    """Return the code of a message with nothing but the answer of a reply; without a key, with that of the run."""
    return f"{key}{_ANSWER}"


def text_code(key: str) -> str:
    """Return the code of a message with the text of a reply that could not be read."""
    return f"{key}{_TEXT}"


def delivered_code(key: str, index: int) -> str:
    """Return the code of a message that the runtime delivered with a model call."""
    return f"{key}{_DELIVERED}{index}"


def find_thought(completion: Completion) -> str:
    """Return what a model said that is neither a call nor an answer."""
    if completion.thought or completion.answer is not None or completion.calls:
        return completion.thought
    return completion.text


def name_calls(calls: tuple[ToolCall, ...], key: str) -> tuple[ToolCall, ...]:
    """Return the calls with an id each, unique among them."""
    ids = {*map(_get_id, calls)}
    if "" not in ids and len(ids) == len(calls):
        return calls
    named: list[ToolCall] = []
    for index, call in enumerate(calls):
        named.append(dataclasses.replace(call, id=f"call_{id_of(key)}_{index}"))
    return tuple(named)


def id_of(key: str) -> str:
    """Return a key in the characters that every provider allows in a call id."""
    return key.replace(".", "_").replace("~", "_")


def delimiter_of(run_id: str, created: float = 0.0) -> str:
    """Return a run's delimiter: unpredictable from outside, and the same when the run is repeated."""
    return hashlib.sha256(f"{run_id}|{created!r}".encode()).hexdigest()[:12]


def render_result(finished: ToolFinished, delimiter: str) -> str:
    """Return the result of a call as a model reads it."""
    text, cut = finished.content, finished.cut
    if not finished.untrusted or finished.marked:
        return add_cut_note(text, text, cut)
    shown = spotlight(text, source=finished.tool, delimiter=delimiter)
    return add_cut_note(shown, text, cut) if cut else shown


def add_cut_note(shown: str, text: str, cut: int) -> str:
    """Return what is shown of a text, with a note if it was cut from `cut` characters."""
    if not cut:
        return shown
    return f"{shown}\n[cut: {cut} characters, the first {len(text)} shown]"


@dataclasses.dataclass(frozen=True)
class RecordedText:
    """A text that a journal holds, as it was recorded; how sensitive it is and whether it came from outside."""

    text: str
    label: Label
    untrusted: bool

    @classmethod
    def of(cls, message: Message) -> "RecordedText":
        """Return the text of a message."""
        return cls(message.content, message.label, is_untrusted(message))


def render_excerpts(parts: Iterable[tuple[Excerpt, str]]) -> str:
    """Return parts of texts as a model reads them: each below its handle and place."""
    blocks: list[str] = []
    for one, text in parts:
        end = f"; read on with offset={one.stop}" if one.stop < len(text) else ""
        blocks.append(f"[{one} of {len(text)}{end}]\n{text[one.start : one.stop]}")
    return "\n".join(blocks)


class RecordedMessages:
    """The messages that are made of the entries of one run.

    Args:
        entries: what of the run is read.
        delimiter: what encloses text from outside, in this run.
        given: returns the conversation that the run began with.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        delimiter: str,
        given: Callable[[], Conversation] = Conversation,
    ) -> None:
        self._delimiter, self._given = delimiter, given
        self._events: dict[tuple[str, type[Any]], Any] = {}
        for entry in entries:
            if isinstance(entry.event, _SOURCES):
                self._events[entry.key, type(entry.event)] = entry.event

    def is_answer(self, code: str) -> bool:
        """Whether a code is that of a message with an answer alone."""
        return code.endswith(_ANSWER)

    def find(self, code: str) -> Message:
        """Return the message of a code; raise `JournalError` if its entry is not there."""
        key, sign, index = _parse_code(code)
        for event_type, render in _RENDERERS[sign].items():
            event = self._events.get((key, event_type))
            if event is not None:
                whole = self.restore(event)
                return render(whole, key, index, self._delimiter)
        raise JournalError(f"the message {code!r} is made of an entry that is gone")

    def restore(self, event: Any) -> Any:
        """Return the event of a result that is made of earlier texts with its content; others as they are."""
        if not isinstance(event, ToolFinished) or not event.recalled:
            return event
        parts = [(one, self.find_text(one.code).text) for one in event.recalled]
        return dataclasses.replace(event, content=render_excerpts(parts))

    def find_text(self, code: str) -> RecordedText:
        """Return the text that a code names; raise `JournalError` if it is not there.

        That of a result is as the tool returned it, without a fence.
        """
        if code.startswith("@"):
            messages = self._given().messages
            place = int(code[1:]) if code[1:].isdecimal() else len(messages)
            if place >= len(messages):
                raise JournalError(f"the run did not begin with a message {code!r}")
            return RecordedText.of(messages[place])
        finished = self.restore(self._events.get((code, ToolFinished)))
        if finished is not None:
            return RecordedText(finished.content, finished.label, finished.untrusted)
        return RecordedText.of(self.find(code))

    def list_texts(self) -> Iterator[tuple[str, RecordedText]]:
        """Yield the texts of the run by their codes: what it began with, then replies and results as they came."""
        for place, message in enumerate(self._given().messages):
            yield f"@{place}", RecordedText.of(message)
        for (key, kind), event in self._events.items():
            is_searched = kind in (ModelReplied, ToolFinished, FollowedUp)
            if is_searched and not getattr(event, "recalled", ()):
                yield key, self.find_text(key)


def _parse_code(code: str) -> tuple[str, str, int]:
    """Return the key of an entry, the sign that says what of it, and the number of a delivered message."""
    found = _CODE.fullmatch(code)
    if found is None:
        raise JournalError(f"{code!r} is not the code of a message")
    key, sign, index = found.groups()
    return key, sign, int(index or 0)


def render_text(completion: Completion) -> Message:
    """Return the message with the text of a reply that could not be read."""
    return Message(
        "assistant", completion.text, origin="model", reasoning=completion.reasoning
    )


def _render_turn(event: ModelReplied, key: str, _: int, __: str) -> Message:
    """Return the message of a reply, as `Conversation.observe` makes it."""
    reply = event.completion
    return Message(
        "assistant",
        find_thought(reply) if reply.answer is None else reply.answer,
        name_calls(reply.calls, key),
        origin="model",
        reasoning=reply.reasoning,
    )


def _render_calls(event: CallsProposed, key: str, _: int, __: str) -> Message:
    return Message("assistant", "", event.calls, origin="model")


def _render_result(event: ToolFinished, key: str, _: int, delimiter: str) -> Message:
    content = render_result(event, delimiter)
    return Message(
        "tool",
        content,
        call_id=event.call_id,
        origin="tool",
        attachments=event.attachments,
        label=event.label,
        untrusted=event.untrusted,
    )


def _render_follow_up(event: FollowedUp, key: str, _: int, __: str) -> Message:
    return Message("user", event.text, origin="operator")


def _render_answer(event: ModelReplied, key: str, _: int, __: str) -> Message:
    return Message("assistant", event.completion.answer or "", origin="model")


def _render_end(event: RunFinished, key: str, _: int, __: str) -> Message:
    return Message("assistant", event.answer or "", origin="model")


def _render_unread(event: ModelReplied, key: str, _: int, __: str) -> Message:
    return render_text(event.completion)


def _get_delivered(event: ModelRequested, key: str, index: int, _: str) -> Message:
    if index >= len(event.delivered):
        raise JournalError(f"{key!r} has no delivered message {index}")
    return event.delivered[index]


_RENDERERS: dict[str, dict[type[Any], Callable[[Any, str, int, str], Message]]] = {
    "": {
        ModelReplied: _render_turn,
        CallsProposed: _render_calls,
        ToolFinished: _render_result,
        FollowedUp: _render_follow_up,
    },
    _ANSWER: {ModelReplied: _render_answer, RunFinished: _render_end},
    _TEXT: {ModelReplied: _render_unread},
    _DELIVERED: {ModelRequested: _get_delivered},
}
