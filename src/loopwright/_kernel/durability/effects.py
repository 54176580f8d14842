"""The effects that a journal holds: what began at each key, its outcome, what is used."""

from collections.abc import Callable, Container
from typing import Any, TypeAlias

from ...events.agents import HandedOff, InstructionsSet
from ...events.branches import (
    BranchDelivered,
    BranchesClosed,
    BranchesOpened,
    BranchFinished,
    BranchStarted,
    TimeoutSet,
)
from ...events.control import FollowedUp
from ...events.effect_key import (
    EffectKey,
    asked_key,
    call_key,
    is_context,
    is_substitute,
)
from ...events.effects import (
    CallsProposed,
    ChildFinished,
    ChildStarted,
    ClockRead,
    EffectFinished,
    EffectStarted,
    FactNoted,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PatchDecided,
    SleepSet,
    ToolFinished,
    ToolStarted,
)
from ...events.entry import Entry
from ...messages import ToolCall

Outcome: TypeAlias = (
    ModelReplied
    | ModelFailed
    | LimitHit
    | CallsProposed
    | ToolFinished
    | EffectFinished
    | ChildFinished
    | HandedOff
)
Intent: TypeAlias = (
    ModelRequested | ToolStarted | EffectStarted | ChildStarted | SleepSet
)
SideEvent: TypeAlias = (
    FactNoted
    | InstructionsSet
    | ClockRead
    | PatchDecided
    | FollowedUp
    | LimitHit
    | TimeoutSet
    | BranchStarted
    | BranchFinished
    | BranchesOpened
    | BranchDelivered
    | BranchesClosed
)
OUTCOMES: tuple[type[Any], ...] = Outcome.__args__
INTENTS: tuple[type[Any], ...] = Intent.__args__
NOTED = (
    FactNoted, InstructionsSet, ClockRead, PatchDecided, FollowedUp, TimeoutSet, BranchStarted, BranchFinished,
    BranchesOpened, BranchDelivered, BranchesClosed,
)  # fmt: skip
ASKED = asked_key("")
OWN_STARTED = (EffectStarted, ChildStarted)
OWN_FINISHED = (EffectFinished, ChildFinished)
Readers: TypeAlias = dict[type[Any], Callable[[Entry, Any], None]]


class Effects:
    """The intents and outcomes of effects by their keys, and which of them the code used."""

    def __init__(self) -> None:
        self.intents: dict[str, Intent] = {}
        self.outcomes: dict[str, Outcome] = {}
        self._outcome_entries: dict[str, int] = {}
        self._sides: dict[str, SideEvent] = {}
        self._used: set[str] = set()
        self.handoffs: dict[str, HandedOff] = {}
        """The handoff of each scope that was handed off, by the path of the scope."""
        self.last_used = 0
        """The number of the last entry whose outcome code and journal agree about."""
        self.withheld: set[str] = set()
        """The keys of calls with secrets among their arguments, which are not recorded."""
        # Bound methods of collections: they are called for each effect of each step.
        self.outcome: Callable[[str], Outcome | None] = self.outcomes.get
        self.intent: Callable[[str], Intent | None] = self.intents.get
        self.side: Callable[[str], SideEvent | None] = self._sides.get
        self.settle: Callable[[str], None] = self._used.add
        """Note that the outcome of a call is recorded now; its substitutes count as used."""

    def readers(self) -> Readers:
        """Return the function that reads each type of event."""
        return {
            **dict.fromkeys(INTENTS, self._read_intent),
            **dict.fromkeys(OUTCOMES, self._read_outcome),
            **dict.fromkeys(NOTED, self._read_side),
            GateDecided: self._read_decision,
        }

    def _read_intent(self, entry: Entry, event: Intent) -> None:
        self.intents[entry.key] = event

    def _read_outcome(self, entry: Entry, event: Outcome) -> None:
        key = entry.key
        if not EffectKey.parse(key).is_effect:
            self._sides[key] = event  # type: ignore[assignment]
            return
        self.outcomes[key], self._outcome_entries[key] = event, entry.seq
        if isinstance(event, HandedOff):
            self.handoffs[EffectKey.parse(key).path] = event
        elif isinstance(event, (ModelReplied, CallsProposed)):
            self.withheld.update(call_key(key, number) for number in event.sealed)

    def _read_side(self, entry: Entry, event: SideEvent) -> None:
        self._sides[entry.key] = event

    def _read_decision(self, entry: Entry, event: GateDecided) -> None:
        if event.sealed:
            self.withheld.add(entry.key)

    def seq(self, key: str) -> int:
        """Return the number of the entry that holds the outcome of an effect."""
        return self._outcome_entries[key]

    @property
    def facts(self) -> dict[str, FactNoted]:
        """What was noted, by its key, in the journal's order."""
        facts = self._sides.items()
        return {key: fact for key, fact in facts if isinstance(fact, FactNoted)}

    def proposed(self, text: str) -> ToolCall | None:
        """Return the call at a key as it was proposed; `None` for what is not a tool call."""
        key = EffectKey.parse(text)
        if key.call is None or key.step is not None:
            return None
        proposal = self.outcomes.get(key.effect)
        calls: tuple[ToolCall, ...] = ()
        if isinstance(proposal, ModelReplied):
            calls = proposal.completion.calls
        elif isinstance(proposal, CallsProposed):
            calls = proposal.calls
        return calls[key.call] if key.call < len(calls) else None

    def substitutes(self, key: str) -> list[tuple[str, ToolFinished]]:
        """Return the calls that were made in place of one, by their keys, with their outcomes."""
        return [
            (known, event)
            for known, event in self.outcomes.items()
            if isinstance(event, ToolFinished)
            and known != key
            and EffectKey.parse(known).original == key
        ]

    def has_limited_recovery(self, key: str) -> bool:
        """Whether the recovery of a call met a limit, which left the call without an outcome."""
        return any(
            isinstance(event, LimitHit) and EffectKey.parse(known).original == key
            for known, event in self.outcomes.items()
            if is_substitute(known)
        )

    def unfinished_calls(self) -> dict[str, ToolStarted]:
        """Return the calls that had begun and have no outcome, by their keys."""
        return {
            key: intent
            for key, intent in self.intents.items()
            if isinstance(intent, ToolStarted)
            and key not in self.outcomes
            and key not in self._used
        }

    def has_begun(self, key: str) -> bool:
        """Whether what was decided about at a key has begun.

        That is a call, or the engine's own effect, whose decision has the key of a call 0.
        """
        if key in self.intents or key in self.outcomes:
            return True
        effect = EffectKey.parse(key).effect
        own_started = isinstance(self.intents.get(effect), OWN_STARTED)
        return own_started or isinstance(self.outcomes.get(effect), OWN_FINISHED)

    def agree(self, key: str) -> None:
        """Use a recorded outcome: code and journal agree about its effect."""
        self._used.add(key)
        self.last_used = max(self.last_used, self._outcome_entries[key])

    @property
    def used_count(self) -> int:
        """How many recorded outcomes the code has used."""
        return len(self._used)

    def first_unused(self, ignored: Container[str] = ()) -> str | None:
        """Return the key of the first recorded outcome that the code did not use.

        A policy that asked a model what to send need not ask again.
        Steps of the calls that are `ignored` do not count.
        """
        unused = [
            key
            for key in self.outcomes.keys() - self._used
            if not is_context(key)
            and (original := EffectKey.parse(key).original) not in self._used
            and original not in ignored
        ]
        return min(unused, key=self.seq, default=None)

    def forget(self, key: str) -> None:
        """Forget the outcome of an effect."""
        del self.outcomes[key], self._outcome_entries[key]

    def forget_open_questions(self) -> None:
        """Forget when questions were asked that have no answer: a fork asks them anew."""
        for key in [one for one in self._sides if one.startswith(ASKED)]:
            if key.removeprefix(ASKED) not in self.outcomes:
                del self._sides[key]

    def forget_side(self, key: str) -> SideEvent:
        """Forget what is recorded at a key that is not an effect's; return it."""
        return self._sides.pop(key)
