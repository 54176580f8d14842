"""The texts of a run by who wrote them: what was given, what people typed since, what tools returned."""

import re

from pydantic_core import to_json

from ..._internal.regex import compile_late
from ...events.agents import InstructionsSet
from ...events.control import CommandReceived
from ...events.effects import (
    EffectFinished,
    FactNoted,
    ModelRequested,
    ToolFinished,
)
from ...gates.provenance import ValueSource
from ...gates.value_index import ValueIndex
from ...messages import Conversation, Message, is_untrusted
from ...parsing.spotlighting import OPERATOR_CALL_PREFIX
from ...tools.registry import ToolRegistry
from ..control.commands import ANSWER, APPROVE, ENDORSE, FOLLOW_UP, OVERRIDE, STEER
from ..durability.flow_record import FlowRecord, TextEvent

TYPED = (STEER, FOLLOW_UP, ANSWER)
"""The commands whose text a person typed for the run."""
ORDERED = (OVERRIDE, APPROVE)
"""The commands whose arguments a person wrote."""
ROOT_INSTRUCTIONS = "instructions:.0"
_FENCED = compile_late(
    r"=== [0-9a-f]+ begins: data from [^\n]*\n(.*)\n=== [0-9a-f]+ ends: ", re.DOTALL
)


class RunTexts:
    """Reads the texts of one run into an index, with what the tools of a scope declare.

    Args:
        given: what the run was given: the task, earlier turns.
        record: what is recorded of it since, which may grow.
        tools: the tools of the scope that asks.
    """

    def __init__(
        self, given: Conversation, record: FlowRecord, tools: ToolRegistry
    ) -> None:
        self._record, self._tools = record, tools
        self._index, self._read = ValueIndex(), 0
        names = {call.id: call.name for one in given.messages for call in one.calls}
        for message in given.messages:
            self._read_message(message, names.get(message.call_id, ""))

    @property
    def index(self) -> ValueIndex:
        """Return the index of all that is recorded by now."""
        texts = self._record.texts
        while self._read < len(texts):
            key, event = texts[self._read]
            self._read += 1
            self._read_event(key, event)
        return self._index

    def _read_event(self, key: str, event: TextEvent) -> None:
        match event:
            case ToolFinished():
                self._read_result(event.tool, key, event)
            case CommandReceived():
                self._read_command(key, event)
            case EffectFinished():
                self._read_effect(key, event)
            case ModelRequested():
                for message in event.delivered:
                    self._read_memory(message, key)
            case FactNoted(value={"value": str(text)}):
                self._index.add_endorsed(text, "code")
            case InstructionsSet(untrusted=False) if key == ROOT_INSTRUCTIONS:
                self._index.add_typed(event.text)
            case _:
                pass

    def _read_effect(self, key: str, event: EffectFinished) -> None:
        is_answer = event.name == "ask_user" and not event.untrusted
        if is_answer and event.error is None:
            text = (
                event.value
                if isinstance(event.value, str)
                else to_json(event.value).decode()
            )
            self._index.add_typed(text)
        else:
            self._index.add_value(event.name, key, event.value, event.label)

    def _read_command(self, key: str, event: CommandReceived) -> None:
        text = str(event.body.get("text", ""))
        if event.refused:
            return
        if event.body.get("untrusted"):
            self._index.add_text(event.command, key, text, "public")
        elif event.command in TYPED:
            self._index.add_typed(text)
        elif event.command in ORDERED:
            self._index.add_order(event.body.get("arguments"))
        elif event.command == ENDORSE:
            by = str(event.body.get("by") or "a person")
            self._index.add_endorsed(text, by)

    def _read_message(self, message: Message, tool: str) -> None:
        if message.role == "tool":
            self._read_earlier_result(tool, message)
        elif message.origin in ("caller", "operator"):
            self._read_words(message)
        else:
            self._read_memory(message, "")

    def _read_words(self, message: Message) -> None:
        text = message.content
        if is_untrusted(message):
            self._index.add_text("task", "", text, message.label)
        elif not text.startswith(OPERATOR_CALL_PREFIX):  # that quotes a tool
            self._index.add_typed(text)

    def _read_memory(self, message: Message, key: str) -> None:
        if message.origin == "memory":
            self._index.add_text("memory", key, message.content, message.label)

    def _read_earlier_result(self, tool: str, message: Message) -> None:
        fenced = _FENCED.search(message.content)
        content = message.content if fenced is None else fenced[1]
        untrusted = message.untrusted is not False
        finished = ToolFinished(
            tool, message.call_id, "ok", content, 0.0, message.label, untrusted
        )
        self._read_result(tool, "", finished)

    def _read_result(self, name: str, key: str, event: ToolFinished) -> None:
        tool = self._tools.get(name)
        if tool is not None and tool.asks_user and not event.untrusted:
            self._index.add_typed(event.content)
        elif event.status == "ok":
            source = ValueSource("text", name, key, event.label)
            self._index.add_result(source, event.content, tool)
        else:
            self._index.add_text(name, key, event.content, event.label)
