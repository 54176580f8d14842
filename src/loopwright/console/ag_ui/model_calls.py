"""The model calls of a run as events of AG-UI: messages in chunks, reasoning, and steps."""

from collections.abc import Iterator, Sequence

from ..._internal import dataclasses
from ...events.effect_key import EffectKey
from ...events.effects import ModelReplied, ModelRequested
from ...events.entry import Entry
from ...messages import Json, Usage
from ...providers.base import Delta
from .protocol import core

HIDDEN = "[withheld: it may be secret]"
PREFIX = "loopwright."
"""Begins the names of the events that AG-UI has no type for."""
Events = Iterator[core.BaseEvent]


@dataclasses.dataclass
class Call:
    """A model call that is at work.

    Args:
        name: what it is for.
        model: its provider and model.
        is_message: whether its reply is what the user reads; others are steps.
        shown: the text that was sent of it.
        attempt: the attempt that the text is of.
        is_thinking: whether its reasoning was sent last.
    """

    name: str
    model: tuple[str, str]
    is_message: bool
    shown: str = ""
    attempt: int = 1
    is_thinking: bool = False


def is_user_reply(key: str, event: ModelRequested) -> bool:
    """Whether the reply to a call is what the user reads: the engine's own turn, in no branch, child or sample."""
    is_root = not EffectKey.parse(key).path
    return is_root and event.verb == "reason" and "~" not in key


class ModelCallWriter:
    """Writes the model calls of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._calls: dict[str, Call] = {}
        self.last_text = ""
        """The newest text that the user was told."""
        self.usage: dict[tuple[str, str], list[Usage]] = {}
        """What calls used, by provider and model."""

    def begin(self) -> Events:
        """Write which steps are at work."""
        for call in self._calls.values():
            if not call.is_message:
                yield core.StepStartedEvent(step_name=call.name)

    def find_message(self, key: str) -> str | None:
        """Return the id of the message of a call that is at work; `None` for a step."""
        call = self._calls.get(key)
        return self._name_message(key, call) if call and call.is_message else None

    def request(self, entry: Entry, event: ModelRequested) -> Events:
        """Write that a model call begins, if it is a step."""
        is_message = is_user_reply(entry.key, event)
        name = f"{event.purpose or event.verb} {entry.key}"
        call = Call(name, (event.provider, event.model), is_message)
        self._calls[entry.key] = call
        if not is_message:
            yield core.StepStartedEvent(step_name=name)

    def write_delta(self, delta: Delta) -> Events:
        """Write a chunk of a reply to the user."""
        call = self._calls.get(delta.key)
        if call is None or not call.is_message:
            return
        if delta.attempt != call.attempt:
            yield from self._void(delta.key, call)
            call.attempt = delta.attempt
        if delta.reasoning:
            yield from self._think(delta.key, call, delta.reasoning)
        if delta.text:
            yield from self._say(delta.key, call, delta.text)

    def _void(self, key: str, call: Call) -> Events:
        """Write that the text of an attempt that failed does not count."""
        if call.shown:
            message_id = self._name_message(key, call)
            yield core.TextMessageEndEvent(message_id=message_id)
            yield build_custom("void", {"messageId": message_id})
        yield from self._stop_thinking(key, call)
        call.shown = ""

    def _name_message(self, key: str, call: Call) -> str:
        attempt = "" if call.attempt == 1 else f"/attempt-{call.attempt}"
        return f"{self._run_id}/{key}{attempt}"

    def _say(self, key: str, call: Call, text: str) -> Events:
        yield from self._stop_thinking(key, call)
        message_id = self._name_message(key, call)
        if not call.shown:
            yield core.TextMessageStartEvent(message_id=message_id, role="assistant")
        call.shown += text
        yield core.TextMessageContentEvent(message_id=message_id, delta=text)

    def _think(self, key: str, call: Call, text: str) -> Events:
        message_id = f"{self._name_message(key, call)}/reasoning"
        if not call.is_thinking:
            call.is_thinking = True
            yield core.ReasoningStartEvent(message_id=message_id)
            yield core.ReasoningMessageStartEvent(message_id=message_id)
        yield core.ReasoningMessageContentEvent(message_id=message_id, delta=text)

    def _stop_thinking(self, key: str, call: Call) -> Events:
        if call.is_thinking:
            call.is_thinking = False
            message_id = f"{self._name_message(key, call)}/reasoning"
            yield core.ReasoningMessageEndEvent(message_id=message_id)
            yield core.ReasoningEndEvent(message_id=message_id)

    def reply(self, entry: Entry, event: ModelReplied, *, is_secret: bool) -> Events:
        """Write what no chunk brought of a reply, and that the call is over."""
        call = self._calls.get(entry.key)
        if call is None:
            return
        self.usage.setdefault(call.model, []).append(event.completion.usage)
        if not call.is_message:
            yield from self.close(entry.key)
            return
        text = read_reply(event, is_secret=is_secret)
        yield from self._complete(entry.key, call, text)
        self.last_text = text or self.last_text
        yield from self.close(entry.key)

    def _complete(self, key: str, call: Call, text: str) -> Events:
        """Write the rest: the entry of a reply may come before its last chunks."""
        if call.shown.strip() == text.strip():
            return
        if not text.startswith(call.shown):
            yield from self._void(key, call)
            call.attempt += 1
        if text:
            yield from self._say(key, call, text[len(call.shown) :])

    def close(self, key: str) -> Events:
        """Write that a model call is over."""
        call = self._calls.pop(key, None)
        if call is None:
            return
        yield from self._stop_thinking(key, call)
        if not call.is_message:
            yield core.StepFinishedEvent(step_name=call.name)
        elif call.shown:
            yield core.TextMessageEndEvent(message_id=self._name_message(key, call))

    def close_all(self) -> Events:
        """Write that nothing is at work any more: a stream ends that way."""
        for key in list(self._calls):
            yield from self.close(key)

    def sum_usage(self) -> list[core.TokenUsage]:
        """Return what the calls used."""
        return [
            _sum(provider, model, used)
            for (provider, model), used in self.usage.items()
        ]


def read_reply(event: ModelReplied, *, is_secret: bool) -> str:
    """Return what a reply says to the user, without the protocol of its calls."""
    reply = event.completion
    prose = reply.answer or reply.thought or reply.text
    text = reply.thought if reply.calls else prose
    return HIDDEN if is_secret and text else text


def build_custom(name: str, value: Json) -> core.CustomEvent:
    """Return an event that AG-UI has no type for."""
    return core.CustomEvent(name=f"{PREFIX}{name}", value=value)


def _sum(provider: str, model: str, used: Sequence[Usage]) -> core.TokenUsage:
    read = sum(one.input_tokens or 0 for one in used)
    written = sum(one.output_tokens or 0 for one in used)
    return core.TokenUsage(
        provider=provider or None,
        model=model or None,
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
    )
