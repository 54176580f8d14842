"""Invoke tools that are not functions: an engine that answers as a tool, and the user."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...errors import ConfigError, PhaseError, ToolError
from ...events.effect_key import EffectKey
from ...events.effects import LimitHit, ToolFinished, ToolStarted
from ...events.run import Question
from ...gates.base import Permit
from ...messages import JsonObject, Observation, ObservationStatus, ToolCall
from ...result import RunOutcome
from ...tools.base import Tool, ask_user
from .ask_user import await_answer
from .permits import check_permit
from .tool_call import ToolCalls, ToolOutcome


class ToolInvoker(Protocol):
    """Returns the observation of a call that is permitted; chosen by the call's tool."""

    async def invoke(self, permit: Permit, tool: Tool, /) -> Observation:
        """Return the observation of one call, recorded."""
        ...


class RuntimeCalls:
    """The intents and outcomes of calls that the runtime answers itself."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls
        self.session = calls.session

    async def begin(
        self, permit: Permit, tool: Tool, check: Callable[[], None] | None = None
    ) -> Observation | None:
        """Record the intent of a call once, durable before it starts.

        Return an observation for a call that is not to start, since its permit does not
        hold any more, or `check` refuses it.
        """
        session, effects = self.session, self.session.replay.effects
        recorded, started = effects.outcome(permit.key), effects.intent(permit.key)
        if isinstance(recorded, LimitHit):
            raise session.recorded_refusal(permit.key, recorded)
        if isinstance(recorded, ToolFinished) and recorded.status == "rejected":
            return self._calls.replay(permit, recorded)
        if isinstance(started, ToolStarted):
            self._calls.check_same_call(permit, started)
        elif recorded is None:
            await session.replay_end.reach(permit.key)
            self._calls.check_signals(permit, begun=False)
            session.signals.check_gap(permit.key, f"a call of {permit.call.name}")
            try:
                if check is not None:
                    check()
                await self._intend(permit, tool)
            except PhaseError as error:
                return self._calls.finish(permit, self._calls.not_run(permit, error))
            except ConfigError as error:
                return self._refuse(permit, tool, error)
        session.permits.discard(permit)
        return None

    def _refuse(self, permit: Permit, tool: Tool, error: ConfigError) -> Observation:
        self.session.permits.discard(permit)
        text = f"{tool.name} was not run: {error}"
        outcome = self._calls.build_outcome(tool, "rejected", text)
        return self._calls.finish(permit, outcome)

    async def _intend(self, permit: Permit, tool: Tool) -> None:
        active, policy = self.session.active, self._calls.policy
        seconds = active.seconds()
        check_permit(permit, self.session, seconds, policy())
        self._calls.intend(permit, tool, seconds)
        await self.session.writer.barrier()
        check_permit(permit, self.session, active.seconds(), policy())

    def finish(self, permit: Permit, outcome: ToolOutcome) -> Observation:
        """Record the outcome of a call, and return it as an observation."""
        return self._calls.finish(permit, outcome)

    def replay(self, permit: Permit, recorded: ToolFinished) -> Observation:
        """Return the observation of a call whose outcome is recorded."""
        return self._calls.replay(permit, recorded)

    def end(
        self, permit: Permit, tool: Tool, status: ObservationStatus, content: str
    ) -> Observation:
        """Return the observation of a call that was answered: the recorded one, if there is one."""
        recorded = self.session.replay.effects.outcome(permit.key)
        if isinstance(recorded, ToolFinished):
            return self._calls.replay(permit, recorded)
        outcome = self._calls.build_outcome(tool, status, content)
        return self._calls.finish(permit, outcome)


class EngineInvoker:
    """Invokes an engine that is a tool: a child run at the call's place, driven again on resume."""

    def __init__(
        self,
        calls: RuntimeCalls,
        run_engine: Callable[
            [Tool, JsonObject, str], Awaitable[tuple[RunOutcome, Any]]
        ],
        check: Callable[[Any], None],
    ) -> None:
        self._calls, self._run_engine, self._check = calls, run_engine, check

    async def invoke(self, permit: Permit, tool: Tool, /) -> Observation:
        """Return the answer of the engine, or how it ended without one."""
        secrets, arguments = self._calls.session.secrets, permit.call.arguments
        secrets.merge(tool.engine.runtime.redactor)
        check = functools.partial(self._check_engine, tool, arguments)
        not_run = await self._calls.begin(permit, tool, check)
        if not_run is not None:
            return not_run
        tool = tool.for_call(arguments)
        secrets.merge(tool.engine.runtime.redactor)
        try:
            outcome = await self._run(permit, tool)
        except ToolError as error:  # the arguments do not fit
            return self._calls.end(permit, tool, "error", str(error))
        status, text = _read_outcome(tool, outcome)
        return self._calls.end(permit, tool, status, text)

    def _check_engine(self, tool: Tool, arguments: JsonObject) -> None:
        self._check(tool.for_call(arguments).engine)

    async def _run(self, permit: Permit, tool: Tool) -> RunOutcome | None:
        """Return how the engine ended; `None` if the run was aborted."""
        session, path = self._calls.session, EffectKey.parse(permit.key).child_path
        try:
            outcome, _ = await self._run_engine(tool, permit.call.arguments, path)
        except asyncio.CancelledError:
            if not session.signals.aborting:
                raise
            outcome = None
        if session.replay.effects.outcome(permit.key) is None:
            await session.replay_end.reach(permit.key)
        return outcome


def _read_outcome(
    tool: Tool, outcome: RunOutcome | None
) -> tuple[ObservationStatus, str]:
    """Return the status and the text of a call that an engine answered."""
    if outcome is None or outcome.status == "aborted":
        return "cancelled", f"{tool.name} was interrupted."
    if outcome.status == "completed" and outcome.answer is not None:
        try:
            return "ok", tool.child.read(outcome.answer)
        except ValueError as error:
            return "error", f"{tool.name} gave an answer of another form: {error}"
    text = f"{tool.name} ended as {outcome.status} ({outcome.stop_reason})"
    if outcome.answer is not None:
        text = f"{text}; its best answer: {outcome.answer}"
    return "error", text


class HandoffInvoker:
    """Invokes the tools that hand the run off: what the model reads; the engine ends after all calls of the turn."""

    def __init__(self, calls: RuntimeCalls, check: Callable[[str], None]) -> None:
        self._calls, self._check = calls, check

    async def invoke(self, permit: Permit, tool: Tool, /) -> Observation:
        """Return that the run is handed off, or why not."""
        agent = tool.handoff.agent if tool.handoff else ""
        check = functools.partial(self._check, agent)
        not_run = await self._calls.begin(permit, tool, check)
        if not_run is not None:
            return not_run
        if self._calls.session.replay.effects.outcome(permit.key) is None:
            await self._calls.session.replay_end.reach(permit.key)
        return self._calls.end(permit, tool, "ok", f"Handed off to {agent}.")


class UserInvoker:
    """Invokes the tool that asks the user; on resume, the answer is looked for again."""

    def __init__(self, calls: RuntimeCalls) -> None:
        self._calls = calls

    async def invoke(self, permit: Permit, tool: Tool, /) -> Observation:
        """Return the user's answer; raise `Suspended` until there is one."""
        session, call = self._calls.session, permit.call
        not_run = await self._calls.begin(permit, tool)
        if not_run is not None:
            return not_run
        if session.replay.effects.outcome(permit.key) is not None:
            return self._calls.end(permit, tool, "ok", "")
        await session.replay_end.reach(permit.key)
        asked = Question(
            permit.key, _write_question(call), call.name, {}, call.id, "question"
        )
        _, answer = await await_answer(session, asked)
        return self._calls.end(permit, tool, "ok", answer)


def _write_question(call: ToolCall) -> str:
    """Return what the user is asked: of a tool that a front end carries out, its result."""
    if call.name == ask_user.name:
        return str(call.arguments.get("question", ""))
    return f"{call.name} is called: what does it return?"
