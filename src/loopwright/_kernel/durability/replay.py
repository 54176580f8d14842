"""What a journal answers when the code of its run is executed again: folds of its entries."""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ReplayDivergence
from ...events.effect_key import EffectKey, call_key, is_context
from ...events.effects import ChildFinished, ModelRequested, SleepSet, ToolFinished
from ...events.entry import Entry, Event
from ...events.run import RunForked, RunRetried, RunStarted
from ...messages import ToolCall
from .approvals import Approvals
from .effects import Effects, Outcome
from .flow_record import FlowRecord
from .hook_records import HookRecords
from .recoveries import Recoveries
from .requests import RecordedRequests
from .scopes import Scopes
from .totals import Totals


def last_event(entries: Sequence[Entry]) -> Event | None:
    """Return the event of the last entry; `None` for a run without entries."""
    return entries[-1].event if entries else None


class Replay:
    """The recorded entries of one run; empty for a new run."""

    def __init__(
        self, entries: Sequence[Entry] = (), scopes: Scopes | None = None
    ) -> None:
        self.started: RunStarted | None = None
        self.seed = ""
        """What a fork makes random numbers and ids of; empty if the run is not a fork."""
        self.scopes = scopes or Scopes()
        self.effects = Effects()
        self.approvals = Approvals(self.effects)
        self.recoveries = Recoveries(self.effects)
        self.totals = Totals()
        self.requests = RecordedRequests()
        self.flow = FlowRecord(lambda: self.totals.is_untrusted)
        self.hooks = HookRecords()
        if entries:
            self._read(entries)

    def _read(self, entries: Sequence[Entry]) -> None:
        readers: dict[type[Any], list[Callable[[Entry, Any], None]]] = defaultdict(list)
        folds = (
            self.effects, self.approvals, self.recoveries, self.totals, self.scopes.branches, self.requests,
            self.flow, self.hooks,
        )  # fmt: skip
        for fold in folds:
            for event_type, reader in fold.readers().items():
                readers[event_type].append(reader)
        readers[RunStarted].append(self._read_start)
        readers[RunForked].append(self._read_fork)
        readers[RunRetried].append(self._read_retry)
        for entry in entries:
            self.totals.add_time(entry)
            self.scopes.add(entry)
            for read in readers.get(type(entry.event), ()):
                read(entry, entry.event)

    def _read_start(self, entry: Entry, event: RunStarted) -> None:
        self.started = event

    def _read_fork(self, entry: Entry, event: RunForked) -> None:
        """Forget what was said to the run that was forked, and what only counted for it."""
        self.seed = event.seed
        self.approvals.forget_commands()
        self._restart_stopped_engines()
        self.effects.forget_open_questions()
        for key in self.approvals.outdated(entry.at):
            if not self.is_cancelled(key):
                self.approvals.forget_decision(key)
        for key, intent in self.effects.intents.items():
            if isinstance(intent, ModelRequested):
                delivered_again = dataclasses.replace(intent, commands=())
                self.effects.intents[key] = delivered_again

    def _read_retry(self, entry: Entry, event: RunRetried) -> None:
        """Forget the failures that ended the run, so that these effects begin again."""
        for key in event.forgets:
            if not EffectKey.parse(key).is_effect:
                self.forget_delivery(key)
                continue
            self.effects.forget(key)
            self.hooks.forget(key)
            self.recoveries.forget(key)
            self.scopes.reopen(key)

    def forget_delivery(self, key: str) -> None:
        """Forget that an engine was given a branch, or left its branches; then these are open again."""
        self.scopes.branches.forget(key, self.effects.forget_side(key))

    def _restart_stopped_engines(self) -> None:
        for engine in self._find_stopped_engines():
            self.effects.forget(engine.text)
            self.scopes.reopen(engine.text)

    def _find_stopped_engines(self) -> list[EffectKey]:
        """Return where a person stopped an engine, a child or a tool's."""
        outcomes = self.effects.outcomes.items()
        stopped = [
            key for key, outcome in outcomes if self._is_stopped_engine(key, outcome)
        ]
        return list(map(EffectKey.parse, stopped))

    def _is_stopped_engine(self, key: str, outcome: Outcome) -> bool:
        """Whether the engine that has this outcome was stopped."""
        if isinstance(outcome, ChildFinished):
            return outcome.status == "aborted"
        is_engine = self.scopes.reaches(EffectKey.parse(key).child_path, 0)
        return (
            is_engine
            and isinstance(outcome, ToolFinished)
            and outcome.status == "cancelled"
        )

    def unfinished_calls(self) -> dict[str, tuple[int, ToolCall]]:
        """Return the calls with an unknown outcome by key, with the number of their first entry."""
        found: dict[str, tuple[int, ToolCall]] = {}
        for key, started in self.effects.unfinished_calls().items():
            call = self.effects.proposed(key)
            if call is None:
                call = ToolCall(started.tool, {}, started.call_id)
            decided = self.approvals.decision(key)
            if decided is not None and decided.arguments is not None:
                call = dataclasses.replace(call, arguments=decided.arguments)
            found[key] = self.scopes.first_entry(key), call
        return found

    def unfinished_places(self) -> set[str]:
        """Return the places of all effects that had begun, or were decided about, without an outcome.

        Those of a context policy are left out: it may not ask a model again.
        """
        begun = {
            *self.effects.intents,
            *self.approvals.decided,
        } - self.effects.outcomes.keys()
        keys = map(EffectKey.parse, itertools.filterfalse(is_context, begun))
        return {key.effect for key in keys if key.is_effect and not key.is_offer}

    def is_cancelled(self, key: str) -> bool:
        """Whether the question at a key was withdrawn, so that no answer to it counts.

        In journals from before `QuestionWithdrawn`, it shows in what the scopes around it did next,
        unless a limit was met, which ends a branch where it had waited, too.
        """
        if self.totals.limit is not None:
            return self.approvals.is_cancelled(key)
        return self.approvals.is_cancelled(key) or self.scopes.is_abandoned(key)

    def is_stopped(self, key: str) -> bool:
        """Whether a person stopped the engine around an effect."""
        inside = EffectKey.parse(key).is_inside
        return any(inside(engine.child_path) for engine in self._find_stopped_engines())

    def waits_for_ever(self, key: str) -> bool:
        """Whether the engine's own effect at a key has a question that was withdrawn.

        That is the approval of the effect, or a question to the user, which was approved.
        A sleep waits for ever where the gather around it has ended.
        """
        if isinstance(self.effects.intent(key), SleepSet):
            return self.scopes.is_abandoned(key)
        approval = call_key(key, 0)
        decided = self.approvals.decision(approval)
        if decided is None or decided.verdict == "deny":
            return False
        is_asked = not self.effects.has_begun(approval)
        return is_asked and any(map(self.is_cancelled, (approval, key)))

    def divergence(self, key: str, expected: str, found: str) -> ReplayDivergence:
        """Return the error that code and journal differ at `key`.

        Before its `seq`, nothing is recorded from that effect on.
        """
        place = EffectKey.parse(key)
        after = self.scopes.entries_from(place) if place.is_effect else []
        first = min(after, default=self.effects.last_used + 1)
        seq = max(first - 1, 1)
        if expected == found:  # the words quote no more than the beginnings of texts
            found = f"{found}, with other content"
        return ReplayDivergence(
            f"at {key} recorded: {expected}; now: {found}. The engine, its options or its prompts changed since: "
            f"run the code that wrote the journal, or fork it after entry {seq}.",
            key=key,
            expected=expected,
            found=found,
            seq=seq,
        )
