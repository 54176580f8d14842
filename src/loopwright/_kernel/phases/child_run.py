"""Delegate a task to another engine, as a child run within the same run."""

from ..._internal import dataclasses
from ...events.effect_key import call_key
from ...events.effects import ChildFinished, ChildStarted
from ...limits import Share
from ...messages import Conversation, Json
from ...result import Result, RunOutcome
from ...settings.configured_engine import configure
from ..durability.description import quote
from .approvals import Guard
from .cycle import Cycle, Engine, name_of
from .delegation import check_delegation
from .fingerprints import fingerprint
from .secret_free import clean_conversation


async def delegate(
    cycle: Cycle, engine: Engine, task: str | Conversation, share: Share | None = None
) -> Result:
    """Run an engine as a child, perhaps on a share; the gates of both must allow it, and what it does."""
    with cycle.scope.enter("delegate"):
        key, session = cycle.scope.next_key(), cycle.session
        engine = configure(engine, session.settings)
        session.secrets.merge(engine.runtime.redactor)
        conversation = Conversation.of(task) if isinstance(task, str) else task
        redactor = cycle.services.redactor.merge(engine.runtime.redactor)
        what, started = (
            f"delegate {name_of(engine)}",
            session.replay.effects.intent(key),
        )
        task = conversation.task
        conversation = clean_conversation(redactor, what, conversation, started)
        await _start(cycle, engine, conversation, key, task)
        outcome, child = await cycle.run_child(
            cycle, engine, conversation, key, None, share
        )
        read = _finish(cycle, engine, outcome, child.succession.turns, key)
        usage = child.scope.engine_usage
        return Result(
            outcome.answer, outcome.status, outcome.stop_reason, usage.usage, child.succession.turns, session.run_id,
            outcome.error, conversation=child.succession.whole, llm_calls=usage.llm_calls, tool_calls=usage.tool_calls,
            facts=session.facts_below(key), label=read.label, untrusted=read.untrusted,
        )  # fmt: skip


def guards_of_child(cycle: Cycle, engine: Engine) -> tuple[Guard, ...]:
    """Return the guards of a child: its own, and those around it."""
    own = Guard.of(engine.runtime)
    return own, *(guard for guard in cycle.guards if guard != own)


async def _start(
    cycle: Cycle, engine: Engine, conversation: Conversation, key: str, task: str
) -> None:
    """Record the child's intent, once policy permits it; or check that it is the recorded one.

    `task` is its task as the engine wrote it, with its secrets.
    """
    session, effects, name = (
        cycle.session,
        cycle.session.replay.effects,
        name_of(engine),
    )
    found = fingerprint(f"delegate {name}", conversation.digest)
    about = quote(session.secrets.redactor, conversation.task)
    words = f"delegate {name} {about}"
    started, outcome = effects.intent(key), effects.outcome(key)
    is_child = outcome is None or isinstance(outcome, ChildFinished)
    if isinstance(started, ChildStarted) and is_child:
        if started.fingerprint != found:
            raise session.signals.diverge_from(key, words)
        return
    if started or outcome:
        raise session.signals.diverge_from(key, words)
    known = session.replay.approvals.decision(call_key(key, 0))
    if known is None or known.verdict != "deny":
        # A denial that the engine caught is the whole record of its effect.
        cycle.scope.check_gap(key, words)
        check_delegation(cycle.scope, engine)
    arguments: dict[str, Json] = {"engine": name, "task": task}
    guards = guards_of_child(cycle, engine)
    clearance = dataclasses.replace(cycle.clearance, guards=guards)
    redactor = cycle.services.redactor.merge(engine.runtime.redactor)
    await cycle.permit_own("delegate", arguments, "write", key, clearance, redactor)
    options = engine.recorded_options()[0]
    session.writer.record_after_replay(
        key, ChildStarted(name, options, found, about, engine.runtime.agent_name)
    )


def _finish(
    cycle: Cycle, engine: Engine, outcome: RunOutcome, turns: int, key: str
) -> ChildFinished:
    """Record how the child ended, unless that is recorded; return the record."""
    session, read = cycle.session, cycle.session.sensitivity
    recorded = session.replay.effects.outcome(key)
    if isinstance(recorded, ChildFinished):
        session.replay.effects.agree(key)
        return recorded
    finished = ChildFinished(
        name_of(engine),
        outcome.status,
        outcome.stop_reason,
        outcome.answer,
        outcome.record_error(),
        turns,
        read.label,
        read.untrusted,
    )
    session.writer.record_after_replay(key, finished)
    return finished
