"""The phases of the door and their order: observe, reason, gate, act."""

import asyncio
import dataclasses
import functools
import hashlib
import random
from collections.abc import Iterator, Sequence, Sized
from typing import Literal, cast

from ...errors import LoopwrightError, PhaseError, Stuck, Suspended, Unreadable
from ...events.effect_key import call_key
from ...events.effects import CallsProposed
from ...events.run import Question as PendingQuestion
from ...gates.base import Cleared, Denial, Permit, PolicyState
from ...journals.base import Command
from ...messages import (
    Completion,
    Conversation,
    JsonObject,
    Message,
    Observation,
    Proposal,
    ToolCall,
    ToolSpec,
    Usage,
    arguments_hash,
    canonical_json,
)
from ...security.redaction.messages import redact_calls
from ...security.spotlighting import OPERATOR_CALL_PREFIX, fence
from ..control.commands import OVERRIDE
from ..session.scope import Scope, fingerprint
from ..session.services import Services
from ..session.session import Session
from .act import Executor
from .gate import Clearance, Guard
from .reason import Inference, Question, Reply
from .tool_call import ToolCalls, check_permit

CUT = "The reply reached the limit of output tokens and was cut. Say it more briefly."
NOT_RUN = "This call was not run: the run ends."
MAX_REPAIRS = 3  # an unreadable reply goes back to the model this often, running


class Phases:
    """Observe, reason, gate, act: each takes only what the one before returned."""

    def __init__(
        self,
        scope: Scope,
        services: Services,
        engine_name: str,
        guards: tuple[Guard, ...],
        conversation: Conversation,
    ) -> None:
        self.conversation = conversation
        self._scope, self._engine_name, self._guards = scope, engine_name, guards
        self._session: Session = scope.session
        self._use(services)
        self._issued: Proposal | Cleared | None = None
        self._gated: Proposal | None = None
        self._latest = conversation
        self._turn: tuple[Proposal, tuple[Observation, ...]] | None = None

    def _use(self, services: Services) -> None:
        self._services = services
        self._inference = Inference(self._session, services)
        self._clearance = Clearance(
            self._session, services, self._guards, self._scope.monitor
        )
        calls = ToolCalls(self._session, services, self._clearance.version)
        self._executor = Executor(calls, self._decide, self._mend)

    async def _renew_tools(self) -> None:
        """Between two steps, and at no other time, a list of tools may change: what is proposed is what is called."""
        tools = await self._services.tools.refresh(self._session.remaining())
        if tools is not self._services.tools:
            self._use(self._services.with_tools(tools))
            self._session.secrets.join(self._services.redactor)

    @functools.cached_property
    def random(self) -> random.Random:
        """A random source that gives the same numbers when the run is resumed."""
        seed = hashlib.sha256(
            f"{self._session.seed}|{self._scope.path}".encode()
        ).digest()
        return random.Random(seed)  # noqa: S311 - not for secrets: it must replay

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._session.run_id

    @property
    def task(self) -> str:
        """The latest user text of the conversation that the caller gave."""
        return self.conversation.task

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that calls may name, as a model is told of them."""
        return self._services.tools.specs

    @property
    def latest(self) -> Conversation:
        """The conversation as far as this scope has taken it."""
        if self._turn is not None:
            proposal, observations = self._turn
            self._latest, self._turn = (
                self._latest.observe(proposal, observations),
                None,
            )
        return self._latest

    def keep(self, conversation: Conversation) -> None:
        """Say how far the conversation has come: the result shows it, and a best answer at a limit goes on from it.

        `reason` does so by itself; a strategy that works with `ask` says it here.
        """
        self._latest, self._turn = conversation, None

    async def reason(
        self, conversation: Conversation, *, tools: bool = True
    ) -> Proposal:
        """Ask the model what to do next; with `tools=False` it may only answer.

        An unreadable reply goes back to it with the reason, at most three times running; then `Unreadable`.
        """
        with self._scope.enter("reason"):
            await self._renew_tools()
            self.keep(conversation)
            asked = conversation
            delivered: tuple[Message, ...] = ()
            problem: str | None = None
            for _ in range(1 + MAX_REPAIRS):
                reply = await self._settle(Question("reason", asked, tools))
                delivered += reply.delivered
                problem = reply.completion.problem or (
                    CUT if reply.completion.is_cut else None
                )
                if problem is None:
                    if reply.completion.answer is not None:
                        self.keep(conversation.add(*delivered))
                    return self._propose(reply.key, reply.completion, delivered)
                said = Message(
                    "assistant",
                    reply.completion.text,
                    origin="model",
                    reasoning=reply.completion.reasoning,
                )
                asked = asked.add(*reply.delivered, said)
                asked = asked.user(problem, origin="runtime")
            raise Unreadable(
                f"the model's replies could not be read {1 + MAX_REPAIRS} times running, last: {problem}"
            )

    def propose(self, *calls: ToolCall, thought: str = "") -> Proposal:
        """A proposal of calls that the engine writes itself; they pass the same gate."""
        with self._scope.enter("propose"):
            key = self._scope.next_key()
            named = self._proposed(key, with_ids(calls, key))
            return self._propose(key, Completion(calls=named, thought=thought), ())

    def _proposed(
        self, key: str, given: tuple[ToolCall, ...], command: int = 0
    ) -> tuple[ToolCall, ...]:
        """Calls that no model wrote, recorded; without their secrets."""
        named, originals = redact_calls(self._services.redactor, given)
        self._session.secrets.keep_all(
            key, {number: given[number] for number in originals}
        )
        content = canonical_json(
            [[call.name, dict(call.arguments), call.id] for call in named]
        )
        found = fingerprint("propose", content)
        replay = self._session.replay
        recorded = replay.effects.outcome(key)
        if recorded is None:
            self._session.signals.check_gap(key)
            self._session.writer.record(
                key, CallsProposed(named, found, tuple(originals), command)
            )
        elif not isinstance(recorded, CallsProposed) or recorded.fingerprint != found:
            raise self._session.signals.diverge(
                key, type(recorded).__name__, f"propose {found}"
            )
        else:
            replay.effects.agree(key)
        return named

    async def gate(self, proposal: Proposal) -> Cleared:
        """Let policy decide about each call of a proposal; a proposal is gated once, by the scope that made it."""
        if not isinstance(proposal, Proposal):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError(
                "gate takes a Proposal: pass what `await run.reason(conversation)` returned"
            )
        if proposal.issuer is not self._scope or proposal is not self._issued:
            raise PhaseError(
                "this proposal was gated already, or is not this scope's latest: reason or propose again"
            )
        with self._scope.enter(
            "gate", recorded=self._known("gate", proposal.key, proposal.calls)
        ):
            self._issued = None
            decisions: list[Permit | Denial] = []
            questions: list[PendingQuestion] = []
            for index, call in enumerate(proposal.calls):
                decided = await self._decide(call, call_key(proposal.key, index))
                if isinstance(decided, PendingQuestion):
                    questions.append(decided)
                else:
                    decisions.append(decided)
            self._stop_if_stuck(decisions)
            if questions:
                raise await self._park(questions)
            self._gated = proposal
            cleared = self._issued = Cleared.issue(
                decisions=tuple(decisions), key=proposal.key, issuer=self._scope
            )
            self._clearance.start(cleared.permits)
            return cleared

    async def act(self, cleared: Cleared) -> tuple[Observation, ...]:
        """Run what the gate let through, at the same time; one observation for each call, in call order."""
        if not isinstance(cleared, Cleared):  # pyright: ignore[reportUnnecessaryIsInstance] - the run-time twin
            raise PhaseError(
                "act takes a Cleared: pass what `await run.gate(proposal)` returned"
            )
        if cleared.issuer is not self._scope or cleared is not self._issued:
            raise PhaseError(
                "this Cleared was acted on already, or is not this scope's latest: gate a new proposal"
            )
        begun = self._known("act", cleared.key, cleared.decisions)
        with self._scope.enter("act", recorded=begun):
            self._issued = None
            if not begun:
                await self._session.intake.wait_while_paused()
            for permit in (
                cleared.permits
            ):  # whether the policy is still the same is seen right before each call
                check_permit(permit, self._session, None)
            observations = await self._settle_all(cleared.decisions)
            for index, (decision, observation) in enumerate(
                zip(cleared.decisions, observations, strict=True)
            ):
                self._watch(decision, observation, self._proposed_hash(index, decision))
            self._keep_turn(observations)
            ran = sum(o.status not in ("denied", "rejected") for o in observations)
            self._scope.conduct.count(Usage(), 0, ran)
            return observations

    async def call(self, call: ToolCall, *, thought: str = "") -> Observation:
        """Propose, gate and act on one call that the engine writes itself: what came of it, whether it ran or not."""
        [observation] = await self.act(
            await self.gate(self.propose(call, thought=thought))
        )
        return observation

    async def permit_undo(self, call: ToolCall, key: str) -> PendingQuestion | None:
        """Have policy decide about undoing a call of a saga; raises `Denied`. For the runtime, not for engines."""
        return await self._clearance.decide_own(call, "write", self._state(key))

    def _known(self, verb: Literal["gate", "act"], key: str, calls: Sized) -> bool:
        """Whether a phase had begun, as far as the journal tells; of one without calls it tells nothing."""
        return len(calls) == 0 or self._session.replay.scopes.has_begun(verb, key)

    def _proposed_hash(self, index: int, decision: Permit | Denial) -> str:
        """The hash of the arguments as the model wrote them: by those the monitor knows a call again."""
        given = self._gated.calls[index] if self._gated is not None else decision.call
        return (
            decision.arguments_hash
            if given is decision.call
            else arguments_hash(given.arguments)
        )

    async def _settle_all(
        self, decisions: tuple[Permit | Denial, ...]
    ) -> tuple[Observation, ...]:
        if len(decisions) == 1:
            return (await self._settle_call(decisions[0]),)
        calls = [
            asyncio.ensure_future(self._settle_call(decision)) for decision in decisions
        ]
        try:
            settled = await asyncio.gather(*calls, return_exceptions=True)
        except asyncio.CancelledError:  # they have all ended, as an abort wants it
            self._keep_turn(
                _seen(
                    decisions,
                    [
                        None if c.cancelled() else c.exception() or c.result()
                        for c in calls
                    ],
                )
            )
            raise
        seen = _seen(decisions, settled)
        for outcome in settled:
            if isinstance(outcome, BaseException):
                self._keep_turn(seen)  # what its siblings found is not lost
                raise outcome
        return seen

    async def _settle_call(self, decision: Permit | Denial) -> Observation:
        try:
            return await self._executor.settle(decision)
        except (
            Suspended
        ) as waiting:  # nobody but a person can say what came of it, or what to do
            raise self._scope.halt(waiting) from None

    async def _decide(
        self, call: ToolCall, key: str
    ) -> Permit | Denial | PendingQuestion:
        return await self._clearance.decide(call, self._state(key))

    def _keep_turn(self, observations: tuple[Observation, ...]) -> None:
        if self._gated is not None:
            self._turn = (self._gated, observations)

    def _watch(
        self, decision: Permit | Denial, observation: Observation, arguments_hash: str
    ) -> None:
        tool, refused = (
            self._services.tools.get(decision.call.name),
            isinstance(decision, Denial),
        )
        nudge = self._scope.monitor.observe(
            decision.key,
            observation,
            arguments_hash,
            refused=refused,
            unknown=tool is None and refused,
            repeatable=tool is not None and tool.repeatable,
        )
        if nudge is not None:
            self._scope.nudges.append(Message("user", nudge, origin="runtime"))

    def _stop_if_stuck(self, decisions: list[Permit | Denial]) -> None:
        told: set[tuple[str, str]] = (
            set()
        )  # the same denial of several calls of one turn is one denial
        for decision in decisions:
            if not isinstance(decision, Denial):
                continue
            this = (decision.call.name, decision.reason)
            again = decision.status == "denied" and this not in told
            told.add(this)
            if again and self._scope.monitor.denied(decision.call, decision.reason):
                raise self._scope.halt(
                    Stuck(
                        "denied",
                        f"{decision.call.name} was denied again: {decision.reason}",
                    )
                )
            if decision.final:
                reason = self._scope.monitor.stop_of(decision.key)
                what = (
                    "failed in the same way"
                    if reason == "repeated_error"
                    else "was called"
                )
                raise self._scope.halt(
                    Stuck(reason, f"{decision.call.name} {what} again and again")
                )

    async def _park(self, questions: list[PendingQuestion]) -> LoopwrightError:
        """Wait for a person, unless one said `stop`; gives the error to be raised.

        The questions are in the journal at once, since other branches may go on for long.
        """
        if self._session.command_log.stopping:
            return self._session.intake.stop_signal()
        self._session.pending.extend(questions)
        waiting = Suspended(f"waiting for {len(questions)} decision(s)")
        self._scope.halt(waiting)
        await self._session.writer.barrier()
        return waiting

    async def _settle(self, question: Question) -> Reply:
        scope = self._scope
        await self._between_steps(question.verb)
        nudges, scope.nudges = tuple(scope.nudges), []
        guidance, commands = self._session.command_log.guidance_after(scope.heard)
        delivered = (*nudges, *guidance)
        reply = await self._inference.settle(
            scope.next_key(), question, delivered, scope.iteration, commands
        )
        scope.heard = max((scope.heard, *reply.commands))
        scope.conduct.count(reply.completion.usage, 1, 0)
        return reply

    async def _between_steps(self, verb: str) -> None:
        """Before a model call: stand still or end if people want it so, and make the calls that they want made."""
        session = self._session
        while True:
            key = self._scope.upcoming()
            recorded = session.replay.effects.outcome(key)
            if isinstance(recorded, CallsProposed) and recorded.command:
                await self._operate(recorded.calls[0], recorded.command)
                continue
            if recorded is not None:
                return
            await session.intake.wait_while_paused()
            free = session.replay.effects.intent(key) is None and verb != "best_answer"
            command = self._override() if free else None
            if command is None:
                return
            session.replay.approvals.used.add(command.number)
            arguments = cast("JsonObject", command.body["arguments"])
            call = ToolCall(
                str(command.body["tool"]), arguments, f"operator_{plain(key)}"
            )
            await self._operate(call, command.number)

    def _override(self) -> Command | None:
        """The next call that a person wants made, if it is for this scope: those that have its tool make it.

        One that no engine of the run has is the root engine's, which says so.
        """
        told, taken = self._session.command_log, self._session.replay.approvals.used
        for command in told.unused(OVERRIDE, taken):
            tool = str(command.body["tool"])
            if self._services.tools.get(tool) is not None or not (
                self._scope.conduct.is_inner or self._is_below(tool)
            ):
                return command
        return None

    def _is_below(self, tool: str) -> bool:
        """Whether this engine, or one that works for it, has a tool."""
        return False

    async def _operate(self, call: ToolCall, command: int) -> None:
        """Make a call that a person wants made: gated like any, and the model is told what came of it."""
        key = self._scope.next_key()
        [named] = self._proposed(key, (call,), command)
        decided = await self._decide(named, call_key(key, 0))
        if isinstance(decided, PendingQuestion):
            raise await self._park([decided])
        if isinstance(decided, Permit):
            self._clearance.start([decided])
        observation = await self._settle_call(decided)
        self._scope.nudges.extend(self._operated(named, decided, observation))

    def _operated(
        self, call: ToolCall, decided: Permit | Denial, observation: Observation
    ) -> Iterator[Message]:
        """What the model is told of such a call: the person's words apart from those of the tool."""
        arguments = canonical_json(dict(call.arguments)).decode()
        told = f"{OPERATOR_CALL_PREFIX} {call.name}({arguments}): {observation.status}"
        tool = self._services.tools.get(call.name)
        if isinstance(decided, Denial) or (tool is not None and tool.trusted):
            yield Message("user", f"{told}\n{observation.content}", origin="operator")
            return
        yield Message("user", told, origin="operator")
        said = fence(
            observation.content, source=call.name, delimiter=self._session.delimiter
        )
        yield Message("user", said, origin="tool")

    async def _mend(self, key: str, question: Question) -> Reply:
        """A question of a recovery: not counted as the engine's own, since nothing goes through it again on replay."""
        return await self._inference.settle(key, question, (), self._scope.iteration)

    def _propose(
        self, key: str, completion: Completion, delivered: tuple[Message, ...]
    ) -> Proposal:
        self._issued = Proposal.issue(
            thought=completion.thought
            or (
                completion.text
                if completion.answer is None and not completion.calls
                else ""
            ),
            calls=with_ids(completion.calls, key),
            answer=completion.answer,
            delivered=delivered,
            reasoning=completion.reasoning,
            key=key,
            issuer=self._scope,
        )
        return self._issued

    def _state(self, key: str) -> PolicyState:
        session, budget = self._session, self._session.budget
        return PolicyState(
            self.run_id, key, self._engine_name, self._scope.iteration, budget.llm_calls, budget.tool_calls,
            session.sensitivity.label, session.sensitivity.untrusted, session.services.clock.wall(),
        )  # fmt: skip


def _seen(
    decisions: Sequence[Permit | Denial], settled: Sequence[object]
) -> tuple[Observation, ...]:
    """One observation for each call, also of those that came to nothing."""
    return tuple(
        came
        if isinstance(came, Observation)
        else Observation(decision.call, "cancelled", NOT_RUN)
        for decision, came in zip(decisions, settled, strict=True)
    )


def with_ids(calls: tuple[ToolCall, ...], key: str) -> tuple[ToolCall, ...]:
    """The calls with an id each, unique among them."""
    ids = [call.id for call in calls]
    if all(ids) and len(set(ids)) == len(ids):
        return calls
    return tuple(
        dataclasses.replace(c, id=f"call_{plain(key)}_{i}") for i, c in enumerate(calls)
    )


def plain(key: str) -> str:
    """A key in the letters that every provider allows in a call id."""
    return key.replace(".", "_")
