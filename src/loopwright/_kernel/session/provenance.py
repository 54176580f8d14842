"""What gates are told of a run's past, put together only when a gate looks."""

import functools

from ...gates.provenance import ValueTracer
from ...gates.run_facts import RunFacts
from ...gates.value_index import ValueIndex
from ...labels import Label
from ...messages import Conversation
from ...tools.registry import ToolRegistry
from ..durability.flow_record import FlowRecord, RecordedFacts
from .run_texts import RunTexts


class RunProvenance:
    """Answers the questions of gates about one run: where values come from, what was planned.

    All scopes of the run ask the same one: the words of the root's caller are the only ones of a
    caller, also where a child engine works on a text that was made of others.
    """

    def __init__(self, record: FlowRecord) -> None:
        self._record = record
        self._given = Conversation()
        self._texts: dict[ToolRegistry, RunTexts] = {}
        self._facts: RunFacts = RecordedFacts("", "", record)
        self.tracer = functools.cache(self._build_tracer)
        """Returns what finds the sources of values for some tools; a derived one has the label, that of the run."""

    def begin(self, given: Conversation, agent: str) -> None:
        """Know the conversation that the run began with, and the name of its agent."""
        self._given = given
        self._facts = RecordedFacts(given.task, agent, self._record)

    def facts(self) -> RunFacts:
        """Return the facts about the run as they are now."""
        return self._facts

    def _build_tracer(self, tools: ToolRegistry, label: Label) -> ValueTracer:
        return ValueTracer(
            lambda value, name: self._index(tools).find_best(value, name),
            lambda value, name: self._index(tools).find_all(value, name, label),
        )

    def _index(self, tools: ToolRegistry) -> ValueIndex:
        texts = self._texts.get(tools)
        if texts is None:
            texts = RunTexts(self._given, self._record, tools)
            self._texts[tools] = texts
        return texts.index
