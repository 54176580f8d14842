"""What of a run's entries says where values come from, what was planned, and which calls were let run."""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from ...events.agents import InstructionsSet
from ...events.control import CommandReceived, Declassified
from ...events.effects import (
    EffectFinished,
    FactNoted,
    GateDecided,
    ModelRequested,
    ToolFinished,
)
from ...events.entry import Entry, Event
from ...events.run import RunStarted
from ...gates.run_facts import PastCall
from ...messages import Json

PLAN, REJECTED = "Plan", "PlanRejected"
"""The facts by which an engine notes what it plans, and that a plan does not count."""
DECIDED = "DecidedPlan"
"""The fact by which it is noted what a model planned from trusted messages alone."""
PLAN_PURPOSE = "plan-before-engine"
"""The purpose of the model call for it."""
TextEvent: TypeAlias = (
    ToolFinished | EffectFinished | ModelRequested | CommandReceived | InstructionsSet
)
"""The events with texts that values of calls may come from."""


class FlowRecord:
    """Notes the entries of a run, recorded before or now, that provenance and plans are computed from.

    Nothing is computed here, so that a run whose gates do not ask pays for a look at a type only.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, TextEvent]] = []
        """The events with texts, by their keys, in order."""
        self.version = 0
        """Changes whenever the plan or the history may be another one."""
        self._decided: dict[str, GateDecided] = {}
        self._finished: dict[str, ToolFinished] = {}
        self._plans: list[tuple[str, ...]] = []
        self._may_reject = False
        self._has_read_untrusted = self._is_decided_plan_spoiled = False
        self._notes: dict[type[Any], Callable[[str, Any], None]] = {
            RunStarted: self._note_reading,
            ToolFinished: self._note_call,
            EffectFinished: self._note_text,
            ModelRequested: self._note_delivered,
            CommandReceived: self._note_text,
            InstructionsSet: self._note_text,
            Declassified: self._note_declassified,
            FactNoted: self._note_fact,
            GateDecided: self._note_decision,
        }

    def readers(self) -> dict[type[Any], Callable[[Entry, Any], None]]:
        """Return what reads each type of event."""
        return dict.fromkeys(self._notes, self._read)

    def _read(self, entry: Entry, event: Event) -> None:
        self.note(entry.key, event)

    def note(self, key: str, event: Event) -> None:
        """Note an event that is recorded."""
        reader = self._notes.get(type(event))
        if reader is not None:
            self.version += 1
            reader(key, event)

    def _note_reading(
        self, _: str, event: RunStarted | ToolFinished | EffectFinished | ModelRequested
    ) -> None:
        self._has_read_untrusted |= event.untrusted

    def _note_text(self, key: str, event: TextEvent) -> None:
        self.texts.append((key, event))
        if isinstance(event, EffectFinished):
            self._note_reading(key, event)

    def _note_delivered(self, key: str, event: ModelRequested) -> None:
        if event.delivered:
            self.texts.append((key, event))
            self._note_reading(key, event)
            if event.purpose == PLAN_PURPOSE:
                self._is_decided_plan_spoiled |= event.untrusted

    def _note_call(self, key: str, event: ToolFinished) -> None:
        self.texts.append((key, event))
        self._finished[key] = event
        self._note_reading(key, event)

    def _note_declassified(self, _: str, event: Declassified) -> None:
        self._has_read_untrusted &= not event.trusted

    def _note_decision(self, key: str, event: GateDecided) -> None:
        self._decided[key] = event

    def _note_fact(self, _: str, event: FactNoted) -> None:
        """Note a plan, unless text from outside may have had a part in it."""
        if event.name == REJECTED and self._may_reject:
            self._plans.pop()
        self._may_reject = False
        if event.name == PLAN and not self._has_read_untrusted:
            self._plans.append(_list_tools(event.value))
            self._may_reject = True
        elif event.name == DECIDED and not self._is_decided_plan_spoiled:
            self._plans.append(_list_tools(event.value))

    @property
    def plan(self) -> tuple[str, ...] | None:
        """Return the tools of the plans that were decided before the run read text from outside."""
        if not self._plans:
            return None
        return tuple(tool for plan in self._plans for tool in plan)

    @property
    def history(self) -> tuple[PastCall, ...]:
        """Return the calls that were decided about, in order."""
        return tuple(
            PastCall(
                key,
                decided.tool,
                decided.verdict in ("allow", "modify"),
                self._finished[key].status if key in self._finished else "",
            )
            for key, decided in self._decided.items()
        )


def _list_tools(plan: Json) -> tuple[str, ...]:
    """Return the tools of the steps of a noted plan, each as often as it has steps with it."""
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(steps, list):
        return ()
    tools = [step.get("tool") for step in steps if isinstance(step, dict)]
    return tuple(cast("list[str]", [tool for tool in tools if isinstance(tool, str)]))
