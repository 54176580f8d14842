"""Resolve calls whose outcome is unknown: their tool looks it up, or a person reports it."""

import copy
from typing import Any, Literal, TypeAlias

from ..._internal import dataclasses
from ..._internal.log import logger
from ...errors import Suspended
from ...events.recovery import UnknownOutcomeResolved
from ...events.run import WAITING_REASONS, Question
from ...gates.base import Permit
from ...journals.base import Command
from ...labels import Label
from ...messages import Json
from ...resilience.timeouts import invoke, run_with_timeout
from ...security.redaction.errors import format_traceback
from ...security.spotlighting import strip_control_characters
from ...tools.base import Tool
from ...tools.resolution import (
    CallCompleted,
    CallNotExecuted,
    OutcomeUnknown,
    Resolution,
)
from ..control.commands import RESOLVE
from ..control.questions import name_resolution
from ..session.secrets import SECRET_LOST
from ..session.session import Session
from .observe import clean_text, is_trusted
from .tool_call import ToolCalls, ToolOutcome

Source: TypeAlias = Literal["lookup", "person"]
RESOLUTIONS = (CallCompleted, CallNotExecuted, OutcomeUnknown)
UNKNOWN = (
    "This call was interrupted and it is not known whether it took effect. Do not assume that it did or did not: "
    "check before you rely on it, and do not simply repeat it."
)


@dataclasses.dataclass(frozen=True)
class ResolvedResult:
    """A call took effect, with this result; how sensitive that is, and whether it is text from outside."""

    result: str
    label: Label
    untrusted: bool


Resolved: TypeAlias = ResolvedResult | CallNotExecuted | OutcomeUnknown


@dataclasses.dataclass(frozen=True)
class OutcomeResolver:
    """Resolves the unknown outcomes of the calls of one scope."""

    calls: ToolCalls

    async def resolve(self, permit: Permit, tool: Tool | None) -> Resolved:
        """Return the outcome of a call, as far as it can be known; raise `Suspended` to ask a person."""
        recorded = self.recorded(permit)
        if recorded is not None:
            return recorded
        asks_person = self.calls.services.on_unknown == "ask"
        if asks_person:
            self.calls.session.signals.check_cancelled(permit.key)
        if tool is not None and tool.lookup is not None:
            found = await self._look_up(permit, tool)
            if not isinstance(found, OutcomeUnknown):
                return found
        if not asks_person:
            return OutcomeUnknown()
        text = f"{permit.call.name} was interrupted: did it take effect?"
        return self.ask(permit, text, "doubt")

    def recorded(self, permit: Permit) -> Resolved | None:
        """Return the recorded resolution of a call, if it still holds.

        After one as not executed the call was made again, so nothing is known of that attempt; a
        lookup that found nothing is made again.
        """
        known = self.calls.session.replay.recoveries.resolution(permit.key)
        if known is None or known.verdict == "not_done":
            return None
        if known.verdict == "unknown" and known.by == "lookup":
            return None
        resolution = _read_resolution(known.verdict, known.result)
        return self._clean(permit, known.by, resolution, known.label)

    def ask(
        self, permit: Permit, text: str, about: Literal["doubt", "failure"]
    ) -> Resolved:
        """Return what a person reported about a call; raise `Suspended` until they have."""
        session = self.calls.session
        session.signals.check_cancelled(permit.key)
        command = _find_report(session, permit.key)
        if command is None:
            raise self._wait(permit, text, about)
        result = str(command.body.get("result", ""))
        redacted = session.secrets.redactor.redact_text(result)
        resolution = _read_resolution(command.body.get("verdict"), redacted)
        label: Label = "public"
        if isinstance(resolution, CallCompleted):
            label = session.sensitivity.classify(strip_control_characters(result))
        self._record(permit, "person", resolution, command.number, label)
        session.replay.approvals.question_entries.pop(permit.key, None)
        return self._clean(permit, "person", resolution, label)

    def _wait(
        self, permit: Permit, text: str, about: Literal["doubt", "failure"]
    ) -> Exception:
        """Ask a person, unless one said `stop`; return the error to be raised."""
        session, call = self.calls.session, permit.call
        if session.command_log.stopping:
            return session.intake.stop_signal()
        session.pending.append(
            Question(permit.key, text, call.name, call.arguments, call.id, about)
        )
        return Suspended(text, reason=WAITING_REASONS[about])

    def _clean(
        self, permit: Permit, source: Source, resolution: Resolution, label: Label
    ) -> Resolved:
        """Return a resolution with its result as a model may read it.

        A person is trusted, a tool only if it says so. Control characters are taken out of a
        person's text too, which may have been copied from anywhere and have hidden a secret.
        """
        if not isinstance(resolution, CallCompleted):
            return resolution
        if source == "person":
            redactor = self.calls.session.secrets.redactor
            text = strip_control_characters(resolution.result)
            return ResolvedResult(redactor.redact_text(text), label, untrusted=False)
        tool = self.calls.services.tools.get(permit.call.name)
        is_untrusted = not is_trusted(tool)
        return ResolvedResult(resolution.result, label, untrusted=is_untrusted)

    async def _look_up(self, permit: Permit, tool: Tool) -> Resolved:
        """Return what the tool's lookup finds; anything that is not a resolution leaves it unknown."""
        session = self.calls.session
        timeout = self.calls.timeout(tool, session.active.seconds())
        with session.active.working:
            ended = await run_with_timeout(
                self._call_lookup(tool, permit, timeout), timeout
            )
        if ended.error is not None:
            traceback = format_traceback(session.secrets.redactor, ended.error)
            logger().warning(
                "lookup_failed",
                tool=tool.name,
                run_id=session.run_id,
                traceback=traceback,
            )
        is_resolution = isinstance(ended.value, RESOLUTIONS)
        found: Resolution = ended.value if is_resolution else OutcomeUnknown()
        label: Label = "public"
        if isinstance(found, CallCompleted):
            words = clean_text(session, tool, str(found.result))
            found, label = CallCompleted(words.text), words.label
        self._record(permit, "lookup", found, 0, label)
        return self._clean(permit, "lookup", found, label)

    async def _call_lookup(
        self, tool: Tool, permit: Permit, timeout: float | None
    ) -> Any:
        if tool.lookup is None:
            return None
        arguments = copy.deepcopy(dict(permit.call.arguments))
        context = self.calls.context(permit, timeout)
        context = dataclasses.replace(context, arguments=arguments)
        return await invoke(
            self.calls.services.worker_threads.run, tool.lookup, context
        )

    def _record(
        self,
        permit: Permit,
        source: Source,
        resolution: Resolution,
        command: int,
        label: Label,
    ) -> None:
        call = permit.call
        verdict, result = name_resolution(resolution)
        resolved = UnknownOutcomeResolved(
            call.name, call.id, source, verdict, result, command, label
        )
        self.calls.session.writer.record(permit.key, resolved)


def _read_resolution(verdict: Json, result: Json) -> Resolution:
    if verdict == "done":
        return CallCompleted(str(result))
    return CallNotExecuted() if verdict == "not_done" else OutcomeUnknown()


def _find_report(session: Session, key: str) -> Command | None:
    """Return the last answer to the question about a call that is open now."""
    question = session.replay.approvals.question_entries.get(key)
    return session.command_log.find_answer(RESOLVE, key, question)


def build_outcome(resolution: Resolved) -> ToolOutcome:
    """Return the outcome of a call that the model reads, as far as it is known."""
    if isinstance(resolution, ResolvedResult):
        label, untrusted = resolution.label, resolution.untrusted
        return ToolOutcome("ok", resolution.result, label=label, untrusted=untrusted)
    if isinstance(resolution, CallNotExecuted):
        return ToolOutcome("rejected", SECRET_LOST)
    return ToolOutcome("unknown", UNKNOWN)
