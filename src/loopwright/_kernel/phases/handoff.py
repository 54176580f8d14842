"""Hand a run off to another agent, which works in the place of the one that gives it away."""

from collections.abc import Iterable
from typing import Any

from ...errors import AgentReplaced, LoopwrightError
from ...events.agents import HandedOff
from ...gates.base import Cleared, Denial, Permit
from ...messages import Conversation, Json, Observation
from ...tools.handoff import check_view, find_agent
from ..durability.description import quote
from ..session.handoffs import Handoff
from ..session.scope import EngineUsage, Scope
from .cycle import Cycle, name_of
from .fingerprints import fingerprint
from .handoff_rules import check_handoff, find_handoff_tool
from .secret_free import clean_conversation


async def start_handoff(
    cycle: Cycle, agent: Any, conversation: Conversation
) -> LoopwrightError:
    """Return the signal with which an engine ends that hands the run off by itself, once policy permits it."""
    with cycle.scope.enter("handoff"):
        receiver, scope = find_agent(cycle.services.agents, agent), cycle.scope
        key, path = scope.next_key(), scope.engine_usage.agent_path
        if path not in cycle.session.replay.effects.handoffs:
            scope.check_gap(key, f"handoff {receiver.name}")
            check_handoff(scope, cycle.services, receiver)
            arguments: dict[str, Json] = {
                "agent": receiver.name,
                "task": conversation.task,
            }
            redactor = cycle.services.redactor.merge(receiver.engine.runtime.redactor)
            await cycle.permit_own("handoff", arguments, "write", key, None, redactor)
        return await request_handoff(cycle, key, receiver, conversation)


async def finish_call(
    cycle: Cycle, decision: Permit | Denial, observation: Observation
) -> None:
    """Raise the signal that ends the engine if a call hands the run off, once all calls of its turn are done."""
    tool = find_handoff_tool(decision)
    if tool is None or tool.handoff is None or not observation.ok:
        return
    receiver = find_agent(cycle.services.agents, tool.handoff.agent)
    given = tool.handoff.select(cycle.latest)
    raise await request_handoff(cycle, decision.key, receiver, given)


async def act(cycle: Cycle, cleared: Cleared) -> tuple[Observation, ...]:
    """Run what the gate permitted; return the observations, unless one of the calls hands the run off."""
    observations = await cycle.act(cleared)
    for decision, seen in zip(cleared.decisions, observations, strict=True):
        await finish_call(cycle, decision, seen)
    return observations


async def request_handoff(
    cycle: Cycle, source: str, receiver: Any, given: Conversation
) -> LoopwrightError:
    """Note that a run is to be handed off; return the signal that ends all scopes of the agent."""
    session, path = cycle.session, cycle.scope.engine_usage.agent_path
    recorded, handoffs = session.replay.effects.handoffs, session.signals.handoffs
    signal = AgentReplaced(f"the run was handed off to {receiver.name}")
    if path in recorded and recorded[path].source != source:
        return signal  # another branch was faster, and will be again
    branches = session.replay.scopes.branches
    # A branch that was given to its engine had ended with the handoff, which is certain.
    if path not in recorded and not branches.has_delivered(source):
        await session.replay_end.reach(source)
    if handoffs.find(path) is None:
        session.secrets.merge(receiver.engine.runtime.redactor)
        redactor = cycle.services.redactor.merge(receiver.engine.runtime.redactor)
        check_view(given)
        what, known = f"handoff {receiver.name}", recorded.get(path)
        given = clean_conversation(redactor, what, given, known)
        whole = _find_whole(cycle)
        handoffs.append(Handoff(path, source, receiver, given, whole))
    return signal


def _find_whole(cycle: Cycle) -> Conversation:
    """Return the conversation of a run whose agent hands it off, perhaps in a branch."""
    return cycle.succession.extend(cycle.latest)


async def record_handoff(cycle: Cycle, handoff: Handoff) -> None:
    """Record a handoff as the last effect of the scope that it ends; or check that it is the recorded one."""
    session, receiver = cycle.session, handoff.receiver
    key = handoff.key = cycle.scope.next_key()
    found = fingerprint(f"handoff {receiver.name}", handoff.given.digest)
    about = quote(session.secrets.redactor, handoff.given.task)
    recorded = session.replay.effects.outcome(key)
    if isinstance(recorded, HandedOff) and recorded.fingerprint == found:
        session.replay.effects.agree(key)
        return
    words = f"handoff {receiver.name} {about}"
    if recorded is not None or session.replay.effects.intent(key) is not None:
        raise session.signals.diverge_from(key, words)
    await session.replay_end.reach(key)
    cycle.scope.check_gap(key, words)
    giver = cycle.services.agent_name or cycle.engine_name
    engine = name_of(receiver.engine)
    event = HandedOff(giver, receiver.name, engine, found, about, handoff.source)
    session.writer.record(key, event)


def prepare_scope(giver: Cycle, engine: Any, handoff: Handoff) -> Scope:
    """Return the scope of the receiver: it has what the run has met so far, and iterations of its own."""
    before, session = giver.scope, giver.session
    usage = EngineUsage(before.engine_usage, engine, handoff.key, replaces=True)
    scope = Scope(session, handoff.key, usage)
    scope.inherit(before)
    scope.is_root, scope.answer_schema = before.is_root, before.answer_schema
    scope.max_iterations = engine.runtime.limits.max_iterations
    if _texts_of_people(handoff.given) >= _texts_of_people(handoff.whole):
        scope.delivered = before.delivered
    if scope.is_root:
        session.budget.limits = session.services.limits.restrict(engine.runtime.limits)
    return scope


def _texts_of_people(messages: Iterable[Any]) -> set[str]:
    """Return what people said to the run while it worked, which a filter may leave out."""
    return {one.content for one in messages if one.origin == "operator"}
