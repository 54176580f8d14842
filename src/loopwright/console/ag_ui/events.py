"""What a run does as events of AG-UI: entries of its journal and chunks of replies in, events out."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic_core import to_json

from ...events.effect_key import EffectKey
from ...events.effects import (
    CallsProposed,
    FactNoted,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
)
from ...events.entry import Entry
from ...events.run import Question, RunFinished, RunSuspended
from ...messages import Json, ToolCall
from ...providers.base import Delta
from .interrupts import build_interrupt
from .model_calls import HIDDEN, Events, ModelCallWriter, build_custom
from .protocol import core

VERSION = core.PROTOCOL_VERSION


class EventWriter:
    """Writes the events of one run for one request of a front end.

    Args:
        run_id: the run in the journal; ids of messages and calls are it and the key of the effect.
        thread_id: the thread of the front end.
        request_id: the `runId` of the request, which is new for each, where the run is the same.
        is_secret: whether what the entry of a number says is withheld.
        client_tools: the names of tools whose calls the front end answers with a message.
        is_new: whether the front end sends the request now, and so has its own results; one that comes back has not.
    """

    def __init__(
        self,
        run_id: str,
        thread_id: str,
        request_id: str,
        is_secret: Callable[[int], bool],
        client_tools: Iterable[str] = (),
        *,
        is_new: bool = True,
    ) -> None:
        self.run_id, self._thread_id, self._request_id = run_id, thread_id, request_id
        self._is_secret, self._client_tools = is_secret, frozenset(client_tools)
        self._is_new = is_new
        self._models = ModelCallWriter(run_id)
        self._announced: set[str] = set()
        self._facts: dict[str, Json] = {}
        self._is_hiding = False
        self._writers: dict[type[Any], Callable[[Entry, Any], Events]] = {
            ModelRequested: self._models.request,
            ModelReplied: self._reply,
            ModelFailed: self._fail,
            CallsProposed: self._propose,
            ToolFinished: self._finish_call,
            FactNoted: self._note,
            RunSuspended: self._suspend,
            RunFinished: self._end,
        }
        self.has_ended = False
        """Whether the event that ends the stream was written."""

    def begin(self, messages: Sequence[core.Message] | None = None) -> Events:
        """Write that the run began, what it knows so far, and for a new watcher what was said."""
        yield core.RunStartedEvent(
            thread_id=self._thread_id,
            run_id=self._request_id,
            protocol_version=VERSION,
            metadata={"run": self.run_id},
        )
        if messages is not None:
            yield core.MessagesSnapshotEvent(messages=list(messages))
        yield core.StateSnapshotEvent(
            snapshot={"run": self.run_id, "status": "running", "facts": self._facts}
        )
        yield from self._models.begin()

    def skip(self, entries: Iterable[Entry]) -> None:
        """Take in what the front end has."""
        for entry in entries:
            for _ in self.write(entry):
                pass
        self.has_ended = False
        self._models.usage.clear()

    def write(self, item: Entry | Delta) -> Events:
        """Write what an item says; nothing for most kinds of entries."""
        if isinstance(item, Delta):
            if not self._is_hiding:
                yield from self._models.write_delta(item)
            return
        self._is_hiding = self._is_secret(item.seq)
        write = self._writers.get(type(item.event))
        if write is not None:
            yield from write(item, item.event)

    def _reply(self, entry: Entry, event: ModelReplied) -> Events:
        message_id = self._models.find_message(entry.key)
        yield from self._models.reply(entry, event, is_secret=self._is_hiding)
        if message_id is not None:
            yield from self._announce(entry, event.completion.calls, message_id)

    def _fail(self, entry: Entry, event: ModelFailed) -> Events:
        yield from self._models.close(entry.key)

    # --- calls of tools ---

    def _propose(self, entry: Entry, event: CallsProposed) -> Events:
        yield from self._announce(entry, event.calls, None)

    def _announce(
        self, entry: Entry, calls: Sequence[ToolCall], message_id: str | None
    ) -> Events:
        for number, call in enumerate(calls):
            key = f"{entry.key}#{number}"
            arguments = "{}" if self._is_hiding else to_json(call.arguments).decode()
            yield from self._write_call(key, call.name, arguments, message_id)

    def _write_call(
        self, key: str, name: str, arguments: str, message_id: str | None
    ) -> Events:
        call_id = f"{self.run_id}/{key}"
        self._announced.add(key)
        yield core.ToolCallStartEvent(
            tool_call_id=call_id, tool_call_name=name, parent_message_id=message_id
        )
        yield core.ToolCallArgsEvent(tool_call_id=call_id, delta=arguments)
        yield core.ToolCallEndEvent(tool_call_id=call_id)

    def _finish_call(self, entry: Entry, event: ToolFinished) -> Events:
        key = EffectKey.parse(entry.key).original
        if self._is_new and event.tool in self._client_tools and event.status == "ok":
            return  # the front end has it: it answered the call
        if key not in self._announced:
            yield from self._write_call(key, event.tool, "{}", None)
        is_secret = event.label == "secret" or self._is_hiding
        yield core.ToolCallResultEvent(
            message_id=f"{self.run_id}/{key}/result",
            tool_call_id=f"{self.run_id}/{key}",
            content=HIDDEN if is_secret else event.content,
        )

    # --- facts and the end ---

    def _note(self, entry: Entry, event: FactNoted) -> Events:
        if self._is_hiding:
            return
        self._facts[event.name] = event.value
        name = re.sub("[~/]", lambda found: {"~": "~0", "/": "~1"}[found[0]], event.name)  # fmt: skip
        # "add" replaces a member that is there (RFC 6902, 4.1).
        change = {"op": "add", "path": f"/facts/{name}", "value": event.value}
        yield core.StateDeltaEvent.model_validate({"delta": [change]})

    def _suspend(self, entry: Entry, event: RunSuspended) -> Events:
        if event.reason == "waiting":
            yield from self._interrupt(event.pending)
            return
        yield from self._set_status("suspended")
        yield build_custom(
            "suspended", {"reason": event.reason, "wakeAt": event.wake_at or None}
        )

    def _interrupt(self, questions: Sequence[Question]) -> Events:
        """Write that the run waits: for people, or for results of the front end's tools."""
        asked = [one for one in questions if one.tool not in self._client_tools]
        interrupts = [
            build_interrupt(self.run_id, one, is_hidden=self._is_hiding)
            for one in asked
        ]
        outcome = (
            core.RunFinishedInterruptOutcome(interrupts=interrupts)
            if interrupts
            else core.RunFinishedSuccessOutcome()
        )
        yield from self._finish("waiting", outcome)

    def _end(self, entry: Entry, event: RunFinished) -> Events:
        yield from self._models.close_all()
        if event.status == "failed":
            yield from self._end_failed(event)
            return
        answer = HIDDEN if self._is_hiding and event.answer else event.answer
        if answer and answer.strip() != self._models.last_text.strip():
            message_id = f"{self.run_id}/answer"
            yield core.TextMessageStartEvent(message_id=message_id, role="assistant")
            yield core.TextMessageContentEvent(message_id=message_id, delta=answer)
            yield core.TextMessageEndEvent(message_id=message_id)
        if event.status != "completed":
            about: Json = {"status": event.status, "stopReason": event.stop_reason}
            yield build_custom("ended", about)
        outcome = (
            core.RunFinishedCancelledOutcome()
            if event.status == "aborted"
            else core.RunFinishedSuccessOutcome()
        )
        output = None if self._is_hiding else event.output
        result = answer if output is None else output
        yield from self._finish(event.status, outcome, result)

    def _end_failed(self, event: RunFinished) -> Events:
        yield from self._set_status("failed")
        error = "" if event.error is None else event.error.summary()
        message = "the run failed" if self._is_hiding else error or "the run failed"
        self.has_ended = True
        yield core.RunErrorEvent(
            message=message, code=event.stop_reason, usage=self._models.sum_usage()
        )

    def _finish(self, status: str, outcome: Any, result: Json = None) -> Events:
        yield from self._models.close_all()
        yield from self._set_status(status)
        self.has_ended = True
        yield core.RunFinishedEvent(
            thread_id=self._thread_id,
            run_id=self._request_id,
            result=result,
            outcome=outcome,
            usage=self._models.sum_usage(),
        )

    def _set_status(self, status: str) -> Events:
        change = {"op": "replace", "path": "/status", "value": status}
        yield core.StateDeltaEvent.model_validate({"delta": [change]})
