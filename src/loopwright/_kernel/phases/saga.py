"""A saga that did not complete: its completed calls are undone, the last one first, before the run ends."""

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from ...errors import Denied, JournalError, Suspended, UndoFailed, format_error
from ...events.effect_key import undo_key
from ...events.recovery import UndoBegun, UndoCall, UndoFinished, UndoStarted
from ...events.run import ErrorRecord, Question
from ...messages import UNCERTAIN_STATUSES, Observation, ObservationStatus, ToolCall
from ...resilience.timeouts import capture, invoke, run_with_timeout
from ...result import RunOutcome
from ...tools.base import Tool, ToolContext
from ...tools.registry import ToolRegistry
from ..session.session import Session
from .tool_call import as_text

Permitted: TypeAlias = Callable[[ToolCall, str], Awaitable[Question | None]]


@dataclasses.dataclass(frozen=True)
class Undoing:
    """Undoes the calls of one run.

    Args:
        registries: the tools of the run's engine, and of the engines in it.
        permitted: asks the policy gates; raises `Denied`.
    """

    session: Session
    registries: tuple[ToolRegistry, ...]
    permitted: Permitted

    async def undo(self, outcome: RunOutcome) -> RunOutcome:
        """The outcome to end with, after everything that could be undone was; calls of what failed are its error."""
        session, begun = self.session, self.session.replay.recoveries.undo
        if begun is None:
            why = None if outcome.error is None else ErrorRecord.of(outcome.error)
            calls = tuple(self._completed())
            begun = UndoBegun(
                outcome.status, outcome.stop_reason, outcome.answer, why, calls
            )
            session.writer.record("", begun)
        failed = [
            problem for call in begun.calls if (problem := await self._undo(call))
        ]
        if not failed:
            return outcome
        told = f"the run ended as {outcome.status} ({outcome.stop_reason}) and could not undo: {'; '.join(failed)}"
        error = UndoFailed(told)
        error.__cause__ = outcome.error
        return dataclasses.replace(outcome, error=error)

    def _completed(self) -> Iterator[UndoCall]:
        """What was done, or may have been, the last one first."""
        session = self.session
        done = [
            (seq, key, observation)
            for key, (seq, observation, _) in session.completed.items()
        ]
        for (
            key,
            (seq, call),
        ) in (
            session.replay.unfinished_calls().items()
        ):  # a person was asked about it, and said `stop`
            if any(tool.compensate is not None for tool in self._named(call.name)):
                done.append((seq, key, Observation(call, "unknown", "")))
        for _, key, observation in sorted(done, key=lambda item: -item[0]):
            if observation.status == "ok" or observation.status in UNCERTAIN_STATUSES:
                idempotency_key = session.idempotency_key(key)
                yield UndoCall(
                    key,
                    observation.call,
                    observation.text,
                    idempotency_key,
                    observation.status,
                )

    async def _undo(self, done: UndoCall) -> str:
        """Undo one call, unless the journal says that this was done; what is wrong, if anything."""
        key, call = undo_key(done.key), done.call
        finished = self.session.replay.recoveries.undo_finished.get(key)
        if finished is None:
            status, content, seconds = await self._live(done, key)
            finished = UndoFinished(
                call.name, call.id, status, content, round(seconds, 6)
            )
            self.session.writer.record(key, finished)
        return (
            ""
            if finished.status == "ok"
            else f"{call.name} ({done.key}): {finished.content}"
        )

    async def _live(
        self, done: UndoCall, key: str
    ) -> tuple[ObservationStatus, str, float]:
        session, tool = self.session, self._tool(done)
        if done.status != "ok":
            return (
                "unknown",
                "it is not known whether it took effect, so it was not undone",
                0.0,
            )
        if session.secrets.is_lost(done.key):
            return (
                "unknown",
                "its arguments held a secret, which is not kept, so it was not undone",
                0.0,
            )
        if tool is None or tool.compensate is None:
            gone = "the tool, or its compensate function, is not there any more, or another tool has its name"
            return "rejected", gone, 0.0
        try:
            waiting = await self.permitted(
                ToolCall(
                    f"{tool.name}:undo", done.call.arguments, f"undo_{done.call.id}"
                ),
                key,
            )
        except Denied as denied:
            return "denied", format_error(denied), 0.0
        if waiting is not None:
            return "denied", f"it needs a person's approval: {waiting.text}", 0.0
        return await self._compensate(tool, tool.compensate, done, key)

    async def _compensate(
        self, tool: Tool, compensate: Callable[..., Any], done: UndoCall, key: str
    ) -> tuple[ObservationStatus, str, float]:
        """Have the tool undo a call, now that it may; the intent is durable first."""
        session = self.session
        idempotency_key = f"{done.idempotency_key}:undo"
        if key not in session.replay.recoveries.undo_started:
            session.writer.record(
                key, UndoStarted(tool.name, done.call.id, idempotency_key)
            )
        await session.writer.barrier()
        await session.writer.ensure_held()
        timeout = tool.timeout or session.services.limits.tool_timeout
        arguments = copy.deepcopy(
            dict((session.secrets.get(done.key) or done.call).arguments)
        )
        context = ToolContext(
            session.run_id,
            key,
            idempotency_key,
            timeout,
            session.deps,
            arguments,
            done.idempotency_key,
        )
        before = session.writer.wall()
        ended = await run_with_timeout(
            invoke(session.writer.run_in_thread, compensate, context, done.content),
            timeout,
        )
        seconds = session.writer.wall() - before
        if (
            session.signals.fatal is not None and ended.error is session.signals.fatal
        ):  # it was not called
            raise session.signals.fatal
        if ended.timed_out:
            return (
                "timed_out",
                f"undoing it gave no result within {timeout:g} s",
                seconds,
            )
        redact = session.secrets.redactor.redact_text
        written = capture(
            lambda: as_text(ended.value, session.services.limits.max_output_chars)
        )
        error = ended.error
        if error is not None:
            return (
                "error",
                redact(
                    f"undoing it failed: {type(error).__name__}: {format_error(error)}"
                ),
                seconds,
            )
        return "ok", redact(written.value if written.error is None else "done"), seconds

    def _tool(self, done: UndoCall) -> Tool | None:
        """The tool that was called; where the engine does not come to that call any more, the only one of its name."""
        if done.key in self.session.completed:
            return self.session.completed[done.key][2]
        named = self._named(done.call.name)
        return named[0] if len(named) == 1 else None

    def _named(self, name: str) -> list[Tool]:
        tools = (registry.get(name) for registry in self.registries)
        return list({id(tool): tool for tool in tools if tool is not None}.values())


def registries_of(engine: Any) -> tuple[ToolRegistry, ...]:
    """The tools of an engine, of the engines among its options, and of those that are tools of theirs."""
    engines: list[Any] = [engine]
    for known in engines:  # grows while it is gone through
        inner: list[Any] = [tool.engine for tool in known.runtime.tools]
        inner += [getattr(known, str(name)) for name in known.__dict__]
        engines += [
            value
            for value in inner
            if hasattr(value, "runtime") and not any(value is e for e in engines)
        ]
    return tuple(known.runtime.tools for known in engines)


def restored(begun: UndoBegun) -> RunOutcome:
    """How a run was about to end when its process died in the middle of undoing."""
    error = None if begun.error is None else begun.error.restore()
    return RunOutcome(begun.status, begun.stop_reason, begun.answer, error)


def must_undo(session: Session, outcome: RunOutcome) -> bool:
    """Whether a run ends in a way that undoes what it did."""
    dead = isinstance(outcome.error, (JournalError, Suspended))
    return session.saga and outcome.status not in ("completed", "waiting") and not dead
