"""Where a strategy is in its program: a path, counters that make keys, one verb in flight, sticky signals."""

from collections.abc import Iterator
from types import TracebackType

from .errors import LimitReached, LoopwrightError, PhaseError
from .events import LimitHit
from .messages import Message
from .progress import ProgressMonitor
from .session import Session


class Conduct:
    """What the branches of one engine share: its signal. A child engine has one of its own."""

    def __init__(self) -> None:
        self.signal: LoopwrightError | None = None


class Scope:
    """One line of control flow: the root, a branch of `gather`, or a child engine.

    Effects share one counter; notes, clock readings and the like have counters of their own, so that adding one of
    those moves no effect's key.
    """

    def __init__(self, session: Session, path: str, conduct: Conduct) -> None:
        self.session, self.path, self.conduct = session, path, conduct
        self.monitor = ProgressMonitor()
        self.nudges: list[Message] = []
        self.iteration = 0  # of the innermost loop
        self.turns = 0  # of all loops
        self.parked: LoopwrightError | None = None  # this scope waits for a decision
        self.verb = ""
        self._effects = 0
        self._sides: dict[str, int] = {}

    def next_key(self) -> str:
        """The key of the next effect: `"3"` in the root, `"2.0.3"` in branch 0 of the root's third verb."""
        number = self._effects
        self._effects += 1
        return f"{self.path}.{number}" if self.path else str(number)

    def side_key(self, kind: str) -> str:
        """The key of the next note, clock reading, id or loop."""
        number = self._sides.get(kind, 0)
        self._sides[kind] = number + 1
        return f"{kind}:{self.path}.{number}"

    def replaying(self) -> bool:
        """Whether the journal still has outcomes for effects of this scope."""
        return self.session.replay.holds_more(self.path, self._effects)

    @property
    def signal(self) -> LoopwrightError | None:
        """What every verb of this scope meets: the scope's own waiting, its engine's signal, the run's."""
        return self.parked or self.conduct.signal or self.session.signal

    def enter(self, verb: str, *, despite_signal: bool = False) -> "Scope":
        """One verb, as a context: refuses a second one in flight, and everything after a signal."""
        if self.verb:
            raise PhaseError(
                f"{verb} was called while {self.verb} is in flight in this scope: await one verb after the other, "
                "and use run.gather for work at the same time"
            )
        if not despite_signal and self.signal is not None:
            raise self.signal
        self.verb = verb
        return self

    def __enter__(self) -> None:
        """The verb is in flight since `enter`."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The verb is done."""
        self.verb = ""

    def stop(self, error: LoopwrightError) -> LoopwrightError:
        """Make a signal sticky for this engine, and give it back to be raised."""
        self.conduct.signal = self.conduct.signal or error
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
        recorded = self.session.replay.side(key)
        limit = self.session.parts.limits.max_iterations
        if isinstance(recorded, LimitHit):
            if number <= int(recorded.detail):
                return
        elif limit is None or number <= limit or self.replaying():
            return  # a recorded turn is not refused because the limit was lowered since
        else:
            self.session.record(key, LimitHit("max_iterations", str(limit)))
        raise self.stop(LimitReached("max_iterations", f"the loop ran its {number - 1} iterations"))
