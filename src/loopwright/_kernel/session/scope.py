"""Where a strategy is in its program: a path, counters that make keys, one verb in flight, sticky signals."""

import hashlib
from collections.abc import Iterator
from types import TracebackType

from ...errors import (
    Aborted,
    LimitReached,
    LoopwrightError,
    PhaseError,
    RunSignal,
    Suspended,
    UnknownOutcome,
)
from ...events.effect_key import side_key
from ...events.effects import LimitHit, ModelRequested
from ...messages import Message, Usage
from .progress_monitor import ProgressMonitor
from .session import Session
from .signals import ABANDONED_BRANCH


class Conduct:
    """What all branches of one engine share: what its own calls used, and what will end it.

    `ending` is why it asked for a best answer itself; `met` is the signal of the whole run that one of its verbs met.

    A child engine has a conduct of its own, inside that of its parent.
    """

    def __init__(self, parent: "Conduct | None" = None) -> None:
        self.ending: LoopwrightError | None = None
        self.met: LoopwrightError | None = None
        self.usage, self.llm_calls, self.tool_calls = Usage(), 0, 0
        self._parent = parent

    @property
    def is_inner(self) -> bool:
        """Whether the engine works for another one."""
        return self._parent is not None

    def meet(self, signal: LoopwrightError) -> None:
        """A verb met what ends the whole run."""
        self.met = self.met or signal
        if self._parent is not None:
            self._parent.meet(signal)

    def count(self, usage: Usage, llm_calls: int, tool_calls: int) -> None:
        """Add what was used, here and in the engines around."""
        self.usage += usage
        self.llm_calls += llm_calls
        self.tool_calls += tool_calls
        if self._parent is not None:
            self._parent.count(usage, llm_calls, tool_calls)


class Scope:
    """One line of control flow: the root, a branch of `gather`, or a child engine.

    Effects share one counter; notes, clock readings and the like have counters of their own, so that adding one of
    those moves no effect's key. Whether a scope is out of iterations, stuck or waiting is its own affair; what ends the
    whole run is the session's.
    """

    def __init__(
        self, session: Session, path: str, conduct: Conduct, heard: int = 0
    ) -> None:
        self.session, self.path, self.conduct = session, path, conduct
        self.monitor = ProgressMonitor()
        self.nudges: list[Message] = []
        self.heard = (
            heard  # the number of the last word of a person that its models were told
        )
        self.iteration = 0  # of the innermost loop
        self.turns = 0  # of all loops
        self.halted: LoopwrightError | None = (
            None  # sticky: this scope is out of iterations, stuck, waiting, or over
        )
        self.verb = ""
        self._effects = 0
        self._sides: dict[str, int] = {}

    def next_key(self) -> str:
        """The key of the next effect: `"3"` in the root, `"2.0.3"` in branch 0 of the root's third verb."""
        key = self.upcoming()
        self._effects += 1
        return key

    def upcoming(self) -> str:
        """The key that the next effect will have."""
        return f"{self.path}.{self._effects}" if self.path else str(self._effects)

    def side_key(self, kind: str) -> str:
        """The key of the next note, clock reading, id or loop."""
        self._refuse_second(kind)
        number = self._sides.get(kind, 0)
        self._sides[kind] = number + 1
        return side_key(kind, self.path, number)

    def replaying(self) -> bool:
        """Whether the journal knows of effects that this scope has not come to yet."""
        return self.session.replay.scopes.reaches(self.path, self._effects)

    def check_gap(self, key: str) -> None:
        """Raise what keeps something new of the engine's own from happening at `key`.

        That is `ReplayDivergence`, or `Suspended` if the scope waited for a person there and the question was withdrawn:
        then it waits again, whatever was said since.
        """
        if self.session.replay.waits_for_ever(key):
            raise self.halt(Suspended(ABANDONED_BRANCH))
        self.session.signals.check_gap(key)

    @property
    def signal(self) -> LoopwrightError | None:
        """What this scope has met so far, whether the engine minded it or not."""
        return self.session.signals.fatal or self.halted or self.conduct.met

    def enter(
        self, verb: str, *, recorded: bool = False, despite_signal: bool = False
    ) -> "Scope":
        """One verb, as a context: refuses a second one in flight, and everything new after a signal.

        What ends the whole run waits until the scope has had all that it had begun (`recorded` says so of this verb):
        when the signal came, that was under way already.
        """
        self._refuse_second(verb)
        halted = self.session.signals.fatal or self.halted
        if (
            halted is None
            and not recorded
            and (not self.replaying() or self._ended_before(verb))
        ):
            halted = self.session.signals.ending
        if halted is not None and not (
            despite_signal and isinstance(halted, RunSignal)
        ):
            if halted is self.session.signals.ending:
                self.conduct.meet(halted)
            raise halted
        self.verb = verb
        return self

    def _ended_before(self, verb: str) -> bool:
        """Whether the next thing that is recorded is the best answer, which came because this verb met the signal."""
        replay, key = self.session.replay, self.upcoming()
        known = replay.effects.intent(key) or replay.effects.outcome(key)
        return (
            verb != "best_answer"
            and isinstance(known, (ModelRequested, LimitHit))
            and known.verb == "best_answer"
        )

    def _refuse_second(self, verb: str) -> None:
        if self.verb:
            raise PhaseError(
                f"{verb} was called while {self.verb} is in flight in this scope: await one verb after the other, "
                "and use run.gather for work at the same time"
            )

    def __enter__(self) -> None:
        """The verb is in flight since `enter`."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The verb is done."""
        self.verb = ""
        if isinstance(error, (Aborted, UnknownOutcome)) or (
            isinstance(error, LimitReached) and error.limit != "max_iterations"
        ):
            self.conduct.meet(error)

    def halt(self, error: LoopwrightError) -> LoopwrightError:
        """Make a signal sticky for this scope, and give it back to be raised."""
        self.halted = self.halted or error
        return error

    def iterations(self, most: int | None) -> Iterator[int]:
        """Turn numbers from 1 to `most`; raises `LimitReached` past the run's own limit."""
        key = self.side_key("limit")
        number = 0
        while most is None or number < most:
            number += 1
            self._check_iteration(key, number)
            self.iteration = number
            self.turns += 1
            yield number

    def _check_iteration(self, key: str, number: int) -> None:
        recorded = self.session.replay.effects.side(key)
        limit = self.session.services.limits.max_iterations
        if isinstance(recorded, LimitHit):
            if number <= int(recorded.detail):
                return
        elif limit is None or number <= limit or self.replaying():
            return  # a recorded turn is not refused because the limit was lowered since
        else:
            self.session.writer.record(key, LimitHit("max_iterations", str(limit)))
        raise self.halt(
            LimitReached(
                "max_iterations",
                f"the loop ran its {number - 1} iteration{'s' * (number != 2)}",
            )
        )


def fingerprint(what: str, about: bytes) -> str:
    """Return the SHA-256 (hex) over an effect's verb with its options, and its subject."""
    return hashlib.sha256(f"{len(what)}:{what}".encode() + about).hexdigest()
