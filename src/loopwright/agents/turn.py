"""The turns of a thread: their names, and what each of them says."""

import re
import secrets
from collections.abc import Sequence

from .._internal import dataclasses
from .._internal.regex import compile_late
from .._kernel.control.questions import open_questions
from ..events.entry import Entry
from ..events.lifecycle import read_start, restore_answer
from ..events.run import (
    WAITING_REASONS,
    Question,
    RunFinished,
    RunParked,
    RunSuspended,
)
from ..journals.base import TURN_PREFIX, RunInfo
from ..labels import highest, mark_texts

_NAME = compile_late(re.escape(TURN_PREFIX) + r"([0-9a-f]{16}):(0|[1-9][0-9]{0,17})")


@dataclasses.dataclass(frozen=True)
class TurnName:
    """The name of a turn as a run: the incarnation of its thread, which is new after a deletion, and its number."""

    incarnation: str
    number: int

    @classmethod
    def first(cls) -> "TurnName":
        """Return the name of the first turn of a new thread."""
        return cls(secrets.token_hex(8), 1)

    @classmethod
    def parse(cls, run_id: str) -> "TurnName | None":
        """Return the name that a run id is; `None` for the id of any other run."""
        found = _NAME.fullmatch(run_id)
        return None if found is None else cls(found[1], int(found[2]))

    def next(self) -> "TurnName":
        """Return the name of the turn after it."""
        return TurnName(self.incarnation, self.number + 1)

    def __str__(self) -> str:
        return f"{TURN_PREFIX}{self.incarnation}:{self.number}"


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of a thread: what was said to the agent, and how it ended.

    Args:
        number: its place in the thread; a number that is left out is that of a `Thread.switch`.
        run_id: its name as a run.
        agent: the agent that it began with.
        status: that of the run.
        text: what the person said.
        answer: the answer; `None` where there is none.
        stop_reason: why it ended; empty where it has not.
        created: when it began (wall clock, seconds).
        pending: what it wants decided, if it waits.
        reason: why it has not ended and is not at work, in the words of `Result.stop_reason`: what the first of its
            questions is about, or why it is suspended; of one that is parked, why that was done. Empty for any other.
    """

    number: int
    run_id: str
    agent: str
    status: str
    text: str
    answer: str | None = None
    stop_reason: str = ""
    created: float = 0.0
    pending: tuple[Question, ...] = ()
    reason: str = ""


def read_turn(info: RunInfo, number: int, entries: Sequence[Entry]) -> Turn | None:
    """Return a turn as its run has it; `None` for one without a message of a person."""
    started, last = read_start(info.run_id, entries), entries[-1].event
    messages = [one for one in started.messages if one.role == "user"]
    if not messages:
        return None
    text = mark_texts(
        "\n\n".join(one.content for one in messages),
        highest(one.label for one in messages),
        untrusted=any(one.untrusted for one in messages),
    )
    answer, stop_reason = None, ""
    if isinstance(last, RunFinished):
        restore_answer(entries)
        last = entries[-1].event
    if isinstance(last, RunFinished):
        answer = mark_texts(
            last.answer, last.label or "normal", untrusted=last.untrusted
        )
        stop_reason = last.stop_reason
    pending = open_questions(entries) if info.status == "waiting" else ()
    reason = last.reason if isinstance(last, (RunSuspended, RunParked)) else ""
    if pending:
        reason = WAITING_REASONS[pending[0].about]
    return Turn(
        number, info.run_id, started.agent, info.status, text, answer, stop_reason, started.created, pending, reason,
    )  # fmt: skip
