"""What of a run's entries says where values come from, what was planned, and which calls were let run."""

import collections
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from ...events.agents import InstructionsSet
from ...events.control import CommandReceived
from ...events.effects import (
    EffectFinished,
    FactNoted,
    GateDecided,
    ModelRequested,
    ToolFinished,
)
from ...events.entry import Entry, Event
from ...gates.run_facts import PastCall, RunFacts
from ...messages import Json

PLAN, REJECTED = "Plan", "PlanRejected"
"""The facts by which an engine notes what it plans, and that a plan does not count."""
DECIDED = "DecidedPlan"
"""The fact by which it is noted what a model planned from trusted messages alone."""
ENDORSED = "Endorsed"
"""The fact by which code endorses a value that it has checked."""
QUARANTINED = "quarantined"
"""The purpose of a model call that reads a text from outside and has no tools."""
PLAN_PURPOSE = "plan-before-engine"
"""The purpose of the model call for it."""
TextEvent: TypeAlias = (
    ToolFinished
    | EffectFinished
    | ModelRequested
    | CommandReceived
    | InstructionsSet
    | FactNoted
)
"""The events with texts that values of calls may come from."""


RECORDED = ("plan", "history")
"""Facts that change while a run works."""


class FlowRecord:
    """Keeps the events of a run, recorded before or now, that provenance and plans are computed from.

    They are read when something is asked, so that a run whose gates do not ask pays for a look at a type only.
    """

    def __init__(self, has_read_untrusted: Callable[[], bool]) -> None:
        self.has_read_untrusted = has_read_untrusted
        """Whether the run has read text from outside by now."""
        self._unread: list[tuple[str, Any]] = []
        """The events that were not read yet, with their keys, in order."""
        self._texts: list[tuple[str, TextEvent]] = []
        self._allowed: collections.Counter[str] = collections.Counter()
        self._decided: dict[str, GateDecided] = {}
        self._finished: dict[str, ToolFinished] = {}
        self._plans: list[tuple[str, ...]] = []
        self._plan: tuple[str, ...] | None = None
        self._may_reject = False
        self._is_decided_plan_spoiled = False
        self._readers: dict[type[Any], Callable[[str, Any], None]] = {
            ToolFinished: self._read_result,
            EffectFinished: self._read_text,
            CommandReceived: self._read_text,
            InstructionsSet: self._read_text,
            GateDecided: self._read_decision,
        }
        self.notes: dict[type[Any], Callable[[tuple[str, Any]], None]] = {
            **dict.fromkeys(self._readers, self._unread.append),
            ModelRequested: self._note_request,
            FactNoted: self._note_fact,
        }
        """What notes an event of each type that is recorded, with its key."""

    def readers(self) -> dict[type[Any], Callable[[Entry, Any], None]]:
        """Return what reads each type of event."""
        return dict.fromkeys(self.notes, self._read_entry)

    def _read_entry(self, entry: Entry, event: Event) -> None:
        self.notes[type(event)]((entry.key, event))

    def _read(self) -> None:
        """Read the events that were noted since the last time."""
        for key, event in self._unread:
            self._readers[type(event)](key, event)
        self._unread.clear()

    @property
    def texts(self) -> list[tuple[str, TextEvent]]:
        """The events with texts, by their keys, in order."""
        self._read()
        return self._texts

    @property
    def plan(self) -> tuple[str, ...] | None:
        """The tools of the plans that were decided before the run read text from outside; `None` without one."""
        return self._plan

    def _read_text(self, key: str, event: TextEvent) -> None:
        self._texts.append((key, event))

    def _note_request(self, noted: tuple[str, ModelRequested]) -> None:
        event = noted[1]
        if event.delivered:
            self.texts.append(noted)
        if event.purpose == PLAN_PURPOSE:
            self._is_decided_plan_spoiled |= event.untrusted

    def _read_result(self, key: str, event: ToolFinished) -> None:
        self._texts.append((key, event))
        self._finished[key] = event

    def _read_decision(self, key: str, event: GateDecided) -> None:
        before = self._decided.get(key)
        if before is not None and is_allowed(before):
            self._allowed[before.tool] -= 1
        self._allowed[event.tool] += is_allowed(event)
        self._decided[key] = event

    def _note_fact(self, noted: tuple[str, FactNoted]) -> None:
        """Note an endorsement, or a plan, unless text from outside may have had a part in it."""
        event = noted[1]
        if event.name == ENDORSED:
            self.texts.append(noted)
            return
        if event.name == REJECTED and self._may_reject:
            self._plans.pop()
        self._may_reject = False
        if event.name == PLAN and not self.has_read_untrusted():
            self._plans.append(_list_tools(event.value))
            self._may_reject = True
        elif event.name == DECIDED and not self._is_decided_plan_spoiled:
            self._plans.append(_list_tools(event.value))
        chained = tuple(itertools.chain.from_iterable(self._plans))
        self._plan = chained if self._plans else None

    @property
    def history(self) -> tuple[PastCall, ...]:
        """Return the calls that were decided about, in order."""
        self._read()
        return tuple(
            PastCall(
                key,
                decided.tool,
                is_allowed(decided),
                self._finished[key].status if key in self._finished else "",
            )
            for key, decided in self._decided.items()
        )

    def count_allowed(self, tool: str, key: str) -> int:
        """Return how many calls of a tool were allowed, without the one at `key`."""
        self._read()
        own = self._decided.get(key)
        is_counted = own is not None and own.tool == tool and is_allowed(own)
        return self._allowed[tool] - is_counted


class RecordedFacts(RunFacts):
    """The facts about a run as its record has them when they are asked for."""

    def __init__(self, task: str, agent: str, record: FlowRecord) -> None:
        super().__init__(task, agent)
        self.__dict__["_record"] = record

    def __getattribute__(self, name: str) -> Any:
        """Return the plan and the history as they are now, and any other attribute as it was set."""
        if name in RECORDED:
            return getattr(self.__dict__["_record"], name)
        return super().__getattribute__(name)

    def count_allowed(self, tool: str, key: str = "") -> int:
        """Return how many calls of a tool were allowed, without the one at `key`."""
        record: FlowRecord = self.__dict__["_record"]
        return record.count_allowed(tool, key)


def is_allowed(decided: GateDecided) -> bool:
    """Return whether a decision lets a call run."""
    return decided.verdict in ("allow", "modify")


def _list_tools(plan: Json) -> tuple[str, ...]:
    """Return the tools of the steps of a noted plan, each as often as it has steps with it."""
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(steps, list):
        return ()
    tools = [step.get("tool") for step in steps if isinstance(step, dict)]
    return tuple(tool for tool in tools if isinstance(tool, str))
