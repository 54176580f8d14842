"""What goes between a run and people: questions to the user, follow-ups, and who may see the answer."""

import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from typing import TypeVar

from pydantic_core import to_json

from ...errors import ConfigError, Denied, QuestionExpired, Suspended
from ...events.control import FollowedUp
from ...events.effect_key import asked_key
from ...events.effects import ClockRead, EffectFinished
from ...events.run import Question as PendingQuestion
from ...gates.base import RESPOND, Denial
from ...messages import Json, Message, ToolCall, mark_entry
from ...result import RunOutcome, build_outcome
from ...tools.answers import AnswerType
from ..control.commands import FOLLOW_UP
from ..session.session import Session
from .ask_user import await_answer
from .cycle import Cycle
from .output_type import OutputType
from .side_effects import permit_effect, record_failure, recorded_effect
from .sleep import parse_seconds

T = TypeVar("T")
VERB = "ask_user"
ANSWERED = "respond:"
"""The key of what gates decide about a run's answer."""


def read_answer_type(into: type[T], choices: Iterable[T]) -> AnswerType[T]:
    """Return what an answer is read as; raise `ConfigError` for a type that no text can be read as."""
    if into is str:
        return AnswerType(into, "str", {}, choices)
    wanted = OutputType[T](into, "into")
    return AnswerType(into, wanted.name, wanted.own_schema, choices)


def parse_expiry(expires: float | timedelta | None) -> float | None:
    """Return for how many seconds a question is open, `None` for ever; raise `ConfigError`."""
    if expires is None:
        return None
    seconds = parse_seconds(expires, "expires")
    if not seconds:
        raise ConfigError("expires: must be more than 0 seconds, got 0")
    return seconds


async def ask_user(
    cycle: Cycle, question: str, answers: AnswerType[T], seconds: float | None
) -> T:
    """Return the user's answer, recorded; raise `Suspended` until there is one.

    Raise `QuestionExpired` where there is none `seconds` after the question was first asked.
    """
    session = cycle.session
    with cycle.scope.enter("ask_user"):
        key = cycle.scope.next_key()
        recorded = recorded_effect(cycle.scope, key, VERB, answers.adapter)
        if recorded is not None:
            return recorded[0]
        await session.replay_end.reach(key)
        await session.intake.wait_while_paused()
        await permit_effect(cycle, VERB, {"question": question}, "read", key)
        question = cycle.services.redactor.redact_text(question)
        until = _note_expiry(session, key, seconds)
        asked = PendingQuestion(
            key, question, about="question", expires=until,
            choices=answers.choices, schema=answers.schema,
        )  # fmt: skip
        try:
            value, text = await await_answer(session, asked, answers)
        except Suspended as waiting:
            raise cycle.scope.halt(waiting) from None
        except QuestionExpired as expired:
            raise record_failure(session, key, VERB, expired) from None
        label = session.sensitivity.classify(text)
        session.sensitivity.observe(label, untrusted=False)
        waited = session.active.take_waited()
        finished = EffectFinished(VERB, value, waited=waited, label=label)
        session.writer.record(key, finished)
        return answers.adapter.validate_json(to_json(value))


def _note_expiry(session: Session, key: str, seconds: float | None) -> float:
    """Return when a question expires (wall clock, seconds), counted from when it was first asked; 0 is never."""
    if seconds is None:
        return 0.0
    asked = session.replay.effects.side(asked_key(key))
    if not isinstance(asked, ClockRead):
        asked = ClockRead(round(session.services.clock.wall(), 3))
        session.writer.record(asked_key(key), asked)
    return asked.seconds + seconds


def take_follow_up(cycle: Cycle, answer: str) -> bool:
    """Continue the conversation with what a person sent for after the engine's answer.

    Return whether there is anything. What the journal shows does not change: a command
    that was sent since counts the next time, unless the answer was given out by then.
    """
    session, key = cycle.session, cycle.scope.side_key("follow")
    recorded = session.replay.effects.side(key)
    if not isinstance(recorded, FollowedUp):
        unused = session.command_log.unused(FOLLOW_UP, session.replay.approvals.used)
        if not unused or not _may_follow_up(cycle):
            return False
        command = unused[0]
        session.replay.approvals.used.add(command.number)
        text = str(command.body.get("text", ""))
        label = session.sensitivity.classify(text)
        session.sensitivity.observe(label, untrusted=False)
        recorded = FollowedUp(command.number, text, label)
        session.writer.record_after_replay(key, recorded)
    answered = cycle.latest.assistant(answer, origin="model")
    message = Message("user", recorded.text, origin="operator")
    mark_entry(message, (session.run_id, key))
    cycle.conversation = answered.add(message)
    cycle.keep(cycle.conversation)
    return True


def _may_follow_up(cycle: Cycle) -> bool:
    """Whether the run can still continue: nothing shows that its answer was given out."""
    if cycle.scope.is_replaying() or cycle.scope.signal is not None:
        return False
    shown = cycle.session.replay.approvals.decision(ANSWERED)
    return shown is None or shown.verdict == "ask"


async def permit_answer(cycle: Cycle, outcome: RunOutcome, output: Json) -> RunOutcome:
    """Return how the run ends once the gates that want to see its answer decided."""
    if outcome.answer is None or outcome.is_paused:
        return outcome
    arguments: dict[str, Json] = {
        "answer": outcome.answer,
        "status": outcome.status,
        "stop_reason": outcome.stop_reason,
    }
    if output is not None:
        arguments["output"] = output
    decided = await cycle.clearance.decide_answer(
        ToolCall(RESPOND, arguments, RESPOND), cycle.policy_state(ANSWERED)
    )
    if decided is None:
        return outcome
    if isinstance(decided, PendingQuestion):
        return build_outcome(await cycle.park([decided]))
    if isinstance(decided, str):
        return dataclasses.replace(outcome, answer=decided)
    return _withhold(outcome, decided)


def _withhold(outcome: RunOutcome, denial: Denial) -> RunOutcome:
    """Return the outcome without its answer; a run that had completed was denied."""
    if outcome.status == "completed":
        outcome = build_outcome(Denied(f"the answer was withheld: {denial.reason}"))
    return dataclasses.replace(outcome, answer=None)
