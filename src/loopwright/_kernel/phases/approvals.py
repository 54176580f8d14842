"""Ask people for the approvals that policy gates want: by a callback, or by commands from outside."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from pydantic_core import from_json, to_json

from ..._internal import dataclasses
from ...events.effect_key import EffectKey
from ...events.effects import GateDecided
from ...events.run import Question
from ...gates.base import (
    Action,
    Allow,
    Approver,
    Ask,
    Deny,
    Modify,
    PolicyGate,
    Suspend,
)
from ...messages import JsonObject
from ...principals import Quorum
from ...resilience.timeouts import run_with_timeout
from ...tools.base import Tool
from ...tools.destinations import is_to_same
from ..control.command_log import REFUSED, HumanDecision
from ..session.services import Services
from ..session.session import Session

NOT_IN_TIME = "it was not approved in time"
NO_PRINCIPAL = (
    "it needs the approval of {}, which a callback cannot show: "
    "wait for decisions with Runtime(approver=Suspend())"
)
NO_APPROVER = (
    "it needs a person's approval and the runtime has no approver "
    "(allow it with Runtime(approver=...), or wait for a decision with Runtime(approver=Suspend()))"
)


@dataclasses.dataclass(frozen=True)
class Guard:
    """A policy gate, with the approver who answers what it asks."""

    gate: PolicyGate
    approver: Approver | Suspend | None

    @classmethod
    def of(cls, services: Services) -> "Guard":
        """Return the guard of a runtime."""
        return cls(services.gate, services.approver)


@dataclasses.dataclass(frozen=True)
class ApprovalRequest:
    """A call that a person is asked to approve, under the policy version that asks."""

    action: Action
    key: str
    arguments_hash: str
    policy_version: str
    tool: Tool | None

    def covers(self, same: Mapping[str, str], declared: Collection[str]) -> bool:
        """Return whether it has the destinations of an approved call, whose arguments have these digests."""
        return is_to_same(self.tool, self.action.arguments, same, declared)

    def list_destinations(self) -> tuple[str, ...]:
        """Return the names of the arguments that decide where it goes, also of those that it leaves out."""
        action, tool = self.action, self.tool
        if tool is None:
            return action.destinations
        parameters = cast("JsonObject", tool.schema.get("properties", {}))
        return tool.find_destinations({**action.arguments, **parameters})


@dataclasses.dataclass(frozen=True)
class Ruling:
    """What gates and people decided about a call.

    `approval` is the decision of a person from outside that it rests on, if it rests on one.
    """

    decision: Allow | Deny | Modify | Question
    approval: HumanDecision | None = None


async def ask_people(
    session: Session, questions: Sequence[tuple[Guard, Ask]], request: ApprovalRequest
) -> Ruling:
    """Return the first refusal or open question, else the approval, with the first change.

    Of the approvals that several guards need, it rests on the one that ends first.
    """
    change: Modify | None = None
    approvals: list[HumanDecision] = []
    for guard, ask in questions:
        ruling = await _ask_one(session, guard.approver, ask, request)
        if isinstance(ruling.decision, (Deny, Question)):
            return ruling
        if isinstance(ruling.decision, Modify):
            change = change or ruling.decision
        if ruling.approval is not None:
            approvals.append(ruling.approval)
    first_to_end = min(approvals, key=lambda known: known.until, default=None)
    return Ruling(change or Allow(), first_to_end)


async def _ask_one(
    session: Session,
    approver: Approver | Suspend | None,
    ask: Ask,
    request: ApprovalRequest,
) -> Ruling:
    run_rule = () if session.approvals is None else (session.approvals,)
    quorum = Quorum((*ask.approvals, *run_rule), session.principal)
    if isinstance(approver, Suspend):
        return _find_approval(session, approver, ask, request, quorum)
    if quorum.rules:
        wanted = " and ".join(map(str, quorum.rules))
        return Ruling(Deny(NO_PRINCIPAL.format(wanted)))
    # An answer and undoing are not effects: they are decided after a signal ended the engine.
    if EffectKey.parse(request.key).is_effect:
        session.signals.check(begun=True)
    return Ruling(await _call_approver(session, approver, request.action, ask))


def _find_approval(
    session: Session,
    suspend: Suspend,
    ask: Ask,
    request: ApprovalRequest,
    quorum: Quorum,
) -> Ruling:
    """Return what people decided from outside, as far as it holds; else the question."""
    now = session.services.clock.wall()
    asked = _find_question(session, request)
    approval = _find_human_decision(session, suspend, request, quorum, now)
    if approval is not None:
        return Ruling(_to_decision(approval), approval)
    expires = 0.0 if suspend.expires is None else now + suspend.expires
    if asked is not None and asked.arguments_hash == request.arguments_hash:
        expires = asked.until  # the question is asked already
    if 0 < expires <= now:
        return Ruling(Deny(NOT_IN_TIME))
    action = request.action
    text = _word_question(session, ask, request, quorum)
    return Ruling(
        Question(
            request.key, text, action.tool, action.arguments, action.call_id, "approval",
            request.arguments_hash, request.policy_version, expires, destinations=request.list_destinations(),
        )
    )  # fmt: skip


def _word_question(
    session: Session, ask: Ask, request: ApprovalRequest, quorum: Quorum
) -> str:
    """Return the question with whose approval it takes, and who has approved already."""
    if not quorum.rules:
        return ask.question
    since = session.replay.approvals.approval_entries.get(request.key)
    senders = session.command_log.find_approvers(request.key, since)
    known = ", ".join(map(str, quorum.find_counting(senders)))
    wanted = " and ".join(map(str, quorum.rules))
    return f"{ask.question} (needs {wanted}; {known or 'no one yet'} approved it)"


def _find_question(session: Session, request: ApprovalRequest) -> GateDecided | None:
    """Return the recorded question about a call, if this policy version asked it."""
    known = session.replay.approvals.decision(request.key)
    if known is None or known.verdict != "ask":
        return None
    return known if known.policy_version == request.policy_version else None


def _find_human_decision(
    session: Session,
    suspend: Suspend,
    request: ApprovalRequest,
    quorum: Quorum,
    now: float,
) -> HumanDecision | None:
    """Return the decision about this very question, else a grant for all calls of the tool."""
    asked = _find_question(session, request)
    version, log = request.policy_version, session.command_log
    decision: HumanDecision | None = None
    if asked is not None:
        since = session.replay.approvals.approval_entries.get(request.key)
        decision = log.find_decision(
            request.key, since, request.arguments_hash, version, suspend.holds, quorum
        )
    has_ended = decision is not None and decision.allowed and decision.until <= now
    if decision is None or has_ended:
        return log.find_grant(request.action.tool, version, now, request.covers, quorum)
    return decision


def _to_decision(approval: HumanDecision) -> Allow | Deny | Modify:
    if not approval.allowed:
        return Deny(approval.reason)
    if approval.arguments is None:
        return Allow()
    return Modify(approval.arguments, "a person changed it")


async def _call_approver(
    session: Session, approver: Approver | None, action: Action, ask: Ask
) -> Allow | Deny | Modify:
    if approver is None:
        return Deny(f"{action.tool} was not run: {NO_APPROVER}")
    with session.active.waiting:
        ended = await run_with_timeout(_await(approver, action, ask.question), None)
    if ended.error is not None:
        return Deny("the approver failed, so the call was not approved")
    answer = ended.value
    if isinstance(answer, Modify):
        return normalize_change(answer)
    if isinstance(answer, (Allow, Deny)):
        return answer
    return Allow() if answer is True else Deny(REFUSED)


async def _await(approver: Any, action: Action, question: str) -> Any:
    return await approver(action, question)


def normalize_change(change: Modify) -> Modify | Deny:
    """Return a change as a journal gives it back; a denial if none can hold it."""
    try:
        arguments = from_json(to_json(change.arguments), allow_inf_nan=False)
    except (TypeError, ValueError, RecursionError):
        return Deny("the policy wants arguments that are not plain JSON")
    return Modify(arguments, change.reason)
