"""Turn a decision about a function's call into its observation: replay, attempt, recovery."""

from ...errors import Aborted, UnknownOutcome
from ...events.effects import LimitHit, ToolFinished, ToolStarted
from ...gates.base import Denial, Permit
from ...messages import Observation
from ...tools.base import Tool
from ...tools.default_recovery import with_default_recovery
from ...tools.recovery import Retry
from ...tools.resolution import CallNotExecuted
from .permits import tool_of
from .recovery import Asked, CallRecovery, Decide
from .tool_call import Attempt, ToolCalls, ToolOutcome
from .unknown_outcome import OutcomeResolver, build_outcome

REPEATED_AFTER_CRASH = ("read", "idempotent")


class FunctionInvoker:
    """Invokes the tools of one scope that are functions; a denial gets its observation here too."""

    def __init__(self, calls: ToolCalls, decide: Decide, ask: Asked) -> None:
        self._calls, self._session = calls, calls.session
        self._resolver = OutcomeResolver(calls)
        self._recovery = CallRecovery(
            calls, self._resolver, decide, ask, self._invoke_substitute
        )

    async def invoke(
        self, decision: Permit | Denial, tool: Tool | None, *, recover: bool = True
    ) -> Observation:
        """Return the observation of one call; it is recorded, and durable with the next barrier.

        Raises only what ends or suspends the run.
        """
        effects = self._session.replay.effects
        if self._calls.services.default_recovery:
            tool = with_default_recovery(tool, self._calls.services.default_recovery)
        recorded = effects.outcome(decision.key)
        if isinstance(recorded, LimitHit):
            raise self._session.recorded_refusal(decision.key, recorded)
        if isinstance(recorded, ToolFinished):
            observation = self._calls.replay(decision, recorded)
        else:
            await self._session.replay_end.reach(decision.key)
            started = effects.intent(decision.key)
            if isinstance(decision, Denial):
                outcome = ToolOutcome(decision.status, decision.reason)
            elif isinstance(started, ToolStarted):
                outcome = await self._continue(decision, tool, started, recover)
            else:
                outcome = await self._attempt(decision, tool, "first", recover)
            observation = self._calls.finish(decision, outcome)
        if observation.status == "unknown":
            self._stop_at_unknown(observation)
        return observation

    async def _invoke_substitute(self, decision: Permit | Denial) -> Observation:
        """Invoke a substitute of a call that failed; it has no recovery of its own."""
        tool = tool_of(decision)
        return await self.invoke(decision, tool, recover=False)

    async def _attempt(
        self, permit: Permit, tool: Tool | None, kind: Attempt, recover: bool
    ) -> ToolOutcome:
        if tool is None:  # a tool that the journal knows was removed since
            return ToolOutcome(
                "rejected", f"There is no tool {permit.call.name!r} any more."
            )
        outcome = await self._calls.attempt(permit, tool, kind)
        if outcome.failure and recover and tool.recovery:
            return await self._recovery.recover(permit, tool, outcome)
        return outcome

    async def _continue(
        self, permit: Permit, tool: Tool | None, started: ToolStarted, recover: bool
    ) -> ToolOutcome:
        """Continue a call that was started, whose outcome is not recorded.

        Its recovery is resumed. Without one, the call is repeated if that is safe, and
        else its outcome is looked up, or asked for.
        """
        self._calls.check_same_call(permit, started)
        last = self._session.replay.recoveries.last(permit.key)
        if last is not None and tool is not None:
            repeats = last.strategy == Retry.name
            if not (repeats and started.sealed):
                return await self._recovery.resume(permit, tool, last)
        safe_effects = REPEATED_AFTER_CRASH if tool is not None else ("read",)
        is_repeatable = started.effect in safe_effects and not started.sealed
        if is_repeatable:
            return await self._attempt(permit, tool, "unknown outcome", recover)
        resolution = await self._resolver.resolve(permit, tool)
        if isinstance(resolution, CallNotExecuted) and not started.sealed:
            if isinstance(self._session.signals.ending, Aborted):
                text = f"{permit.call.name} had not taken effect, and is not made any more."
                return ToolOutcome("rejected", text)
            # It is made under the policy of now.
            return await self._attempt(permit, tool, "retry", recover)
        self._session.permits.discard(permit)
        return build_outcome(resolution)

    def _stop_at_unknown(self, observation: Observation) -> None:
        """End the run at a call with an unknown outcome, if the runtime wants it so."""
        if self._calls.services.on_unknown == "stop":
            text = f"{observation.call.name} was interrupted; it is not known whether it took effect"
            raise self._session.signals.stick(UnknownOutcome(text))
