"""Cycle: the phases of one scope, each of which takes only what the one before returned."""

import asyncio
import functools
import operator
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Any, Literal, Protocol

from ...errors import LoopwrightError, PhaseError, Stuck, Suspended
from ...events.effect_key import call_key
from ...events.effects import CallsProposed
from ...events.run import Question as PendingQuestion
from ...gates.base import Cleared, Denial, Permit, PolicyState
from ...gates.run_facts import Author
from ...journals.recorded_messages import find_thought, id_of, name_calls
from ...limits import Share
from ...messages import (
    Completion,
    Conversation,
    Effect,
    Json,
    JsonObject,
    Message,
    Observation,
    Proposal,
    Reasoning,
    ToolCall,
    hash_arguments,
)
from ...providers.base import OutputSchema, Sampling
from ...result import RunOutcome
from ...security.redaction import Redactor
from ...tools.base import Tool
from ..durability.description import describe_calls
from ..session.branches import Branches, Turn
from ..session.scope import Scope
from ..session.services import Services
from .act import FunctionInvoker
from .approvals import Guard
from .context_questions import ContextQuestions
from .delegation import check_delegation
from .gate import Clearance
from .gate_consultation import is_read_allowed
from .handoff_rules import check_handoff, refuse_handoffs
from .hook_stages import HookStages
from .hooked_results import hook_result
from .inference import Inference, Question, Reply
from .offers import Offers
from .permits import ToolPermit, check_permit
from .proposals import Proposals
from .recall import RecallInvoker
from .secret_free import clean_arguments, clean_calls
from .succession import Succession
from .tool_call import ToolCalls
from .tool_invoker import (
    EngineInvoker,
    HandoffInvoker,
    RuntimeCalls,
    ToolInvoker,
    UserInvoker,
)

NOT_EXECUTED = ("denied", "rejected")
_get_status: Callable[[Observation], str] = operator.attrgetter("status")
NOT_RUN = "This call was not run: the run ends."


class Engine(Protocol):
    """What the phases need of an engine."""

    @property
    def runtime(self) -> Services:
        """Return its services."""
        ...

    @property
    def sampling(self) -> Sampling:
        """Return the settings of the calls of its own model."""
        ...

    def recorded_options(self) -> tuple[dict[str, Json], tuple[str, ...]]:
        """Return its options as JSON, and the names of those that cannot be recorded."""
        ...


def name_of(engine: Engine) -> str:
    """Return an engine's name.

    The protocol does not have it: then every engine would have to declare a `ClassVar`.
    """
    return str(getattr(engine, "name", type(engine).__name__))


RunChild = Callable[
    ["Cycle", Any, Conversation, str, OutputSchema | None, Share | None],
    Awaitable[tuple[RunOutcome, "Cycle"]],
]
"""Run another engine as a child of a cycle, in a scope with that path; its answer fits the schema, if there is one, and
it has the share of the budget, or all that is left."""


class Cycle:
    """The phases of one scope, and what they share."""

    def __init__(
        self,
        scope: Scope,
        engine: Engine,
        conversation: Conversation,
        guards: tuple[Guard, ...],
        run_child: RunChild,
    ) -> None:
        self.scope, self.session, self.engine = scope, scope.session, engine
        self.engine_name, self.guards = name_of(engine), guards
        self.conversation = conversation
        """What the caller gave, with what people said since in follow-ups."""
        self.succession = Succession(self, conversation)
        self.offered: str | None = None
        """The best answer so far, in case that the run ends early."""
        self.run_child = run_child
        self.issued, self._latest = Proposals(), conversation
        self._gated: Proposal | None = None
        self._turn: tuple[Proposal, tuple[Observation, ...]] | None = None
        self.use(engine.runtime)

    def use(self, services: Services) -> None:
        """Work with these services from now on: with other tools than before."""
        session = self.session
        self.services = services
        self.inference = Inference(
            session,
            services,
            self.engine.sampling,
            Offers(session, services, self.permit_own),
            self.scope.engine_usage,
            functools.partial(ContextQuestions, session),
        )
        is_allowed = functools.partial(
            is_read_allowed, session, services, self.guards, self.policy_state
        )
        self.hooks = HookStages(
            self.scope, services, self.engine_name, self.inference.settle_for_context, is_allowed
        )  # fmt: skip
        self.clearance = Clearance(session, services, self.guards, self.scope.monitor)
        calls = ToolCalls(session, services, self.clearance.version)
        self._functions = FunctionInvoker(calls, self.decide, self._ask_for_recovery)
        runtime_calls = RuntimeCalls(calls)
        check = functools.partial(check_delegation, self.scope)
        self._engines = EngineInvoker(runtime_calls, self._run_engine_tool, check)
        self._users = UserInvoker(runtime_calls)
        check = functools.partial(check_handoff, self.scope, services)
        self._handoffs = HandoffInvoker(runtime_calls, check)
        self._recalls = RecallInvoker(runtime_calls)

    async def renew_tools(self) -> None:
        """Renew the list of tools; it changes only here, so that a call's tool is the proposed one."""
        tools = await self.services.tools.refresh(self.session.remaining())
        if tools is not self.services.tools:
            self.use(self.services.with_tools(tools))
            self.session.secrets.merge(self.services.redactor)

    @property
    def latest(self) -> Conversation:
        """The conversation as far as this scope has taken it."""
        if self._turn is not None:
            proposal, observations = self._turn
            self._latest = self._latest.observe(proposal, observations)
            self._turn = None
        return self._latest

    def keep(self, conversation: Conversation) -> None:
        """Note how far the conversation has come."""
        self._latest, self._turn = conversation, None

    def propose(
        self,
        calls: tuple[ToolCall, ...],
        thought: str,
        reasoning: tuple[Reasoning, ...],
    ) -> Proposal:
        """Make a proposal of calls that the engine writes itself."""
        with self.scope.enter("propose"):
            key = self.scope.next_key()
            recorded = self.record_proposed(key, name_calls(calls, key))
            completion = Completion(
                calls=recorded, thought=thought, reasoning=reasoning
            )
            return self.issue_proposal(key, completion, (), is_own=True)

    def record_proposed(
        self, key: str, calls: tuple[ToolCall, ...], command: int = 0
    ) -> tuple[ToolCall, ...]:
        """Record calls that no model wrote, and return them without their secrets."""
        session, effects = self.session, self.session.replay.effects
        recorded = effects.outcome(key)
        clean = clean_calls(self.services.redactor, calls, recorded)
        withheld, found = tuple(clean.originals), clean.fingerprint
        session.secrets.keep_all(key, {number: calls[number] for number in withheld})
        proposed = CallsProposed(clean.calls, found, withheld, command)
        if recorded is None:
            session.signals.check_gap(key, describe_calls(proposed))
            session.writer.record_after_replay(key, proposed)
        elif not isinstance(recorded, CallsProposed) or recorded.fingerprint != found:
            raise session.signals.diverge_from(key, describe_calls(proposed))
        else:
            effects.agree(key)
        return clean.calls

    def issue_proposal(
        self,
        key: str,
        completion: Completion,
        delivered: tuple[Message, ...],
        *,
        is_own: bool = False,
        beside: bool = False,
        is_changed: bool = False,
    ) -> Proposal:
        """Return what the model or the engine wants next, as the gate takes it: alone, or beside other samples.

        What the engine itself thought beside calls of its own is recorded nowhere, and a reply that hooks changed not as
        the message that it becomes.
        """
        calls = name_calls(completion.calls, key)
        if self.session.secrets.calls:
            self.session.secrets.note_ids(key, calls)
        is_thought = is_own and bool(completion.thought or completion.reasoning)
        is_recorded = not (is_thought or is_changed)
        author: Literal["model", "engine"] = "engine" if is_own else "model"
        proposal = Proposal.issue(
            thought=find_thought(completion),
            calls=calls,
            answer=completion.answer,
            delivered=delivered,
            reasoning=completion.reasoning,
            sources=completion.sources,
            key=key,
            issuer=self.scope,
            entry=(self.session.run_id, key) if is_recorded else None,
            author=author,
        )
        self.issued.add(proposal, beside=beside)
        return proposal

    async def gate(self, proposal: Proposal) -> Cleared:
        """Let policy decide about each call of a proposal, once."""
        if not isinstance(proposal, Proposal):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError(
                "gate takes a Proposal: pass what `await run.reason(conversation)` returned"
            )
        begun = self._has_begun("gate", proposal.key, proposal.calls)
        with self.scope.enter("gate", recorded=begun):
            self.issued.take_proposal(proposal)
            decisions: list[Permit | Denial] = []
            questions: list[PendingQuestion] = []
            for index, call in enumerate(proposal.calls):
                key = call_key(proposal.key, index)
                state = self.policy_state(key, proposal.author)
                decided = await self.clearance.decide(call, state)
                if isinstance(decided, PendingQuestion):
                    questions.append(decided)
                else:
                    decisions.append(decided)
            self._check_denials(decisions)
            if questions:
                raise await self.park(questions)
            self.clearance.start(decisions)
            cleared = Cleared.issue(
                decisions=tuple(decisions), key=proposal.key, issuer=self.scope
            )
            self.issued.add(cleared)
            return cleared

    async def decide(
        self, call: ToolCall, key: str, author: Author = "engine"
    ) -> Permit | Denial | PendingQuestion:
        """Have policy decide about one call."""
        decided = await self.clearance.decide(call, self.policy_state(key, author))
        self.clearance.start([decided])
        return decided

    def policy_state(self, key: str, author: Author = "code") -> PolicyState:
        """Return what a gate is told of the run, and of who wrote the call."""
        session, budget = self.session, self.session.budget
        label, untrusted = session.sensitivity.at(key)
        return PolicyState(
            session.run_id, key, self.engine_name, self.scope.iteration, budget.llm_calls, budget.tool_calls,
            label, untrusted, session.services.clock.wall(),
            author, session.provenance.facts, session.principal,
        )  # fmt: skip

    async def act(self, cleared: Cleared) -> tuple[Observation, ...]:
        """Run what the gate permitted, at the same time; return one observation for each call."""
        if not isinstance(cleared, Cleared):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError(
                "act takes a Cleared: pass what `await run.gate(proposal)` returned"
            )
        begun = self._has_begun("act", cleared.key, cleared.decisions)
        with self.scope.enter("act", recorded=begun):
            gated = self._gated = self.issued.take_cleared(cleared)
            if self.session.command_log.commands and not begun:
                await self.session.replay_end.reach(cleared.key)
                await self.session.intake.wait_while_paused()
            decisions = cleared.decisions
            if len(decisions) > 1:
                decisions = refuse_handoffs(decisions, self.session.permits)
            seconds = self.session.active.seconds()
            for decision in decisions:  # their policy is checked right before each call
                if isinstance(decision, Permit):
                    check_permit(decision, self.session, seconds, None)
            if len(decisions) == 1:
                observations: tuple[Observation, ...] = (
                    await self.settle_call(decisions[0]),
                )
            else:
                observations = await self._settle_all(decisions)
            for index, observation in enumerate(observations):
                self._monitor(gated.calls[index], decisions[index], observation)
            self._keep_turn(observations)
            statuses = [*map(_get_status, observations)]
            ran = len(statuses) - sum(map(statuses.count, NOT_EXECUTED))
            self.scope.engine_usage.add_tool_calls(ran)
            return observations

    async def settle_call(self, decision: Permit | Denial) -> Observation:
        """Return the observation of one decided call."""
        try:
            if isinstance(decision, ToolPermit) and decision.tool is not None:
                tool = decision.tool
                seen = await self._invoker_of(tool).invoke(decision, tool)
                if self.hooks.is_empty:
                    return seen
                return await hook_result(self.hooks, decision.key, tool, seen)
            return await self._functions.invoke(decision, None)
        except Suspended as waiting:  # only a person can say what happens next
            raise self.scope.halt(waiting) from None

    def _invoker_of(self, tool: Tool) -> ToolInvoker:
        if tool.engine is not None:
            return self._engines
        if tool.handoff is not None:
            return self._handoffs
        if tool.recalls:
            return self._recalls
        return self._users if tool.asks_user else self._functions

    async def _settle_one(
        self, decision: Permit | Denial, branches: Branches, turn: Turn
    ) -> Observation:
        async with branches.place(turn):
            return await self.settle_call(decision)

    async def _settle_all(
        self, decisions: tuple[Permit | Denial, ...]
    ) -> tuple[Observation, ...]:
        branches = Branches(self.session.replay_end)
        turns = [branches.add(begun=True) for _ in decisions]
        calls = [
            asyncio.ensure_future(self._settle_one(decision, branches, turn))
            for decision, turn in zip(decisions, turns, strict=True)
        ]
        try:
            settled: list[Observation | BaseException | None] = [
                *await asyncio.gather(*calls, return_exceptions=True)
            ]
        except asyncio.CancelledError:  # all calls have ended: an abort, or a time-out
            settled = [*map(_ended, calls)]
            is_cut = self.session.signals.cuts.is_cut(self.scope.path)
            if not is_cut or None in settled:
                self._keep_turn(_observed(decisions, settled))
                raise
        observed = _observed(decisions, settled)
        for outcome in settled:
            if isinstance(outcome, BaseException):
                self._keep_turn(observed)  # what its siblings found is not lost
                raise outcome
        return observed

    async def _run_engine_tool(
        self, tool: Tool, arguments: JsonObject, path: str
    ) -> tuple[RunOutcome, "Cycle"]:
        conversation, schema = (
            tool.child.open(arguments, self.latest),
            tool.child.schema,
        )
        return await self.run_child(self, tool.engine, conversation, path, schema, None)

    async def _ask_for_recovery(self, key: str, question: Question) -> Reply:
        """Settle a question of a recovery.

        It does not count as the engine's own: on replay, it is not asked again.
        """
        return await self.inference.settle(key, question, (), self.scope.iteration)

    def _has_begun(self, verb: Literal["gate", "act"], key: str, calls: Sized) -> bool:
        """Whether the journal shows that a phase had begun; it says nothing of one without calls."""
        if self.session.is_new:
            return len(calls) == 0
        return len(calls) == 0 or self.session.replay.scopes.has_begun(verb, key)

    def _keep_turn(self, observations: tuple[Observation, ...]) -> None:
        if self._gated is not None:
            self._turn = (self._gated, observations)

    def _monitor(
        self, proposed: ToolCall, decision: Permit | Denial, observation: Observation
    ) -> None:
        """Have the progress monitor count a call, by its arguments as the model wrote them."""
        hashed = decision.arguments_hash
        if proposed is not decision.call:
            hashed = hash_arguments(proposed.arguments)
        if isinstance(decision, ToolPermit):
            tool, refused = decision.tool, False
        else:
            tool, refused = self.services.tools.get(decision.call.name), True
        nudge = self.scope.monitor.observe(
            decision.key,
            observation,
            hashed,
            refused=refused,
            unknown=tool is None and refused,
            repeatable=tool is not None and tool.repeatable,
        )
        if nudge is not None:
            self.scope.nudges.append(Message("user", nudge, origin="runtime"))

    def _check_denials(self, decisions: list[Permit | Denial]) -> None:
        """Raise `Stuck` if a denial came too often, or is final."""
        counted: set[tuple[str, str, str]] = set()  # once for equal calls of one turn
        for denial in decisions:
            if not isinstance(denial, Denial):
                continue
            name, monitor = denial.call.name, self.scope.monitor
            identity = name, denial.arguments_hash, denial.reason
            is_new = denial.status == "denied" and identity not in counted
            counted.add(identity)
            if is_new and monitor.count_denial(*identity):
                stuck = Stuck("denied", f"{name} was denied again: {denial.reason}")
                raise self.scope.halt(stuck)
            if denial.final:
                reason = monitor.stop_reasons.get(denial.key, "")
                repeated = reason == "repeated_error"
                what = "failed in the same way" if repeated else "was called"
                stuck = Stuck(reason, f"{name} {what} again and again")
                raise self.scope.halt(stuck)

    async def park(self, questions: list[PendingQuestion]) -> LoopwrightError:
        """Wait for a person, unless the run was told to stop; return the error to be raised.

        The questions are made durable at once, since other branches may work for long.
        """
        session = self.session
        if session.command_log.stopping:
            return session.intake.stop_signal()
        session.pending.extend(questions)
        waiting = Suspended(f"waiting for {len(questions)} decision(s)")
        self.scope.halt(waiting)
        await session.writer.barrier()
        return waiting

    async def permit_own(
        self,
        name: str,
        arguments: dict[str, Json],
        effect: Effect,
        key: str,
        clearance: Clearance | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Have policy decide about something of the engine's own, without its secrets; raise `Denied`, or wait."""
        written = ToolCall(name, arguments, f"{name}_{id_of(key)}")
        clean = clean_arguments(redactor or self.services.redactor, arguments)
        call = ToolCall(name, clean, written.id)
        state = self.policy_state(call_key(key, 0))
        decide = (clearance or self.clearance).decide_own
        question = await decide(call, effect, state, written)
        if question is not None:
            raise await self.park([question])

    async def permit_undo(self, call: ToolCall, key: str) -> PendingQuestion | None:
        """Have policy decide about undoing a call of a saga; raise `Denied`."""
        state = self.policy_state(key)
        return await self.clearance.decide_own(call, "write", state)


def _ended(call: asyncio.Future[Observation]) -> Observation | BaseException | None:
    return None if call.cancelled() else call.exception() or call.result()


def _observed(
    decisions: Sequence[Permit | Denial], settled: Sequence[object]
) -> tuple[Observation, ...]:
    """Return one observation for each call, also for those that did not run."""
    return tuple(
        outcome
        if isinstance(outcome, Observation)
        else Observation(decision.call, "cancelled", NOT_RUN)
        for decision, outcome in zip(decisions, settled, strict=True)
    )
