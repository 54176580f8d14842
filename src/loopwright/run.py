"""The one door: everything a strategy does passes a verb of `Run`, and every verb leaves entries in the journal."""
# pyright: reportPrivateUsage=false
# `drive` and `gather` end runs from outside, by what engines shall not see.

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from itertools import repeat
from typing import Any, Protocol, TypeVar, cast, overload

from pydantic import BaseModel, TypeAdapter

from ._internal.log import logger
from ._kernel.phases.gate import Guard
from ._kernel.phases.human import Attended
from ._kernel.phases.reason import Question
from ._kernel.phases.saga import registries_of
from ._kernel.phases.side_effects import do_effect, note, now, recorded_effect
from ._kernel.phases.structured_output import ask_model, ask_text
from ._kernel.session.scope import Conduct, Scope, fingerprint
from ._kernel.session.services import Services
from ._kernel.session.session import Session
from .errors import (
    ConfigError,
    EngineError,
    Fenced,
    JournalError,
    LimitReached,
    LoopwrightError,
    PhaseError,
    ProviderError,
    ReplayDivergence,
    Stuck,
    Suspended,
    Unreadable,
    format_error,
)
from .events.effect_key import EffectKey, call_key
from .events.effects import ChildFinished, ChildStarted, EffectFinished
from .events.run import ErrorRecord
from .gates.base import Denial, Permit
from .messages import Conversation, Json, Observation, arguments_hash
from .providers.base import Sampling as Sampling
from .result import Result, RunOutcome, build_outcome
from .security.redaction.errors import format_traceback, redact_error
from .security.redaction.messages import redact_conversation

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
BEST_ANSWER = "There are no more steps left. Do not call any tool. Give your best final answer now, from what you know."


class Strategy(Protocol):
    """What a run needs of an engine."""

    @property
    def runtime(self) -> Services:
        """Its services."""
        ...

    def recorded_options(self) -> tuple[dict[str, Json], tuple[str, ...]]:
        """Its options as JSON, and the names of those that cannot be written down."""
        ...

    async def solve(self, run: "Run") -> str:
        """The strategy."""
        ...


def name_of(engine: Strategy) -> str:
    """An engine's name. `Strategy` does not have it: then every engine would have to write `name: ClassVar[str]`."""
    return str(getattr(engine, "name", type(engine).__name__))


class Run(Attended):
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
        guards: tuple[Guard, ...] = (),
        conduct: Conduct | None = None,
        heard: int = 0,
    ) -> None:
        scope = Scope(session, path, conduct or Conduct(), heard)
        super().__init__(
            scope,
            engine.runtime,
            name_of(engine),
            guards or (Guard.of(engine.runtime),),
            conversation,
        )
        self._engine = engine
        self.offered: str | None = None

    # --- loops and endings ---

    def iterations(self, most: int | None = None) -> Iterator[int]:
        """Turn numbers from 1, at most `most`; raises `LimitReached` past the run's `max_iterations`."""
        if most is not None and most < 1:
            raise ConfigError(f"iterations must be at least 1, got {most}")
        return self._scope.iterations(most)

    def offer(self, answer: str) -> None:
        """Name the best answer so far: it is the run's if a limit, a stuck loop, a failure or an abort ends it first.

        Then none is asked for. It is for the run that `solve` was given, not for branches of it.
        """
        self.offered = self._checked(answer)

    async def best_answer(self, conversation: Conversation) -> str:
        """Ask once, without tools, for the best answer so far; the status becomes `limit` (or `stuck`).

        Raises `LimitReached` where there is none: `Limits(best_effort=False)`, no call left, or the call failed.
        """
        conduct = self._scope.conduct
        used_up = LimitReached("max_iterations", "the engine used up its iterations")
        ending = conduct.ending = self._scope.signal or conduct.ending or used_up
        if not self._may_ask_once_more(ending):
            raise ending
        try:
            return await self._last_words(conversation)
        except (ProviderError, Unreadable) as failure:
            raise ending from failure

    async def _last_words(self, conversation: Conversation) -> str:
        """The call behind `best_answer`: the root's first one is let through although the run is at a limit."""
        with self._scope.enter("best_answer", despite_signal=True):
            budget = self._session.budget
            reserved = not self._scope.path and not budget.reserved_used
            budget.reserved_used = budget.reserved_used or reserved
            asked = conversation.user(BEST_ANSWER, origin="runtime")
            reply = await self._settle(
                Question("best_answer", asked, reserved=reserved)
            )
            completion = reply.completion
            if completion.answer is None or completion.is_cut:
                raise Unreadable(
                    completion.problem
                    or "the best answer was cut, or the model called a tool instead"
                )
            return completion.answer

    def _may_ask_once_more(self, error: LoopwrightError | None) -> bool:
        """Whether an ending allows the reserved call for a best-effort answer."""
        limits = self._services.limits
        if not limits.best_effort or (
            limits.max_llm_calls is not None and limits.max_llm_calls < 2
        ):
            return False
        return isinstance(error, Stuck) or (
            isinstance(error, LimitReached)
            and error.limit not in ("timeout", "max_cost")
        )

    # --- other questions, other engines, other work ---

    @overload
    async def ask(
        self,
        prompt: str | Conversation,
        *,
        into: type[str] = str,
        sampling: Sampling = ...,
        provider: str | None = None,
        purpose: str = ...,
    ) -> str: ...
    @overload
    async def ask(
        self,
        prompt: str | Conversation,
        *,
        into: type[M],
        sampling: Sampling = ...,
        provider: str | None = None,
        purpose: str = ...,
    ) -> M: ...
    async def ask(
        self,
        prompt: str | Conversation,
        *,
        into: type[Any] = str,
        sampling: Sampling = Sampling(),
        provider: str | None = None,
        purpose: str = "",
    ) -> Any:
        """A model call outside the conversation: a planner, a judge, a critic.

        With a pydantic model as `into` the reply is read strictly and repaired at most twice; then `AskFailed`.
        `provider` names one of `Runtime(providers=...)`. `purpose` says in a word what the call is for ("plan",
        "judge"), for people and traces.
        """
        conversation = Conversation.of(prompt) if isinstance(prompt, str) else prompt
        chosen = (
            self._services.provider
            if provider is None
            else self._services.named_provider(provider)
        )
        with self._scope.enter("ask"):
            if into is str:
                return await ask_text(
                    self._settle, conversation, sampling, chosen, purpose
                )
            return await ask_model(
                self._settle, conversation, into, sampling, chosen, purpose
            )

    async def gather(
        self,
        *works: Callable[["Run"], Awaitable[T]],
        max_concurrency: int | None = None,
    ) -> list[T]:
        """Do several works at once, each with a branch `Run` of its own; their results, in order.

        `max_concurrency` is how many may be under way at a time, started in order; `None` is all of them.

        Waits for all; then the exception of the lowest index is raised. A branch that waits for a decision does not
        hold up its siblings; if one of them raises, nobody is asked for that decision any more. Branches share nothing
        but what they return.
        """
        if max_concurrency is not None and max_concurrency < 1:
            raise ConfigError(
                f"max_concurrency must be at least 1, got {max_concurrency}"
            )
        with self._scope.enter("gather"):
            key = self._scope.next_key()
            if self._session.replay.effects.outcome(
                key
            ) or self._session.replay.effects.intent(key):
                raise self._session.signals.diverge(key, "an effect", "gather")
            branches = [self._branch(f"{key}.{index}") for index in range(len(works))]
            slots = asyncio.Semaphore(max_concurrency or max(len(works), 1))
            settled = await asyncio.gather(
                *map(_in_branch, works, branches, repeat(slots)), return_exceptions=True
            )
            parked = [
                branch
                for branch in branches
                if isinstance(branch._scope.halted, Suspended)
            ]
            for branch in branches:
                branch._scope.halted = PhaseError(
                    "this branch is over: use the run that gathered it"
                )
            errors = [
                outcome for outcome in settled if isinstance(outcome, BaseException)
            ]
            first = next(
                (error for error in errors if not isinstance(error, Suspended)), None
            )
            if first is not None:
                self._session.withdraw_questions(key)
                raise first
            if parked and self._scope.replaying():
                raise self._session.signals.diverge(
                    key, "recorded effects after it", "a gather that waits"
                )
            if parked:  # also if the branch swallowed it
                raise self._scope.halt(
                    Suspended(f"waiting for decisions in {len(parked)} branches")
                )
            return [
                outcome for outcome in settled if not isinstance(outcome, BaseException)
            ]

    def _branch(self, path: str) -> "Run":
        conduct, heard = self._scope.conduct, self._scope.heard
        return Run(
            self._session,
            self._engine,
            self.latest,
            path=path,
            guards=self._guards,
            conduct=conduct,
            heard=heard,
        )

    async def delegate(self, engine: Strategy, task: str | Conversation) -> Result:
        """Run another engine as a child on what is left of the budget; both gates must allow it and what it does."""
        with self._scope.enter("delegate"):
            key = self._scope.next_key()
            self._session.secrets.join(engine.runtime.redactor)
            conversation = Conversation.of(task) if isinstance(task, str) else task
            conversation = redact_conversation(
                self._services.redactor.merge(engine.runtime.redactor), conversation
            )
            await self._start_child(engine, conversation, key)
            outcome, child = await self._drive_child(engine, conversation, key)
            self._end_child(engine, outcome, child, key)
            conduct = child._scope.conduct
            return Result(
                outcome.answer, outcome.status, outcome.stop_reason, conduct.usage, child.turns, self.run_id,
                outcome.error, conversation=child.latest, llm_calls=conduct.llm_calls, tool_calls=conduct.tool_calls,
                facts=self._session.facts_below(key),
            )  # fmt: skip

    async def _settle_call(self, decision: Permit | Denial) -> Observation:
        """A call of a tool that is an engine is a child run at the call's place; it is driven again on resume."""
        tool = self._services.tools.get(decision.call.name)
        if isinstance(decision, Denial) or tool is None or tool.engine is None:
            return await super()._settle_call(decision)
        engine: Strategy = tool.engine
        self._session.secrets.join(engine.runtime.redactor)
        not_run = await self._executor.begin(decision, tool)
        if not_run is not None:
            return not_run
        conversation = Conversation.of(str(decision.call.arguments["task"]))
        try:
            outcome, _ = await self._drive_child(
                engine, conversation, EffectKey.parse(decision.key).child_path
            )
        except asyncio.CancelledError:
            if not self._session.signals.aborting:
                raise
            return self._executor.end(
                decision, tool, "cancelled", f"{tool.name} was interrupted."
            )
        if outcome.status == "aborted":
            return self._executor.end(
                decision, tool, "cancelled", f"{tool.name} was interrupted."
            )
        ok = outcome.status == "completed" and outcome.answer is not None
        told = (
            outcome.answer
            if ok
            else f"{tool.name} ended as {outcome.status} ({outcome.stop_reason})"
        )
        if not ok and outcome.answer is not None:
            told = f"{told}; its best answer: {outcome.answer}"
        return self._executor.end(decision, tool, "ok" if ok else "error", told or "")

    async def _drive_child(
        self, engine: Strategy, conversation: Conversation, path: str
    ) -> tuple[RunOutcome, "Run"]:
        """Let another engine solve in a scope of its own; if it waits, so does this scope.

        Its conversation is its own too, so it is told all that people have said so far, whoever was told before.
        """
        child = Run(
            self._session, engine, conversation,
            path=path, guards=self._guards_with(engine), conduct=Conduct(self._scope.conduct),
        )  # fmt: skip
        outcome = await drive(engine, child)
        child._scope.halted = PhaseError("this child is over")
        if isinstance(outcome.error, Suspended):
            raise self._scope.halt(outcome.error)
        return outcome, child

    def _is_below(self, tool: str) -> bool:
        return any(tools.get(tool) is not None for tools in registries_of(self._engine))

    def _guards_with(self, engine: Strategy) -> tuple[Guard, ...]:
        own = Guard.of(engine.runtime)
        return own, *(guard for guard in self._guards if guard != own)

    async def _start_child(
        self, engine: Strategy, conversation: Conversation, key: str
    ) -> None:
        session, found = (
            self._session,
            fingerprint(f"delegate {name_of(engine)}", conversation.digest),
        )
        started, outcome = (
            session.replay.effects.intent(key),
            session.replay.effects.outcome(key),
        )
        if isinstance(started, ChildStarted) and (
            outcome is None or isinstance(outcome, ChildFinished)
        ):
            if started.fingerprint != found:
                raise session.signals.diverge(
                    key,
                    f"{started.engine} {started.fingerprint}",
                    f"{name_of(engine)} {found}",
                )
            return
        if started or outcome:
            raise session.signals.diverge(
                key, "another effect", f"delegate {name_of(engine)}"
            )
        known = session.replay.approvals.decision(call_key(key, 0))
        if (
            known is None or known.verdict != "deny"
        ):  # a denial that the engine caught is all there is of its effect
            self._scope.check_gap(key)
        arguments: dict[str, Json] = {
            "engine": name_of(engine),
            "task": conversation.task,
        }
        clearance = dataclasses.replace(
            self._clearance, guards=self._guards_with(engine)
        )
        await self._permitted("delegate", arguments, "write", key, clearance)
        session.writer.record(
            key, ChildStarted(name_of(engine), engine.recorded_options()[0], found)
        )

    def _end_child(
        self, engine: Strategy, outcome: RunOutcome, child: "Run", key: str
    ) -> None:
        if self._session.replay.effects.outcome(key) is not None:
            self._session.replay.effects.agree(key)
            return
        error = None if outcome.error is None else ErrorRecord.of(outcome.error)
        ended = ChildFinished(
            name_of(engine),
            outcome.status,
            outcome.stop_reason,
            outcome.answer,
            error,
            child.turns,
        )
        self._session.writer.record(key, ended)

    @property
    def turns(self) -> int:
        """Iterations of this scope's own loops."""
        return self._scope.turns

    # --- facts, and effects of the engine's own ---

    def note(self, fact: object) -> None:
        """Record a fact of the strategy: a pydantic model, a dataclass or anything that is JSON."""
        note(self._scope, fact)

    def now(self) -> datetime:
        """Wall time (UTC); the same again when the run is resumed."""
        return now(self._scope)

    def new_id(self) -> str:
        """A UUID; the same again when the run is resumed."""
        return str(
            uuid.uuid5(
                uuid.NAMESPACE_OID, f"{self._session.seed}|{self._scope.side_key('id')}"
            )
        )

    async def effect(
        self, name: str, function: Callable[[], Awaitable[T]], *, into: type[T]
    ) -> T:
        """Make something of the engine's own an effect: gated like a read, recorded, and not done again on resume."""
        with self._scope.enter("effect"):
            key = self._scope.next_key()
            adapter: TypeAdapter[T] = TypeAdapter(into)
            recorded = recorded_effect(self._scope, key, name, adapter)
            if recorded is not None:
                return recorded[0]
            await self._permitted_own(name, {}, "read", key)
            return await do_effect(self._scope, key, name, function, adapter)

    async def permit(self, name: str, arguments: dict[str, Json]) -> None:
        """Have policy decide about something that the engine is about to do and that is no tool call, such as a plan.

        Gates see it as a call of `name` with the effect "write"; nothing runs. Raises `Denied`; waits if a gate asks.
        """
        with self._scope.enter("permit"):
            key = self._scope.next_key()
            arguments = cast(
                "dict[str, Json]", self._services.redactor.redact_value(arguments)
            )
            known = self._session.replay.approvals.decision(call_key(key, 0))
            if known is not None and known.arguments_hash != arguments_hash(arguments):
                raise self._session.signals.diverge(
                    key, f"{known.tool} with other arguments", name
                )
            if recorded_effect(self._scope, key, name, TypeAdapter(type(None))) is None:
                await self._permitted_own(name, arguments, "write", key)
                self._session.writer.record(key, EffectFinished(name))

    def _checked(self, answer: object) -> str:
        """An answer as a text, valid and without secrets."""
        if not isinstance(answer, str):
            raise EngineError(
                f"{self._engine_name}.solve returned {type(answer).__name__}, not a text"
            )
        return self._services.redactor.redact_text(
            answer.encode("utf-8", "replace").decode()
        )  # half a pair is no text

    def _ours(self, raised: Exception) -> LoopwrightError:
        """An error of ours, as it is, or around what an engine raised. Divergence and fencing are raised again."""
        redactor = self._session.secrets.redactor
        if isinstance(raised, (Fenced, ReplayDivergence)):
            raise raised
        if isinstance(raised, LoopwrightError):
            return redact_error(redactor, raised)
        told = format_traceback(redactor, raised)
        logger().warning("engine_failed", engine=self._engine_name, traceback=told)
        error = EngineError(
            f"{self._engine_name} raised {type(raised).__name__}: {format_error(raised)}"
        )
        error.__cause__ = raised
        return redact_error(redactor, error)


async def _in_branch(
    work: Callable[[Run], Awaitable[T]], branch: Run, slots: asyncio.Semaphore
) -> T:
    async with slots:
        return await work(branch)


async def drive(engine: Strategy, run: Run, *, alone: bool = False) -> RunOutcome:
    """Let an engine solve, and say how it ended.

    Raises only what may not be swallowed: cancellation, `Fenced` and `ReplayDivergence`. With `alone` (the root engine)
    a limit or a stuck loop is followed by the reserved best-effort call.
    """
    answer: str | None = None
    error: LoopwrightError | None = None
    conduct = run._scope.conduct
    try:
        answer = run._checked(await engine.solve(run))
        while alone and run.followed_up(answer):
            answer = run._checked(await engine.solve(run))
    except Exception as raised:  # noqa: BLE001 - an engine is foreign code: a crash in it is the run's outcome
        error = run._ours(raised)
    error = run._scope.signal or error or conduct.ending
    answer = _so_far(answer, error, run)
    if (
        answer is None
        and alone
        and conduct.ending is None
        and run._may_ask_once_more(error)
    ):
        try:
            answer = run._checked(await run._last_words(run.latest))
        except Exception as raised:  # noqa: BLE001 - no best answer, then; the ending stays
            failure = run._ours(raised)
            if isinstance(failure, JournalError):
                error = failure
            elif error is not None:
                error.__cause__ = failure
    if isinstance(error, (Fenced, ReplayDivergence)):
        raise error
    return (
        RunOutcome("completed", "answered", answer)
        if error is None
        else build_outcome(error, answer)
    )


def _so_far(answer: str | None, error: LoopwrightError | None, run: Run) -> str | None:
    """The answer there is: a run that waits has none yet, one that ended early has what was offered."""
    if isinstance(error, Suspended):
        return None
    return run.offered if answer is None and error is not None else answer
