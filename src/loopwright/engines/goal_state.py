"""What a run of the goal cycle knows: its plan, the outcomes of the steps, and its working memory."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence

from pydantic_core import to_json

from ..messages import JsonObject, Observation
from ..parsing.goal_replies import EvaluationReply, Quality, StepDraft
from ..parsing.plans.plan import Plan, PlanStep
from .goal_decisions import Situation, find_trend

MAX_RESULT = 300
"""Characters of the result of an earlier step that a prompt shows."""
MAX_OUTPUT = 3_000
"""Characters of an output that is evaluated."""
NONE = "none"
NO_PLAN = Plan(())


@dataclasses.dataclass(frozen=True)
class StepEvaluated:
    """Fact: how good the output of step `id` is; `mean` and `scores` (1 to 5) as far as the evaluator gave them."""

    id: int
    quality: Quality
    mean: float | None
    scores: dict[str, float]
    summary: str = ""


@dataclasses.dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step.

    Args:
        skill: what was called.
        input: its arguments; `None` if there were none to call it with.
        ok: whether it has an output.
        text: the output, or why there is none.
        evaluation: how good it is, if that was read.
        memory: what the replies made of the working memory; `None` if nothing.
        by_person: whether a person ordered it.
        fence: puts text from outside between delimiters.
    """

    skill: str
    input: JsonObject | None
    ok: bool
    text: str
    evaluation: EvaluationReply | None = None
    memory: str | None = None
    by_person: bool = False
    fence: Callable[[str], str] | None = None

    def excerpt(self, length: int) -> str:
        """Return the beginning of the text as a model is to read it."""
        beginning = cut(self.text, length)
        return beginning if self.fence is None else self.fence(beginning)

    def judge(self, evaluation: EvaluationReply) -> "StepOutcome":
        """Return the outcome with its evaluation."""
        memory = evaluation.working_memory or self.memory
        return dataclasses.replace(self, evaluation=evaluation, memory=memory)

    @property
    def quality(self) -> Quality | None:
        """How good it is: an output that could not be evaluated counts as partly of use, no output as failed."""
        if not self.ok:
            return "failed"
        return "partial" if self.evaluation is None else self.evaluation.quality

    @property
    def key(self) -> str:
        """A short name of skill and input, the same for the same ones."""
        encoded = to_json([self.skill, self.input])
        return hashlib.sha256(encoded).hexdigest()[:16]


def fail_step(skill: str, reason: str, memory: str | None = None) -> StepOutcome:
    """Return the outcome of a step that could not be made."""
    return StepOutcome(skill, None, False, reason, memory=memory)


def observe_step(
    seen: Observation, memory: str | None, *, by_person: bool = False
) -> StepOutcome:
    """Return the outcome of a call."""
    return StepOutcome(
        seen.call.name, seen.call.arguments, seen.ok, seen.text, memory=memory, by_person=by_person, fence=seen.fence
    )  # fmt: skip


class GoalMemory:
    """The working memory: what people sent, word for word, and the notes that each reply may replace."""

    def __init__(self) -> None:
        self.people: list[str] = []
        self.notes = ""

    def take(self, notes: str | None) -> None:
        """Replace the notes, unless a reply says nothing of them."""
        if notes and notes.strip():
            self.notes = notes.strip()

    def add(self, line: str) -> None:
        """Add a line to the notes."""
        self.notes = f"{self.notes}\n{line}".strip()

    @property
    def text(self) -> str:
        """The memory as a prompt has it."""
        return self.preview(None)

    def preview(self, notes: str | None) -> str:
        """Return the memory as a prompt has it, with other notes if there are any."""
        parts = (*self.people, notes or self.notes)
        return "\n".join(part for part in parts if part) or NONE


@dataclasses.dataclass
class GoalState:
    """The state of one run; it follows from what the verbs of the run returned."""

    memory: GoalMemory = dataclasses.field(default_factory=GoalMemory)
    knowledge: str = NONE
    plan: Plan = NO_PLAN
    index: int = 0
    """The place of the next step in the plan."""
    done: list[tuple[PlanStep, StepOutcome]] = dataclasses.field(
        default_factory=list[tuple[PlanStep, StepOutcome]]
    )
    failures: int = 0
    unread: int = 0
    adjusts: int = 0
    attempts: int = 0
    scores: list[float] = dataclasses.field(default_factory=list[float])
    ordered: list[JsonObject] = dataclasses.field(default_factory=list[JsonObject])
    """The calls that people ordered, and that were not made."""
    received: set[int] = dataclasses.field(default_factory=set[int])
    """The numbers of the commands that were received."""
    planned: int = 0
    """How many steps all plans had."""

    def replace_plan(self, steps: Sequence[PlanStep]) -> None:
        """Begin another plan."""
        self.plan, self.index, self.attempts = Plan(tuple(steps)), 0, 0
        self.planned += len(steps)

    @property
    def step(self) -> PlanStep:
        """The next step, or the last one if none is left."""
        return self.plan.steps[min(self.index, len(self.plan.steps) - 1)]

    def advance(self) -> None:
        """Come to the next step."""
        self.index += 1
        self.attempts = 0

    def finish_step(self, outcome: StepOutcome) -> None:
        """Keep the outcome of a step."""
        self.done.append((self.step, outcome))
        self.attempts += 1
        self.memory.take(outcome.memory)
        self.failures = self.failures + 1 if outcome.quality == "failed" else 0
        self.unread = 0
        if outcome.evaluation is not None and outcome.evaluation.mean is not None:
            self.scores.append(outcome.evaluation.mean)

    def describe(self) -> Situation:
        """Return the situation after the last step."""
        last = self.done[-1][1] if self.done else None
        made = [outcome.key for _, outcome in self.done if outcome.input is not None]
        return Situation(
            self.failures,
            max(0, len(self.plan.steps) - self.index - 1),
            None if last is None else last.quality,
            tuple(made[-4:]),
            self.adjusts,
            self.attempts,
            last is not None and last.by_person,
            self.unread,
        )

    # --- as prompts have it ---

    def render_plan(self) -> str:
        """Return the steps of the plan, each with whether it is made."""
        lines: list[str] = []
        for number, step in enumerate(self.plan.steps):
            mark = "made" if number < self.index else "to come"
            mark = "last" if number == self.index else mark
            lines.append(f"{step.id}. {step.tool}: {step.goal} ({mark})")
        return "\n".join(lines) or NONE

    def render_results(self) -> str:
        """Return the outcomes of the steps that were made, each cut to its beginning."""
        lines = [
            f"{step.id}. {outcome.skill}, {outcome.quality}: {outcome.excerpt(MAX_RESULT)}"
            for step, outcome in self.done
        ]
        return "\n".join(lines) or NONE

    def render_trend(self, count: int) -> str:
        """Return the last scores and where they go; empty for fewer than two."""
        last = self.scores[-count:]
        trend = find_trend(last)
        if trend is None:
            return NONE
        return f"{', '.join(f'{score:.1f}' for score in last)} ({trend})"


def number_steps(
    drafts: Iterable[StepDraft], names: Sequence[str], first: int
) -> list[PlanStep]:
    """Return the steps of a plan, numbered from `first`, with the registered names of their skills."""
    return [
        PlanStep(number, name, goal=draft.input_description or draft.reason)
        for number, (draft, name) in enumerate(
            zip(drafts, names, strict=True), first
        )
    ]  # fmt: skip


def cut(text: str, length: int) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
