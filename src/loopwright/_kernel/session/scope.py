"""Track where a strategy is in its program: keys, one verb in flight, signals of its own."""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, TypeAlias, TypeGuard

from ...errors import (
    Aborted,
    AgentReplaced,
    HookFailed,
    LimitReached,
    LoopwrightError,
    PhaseError,
    RunSignal,
    Suspended,
    UnknownOutcome,
)
from ...events.agents import HandedOff
from ...events.effect_key import is_inside, side_key
from ...events.effects import LimitHit, ModelRequested
from ...hooks.base import PlannedHook
from ...limits import Share
from ...messages import Completion, Json, Message, Usage
from ...providers.base import OutputSchema
from .instructions import InstructedConversations
from .progress_monitor import ProgressMonitor
from .session import Session
from .signals import ABANDONED_BRANCH

BEST_ANSWER = "best_answer"
SHARE = "share"
"""What `LimitHit.verb` says of a loop that ended since a share of the budget was used up."""
CANCELLED_VERB = (
    "{} was cancelled by the engine, which then continued: which of the two was faster is not recorded, so the run "
    "could not be resumed. Bound time with run.timeout, Limits or @tool(timeout=...) in place of asyncio.timeout and "
    "wait_for, and use run.gather or run.as_completed in place of TaskGroup"
)
_BRANCH = contextvars.ContextVar("branch", default="")
"""The path of the branch beside its engine in which code runs, also in tasks that it began."""


Hooks: TypeAlias = Mapping[str, tuple[PlannedHook, ...]]


class EngineUsage:
    """What all branches of one engine share: what its calls used, and what will end it.

    A child engine has a usage of its own, inside that of its parent.
    """

    def __init__(
        self,
        parent: "EngineUsage | None" = None,
        engine: object = None,
        path: str = "",
        *,
        replaces: bool = False,
    ) -> None:
        self.path = path
        """The path of the scope in which the engine began."""
        self._hooks: Hooks | None = None
        self.usage, self.llm_calls, self.tool_calls = Usage(), 0, 0
        self.instructed = InstructedConversations()
        """What stands in front of each request."""
        self.ending: LoopwrightError | None = None
        """Why the engine asked for a best answer itself."""
        self.signal: LoopwrightError | None = None
        """The signal of the whole run that one of its verbs met."""
        self._parent = parent
        self.engines: tuple[object, ...] = (engine,)
        """The engine, behind those that it works for."""
        around = parent
        if parent is not None and replaces:  # another agent did the work before
            around, self.engines = parent.around, (*parent.engines[:-1], engine)
        elif parent is not None:
            self.engines = *parent.engines, engine
        self.around: EngineUsage | None = around
        """The usage of the engine that it works for."""
        self.share: Share | None = None
        """What it may use of the run's budget, if that is less than all that is left."""

    def hooks(self, find: Callable[[Sequence[object]], Hooks]) -> Hooks:
        """Return the hooks of the engine and of those around it, which are found once."""
        if self._hooks is None:
            self._hooks = find(self.engines)
        return self._hooks

    @property
    def agent_path(self) -> str:
        """Return the path of the outermost engine around that is of the same agent."""
        outermost, around = self, self.around
        name = _agent_of(self.engines[-1])
        while around is not None and name and _agent_of(around.engines[-1]) == name:
            outermost, around = around, around.around
        return outermost.path

    @property
    def used(self) -> Share:
        """What its model calls have used, and those of the engines that work for it."""
        return Share(self.llm_calls, self.usage.total_tokens)

    @property
    def is_share_used(self) -> bool:
        """Whether nothing is left of its share, or of one around it."""
        if self.share is not None and self.share.is_used(self.used):
            return True
        return self.around is not None and self.around.is_share_used

    @property
    def is_child(self) -> bool:
        """Whether the engine works for another one."""
        return self.around is not None

    def observe_signal(self, signal: LoopwrightError) -> None:
        """Note that a verb met a signal that ends the whole run."""
        self.signal = self.signal or signal
        if self._parent is not None:
            self._parent.observe_signal(signal)

    def add_model_call(self, usage: Usage) -> None:
        """Count a model call, here and in the engines around."""
        self.usage += usage
        self.llm_calls += 1
        if self._parent is not None:
            self._parent.add_model_call(usage)

    def add_reply(self, reply: Completion) -> None:
        """Count a model call, and the calls of tools that the provider ran for it."""
        self.add_model_call(reply.usage)
        if reply.provider_calls:
            self.add_tool_calls(len(reply.provider_calls))

    def add_tool_calls(self, number: int) -> None:
        """Count tool calls, here and in the engines around."""
        self.tool_calls += number
        if self._parent is not None:
            self._parent.add_tool_calls(number)


def _agent_of(engine: Any) -> str:
    return str(engine.runtime.agent_name)


class Scope(contextlib.AbstractContextManager["Scope"]):
    """One strand of the program: the root, a branch of `gather`, or a child engine.

    Effects share one counter. Notes, clock readings and the like have counters of their
    own, so that adding one of those moves no effect's key. What ends this scope alone
    (no iterations left, stuck, waiting) is kept here; what ends the run, in its session.
    """

    def __init__(
        self, session: Session, path: str, usage: EngineUsage, delivered: int = 0
    ) -> None:
        self.session, self.path, self.engine_usage = session, path, usage
        self.monitor = ProgressMonitor(session.progress)
        self.nudges: list[Message] = []
        self.watched: dict[str, tuple[ProgressMonitor, list[Message]]] = {}
        """What the monitor of the last branch of a name has seen, and the nudges that are due."""
        self.delivered = delivered
        """The number of the last command whose text its models were given."""
        self.received: set[int] = set()
        """The numbers of the commands that the engine was given as data."""
        self.iteration = 0  # of the innermost loop
        self.turns = 0  # of all loops
        self.halted: LoopwrightError | None = None
        """Sticky: this scope is out of iterations, stuck, waiting, or over."""
        self.verb = ""
        self.is_root = not path
        """Whether its engine works for the caller: the run's own, or the agent that it was handed off to."""
        self.max_iterations = session.services.limits.max_iterations
        self.answer_schema: OutputSchema | None = None
        """What the answer of a child must fit."""
        self.hook_states: dict[str, dict[str, Json]] = {}
        """What hooks keep in this scope, by their names."""
        self.hook_questions: dict[str, int] = {}
        self.patches: dict[str, bool] = {}
        """Which patches this scope runs, with what the scope around it had decided at its birth."""
        self._parent: Scope | None = None
        self._cancelled: tuple[str, asyncio.Task[Any] | None] | None = None
        """The last verb that was cancelled, and the task that was in it."""
        self._effects = 0
        self._sides: dict[str, int] = {}

    def next_key(self) -> str:
        """Return the key of the next effect, such as `"2.0.3"` in branch 0 of effect 2."""
        key = self.upcoming()
        self._effects += 1
        if not self.session.replay_end.is_reached:
            self.session.replay_end.meet(key)
        return key

    def upcoming(self) -> str:
        """Return the key that the next effect will have."""
        return f"{self.path}.{self._effects}" if self.path else str(self._effects)

    def side_key(self, kind: str) -> str:
        """Return the key of the next note, clock reading, id or loop."""
        self.check_branch(kind)
        if self.verb:
            self._refuse_second(kind)
        number = self._sides.get(kind, 0)
        self._sides[kind] = number + 1
        return side_key(kind, self.path, number)

    def is_replaying(self) -> bool:
        """Whether the journal holds effects that this scope has not reached yet."""
        return self.session.replay.scopes.reaches(self.path, self._effects)

    def has_gone_on(self) -> bool:
        """Whether the journal holds what this scope, or one around it, did from here on, or its end.

        What the engine did beside a branch, or after it was cut off, says nothing of it.
        """
        parent, scopes = self._parent, self.session.replay.scopes
        if self.is_replaying() or scopes.has_ended(self.path):
            return True
        if parent is None or scopes.branches.is_detached(self.path):
            return False
        return parent.has_gone_on()

    def inherit(self, parent: "Scope") -> None:
        """Begin in the place of another scope, with what that decided about patches."""
        self._parent, self.patches = parent, dict(parent.patches)
        self.max_iterations = parent.max_iterations
        self.received = set(parent.received)

    def check_gap(self, key: str, found: str) -> None:
        """Raise what keeps a new effect of the engine's own from happening at `key`.

        That is `ReplayDivergence`, or `Suspended` if the scope waited for a person there
        and the question was withdrawn: then it waits again, whatever was sent since.
        """
        scopes = self.session.replay.scopes
        self.session.signals.cuts.check(key)
        if self.session.replay.waits_for_ever(key):
            raise self.halt(Suspended(ABANDONED_BRANCH))
        if scopes.is_abandoned(key) or scopes.has_ended(self.path):
            self.session.signals.check_limit(key)
        self.session.signals.check_gap(key, found)

    @property
    def signal(self) -> LoopwrightError | None:
        """The signal that this scope has met so far, also if the engine swallowed it."""
        signals = self.session.signals
        replaced = signals.handoffs.signal(self.path)
        own = replaced or self.halted or self.engine_usage.signal
        return signals.fatal or own

    def enter(
        self, verb: str, *, recorded: bool = False, despite_signal: bool = False
    ) -> "Scope":
        """Begin a verb, as a context; refuse a second one in flight, and any after a signal.

        A signal that ends the whole run waits until the scope has replayed all that it
        had begun when the signal came. `recorded` says so of this verb.
        """
        self.check_branch(verb)
        if self.verb:
            self._refuse_second(verb)
        if not recorded and self.session.signals.cuts.are_any:
            self.check_cut()
        signal = self.session.signals.fatal or self.halted
        ending = self.session.signals.ending
        if self.session.signals.handoffs or self.session.replay.effects.handoffs:
            ending = self._find_replacement() or ending
        if signal is None and ending is not None and not recorded:
            signal = ending if self._is_past_replay(verb) else None
        if signal is None or (despite_signal and isinstance(signal, RunSignal)):
            if self._cancelled is not None:
                self.check_cancelled()
            self.verb = verb
            return self
        if signal is ending and not isinstance(signal, AgentReplaced):
            self.engine_usage.observe_signal(signal)
        raise signal

    def _find_replacement(self) -> AgentReplaced | None:
        """Return the signal that another agent works on, also where the journal alone shows that yet."""
        recorded = self.session.replay.effects.outcome(self.upcoming())
        if isinstance(recorded, HandedOff):
            return AgentReplaced(f"the run was handed off to {recorded.agent}")
        return self.session.signals.handoffs.signal(self.path)

    def _is_past_replay(self, verb: str) -> bool:
        """Whether a verb is new, or was recorded as the one that met the signal.

        In that case a best answer is the next recorded effect.
        """
        is_handed_off = isinstance(
            self.session.replay.effects.outcome(self.upcoming()), HandedOff
        )
        if is_handed_off or not self.is_replaying():
            return True
        return verb != BEST_ANSWER and self.has_recorded(BEST_ANSWER)

    def has_recorded(self, verb: str) -> bool:
        """Whether the next effect is recorded, as a model call of that verb."""
        effects, key = self.session.replay.effects, self.upcoming()
        known = effects.intent(key) or effects.outcome(key)
        return isinstance(known, (ModelRequested, LimitHit)) and known.verb == verb

    def check_cut(self) -> None:
        """Raise `CancelledError` where a branch that was cut off has replayed all that it had done."""
        cuts = self.session.signals.cuts
        if cuts.is_cut(self.path) and not self.has_gone_on():
            cuts.check(self.path)

    def enter_branch(self) -> None:
        """Note that the task that runs works in this branch, beside the engine."""
        _BRANCH.set(self.path)

    def check_branch(self, verb: str) -> None:
        """Raise `PhaseError` if a branch asks for something in the scope of its engine, in an order by the clock."""
        branch = _BRANCH.get()
        if branch and not is_inside(self.path, branch):
            raise PhaseError(
                f"{verb} was called in a branch of as_completed, of the run that the branch works beside: "
                "use the run that the work is given"
            )

    def _refuse_second(self, verb: str) -> NoReturn:
        raise PhaseError(
            f"{verb} was called while {self.verb} is in flight in this scope: await one verb after the other, "
            "and use run.gather for work at the same time"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the verb."""
        if kind is asyncio.CancelledError:
            self._cancelled = self.verb, asyncio.current_task()
        self.verb = ""
        if isinstance(error, Suspended):
            self.halt(error)
        if error is not None and _ends_the_run(error):
            self.engine_usage.observe_signal(error)

    def check_cancelled(self) -> None:
        """Raise `PhaseError`, which ends the run, if the engine cancelled one of its verbs and continued."""
        if self._cancelled is None or self.session.signals.cuts.is_cut(self.path):
            return
        verb, task = self._cancelled
        if self._is_stopping(task):
            return
        error = self.session.signals.stick(PhaseError(CANCELLED_VERB.format(verb)))
        self.engine_usage.observe_signal(error)
        raise error

    def _is_stopping(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task was cancelled from outside of the engine: by the host, or by an abort.

        What asyncio.timeout cancelled counts as cancelled no longer when the block has ended.
        """
        if self.session.signals.aborting or task is None:
            return True
        return task is asyncio.current_task() and task.cancelling() > 0

    def halt(self, error: LoopwrightError) -> LoopwrightError:
        """Make a signal sticky for this scope; return it to be raised."""
        self.halted = self.halted or error
        return error

    def iterations(self, limit: int | None) -> Iterator[int]:
        """Yield turn numbers from 1 to `limit`, fewer if a share is used up; raise `LimitReached` past the run's limit."""
        key = self.side_key("limit")
        number = 0
        while limit is None or number < limit:
            if number and self._is_share_used(key, number):
                return
            number += 1
            self._check_iteration(key, number)
            self.iteration = number
            self.turns += 1
            yield number

    def _is_share_used(self, key: str, turns: int) -> bool:
        """Whether the loop ends after so many turns, since its engine has used up its share; that is recorded."""
        recorded = self.session.replay.effects.side(key)
        if isinstance(recorded, LimitHit):
            return recorded.verb == SHARE and turns >= int(recorded.detail)
        if not self.engine_usage.is_share_used or self.is_replaying():
            return False
        hit = LimitHit("max_iterations", str(turns), SHARE)
        self.session.writer.record_after_replay(key, hit)
        return True

    def _check_iteration(self, key: str, number: int) -> None:
        recorded = self.session.replay.effects.side(key)
        limit = self.max_iterations
        if isinstance(recorded, LimitHit):
            if number <= int(recorded.detail):
                return
        elif limit is None or number <= limit or self.is_replaying():
            return  # a recorded turn is not refused because the limit was lowered since
        else:
            self.session.writer.record_after_replay(
                key, LimitHit("max_iterations", str(limit))
            )
        turns = "iteration" if number == 2 else "iterations"
        raise self.halt(
            LimitReached("max_iterations", f"the loop ran its {number - 1} {turns}")
        )


def _ends_the_run(error: BaseException) -> TypeGuard[LoopwrightError]:
    if isinstance(error, LimitReached):
        return error.limit != "max_iterations"
    return isinstance(error, (Aborted, HookFailed, UnknownOutcome))
