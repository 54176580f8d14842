"""The one door: everything a strategy does passes a verb of `Run`, and every verb leaves entries in the journal."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar, overload

from pydantic import BaseModel, TypeAdapter

from .asking import ask_model, ask_text
from .errors import (
    ConfigError,
    EngineError,
    Fenced,
    LimitReached,
    LoopwrightError,
    ProviderError,
    ReplayDivergence,
    RunSignal,
    Stuck,
    Suspended,
    Unreadable,
    text_of,
)
from .events import ChildFinished, ChildStarted, ErrorRecord
from .inference import Question
from .messages import Conversation, Effect, Json, ToolCall
from .own_effects import do_effect, note, now, recorded_effect
from .parts import Parts
from .phases import Phases, plain
from .policy import PolicyGate
from .provider import Provider, Sampling
from .result import Outcome, Result, outcome_of
from .scope import Conduct, Scope
from .session import Session, fingerprint

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
BEST_ANSWER = "There are no more steps left. Do not call any tool. Give your best final answer now, from what you know."


class Strategy(Protocol):
    """What a run needs of an engine."""

    name: ClassVar[str]

    @property
    def runtime(self) -> Parts:
        """Its parts."""
        ...

    def recorded_options(self) -> tuple[dict[str, Json], tuple[str, ...]]:
        """Its options as JSON, and the names of those that cannot be written down."""
        ...

    async def solve(self, run: "Run") -> str:
        """The strategy."""
        ...


class Run(Phases):
    """The door that an engine is given.

    Every method that touches the world is an effect: recorded, and answered from the journal when the run is resumed.
    One verb may be in flight at a time; for more, see `gather`.
    """

    def __init__(
        self,
        session: Session,
        engine: Strategy,
        conversation: Conversation,
        *,
        path: str = "",
        gates: tuple[PolicyGate, ...] = (),
        conduct: Conduct | None = None,
    ) -> None:
        scope = Scope(session, path, conduct or Conduct())
        super().__init__(scope, engine.runtime, engine.name, gates or (engine.runtime.gate,), conversation)
        self._engine = engine
        self.ending: RunSignal | None = None  # set when the engine itself asked for a best answer

    # --- loops and endings ---

    def iterations(self, most: int | None = None) -> Iterator[int]:
        """Turn numbers from 1, at most `most`; raises `LimitReached` past the run's `max_iterations`."""
        if most is not None and most < 1:
            raise ConfigError(f"iterations must be at least 1, got {most}")
        return self._scope.iterations(most)

    async def best_answer(self, conversation: Conversation) -> str:
        """Ask once, without tools, for the best answer so far; the run's status becomes `limit`.

        Raises `LimitReached` where there is none: `Limits(best_effort=False)`, no call left, or the call failed.
        """
        ending = self.ending = self.ending or LimitReached("max_iterations", "the engine used up its iterations")
        if not self.may_ask_once_more(ending):
            raise ending
        try:
            return await self.last_words(conversation)
        except (ProviderError, Unreadable) as failure:
            raise ending from failure

    async def last_words(self, conversation: Conversation | None = None) -> str:
        """The call behind `best_answer`: the root's first one is let through although the run is at a limit."""
        with self._scope.enter("best_answer", despite_signal=self.ending is None):
            budget = self._session.budget
            reserved = not self._scope.path and not budget.reserved_used
            budget.reserved_used = budget.reserved_used or reserved
            asked = (conversation or self.latest).user(BEST_ANSWER, origin="runtime")
            reply = await self._settle(Question("best_answer", asked, reserved=reserved))
            completion = reply.completion
            if completion.answer is None:
                raise Unreadable(completion.problem or "the model called a tool instead of giving its best answer")
            return completion.answer

    # --- other questions, other engines, other work ---

    @overload
    async def ask(
        self,
        prompt: str | Conversation,
        *,
        into: type[str] = str,
        sampling: Sampling = ...,
        provider: str | None = None,
    ) -> str: ...
    @overload
    async def ask(
        self, prompt: str | Conversation, *, into: type[M], sampling: Sampling = ..., provider: str | None = None
    ) -> M: ...
    async def ask(
        self,
        prompt: str | Conversation,
        *,
        into: type[Any] = str,
        sampling: Sampling = Sampling(),
        provider: str | None = None,
    ) -> Any:
        """A model call outside the conversation: a planner, a judge, a critic.

        With a pydantic model as `into` the reply is read strictly and repaired at most twice; then `AskFailed`.
        `provider` names one of `Runtime(providers=...)`.
        """
        conversation = Conversation.of(prompt) if isinstance(prompt, str) else prompt
        chosen = self._provider(provider)
        with self._scope.enter("ask"):
            if into is str:
                return await ask_text(self._settle, conversation, sampling, chosen)
            return await ask_model(self._settle, conversation, into, sampling, chosen)

    def _provider(self, name: str | None) -> Provider:
        if name is None:
            return self._parts.provider
        if name not in self._parts.providers:
            known = ", ".join(self._parts.providers) or "none"
            raise ConfigError(f"provider {name!r}: not among Runtime(providers=...), which has {known}")
        return self._parts.providers[name]

    async def gather(self, *works: Callable[["Run"], Awaitable[T]]) -> list[T]:
        """Do several works at once, each with a branch `Run` of its own; their results, in order.

        Waits for all; then the exception of the lowest index is raised. A branch that waits for a decision does not
        hold up its siblings. Branches share nothing but what they return.
        """
        with self._scope.enter("gather"):
            key = self._scope.next_key()
            branches = [self._branch(f"{key}.{index}") for index in range(len(works))]
            settled = await asyncio.gather(
                *(work(branch) for work, branch in zip(works, branches, strict=True)), return_exceptions=True
            )
            errors = [outcome for outcome in settled if isinstance(outcome, BaseException)]
            if errors:
                first = next((e for e in errors if not isinstance(e, Suspended)), errors[0])
                if isinstance(first, Suspended):
                    self._scope.parked = first
                raise first
            return [outcome for outcome in settled if not isinstance(outcome, BaseException)]

    def _branch(self, path: str) -> "Run":
        conduct = self._scope.conduct
        return Run(self._session, self._engine, self.latest, path=path, gates=self._gates, conduct=conduct)

    async def delegate(self, engine: Strategy, task: str | Conversation) -> Result:
        """Run another engine as a child on what is left of the budget; both gates must allow it and what it does."""
        with self._scope.enter("delegate"):
            key = self._scope.next_key()
            conversation = Conversation.of(task) if isinstance(task, str) else task
            await self._permitted("delegate", {"engine": engine.name, "task": conversation.task}, "write", key)
            self._start_child(engine, conversation, key)
            gates = (engine.runtime.gate, *(g for g in self._gates if g is not engine.runtime.gate))
            child = Run(self._session, engine, conversation, path=key, gates=gates)
            outcome = await conduct(engine, child)
            if isinstance(outcome.error, Suspended):
                self._scope.parked = outcome.error
                raise outcome.error
            if self._session.replay.outcome(key) is not None:
                self._session.replay.agree(key)
            else:
                error = None if outcome.error is None else ErrorRecord.of(outcome.error)
                done = ChildFinished(
                    engine.name, outcome.status, outcome.stop_reason, outcome.answer, error, child.turns
                )
                self._session.record(key, done)
            return self._result(outcome, child)

    def _start_child(self, engine: Strategy, conversation: Conversation, key: str) -> None:
        found = fingerprint(f"delegate {engine.name}", conversation.digest)
        replay = self._session.replay
        started = replay.intent(key)
        if isinstance(started, ChildStarted):
            if started.fingerprint != found:
                raise self._session.diverged(key, f"{started.engine} {started.fingerprint}", f"{engine.name} {found}")
            return
        self._session.check_gap(key)
        self._session.record(key, ChildStarted(engine.name, engine.recorded_options()[0], found))

    async def _permitted(self, name: str, arguments: dict[str, Json], effect: Effect, key: str) -> None:
        call = ToolCall(name, arguments, f"{name}_{plain(key)}")
        question = await self._clearance.decide_own(call, effect, self._state(f"{key}#0"))
        if question is not None:
            raise self._park([question])

    @property
    def signal(self) -> LoopwrightError | None:
        """What must end or pause this scope, whether the engine minded it or not."""
        return self._scope.signal

    def may_ask_once_more(self, error: LoopwrightError | None) -> bool:
        """Whether an ending allows the reserved call for a best-effort answer."""
        limits = self._parts.limits
        if not limits.best_effort or (limits.max_llm_calls is not None and limits.max_llm_calls < 2):
            return False
        return isinstance(error, Stuck) or (
            isinstance(error, LimitReached) and error.limit not in ("timeout", "max_cost")
        )

    @property
    def turns(self) -> int:
        """Iterations of this scope's own loops."""
        return self._scope.turns

    def _result(self, outcome: Outcome, child: "Run") -> Result:
        budget = self._session.budget
        return Result(
            outcome.answer,
            outcome.status,
            outcome.stop_reason,
            budget.usage,
            child.turns,
            self.run_id,
            outcome.error,
            conversation=child.latest,
            llm_calls=budget.llm_calls,
            tool_calls=budget.tool_calls,
        )

    # --- facts, and effects of the engine's own ---

    def note(self, fact: object) -> None:
        """Record a fact of the strategy: a pydantic model, a dataclass or anything that is JSON."""
        note(self._scope, fact)

    def now(self) -> datetime:
        """Wall time (UTC); the same again when the run is resumed."""
        return now(self._scope)

    def new_id(self) -> str:
        """A UUID; the same again when the run is resumed."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.run_id}|{self._scope.side_key('id')}"))

    async def effect(self, name: str, function: Callable[[], Awaitable[T]], *, into: type[T]) -> T:
        """Make something of the engine's own an effect: gated like a read, recorded, and not done again on resume."""
        with self._scope.enter("effect"):
            key = self._scope.next_key()
            adapter: TypeAdapter[T] = TypeAdapter(into)
            recorded = recorded_effect(self._scope, key, name, adapter)
            if recorded is not None:
                return recorded[0]
            await self._permitted(name, {}, "read", key)
            return await do_effect(self._scope, key, name, function, adapter)


async def conduct(engine: Strategy, run: Run, *, alone: bool = False) -> Outcome:
    """Let an engine solve, and say how it ended.

    Raises only what may not be swallowed: cancellation, `Fenced`, `ReplayDivergence`, and `ConfigError` before anything
    was done. With `alone` (the root engine) a limit or a stuck loop is followed by the reserved best-effort call.
    """
    answer: str | None = None
    error: LoopwrightError | None = None
    try:
        answer = await engine.solve(run)
        if not isinstance(answer, str):  # pyright: ignore[reportUnnecessaryIsInstance] - strangers' engines
            error, answer = EngineError(f"{engine.name}.solve returned {type(answer).__name__}, not a text"), None
    except (Fenced, ReplayDivergence):
        raise
    except LoopwrightError as raised:
        error = raised
    except Exception as raised:  # noqa: BLE001 - an engine is foreign code: a crash in it is the run's outcome
        error = EngineError(f"{engine.name} raised {type(raised).__name__}: {text_of(raised)}")
        error.__cause__ = raised
    error = run.signal or error or run.ending
    if isinstance(error, (Fenced, ReplayDivergence)):
        raise error
    if answer is None and alone and run.ending is None and run.may_ask_once_more(error):
        try:
            answer = await run.last_words()
        except (ProviderError, Unreadable, LimitReached) as failure:
            (error or failure).__cause__ = failure
    return Outcome("completed", "answered", answer) if error is None else outcome_of(error, answer)
