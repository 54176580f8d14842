"""Settle the instructions with which an agent works: written once, recorded, and the same when a run is resumed."""

import inspect

from ...errors import ConfigError, EngineError, format_error
from ...events.agents import InstructionsSet
from ...events.effects import DriftNoticed
from ...labels import find_provenance
from ...prompts import Template
from ...resilience.timeouts import run_with_timeout
from ..session.instructions import (
    InstructedConversations,
    InstructionContext,
    fill_template,
)
from ..session.session import out_of_time
from .cycle import Cycle

WHAT = "instructions"


async def settle_instructions(cycle: Cycle) -> None:
    """Put the instructions of the cycle's agent in front of each request of its engine.

    A run that had continued from here without any keeps to that.
    """
    scope, session, given = cycle.scope, cycle.session, cycle.services.instructions
    key = scope.side_key(WHAT)
    recorded = session.replay.effects.side(key)
    if not isinstance(recorded, InstructionsSet):
        if given is None or scope.has_gone_on():
            return
        recorded = await _write(cycle)
        session.sensitivity.observe(recorded.label, recorded.untrusted)
        session.writer.record_after_replay(key, recorded)
    elif isinstance(given, str):
        before, now = _redact(cycle, recorded.text), _redact(cycle, given)
        if before != now:
            drift = DriftNoticed(WHAT, before, now)
            session.writer.record_after_replay(key, drift)
    scope.engine_usage.instructed = InstructedConversations(recorded.text)


async def _write(cycle: Cycle) -> InstructionsSet:
    """Return the words of the instructions, without secrets."""
    text = await _read_text(cycle)
    found, untrusted = find_provenance(text)
    label = cycle.session.sensitivity.classify(text, found)
    words = _redact(cycle, text)
    return InstructionsSet(cycle.services.agent_name, words, label, untrusted)


def _redact(cycle: Cycle, text: str) -> str:
    return cycle.services.redactor.redact_text(text).strip()


async def _read_text(cycle: Cycle) -> str:
    given, session = cycle.services.instructions, cycle.session
    if isinstance(given, Template):
        return fill_template(given, session.deps)
    if not callable(given):
        return given or ""
    context = InstructionContext(
        session.run_id, cycle.services.agent_name, cycle.conversation.task, session.deps
    )

    async def call() -> object:
        text = given(context)
        return await text if inspect.isawaitable(text) else text

    with session.active.working:
        ended = await run_with_timeout(call(), session.remaining())
    if ended.timed_out:
        raise out_of_time()
    if ended.error is not None:
        raise EngineError(
            f"instructions of {cycle.services.agent_name!r}: the function raised "
            f"{type(ended.error).__name__}: {format_error(ended.error)}"
        ) from ended.error
    if not isinstance(ended.value, str):
        raise ConfigError(
            f"instructions of {cycle.services.agent_name!r}: must return a text, got {ended.value!r:.80}"
        )
    return ended.value
