"""Ledger: what really happened in a world outside the journals, which no process can lose."""

import contextlib
from typing import Any

from ..._internal import dataclasses
from ...errors import UnknownRun
from ...events.effects import EffectFinished, ToolFinished, ToolStarted
from ...events.entry import Entry
from ...events.recovery import UndoFinished, UndoStarted
from ...gates.base import (
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    InstantGate,
    Modify,
    PolicyState,
)
from ...journals.memory import MemoryJournal
from ...tools.base import ToolContext
from .host import SimulatedHost
from .loop import HOST
from .programs import describe_call

INTENTS = (ToolStarted, UndoStarted)


@dataclasses.dataclass(frozen=True)
class Execution:
    """A tool, or an engine's own effect, that really began."""

    run_id: str
    key: str
    idempotency_key: str
    name: str
    effect: str


class Ledger:
    """What tools, models and people really did, and what was wrong about it at that moment."""

    def __init__(self, store: MemoryJournal) -> None:
        self._store = store
        self.executions: list[Execution] = []
        self.model_calls = 0
        self.reads = 0
        self.checked_threads: tuple[str, ...] = ()
        """The tools whose process must own the run: plain functions, where clocks are right."""
        self.problems: list[str] = []
        self.allowed: set[tuple[str, str, str]] = set()
        """Run, key and arguments of calls that the gate allowed, or a person."""

    def note_tool(self, ctx: ToolContext[Any], name: str, effect: str) -> None:
        """Note that a tool begins, and check that it may."""
        run_id, key = ctx.run_id, ctx.key
        self.executions.append(
            Execution(run_id, key, ctx.idempotency_key, name, effect)
        )
        events = [entry.event for entry in self._store.read(run_id) if entry.key == key]
        if any(isinstance(event, (ToolFinished, UndoFinished)) for event in events):
            self.problems.append(f"{run_id} {key}: {name} ran again after its outcome")
        if effect != "read" and not any(isinstance(e, INTENTS) for e in events):
            self.problems.append(
                f"{run_id} {key}: {name} ran before its intent was stored"
            )
        if not ctx.undoes:
            self._check_allowed(ctx, name)
        self._check_owner(run_id, name)

    def _check_owner(self, run_id: str, name: str) -> None:
        """Check that a thread begins work only for a run that its process has; see `checked_threads`."""
        if name in self.checked_threads and not self._has_run(run_id):
            self.problems.append(f"{run_id}: {name} ran in a process that lost the run")

    def _check_allowed(self, ctx: ToolContext[Any], name: str) -> None:
        # A substitute call has a key of its own, and a decision of its own.
        call = (ctx.run_id, ctx.key, describe_call(ctx.arguments))
        if call not in self.allowed:
            self.problems.append(f"{ctx.run_id} {ctx.key}: {name} ran without an allow")

    def note_effect(self, run_id: str, name: str) -> None:
        """Note that an effect of an engine's own begins, which has a name of its own in a run."""
        self.executions.append(Execution(run_id, name, name, "own", "effect"))
        value = f"done {name}"
        events = [entry.event for entry in self._store.read(run_id)]
        if any(isinstance(e, EffectFinished) and e.value == value for e in events):
            self.problems.append(
                f"{run_id} {name}: an effect ran again after its outcome"
            )

    def note_read(self, run_id: str, name: str) -> int:
        """Note that a lookup begins, whose effect is not done yet; return how many there were before.

        A process that lost the run may read: what it reads goes nowhere. So may a new run, of which nothing is stored yet.
        """
        self.reads += 1
        value = f"done {name}"
        stored: list[Entry] = []
        with contextlib.suppress(UnknownRun):
            stored += self._store.read(run_id)
        events = [entry.event for entry in stored]
        is_done = any(
            isinstance(e, EffectFinished) and e.value == value for e in events
        )
        if is_done and self._has_run(run_id):
            self.problems.append(
                f"{run_id} {name}: a lookup was done again after its effect"
            )
        return self.reads

    def _has_run(self, run_id: str) -> bool:
        """Return whether the process at work has the run."""
        host = HOST.get()
        if not isinstance(host, SimulatedHost):
            return True
        [owner] = [info.owner for info in self._store.runs() if info.run_id == run_id]
        return owner in host.owners


class WorldGate(InstantGate):
    """Decides by the place and the arguments of a call, and notes what it allowed."""

    version = "world-1"

    def __init__(self, ledger: Ledger, *, asks: float, denies: float) -> None:
        self._ledger, self._asks, self._denies = ledger, asks, denies

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision, the same in every life of the run."""
        what = str(action.arguments.get("what", ""))
        chance = (sum(map(ord, f"{action.tool}{what}{state.key}")) * 7919 % 1000) / 1000
        if chance < self._denies:
            return Deny("not this one")
        if chance < self._denies + self._asks:
            return Ask("this one?")
        if chance > 0.97 and what and not what.endswith("!"):
            return Modify({**action.arguments, "what": f"{what}!"}, "louder")
        self._note(action, state)
        return Allow()

    def _note(self, action: Action, state: PolicyState) -> None:
        arguments = describe_call(action.arguments)
        self._ledger.allowed.add((state.run_id, state.key, arguments))
