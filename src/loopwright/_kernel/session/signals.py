"""Hold the signals that keep a run from beginning anything new."""

from typing import Any

from ...errors import (
    Aborted,
    LimitReached,
    LoopwrightError,
    ReplayDivergence,
    Suspended,
)
from ...events.effect_key import EffectKey
from ...security.redaction import Redactor
from ..durability.description import describe_recorded
from ..durability.replay import Replay
from .cuts import CallStatus, Cuts
from .handoffs import Handoffs

STOPPED = "the run was told to stop after the step that was under way"
ABANDONED_BRANCH = "waiting for a person in a branch that was abandoned: the gather around it has ended"


class Signals:
    """The sticky signals of one run: once set, every later verb meets them.

    `fatal` (a divergence, a failed journal) stops replay too. `ending` (a limit, an
    abort) stops only what is new: recorded effects are still returned, and a limit
    that the journal holds counts again when the run is resumed.
    """

    def __init__(self, replay: Replay, redactor: Redactor) -> None:
        hit = replay.totals.limit
        self.fatal: LoopwrightError | None = None
        self.ending: LoopwrightError | None = (
            None if hit is None else LimitReached(hit.limit, hit.detail)
        )
        self.aborting = False
        self.abort_text = "the run was aborted"
        """Why the run is being aborted."""
        self.cuts = Cuts(replay.scopes.branches)
        self.handoffs = Handoffs()
        self._replay, self._is_new = replay, replay.started is None
        self._redactor = redactor

    @property
    def is_running(self) -> bool:
        """Whether the run is neither being aborted nor lost to this process."""
        return self.fatal is None and not self.aborting

    def check(self, *, begun: bool = False) -> None:
        """Raise the signal that is set; what had `begun` before a limit was reached continues.

        Without a crash in between it would have continued, too.
        """
        found = self.fatal or self.ending
        if found is None:
            return
        may_continue = begun and isinstance(found, LimitReached)
        if not may_continue:
            raise found

    def interruption(self, key: str) -> CallStatus | None:
        """Return the status of a call that the run itself cancelled; `None` where the host did."""
        return "cancelled" if self.aborting else self.cuts.call_status(key)

    def check_handoff(self, key: str) -> None:
        """Raise `AgentReplaced` for something new in a scope whose agent handed the run off meanwhile.

        The handoff itself is the last that it does.
        """
        if not self.handoffs or self._replay.scopes.has_entry(key):
            return
        if self.handoffs.has_key(key):
            return
        signal = self.handoffs.signal(EffectKey.parse(key).path)
        if signal is not None:
            raise signal

    def check_fatal(self, error: BaseException) -> None:
        """Raise an error that kept a tool from being called: the run's own, not the tool's."""
        if error is self.fatal:
            raise error

    def stick(self, error: LoopwrightError) -> LoopwrightError:
        """End the whole run with an error, unless one is set; return the error to be raised."""
        self.ending = self.ending or error
        return error

    def abort(self, text: str) -> None:
        """End the whole run as aborted; what is in flight is to be cancelled."""
        self.abort_text, self.aborting = text, True
        self.stick(Aborted(text))

    def diverge(self, key: str, expected: str, found: str) -> ReplayDivergence:
        """Make it fatal that code and journal disagree at `key`; return the error to be raised."""
        redact = self._redactor.redact_text  # what was recorded may be a secret now
        error = self._replay.divergence(key, redact(expected), redact(found))
        self.fatal = error
        return error

    def diverge_from(self, key: str, found: str) -> ReplayDivergence:
        """Make it fatal that the code asks for something else than what is recorded at `key`."""
        expected = describe_recorded(self._replay.effects, key)
        return self.diverge(key, expected, found)

    def check_cut(self, key: str) -> None:
        """Raise the cancellation of a branch that was cut off; what met a limit before meets it again."""
        if self.cuts.is_cut(key) and self._replay.scopes.has_entry(key):
            self.check_cancelled(key)
        self.cuts.check(key)

    def check_gap(self, key: str, found: str) -> None:
        """Raise `ReplayDivergence` if a new effect at `key` precedes recorded ones of its scope.

        In a branch that was cut off, raise the cancellation that it was cut off with.
        """
        if self.cuts.are_any:
            self.cuts.check(key)
        if self._is_new:
            return
        if self._replay.scopes.has_outcome_after(key):
            raise self.diverge(key, "only effects after it", found)

    def check_intent(self, key: str, expected: type[Any], found: str) -> None:
        """Raise `ReplayDivergence` if an effect of another type had begun at `key`."""
        intent = self._replay.effects.intent(key)
        if intent is not None and not isinstance(intent, expected):
            raise self.diverge_from(key, found)

    def check_cancelled(self, key: str) -> None:
        """Raise `Suspended` for a question that was withdrawn: no answer counts.

        In an engine that a person stopped, raise the `Aborted` that ended it again.
        """
        self.check_limit(key)
        if not self._replay.is_cancelled(key):
            return
        if self._replay.is_stopped(key):
            raise self.stick(Aborted(STOPPED))
        raise Suspended(ABANDONED_BRANCH)

    def check_limit(self, key: str) -> None:
        """Raise the recorded limit again where it was met: by a branch beside what had not begun, or by its recovery."""
        if not isinstance(self.ending, LimitReached):
            return
        effects = self._replay.effects
        if not effects.has_begun(key):
            raise self.ending
        if effects.has_limited_recovery(key):
            effects.settle(key)
            raise self.ending
