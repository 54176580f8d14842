"""Run a tool once, which no other module does: permit, slots, breaker, intent, deadline."""

import asyncio
import copy
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeGuard

from ..._internal import dataclasses
from ..._internal.log import logger
from ...attachments import Attachment
from ...errors import (
    CircuitOpen,
    LimitReached,
    PhaseError,
    ToolError,
    UnknownOutcome,
    format_error,
)
from ...events.effect_key import is_substitute
from ...events.effects import Failure, ToolFinished, ToolStarted
from ...events.request_records import Excerpt
from ...gates.base import PERMIT_SECONDS, Denial, Permit
from ...labels import Label, highest
from ...messages import Observation, ObservationStatus, ToolCall, hash_arguments
from ...resilience.timeouts import CodeOutcome, run_with_timeout, shorter
from ...security.permit_claims import Claims
from ...security.redaction.attachments import clean_attachments
from ...security.redaction.errors import format_traceback
from ...tools.base import Tool, ToolContext
from ...tools.value import ToolValue, collect_values, read_value
from ..session.secrets import SECRET_LOST
from ..session.services import Services
from ..session.session import Session
from .observe import clean_text, observation_of, spotlight_text
from .permits import (
    check_in_time,
    check_permit,
    check_policy,
    check_same,
    tool_of,
)

Attempt: TypeAlias = Literal["first", "unknown outcome", "retry"]
INTERRUPTED = "was interrupted; it is not known whether it took effect."


@dataclasses.dataclass(frozen=True)
class ToolOutcome:
    """The outcome of a call so far.

    Args:
        status: how it ended.
        content: what the model is told of it.
        seconds: how long it took.
        failure: which failure a recovery may be for: the tool raised `ToolError` ("told"), it raised something else,
            it took too long, its circuit breaker is open, or a substitute call may have taken effect ("elsewhere").
        cut: the length of the whole content, if it was cut.
        label: how sensitive the content is.
        marked: whether what is from outside in the content is enclosed already, beside text of the runtime.
        untrusted: whether any of the content is from outside.
        attachments: the images and documents of the result, which the content names.
        recalled: the parts of earlier texts that the content is made of.
    """

    status: ObservationStatus
    content: str
    seconds: float = 0.0
    failure: Failure = ""
    cut: int = 0
    label: Label = "public"
    marked: bool = False
    untrusted: bool = False
    attachments: tuple[Attachment, ...] = ()
    recalled: tuple[Excerpt, ...] = ()


def can_undo(tool: Tool | None) -> TypeGuard[Tool]:
    """Whether the calls of a tool can be undone."""
    return tool is not None and tool.compensate is not None


def _copy_arguments(permit: Permit) -> dict[str, Any]:
    """Return the arguments that the tool gets, with their secrets; it may change them."""
    call = permit.unredacted or permit.call
    return copy.deepcopy(dict(call.arguments))


@dataclasses.dataclass(frozen=True)
class ToolCalls:
    """Makes the calls of one scope."""

    session: Session
    services: Services
    policy: Callable[[], str]
    _substitutes: dict[str, ToolFinished] = dataclasses.field(
        default_factory=dict[str, ToolFinished]
    )
    """The outcomes of substitute calls, by key."""

    async def attempt(self, permit: Permit, tool: Tool, kind: Attempt) -> ToolOutcome:
        """Call the tool once, with a durable intent; return the outcome for the caller to record."""
        session = self.session
        # A call that waits for a slot of its tool takes no other tool's slot.
        async with session.slots_of(tool), session.tool_slots:
            self.check_signals(permit, begun=kind != "first")
            session.signals.check_gap(permit.key, f"a call of {permit.call.name}")
            breaker = session.services.breakers.get(f"tool/{tool.name}")
            changed = session.breaker_changed
            try:
                ticket = breaker.acquire(changed)
            except CircuitOpen as error:
                text = session.secrets.redactor.redact_text(str(error))
                return ToolOutcome("rejected", text, failure="open")
            ended: CodeOutcome | None = None
            try:
                outcome, ended = await self._start(permit, tool, kind)
            finally:
                if ended is None or isinstance(ended.error, ToolError):
                    breaker.cancel(ticket)
                elif ended.error is None and not ended.timed_out:
                    breaker.success(ticket, changed)
                else:
                    breaker.failure(ticket, changed)
            return outcome

    def check_signals(self, permit: Permit, *, begun: bool) -> None:
        """Raise the signal that keeps a call from being made.

        A limit that is met by a substitute is recorded: the call in whose place it stands gets no outcome.
        """
        try:
            self.session.signals.check(begun=begun)
        except LimitReached as met:
            if is_substitute(permit.key):
                raise self.session.refuse(permit.key, met) from None
            raise

    def intend(self, permit: Permit, tool: Tool, seconds: float) -> None:
        """Take a place in the budget and record the intent, or the refusal."""
        session, call = self.session, permit.call
        token = session.idempotency_key(permit.key)
        try:
            session.check_time(seconds)
            session.budget.count_tool_call()
        except LimitReached as error:
            raise session.refuse(permit.key, error) from None
        started = ToolStarted(
            call.name,
            call.id,
            permit.arguments_hash,
            token,
            tool.effect,
            permit.unredacted is not None,
        )
        session.writer.record(permit.key, started)

    def finish(self, decision: Permit | Denial, outcome: ToolOutcome) -> Observation:
        """Record the outcome of a call, and return it as an observation."""
        session, call, label = self.session, decision.call, outcome.label
        tool = tool_of(decision)
        if outcome.status == "denied":  # in the words of a gate, or of a person
            label = session.sensitivity.classify(outcome.content)
        elif tool is not None and outcome.status == "ok" and label != tool.label:
            label = highest((label, tool.label))
        finished = ToolFinished(
            call.name, call.id, outcome.status, outcome.content, round(outcome.seconds, 6), label,
            outcome.untrusted, outcome.cut, outcome.marked, session.active.take_waited(), outcome.failure,
            outcome.attachments, outcome.recalled,
        )  # fmt: skip
        session.sensitivity.observe(label, outcome.untrusted, decision.key)
        # Which parts of earlier texts an outcome is made of is stored, and not these texts again.
        stored = finished
        if finished.recalled:
            stored = dataclasses.replace(finished, content="")
        entry = session.writer.record(decision.key, stored)
        if is_substitute(decision.key):
            self._substitutes[decision.key] = finished
        observation = observation_of(session, call, finished, decision.key)
        session.replay.effects.settle(decision.key)
        if isinstance(decision, Permit):
            self._keep_for_undo(decision, tool, observation, entry.seq)
            self._keep_good_result(decision, finished, entry.at)
        return observation

    def _keep_good_result(
        self, permit: Permit, finished: ToolFinished, at: float
    ) -> None:
        """Keep the result of a call that succeeded itself, for a recovery of the same call."""
        recoveries = self.session.replay.recoveries
        is_good = finished.status == "ok" and permit.unredacted is None
        if is_good and permit.key not in recoveries.substituted:
            call = permit.call.name, permit.arguments_hash
            recoveries.good_results[call] = at, finished

    def substitute_outcome(self, key: str) -> ToolFinished | None:
        """Return the outcome of a substitute call."""
        known = self._substitutes.get(key) or self.session.replay.effects.outcome(key)
        return known if isinstance(known, ToolFinished) else None

    def spotlight_outcome(self, tool: Tool, outcome: ToolOutcome) -> str:
        """Return the content of an outcome as a model reads it beside text of the runtime."""
        if outcome.untrusted and not outcome.marked:
            return spotlight_text(self.session, tool.name, outcome.content, outcome.cut)
        return outcome.content

    def replay(self, decision: Permit | Denial, recorded: ToolFinished) -> Observation:
        """Return the observation of a call whose outcome is recorded."""
        key, replay = decision.key, self.session.replay
        started = replay.effects.intent(key)
        if isinstance(started, ToolStarted):
            self.check_same_call(decision, started)
        observation = observation_of(self.session, decision.call, recorded, key)
        if isinstance(decision, Permit):
            self.session.permits.discard(decision)
            seq, tool = replay.effects.seq(key), tool_of(decision)
            self._keep_for_undo(decision, tool, observation, seq)
            self._keep_substitutes_for_undo(key)
        replay.effects.agree(key)
        return observation

    def check_same_call(self, decision: Permit | Denial, started: ToolStarted) -> None:
        """Raise `ReplayDivergence` unless a call is the one whose intent is recorded."""
        call = decision.call
        hashed = hash_arguments(call.arguments)
        recorded = (started.tool, started.call_id, started.arguments_hash)
        if recorded != (call.name, call.id, hashed):
            raise self.session.signals.diverge(
                decision.key,
                f"{started.tool} ({started.call_id})",
                f"{call.name} ({call.id})",
            )

    def _keep_for_undo(
        self, permit: Permit, tool: Tool | None, observation: Observation, seq: int
    ) -> None:
        """Keep what a saga may have to undo: what the tool itself did, or may have done."""
        if not can_undo(tool):
            return
        recoveries, key = self.session.replay.recoveries, permit.key
        is_own = key not in recoveries.substituted
        has_succeeded = is_own and observation.status == "ok"
        if recoveries.has_timed_out(key) and not has_succeeded:
            # It may have taken effect, whatever came after the time-out.
            observation = Observation(permit.call, "timed_out", observation.text)
        elif not is_own:
            return
        self.session.completed[key] = seq, observation, tool

    def _keep_substitutes_for_undo(self, key: str) -> None:
        """Keep the substitutes of a call whose outcome is recorded: they are not invoked again."""
        replay = self.session.replay
        for other, finished in replay.recoveries.substitutes(key):
            tool = self.services.tools.get(finished.tool)
            decided = replay.approvals.decision(other)
            if not can_undo(tool):
                continue
            if decided is not None and decided.arguments is not None:
                call = ToolCall(finished.tool, decided.arguments, finished.call_id)
                observation = Observation(call, finished.status, finished.content)
                seq = replay.effects.seq(other)
                self.session.completed[other] = seq, observation, tool

    def not_run(self, permit: Permit, error: Exception) -> ToolOutcome:
        """Return the outcome of a call that was not made, since its permit does not hold."""
        self.session.permits.discard(permit)
        text = f"{permit.call.name} was not run, propose it again if it is still wanted: {error}"
        return ToolOutcome(
            "rejected", self.session.secrets.redactor.redact_text(text)
        )  # what does not fit is quoted

    def context(self, permit: Permit, timeout: float | None) -> ToolContext[Any]:
        """Return what the tool may know of the call."""
        session, call = self.session, permit.call
        lifetime = PERMIT_SECONDS if timeout is None else timeout
        claims = Claims(
            session.run_id,
            permit.key,
            call.id,
            call.name,
            permit.unredacted_hash or permit.arguments_hash,  # of what the tool gets
            permit.policy_version,
            session.writer.wall() + lifetime,
        )
        label, untrusted = session.sensitivity.at(permit.key)
        return ToolContext(
            session.run_id, permit.key, session.idempotency_key(permit.key), timeout, session.deps,
            _copy_arguments(permit), claims=claims, label=label, untrusted=untrusted,
            tags=session.tags, thread=session.thread, secrets=session.secrets.watch(session.services.secrets),
        )  # fmt: skip

    def timeout(self, tool: Tool, seconds: float) -> float | None:
        """Return how long one call of a tool may take that begins at `seconds` of active time."""
        timeout = tool.timeout or self.services.limits.tool_timeout
        return shorter(timeout, self.session.remaining_at(seconds))

    async def _start(
        self, permit: Permit, tool: Tool, kind: Attempt
    ) -> tuple[ToolOutcome, CodeOutcome | None]:
        """Record the intent, make it durable, and run the tool."""
        session = self.session
        if kind == "first":
            seconds, policy = session.active.seconds(), self.policy()
            try:
                # Before the intent: a call with an intent counts as begun in every process. The call may have waited.
                check_in_time(permit, seconds)
                check_policy(permit, session, policy)
            except PhaseError as error:
                return self.not_run(permit, error), None
            self.intend(permit, tool, seconds)
        await session.writer.barrier()
        try:
            keywords = self._bind_arguments(permit, tool, kind)
        except (PhaseError, ValueError) as error:
            return self.not_run(permit, error), None
        finally:
            session.permits.discard(permit)
        await session.writer.ensure_held()
        return await self._run(permit, tool, keywords)

    def _bind_arguments(
        self, permit: Permit, tool: Tool, kind: Attempt
    ) -> dict[str, Any]:
        """Check the permit at the moment of the call; return a copy of the arguments for the tool."""
        session = self.session
        if kind == "retry":
            check_same(permit, session, self.policy())
        else:
            seconds = session.active.seconds()
            policy = self.policy() if kind == "first" else None
            check_permit(permit, session, seconds, policy)
        may_be_lost = session.secrets.withheld and permit.unredacted is None
        if may_be_lost and session.secrets.is_lost(permit.key):
            # Never with the redacted text as a replacement.
            raise PhaseError(SECRET_LOST)
        return tool.bind_arguments(_copy_arguments(permit))

    async def _run(
        self, permit: Permit, tool: Tool, keywords: dict[str, Any]
    ) -> tuple[ToolOutcome, CodeOutcome | None]:
        """Run the tool, now that all is recorded."""
        session = self.session
        with session.active.working as before:
            timeout = self.timeout(tool, before)
            try:
                ended = await run_with_timeout(
                    self._call(tool, permit, keywords, timeout), timeout
                )
            except asyncio.CancelledError:
                status = session.signals.interruption(permit.key)
                if status is None:
                    raise
                seconds = session.active.seconds() - before
                text = f"{tool.name} {INTERRUPTED}"
                return ToolOutcome(status, text, seconds), None
        if ended.error is not None:
            session.signals.check_fatal(ended.error)
        seconds = session.active.seconds() - before
        return self._read(tool, ended, timeout, seconds), ended

    async def _call(
        self,
        tool: Tool,
        permit: Permit,
        keywords: dict[str, Any],
        timeout: float | None,
    ) -> CodeOutcome:
        """Call the tool; return its `ToolValue`, or the error that prevents that."""
        positional = (self.context(permit, timeout),) if tool.takes_context else ()
        limit = tool.max_output_chars or self.services.limits.max_output_chars
        in_thread, executor = self.session.writer.run_in_thread, self.services.executor
        if executor is not None and executor.accepts(tool):
            value = await executor.execute(tool, self.context(permit, timeout))
        elif tool.is_async:
            value = await tool.function(*positional, **keywords)
        else:
            value = await in_thread(
                lambda: read_value(tool.function(*positional, **keywords), limit)
            )
            value = await value if inspect.isawaitable(value) else value
        if type(value) is str:
            return CodeOutcome(ToolValue(value))
        if inspect.isasyncgen(value):
            value = await collect_values(value, limit)
        if inspect.isgenerator(value):  # it may take time, too
            value = await in_thread(lambda: read_value(value, limit))
        written: CodeOutcome = read_value(value, limit)
        return written

    def _read(
        self, tool: Tool, ended: CodeOutcome, timeout: float | None, seconds: float
    ) -> ToolOutcome:
        """Return the outcome of a call that ended; tracebacks go to the log, not to the model."""
        if ended.timed_out:
            left = " It is still running in the background." if ended.abandoned else ""
            text = f"{tool.name} gave no result within {timeout:g} s; it may still take effect.{left}"
            return ToolOutcome("timed_out", text, seconds, "timed_out")
        error = ended.error
        if isinstance(error, ToolError):
            text = format_error(error)
            return self.build_outcome(tool, "error", text, seconds, "told")
        if error is not None:
            logger().warning(
                "tool_failed",
                tool=tool.name,
                run_id=self.session.run_id,
                traceback=format_traceback(self.session.secrets.redactor, error),
            )
            text = f"{type(error).__name__}: {format_error(error)}"
            is_unknown = isinstance(error, UnknownOutcome)
            status: ObservationStatus = "unknown" if is_unknown else "error"
            return self.build_outcome(tool, status, text, seconds, "raised")
        written: CodeOutcome = ended.value
        if written.error is None:
            return self._build_result(tool, written.value, seconds)
        text = f"{tool.name} returned something that cannot be written as text: {format_error(written.error)}"
        return self.build_outcome(tool, "error", text, seconds)

    def _build_result(
        self, tool: Tool, value: ToolValue, seconds: float
    ) -> ToolOutcome:
        """Return the outcome of a call that succeeded; its attachments come with a line for each."""
        text, kept = value.text, tuple[Attachment, ...]()
        if value.attachments:
            redactor = self.session.secrets.redactor
            kept, lines = clean_attachments(
                redactor, value.attachments, trusted=tool.trusted
            )
            text = f"{lines}\n{text}" if text else lines
        outcome = self.build_outcome(tool, "ok", text, seconds)
        label = outcome.label
        if value.label not in (label, "public"):
            label = highest((label, value.label))
        untrusted = outcome.untrusted or value.untrusted
        return dataclasses.replace(
            outcome, attachments=kept, label=label, untrusted=untrusted
        )

    def build_outcome(
        self,
        tool: Tool,
        status: ObservationStatus,
        text: str,
        seconds: float = 0.0,
        failure: Failure = "",
    ) -> ToolOutcome:
        """Return the outcome of a call with the text of its tool."""
        clean = clean_text(self.session, tool, text)
        # The text of a cancelled call is the runtime's.
        untrusted = not tool.trusted and status != "cancelled"
        return ToolOutcome(
            status, clean.text, seconds, failure, clean.cut, clean.label, untrusted=untrusted
        )  # fmt: skip
