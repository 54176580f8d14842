"""From a decision about a call to its observation: replay, doubt, attempt, recovery."""

from ...errors import Aborted, PhaseError, UnknownOutcome
from ...events.effects import LimitHit, ToolFinished, ToolStarted
from ...gates.base import Denial, Permit
from ...messages import Observation, ObservationStatus, arguments_hash
from ...tools.base import Tool
from ...tools.recovery import Retry
from ...tools.resolution import CallNotExecuted
from .in_doubt import Doubts, came_of
from .observe import observation_of
from .recovery import Asked, CallRecovery, Decide
from .tool_call import Attempt, Came, ToolCalls, check_permit

REPEATED_AFTER_CRASH = ("read", "idempotent")


class Executor:
    """Settles the calls of one scope."""

    def __init__(self, calls: ToolCalls, decide: Decide, ask: Asked) -> None:
        self._calls, self._session, self._services = (
            calls,
            calls.session,
            calls.services,
        )
        self._doubts = Doubts(calls)
        self._recovery = CallRecovery(
            calls, self._doubts, decide, ask, self._settle_instead
        )

    async def settle(self, decision: Permit | Denial) -> Observation:
        """What came of one call; recorded, durable with the next barrier. Raises only what ends or suspends the run."""
        return await self._settle(decision, recover=True)

    async def _settle_instead(self, decision: Permit | Denial) -> Observation:
        """The same for a call made in place of one that failed: there is no recovery of a recovery."""
        return await self._settle(decision, recover=False)

    async def _settle(self, decision: Permit | Denial, *, recover: bool) -> Observation:
        replay = self._session.replay
        outcome = replay.effects.outcome(decision.key)
        if isinstance(outcome, LimitHit):
            raise self._session.recorded_refusal(decision.key, outcome)
        if isinstance(outcome, ToolFinished):
            return self._recorded(decision, outcome)
        if isinstance(decision, Denial):
            return self._calls.finish(decision, Came(decision.status, decision.reason))
        tool, started = (
            self._services.tools.get(decision.call.name),
            replay.effects.intent(decision.key),
        )
        if isinstance(started, ToolStarted):
            came = await self._in_doubt(decision, tool, started, recover)
        else:
            came = await self._attempt(decision, tool, "first", recover=recover)
        observation = self._calls.finish(decision, came)
        self._stop_if_told(observation)
        return observation

    async def begin(self, permit: Permit, tool: Tool) -> Observation | None:
        """Record the intent of a call that an engine answers, once; durable before it starts.

        Gives the observation of a call that is not to start: its permit does not hold any more.
        """
        session = self._session
        outcome, started = (
            session.replay.effects.outcome(permit.key),
            session.replay.effects.intent(permit.key),
        )
        if isinstance(outcome, LimitHit):
            raise session.recorded_refusal(permit.key, outcome)
        if isinstance(outcome, ToolFinished) and outcome.status == "rejected":
            return self._recorded(permit, outcome)
        if isinstance(started, ToolStarted):
            self._same_call(permit, started)
        elif outcome is None:
            session.signals.check()
            session.signals.check_gap(permit.key)
            try:
                check_permit(permit, session, self._calls.policy())
                self._calls.intend(permit, tool)
                await session.writer.barrier()
                check_permit(permit, session, self._calls.policy())
            except PhaseError as error:
                return self._calls.finish(permit, self._calls.not_run(permit, error))
        session.permits.discard(permit)
        return None

    def end(
        self, permit: Permit, tool: Tool, status: ObservationStatus, content: str
    ) -> Observation:
        """What came of a call that an engine answered; on replay the recorded outcome."""
        outcome = self._session.replay.effects.outcome(permit.key)
        if isinstance(outcome, ToolFinished):
            return self._recorded(permit, outcome)
        return self._calls.finish(permit, self._calls.came(tool, status, content))

    def _recorded(
        self, decision: Permit | Denial, outcome: ToolFinished
    ) -> Observation:
        started = self._session.replay.effects.intent(decision.key)
        if isinstance(started, ToolStarted):
            self._same_call(decision, started)
        observation = observation_of(self._session, decision.call, outcome)
        if isinstance(decision, Permit):
            self._session.permits.discard(decision)
            self._calls.completed(
                decision, observation, self._session.replay.effects.seq(decision.key)
            )
            self._calls.completed_instead(decision.key)
        self._session.replay.effects.agree(decision.key)
        self._stop_if_told(observation)
        return observation

    def _same_call(self, decision: Permit | Denial, started: ToolStarted) -> None:
        call = decision.call
        if (started.tool, started.call_id, started.arguments_hash) != (
            call.name,
            call.id,
            arguments_hash(call.arguments),
        ):
            raise self._session.signals.diverge(
                decision.key,
                f"{started.tool} ({started.call_id})",
                f"{call.name} ({call.id})",
            )

    async def _attempt(
        self, permit: Permit, tool: Tool | None, kind: Attempt, *, recover: bool
    ) -> Came:
        if tool is None:  # only when a tool that the journal knows was taken away
            return Came("rejected", f"There is no tool {permit.call.name!r} any more.")
        came = await self._calls.attempt(permit, tool, kind)
        if came.failure and recover and tool.recovery:
            return await self._recovery.recover(permit, tool, came)
        return came

    async def _in_doubt(
        self, permit: Permit, tool: Tool | None, started: ToolStarted, recover: bool
    ) -> Came:
        """An intent without outcome: go on with its recovery, make again what may be, find out about the rest."""
        self._same_call(permit, started)
        last = self._session.replay.recoveries.last(permit.key)
        made_again = last is not None and last.strategy == Retry.name
        if (
            last is not None
            and tool is not None
            and not (made_again and started.sealed)
        ):
            return await self._recovery.resume(permit, tool, last)
        repeatable = started.effect in REPEATED_AFTER_CRASH and not started.sealed
        if repeatable and (tool is not None or started.effect == "read"):
            return await self._attempt(permit, tool, "in doubt", recover=recover)
        resolution = await self._doubts.resolve(permit, tool)
        if isinstance(resolution, CallNotExecuted) and not started.sealed:
            if isinstance(self._session.signals.ending, Aborted):
                return Came(
                    "rejected",
                    f"{permit.call.name} had not taken effect, and is not made any more.",
                )
            return await self._attempt(
                permit, tool, "retry", recover=recover
            )  # under the policy of now
        self._session.permits.discard(permit)
        return came_of(resolution)

    def _stop_if_told(self, observation: Observation) -> None:
        if observation.status == "unknown" and self._services.on_unknown == "stop":
            text = f"{observation.call.name} was interrupted; it is not known whether it took effect"
            raise self._session.signals.stick(UnknownOutcome(text))
