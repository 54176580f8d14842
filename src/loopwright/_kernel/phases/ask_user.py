"""Ask the person who uses the run: by a callback, or from outside while the run waits."""

from typing import Any

from ...errors import ConfigError, Suspended, format_error
from ...events.run import Question
from ...resilience.timeouts import run_with_timeout
from ..control.commands import ANSWER
from ..session.session import Session


async def await_answer(
    session: Session, key: str, question: str, tool: str = "", call_id: str = ""
) -> str:
    """Return the user's answer; raise `Suspended` until it arrives from outside."""
    session.signals.check_cancelled(key)
    asked = session.replay.approvals.question_entries
    answer = session.command_log.find_answer(ANSWER, key, asked.get(key))
    redact = session.secrets.redactor.redact_text
    if answer is not None:
        asked.pop(key, None)
        return redact(str(answer.body.get("text", "")))
    if session.command_log.stopping:
        raise session.intake.stop_signal()
    session.signals.check(begun=True)
    if session.services.user is None:
        session.pending.append(Question(key, question, tool, {}, call_id, "question"))
        raise Suspended(f"waiting for an answer: {question}", reason="question")
    text = await _call_user(session, session.services.user, question)
    return redact(text.encode("utf-8", "replace").decode())


async def _call_user(session: Session, user: Any, question: str) -> str:
    # What the question is made of is durable before a person reads it.
    await session.writer.barrier()
    with session.active.waiting:
        ended = await run_with_timeout(_await(user, question), None)
    if ended.error is not None:
        raise ConfigError(
            f"user: the callback of Runtime(user=...) failed: {format_error(ended.error)}"
        ) from ended.error
    if not isinstance(ended.value, str):
        raise ConfigError(
            f"user: the callback of Runtime(user=...) must give a text, got {ended.value!r:.80}"
        )
    return ended.value


async def _await(user: Any, question: str) -> Any:
    return await user(question)
