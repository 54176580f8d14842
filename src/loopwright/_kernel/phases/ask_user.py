"""Ask the person who uses the run: by a callback, or from outside while the run waits."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ...errors import ConfigError, QuestionExpired, Suspended, format_error
from ...events.run import Question
from ...messages import Json
from ...resilience.timeouts import run_with_timeout
from ...tools.answers import TEXT, AnswerType
from ..control.commands import ANSWER
from ..session.session import Session

MAX_CALLBACK_ANSWERS = 5
"""How often the callback of a user is asked the same question, before its answers count as an error of it."""


async def await_answer(
    session: Session, question: Question, answers: AnswerType[Any] = TEXT
) -> tuple[Json, str]:
    """Return the user's answer, as a value and as its text.

    Raise `Suspended` until it arrives from outside, and `QuestionExpired` where it did not arrive in time.
    """
    key = question.key
    session.signals.check_cancelled(key)
    asked = session.replay.approvals.question_entries
    answer = session.command_log.find_answer(ANSWER, key, asked.get(key))
    redact = session.secrets.redactor.redact_text
    if answer is not None:
        text = redact(str(answer.body.get("text", "")))
        try:
            value = answers.read(question, text)
        except ValueError as error:
            # Its inbox took it: what is wrong shows only to the type that the code of the run has.
            question = dataclasses.replace(question, problem=redact(str(error)))
        else:
            asked.pop(key, None)
            return value, text
    if session.command_log.stopping:
        raise session.intake.stop_signal()
    session.signals.check(begun=True)
    now = session.services.clock.wall()
    if 0 < question.expires <= now:
        raise QuestionExpired(f"there was no answer in time: {question.text}")
    if session.services.user is None:
        session.pending.append(question)
        raise Suspended(f"waiting for an answer: {question.text}", reason="question")
    return await _ask_callback(session, question, answers)


async def _ask_callback(
    session: Session, question: Question, answers: AnswerType[Any]
) -> tuple[Json, str]:
    """Return what the callback of the user answers; where that does not fit, it is asked again with the reason."""
    redact = session.secrets.redactor.redact_text
    shown = question.text
    if question.choices:
        shown = f"{shown}\nOne of: {', '.join(question.choices)}"
    wording, problem = shown, ""
    for _ in range(MAX_CALLBACK_ANSWERS):
        text = await _call_user(session, session.services.user, question, wording)
        text = redact(text.encode("utf-8", "replace").decode())
        try:
            return answers.read(question, text), text
        except ValueError as error:
            problem = str(error)
            wording = f"{shown}\nThat cannot be the answer: {problem}"
    raise ConfigError(
        f"user: the callback of Runtime(user=...) gave no answer in {MAX_CALLBACK_ANSWERS} attempts, the last: {problem}"
    )


async def _call_user(
    session: Session, user: Any, question: Question, wording: str
) -> str:
    # What the question is made of is durable before a person reads it.
    await session.writer.barrier()
    left = None
    if question.expires:
        left = max(0.0, question.expires - session.services.clock.wall())
    with session.active.waiting:
        ended = await run_with_timeout(_await(user, wording), left)
    if ended.timed_out:
        raise QuestionExpired(f"there was no answer in time: {question.text}")
    if ended.error is not None:
        raise ConfigError(
            f"user: the callback of Runtime(user=...) failed: {format_error(ended.error)}"
        ) from ended.error
    if not isinstance(ended.value, str):
        raise ConfigError(
            f"user: the callback of Runtime(user=...) must give a text, got {ended.value!r:.80}"
        )
    return ended.value


async def _await(user: Callable[[str], Any], question: str) -> Any:
    return await user(question)
