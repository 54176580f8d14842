"""Trajectories of an actor at a task, their evaluations, and the episodic memory of a Reflexion run."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain

from .._internal import dataclasses
from ..errors import ConfigError
from ..events.run import Status, StopReason
from ..messages import Conversation, Message, ToolCall

CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English and JSON
OMITTED = "[an observation of {size} characters, left out]"
TRUNCATED = "[the beginning is left out]\n"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The verdict of an evaluator on a trajectory.

    Args:
        passed: whether the task is solved; `False` also if a verdict was unreadable.
        score: the quality, higher is better; `None` if there is no score.
        feedback: the reason, shown to the next trial.
        tests: tests written for the task; the evaluator gets them back in `Trajectory.earlier`.
    """

    passed: bool
    score: float | None = None
    feedback: str = ""
    tests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a score that is not a finite number."""
        if self.score is not None and not math.isfinite(self.score):
            raise ConfigError(
                f"score: must be a finite number or None, got {self.score}"
            )


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """What an actor said, did and observed in one trial of a task.

    Args:
        number: number of the trial, from 1.
        task: the task.
        answer: the answer; `None` if there is none (a blank answer is none).
        status: how the trial ended. For all but `completed` an answer is the best one so far.
        stop_reason: why it ended.
        conversation: the messages that the actor was given, followed by those of the trial.
        iterations: turns of the actor's own loops.
        given: how many messages at the start of `conversation` the actor was given.
        earlier: evaluations of the trials before this one, oldest first.
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
        """Whether the actor was stopped before it gave a final answer."""
        return self.answer is None or self.status != "completed"

    @property
    def turns(self) -> tuple[Message, ...]:
        """The messages that the trial added to the conversation."""
        return self.conversation.messages[self.given :]

    @property
    def actions(self) -> tuple[tuple[ToolCall, str], ...]:
        """The actor's tool calls, in order, each with its observation."""
        results = {m.call_id: m.content for m in self.turns if m.role == "tool"}
        calls = chain.from_iterable(message.calls for message in self.turns)
        return tuple((call, results.get(call.id, "")) for call in calls)

    def trace(self, tokens: int, *, answer: bool = True) -> str:
        """Return the thoughts, actions, observations and answer in about `tokens` tokens.

        The longest observations are left out first, then the beginning. Lines within a text are indented, so that
        none looks like a step. `answer=False` leaves the answer out.
        """
        steps = list(self._steps())
        if answer and self.answer is not None:
            steps.append(("Answer", self.answer))
        room = tokens * CHARACTERS_PER_TOKEN
        lines = [f"{label}: {_indent(text)}" for label, text in _shorten(steps, room)]
        trace = "\n".join(lines) or "(nothing)"
        return trace if len(trace) <= room else TRUNCATED + trace[len(trace) - room :]

    def _steps(self) -> Iterator[tuple[str, str]]:
        """Yield a label and a text for each step."""
        labels = {"assistant": "Thought", "user": "Prompt"}
        actions = iter(self.actions)
        for message in self.turns:
            if message.content and message.role in labels:
                yield labels[message.role], message.content
            for _ in message.calls:
                call, observation = next(actions)
                arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
                yield "Action", f"{call.name} {arguments}"
                yield "Observation", observation


@dataclasses.dataclass
class EpisodicMemory:
    """The trajectories of a run with their evaluations, and the reflections, oldest first."""

    trajectories: list[Trajectory] = dataclasses.field(default_factory=list[Trajectory])
    evaluations: list[Evaluation] = dataclasses.field(default_factory=list[Evaluation])
    reflections: list[str] = dataclasses.field(default_factory=list[str])

    def add(self, trajectory: Trajectory) -> None:
        """Add a trajectory that counts as not passed until it is evaluated.

        A limit may end the run before the evaluation.
        """
        self.trajectories.append(trajectory)
        self.evaluations.append(Evaluation(False))

    def best(self) -> tuple[Trajectory, Evaluation] | None:
        """Return the best trajectory with an answer.

        Passed ranks before not passed, completed before halted, then the higher score, then the later trial.
        """
        pairs = zip(self.trajectories, self.evaluations, strict=True)
        answered = [pair for pair in pairs if pair[0].answer is not None]
        return max(answered, key=_rank, default=None)

    def render_reflections(self, limit: int) -> str:
        """Return the newest reflections as a list."""
        return "\n".join(f"- {_indent(text)}" for text in self.reflections[-limit:])


def _rank(pair: tuple[Trajectory, Evaluation]) -> tuple[bool, bool, float, int]:
    trajectory, evaluation = pair
    score = -math.inf if evaluation.score is None else evaluation.score
    return evaluation.passed, not trajectory.halted, score, trajectory.number


def count_given_messages(
    conversation: Sequence[Message], given: Sequence[Message]
) -> int:
    """Return how many messages of a conversation precede the actor's work.

    The actor may have inserted messages of its own before the last one it was given.
    """
    try:
        return conversation.index(given[-1], len(given) - 1) + 1
    except (IndexError, ValueError):
        return 0


def _shorten(steps: list[tuple[str, str]], room: int) -> list[tuple[str, str]]:
    """Leave observations out, longest first, until the steps fit into `room` characters."""
    size = sum(len(label) + len(text) + 3 for label, text in steps)
    observations = [i for i, (label, _) in enumerate(steps) if label == "Observation"]
    for index in sorted(observations, key=lambda i: -len(steps[i][1])):
        label, text = steps[index]
        placeholder = OMITTED.format(size=len(text))
        if size <= room or len(text) <= len(placeholder):
            break
        steps[index] = label, placeholder
        size += len(placeholder) - len(text)
    return steps


def _indent(text: str) -> str:
    return "\n  ".join(text.splitlines())
