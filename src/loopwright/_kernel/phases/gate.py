"""Decide about a call before anything runs: its schema, progress, policy gates and people."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from ..._internal import dataclasses
from ...errors import Denied
from ...events.effect_key import is_substitute
from ...events.effects import GateDecided, GateVerdict
from ...events.run import Question
from ...gates.base import (
    PERMIT_SECONDS,
    Action,
    Allow,
    Ask,
    Denial,
    Deny,
    Modify,
    Permit,
    PolicyGate,
    PolicyState,
)
from ...messages import Effect, ObservationStatus, ToolCall, hash_arguments
from ...security.redaction.messages import redact_calls
from ...tools.base import Tool
from ..control.command_log import HumanDecision
from ..control.questions import build_question
from ..session.progress_monitor import ProgressMonitor
from ..session.secrets import SECRET_LOST
from ..session.services import Services
from ..session.session import Session
from .approvals import ApprovalRequest, Guard, Ruling, ask_people
from .gate_consultation import consult_gate, describe_action
from .gated_call import GatedCall, check_same_call, counts, find_own_call
from .permits import ToolPermit

MAX_ROUNDS = 3  # a call is gated once, and again after each of at most two changes
REFUSALS: dict[GateVerdict, ObservationStatus] = {
    "deny": "denied",
    "invalid": "rejected",
    "blocked": "rejected",
    "stuck": "rejected",
}
NOT_REFUSED = ("allow", "modify", "ask")
POLICY_CHANGES = "the policy keeps changing"
ARGUMENTS_CHANGE = "the policy keeps changing the arguments"
TOO_MANY_CALLS = "At most {} calls are made in one turn; propose this one again if it is still wanted."
ASK_AGAIN = "The run makes no progress: {} Shall the call be made all the same?"
NOT_AN_ANSWER = "the policy replaced it by something that is not a text"
CANNOT_CHANGE = (
    "the policy wants other arguments, which only a call of a tool could have"
)


@functools.cache
def _class_version(gate_type: type[Any]) -> str:
    return f"{gate_type.__module__}.{gate_type.__qualname__}"


def policy_version(gates: Sequence[PolicyGate]) -> str:
    """Return the versions of the gates that must all allow."""
    return "+".join(map(gate_version, gates))


def gate_version(gate: PolicyGate) -> str:
    """Return the version of a gate: what it says itself, else the name of its class."""
    return getattr(gate, "version", None) or _class_version(type(gate))


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
        """Return a permit, a denial, or the question that a person has to answer first."""
        gated = self._prepare(
            call, state.key, self.services.tools.by_name.get(call.name)
        )
        known = self.session.replay.approvals.decision(state.key)
        if known is not None:
            recorded = self._find_recorded(gated, known)
            if recorded is not None:
                return recorded
            if known.verdict == "ask" and self.session.replay.is_cancelled(state.key):
                return build_question(state.key, known, call.arguments)
        problem = self._find_early_problem(state.key)
        if problem:
            return self._refuse(gated, "invalid", problem)
        unknown = "" if gated.tool is not None else self._unknown_tool(gated)
        stop = self.monitor.check_call(
            state.key, call.name, gated.arguments_hash, unknown
        )
        if stop is not None:
            if stop.verdict != "stuck" or self.session.progress.then != "ask":
                return self._refuse(gated, stop.verdict, stop.reason)
            gated = dataclasses.replace(gated, question=ASK_AGAIN.format(stop.reason))
        return await self._gate(gated, state)

    def _find_early_problem(self, key: str) -> str:
        """Return why a call is not even looked at; empty if it is."""
        secrets = self.session.secrets
        if secrets.withheld and secrets.is_lost(key):
            return SECRET_LOST
        limit = self.services.limits.max_calls_per_turn
        number = key.rpartition("#")[2]  # a substitute call has more than a number
        if limit is None or not number.isdecimal() or int(number) < limit:
            return ""
        return TOO_MANY_CALLS.format(limit)

    def start(self, decisions: Iterable[Permit | Denial | Question]) -> None:
        """Start the life of permits, once all calls of a proposal are decided.

        A person may take long over one of its calls.
        """
        expires = self.session.active.seconds() + PERMIT_SECONDS
        for decision in decisions:
            if isinstance(decision, Permit):
                vars(decision)["expires"] = expires

    async def decide_own(
        self,
        call: ToolCall,
        effect: Effect,
        state: PolicyState,
        written: ToolCall | None = None,
    ) -> Question | None:
        """Decide about an effect of the engine's own, or a delegation; raise `Denied`.

        Return the question that a person has to answer first, if there is one. `written` is the call with its secrets,
        which may have been none when it was decided about before.
        """
        decided = await self._decide_own(call, effect, state, written or call)
        if isinstance(decided, Question):
            return decided
        if isinstance(decided, Denial):
            raise Denied(f"{call.name}: {decided.reason}")
        self.session.permits.discard(decided)
        return None

    async def decide_answer(
        self, call: ToolCall, state: PolicyState
    ) -> str | Denial | Question | None:
        """Return another answer, a denial or a question to a person; `None` if the answer may stand.

        Only a gate with a true `answers` is asked: one that knows tools alone would refuse all.
        """
        if not self.judges_answers:
            return None
        decided = await self._decide_own(call, "read", state, call, may_change=True)
        if not isinstance(decided, Permit):
            return decided
        self.session.permits.discard(decided)
        answer = decided.call.arguments.get("answer")
        if not isinstance(answer, str):
            hashed = hash_arguments(call.arguments)
            return Denial(call, hashed, state.key, "denied", NOT_AN_ANSWER)
        answer = self.session.secrets.redactor.redact_text(answer)
        return answer if answer != call.arguments["answer"] else None

    @property
    def judges_answers(self) -> bool:
        """Whether the gate decides about answers; the outermost engine, which gives it, has one."""
        return any(getattr(guard.gate, "answers", False) for guard in self.guards)

    async def _decide_own(
        self,
        call: ToolCall,
        effect: Effect,
        state: PolicyState,
        written: ToolCall,
        *,
        may_change: bool = False,
    ) -> Permit | Denial | Question:
        gated = self._prepare(call, state.key, None, effect)
        known = self.session.replay.approvals.decision(state.key)
        found = None if known is None else find_own_call(gated, known, written)
        if known is None or found is None:
            return await self._gate(gated, state, may_change=may_change)
        recorded = self._find_recorded(found, known)
        return recorded or await self._gate(found, state, may_change=may_change)

    def _prepare(
        self, call: ToolCall, key: str, tool: Tool | None, own: Effect | None = None
    ) -> GatedCall:
        effect = own or (tool.effect if tool is not None else "write")
        hashed, version = hash_arguments(call.arguments), self.version()
        return GatedCall(call, hashed, key, version, effect, tool, own is not None)

    # --- what the journal already says ---

    def _find_recorded(
        self, gated: GatedCall, known: GateDecided
    ) -> Permit | Denial | None:
        """Return what was decided about a call before, as far as it still holds."""
        check_same_call(self.session, gated, known)
        if known.verdict == "ask":
            return None
        if known.arguments is not None:
            call = dataclasses.replace(gated.call, arguments=known.arguments)
            gated = dataclasses.replace(gated, call=call, is_changed=True)
        if known.verdict in REFUSALS:
            return self._repeat_refusal(gated, known)
        if not counts(self.session, gated, known):
            return None
        gated = dataclasses.replace(gated, arguments_hash=known.arguments_hash)
        return self._revoke(gated, known) or self._permit(gated, known)

    def _repeat_refusal(self, gated: GatedCall, known: GateDecided) -> Denial:
        call, is_stuck = gated.call, known.verdict == "stuck"
        if known.verdict in ("blocked", "stuck"):
            stop = known.stop or ("repeated_action" if is_stuck else "")
            unknown = self._unknown_tool(gated)
            self.monitor.restore(
                gated.key, call.name, gated.arguments_hash, unknown, stop
            )
        status = REFUSALS[known.verdict]
        reason = self.session.secrets.redactor.redact_text(known.reason)
        return Denial(
            call, gated.arguments_hash, gated.key, status, reason, final=is_stuck
        )

    def _revoke(self, gated: GatedCall, known: GateDecided) -> Denial | None:
        """Return a denial if a person revoked the approval before the call began."""
        if self.session.replay.approvals.unused_approval(gated.key) is None:
            return None
        revocation = self.session.intake.find_revocation(
            gated.key, gated.call.name, known.command
        )
        if revocation is None:
            return None
        return self._refuse(gated, "deny", revocation.reason, revocation)

    # --- what gates and people say now ---

    async def _gate(
        self, gated: GatedCall, state: PolicyState, *, may_change: bool = False
    ) -> Permit | Denial | Question:
        await self.session.replay_end.reach(gated.key)
        for _ in range(MAX_ROUNDS):
            decided = await self._gate_once(gated, state, may_change)
            if not isinstance(decided, GatedCall):
                return decided
            gated = decided
        reason = ARGUMENTS_CHANGE if gated.is_changed else POLICY_CHANGES
        return self._refuse(gated, "deny", reason)

    async def _gate_once(
        self, gated: GatedCall, state: PolicyState, may_change: bool
    ) -> Permit | Denial | Question | GatedCall:
        """Return the decision, or the changed call that has to be gated again."""
        # What runs, and what the gates see; only the call without its secrets is recorded.
        real = self.session.secrets.get(gated.key) or gated.call
        problem = self._find_problem(gated, real)
        if problem is not None:
            return self._refuse(gated, "invalid", problem)
        action = describe_action(self.session, self.services, gated, real, state)
        ruling = await self._rule(action, state, gated)
        decision = ruling.decision
        if isinstance(decision, Question):
            return self._ask(gated, decision)
        if isinstance(decision, Deny):
            return self._refuse(gated, "deny", decision.reason, ruling.approval)
        if isinstance(decision, Modify) and _differs(decision, real):
            if gated.is_own and not may_change:
                reason = f"{CANNOT_CHANGE}: {decision.reason}"
                return self._refuse(gated, "deny", reason)
            return self._change(gated, decision)
        version = self.version()
        if gated.policy_version != version:  # it changed while a person decided
            return dataclasses.replace(gated, policy_version=version)
        return self._allow(gated, ruling.approval)

    def _unknown_tool(self, gated: GatedCall) -> str:
        """Return what to say of a tool that does not exist; empty if it does."""
        if gated.tool is not None:
            return ""
        call = gated.call
        return self.services.tools.find_problem(call.name, call.arguments) or ""

    def _find_problem(self, gated: GatedCall, real: ToolCall) -> str | None:
        """Return why a call cannot be gated: it fits no tool, or cannot be recorded."""
        if not gated.is_own:
            problem = self.services.tools.find_problem(real.name, real.arguments)
            if problem is not None:
                return problem
        if not gated.arguments_hash:
            return f"The arguments of {real.name} are not plain JSON."
        return None

    async def _rule(
        self, action: Action, state: PolicyState, gated: GatedCall
    ) -> Ruling:
        """Return what all gates decide together, and people where a gate asks.

        A denial comes first, then a change. People are asked about the call as it would be made:
        one that a gate changes is gated again before.
        """
        change: Modify | None = None
        questions: list[tuple[Guard, Ask]] = []
        if gated.question:
            questions.append((self.guards[0], Ask(gated.question)))
        for guard in self.guards:
            decision = await consult_gate(self.session, guard.gate, action, state)
            if isinstance(decision, Deny):
                return Ruling(decision)
            if isinstance(decision, Ask):
                questions.append((guard, decision))
            elif isinstance(decision, Modify) and _differs(decision, action):
                change = change or decision
        if change is not None or not questions:
            return Ruling(change or Allow())
        request = ApprovalRequest(
            action, gated.key, gated.arguments_hash, gated.policy_version, gated.tool
        )
        return await ask_people(self.session, questions, request)

    def _change(self, gated: GatedCall, change: Modify) -> GatedCall:
        """Return the call with other arguments; secrets among them are kept for the tool alone."""
        secrets = self.session.secrets
        whole = dataclasses.replace(gated.call, arguments=change.arguments)
        (clean,), originals = redact_calls(secrets.redactor, (whole,))
        secrets.discard(gated.key)
        if originals:
            secrets.keep(gated.key, whole)
        return dataclasses.replace(
            gated,
            call=clean,
            arguments_hash=hash_arguments(clean.arguments),
            policy_version=self.version(),
            is_changed=True,
            reasons=(*gated.reasons, change.reason),
        )

    # --- decisions: recorded first ---

    def _ask(self, gated: GatedCall, question: Question) -> Question:
        reason = self._redact(question.text)
        decided = self._record(gated, "ask", reason, until=question.expires)
        return dataclasses.replace(
            question, text=decided.reason, arguments=gated.call.arguments
        )

    def _allow(self, gated: GatedCall, approval: HumanDecision | None) -> Permit:
        verdict: GateVerdict = "allow"
        reason = ""
        if gated.is_changed:
            verdict, reason = "modify", self._redact("; ".join(gated.reasons))
        return self._permit(gated, self._record(gated, verdict, reason, approval))

    def _redact(self, reason: str) -> str:
        return self.session.secrets.redactor.redact_text(reason)

    def _permit(self, gated: GatedCall, decided: GateDecided) -> Permit:
        real = self.session.secrets.get(gated.key)
        permit = ToolPermit.issue(
            call=gated.call,
            tool=gated.tool,
            tool_name=gated.call.name,
            arguments_hash=gated.arguments_hash,
            policy_version=decided.policy_version,
            run_id=self.session.run_id,
            key=gated.key,
            expires=0.0,  # until `start`
            unredacted=real,
            unredacted_hash="" if real is None else hash_arguments(real.arguments),
            approved_until=decided.until,
            approval=decided.command,
        )
        self.session.permits.add(permit)
        return permit

    def _refuse(
        self,
        gated: GatedCall,
        verdict: GateVerdict,
        reason: str,
        approval: HumanDecision | None = None,
    ) -> Denial:
        decided = self._record(gated, verdict, self._redact(reason), approval)
        status, is_final = REFUSALS[verdict], verdict == "stuck"
        return Denial(
            gated.call, gated.arguments_hash, gated.key, status, decided.reason, final=is_final
        )  # fmt: skip

    def _record(
        self,
        gated: GatedCall,
        verdict: GateVerdict,
        reason: str,
        approval: HumanDecision | None = None,
        until: float = 0.0,
    ) -> GateDecided:
        """Record a decision, with the policy version and the person's command that it rests on.

        `reason` has no secrets.
        """
        session, call, key = self.session, gated.call, gated.key
        keeps_arguments = gated.is_changed or _is_recorded_here(gated, verdict)
        arguments = call.arguments if keeps_arguments and gated.arguments_hash else None
        command = 0
        if approval is not None:  # a refusal holds for ever: its `until` is 0
            command, until = approval.command.number, approval.until
        decided = GateDecided(
            call.name, call.id, verdict, reason,
            gated.policy_version, gated.arguments_hash, arguments,
            session.active.take_waited(), self.monitor.stop_reasons.get(key, ""), key in session.secrets.calls,
            command, until, gated.effect,
        )  # fmt: skip
        if verdict == "ask":
            entry = session.writer.record(key, decided)
            session.replay.approvals.note_expiry(decided, entry.seq)
        else:
            session.writer.record_after_replay(key, decided)
        return decided


def _is_recorded_here(gated: GatedCall, verdict: GateVerdict) -> bool:
    """Whether no other entry holds the arguments of a call.

    That is a call in place of a failed one, and what people are asked about that is not a call.
    """
    if gated.is_own and verdict == "ask":
        return True
    return verdict in NOT_REFUSED and is_substitute(gated.key)


def _differs(change: Modify, call: ToolCall | Action) -> bool:
    """Whether a change gives a call other arguments than it has."""
    return hash_arguments(call.arguments) != hash_arguments(change.arguments)
