"""One attempt at a task: what the actor did, told as text, and what an evaluator says of it."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence

from ..errors import ConfigError
from ..events.run import Status, StopReason
from ..messages import Conversation, Message, ToolCall

CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English and JSON
LEFT_OUT = "[an observation of {size} characters, left out]"
CUT_OFF = "[the beginning is left out]\n"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluator says of an attempt.

    Args:
        passed: whether it solved the task; `False` too where a verdict could not be read.
        score: how good it is, higher is better; `None` where nobody said.
        feedback: why, for the next attempt.
        tests: tests that were written for the task; the evaluator meets them again in `Attempt.earlier`.
    """

    passed: bool
    score: float | None = None
    feedback: str = ""
    tests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the score: what is no number is no score."""
        if self.score is not None and not math.isfinite(self.score):
            raise ConfigError(
                f"score: must be a finite number or None, got {self.score}"
            )


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt of an actor at a task.

    Args:
        number: from 1.
        task: what it was asked.
        answer: its answer; `None` if it gave none (a blank one is none).
        status: how it ended. All but `completed` are a halt, and an answer is then the best it had.
        stop_reason: why.
        conversation: what it was given, and what was said and done from there.
        iterations: turns of its own loops.
        given: how many messages at the start of `conversation` it was given.
        earlier: what was said of the attempts before it, oldest first.
    """

    number: int
    task: str
    answer: str | None
    status: Status
    stop_reason: StopReason
    conversation: Conversation
    iterations: int = 0
    given: int = 0
    earlier: tuple[Evaluation, ...] = ()

    @property
    def halted(self) -> bool:
        """Whether the actor was stopped before it came to an answer of its own."""
        return self.answer is None or self.status != "completed"

    @property
    def turns(self) -> tuple[Message, ...]:
        """What the attempt added to the conversation."""
        return self.conversation.messages[self.given :]

    @property
    def actions(self) -> tuple[tuple[ToolCall, str], ...]:
        """The calls it made, in order, each with what came of it."""
        results = {
            message.call_id: message.content
            for message in self.turns
            if message.role == "tool"
        }
        return tuple(
            (call, results.get(call.id, ""))
            for message in self.turns
            for call in message.calls
        )

    def trace(self, tokens: int, *, answer: bool = True) -> str:
        """What was thought, done, observed and, with `answer`, answered, in about `tokens` tokens.

        The longest observations are left out first; if that is not enough, the beginning is. The lines within a text
        are indented, so that none passes for a step of its own.
        """
        steps = list(self._steps())
        if answer and self.answer is not None:
            steps.append(("Answer", self.answer))
        room = tokens * CHARACTERS_PER_TOKEN
        told = (
            "\n".join(
                f"{label}: {_indented(text)}" for label, text in _shortened(steps, room)
            )
            or "(nothing)"
        )
        return told if len(told) <= room else CUT_OFF + told[len(told) - room :]

    def _steps(self) -> Iterator[tuple[str, str]]:
        """Labels and texts of all that was said and done."""
        actions = iter(self.actions)
        for message in self.turns:
            if message.role in ("user", "assistant") and message.content:
                yield (
                    ("Thought" if message.role == "assistant" else "Prompt"),
                    message.content,
                )
            for _ in message.calls:
                call, observation = next(actions)
                yield (
                    "Action",
                    f"{call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}",
                )
                yield "Observation", observation


@dataclasses.dataclass
class Experience:
    """What a run has been through: attempts with what was said of them, and reflections, oldest first."""

    attempts: list[Attempt] = dataclasses.field(default_factory=list[Attempt])
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list[Evaluation])
    reflections: list[str] = dataclasses.field(default_factory=list[str])

    def begin(self, attempt: Attempt) -> None:
        """Take up an attempt; until it is evaluated, which a limit may prevent, it has not passed."""
        self.attempts.append(attempt)
        self.evaluations.append(Evaluation(False))

    def best(self) -> tuple[Attempt, Evaluation] | None:
        """The best attempt with an answer: not halted before halted, then the higher score, then the later one."""
        answered = [
            pair
            for pair in zip(self.attempts, self.evaluations, strict=True)
            if pair[0].answer is not None
        ]
        return max(answered, key=_worth, default=None)

    def told(self, memory: int) -> str:
        """The newest reflections as a list."""
        return "\n".join(f"- {_indented(text)}" for text in self.reflections[-memory:])


def _worth(pair: tuple[Attempt, Evaluation]) -> tuple[bool, bool, float, int]:
    attempt, evaluation = pair
    score = -math.inf if evaluation.score is None else evaluation.score
    return evaluation.passed, not attempt.halted, score, attempt.number


def count_given(said: Sequence[Message], given: Sequence[Message]) -> int:
    """How many of the messages are the ones an actor was given; it may have put some of its own before the last."""
    return (
        next(
            (i + 1 for i in range(len(given) - 1, len(said)) if said[i] == given[-1]), 0
        )
        if given
        else 0
    )


def _shortened(steps: list[tuple[str, str]], room: int) -> list[tuple[str, str]]:
    """The steps with as many observations left out, longest first, as it takes to fit into `room` characters."""
    size = sum(len(label) + len(text) + 3 for label, text in steps)
    observations = [i for i, (label, _) in enumerate(steps) if label == "Observation"]
    for index in sorted(observations, key=lambda i: -len(steps[i][1])):
        label, text = steps[index]
        mark = LEFT_OUT.format(size=len(text))
        if size <= room or len(text) <= len(mark):
            break
        steps[index], size = (label, mark), size - len(text) + len(mark)
    return steps


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())
