"""Compensate a saga that did not complete: undo its completed calls, the last one first."""

import copy
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ..._internal import dataclasses
from ...errors import Denied, JournalError, Suspended, UndoFailed, format_error
from ...events.effect_key import undo_key
from ...events.recovery import UndoBegun, UndoCall, UndoFinished, UndoStarted
from ...events.run import Question
from ...messages import UNCERTAIN_STATUSES, Observation, ObservationStatus, ToolCall
from ...resilience.timeouts import CodeOutcome, capture, invoke, run_with_timeout
from ...result import RunOutcome
from ...tools.base import Tool, ToolContext
from ...tools.registry import ToolRegistry
from ...tools.value import as_text
from ..session.session import Session
from .tool_call import can_undo

PermitUndo: TypeAlias = Callable[[ToolCall, str], Awaitable[Question | None]]
UNKNOWN = "it is not known whether it took effect, so it was not undone"
SECRET_GONE = "its arguments held a secret, which is not kept, so it was not undone"
NO_TOOL = "the tool, or its compensate function, is not there any more, or another tool has its name"


@dataclasses.dataclass(frozen=True)
class UndoOutcome:
    """The outcome of undoing one call, and how long it took."""

    status: ObservationStatus
    content: str
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Compensation:
    """Undoes the calls of one run.

    Args:
        registries: the tools of the run's engine, and of the engines in it.
        permit: asks the policy gates; raises `Denied`.
    """

    session: Session
    registries: tuple[ToolRegistry, ...]
    permit: PermitUndo

    async def undo_calls(self, outcome: RunOutcome) -> RunOutcome:
        """Undo what can be undone; return the outcome to end with, whose error names the rest."""
        begun = self.session.replay.recoveries.undo or self._begin(outcome)
        problems = [await self._undo(call) for call in begun.calls]
        failed = "; ".join(filter(None, problems))
        if not failed:
            return outcome
        error = UndoFailed(
            f"the run ended as {outcome.status} ({outcome.stop_reason}) and could not undo: {failed}"
        )
        error.__cause__ = outcome.error
        return dataclasses.replace(outcome, error=error)

    def _begin(self, outcome: RunOutcome) -> UndoBegun:
        """Record how the run is about to end, and the calls to undo."""
        calls = tuple(self._find_calls())
        error = outcome.record_error()
        begun = UndoBegun(
            outcome.status, outcome.stop_reason, outcome.answer, error, calls
        )
        self.session.writer.record("", begun)
        return begun

    def _find_calls(self) -> list[UndoCall]:
        """Return the calls that took effect, or may have, the last one first."""
        session = self.session
        calls = [
            (seq, key, observation)
            for key, (seq, observation, _) in session.completed.items()
        ]
        # A person was asked about the outcome of such a call, and sent `stop`.
        for key, (seq, call) in session.replay.unfinished_calls().items():
            if any(map(can_undo, self._tools_named(call.name))):
                calls.append((seq, key, Observation(call, "unknown", "")))
        calls.sort(key=lambda known: -known[0])
        return [
            self._describe(key, observation)
            for _, key, observation in calls
            if observation.status in ("ok", *UNCERTAIN_STATUSES)
        ]

    def _describe(self, key: str, observation: Observation) -> UndoCall:
        idempotency_key = self.session.idempotency_key(key)
        return UndoCall(
            key, observation.call, observation.text, idempotency_key, observation.status
        )  # fmt: skip

    async def _undo(self, done: UndoCall) -> str:
        """Undo one call, unless the journal says that it was; return the problem, if there is one."""
        key, call = undo_key(done.key), done.call
        finished = self.session.replay.recoveries.undo_finished.get(key)
        if finished is None:
            outcome = await self._try_undo(done, key)
            seconds = round(outcome.seconds, 6)
            finished = UndoFinished(
                call.name, call.id, outcome.status, outcome.content, seconds
            )
            self.session.writer.record(key, finished)
        if finished.status == "ok":
            return ""
        return f"{call.name} ({done.key}): {finished.content}"

    async def _try_undo(self, done: UndoCall, key: str) -> UndoOutcome:
        if done.status != "ok":
            return UndoOutcome("unknown", UNKNOWN)
        if self.session.secrets.is_lost(done.key):
            return UndoOutcome("unknown", SECRET_GONE)
        tool = self._find_tool(done)
        if tool is None or tool.compensate is None:
            return UndoOutcome("rejected", NO_TOOL)
        call = ToolCall(
            f"{tool.name}:undo", done.call.arguments, f"undo_{done.call.id}"
        )
        try:
            question = await self.permit(call, key)
        except Denied as denied:
            return UndoOutcome("denied", format_error(denied))
        if question is not None:
            text = f"it needs a person's approval: {question.text}"
            return UndoOutcome("denied", text)
        return await self._compensate(tool, tool.compensate, done, key)

    async def _compensate(
        self, tool: Tool, compensate: Callable[..., Any], done: UndoCall, key: str
    ) -> UndoOutcome:
        """Have the tool undo a call, now that it may; the intent is durable first."""
        session, writer = self.session, self.session.writer
        idempotency_key = f"{done.idempotency_key}:undo"
        if key not in session.replay.recoveries.undo_started:
            writer.record(key, UndoStarted(tool.name, done.call.id, idempotency_key))
        await writer.barrier()
        await writer.ensure_held()
        timeout = tool.timeout or session.services.limits.tool_timeout
        real = session.secrets.get(done.key) or done.call
        context = ToolContext(
            session.run_id, key, idempotency_key, timeout, session.deps,
            copy.deepcopy(dict(real.arguments)), done.idempotency_key,
            secrets=session.secrets.watch(session.services.secrets),
        )  # fmt: skip
        before = writer.wall()
        ended = await run_with_timeout(
            invoke(writer.run_in_thread, compensate, context, done.content), timeout
        )
        if ended.error is not None:
            session.signals.check_fatal(ended.error)
        outcome = self._read_outcome(ended, timeout)
        return dataclasses.replace(outcome, seconds=writer.wall() - before)

    def _read_outcome(self, ended: CodeOutcome, timeout: float | None) -> UndoOutcome:
        redact = self.session.secrets.redactor.redact_text
        if ended.timed_out:
            text = f"undoing it gave no result within {timeout:g} s"
            return UndoOutcome("timed_out", text)
        error = ended.error
        if error is not None:
            text = f"undoing it failed: {type(error).__name__}: {format_error(error)}"
            return UndoOutcome("error", redact(text))
        max_chars = self.session.services.limits.max_output_chars
        written = capture(lambda: as_text(ended.value, max_chars))
        return UndoOutcome("ok", redact("done" if written.error else written.value))

    def _find_tool(self, done: UndoCall) -> Tool | None:
        """Return the tool that was called; if the engine did not repeat the call, the only one of its name."""
        if done.key in self.session.completed:
            return self.session.completed[done.key][2]
        named = self._tools_named(done.call.name)
        return named[0] if len(named) == 1 else None

    def _tools_named(self, name: str) -> list[Tool]:
        tools = (registry.get(name) for registry in self.registries)
        return list({id(tool): tool for tool in tools if tool is not None}.values())


def find_registries(*given: Any) -> tuple[ToolRegistry, ...]:
    """Return the tools of engines, of the engines among their options, and of those that are their tools."""
    engines: list[Any] = [*given]
    for known in engines:  # the list grows while it is read
        inner: list[Any] = [tool.engine for tool in known.runtime.tools]
        inner += [getattr(known, str(name)) for name in known.__dict__]
        for value in inner:
            is_known = any(value is other for other in engines)
            if hasattr(value, "runtime") and not is_known:
                engines.append(value)
    return tuple(known.runtime.tools for known in engines)


def restore_outcome(begun: UndoBegun) -> RunOutcome:
    """Return how a run was about to end when its process died while it was compensated."""
    error = None if begun.error is None else begun.error.restore()
    return RunOutcome(begun.status, begun.stop_reason, begun.answer, error)


def needs_compensation(session: Session, outcome: RunOutcome) -> bool:
    """Whether a run ends in a way that undoes its calls."""
    if not session.saga or outcome.is_paused or outcome.status == "completed":
        return False
    return not isinstance(outcome.error, (JournalError, Suspended))
