"""What a run asks of people, as the interrupts of AG-UI, and the answers to them as commands."""

from datetime import UTC, datetime
from typing import Any, cast

from pydantic_core import to_json

from ..._kernel.control.run_control import RunControl
from ...events.run import Question
from ...messages import JsonObject
from ...principals import Sender
from ...tools.resolution import CallCompleted, CallNotExecuted
from ..guard import RefusedRequest
from ..users import Right
from .protocol import core

APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "arguments": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""The answer to an approval: other `arguments` are gated again; the model reads the `reason` of a denial."""
OUTCOME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"done": {"type": "boolean"}, "result": {"type": "string"}},
    "required": ["done"],
}
"""The answer to a call whose outcome is unknown: whether it took effect, and with which result."""


def name_interrupt(run_id: str, question: Question) -> str:
    """Return the id of a question, which is that of one run alone: an old answer never decides another run's call."""
    return f"{run_id}/{question.id}"


def build_interrupt(
    run_id: str, question: Question, *, is_hidden: bool
) -> core.Interrupt:
    """Return a question as an interrupt, with the schema of its answer; one that is secret has no texts."""
    call_id = f"{run_id}/{question.key}" if question.tool else None
    about = {"tool": question.tool, "arguments": question.arguments}
    text, metadata = ("", {}) if is_hidden else (question.text, about)
    return core.Interrupt(
        id=name_interrupt(run_id, question),
        reason=question.about,
        message=text,
        tool_call_id=call_id,
        response_schema=_build_schema(question),
        expires_at=_format_time(question.expires),
        metadata=metadata,
    )


def _format_time(seconds: float) -> str | None:
    """Return a wall time as AG-UI has it; `None` for none."""
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None


def _build_schema(question: Question) -> dict[str, Any]:
    match question.about:
        case "approval":
            return APPROVAL_SCHEMA
        case "doubt" | "failure":
            return OUTCOME_SCHEMA
        case _ if question.choices:
            return {"type": "string", "enum": list(question.choices)}
        case _:
            return dict(question.schema) or {"type": "string"}


def find_right(question: Question, given: core.ResumeEntry) -> Right:
    """Return the right that an answer of one's own run needs: to decide is the same as on the page."""
    if question.about == "approval":
        return "approve"
    is_outcome = question.about != "question" and given.status != "cancelled"
    return "approve" if is_outcome else "chat"


async def send_answer(
    control: RunControl, question: Question, given: core.ResumeEntry, user: Sender
) -> None:
    """Send the answer to a question; raise `RefusedRequest` for one of another form."""
    payload = given.payload
    if given.status == "cancelled":
        await _cancel(control, question, user)
    elif question.about == "approval":
        await _decide(control, question, payload, user)
    elif question.about == "question":
        text = payload if isinstance(payload, str) else to_json(payload).decode()
        await control.answer(text, question=question.key, by=user)
    else:
        known = _read_object(question, payload, "done")
        result = str(known.get("result", ""))
        outcome = CallCompleted(result) if known["done"] is True else CallNotExecuted()
        await control.resolve(question.key, outcome, by=user)


async def _cancel(control: RunControl, question: Question, user: Sender) -> None:
    """Deny what waits for approval; without an answer to another question the run ends."""
    if question.about == "approval":
        await control.deny(question.id, "cancelled", by=user)
    else:
        await control.stop(by=user)


async def _decide(
    control: RunControl, question: Question, payload: object, user: Sender
) -> None:
    given = (
        {"approved": payload}
        if isinstance(payload, bool)
        else _read_object(question, payload, "approved")
    )
    if given["approved"] is not True:
        await control.deny(question.id, str(given.get("reason", "")), by=user)
        return
    changed = given.get("arguments")
    arguments = cast("JsonObject", changed) if isinstance(changed, dict) else None
    await control.approve(question.id, arguments=arguments, by=user)


def _read_object(question: Question, payload: object, required: str) -> dict[str, Any]:
    known = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {}
    if not isinstance(known.get(required), bool):
        raise RefusedRequest(
            400,
            f"resume: the payload for {question.id!r} must be an object with a boolean {required!r}, got {payload!r:.80}",
        )
    return known
