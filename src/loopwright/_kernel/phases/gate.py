"""From a proposed call to a permit or a denial: schema, progress, gates, approver; when in doubt, no."""

import copy
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from ...errors import Denied
from ...events.effect_key import EffectKey
from ...events.effects import GateDecided, GateVerdict, ToolFinished, ToolStarted
from ...events.run import Question
from ...gates.base import (
    PERMIT_SECONDS,
    Action,
    Allow,
    Approver,
    Ask,
    Decision,
    Denial,
    Deny,
    Modify,
    Permit,
    PolicyGate,
    PolicyState,
    Suspend,
    is_instant,
)
from ...labels import is_at_least
from ...messages import Effect, JsonObject, ObservationStatus, ToolCall, arguments_hash
from ...resilience.timeouts import capture, run_with_timeout
from ...security.redaction.messages import redact_calls
from ...tools.base import Tool
from ..control.command_log import HumanDecision
from ..control.questions import question_of
from ..session.progress_monitor import ProgressMonitor
from ..session.secrets import SECRET_LOST
from ..session.services import Services
from ..session.session import Session
from .tool_call import ToolPermit

Told: TypeAlias = Allow | Deny | Modify | Question
GATE_TIMEOUT = 1.0  # seconds for a gate that does not say how many it needs
MAX_ROUNDS = 3  # a call is gated once, and again after each of at most two changes
REFUSALS: dict[GateVerdict, ObservationStatus] = {
    "deny": "denied",
    "invalid": "rejected",
    "blocked": "rejected",
    "stuck": "rejected",
}
KEEPS_CHANGING = "the policy keeps changing the arguments"
NO_ANSWER = "the policy put something in its place that is no text"
CANNOT_CHANGE = (
    "the policy wants other arguments, and this is no tool call that could have them"
)
NOBODY_TO_ASK = (
    "it needs a person's approval and nobody is there to give it "
    "(allow it with Runtime(approver=...), or wait for a decision with Runtime(approver=Suspend()))"
)


@functools.cache
def _class_version(gate_type: type[Any]) -> str:
    return f"{gate_type.__module__}.{gate_type.__qualname__}"


def policy_version(gates: Sequence[PolicyGate]) -> str:
    """The versions of the gates that must all allow."""
    return "+".join(map(gate_version, gates))


def gate_version(gate: PolicyGate) -> str:
    """Return the version of a gate: what it says itself, else the name of its class."""
    return getattr(gate, "version", None) or _class_version(type(gate))


@dataclasses.dataclass(frozen=True)
class Guard:
    """A gate, with who answers what it asks."""

    gate: PolicyGate
    approver: Approver | Suspend | None

    @classmethod
    def of(cls, services: Services) -> "Guard":
        """The guard of a runtime."""
        return cls(services.gate, services.approver)


@dataclasses.dataclass(frozen=True)
class _Case:
    """One call to be decided about, as it stands by now, under the version of the policy that decides."""

    call: ToolCall
    hashed: str
    key: str
    version: str
    effect: Effect
    tool: Tool | None
    is_own: bool
    """Whether it is not a tool's call, but something that the engine or the runtime does itself."""
    changed: bool = False


@dataclasses.dataclass(frozen=True)
class Clearance:
    """Decides about the calls of one scope; every decision is recorded before anything runs."""

    session: Session
    services: Services
    guards: tuple[Guard, ...]
    monitor: ProgressMonitor

    def version(self) -> str:
        """Return the versions of the gates that must all allow."""
        if len(self.guards) == 1:
            return gate_version(self.guards[0].gate)
        return policy_version([guard.gate for guard in self.guards])

    async def decide(
        self, call: ToolCall, state: PolicyState
    ) -> Permit | Denial | Question:
        """A permit, a denial, or the question that someone has to answer first."""
        hashed = arguments_hash(call.arguments)
        tool = self.services.tools.get(call.name)
        effect = tool.effect if tool is not None else None
        recorded = self._recorded(call, hashed, state.key, effect, tool)
        if recorded is not None:
            return recorded
        known = self.session.replay.approvals.decision(state.key)
        if (
            known is not None
            and known.verdict == "ask"
            and self.session.replay.is_withdrawn(state.key)
        ):
            return question_of(
                state.key, known, call.arguments
            )  # whatever was said since
        if self.session.secrets.is_lost(state.key):
            return self._refuse(
                self._case(call, hashed, state.key, tool), "invalid", SECRET_LOST
            )
        unknown = self._unknown(call, tool)
        stop = self.monitor.step(state.key, call.name, hashed, unknown)
        if stop is not None:
            return self._refuse(
                self._case(call, hashed, state.key, tool), stop.verdict, stop.reason
            )
        return await self._gate(call, hashed, state, tool)

    def start(self, decisions: Iterable[Permit | Denial]) -> None:
        """Start the life of permits, once all calls of a proposal are decided.

        A person may take long over one of its calls.
        """
        expires = self.session.active.seconds() + PERMIT_SECONDS
        for decision in decisions:
            if isinstance(decision, Permit):
                vars(decision)["expires"] = expires

    async def decide_own(
        self, call: ToolCall, effect: Effect, state: PolicyState
    ) -> Question | None:
        """The same for what is no tool: an engine's own effect, or a delegation. Raises `Denied`."""
        hashed = arguments_hash(call.arguments)
        recorded = self._recorded(call, hashed, state.key, effect, None)
        decided = recorded or await self._gate(call, hashed, state, None, effect)
        if isinstance(decided, Question):
            return decided
        if isinstance(decided, Denial):
            raise Denied(f"{call.name}: {decided.reason}")
        self.session.permits.discard(decided)
        return None

    async def decide_answer(
        self, call: ToolCall, state: PolicyState
    ) -> str | Denial | Question | None:
        """What gates say of a run's answer: another one, a denial, a question to a person, or nothing against it.

        Only a gate with a true `answers` is asked: one that knows tools alone would refuse every answer.
        """
        if not self.judges_answers:
            return None
        hashed = arguments_hash(call.arguments)
        recorded = self._recorded(call, hashed, state.key, "read", None)
        decided = recorded or await self._gate(
            call, hashed, state, None, "read", free=True
        )
        if not isinstance(decided, Permit):
            return decided
        self.session.permits.discard(decided)
        changed = decided.call.arguments.get("answer")
        if not isinstance(changed, str):
            return Denial(call, hashed, state.key, "denied", NO_ANSWER)
        return changed if changed != call.arguments["answer"] else None

    @property
    def judges_answers(self) -> bool:
        """Whether the gate wants to see a run's answer, which is that of the outermost engine: it has one gate."""
        return any(getattr(guard.gate, "answers", False) for guard in self.guards)

    def _recorded(
        self,
        call: ToolCall,
        hashed: str,
        key: str,
        effect: Effect | None,
        tool: Tool | None,
    ) -> Permit | Denial | None:
        """What the journal says about this call, as far as it still holds; `effect` is what it does as of now."""
        replay = self.session.replay
        known = replay.approvals.decision(key)
        if known is None:
            return None
        if known.tool != call.name or (
            known.arguments is None and known.arguments_hash not in ("", hashed)
        ):
            raise self.session.signals.diverge(
                key,
                f"a decision about {known.tool}",
                f"{call.name} with other arguments",
            )
        if known.arguments is not None:
            call = dataclasses.replace(call, arguments=known.arguments)
        if known.verdict == "ask":
            return None
        if known.verdict in REFUSALS:
            if known.verdict in ("blocked", "stuck"):
                ends = known.stop or (
                    "repeated_action" if known.verdict == "stuck" else ""
                )
                unknown = self._unknown(call, tool)
                self.monitor.recall(key, call.name, hashed, unknown, ends)
            return Denial(
                call,
                hashed,
                key,
                REFUSALS[known.verdict],
                known.reason,
                final=known.verdict == "stuck",
            )
        holds = known.policy_version == self.version() and (
            not known.effect or effect in (None, known.effect)
        )
        holds = (
            holds
            and not self.session.secrets.is_lost(key)
            and not self.session.command_log.may_be_revoked(known.command)
        )
        holds = holds and not (
            known.until and known.until <= self.session.services.clock.wall()
        )
        if (
            holds
            or isinstance(replay.effects.intent(key), ToolStarted)
            or isinstance(replay.effects.outcome(key), ToolFinished)
        ):
            return self._taken_back(call, known, key, tool) or self._permit(
                call, known.arguments_hash, key, known, tool
            )
        return None

    def _taken_back(
        self, call: ToolCall, known: GateDecided, key: str, tool: Tool | None
    ) -> Denial | None:
        """A denial, if a person said no after the yes that a decision rests on and before anything came of it."""
        if self.session.replay.approvals.unused_approval(key) is None:
            return None
        no = self.session.intake.find_revocation(key, call.name, known.command)
        if no is None:
            return None
        case = self._case(call, known.arguments_hash, key, tool)
        return self._refuse(
            dataclasses.replace(case, changed=known.arguments is not None),
            "deny",
            no.reason,
            no,
        )

    def _unknown(self, call: ToolCall, tool: Tool | None) -> str:
        """Return what to say of a tool that does not exist; empty if it does."""
        if tool is not None:
            return ""
        return self.services.tools.find_problem(call.name, call.arguments) or ""

    async def _gate(
        self,
        call: ToolCall,
        hashed: str,
        state: PolicyState,
        tool: Tool | None,
        effect: Effect | None = None,
        *,
        free: bool = False,
    ) -> Permit | Denial | Question:
        reasons: list[str] = []
        case = self._case(call, hashed, state.key, tool, effect)
        for _ in range(MAX_ROUNDS):
            # What runs, and what the gates see; only the call without its secrets is recorded.
            real = self.session.secrets.get(case.key) or case.call
            problem = self._problem(case, real, effect)
            if problem is not None:
                return self._refuse(case, "invalid", problem)
            decision, leave = await self._decided(self._action(case, real), state, case)
            if isinstance(decision, Question):
                asked = self._record(case, "ask", decision.text, until=decision.expires)
                return dataclasses.replace(
                    decision, text=asked.reason, arguments=case.call.arguments
                )
            if isinstance(decision, Deny):
                return self._refuse(case, "deny", decision.reason, leave)
            if isinstance(decision, Allow) or arguments_hash(
                decision.arguments
            ) == arguments_hash(real.arguments):
                if case.version == self.version():
                    return self._allow(case, "; ".join(reasons), leave)
                case = dataclasses.replace(
                    case, version=self.version()
                )  # the rules changed while a person decided
                continue
            if effect is not None and not free:
                return self._refuse(case, "deny", f"{CANNOT_CHANGE}: {decision.reason}")
            changed = self._changed(case.call, decision.arguments, case.key)
            hashed, version = arguments_hash(changed.arguments), self.version()
            case = dataclasses.replace(
                case, call=changed, hashed=hashed, version=version, changed=True
            )
            reasons.append(decision.reason)
        return self._refuse(
            case,
            "deny",
            KEEPS_CHANGING if case.changed else "the policy keeps changing",
        )

    def _problem(
        self, case: _Case, real: ToolCall, effect: Effect | None
    ) -> str | None:
        """Why a call cannot be gated: it fits no tool, or nothing that could be written down."""
        problem = (
            None
            if effect
            else self.services.tools.find_problem(real.name, real.arguments)
        )
        if problem is None and not case.hashed:
            return f"The arguments of {real.name} are not plain JSON."
        return problem

    def _changed(self, call: ToolCall, arguments: JsonObject, key: str) -> ToolCall:
        """The call with other arguments, as it is recorded; secrets among them are kept for the tool."""
        whole = dataclasses.replace(call, arguments=arguments)
        (clean,), originals = redact_calls(self.session.secrets.redactor, (whole,))
        self.session.secrets.discard(key)
        if originals:
            self.session.secrets.keep(key, whole)
        return clean

    def _case(
        self,
        call: ToolCall,
        hashed: str,
        key: str,
        tool: Tool | None,
        own: Effect | None = None,
    ) -> _Case:
        effect = own or (tool.effect if tool else "write")
        version, is_own = self.version(), own is not None
        return _Case(call, hashed, key, version, effect, tool, is_own)

    def _action(self, case: _Case, real: ToolCall) -> Action:
        """The call as gates see it, with what the run may pass on by it."""
        session, call = self.session, case.call
        defaults: JsonObject = {}
        if case.tool is not None and case.tool.defaults:
            defaults = copy.deepcopy(case.tool.defaults)
        labels: set[str] = (
            {session.sensitivity.label}
            if is_at_least(session.sensitivity.label, "sensitive")
            else set()
        )
        labels |= {"untrusted"} if session.sensitivity.untrusted else set()
        return Action(
            call.name, real.arguments, call.id, case.effect, frozenset(labels), defaults
        )

    async def _decided(
        self, action: Action, state: PolicyState, case: _Case
    ) -> tuple[Told, HumanDecision | None]:
        """What all gates together say, and a person where they ask. A denial comes first, then a change.

        A person is asked about the call as it would be made: one that a gate changes is gated again before. With the
        decision comes the word of the person that it rests on, if that came from outside.
        """
        hashed = arguments_hash(action.arguments)
        change: Modify | None = None
        questions: list[tuple[Guard, Ask]] = []
        for guard in self.guards:
            decision = await _evaluate(
                guard.gate, action, state, self.session.remaining()
            )
            if isinstance(decision, Deny):
                return decision, None
            if isinstance(decision, Ask):
                questions.append((guard, decision))
            elif (
                isinstance(decision, Modify)
                and arguments_hash(decision.arguments) != hashed
            ):
                change = change or decision
        if change is not None or not questions:
            return change or Allow(), None
        return await self._answered(questions, action, case)

    async def _answered(
        self, questions: Sequence[tuple[Guard, Ask]], action: Action, case: _Case
    ) -> tuple[Told, HumanDecision | None]:
        """What people say to all that gates ask about a call: the first refusal or open question, else their leave.

        Of leave that several guards have, that which ends first.
        """
        change: Modify | None = None
        leave: HumanDecision | None = None
        for guard, ask in questions:
            given: HumanDecision | None = None
            if isinstance(guard.approver, Suspend):
                answer, given = self._leave(guard.approver, action, ask, case)
            else:
                if EffectKey.parse(
                    case.key
                ).is_effect:  # an answer, and undoing, come after the end
                    self.session.signals.check(begun=True)
                answer = await self._ask(guard.approver, action, ask)
            if isinstance(answer, (Deny, Question)):
                return answer, given
            leave = min(
                filter(None, (leave, given)),
                key=lambda known: known.until,
                default=None,
            )
            if isinstance(answer, Modify):
                change = change or answer
        return change or Allow(), leave

    def _leave(
        self, suspend: Suspend, action: Action, ask: Ask, case: _Case
    ) -> tuple[Told, HumanDecision | None]:
        """What a person said from outside about the call, if anybody did and it holds; else the question."""
        session, key, hashed, version = (
            self.session,
            case.key,
            case.hashed,
            case.version,
        )
        now = session.services.clock.wall()
        known = session.replay.approvals.decision(key)
        asked = (
            known
            if known and (known.verdict, known.policy_version) == ("ask", version)
            else None
        )
        since = session.replay.approvals.approval_entries.get(key)
        leave = (
            session.command_log.find_decision(
                key, since, hashed, version, suspend.holds
            )
            if asked
            else None
        )
        if leave is None or (leave.allowed and leave.until <= now):
            leave = session.command_log.find_grant(action.tool, version, now)
        if leave is not None and not leave.allowed:
            return Deny(leave.reason), leave
        if leave is not None:
            return (
                Allow()
                if leave.arguments is None
                else Modify(leave.arguments, "a person changed it")
            ), leave
        asked = asked if asked and asked.arguments_hash == hashed else None
        if asked and asked.until and asked.until <= now:
            return Deny("nobody approved it in time"), None
        expires = (
            asked.until
            if asked
            else 0.0
            if suspend.expires is None
            else now + suspend.expires
        )
        return Question(
            key,
            ask.question,
            action.tool,
            action.arguments,
            action.call_id,
            "approval",
            hashed,
            version,
            expires,
        ), None

    async def _ask(
        self, approver: Approver | None, action: Action, ask: Ask
    ) -> Allow | Deny | Modify:
        if approver is None:
            return Deny(f"{action.tool} was not run: {NOBODY_TO_ASK}")
        with self.session.active.waiting():
            ended = await run_with_timeout(_call(approver, action, ask.question), None)
        if ended.error is not None:
            return Deny("the approver failed, so the call was not approved")
        answer = ended.value
        if isinstance(answer, (Allow, Deny, Modify)):
            return _fit(answer) if isinstance(answer, Modify) else answer
        return Allow() if answer is True else Deny("a person refused it")

    def _allow(self, case: _Case, reason: str, leave: HumanDecision | None) -> Permit:
        until = 0.0 if leave is None else leave.until
        decided = self._record(
            case, "modify" if case.changed else "allow", reason, leave, until
        )
        return self._permit(case.call, case.hashed, case.key, decided, case.tool)

    def _permit(
        self,
        call: ToolCall,
        hashed: str,
        key: str,
        decided: GateDecided,
        tool: Tool | None,
    ) -> Permit:
        real = self.session.secrets.get(key)
        permit = ToolPermit.issue(
            call=call,
            tool=tool,
            arguments_hash=hashed,
            policy_version=decided.policy_version,
            run_id=self.session.run_id,
            key=key,
            expires=self.session.active.seconds() + PERMIT_SECONDS,
            real=real,
            real_hash="" if real is None else arguments_hash(real.arguments),
            until=decided.until,
            leave=decided.command,
        )
        self.session.permits.add(permit)
        return permit

    def _refuse(
        self,
        case: _Case,
        verdict: GateVerdict,
        reason: str,
        leave: HumanDecision | None = None,
    ) -> Denial:
        told = self._record(case, verdict, reason, leave).reason
        return Denial(
            case.call,
            case.hashed,
            case.key,
            REFUSALS[verdict],
            told,
            final=verdict == "stuck",
        )

    def _record(
        self,
        case: _Case,
        verdict: GateVerdict,
        reason: str,
        leave: HumanDecision | None = None,
        until: float = 0.0,
    ) -> GateDecided:
        """Record a decision, with the policy version that it was made under and the word that it rests on."""
        call, key = case.call, case.key
        # A call in place of a failed one stands nowhere else, nor does what people are asked about and is no call.
        alone = (
            EffectKey.parse(key).step is not None
            and verdict in ("allow", "modify", "ask")
        ) or (case.is_own and verdict == "ask")
        arguments = call.arguments if case.hashed and (case.changed or alone) else None
        waited, stop, sealed = (
            self.session.active.take_waited(),
            self.monitor.stop_of(key),
            key in self.session.secrets,
        )
        decided = GateDecided(
            call.name, call.id, verdict, self.session.secrets.redactor.redact_text(reason), case.version, case.hashed,
            arguments,
            waited, stop, sealed, 0 if leave is None else leave.command.number, until, case.effect,
        )  # fmt: skip
        seq = self.session.writer.record(key, decided).seq
        if verdict == "ask":
            self.session.replay.approvals.note_expiry(decided, seq)
        return decided


def _fit(change: Modify) -> Modify | Deny:
    """A change as a journal gives it back; a denial if none can hold it."""
    try:
        return Modify(
            from_json(to_json(change.arguments), allow_inf_nan=False), change.reason
        )
    except (TypeError, ValueError, RecursionError):
        return Deny("the policy wants arguments that are not plain JSON")


async def _call(approver: Any, action: Action, question: str) -> Any:
    return await approver(action, question)


async def _evaluate(
    gate: PolicyGate, action: Action, state: PolicyState, remaining: float | None
) -> Decision:
    """Ask one gate; whatever is not a decision in time, that of the run or its own, denies."""
    if is_instant(gate):
        ended = capture(lambda: gate.decide(action, state))
    else:
        timeout = float(getattr(gate, "timeout", GATE_TIMEOUT))
        ended = await run_with_timeout(
            _consult(gate, action, state),
            timeout if remaining is None else min(timeout, remaining),
        )
    if ended.timed_out:
        return Deny("the policy gate did not decide in time")
    if ended.error is not None:
        return Deny(f"the policy gate failed ({type(ended.error).__name__})")
    if isinstance(ended.value, (Allow, Deny, Ask)):
        return ended.value
    if isinstance(ended.value, Modify):
        return _fit(ended.value)
    return Deny(f"the policy gate gave no decision ({type(ended.value).__name__})")


async def _consult(gate: PolicyGate, action: Action, state: PolicyState) -> Any:
    given, defaults = (
        copy.deepcopy(dict(action.arguments)),
        copy.deepcopy(action.defaults),
    )  # to keep, even to change
    own = dataclasses.replace(action, arguments=given, defaults=defaults)
    return await gate.evaluate(own, state)
