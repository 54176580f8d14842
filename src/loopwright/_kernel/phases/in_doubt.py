"""What becomes of a call of which nobody knows whether it took effect: its tool looks it up, or a person says."""

import copy
import dataclasses
from typing import Any, Literal, TypeAlias

from ..._internal.log import logger
from ...errors import Suspended
from ...events.recovery import UnknownOutcomeResolved
from ...events.run import Question
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
from ..control.questions import resolution_kind
from ..session.secrets import SECRET_LOST
from ..session.session import Session
from .observe import clean_text
from .tool_call import ToolCalls, ToolOutcome

By: TypeAlias = Literal["lookup", "person"]
LEFT = ("person", "unknown")
UNKNOWN = (
    "This call was interrupted and it is not known whether it took effect. Do not assume that it did or did not: "
    "check before you rely on it, and do not simply repeat it."
)


def _read(verdict: Json, result: Json) -> Resolution:
    if verdict == "done":
        return CallCompleted(str(result))
    return CallNotExecuted() if verdict == "not_done" else OutcomeUnknown()


@dataclasses.dataclass(frozen=True)
class Found:
    """A call took effect, with this result; how sensitive that is, and whether it is text from outside."""

    result: str
    label: Label
    untrusted: bool


Known: TypeAlias = Found | CallNotExecuted | OutcomeUnknown


@dataclasses.dataclass(frozen=True)
class Doubts:
    """Resolves the doubts about the calls of one scope."""

    calls: ToolCalls

    async def resolve(self, permit: Permit, tool: Tool | None) -> Known:
        """What came of a call in doubt. Raises `Suspended` where a person is to say it."""
        known = self.known(permit)
        if known is not None:
            return known
        asks = self.calls.services.on_unknown == "ask"
        if asks:  # then that is where it stood still
            self.calls.session.signals.check_cancelled(permit.key)
        if tool is not None and tool.lookup is not None:
            found = await self._look_up(permit, tool)
            if not isinstance(found, OutcomeUnknown):
                return found
        if asks:
            text = f"{permit.call.name} was interrupted: did it take effect?"
            return self.ask(permit, text, "doubt")
        return OutcomeUnknown()

    def known(self, permit: Permit) -> Known | None:
        """What was found out before a crash and still holds: not that it was not done, since it was made again then."""
        recorded = self.calls.session.replay.recoveries.resolution(permit.key)
        if recorded is not None and (
            recorded.verdict == "done" or (recorded.by, recorded.verdict) == LEFT
        ):
            return self._found(
                permit,
                recorded.by,
                _read(recorded.verdict, recorded.result),
                recorded.label,
            )
        return None

    def _found(
        self, permit: Permit, by: By, resolution: Resolution, label: Label
    ) -> Known:
        """A word on a call with what its result is; a person is believed, a tool only if it is trusted.

        What nobody sees is taken out of a person's words too: they may have been copied from anywhere.
        """
        if not isinstance(resolution, CallCompleted):
            return resolution
        if by == "person":
            clean = self.calls.session.secrets.redactor.redact_text(
                strip_control_characters(resolution.result)
            )  # a secret may have been torn apart
            return Found(clean, label, untrusted=False)
        tool = self.calls.services.tools.get(permit.call.name)
        return Found(
            resolution.result, label, untrusted=tool is None or not tool.trusted
        )

    def ask(
        self, permit: Permit, text: str, about: Literal["doubt", "failure"]
    ) -> Known:
        """What a person said of a call; raises `Suspended` until somebody has."""
        session, call = self.calls.session, permit.call
        session.signals.check_cancelled(permit.key)
        command = newest(session, permit.key)
        if command is None and session.command_log.stopping:
            raise session.intake.stop_signal()
        if command is None:
            session.pending.append(
                Question(permit.key, text, call.name, call.arguments, call.id, about)
            )
            raise Suspended(
                text, reason="unknown_outcome" if about == "doubt" else "question"
            )
        told = str(command.body.get("result", ""))
        resolution = _read(
            command.body.get("verdict"), session.secrets.redactor.redact_text(told)
        )
        label = (
            session.sensitivity.classify(strip_control_characters(told))
            if isinstance(resolution, CallCompleted)
            else "public"
        )
        self._note(permit, "person", resolution, command.number, label)
        session.replay.approvals.question_entries.pop(permit.key, None)
        return self._found(permit, "person", resolution, label)

    async def _look_up(self, permit: Permit, tool: Tool) -> Known:
        """What the tool itself finds; whatever is no clear word is none."""
        session, timeout = self.calls.session, self.calls.timeout(tool)
        with session.active.working():
            ended = await run_with_timeout(
                self._ask_tool(tool, permit, timeout), timeout
            )
        if ended.error is not None:
            told = format_traceback(session.secrets.redactor, ended.error)
            logger().warning(
                "lookup_failed", tool=tool.name, run_id=session.run_id, traceback=told
            )
        found = (
            ended.value
            if isinstance(ended.value, (CallCompleted, CallNotExecuted, OutcomeUnknown))
            else OutcomeUnknown()
        )
        label: Label = "public"
        if isinstance(found, CallCompleted):
            words = clean_text(session, tool, str(found.result))
            found, label = CallCompleted(words.text), words.label
        self._note(permit, "lookup", found, 0, label)
        return self._found(permit, "lookup", found, label)

    async def _ask_tool(self, tool: Tool, permit: Permit, timeout: float | None) -> Any:
        look_up, arguments = tool.lookup, copy.deepcopy(dict(permit.call.arguments))
        context = dataclasses.replace(
            self.calls.context(permit, timeout), arguments=arguments
        )
        return (
            None
            if look_up is None
            else await invoke(self.calls.services.threads.run, look_up, context)
        )

    def _note(
        self, permit: Permit, by: By, resolution: Resolution, command: int, label: Label
    ) -> None:
        call, result = (
            permit.call,
            resolution.result if isinstance(resolution, CallCompleted) else "",
        )
        resolved = UnknownOutcomeResolved(
            call.name, call.id, by, resolution_kind(resolution), result, command, label
        )
        self.calls.session.writer.record(permit.key, resolved)


def newest(session: Session, key: str) -> Command | None:
    """The last answer to the question that is asked about a call; one to an earlier question counts no more."""
    return session.command_log.find_answer(
        RESOLVE, key, session.replay.approvals.question_entries.get(key)
    )


def came_of(resolution: Known) -> ToolOutcome:
    """What the model is told of a call, as far as it is known."""
    if isinstance(resolution, Found):
        return ToolOutcome(
            "ok",
            resolution.result,
            label=resolution.label,
            untrusted=resolution.untrusted,
        )
    return (
        ToolOutcome("rejected", SECRET_LOST)
        if isinstance(resolution, CallNotExecuted)
        else ToolOutcome("unknown", UNKNOWN)
    )
