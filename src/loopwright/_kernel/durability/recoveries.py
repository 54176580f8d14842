"""What a journal holds about calls that failed: retries, recoveries, answers, undoing."""

from ...errors import CircuitOpen
from ...events.effects import AttemptFailed, ToolFinished, ToolStarted
from ...events.entry import Entry
from ...events.recovery import (
    CallDeadLettered,
    RecoveryTriggered,
    UndoBegun,
    UndoFinished,
    UndoStarted,
    UnknownOutcomeResolved,
)
from ...tools.recovery import MADE_AGAIN
from .effects import Effects, Readers


class Recoveries:
    """What was done about calls that failed or whose outcome was unknown, by their keys."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._failed_attempts: dict[str, int] = {}
        self._last: dict[str, RecoveryTriggered] = {}
        self._resolutions: dict[str, UnknownOutcomeResolved] = {}
        self._timed_out: set[str] = set()
        self.substituted: set[str] = set()
        """The calls whose outcome is not their own, but that of a substitute."""
        self.good_results: dict[tuple[str, str], tuple[float, ToolFinished]] = {}
        """The last good result of each tool and arguments hash, with its time."""
        self.dead_lettered: dict[str, CallDeadLettered] = {}
        self.undo: UndoBegun | None = None
        self.undo_started: set[str] = set()
        self.undo_finished: dict[str, UndoFinished] = {}

    def readers(self) -> Readers:
        """Return what reads each type of event."""
        return {
            AttemptFailed: self._read_attempt,
            RecoveryTriggered: self._read_recovery,
            UnknownOutcomeResolved: self._read_resolution,
            ToolFinished: self._read_result,
            CallDeadLettered: self._read_dead_lettered,
            UndoBegun: self._read_undo,
            UndoStarted: self._read_undo_started,
            UndoFinished: self._read_undo_finished,
        }

    def _read_attempt(self, entry: Entry, event: AttemptFailed) -> None:
        if is_made(event):
            attempts = self._failed_attempts.get(entry.key, 0)
            self._failed_attempts[entry.key] = attempts + 1

    def _read_recovery(self, entry: Entry, event: RecoveryTriggered) -> None:
        self.begin(entry.key, event)

    def _read_resolution(self, entry: Entry, event: UnknownOutcomeResolved) -> None:
        self._resolutions[entry.key] = event

    def _read_result(self, entry: Entry, event: ToolFinished) -> None:
        started = self._effects.intent(entry.key)
        if event.status != "ok" or entry.key in self.substituted:
            return
        # Arguments that differ in their secrets have the same hash.
        if isinstance(started, ToolStarted) and not started.sealed:
            self.good_results[event.tool, started.arguments_hash] = entry.at, event

    def _read_dead_lettered(self, entry: Entry, event: CallDeadLettered) -> None:
        self.dead_lettered[entry.key] = event

    def _read_undo(self, entry: Entry, event: UndoBegun) -> None:
        self.undo = event

    def _read_undo_started(self, entry: Entry, event: UndoStarted) -> None:
        self.undo_started.add(entry.key)

    def _read_undo_finished(self, entry: Entry, event: UndoFinished) -> None:
        self.undo_finished[entry.key] = event

    def begin(self, key: str, event: RecoveryTriggered) -> None:
        """Note that something is done about a call that failed."""
        if event.status == "timed_out" and event.failure != "elsewhere":
            self._timed_out.add(key)
        if event.strategy in MADE_AGAIN:
            self.substituted.discard(key)
        else:
            self.substituted.add(key)
        self._last[key] = event
        self._resolutions.pop(key, None)  # it was about what came before this step

    def forget(self, key: str) -> None:
        """Begin to count the attempts of a call again, and forget what was done about its failure."""
        self._failed_attempts.pop(key, None)
        self._last.pop(key, None)
        self.dead_lettered.pop(key, None)

    def failed_attempts(self, key: str) -> int:
        """Return how many attempts of a model call are recorded as failed."""
        return self._failed_attempts.get(key, 0)

    def last(self, key: str) -> RecoveryTriggered | None:
        """Return the last recovery of a call that had failed."""
        return self._last.get(key)

    def resolution(self, key: str) -> UnknownOutcomeResolved | None:
        """Return what became known last of a call whose outcome was unknown or that failed."""
        return self._resolutions.get(key)

    def has_timed_out(self, key: str) -> bool:
        """Whether an attempt of a call took too long, so that it may have taken effect."""
        return key in self._timed_out

    def substitutes(self, key: str) -> list[tuple[str, ToolFinished]]:
        """Return the calls that were made in place of one, by their keys, with their outcomes."""
        return self._effects.substitutes(key) if key in self._last else []


def is_made(attempt: AttemptFailed) -> bool:
    """Whether an attempt was made: one that the circuit breaker rejects is not."""
    return attempt.error.type != CircuitOpen.__name__
