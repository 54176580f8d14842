"""Questions to the person who uses the run: answered at once by a callback, or from outside while the run waits."""

from typing import Any

from ...errors import ConfigError, Suspended, format_error
from ...events.run import Question
from ...resilience.timeouts import run_with_timeout
from ..control.commands import ANSWER
from ..session.session import Session


async def answer_of(
    session: Session, key: str, question: str, tool: str = "", call_id: str = ""
) -> str:
    """What the user says to a question. Raises `Suspended` until somebody has answered it from outside."""
    session.signals.check_cancelled(key)
    said = session.command_log.find_answer(
        ANSWER, key, session.replay.approvals.question_entries.get(key)
    )
    if said is not None:
        session.replay.approvals.question_entries.pop(key, None)
        return session.secrets.redactor.redact_text(str(said.body.get("text", "")))
    if session.command_log.stopping:
        raise session.intake.stop_signal()
    session.signals.check(begun=True)
    if session.services.user is None:
        session.pending.append(Question(key, question, tool, {}, call_id, "question"))
        raise Suspended(f"waiting for an answer: {question}", reason="question")
    with session.active.waiting():
        ended = await run_with_timeout(_asked(session.services.user, question), None)
    if ended.error is not None:
        raise ConfigError(
            f"user: the callback of Runtime(user=...) failed: {format_error(ended.error)}"
        ) from ended.error
    if not isinstance(ended.value, str):
        raise ConfigError(
            f"user: the callback of Runtime(user=...) must give a text, got {ended.value!r:.80}"
        )
    return session.secrets.redactor.redact_text(
        ended.value.encode("utf-8", "replace").decode()
    )


async def _asked(user: Any, question: str) -> Any:
    return await user(question)
