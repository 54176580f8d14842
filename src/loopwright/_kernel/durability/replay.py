"""What the journal already answers: the effects of a run by their key, and what they spent."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ...errors import CircuitOpen, ReplayDivergence
from ...events.control import CommandReceived, Declassified, FollowedUp, RunContinued
from ...events.effects import (
    AttemptFailed,
    CallDeadLettered,
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
    RecoveryTriggered,
    ToolFinished,
    ToolStarted,
    UndoBegun,
    UndoFinished,
    UndoStarted,
    UnknownOutcomeResolved,
)
from ...events.entry import Entry, Event
from ...events.run import (
    Question,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from ...labels import Label, highest
from ...messages import ToolCall, Usage
from ...tools.recovery import MADE_AGAIN, LlmRecovery

Outcome: TypeAlias = (
    ModelReplied
    | ModelFailed
    | LimitHit
    | CallsProposed
    | ToolFinished
    | EffectFinished
    | ChildFinished
)
Intent: TypeAlias = ModelRequested | ToolStarted | EffectStarted | ChildStarted
OUTCOMES = (
    ModelReplied,
    ModelFailed,
    LimitHit,
    CallsProposed,
    ToolFinished,
    EffectFinished,
    ChildFinished,
)
INTENTS = (ModelRequested, ToolStarted, EffectStarted, ChildStarted)


def scope_of(key: str) -> tuple[str, int]:
    """The scope path and the number of an effect's key: `"2.0.1"` is effect 1 of `"2.0"`.

    The `#i` of a call is left off, and so is the `~n` of what was done about it when it had failed.
    """
    path, _, number = key.partition("#")[0].rpartition(".")
    return path, int(number)


class Replay:
    """The recorded effects of one run. Empty for a new run."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.started: RunStarted | None = None
        self.seed = ""
        """What random numbers and ids are made of if the run is a fork; empty if it is not."""
        self.llm_calls = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.active_seconds = 0.0
        self._outcomes: dict[str, Outcome] = {}
        self._intents: dict[str, Intent] = {}
        self._decisions: dict[str, GateDecided] = {}
        self._side: dict[str, FactNoted | ClockRead | FollowedUp | LimitHit] = {}
        self._attempts: dict[str, int] = {}
        self._recoveries: dict[str, RecoveryTriggered] = {}
        self._resolved: dict[str, UnknownOutcomeResolved] = {}
        self._timed_out: set[str] = set()
        self.asked: dict[str, int] = {}
        """Since which entry a person is asked something else than to approve, by the key of the question."""
        self.leave_asked: dict[str, int] = {}
        """Since which entry a person is, or was last, asked for leave for a call as it stands, by key."""
        self.closes: dict[int, float] = {}
        """When nobody can answer the question of an entry any more, wall clock, by the entry's number."""
        self.received: dict[int, CommandReceived] = {}
        """The commands that are known to have come, by their number, as they were understood."""
        self.taken: set[int] = set()
        """The numbers of those that count once and were acted upon."""
        self.label: Label = "public"
        self.untrusted = False
        self.sealed: set[str] = set()
        """The keys of calls whose arguments held secrets, which are not in the journal."""
        self.good: dict[tuple[str, str], tuple[float, ToolFinished]] = {}
        """When each call, by tool and hash of its arguments, last gave which good result."""
        self.undo: UndoBegun | None = None
        self.set_aside: set[str] = set()
        self.undoing: set[str] = set()
        self.undone: dict[str, UndoFinished] = {}
        self._seqs: dict[str, int] = {}  # of outcomes
        self._firsts: dict[str, int] = {}  # of the first entry at each key
        self._asked: set[str] = set()
        self._highest: dict[str, int] = {}
        self._reach: dict[str, int] = {}
        self._scopes: set[str] = (
            set()
        )  # those that have effects of their own; a gather has none
        self._decided: set[str] = set()
        self._acted: set[str] = set()
        self.limit: LimitHit | None = None
        """The limit of the whole run that was hit: nothing new happens behind it."""
        self._agreed = 0
        before: Entry | None = None
        for entry in entries:
            self._keep(entry)
            if before is not None and not isinstance(
                entry.event, (RunResumed, RunForked)
            ):
                self.active_seconds += max(entry.at - before.at, 0.0) - getattr(
                    entry.event, "waited", 0.0
                )
            before = entry

    def _keep(self, entry: Entry) -> None:
        event, key = entry.event, entry.key
        self._read_aloud(event)
        if key and ":" not in key:
            self._firsts.setdefault(key, entry.seq)
            self._reached(key, decided=isinstance(event, GateDecided))
        if isinstance(event, (FactNoted, ClockRead, FollowedUp)) or (
            isinstance(event, LimitHit) and ":" in key
        ):
            self._side[key] = event
            self.taken.update([event.command] if isinstance(event, FollowedUp) else [])
        elif isinstance(event, OUTCOMES):
            self._keep_outcome(key, event, entry)
        elif isinstance(event, INTENTS):
            self._keep_intent(key, event)
        elif isinstance(event, GateDecided):
            self.sealed.update([key] if event.sealed else [])
            self._keep_decision(key, event, entry.seq)
        elif isinstance(
            event, (AttemptFailed, RecoveryTriggered, UnknownOutcomeResolved)
        ):
            self._keep_turn(key, event)
        elif isinstance(event, (CommandReceived, RunContinued, Declassified)):
            self._keep_word(event)
        else:
            self._keep_ends(key, event, entry.seq, entry.at)

    def _read_aloud(self, event: Event) -> None:
        """By such an entry the run has read something, with that label, from outside or not."""
        if isinstance(event, RecoveryTriggered) and event.strategy != LlmRecovery.name:
            return
        if isinstance(
            event,
            (
                ToolFinished,
                EffectFinished,
                ModelRequested,
                FollowedUp,
                RecoveryTriggered,
            ),
        ):
            self.label = highest((self.label, event.label))
        if isinstance(event, (ToolFinished, RecoveryTriggered)):
            self.untrusted = self.untrusted or event.untrusted

    def _keep_turn(
        self,
        key: str,
        event: AttemptFailed | RecoveryTriggered | UnknownOutcomeResolved,
    ) -> None:
        """What happened to a call between its intent and its outcome."""
        if isinstance(event, AttemptFailed):
            made = (
                event.error.type != CircuitOpen.__name__
            )  # a call that the breaker rejects is not made
            self._attempts[key] = self._attempts.get(key, 0) + made
            self.llm_calls += made
        elif isinstance(event, RecoveryTriggered):
            self.recovered(key, event)
            self.tool_calls += event.strategy == "retry"
        else:
            self._resolved[key] = event
            self.asked.pop(key, None)

    def _keep_decision(self, key: str, event: GateDecided, seq: int) -> None:
        """A decision about a call; a question that is asked on, when the run is resumed, is no new one."""
        known, self._decisions[key] = self._decisions.get(key), event
        if event.verdict == "ask" and (
            known is None or _asked_about(known) != _asked_about(event)
        ):
            self.leave_asked[key] = seq
        self.asks(event, seq)

    def asks(self, event: GateDecided, seq: int) -> None:
        """Note until when a decision that is a question can be answered."""
        if event.verdict == "ask" and event.until:
            self.closes[seq] = event.until

    def _keep_word(self, event: CommandReceived | RunContinued | Declassified) -> None:
        """What people told the run, and what of it took effect at once."""
        if isinstance(event, CommandReceived):
            self.received[event.number] = event
        elif isinstance(event, Declassified):
            self.label = event.label
            self.taken.add(event.command)

    def _keep_ends(self, key: str, event: Event, seq: int, at: float) -> None:
        """How the run began, and how it comes to its end."""
        if isinstance(event, RunStarted):
            self.started, self.label = event, event.label
        elif isinstance(event, RunForked):
            self.seed = event.seed
            self._forget_words(at)
        elif isinstance(event, RunSuspended):
            self._ask(event.pending, seq)
        elif isinstance(event, RunFinished):
            self.asked.clear()
        else:
            self._keep_last_resort(key, event)

    def _keep_last_resort(self, key: str, event: Event) -> None:
        """What was left to people, and what was undone."""
        if isinstance(event, CallDeadLettered):
            self.set_aside.add(key)
        elif isinstance(event, UndoBegun):
            self.undo = event
        elif isinstance(event, UndoStarted):
            self.undoing.add(key)
        elif isinstance(event, UndoFinished):
            self.undone[key] = event

    def _forget_words(self, at: float) -> None:
        """What was told and allowed so far was so to another run: this one counts its commands from 1.

        What that run was allowed to do and had not begun is decided about again, since leave counts once; so is what
        nobody can answer any more. Engines that it had stopped go on.
        """
        self.received.clear()
        self.taken.clear()
        for key, outcome in list(self._outcomes.items()):
            if self._was_stopped(key, outcome):
                del self._outcomes[key], self._seqs[key]
        for key, known in list(self._decisions.items()):
            over = known.verdict == "ask" and 0 < known.until <= at
            unused = known.verdict in ("allow", "modify") and not self._is_begun(key)
            if (over or unused) and not self.left_behind(
                key
            ):  # a branch that nobody waits for waits on
                del self._decisions[key]
        for key, intent in self._intents.items():
            if isinstance(intent, ModelRequested):
                self._intents[key] = dataclasses.replace(intent, commands=())

    def _was_stopped(self, key: str, outcome: Outcome) -> bool:
        """Whether an outcome is that of an engine, a child or one that answers a call, which a person stopped."""
        if isinstance(outcome, ChildFinished):
            return outcome.status == "aborted"
        answers = self.reaches(key.replace("#", "."), 0)
        return (
            answers
            and isinstance(outcome, ToolFinished)
            and outcome.status == "cancelled"
        )

    def _is_begun(self, key: str) -> bool:
        """Whether what was decided about at a key has begun: a call, or the engine's own effect around the `#0`."""
        place = key.partition("#")[0]
        own = isinstance(self._intents.get(place), (EffectStarted, ChildStarted))
        own = own or isinstance(
            self._outcomes.get(place), (EffectFinished, ChildFinished)
        )
        return own or key in self._intents or key in self._outcomes

    def _ask(self, pending: Sequence[Question], seq: int) -> None:
        """Note since when a person is asked; a question that is asked on is no new one."""
        for question in pending:
            if question.about != "approval":
                self.asked.setdefault(question.key, seq)

    def _reached(self, key: str, *, decided: bool) -> None:
        """Note how far each scope around a key has come, and that calls of a proposal were decided or begun."""
        place, is_call, _ = key.partition("#")
        if is_call:
            (self._decided if decided else self._acted).add(place)
        path = place
        self._scopes.add(scope_of(path)[0])
        while path:
            path, number = scope_of(path)
            self._reach[path] = max(self._reach.get(path, -1), number)

    def _keep_outcome(self, key: str, event: Outcome, entry: Entry) -> None:
        self._outcomes[key] = event
        self._seqs[key] = entry.seq
        self.asked.pop(key, None)
        path, number = scope_of(key)
        self._highest[path] = max(self._highest.get(path, -1), number)
        if isinstance(event, CallsProposed):
            self.taken.update([event.command] if event.command else [])
        if isinstance(event, (ModelReplied, CallsProposed)):
            self.sealed.update(f"{key}#{number}" for number in event.sealed)
        if isinstance(event, ModelReplied):
            self.usage += event.completion.usage
        elif isinstance(event, LimitHit):
            self.limit = event
        elif (
            isinstance(event, ToolFinished)
            and event.status == "ok"
            and self.is_own(key)
        ):
            started = self._intents.get(key)
            if (
                isinstance(started, ToolStarted) and not started.sealed
            ):  # other secrets look the same
                self.good[event.tool, started.arguments_hash] = entry.at, event

    def _keep_intent(self, key: str, event: Intent) -> None:
        if key not in self._intents:
            self.llm_calls += isinstance(event, ModelRequested)
            self.tool_calls += isinstance(event, ToolStarted)
        self._intents[key] = event

    def outcome(self, key: str) -> Outcome | None:
        """The recorded outcome of an effect."""
        return self._outcomes.get(key)

    def agree(self, key: str) -> None:
        """Code and journal agree about a recorded effect: it is used."""
        self._asked.add(key)
        self._agreed = max(self._agreed, self._seqs[key])

    def settled(self, key: str) -> None:
        """What came of a call is recorded now: with it goes what was done in its place."""
        self._asked.add(key)

    def done_instead(self, key: str) -> list[tuple[str, ToolFinished]]:
        """The calls that were made in place of one, by their keys, with what came of them."""
        if key not in self._recoveries:
            return []
        instead = [
            (known, event)
            for known, event in self._outcomes.items()
            if known.startswith(f"{key}~")
        ]
        return [
            (known, event)
            for known, event in instead
            if isinstance(event, ToolFinished)
        ]

    def in_doubt(self) -> dict[str, tuple[int, ToolCall]]:
        """The calls that had begun and of which nothing has come, by key, with the number of their first entry."""
        found: dict[str, tuple[int, ToolCall]] = {}
        for key, known in self._intents.items():
            if (
                isinstance(known, ToolStarted)
                and key not in self._outcomes
                and key not in self._asked
            ):
                call, decided = (
                    self.proposed(key) or ToolCall(known.tool, {}, known.call_id),
                    self._decisions.get(key),
                )
                if decided is not None and decided.arguments is not None:
                    call = dataclasses.replace(call, arguments=decided.arguments)
                found[key] = self._firsts[key], call
        return found

    def intent(self, key: str) -> Intent | None:
        """The recorded intent of an effect."""
        return self._intents.get(key)

    def decision(self, key: str) -> GateDecided | None:
        """The last recorded gate decision about a call."""
        return self._decisions.get(key)

    def waiting_for_leave(self) -> dict[str, GateDecided]:
        """The calls that a person is asked about and nobody has decided, by key."""
        return {
            key: known
            for key, known in self._decisions.items()
            if known.verdict == "ask"
        }

    def unused_leave(self, key: str) -> GateDecided | None:
        """The decision to let a call run that rests on a person's word, as long as it has not begun."""
        known = self._decisions.get(key)
        rests = (
            known is not None
            and known.verdict in ("allow", "modify")
            and known.command > 0
        )
        return known if rests and not self._is_begun(key) else None

    def proposed(self, key: str) -> ToolCall | None:
        """The call at a key as a model or an engine proposed it; `None` for what is no tool call."""
        place, _, index = key.partition("#")
        proposal = self._outcomes.get(place)
        if isinstance(proposal, ModelReplied):
            calls = proposal.completion.calls
        else:
            calls = proposal.calls if isinstance(proposal, CallsProposed) else ()
        return (
            calls[int(index)] if index.isdecimal() and int(index) < len(calls) else None
        )

    def side(self, key: str) -> FactNoted | ClockRead | FollowedUp | LimitHit | None:
        """A recorded note, clock reading, follow-up or iteration limit."""
        return self._side.get(key)

    @property
    def facts(self) -> dict[str, FactNoted]:
        """What was noted, by its key, in the journal's order."""
        return {
            key: fact for key, fact in self._side.items() if isinstance(fact, FactNoted)
        }

    def attempts(self, key: str) -> int:
        """How many attempts of a model call are recorded as failed."""
        return self._attempts.get(key, 0)

    def recovery(self, key: str) -> RecoveryTriggered | None:
        """The last thing that was done about a call that had failed."""
        return self._recoveries.get(key)

    def timed_out(self, key: str) -> bool:
        """Whether an attempt of a call took too long: it may have taken effect, whatever came of the call."""
        return key in self._timed_out

    def is_own(self, key: str) -> bool:
        """Whether what came of a call is its own, and not that of something done in its place."""
        last = self._recoveries.get(key)
        return last is None or last.strategy in MADE_AGAIN

    def recovered(self, key: str, event: RecoveryTriggered) -> None:
        """Something is done now about a call that failed."""
        if event.status == "timed_out" and event.failure != "elsewhere":
            self._timed_out.add(key)
        self._recoveries[key] = event
        self._resolved.pop(key, None)  # that was about what came before this step

    def resolved(self, key: str) -> UnknownOutcomeResolved | None:
        """What became known last of a call that was in doubt or had failed."""
        return self._resolved.get(key)

    def seq(self, key: str) -> int:
        """The number of the entry that holds an effect's outcome."""
        return self._seqs[key]

    def holds_more(self, path: str, number: int) -> bool:
        """Whether a scope has a recorded outcome at `number` or later."""
        return self._highest.get(path, -1) >= number

    def holds_later(self, key: str) -> bool:
        """Whether recorded outcomes come after an effect that has none: in its scope, or in a scope around it.

        So do outcomes of a scope that was opened at its very place.
        """
        if not self._highest:
            return False
        path, number = scope_of(key)
        if self.holds_more(path, number + 1):
            return True
        place = key.partition("#")[0]
        if "#" not in key and any(
            scope == place or scope.startswith(f"{place}.") for scope in self._highest
        ):
            return True
        return any(
            self._ended(*place) or self.holds_more(place[0], place[1] + 1)
            for place in _around(path)
        )

    def left_behind(self, key: str) -> bool:
        """Whether the scopes around an effect's went on without it: its gather, or the engine around it, had ended."""
        for path, number in (
            () if ":" in key else _around(scope_of(key)[0])
        ):  # an answer, and undoing, stand beside
            if self._ended(path, number) or (
                self._is_scope(path) and self.reaches(path, number + 1)
            ):
                return True
        return False

    def _is_scope(self, path: str) -> bool:
        """Whether a place is an engine's, and no gather's: there, what comes later is another branch of it."""
        around, _, number = path.rpartition(".")
        child = (
            isinstance(self._intents.get(path), ChildStarted)
            or f"{around}#{number}" in self._intents
        )
        return child or not path or path in self._scopes

    def left_waiting(self, key: str) -> bool:
        """Whether a branch was left behind while it waited for a person at an effect of the engine's own."""
        decided, (path, number) = self._decisions.get(f"{key}#0"), scope_of(key)
        waited = (
            decided is not None
            and decided.verdict != "deny"
            and not self._is_begun(f"{key}#0")
        )
        return waited and not self.reaches(path, number + 1) and self.left_behind(key)

    def _ended(self, path: str, number: int) -> bool:
        """Whether there was an engine at a place, a child or one that answers a call, which has ended."""
        place = f"{path}.{number}" if path else str(number)
        return (
            isinstance(self._outcomes.get(place), ChildFinished)
            or f"{path}#{number}" in self._outcomes
        )

    def reaches(self, path: str, number: int) -> bool:
        """Whether a scope, with those inside it, had begun its effect of that number."""
        return self._reach.get(path, -1) >= number

    def begun(self, verb: str, proposal: str) -> bool:
        """Whether calls of a proposal were decided (`gate`), or started or ended (`act`)."""
        return proposal in (self._decided if verb == "gate" else self._acted)

    def first_unused(self) -> str | None:
        """The key of the first recorded effect that nobody asked for."""
        left = [
            key
            for key in self._outcomes
            if not self._asked & {key, key.partition("~")[0]}
        ]
        return min(left, key=lambda key: self._seqs[key]) if left else None

    def divergence(self, key: str, expected: str, found: str) -> ReplayDivergence:
        """The error that says where code and journal part; before its `seq` nothing is recorded from there on."""
        beside = ":" in key  # it has no place among the effects
        after = [
            seq - 1
            for known, seq in self._firsts.items()
            if not beside and _not_before(known, key)
        ]
        seq = max(min(after, default=self._agreed), 1)
        return ReplayDivergence(
            f"at {key} the journal has {expected}, the code asks for {found}: the engine, its options or its prompts "
            f"changed since. Run the code that wrote the journal, or fork it after entry {seq}.",
            key=key,
            expected=expected,
            found=found,
            seq=seq,
        )


def _around(path: str) -> Iterator[tuple[str, int]]:
    """The places of the scopes around a scope, from the inside out."""
    while path:
        path, number = scope_of(path)
        yield path, number


def _asked_about(decided: GateDecided) -> tuple[str, str, str]:
    """What a person is asked about, if this is a question: which arguments, under which policy."""
    return decided.verdict, decided.arguments_hash, decided.policy_version


def _not_before(key: str, other: str) -> bool:
    """Whether an effect is, in the scope of `other`, that one or a later one, or inside of such."""
    path, number = scope_of(other)
    inside = f"{path}." if path else ""
    return (
        key.startswith(inside)
        and int(key[len(inside) :].partition("#")[0].partition(".")[0]) >= number
    )
