"""A failed call and what its tool wants done about that, step by step; each step is recorded before it is taken."""

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pydantic import BaseModel, Field

from ...errors import AskFailed, LimitReached, ProviderError, Suspended
from ...events.effect_key import recovery_question_key, substitute_key
from ...events.effects import ToolFinished
from ...events.recovery import CallDeadLettered, RecoveryTriggered
from ...events.run import Question as Pending
from ...gates.base import Denial, Permit
from ...labels import Label, highest
from ...messages import (
    DOUBTFUL,
    Conversation,
    Json,
    Observation,
    ToolCall,
    canonical_json,
)
from ...providers.base import Sampling
from ...security.redaction import REDACTED
from ...tools.base import Tool
from ...tools.recovery import (
    CachedResult,
    DeadLetter,
    Escalate,
    Fallback,
    LlmRecovery,
    Recovery,
    Retry,
    steps_of,
)
from ...tools.resolution import CallNotExecuted
from .in_doubt import Doubts, Found, came_of
from .reason import Question, Reply
from .structured_output import ask_model
from .tool_call import Came, ToolCalls

Decide: TypeAlias = Callable[[ToolCall, str], Awaitable[Permit | Denial | Pending]]
Asked: TypeAlias = Callable[[str, Question], Awaitable[Reply]]
Settle: TypeAlias = Callable[[Permit | Denial], Awaitable[Observation]]

CHANGES_THINGS = ("write", "destructive")
MEND = (
    "A call of the tool {tool} failed. Its arguments were:\n{arguments}\n\nWhat came of it:\n{error}\n\n"
    "The tool: {description}\nIts arguments must fit this JSON schema:\n{schema}\n\n"
    "Give arguments that could work, or none if no arguments will."
)


class MendedCall(BaseModel):
    """What a model proposes in place of a call that failed."""

    arguments: dict[str, Json] | None = Field(
        description="the arguments to try, or null if there is no point"
    )


@dataclasses.dataclass(frozen=True)
class Recovering:
    """Takes the steps for the calls of one scope."""

    calls: ToolCalls
    doubts: Doubts
    decide: Decide
    ask: Asked
    settle: Settle

    async def recover(self, permit: Permit, tool: Tool, came: Came) -> Came:
        """What came of a call in the end, after what can be done about its failure."""
        return await self._walk(permit, tool, came, 0)

    async def resume(self, permit: Permit, tool: Tool, last: RecoveryTriggered) -> Came:
        """The same, from the step that was under way when the process died."""
        steps, step = steps_of(tool.recovery), last.attempt - 1
        came = _came_to(tool, last)
        if step >= len(steps) or steps[step].name != last.strategy:
            return came  # the tool's recovery was changed since: what it came to then stands
        lost = (
            self._is_lost(permit)
            and self.calls.session.replay.approvals.decision(
                substitute_key(permit.key, step + 1)
            )
            is None
        )
        if lost and isinstance(steps[step], Fallback):  # it was not called yet
            return await self._walk(permit, tool, came, step + 1)
        taken = await self._take(steps[step], permit, tool, came, step)
        return await self._walk(permit, tool, taken, step + 1)

    async def _walk(self, permit: Permit, tool: Tool, came: Came, start: int) -> Came:
        for step, strategy in enumerate(steps_of(tool.recovery)[start:], start):
            if not came.failure:
                break
            if self._helps(strategy, tool, came, permit):
                came = await self._begin(strategy, permit, tool, came, step)
        return came

    def _helps(
        self, strategy: Recovery, tool: Tool, came: Came, permit: Permit
    ) -> bool:
        """Whether a strategy is for this kind of failure: what may have taken effect is not done again or elsewhere.

        Of a side effect that is a time-out and any exception but `ToolError`, by which the tool says that it failed.
        """
        if isinstance(strategy, (Escalate, DeadLetter)):
            return True
        if came.failure == "elsewhere":
            return False
        if self._is_lost(permit) and isinstance(
            strategy, (Retry, Fallback, LlmRecovery)
        ):
            return False
        if came.failure in ("timed_out", "raised") and tool.effect in CHANGES_THINGS:
            return False
        if isinstance(strategy, Retry):
            return came.failure in ("raised", "timed_out") and self._may_retry()
        if isinstance(strategy, LlmRecovery):
            return (
                came.failure in ("told", "raised") and permit.real is None
            )  # it would have to guess the secret
        if isinstance(strategy, CachedResult):
            return self._fresh(strategy, permit) is not None
        return True

    def _is_lost(self, permit: Permit) -> bool:
        """Whether the call cannot be made again, nor another one with its arguments."""
        return self.calls.session.secrets.is_lost(permit.key)

    def _may_retry(self) -> bool:
        session = self.calls.session
        most = session.budget.limits.max_tool_calls
        return session.remaining() != 0 and (
            most is None or session.budget.tool_calls < most
        )

    async def _begin(
        self, strategy: Recovery, permit: Permit, tool: Tool, came: Came, step: int
    ) -> Came:
        call, session, delay = permit.call, self.calls.session, 0.0
        session.signals.check(begun=True)
        if isinstance(strategy, Retry):
            turn = sum(
                isinstance(earlier, Retry) for earlier in steps_of(tool.recovery)[:step]
            )
            delay = random.uniform(  # noqa: S311 - jitter
                0, min(strategy.max_delay, strategy.base_delay * 2**turn)
            )
            left = session.remaining()
            if left is not None and delay >= left:
                return came
            session.budget.tool_calls += 1
        triggered = RecoveryTriggered(
            call.name,
            call.id,
            strategy.name,
            step + 1,
            came.status,
            came.content,
            round(delay, 6),
            came.failure,
            came.marked,
            came.label,
            came.untrusted,
        )
        session.writer.record(permit.key, triggered)
        session.replay.recoveries.begin(permit.key, triggered)
        if isinstance(
            strategy, LlmRecovery
        ):  # the model is about to read what came of the call
            session.sensitivity.observe(came.label, came.untrusted)
        if delay:
            try:
                with session.active.working():
                    await session.services.clock.sleep(delay)
            except asyncio.CancelledError:
                if not session.signals.aborting:
                    raise
                return dataclasses.replace(
                    came, failure=""
                )  # what it came to so far stands
        return await self._take(strategy, permit, tool, came, step)

    async def _take(
        self, strategy: Recovery, permit: Permit, tool: Tool, came: Came, step: int
    ) -> Came:
        """One step, live or again after a crash; gives what came of the call now."""
        match strategy:
            case Retry():
                return await self.calls.attempt(permit, tool, "retry")
            case Fallback():
                call = ToolCall(
                    strategy.tool, permit.call.arguments, f"{permit.call.id}_{step + 1}"
                )
                return await self._call_instead(call, permit, tool, came, step)
            case CachedResult():
                return self._cached(strategy, permit, tool, came)
            case LlmRecovery():
                return await self._mended(permit, tool, came, step)
            case Escalate():
                return await self._escalated(permit, tool, came)
            case DeadLetter():
                return self._set_aside(strategy, permit, tool, came)

    async def _call_instead(
        self, call: ToolCall, permit: Permit, tool: Tool, came: Came, step: int
    ) -> Came:
        """Another call in place of the one that failed: gated, recorded and in doubt as any other."""
        key = substitute_key(permit.key, step + 1)
        if permit.real is not None:
            secrets = self.calls.session.secrets
            if key not in secrets:
                whole = dataclasses.replace(call, arguments=permit.real.arguments)
                secrets.keep(key, whole)
        decided = await self.decide(call, key)
        if isinstance(decided, Pending):
            self.calls.session.pending.append(decided)
            await (
                self.calls.session.writer.barrier()
            )  # other branches may go on for long
            raise Suspended(f"waiting for a decision about {call.name}")
        observation = await self.settle(decided)
        finished = self.calls.outcome_instead(key)
        label: Label = "public" if finished is None else finished.label
        untrusted = finished is not None and finished.untrusted
        ok, told = (
            observation.status == "ok",
            f"[{_instead(permit, call)}]\n{observation.content}",
        )
        if ok and call.name != tool.name:
            return Came(
                "ok", told, came.seconds, label=label, marked=True, untrusted=untrusted
            )
        label, untrusted = highest((came.label, label)), came.untrusted or untrusted
        both = dataclasses.replace(
            came, cut=0, label=label, marked=True, untrusted=untrusted
        )
        if ok:  # it tells the arguments, which were made out of the failure
            return dataclasses.replace(both, status="ok", content=told, failure="")
        told = self.calls.told(tool, came)
        told = f"{told}\n[{_instead(permit, call)}: {observation.status}]\n{observation.content}"
        if finished is not None and self._may_have_taken_effect(finished):
            return dataclasses.replace(
                both, status=observation.status, content=told, failure="elsewhere"
            )
        return dataclasses.replace(both, content=told)

    def _may_have_taken_effect(self, finished: ToolFinished) -> bool:
        """Whether a call of which nobody knows that it did nothing changes things."""
        tool = self.calls.services.tools.get(finished.tool)
        changes_things = tool is None or tool.effect in CHANGES_THINGS
        return changes_things and (
            finished.status in DOUBTFUL or finished.failure == "raised"
        )

    def _fresh(
        self, strategy: CachedResult, permit: Permit
    ) -> tuple[float, ToolFinished] | None:
        """The age in seconds of the last good result of the same call, and that result, if it is fresh enough."""
        session = self.calls.session
        known = session.replay.recoveries.good_results.get(
            (permit.call.name, permit.arguments_hash)
        )
        if known is None:
            return None
        age = max(session.writer.wall() - known[0], 0.0)
        return (age, known[1]) if age <= strategy.max_age else None

    def _cached(
        self, strategy: CachedResult, permit: Permit, tool: Tool, came: Came
    ) -> Came:
        known = self._fresh(strategy, permit)
        if known is None:  # it grew too old while the process was down
            return came
        age, good = known
        earlier = Came(
            "ok",
            good.content,
            came.seconds,
            "",
            good.cut,
            good.label,
            good.marked,
            good.untrusted,
        )
        told = f"[the call fails now; this is its result of {age:.0f} s ago]\n{self.calls.told(tool, earlier)}"
        return dataclasses.replace(earlier, content=told, cut=0, marked=True)

    async def _mended(self, permit: Permit, tool: Tool, came: Came, step: int) -> Came:
        schema = canonical_json(dict(tool.schema)).decode()
        arguments = canonical_json(dict(permit.call.arguments)).decode()
        error = self.calls.told(tool, came)
        asked = MEND.format(
            tool=tool.name,
            arguments=arguments,
            error=error,
            description=tool.description,
            schema=schema,
        )
        numbers = itertools.count()

        async def settle(question: Question) -> Reply:
            return await self.ask(
                recovery_question_key(permit.key, step + 1, next(numbers)), question
            )

        provider = self.calls.services.provider
        try:
            mended = await ask_model(
                settle,
                Conversation.of(asked),
                MendedCall,
                Sampling(),
                provider,
                "recovery",
            )
        except (AskFailed, ProviderError, LimitReached):
            return came
        if mended.arguments is None or mended.arguments == dict(permit.call.arguments):
            return came
        if (
            REDACTED in canonical_json(mended.arguments).decode()
        ):  # it wrote a secret, which was taken out of its words
            return came
        call = ToolCall(tool.name, mended.arguments, f"{permit.call.id}_{step + 1}")
        return await self._call_instead(call, permit, tool, came, step)

    async def _escalated(self, permit: Permit, tool: Tool, came: Came) -> Came:
        text = f"{permit.call.name} failed ({came.status}): {came.content}"
        resolution = self.doubts.known(permit) or self.doubts.ask(
            permit, text, "failure"
        )
        if isinstance(resolution, Found):
            return dataclasses.replace(came_of(resolution), seconds=came.seconds)
        if isinstance(resolution, CallNotExecuted):
            return await self.calls.attempt(permit, tool, "retry")
        return came

    def _set_aside(
        self, strategy: DeadLetter, permit: Permit, tool: Tool, came: Came
    ) -> Came:
        call = permit.call
        letter = CallDeadLettered(
            call.name,
            call.id,
            call.arguments,
            came.status,
            came.content,
            strategy.queue,
        )
        if permit.key not in self.calls.session.replay.recoveries.dead_lettered:
            self.calls.session.writer.record(permit.key, letter)
        told = self.calls.told(tool, came)
        told = f"{told}\n[The call was set aside for a person to see to later; do not make it again.]"
        return dataclasses.replace(came, content=told, failure="", cut=0, marked=True)


def _came_to(tool: Tool, last: RecoveryTriggered) -> Came:
    """What a call had come to before a step of its recovery.

    The origin of a tool's own words, and the label of its tool, are known also where an old entry does not say them.
    """
    its_own = last.status in ("ok", "error") or last.failure == "raised"
    label = highest((last.label, tool.label)) if its_own else last.label
    untrusted = last.untrusted or (its_own and not tool.trusted)
    return Came(
        last.status, last.error, 0.0, last.failure, 0, label, last.marked, untrusted
    )


def _instead(permit: Permit, call: ToolCall) -> str:
    if call.name != permit.call.name:
        return f"{permit.call.name} failed; {call.name} was called instead"
    return f"{permit.call.name} failed; it was called with {canonical_json(dict(call.arguments)).decode()} instead"
