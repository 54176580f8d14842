"""Say in words what a journal holds at a key, and what the code asks for now."""

from collections.abc import Callable
from typing import Any

from ...events.agents import HandedOff
from ...events.effects import (
    CallsProposed,
    ChildFinished,
    ChildStarted,
    EffectFinished,
    EffectStarted,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    SleepSet,
    ToolFinished,
    ToolStarted,
)
from ...messages import Conversation, Message
from ...security.redaction import Redactor
from .effects import Effects

MAX_QUOTE = 60
"""The maximum number of characters of a text that is quoted."""
REDACTED_ORIGINS = ("tool", "model", "operator", "memory", "hook")
"""The origins of messages that were redacted when they entered the run; a prompt of an engine was not."""
MAX_REDACTED = 1000
"""How much of a text is searched for secrets before its beginning is quoted."""


def shorten(text: str) -> str:
    """Return the beginning of a text on one line, as valid Unicode."""
    line = " ".join(text[: 2 * MAX_QUOTE].split())
    short = line if len(line) <= MAX_QUOTE else f"{line[: MAX_QUOTE - 1]}…"
    return short.encode("utf-8", "replace").decode()


def quote(redactor: Redactor, text: str) -> str:
    """Return the beginning of a text in quotes, without secrets."""
    return repr(shorten(redactor.redact_text(text[:MAX_REDACTED])))


class QuestionDescriber:
    """Says in words what is asked of a model; the message that a conversation begins with is searched for secrets once.

    In a run that is not new, what was recorded may be a secret now, so all is searched.
    """

    def __init__(self, *, is_new: bool) -> None:
        self._clean_origins = REDACTED_ORIGINS if is_new else ()
        self._first: Message | None = None
        self._redactor: Redactor | None = None
        self._quoted = ""

    def describe(
        self, verb: str, into: str, conversation: Conversation, redactor: Redactor
    ) -> str:
        """Return a question in words: its verb, its type, its first and its last message."""
        asked = verb if into in ("", "str") else f"{verb} into {into}"
        messages = conversation.messages
        if not messages:
            return f"{asked} nothing"
        last = self._quote_message(redactor, messages[-1])
        if len(messages) == 1:
            return f"{asked} {last}"
        if messages[0] is not self._first or redactor is not self._redactor:
            self._first, self._redactor = messages[0], redactor
            self._quoted = self._quote_message(redactor, messages[0])
        return f"{asked} {len(messages)} messages, {self._quoted} to {last}"

    def _quote_message(self, redactor: Redactor, message: Message) -> str:
        if message.origin in self._clean_origins:
            return repr(shorten(message.content))
        return quote(redactor, message.content)


def describe_recorded(effects: Effects, key: str) -> str:
    """Return what the journal holds at a key in words."""
    event = effects.intent(key) or effects.outcome(key)
    describe = _DESCRIPTIONS.get(type(event))
    return "another effect" if describe is None else describe(event)


def describe_calls(proposed: CallsProposed) -> str:
    """Return calls that an engine wrote itself, which hold no secrets, in words."""
    return f"propose {shorten(proposed.summary())}"


def _describe_request(event: ModelRequested) -> str:
    # Entries of early versions do not say what was asked.
    purpose = f" for {event.purpose!r}" if event.purpose else ""
    return event.about or f"{event.verb}{purpose}"


def _describe_reply(event: object) -> str:
    return "a model call"


def _describe_child(event: ChildStarted) -> str:
    return f"delegate {event.engine} {event.about}".rstrip()


_DESCRIPTIONS: dict[type[Any], Callable[[Any], str]] = {
    ModelRequested: _describe_request,
    ModelReplied: _describe_reply,
    ModelFailed: _describe_reply,
    CallsProposed: describe_calls,
    ToolStarted: lambda event: f"a call of {event.tool}",
    ToolFinished: lambda event: f"a call of {event.tool}",
    EffectStarted: lambda event: f"effect {event.name}",
    EffectFinished: lambda event: f"effect {event.name}",
    SleepSet: lambda event: "sleep",
    ChildStarted: _describe_child,
    ChildFinished: lambda event: f"delegate {event.engine}",
    HandedOff: lambda event: f"handoff {event.agent} {event.about}",
    LimitHit: lambda event: f"a refusal at {event.limit}",
}
