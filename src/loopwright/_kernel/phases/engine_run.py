"""Let an engine solve in a scope of its own, and the agents that it hands the run off to after it."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from ..._internal import dataclasses
from ..._internal.engine_code import engine_code
from ...errors import (
    Aborted,
    AgentReplaced,
    Fenced,
    LoopwrightError,
    PhaseError,
    ReplayDivergence,
    Suspended,
)
from ...limits import Share
from ...messages import Conversation
from ...providers.base import OutputSchema
from ...result import RunOutcome, build_outcome
from ...settings.configured_engine import configure
from ..session.handoffs import Handoff
from ..session.scope import EngineUsage, Scope
from ..session.services import Services
from ..session.session import Session
from .approvals import Guard
from .best_answer import ask_at_the_end
from .child_run import guards_of_child
from .cycle import Cycle
from .engine_output import clean_answer, wrap_error
from .handoff import prepare_scope, record_handoff
from .handoff_offer import offer_handoffs
from .hooked_texts import hook_answer
from .human import ANSWERED, take_follow_up
from .instructions import settle_instructions
from .plan import settle_plan

Door: TypeAlias = Callable[[Cycle], Any]
"""Makes what an engine is given, the `Run`, of the phases of its scope."""


def open_cycle(
    door: Door, session: Session, engine: Any, conversation: Conversation
) -> Cycle:
    """Return the phases of the root scope."""
    scope = Scope(session, "", EngineUsage(engine=engine))
    return _build_cycle(door, scope, engine, conversation, (Guard.of(engine.runtime),))


def _build_cycle(
    door: Door,
    scope: Scope,
    engine: Any,
    conversation: Conversation,
    guards: tuple[Guard, ...],
) -> Cycle:
    run_child = functools.partial(_run_child, door)
    return Cycle(scope, engine, conversation, guards, run_child)


async def _run_child(
    door: Door,
    parent: Cycle,
    engine: Any,
    conversation: Conversation,
    path: str,
    schema: OutputSchema | None,
    share: Share | None,
) -> tuple[RunOutcome, Cycle]:
    """Let another engine solve in a scope of its own; if it waits, so does the parent's scope.

    Its conversation is a new one, so its models are given the texts of people again.
    """
    engine = configure(engine, parent.session.settings)
    usage = EngineUsage(parent.scope.engine_usage, engine, path)
    usage.share = share
    scope = Scope(parent.session, path, usage)
    scope.inherit(parent.scope)
    scope.answer_schema = schema
    guards = guards_of_child(parent, engine)
    child = _build_cycle(door, scope, engine, conversation, guards)
    outcome = await drive(door, child)
    if not child.hooks.is_empty:
        around, is_over = (
            parent.hooks.names,
            scope.session.replay.scopes.has_ended(path),
        )
        active = child.succession.active
        key = f"{ANSWERED}{path}.0"
        outcome = await hook_answer(active, outcome, None, key, around, is_over)
    for cycle in child.succession.all:
        cycle.scope.halted = PhaseError("this child is over")
    if isinstance(outcome.error, Suspended):
        raise parent.scope.halt(outcome.error)
    if isinstance(outcome.error, AgentReplaced):  # the agent that it works for
        raise outcome.error
    return outcome, child


async def drive(door: Door, cycle: Cycle, *, is_root: bool = False) -> RunOutcome:
    """Let an engine solve, and after it each agent that the run is handed off to; return how the last one ended.

    Raises only what may not be swallowed: cancellation, `Fenced` and `ReplayDivergence`. The root engine continues
    with follow-ups, and at a limit or a stuck loop it is asked for its best answer.
    """
    while True:
        cycle = cycle.succession.active
        outcome = await _solve(door, cycle, is_root)
        handoff = cycle.session.signals.handoffs.find(cycle.scope.path)
        if handoff is None or not isinstance(outcome.error, AgentReplaced):
            return outcome
        try:
            if isinstance(cycle.session.signals.ending, Aborted):
                cycle.session.signals.check()
            await record_handoff(cycle, handoff)
        except Exception as raised:  # noqa: BLE001 - an error of the journal, or that the code diverged
            return build_outcome(wrap_error(cycle, raised))
        _open_successor(door, cycle, handoff)


def _open_successor(door: Door, giver: Cycle, handoff: Handoff) -> None:
    """Let the agent work that a run is handed off to."""
    receiver = configure(handoff.receiver.engine, giver.session.settings)
    engine = _restrict(receiver, giver.session.services)
    scope = prepare_scope(giver, engine, handoff)
    guards = guards_of_child(giver, engine)
    successor = _build_cycle(door, scope, engine, handoff.given, guards)
    giver.succession.add(successor, handoff.given, handoff.whole)
    successor.succession = giver.succession


def _restrict(engine: Any, run: Services) -> Any:
    """Return an engine whose limits are at most those of the run that it works in."""
    own: Services = engine.runtime
    limits = run.limits.restrict(own.limits)
    if limits == own.limits:
        return engine
    services = own.with_agent(
        own.agent_name, own.instructions, tools=None, limits=limits
    )
    return dataclasses.replace(engine, runtime=services)


async def _solve(door: Door, cycle: Cycle, is_root: bool) -> RunOutcome:
    """Let the engine of a cycle solve; return how it ended."""
    answer: str | None = None
    error: LoopwrightError | None = None
    engine: Any = cycle.engine
    run, usage = door(cycle), cycle.scope.engine_usage
    try:
        await settle_instructions(cycle)
        await settle_plan(cycle)
        await offer_handoffs(cycle)
        with engine_code():
            answer = clean_answer(cycle, await engine.solve(run))
            while is_root and take_follow_up(cycle, answer):
                answer = clean_answer(cycle, await engine.solve(run))
        cycle.scope.check_cancelled()
    except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - an engine is third-party code: a crash in it is the run's outcome
        error = wrap_error(cycle, raised)
    error = cycle.scope.signal or error or usage.ending
    if error is None:
        return RunOutcome("completed", "answered", answer)
    if isinstance(error, Suspended):
        answer = None  # a run that waits has no answer yet
    elif answer is None:
        answer = cycle.offered
    if answer is None and is_root and usage.ending is None:
        answer, error = await ask_at_the_end(cycle, error)
    if isinstance(error, (Fenced, ReplayDivergence)):
        raise error
    return build_outcome(error, answer)
