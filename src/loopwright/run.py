"""The one door: everything a strategy does passes a verb of `Run`, and every verb leaves entries in the journal."""

import asyncio
import dataclasses
import hashlib
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar, overload

from pydantic import BaseModel, TypeAdapter

from .asking import ask_model, ask_text
from .clearance import Clearance
from .errors import (
    ConfigError,
    EngineError,
    Fenced,
    LimitReached,
    LoopwrightError,
    PhaseError,
    ProviderError,
    ReplayDivergence,
    RunSignal,
    Stuck,
    Suspended,
    Unreadable,
)
from .events import CallsProposed, ChildFinished, ChildStarted, ErrorRecord
from .events import Question as PendingQuestion
from .executor import Executor, check_permit
from .inference import Inference, Question, Reply
from .messages import Completion, Conversation, Effect, Json, Message, Observation, Proposal, ToolCall, canonical_json
from .own_effects import do_effect, note, now, recorded_effect
from .parts import Parts
from .policy import Cleared, Denial, Permit, PolicyGate, PolicyState
from .provider import Provider, Sampling
from .result import Outcome, Result, outcome_of
from .scope import Conduct, Scope
from .session import Session, fingerprint

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
MAX_REPAIRS = 3  # an unreadable reply goes back to the model this often, running
BEST_ANSWER = "There are no more steps left. Do not call any tool. Give your best final answer now, from what you know."


class Strategy(Protocol):
    """What a run needs of an engine."""

    @property
    def name(self) -> str:
        """Its entry-point name."""
        ...

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


class Run:
    """The door that an engine is given: observe, reason, gate, act.

    Each phase takes only what the phase before returned. Every method that touches the world is an effect: recorded, and
    answered from the journal when the run is resumed. One verb may be in flight at a time; for more, see `gather`.
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
        self.conversation = conversation
        self._session, self._engine, self._parts = session, engine, engine.runtime
        self._gates = gates or (engine.runtime.gate,)
        self._scope = Scope(session, path, conduct or Conduct())
        self._inference = Inference(session, self._parts)
        self._clearance = Clearance(session, self._parts, self._gates, self._scope.monitor)
        self._executor = Executor(session, self._parts)
        self._issued: Proposal | Cleared | None = None
        self._latest = conversation
        self._turn: tuple[Proposal, tuple[Observation, ...]] | None = None
        self._proposal: Proposal | None = None
        self.ending: RunSignal | None = None  # set when the engine itself asked for a best answer
        self.random = random.Random(hashlib.sha256(f"{session.run_id}|{path}".encode()).digest())  # noqa: S311 - replays
        """A random source that gives the same numbers when the run is resumed."""

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._session.run_id

    @property
    def task(self) -> str:
        """The latest user text of the conversation that the caller gave."""
        return self.conversation.task

    # --- reason, gate, act ---

    async def reason(self, conversation: Conversation, *, tools: bool = True) -> Proposal:
        """Ask the model what to do next; with `tools=False` it may only answer.

        An unreadable reply goes back to it with the reason, at most three times running; then `Unreadable`.
        """
        with self._scope.enter("reason"):
            self._latest, self._turn = conversation, None
            asked = conversation
            delivered: tuple[Message, ...] = ()
            for _ in range(1 + MAX_REPAIRS):
                reply = await self._settle(Question("reason", asked, tools))
                delivered += reply.delivered
                problem = reply.completion.problem
                if problem is None:
                    return self._propose(reply.key, reply.completion, delivered)
                asked = asked.add(*reply.delivered).assistant(reply.completion.text, origin="model")
                asked = asked.user(problem, origin="runtime")
            raise Unreadable(f"the model's replies could not be read {1 + MAX_REPAIRS} times running, last: {problem}")

    def propose(self, *calls: ToolCall, thought: str = "") -> Proposal:
        """A proposal of calls that the engine writes itself; they pass the same gate."""
        with self._scope.enter("propose"):
            key = self._scope.next_key()
            named = _with_ids(calls, key)
            content = canonical_json([[call.name, dict(call.arguments), call.id] for call in named])
            found = fingerprint("propose", content)
            replay = self._session.replay
            recorded = replay.outcome(key)
            if recorded is None:
                replay.check_gap(key)
                self._session.record(key, CallsProposed(named, found))
            elif not isinstance(recorded, CallsProposed) or recorded.fingerprint != found:
                raise self._session.stick(replay.divergence(key, type(recorded).__name__, f"propose {found}"))
            return self._propose(key, Completion(calls=named, thought=thought), ())

    async def gate(self, proposal: Proposal) -> Cleared:
        """Let policy decide about each call of a proposal; a proposal is gated once, by the scope that made it."""
        if not isinstance(proposal, Proposal):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError("gate takes a Proposal: pass what `await run.reason(conversation)` returned")
        if proposal.issuer is not self._scope or proposal is not self._issued:
            raise PhaseError("this proposal was gated already, or is not this scope's latest: reason or propose again")
        with self._scope.enter("gate"):
            self._issued = None
            decisions: list[Permit | Denial] = []
            questions: list[PendingQuestion] = []
            for index, call in enumerate(proposal.calls):
                decided = await self._clearance.decide(call, self._state(f"{proposal.key}#{index}"))
                if isinstance(decided, PendingQuestion):
                    questions.append(decided)
                else:
                    decisions.append(decided)
            self._stop_if_stuck(decisions)
            if questions:
                raise self._park(questions)
            self._proposal = proposal
            self._issued = Cleared.issue(decisions=tuple(decisions), key=proposal.key, issuer=self._scope)
            return self._issued

    async def act(self, cleared: Cleared) -> tuple[Observation, ...]:
        """Run what the gate let through, at the same time; one observation for each call, in call order."""
        if not isinstance(cleared, Cleared):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError("act takes a Cleared: pass what `await run.gate(proposal)` returned")
        if cleared.issuer is not self._scope or cleared is not self._issued:
            raise PhaseError("this Cleared was acted on already, or is not this scope's latest: gate a new proposal")
        with self._scope.enter("act"):
            self._issued = None
            for permit in cleared.permits:
                check_permit(permit, self._session)
            observations = await self._settle_all(cleared.decisions)
            for observation in observations:
                nudge = None if self._repeatable(observation) else self._scope.monitor.observe(observation)
                if nudge is not None:
                    self._scope.nudges.append(Message("user", nudge, origin="runtime"))
            if self._proposal is not None:
                self._turn = (self._proposal, observations)
            return observations

    async def _settle_all(self, decisions: tuple[Permit | Denial, ...]) -> tuple[Observation, ...]:
        if len(decisions) == 1:
            return (await self._executor.settle(decisions[0]),)
        settled = await asyncio.gather(*map(self._executor.settle, decisions), return_exceptions=True)
        for outcome in settled:
            if isinstance(outcome, BaseException):
                raise outcome
        return tuple(o for o in settled if isinstance(o, Observation))

    def _repeatable(self, observation: Observation) -> bool:
        tool = self._parts.tools.get(observation.call.name)
        return observation.status == "denied" or (tool is not None and tool.repeatable)

    def _stop_if_stuck(self, decisions: list[Permit | Denial]) -> None:
        for decision in decisions:
            if not isinstance(decision, Denial):
                continue
            if decision.status == "denied" and self._scope.monitor.denied(decision.call, decision.reason):
                raise self._scope.stop(Stuck("denied", f"{decision.call.name} was denied again: {decision.reason}"))
            if decision.final:
                raise self._scope.stop(Stuck("repeated_action", f"{decision.call.name} was called again and again"))

    def _park(self, questions: list[PendingQuestion]) -> Suspended:
        self._session.pending.extend(questions)
        self._scope.parked = Suspended(f"waiting for {len(questions)} decision(s)")
        return self._scope.parked

    async def _settle(self, question: Question) -> Reply:
        nudges, self._scope.nudges = tuple(self._scope.nudges), []
        return await self._inference.settle(self._scope.next_key(), question, nudges, self._scope.iteration)

    def _propose(self, key: str, completion: Completion, delivered: tuple[Message, ...]) -> Proposal:
        self._issued = Proposal.issue(
            thought=completion.thought or (completion.text if completion.answer is None else ""),
            calls=_with_ids(completion.calls, key),
            answer=completion.answer,
            delivered=delivered,
            key=key,
            issuer=self._scope,
        )
        return self._issued

    def _state(self, key: str) -> PolicyState:
        budget = self._session.budget
        return PolicyState(
            self.run_id, key, self._engine.name, self._scope.iteration, budget.llm_calls, budget.tool_calls
        )

    # --- loops and endings ---

    def iterations(self, most: int | None = None) -> Iterator[int]:
        """Turn numbers from 1, at most `most`; raises `LimitReached` past the run's `max_iterations`."""
        if most is not None and most < 1:
            raise ConfigError(f"iterations must be at least 1, got {most}")
        return self._scope.iterations(most)

    async def best_answer(self, conversation: Conversation) -> str:
        """Ask once, without tools, for the best answer so far; the run's status becomes `limit`."""
        self.ending = self.ending or LimitReached("max_iterations", "the engine used up its iterations")
        return await self.last_words(conversation)

    async def last_words(self, conversation: Conversation | None = None) -> str:
        """The reserved call behind `best_answer`; it is let through although the run is at a limit."""
        with self._scope.enter("best_answer", despite_signal=self.ending is None):
            if not self._scope.path:
                self._session.budget.reserved_used = True
            asked = (conversation or self.latest).user(BEST_ANSWER, origin="runtime")
            reply = await self._settle(Question("best_answer", asked, reserved=not self._scope.path))
            completion = reply.completion
            if completion.answer is None:
                raise Unreadable(completion.problem or "the model called a tool instead of giving its best answer")
            return completion.answer

    @property
    def latest(self) -> Conversation:
        """The conversation as far as this scope has taken it."""
        if self._turn is not None:
            proposal, observations = self._turn
            self._latest, self._turn = self._latest.observe(proposal, observations), None
        return self._latest

    # --- other questions, other engines, other work ---

    @overload
    async def ask(
        self, prompt: str | Conversation, *, into: type[str] = str, sampling: Sampling = ..., provider: str | None = None
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
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
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

        Waits for all; then the exception of the lowest index is raised. A branch that waits for a decision does not hold
        up its siblings. Branches share nothing but what they return.
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
            if self._session.replay.outcome(key) is None:
                error = outcome.error and ErrorRecord(type(outcome.error).__name__, str(outcome.error))
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
                raise self._session.stick(replay.divergence(key, f"{started.engine} {started.fingerprint}", found))
            return
        replay.check_gap(key)
        self._session.record(key, ChildStarted(engine.name, engine.recorded_options()[0], found))

    async def _permitted(self, name: str, arguments: dict[str, Json], effect: Effect, key: str) -> None:
        call = ToolCall(name, arguments, f"{name}_{_plain(key)}")
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
        return isinstance(error, Stuck) or (isinstance(error, LimitReached) and error.limit not in ("timeout", "max_cost"))

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
        error = EngineError(f"{engine.name} raised {type(raised).__name__}: {raised}")
        error.__cause__ = raised
    error = run.signal or error or run.ending
    if isinstance(error, (Fenced, ReplayDivergence)):
        raise error
    if answer is None and alone and run.may_ask_once_more(error):
        try:
            answer = await run.last_words()
        except (ProviderError, Unreadable, LimitReached) as failure:
            (error or failure).__cause__ = failure
    return Outcome("completed", "answered", answer) if error is None else outcome_of(error, answer)


def _with_ids(calls: tuple[ToolCall, ...], key: str) -> tuple[ToolCall, ...]:
    """The calls with an id each, unique among them."""
    ids = [call.id for call in calls]
    if all(ids) and len(set(ids)) == len(ids):
        return calls
    return tuple(dataclasses.replace(c, id=f"call_{_plain(key)}_{i}") for i, c in enumerate(calls))


def _plain(key: str) -> str:
    return key.replace(".", "_")
