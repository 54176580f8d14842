"""Describe a call as gates see it, and have one gate decide."""

import copy
from collections.abc import Callable, Iterable

from ...errors import ProviderError
from ...gates.base import (
    Action,
    Allow,
    Ask,
    Decision,
    Deny,
    Modify,
    PolicyGate,
    PolicyState,
)
from ...gates.consultation import ask_gate
from ...labels import CONFIDENTIAL
from ...messages import Json, JsonObject, ToolCall
from ...providers.provider_tools import ACTION_PREFIX
from ...resilience.timeouts import CodeOutcome
from ..session.services import Services
from ..session.session import Session
from .approvals import Guard, normalize_change
from .gated_call import GatedCall
from .provider_wait import ProviderWait


async def is_read_allowed(
    session: Session,
    services: Services,
    guards: Iterable[Guard],
    find_state: Callable[[str], PolicyState],
    key: str,
    name: str,
    arguments: dict[str, Json],
) -> bool:
    """Return whether all gates allow a read of the run's own; no person is asked, and nothing is recorded."""
    call = ToolCall(name, arguments, name)
    gated = GatedCall(call, "", key, "", "read", None, is_own=True)
    state = find_state(key)
    action = describe_action(session, services, gated, call, state)
    decided = [await consult_gate(session, one.gate, action, state) for one in guards]
    return all(isinstance(decision, Allow) for decision in decided)


def describe_action(
    session: Session,
    services: Services,
    gated: GatedCall,
    real: ToolCall,
    state: PolicyState,
) -> Action:
    """Return the call as gates see it, with the labels of what the run may pass on by it."""
    call, label, untrusted = gated.call, state.label, state.untrusted
    defaults: JsonObject = {}
    if gated.tool is not None and gated.tool.defaults:
        defaults = copy.deepcopy(gated.tool.defaults)
    labels: set[str] = {"untrusted"} if untrusted else set()
    if label in CONFIDENTIAL:
        labels.add(label)
    tool, tools = gated.tool, services.tools
    tracer = session.provenance.tracer(tools, label)
    if tool is None:
        outbound = call.name.startswith(ACTION_PREFIX)
        source, destinations = "engine", tuple(real.arguments)
    else:
        outbound, source = tool.outbound, tool.source
        destinations = tool.find_destinations(real.arguments)
    return Action(
        call.name, real.arguments, call.id, gated.effect, frozenset(labels), defaults,
        outbound, destinations, source, tracer, session.principal,
    )  # fmt: skip


async def consult_gate(
    session: Session, gate: PolicyGate, action: Action, state: PolicyState
) -> Decision:
    """Ask one gate; while the provider of its model is unavailable, wait as a model call does."""
    wait: ProviderWait | None = None
    while True:
        try:
            ended = await ask_gate(gate, action, state, session.remaining)
            return _read_decision(ended)
        except ProviderError as error:
            name = type(gate).__name__
            wait = wait or ProviderWait(session, state.key, name)
            await wait.pause_after(error)


def _read_decision(ended: CodeOutcome) -> Decision:
    """Return what a gate decided; whatever is not a decision within its time denies.

    Raises `ProviderError` if its model is unavailable for now.
    """
    if isinstance(ended.value, (Allow, Deny, Ask)):
        return ended.value
    if ended.timed_out:
        return Deny("the policy gate did not decide in time")
    if isinstance(ended.error, ProviderError) and ended.error.retryable:
        raise ended.error
    if ended.error is not None:
        return Deny(f"the policy gate failed ({type(ended.error).__name__})")
    if isinstance(ended.value, Modify):
        return normalize_change(ended.value)
    return Deny(f"the policy gate gave no decision ({type(ended.value).__name__})")
