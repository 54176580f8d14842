"""Proposals, permits and clearances come from the run alone, and stay as they were issued."""

from loopwright import Cleared, Permit, Proposal, ToolCall


def clear_nothing() -> Cleared:
    return Cleared()  # error


def clear_permits(permit: Permit) -> Cleared:
    return Cleared((permit,))  # error


def clear_by_name(permit: Permit) -> Cleared:
    return Cleared(decisions=(permit,))  # error


def propose_nothing() -> Proposal:
    return Proposal()  # error


def propose_calls(call: ToolCall) -> Proposal:
    return Proposal((call,))  # error


def permit_nothing() -> Permit:
    return Permit()  # error


def permit_a_call(call: ToolCall) -> Permit:
    return Permit(call)  # error
