"""The only place where a tool runs: permit, slots, breaker, intent, deadline; one attempt of one call."""

import asyncio
import contextlib
import copy
import dataclasses
import inspect
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, TypeAlias

from pydantic_core import to_jsonable_python

from ..._internal.log import logger
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
from ...gates.base import PERMIT_SECONDS, Denial, Permit
from ...labels import Label, highest
from ...messages import Observation, ObservationStatus, ToolCall, arguments_hash
from ...resilience.timeouts import CodeOutcome, capture, run_with_timeout
from ...security.permit_claims import Claims
from ...security.redaction.errors import format_traceback
from ...tools.base import Tool, ToolContext
from ..session.secrets import SECRET_LOST
from ..session.services import Services
from ..session.session import Session
from .observe import marked, observation_of, said

Attempt: TypeAlias = Literal["first", "in doubt", "retry"]


@dataclasses.dataclass(frozen=True)
class Came:
    """What came of a call so far.

    `failure` says what kind of failure it is, if it is one that a recovery may be for: the tool said what is wrong
    (`ToolError`), it raised something else, it took too long, its circuit breaker is open, or a call that was made in
    its place may have taken effect. `marked` says that what is from outside in the content stands there as a model
    reads it, beside words of the runtime. `label` is how sensitive the content is, `untrusted` whether any of it is
    from outside; both go with it wherever it goes.
    """

    status: ObservationStatus
    content: str
    seconds: float = 0.0
    failure: Failure = ""
    cut: int = 0
    label: Label = "public"
    marked: bool = False
    untrusted: bool = False


class ToolPermit(Permit):
    """A permit with the tool that it lets run, as it was when the call was decided."""

    tool: Tool | None
    """The tool; `None` for what is not a tool's call, or if the tool was removed."""


def check_permit(permit: Permit, session: Session, policy: str | None) -> None:
    """Raise `PhaseError` unless the permit is live and the call is still the one that the gate saw.

    `policy` is the policy version of now; `None` for a call whose intent is recorded, which was allowed then.
    """
    if permit not in session.permits:
        raise PhaseError(
            f"the permit of {permit.call.name} was used or is not of this run: gate a new proposal"
        )
    if permit.expires < session.active.seconds():
        raise PhaseError(
            f"the permit of {permit.call.name} has expired: act right after the gate"
        )
    check_same(permit, session, policy)


def check_same(permit: Permit, session: Session, policy: str | None) -> None:
    """Raise `PhaseError` if approval, policy or arguments are not those of the permit any more."""
    if (
        permit.until
        and permit.until <= session.services.clock.wall()
        and policy is not None
    ):
        raise PhaseError(f"the approval of {permit.call.name} has expired")
    back = session.intake.find_revocation(
        permit.key, permit.call.name, permit.leave
    ) or session.command_log.may_be_revoked(permit.leave)
    if back and policy is not None:
        raise PhaseError(f"the approval of {permit.call.name} was taken back")
    if policy is not None and permit.policy_version != policy:
        raise PhaseError(
            f"the policy changed since {permit.call.name} was allowed: gate a new proposal"
        )
    real = permit.real
    if arguments_hash(permit.call.arguments) != permit.arguments_hash or (
        real is not None and arguments_hash(real.arguments) != permit.real_hash
    ):
        raise PhaseError(
            f"the arguments of {permit.call.name} were changed after the gate: let a gate return Modify instead"
        )


@dataclasses.dataclass(frozen=True)
class ToolCalls:
    """Makes the calls of one scope."""

    session: Session
    services: Services
    policy: Callable[[], str]
    instead: dict[str, ToolFinished] = dataclasses.field(
        default_factory=dict[str, ToolFinished]
    )
    """What came of calls that were made in place of failed ones, by key."""

    async def attempt(self, permit: Permit, tool: Tool, kind: Attempt) -> Came:
        """Call the tool once. The intent is durable before it starts; what came of it is for the caller to record."""
        session = self.session
        async with (
            session.slots_of(tool),
            session.tool_slots,
        ):  # who waits for its tool holds no other up
            session.signals.check(begun=kind != "first")
            session.signals.check_gap(permit.key)
            breaker = session.services.breakers.get(f"tool/{tool.name}")
            try:
                given = breaker.acquire(session.breaker_changed)
            except CircuitOpen as error:
                return Came(
                    "rejected",
                    session.secrets.redactor.redact_text(str(error)),
                    failure="open",
                )
            ended, came = None, None
            try:
                came, ended = await self._start(permit, tool, kind)
            finally:
                if ended is None or isinstance(ended.error, ToolError):
                    breaker.cancel(given)
                elif ended.error is None and not ended.timed_out:
                    breaker.success(given, session.breaker_changed)
                else:
                    breaker.failure(given, session.breaker_changed)
            return came

    def intend(self, permit: Permit, tool: Tool) -> None:
        """Take a place in the budget and record the intent, or the refusal."""
        session, call = self.session, permit.call
        try:
            session.check_time()
            session.budget.count_tool_call()
        except LimitReached as error:
            raise session.refuse(permit.key, error) from None
        idempotency_key, sealed = (
            session.idempotency_key(permit.key),
            permit.real is not None,
        )
        started = ToolStarted(
            call.name,
            call.id,
            permit.arguments_hash,
            idempotency_key,
            tool.effect,
            sealed,
        )
        session.writer.record(permit.key, started)

    def finish(self, decision: Permit | Denial, came: Came) -> Observation:
        """Record what came of a call."""
        call, label, untrusted = decision.call, came.label, came.untrusted
        tool = decision.tool if isinstance(decision, ToolPermit) else None
        if tool is not None and came.status == "ok":
            label = highest((label, tool.label))
        elif came.status == "denied":  # a gate's words, or a person's
            label = self.session.sensitivity.classify(came.content)
        finished = ToolFinished(
            call.name, call.id, came.status, came.content, round(came.seconds, 6), label, untrusted, came.cut,
            came.marked, self.session.active.take_waited(), came.failure,
        )  # fmt: skip
        self.session.sensitivity.observe(label, untrusted)
        entry = self.session.writer.record(decision.key, finished)
        if is_substitute(decision.key):
            self.instead[decision.key] = finished
        observation = observation_of(self.session, call, finished)
        self.session.replay.effects.settle(decision.key)
        if isinstance(decision, Permit):
            self._keep_for_undo(decision, observation, entry.seq)
            if (
                came.status == "ok"
                and decision.real is None
                and self.session.replay.recoveries.has_own_outcome(decision.key)
            ):
                self.session.replay.recoveries.good_results[
                    call.name, decision.arguments_hash
                ] = (
                    entry.at,
                    finished,
                )
        return observation

    def outcome_instead(self, key: str) -> ToolFinished | None:
        """What came of a call that was made in place of a failed one."""
        known = self.instead.get(key) or self.session.replay.effects.outcome(key)
        return known if isinstance(known, ToolFinished) else None

    def told(self, tool: Tool, came: Came) -> str:
        """What came of a call so far as a model reads it, to stand beside words of the runtime."""
        outside = came.untrusted and not came.marked
        return (
            marked(self.session, tool.name, came.content, came.cut)
            if outside
            else came.content
        )

    def replay(self, decision: Permit | Denial, recorded: ToolFinished) -> Observation:
        """Return the observation of a call whose outcome is recorded."""
        key, replay = decision.key, self.session.replay
        started = replay.effects.intent(key)
        if isinstance(started, ToolStarted):
            self.check_same_call(decision, started)
        observation = observation_of(self.session, decision.call, recorded)
        if isinstance(decision, Permit):
            self.session.permits.discard(decision)
            self._keep_for_undo(decision, observation, replay.effects.seq(key))
            self._keep_substitutes_for_undo(key)
        replay.effects.agree(key)
        return observation

    def check_same_call(self, decision: Permit | Denial, started: ToolStarted) -> None:
        """Raise `ReplayDivergence` unless a call is the one whose intent is recorded."""
        call = decision.call
        hashed = arguments_hash(call.arguments)
        recorded = (started.tool, started.call_id, started.arguments_hash)
        if recorded != (call.name, call.id, hashed):
            raise self.session.signals.diverge(
                decision.key,
                f"{started.tool} ({started.call_id})",
                f"{call.name} ({call.id})",
            )

    def _keep_for_undo(
        self, permit: Permit, observation: Observation, seq: int
    ) -> None:
        """Keep what a saga may have to undo: what the tool itself did, or may have done."""
        tool = permit.tool if isinstance(permit, ToolPermit) else None
        if tool is None or tool.compensate is None:
            return
        recoveries, key = self.session.replay.recoveries, permit.key
        is_own = recoveries.has_own_outcome(key)
        if recoveries.has_timed_out(key) and not (
            is_own and observation.status == "ok"
        ):
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
            if tool is None or tool.compensate is None:
                continue
            if decided is not None and decided.arguments is not None:
                call = ToolCall(finished.tool, decided.arguments, finished.call_id)
                observation = Observation(call, finished.status, finished.content)
                seq = replay.effects.seq(other)
                self.session.completed[other] = seq, observation, tool

    def not_run(self, permit: Permit, error: Exception) -> Came:
        """A call that was not made since its permit does not hold."""
        self.session.permits.discard(permit)
        text = f"{permit.call.name} was not run, propose it again if it is still wanted: {error}"
        return Came(
            "rejected", self.session.secrets.redactor.redact_text(text)
        )  # what does not fit is quoted

    def context(self, permit: Permit, timeout: float | None) -> ToolContext[Any]:
        """What the tool may know of the call."""
        session = self.session
        key, call = session.idempotency_key(permit.key), permit.call
        expires = session.writer.wall() + (
            PERMIT_SECONDS if timeout is None else timeout
        )
        hashed = permit.real_hash or permit.arguments_hash  # of what the tool gets
        claims = Claims(
            session.run_id,
            permit.key,
            call.id,
            call.name,
            hashed,
            permit.policy_version,
            expires,
        )
        arguments = copy.deepcopy(dict((permit.real or call).arguments))
        return ToolContext(
            session.run_id,
            permit.key,
            key,
            timeout,
            session.deps,
            arguments,
            claims=claims,
        )

    def timeout(self, tool: Tool) -> float | None:
        """Seconds that one call of a tool may take now."""
        return _least(
            tool.timeout or self.services.limits.tool_timeout, self.session.remaining()
        )

    async def _start(
        self, permit: Permit, tool: Tool, kind: Attempt
    ) -> tuple[Came, CodeOutcome | None]:
        """Record the intent, make it durable, run the tool."""
        session, call = self.session, permit.call
        if kind == "first":
            try:
                check_permit(permit, session, self.policy())
            except PhaseError as error:  # before the intent: what has one counts as begun wherever the run goes on
                return self.not_run(permit, error), None
            self.intend(permit, tool)
        await session.writer.barrier()
        try:
            if kind == "retry":
                check_same(permit, session, self.policy())
            else:
                check_permit(
                    permit, session, self.policy() if kind == "first" else None
                )
            if permit.real is None and session.secrets.is_lost(
                permit.key
            ):  # never with what stands in its place
                raise PhaseError(SECRET_LOST)
            arguments = (permit.real or call).arguments
            keywords = tool.bind_arguments(
                copy.deepcopy(dict(arguments))
            )  # the tool may change what it is given
        except (PhaseError, ValueError) as error:
            return self.not_run(permit, error), None
        finally:
            session.permits.discard(permit)
        await session.writer.ensure_held()
        return await self._run(permit, tool, keywords)

    async def _run(
        self, permit: Permit, tool: Tool, keywords: dict[str, Any]
    ) -> tuple[Came, CodeOutcome | None]:
        """Run the tool, now that all is recorded."""
        session, timeout = self.session, self.timeout(tool)
        before = session.active.seconds()
        with session.active.working():
            try:
                ended = await run_with_timeout(
                    self._call(tool, permit, keywords, timeout), timeout
                )
            except asyncio.CancelledError:
                if not session.signals.aborting:
                    raise
                text = f"{tool.name} was interrupted; it is not known whether it took effect."
                return Came("cancelled", text, session.active.seconds() - before), None
        if (
            session.signals.fatal is not None and ended.error is session.signals.fatal
        ):  # the tool was not called
            raise session.signals.fatal
        return self._read(
            tool, ended, timeout, session.active.seconds() - before
        ), ended

    async def _call(
        self,
        tool: Tool,
        permit: Permit,
        keywords: dict[str, Any],
        timeout: float | None,
    ) -> Any:
        positional = (self.context(permit, timeout),) if tool.takes_context else ()
        most = tool.max_output_chars or self.services.limits.max_output_chars
        if tool.is_async:
            value = await tool.function(*positional, **keywords)
        else:
            value = await self.session.writer.run_in_thread(
                lambda: _written(tool.function(*positional, **keywords), most)
            )
            value = await value if inspect.isawaitable(value) else value
        if inspect.isasyncgen(value):
            value = await _taken(value, most)
        if type(value) is not str and inspect.isgenerator(
            value
        ):  # it takes its time, too
            return await self.session.writer.run_in_thread(
                lambda: _written(value, most)
            )
        return _written(value, most)

    def _read(
        self, tool: Tool, ended: CodeOutcome, timeout: float | None, seconds: float
    ) -> Came:
        """The observation's status and text; tracebacks go to the log, not to the model."""
        if ended.timed_out:
            left = " It is still running in the background." if ended.abandoned else ""
            text = f"{tool.name} gave no result within {timeout:g} s; it may still take effect.{left}"
            return Came("timed_out", text, seconds, "timed_out")
        if isinstance(ended.error, ToolError):
            return self.came(tool, "error", format_error(ended.error), seconds, "told")
        if ended.error is not None:
            told = format_traceback(self.session.secrets.redactor, ended.error)
            logger().warning(
                "tool_failed",
                tool=tool.name,
                run_id=self.session.run_id,
                traceback=told,
            )
            text = f"{type(ended.error).__name__}: {format_error(ended.error)}"
            status: ObservationStatus = (
                "unknown" if isinstance(ended.error, UnknownOutcome) else "error"
            )
            return self.came(tool, status, text, seconds, "raised")
        written: CodeOutcome = ended.value
        if written.error is None:
            return self.came(tool, "ok", written.value, seconds)
        text = f"{tool.name} returned something that cannot be written as text: {format_error(written.error)}"
        return self.came(tool, "error", text, seconds)

    def came(
        self,
        tool: Tool,
        status: ObservationStatus,
        text: str,
        seconds: float = 0.0,
        failure: Failure = "",
    ) -> Came:
        """What came of a call by the words of its tool."""
        words = said(self.session, tool, text)
        untrusted = (
            not tool.trusted and status != "cancelled"
        )  # that is said by the runtime
        return Came(
            status,
            words.text,
            seconds,
            failure,
            words.cut,
            words.label,
            untrusted=untrusted,
        )


async def _taken(values: AsyncGenerator[Any, Any], most: int | None) -> list[Any]:
    """What an async generator gives, no more values than there can be in `most` characters."""
    taken: list[Any] = []
    async with contextlib.aclosing(values):
        async for value in values:
            taken.append(value)
            if len(taken) == most:
                break
    return taken


def _written(value: Any, most: int | None) -> Any:
    """A result as text, or why it has none; what is to be awaited, and what is written already, as it is."""
    if type(value) is str:
        return CodeOutcome(value)
    if (
        isinstance(value, CodeOutcome)
        or inspect.isawaitable(value)
        or inspect.isasyncgen(value)
    ):
        return value
    return capture(lambda: as_text(value, most))


def as_text(value: Any, most: int | None = None) -> str:
    """A tool's result as the model reads it: text as it is, everything else as JSON.

    Of a generator no more values are taken than there can be in `most` characters.
    """
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass too
    if inspect.isgenerator(value):
        value = list(itertools.islice(value, most))
    return (
        "done"
        if value is None
        else json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False)
    )


def _least(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)
