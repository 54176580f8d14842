"""Recovery of a failed call: the strategies of its tool, step by step; each step is recorded before it is taken."""

import asyncio
import functools
import itertools
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from pydantic import BaseModel

from ..._internal import dataclasses
from ..._internal.log import logger
from ...errors import (
    AskFailed,
    LimitReached,
    LoopwrightError,
    PhaseError,
    ProviderError,
    Suspended,
    ToolError,
)
from ...events.effect_key import recovery_question_key, substitute_key
from ...events.effects import ToolFinished
from ...events.recovery import CallDeadLettered, RecoveryTriggered
from ...events.run import Question as Pending
from ...gates.base import Denial, Permit
from ...labels import Label, highest
from ...messages import (
    UNCERTAIN_STATUSES,
    Conversation,
    JsonObject,
    Observation,
    ToolCall,
    canonical_json,
)
from ...providers.base import Sampling
from ...security.redaction.errors import format_traceback
from ...security.redaction.messages import redact_calls
from ...tools.base import Tool
from ...tools.recovery import (
    ASKS_NO_MODEL,
    CallOutcome,
    Escalate,
    FailedCall,
    RecoveryStrategy,
    Retry,
    steps_of,
)
from ...tools.resolution import CallNotExecuted
from .inference import Question, Reply
from .output_type import OutputType
from .structured_output import ask_model
from .tool_call import ToolCalls, ToolOutcome
from .unknown_outcome import OutcomeResolver, ResolvedResult, build_outcome

Decide: TypeAlias = Callable[[ToolCall, str], Awaitable[Permit | Denial | Pending]]
Asked: TypeAlias = Callable[[str, Question], Awaitable[Reply]]
Settle: TypeAlias = Callable[[Permit | Denial], Awaitable[Observation]]
M = TypeVar("M", bound=BaseModel)

SIDE_EFFECTS = ("write", "destructive")
DEAD_LETTER_NOTE = (
    "[The call was put in a queue for a person to handle later; do not make it again.]"
)


@dataclasses.dataclass(frozen=True)
class CallRecovery:
    """Recover the failed calls of one scope."""

    calls: ToolCalls
    resolver: OutcomeResolver
    decide: Decide
    ask: Asked
    settle: Settle

    async def recover(
        self, permit: Permit, tool: Tool, latest: ToolOutcome
    ) -> ToolOutcome:
        """Return the outcome of a call that failed, after all strategies that apply."""
        return await self._try_strategies(permit, tool, latest, 0)

    async def resume(
        self, permit: Permit, tool: Tool, last: RecoveryTriggered
    ) -> ToolOutcome:
        """Return the same, from the step that was under way when the process ended."""
        steps, step = steps_of(tool.recovery), last.attempt - 1
        latest = _restore_outcome(tool, last)
        if step >= len(steps) or steps[step].name != last.strategy:
            return latest  # the tool's strategies changed since: the recorded outcome stands
        under_way = RecoveryStep(self, steps[step], permit, tool, latest, step + 1)
        latest = await under_way.take()
        return await self._try_strategies(permit, tool, latest, step + 1)

    async def _try_strategies(
        self, permit: Permit, tool: Tool, latest: ToolOutcome, start: int
    ) -> ToolOutcome:
        for step, strategy in enumerate(steps_of(tool.recovery)[start:], start):
            if not latest.failure:
                break
            context = RecoveryStep(self, strategy, permit, tool, latest, step + 1)
            if context.applies():
                latest = await self._begin(context)
        return latest

    async def _begin(self, step: "RecoveryStep") -> ToolOutcome:
        """Record a step and take it, after its pause."""
        session, strategy, latest = self.calls.session, step.strategy, step.latest
        session.signals.check(begun=True)
        earlier = steps_of(step.tool.recovery)[: step.number - 1]
        repeats = sum(one.name == strategy.name for one in earlier)
        delay = max(strategy.delay(repeats), 0.0)
        if delay and session.is_too_long(delay):
            return latest
        if strategy.name == Retry.name:
            session.budget.tool_calls += 1
        step.record(delay)
        if strategy.name not in ASKS_NO_MODEL:  # a model is about to read the failure
            session.sensitivity.observe(latest.label, latest.untrusted)
        if delay and not await self._wait(delay):
            return dataclasses.replace(latest, failure="")  # the outcome so far stands
        return await step.take()

    async def _wait(self, delay: float) -> bool:
        """Wait; return whether the run continues after that."""
        session = self.calls.session
        try:
            with session.active.working:
                await session.services.clock.sleep(delay)
        except asyncio.CancelledError:
            if not session.signals.aborting:
                raise
            return False
        return True


class RecoveryStep:
    """One step of the recovery of one call: what its strategy may do (a `RecoveryContext`)."""

    def __init__(
        self,
        recovery: CallRecovery,
        strategy: RecoveryStrategy,
        permit: Permit,
        tool: Tool,
        latest: ToolOutcome,
        number: int,
    ) -> None:
        self.strategy, self.tool, self.latest = strategy, tool, latest
        self.number = number
        self._recovery, self._permit = recovery, permit
        self._calls, self._session = recovery.calls, recovery.calls.session
        self._has_called = False
        self._questions = itertools.count()

    # --- for the kernel ---

    def applies(self) -> bool:
        """Return whether the strategy applies; one of a third party that raises does not."""
        try:
            return self.strategy.applies(self)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a third party's strategy
            self._log(error)
            return False

    async def take(self) -> ToolOutcome:
        """Return the outcome that the strategy gives; where its own code raises, the failure stands."""
        try:
            outcome = await self.strategy.recover(self)
        except (Exception, asyncio.CancelledError) as raised:
            cuts = self._session.signals.cuts
            error = cuts.read_own_error(self._permit.key, raised)
            is_ours = isinstance(error, LoopwrightError)
            if (is_ours and not isinstance(error, ToolError)) or _is_from_kernel(
                raised
            ):
                raise  # a suspension, a limit, a misused context, a broken journal
            self._log(error)
            return self.latest
        if isinstance(outcome, ToolOutcome):
            return outcome
        self._log(
            TypeError(
                f"recover: must return an outcome of the context, got {outcome!r}"
            )
        )
        return self.latest

    def record(self, delay: float) -> None:
        """Record that the step begins, with the outcome so far."""
        call, latest = self._permit.call, self.latest
        triggered = RecoveryTriggered(
            call.name,
            call.id,
            self.strategy.name,
            self.number,
            latest.status,
            latest.content,
            round(delay, 6),
            latest.failure,
            latest.marked,
            latest.label,
            latest.untrusted,
        )
        self._session.writer.record(self._permit.key, triggered)
        self._session.replay.recoveries.begin(self._permit.key, triggered)

    def _log(self, error: BaseException) -> None:
        logger().warning(
            "recovery_failed",
            tool=self.tool.name,
            strategy=self.strategy.name,
            run_id=self._session.run_id,
            traceback=format_traceback(self._session.secrets.redactor, error),
        )

    # --- for the strategy ---

    @property
    def failed(self) -> FailedCall:
        """Return the call and its failure."""
        return self._failed

    @functools.cached_property
    def _failed(self) -> FailedCall:
        latest, tool, permit = self.latest, self.tool, self._permit
        is_uncertain = latest.failure in ("timed_out", "raised")
        has_side_effect = is_uncertain and tool.effect in SIDE_EFFECTS
        return FailedCall(
            permit.call,
            tool.effect,
            tool.description,
            tool.schema,
            latest.status,
            latest.content,
            self._calls.spotlight_outcome(tool, latest),
            latest.failure,
            may_have_taken_effect=has_side_effect or latest.failure == "elsewhere",
            has_arguments=not self._session.secrets.is_lost(permit.key),
            has_secret=permit.unredacted is not None,
        )

    @property
    def outcome(self) -> CallOutcome:
        """Return the failure as it stands."""
        return self.latest

    @property
    def has_budget(self) -> bool:
        """Whether time and tool calls are left for one more call."""
        return self._session.remaining() != 0 and self._session.budget.has_tool_call

    def succeed(self, content: str) -> CallOutcome:
        """Return an outcome of the strategy's own; what it is made of may be the failure."""
        latest = self._calls.build_outcome(
            self.tool, "ok", content, self.latest.seconds
        )
        label = highest((latest.label, self.latest.label))
        untrusted = latest.untrusted or self.latest.untrusted
        return dataclasses.replace(latest, label=label, untrusted=untrusted)

    def find_cached_result(self, max_age: float) -> CallOutcome | None:
        """Return the last good result of the same call if it is at most `max_age` seconds old."""
        permit, session = self._permit, self._session
        known = session.replay.recoveries.good_results.get(
            (permit.call.name, permit.arguments_hash)
        )
        if known is None:
            return None
        at, good = known
        age = max(session.writer.wall() - at, 0.0)
        if age > max_age:
            return None
        earlier = ToolOutcome(
            "ok",
            good.content,
            self.latest.seconds,
            "",
            good.cut,
            good.label,
            good.marked,
            good.untrusted,
            good.attachments,
        )
        note = f"[the call fails now; this is its result of {age:.0f} s ago]"
        text = f"{note}\n{self._calls.spotlight_outcome(self.tool, earlier)}"
        return dataclasses.replace(earlier, content=text, cut=0, marked=True)

    async def repeat(self) -> CallOutcome:
        """Make the same call again; its outcome counts as the call's own."""
        self._check_strategy(Retry)
        return await self._calls.attempt(self._permit, self.tool, "retry")

    async def ask_model(self, prompt: str, into: type[M]) -> M | None:
        """Return a model's reply outside the conversation; `None` if there was none that fits."""

        async def settle(question: Question) -> Reply:
            number = next(self._questions)
            key = recovery_question_key(self._permit.key, self.number, number)
            return await self._recovery.ask(key, question)

        conversation = Conversation.of(prompt)
        provider = self._calls.services.provider
        try:
            return await ask_model(
                settle,
                conversation,
                OutputType[M](into),
                Sampling(),
                provider,
                "recovery",
            )
        except (AskFailed, ProviderError, LimitReached):
            return None

    async def ask_person(self, text: str) -> CallOutcome:
        """Return what a person says the outcome is; suspend the run until then."""
        self._check_strategy(Escalate)
        resolver = self._recovery.resolver
        resolution = resolver.recorded(self._permit)
        if resolution is None:
            resolution = resolver.ask(self._permit, text, "failure")
        if isinstance(resolution, ResolvedResult):
            return dataclasses.replace(
                build_outcome(resolution), seconds=self.latest.seconds
            )
        if isinstance(resolution, CallNotExecuted):
            return await self._calls.attempt(self._permit, self.tool, "retry")
        return self.latest

    def dead_letter(self, queue: str) -> CallOutcome:
        """Record the call whole for a person to handle later."""
        call, latest, key = self._permit.call, self.latest, self._permit.key
        if key not in self._session.replay.recoveries.dead_lettered:
            asks_person = self._calls.services.on_unknown == "ask"
            recorded = CallDeadLettered(
                call.name,
                call.id,
                call.arguments,
                latest.status,
                latest.content,
                queue,
                resolvable=asks_person or self.tool.lookup is not None,
            )
            self._session.writer.record(key, recorded)
        text = f"{self.failed.error}\n{DEAD_LETTER_NOTE}"
        return dataclasses.replace(latest, content=text, failure="", cut=0, marked=True)

    async def call(self, tool: str, arguments: JsonObject) -> CallOutcome:
        """Make a substitute call: gated and recorded as any other call."""
        session, key = self._session, substitute_key(self._permit.key, self.number)
        if self._has_called:
            raise PhaseError(f"{self.strategy.name}: makes one call in a step")
        if self.failed.may_have_taken_effect:
            raise PhaseError(
                f"{self.strategy.name}: {self.tool.name} may have taken effect, so no substitute call is made"
            )
        self._has_called = True
        is_new = session.replay.approvals.decision(key) is None
        if is_new and not self.failed.has_arguments:
            return self.latest
        call_id = f"{self._permit.call.id}_{self.number}"
        call = self._withhold(ToolCall(tool, arguments, call_id), key)
        decided = await self._recovery.decide(call, key)
        if isinstance(decided, Pending):
            session.pending.append(decided)
            await session.writer.barrier()  # other branches may run for long
            raise Suspended(f"waiting for a decision about {call.name}")
        observation = await self._recovery.settle(decided)
        return self._combine(call, observation, self._calls.substitute_outcome(key))

    def _withhold(self, call: ToolCall, key: str) -> ToolCall:
        """Keep a substitute call whole for its tool, and return it without secrets."""
        secrets, permit = self._session.secrets, self._permit
        if call.arguments == permit.call.arguments:
            if permit.unredacted is not None and key not in secrets.calls:
                whole = dataclasses.replace(call, arguments=permit.unredacted.arguments)
                secrets.keep(key, whole)
            return call
        (clean,), withheld = redact_calls(self._calls.services.redactor, (call,))
        if withheld:
            secrets.keep(key, call)
        return clean

    def _combine(
        self, call: ToolCall, observation: Observation, finished: ToolFinished | None
    ) -> ToolOutcome:
        """Return the outcome of the call now that a substitute has one."""
        latest = self.latest
        label: Label = "public"
        untrusted = False
        if finished is not None:
            label, untrusted = finished.label, finished.untrusted
        note = _describe_substitute(self._permit, call)
        text = f"[{note}]\n{observation.content}"
        succeeded = observation.status == "ok"
        if succeeded and call.name != self.tool.name:
            return ToolOutcome(
                "ok",
                text,
                latest.seconds,
                label=label,
                marked=True,
                untrusted=untrusted,
                attachments=observation.attachments,
            )
        both = dataclasses.replace(
            latest,
            cut=0,
            label=highest((latest.label, label)),
            marked=True,
            untrusted=latest.untrusted or untrusted,
        )
        if succeeded:  # the note has the arguments, which were made out of the failure
            sent = observation.attachments
            return dataclasses.replace(
                both, status="ok", content=text, failure="", attachments=sent
            )
        text = f"{self.failed.error}\n[{note}: {observation.status}]\n{observation.content}"
        if finished is None or not self._may_have_taken_effect(finished):
            return dataclasses.replace(both, content=text)
        return dataclasses.replace(
            both, status=observation.status, content=text, failure="elsewhere"
        )

    def _may_have_taken_effect(self, finished: ToolFinished) -> bool:
        """Whether a substitute call may have changed something although it did not succeed."""
        tool = self._calls.services.tools.get(finished.tool)
        has_side_effects = tool is None or tool.effect in SIDE_EFFECTS
        is_uncertain = (
            finished.status in UNCERTAIN_STATUSES or finished.failure == "raised"
        )
        return has_side_effects and is_uncertain

    def _check_strategy(self, base: type[RecoveryStrategy]) -> None:
        """Raise `PhaseError` for another strategy: the journal tells by its name that the outcome is the call's own."""
        if not isinstance(self.strategy, base):
            raise PhaseError(
                f"{self.strategy.name}: only {base.__name__} and its subclasses may do this; derive the strategy from it"
            )


def _is_from_kernel(error: BaseException) -> bool:
    """Whether an error that a strategy let through was raised below a method of its context."""
    _, *below = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code.co_filename == __file__ for frame, _ in below)


def _restore_outcome(tool: Tool, last: RecoveryTriggered) -> ToolOutcome:
    """Return the outcome of a call before a step of its recovery.

    The origin of a tool's own text, and the label of its tool, are known where an early entry lacks them too.
    """
    is_own = last.status in ("ok", "error") or last.failure == "raised"
    label = highest((last.label, tool.label)) if is_own else last.label
    untrusted = last.untrusted or (is_own and not tool.trusted)
    return ToolOutcome(
        last.status, last.error, 0.0, last.failure, 0, label, last.marked, untrusted
    )


def _describe_substitute(permit: Permit, call: ToolCall) -> str:
    if call.name != permit.call.name:
        return f"{permit.call.name} failed; {call.name} was called instead"
    arguments = canonical_json(dict(call.arguments)).decode()
    return f"{permit.call.name} failed; it was called with {arguments} instead"
