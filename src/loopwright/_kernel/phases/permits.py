"""The permit of a tool's call, and whether it still holds."""

from ...errors import PhaseError
from ...gates.base import Denial, Permit
from ...messages import hash_arguments
from ...tools.base import Tool
from ..session.session import Session


class ToolPermit(Permit):
    """A permit with the tool that it lets run, as it was when the call was decided."""

    tool: Tool | None
    """The tool; `None` for what is not a tool's call, or if the tool was removed."""


def tool_of(decision: Permit | Denial) -> Tool | None:
    """Return the tool that a decision lets run; `None` for a denial."""
    return decision.tool if isinstance(decision, ToolPermit) else None


def check_permit(
    permit: Permit, session: Session, seconds: float, policy: str | None
) -> None:
    """Raise `PhaseError` unless the permit is live at so many active seconds, for the call that the gate saw.

    `policy` is the policy version of now; `None` for a call whose intent is recorded, which was allowed then.
    """
    if permit not in session.permits:
        raise PhaseError(
            f"the permit of {permit.call.name} was used or is not of this run: gate a new proposal"
        )
    check_in_time(permit, seconds)
    check_same(permit, session, policy)


def check_in_time(permit: Permit, seconds: float) -> None:
    """Raise `PhaseError` if a permit has expired at `seconds` of active time."""
    if permit.expires < seconds:
        name = permit.call.name
        raise PhaseError(f"the permit of {name} has expired: act right after the gate")


def check_same(permit: Permit, session: Session, policy: str | None) -> None:
    """Raise `PhaseError` if approval, policy or arguments are not those of the permit any more."""
    if policy is not None:
        check_policy(permit, session, policy)
    _check_name(permit)
    changed = hash_arguments(permit.call.arguments) != permit.arguments_hash
    if permit.unredacted is not None and not changed:
        changed = hash_arguments(permit.unredacted.arguments) != permit.unredacted_hash
    if changed:
        raise PhaseError(
            f"the arguments of {permit.call.name} were changed after the gate: let a gate return Modify instead"
        )


def _check_name(permit: Permit) -> None:
    """Raise `PhaseError` if the call, or the tool that would run, has another name than policy saw."""
    for value in (permit.call, permit.unredacted, tool_of(permit)):
        if value is not None and value.name != permit.tool_name:
            raise PhaseError(
                f"the permit of {permit.tool_name} is not for {value.name}: gate a new proposal"
            )


def check_policy(permit: Permit, session: Session, policy: str) -> None:
    """Raise `PhaseError` if the approval of a call has ended, or the policy is another one."""
    name = permit.call.name
    if 0 < permit.approved_until <= session.services.clock.wall():
        raise PhaseError(f"the approval of {name} has expired")
    if permit.approval and _is_revoked(permit, session):
        raise PhaseError(f"the approval of {name} was revoked")
    if permit.policy_version != policy:
        raise PhaseError(
            f"the policy changed since {name} was allowed: gate a new proposal"
        )


def _is_revoked(permit: Permit, session: Session) -> bool:
    """Whether a person revoked the approval that a permit rests on, or may have."""
    if session.command_log.may_be_revoked(permit.approval):
        return True
    name, approval = permit.call.name, permit.approval
    return session.intake.find_revocation(permit.key, name, approval) is not None
