"""The only place where a tool runs: permit, slots, breaker, intent, deadline, outcome."""

import asyncio
import copy
import dataclasses
import inspect
import json
import traceback
from collections.abc import Callable
from typing import Any

from pydantic_core import to_jsonable_python

from .bounded import Ended, run_bounded
from .errors import CircuitOpen, LimitReached, PhaseError, ToolError, UnknownOutcome, text_of
from .events import LimitHit, ToolFinished, ToolStarted
from .log import logger
from .messages import Observation, ObservationStatus, arguments_hash
from .parts import Parts
from .policy import Denial, Permit
from .session import Session
from .tools import Tool, ToolContext

REPEATED_AFTER_CRASH = ("read", "idempotent")
UNKNOWN = (
    "This call was interrupted and it is not known whether it took effect. Do not assume that it did or did not: "
    "check before you rely on it, and do not simply repeat it."
)


def check_permit(permit: Permit, session: Session, policy: str | None) -> None:
    """Raise `PhaseError` unless the permit is live and the call is still the one that the gate saw.

    `policy` is the policy version of now; `None` for a call whose intent is recorded, which was allowed then.
    """
    if permit not in session.permits:
        raise PhaseError(f"the permit of {permit.call.name} was used or is not of this run: gate a new proposal")
    if policy is not None and permit.policy_version != policy:
        raise PhaseError(f"the policy changed since {permit.call.name} was allowed: gate a new proposal")
    if permit.expires < session.active.seconds():
        raise PhaseError(f"the permit of {permit.call.name} has expired: act right after the gate")
    if arguments_hash(permit.call.arguments) != permit.arguments_hash:
        raise PhaseError(
            f"the arguments of {permit.call.name} were changed after the gate: let a gate return Modify instead"
        )


@dataclasses.dataclass(frozen=True)
class Executor:
    """Runs the calls of one scope."""

    session: Session
    parts: Parts
    policy: Callable[[], str]

    async def settle(self, decision: Permit | Denial) -> Observation:
        """What came of one call; recorded, durable with the next barrier. Raises only what ends the run."""
        outcome = self.session.replay.outcome(decision.key)
        if isinstance(outcome, LimitHit):
            raise self.session.refused(decision.key, outcome)
        if isinstance(outcome, ToolFinished):
            return self._recorded(decision, outcome)
        if isinstance(decision, Denial):
            return self._finish(decision, decision.status, decision.reason, 0.0)
        started = self.session.replay.intent(decision.key)
        if isinstance(started, ToolStarted):
            return await self._in_doubt(decision, started)
        return await self._run(decision)

    async def begin(self, permit: Permit, tool: Tool) -> Observation | None:
        """Record the intent of a call that an engine answers, once; durable before it starts.

        Gives the observation of a call that is not to start: its permit does not hold any more.
        """
        session = self.session
        outcome, started = session.replay.outcome(permit.key), session.replay.intent(permit.key)
        if isinstance(outcome, LimitHit):
            raise session.refused(permit.key, outcome)
        if isinstance(outcome, ToolFinished) and outcome.status == "rejected":
            return self._recorded(permit, outcome)
        if isinstance(started, ToolStarted):
            self._same_call(permit, started)
        elif outcome is None:
            session.check_signal()
            session.check_gap(permit.key)
            self._intend(permit, tool)
            await session.barrier()
            try:
                check_permit(permit, session, self.policy())
            except PhaseError as error:
                return self._not_run(permit, error)
        session.permits.discard(permit)
        return None

    def end(self, permit: Permit, tool: Tool, status: ObservationStatus, content: str) -> Observation:
        """What came of a call that an engine answered; on replay the recorded outcome."""
        outcome = self.session.replay.outcome(permit.key)
        if isinstance(outcome, ToolFinished):
            return self._recorded(permit, outcome)
        return self._finish(permit, status, self._capped(tool, content), 0.0)

    def _recorded(self, decision: Permit | Denial, outcome: ToolFinished) -> Observation:
        started = self.session.replay.intent(decision.key)
        if isinstance(started, ToolStarted):
            self._same_call(decision, started)
        if isinstance(decision, Permit):
            self.session.permits.discard(decision)
        self.session.replay.agree(decision.key)
        observation = Observation(decision.call, outcome.status, outcome.content)
        self._stop_if_told(observation)
        return observation

    def _same_call(self, decision: Permit | Denial, started: ToolStarted) -> None:
        call = decision.call
        if (started.tool, started.call_id, started.arguments_hash) != (
            call.name,
            call.id,
            arguments_hash(call.arguments),
        ):
            raise self.session.diverged(decision.key, f"{started.tool} ({started.call_id})", f"{call.name} ({call.id})")

    async def _in_doubt(self, permit: Permit, started: ToolStarted) -> Observation:
        """An intent without outcome: repeat what may be repeated, say of the rest that nobody knows."""
        self._same_call(permit, started)
        if started.effect in REPEATED_AFTER_CRASH:
            return await self._run(permit, again=True)
        self.session.permits.discard(permit)
        observation = self._finish(permit, "unknown", UNKNOWN, 0.0)
        self._stop_if_told(observation)
        return observation

    def _stop_if_told(self, observation: Observation) -> None:
        if observation.status == "unknown" and self.parts.on_unknown == "stop":
            text = f"{observation.call.name} was interrupted; it is not known whether it took effect"
            raise self.session.stick(UnknownOutcome(text))

    async def _run(self, permit: Permit, *, again: bool = False) -> Observation:
        tool = self.parts.tools.get(permit.call.name)
        if tool is None:  # only when a tool that the journal knows was taken away
            return self._finish(permit, "rejected", f"There is no tool {permit.call.name!r} any more.", 0.0)
        async with self.session.slots_of(tool), self.session.tool_slots:  # who waits for its tool holds no other up
            self.session.check_signal(begun=again)
            self.session.check_gap(permit.key)
            breaker = self.session.parts.breakers.get(f"tool/{tool.name}")
            try:
                given = breaker.acquire(self.session.breaker_changed)
            except CircuitOpen as error:
                return self._finish(permit, "rejected", str(error), 0.0)
            ended, observation = None, None
            try:
                observation, ended = await self._start(permit, tool, again)
            finally:
                if ended is None or isinstance(ended.error, ToolError):
                    breaker.cancel(given)
                elif ended.error is None and not ended.timed_out:
                    breaker.success(given, self.session.breaker_changed)
                else:
                    breaker.failure(given, self.session.breaker_changed)
            return observation

    async def _start(self, permit: Permit, tool: Tool, again: bool) -> tuple[Observation, Ended | None]:
        """Record the intent, make it durable, run the tool, record the outcome."""
        session, call = self.session, permit.call
        if not again:
            self._intend(permit, tool)
        await session.barrier()
        try:
            check_permit(permit, session, None if again else self.policy())
            keywords = tool.keywords(copy.deepcopy(dict(call.arguments)))  # the tool may change what it is given
        except (PhaseError, ValueError) as error:
            return self._not_run(permit, error), None
        finally:
            session.permits.discard(permit)
        before = session.active.seconds()
        timeout = _least(tool.timeout or self.parts.limits.tool_timeout, session.remaining())
        with session.active.working():
            try:
                ended = await run_bounded(self._call(tool, permit, keywords, timeout), timeout)
            except asyncio.CancelledError:
                if session.aborting:
                    text = f"{call.name} was interrupted; it is not known whether it took effect."
                    self._finish(permit, "cancelled", text, session.active.seconds() - before)
                raise
        status, content = self._read(tool, ended, timeout)
        return self._finish(permit, status, content, session.active.seconds() - before), ended

    def _not_run(self, permit: Permit, error: Exception) -> Observation:
        self.session.permits.discard(permit)
        text = f"{permit.call.name} was not run, propose it again if it is still wanted: {error}"
        return self._finish(permit, "rejected", text, 0.0)

    def _intend(self, permit: Permit, tool: Tool) -> None:
        """Take a place in the budget and record the intent, or the refusal."""
        session, call = self.session, permit.call
        try:
            session.check_time()
            session.budget.take_tool_call()
        except LimitReached as error:
            raise session.refuse(permit.key, error) from None
        idempotency_key = session.idempotency_key(permit.key)
        session.record(permit.key, ToolStarted(call.name, call.id, permit.arguments_hash, idempotency_key, tool.effect))

    async def _call(self, tool: Tool, permit: Permit, keywords: dict[str, Any], timeout: float | None) -> Any:
        positional: tuple[Any, ...] = ()
        if tool.takes_context:
            session = self.session
            key = session.idempotency_key(permit.key)
            positional = (ToolContext(session.run_id, permit.key, key, timeout, session.deps),)
        if tool.is_async:
            return await tool.function(*positional, **keywords)
        value = await self.parts.threads.run(lambda: tool.function(*positional, **keywords))
        return await value if inspect.isawaitable(value) else value

    def _read(self, tool: Tool, ended: Ended, timeout: float | None) -> tuple[ObservationStatus, str]:
        """The observation's status and text; tracebacks go to the log, not to the model."""
        if ended.timed_out:
            left = " It is still running in the background." if ended.abandoned else ""
            return "timed_out", f"{tool.name} gave no result within {timeout:g} s; it may still take effect.{left}"
        if isinstance(ended.error, ToolError):
            return "error", self._capped(tool, text_of(ended.error))
        if ended.error is not None:
            logger().warning(
                "tool_failed", tool=tool.name, run_id=self.session.run_id,
                traceback="".join(traceback.format_exception(ended.error)),
            )  # fmt: skip
            return "error", self._capped(tool, f"{type(ended.error).__name__}: {text_of(ended.error)}")
        try:
            return "ok", self._capped(tool, as_text(ended.value))
        except Exception as error:  # noqa: BLE001 - a foreign value may do anything when it is asked for its text
            return "error", f"{tool.name} returned something that cannot be written as text: {text_of(error)}"

    def _capped(self, tool: Tool, text: str) -> str:
        text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be stored or sent
        most = tool.max_output_chars or self.parts.limits.max_output_chars
        if most is None or len(text) <= most:
            return text
        return f"{text[:most]}\n[cut: {len(text)} characters, the first {most} shown]"

    def _finish(
        self, decision: Permit | Denial, status: ObservationStatus, content: str, seconds: float
    ) -> Observation:
        call = decision.call
        self.session.record(decision.key, ToolFinished(call.name, call.id, status, content, round(seconds, 6)))
        return Observation(call, status, content)


def as_text(value: Any) -> str:
    """A tool's result as the model reads it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return "done" if value is None else json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False)


def _least(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)
