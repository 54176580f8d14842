"""What a recorded run had spent, and how sensitive what it had read is."""

from typing import Any

from ...events.agents import InstructionsSet
from ...events.branches import BranchesClosed, TimeoutFired
from ...events.control import CommandReceived, Declassified, FollowedUp
from ...events.effect_key import EffectKey
from ...events.effects import (
    EffectFinished,
    LimitHit,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    ToolStarted,
)
from ...events.entry import Entry
from ...events.hooks import HookRan
from ...events.recovery import RecoveryTriggered
from ...events.run import RunForked, RunResumed, RunStarted
from ...labels import Label, highest, read_provenance
from ...messages import Usage
from ...tools.recovery import ASKS_NO_MODEL, Retry
from .effects import Readers
from .read_places import ReadPlaces


class Totals:
    """The budget that a run had used, its limit, and the labels of what it had read."""

    def __init__(self) -> None:
        self.llm_calls = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.active_seconds = 0.0
        self.label: Label = "public"
        self.is_untrusted = False
        self.places = ReadPlaces()
        self.limit: LimitHit | None = None
        """The limit of the whole run that was hit: nothing new begins after it."""
        self._last_at: float | None = None
        self._begun: set[str] = set()

    def readers(self) -> Readers:
        """Return what reads each type of event."""
        return {
            RunStarted: self._read_start,
            ModelRequested: self._read_request,
            ModelReplied: self._read_reply,
            ToolStarted: self._read_tool_start,
            ToolFinished: self._read_result,
            EffectFinished: self._read_result,
            InstructionsSet: self._read_result,
            HookRan: self._read_text,
            FollowedUp: self._read_text,
            CommandReceived: self._read_command,
            RecoveryTriggered: self._read_recovery,
            Declassified: self._read_declassification,
            LimitHit: self._read_limit,
            TimeoutFired: self._read_cut,
            BranchesClosed: self._read_cut,
        }

    def add_time(self, entry: Entry) -> None:
        """Count the time since the entry before, unless no process was at work or a person was."""
        if self._last_at is not None and not isinstance(
            entry.event, (RunResumed, RunForked)
        ):
            waited: float = getattr(entry.event, "waited", 0.0)
            self.active_seconds += max(entry.at - self._last_at, 0.0) - waited
        self._last_at = entry.at

    def _read_start(self, entry: Entry, event: RunStarted) -> None:
        self.label, self.is_untrusted = event.label, event.untrusted
        self.places.note("", event.label, event.untrusted)

    def _read_request(self, entry: Entry, event: ModelRequested) -> None:
        self.llm_calls += self._is_first(entry.key)
        self._read_result(entry, event)

    def _read_tool_start(self, entry: Entry, event: ToolStarted) -> None:
        self.tool_calls += self._is_first(entry.key)

    def _is_first(self, key: str) -> bool:
        """Whether an intent is the first at its key; it is recorded again after a crash."""
        is_first = key not in self._begun
        self._begun.add(key)
        return is_first

    def _read_reply(self, entry: Entry, event: ModelReplied) -> None:
        reply = event.completion
        self.usage += reply.usage
        self.tool_calls += len(reply.provider_calls)
        self.is_untrusted |= bool(reply.provider_calls)
        self.places.note(entry.key, "public", bool(reply.provider_calls))

    def _read_cut(self, entry: Entry, event: TimeoutFired | BranchesClosed) -> None:
        self.usage += event.usage

    def _read_result(self, entry: Entry, event: Any) -> None:
        self._read_text(entry, event)
        self.is_untrusted |= event.untrusted
        self.places.note(entry.key, event.label, event.untrusted)

    def _read_recovery(self, entry: Entry, event: RecoveryTriggered) -> None:
        self.tool_calls += event.strategy == Retry.name
        if event.strategy not in ASKS_NO_MODEL:  # a model read the failure
            self._read_result(entry, event)

    def _read_text(self, entry: Entry, event: Any) -> None:
        """Raise the label to that of a text that the run has read."""
        self.label = highest((self.label, event.label))
        self.places.note(entry.key, event.label, untrusted=False)

    def _read_command(self, entry: Entry, event: CommandReceived) -> None:
        """Raise the label to that of what a person answered, which may come from outside."""
        label, untrusted = read_provenance(event.body)
        if not event.refused:
            self.label = highest((self.label, label))
            self.is_untrusted |= untrusted
            self.places.note("", label, untrusted)

    def _read_declassification(self, entry: Entry, event: Declassified) -> None:
        self.label = event.label
        self.is_untrusted &= not event.trusted
        self.places.lower(event.label, trusted=event.trusted)

    def _read_limit(self, entry: Entry, event: LimitHit) -> None:
        if EffectKey.parse(entry.key).is_effect:  # that of a loop ends the loop alone
            self.limit = event
