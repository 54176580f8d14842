"""What came of the steps of plans, and what that means for the steps that are left."""

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import Literal

from .graph import Plan, PlanStep

LABELS = {"ok": "Result:", "failed": "Failed:", "skipped": "Not started:"}


@dataclasses.dataclass(frozen=True)
class StepFinished:
    """What came of a step: `content` is its result or, where there is none, the reason.

    `partial` is what a sub-engine had found when it failed: known when all is joined, but no result for other steps.
    """

    id: int
    status: Literal["ok", "failed", "skipped"]
    content: str
    partial: str = ""


@dataclasses.dataclass
class Ledger:
    """The steps of a run's plans that have an outcome, by id; no id is used twice.

    What a model is to read of an outcome may be something else than what code reads: it is kept beside it.
    """

    _finished: dict[int, tuple[PlanStep, StepFinished]] = dataclasses.field(
        default_factory=dict[int, tuple[PlanStep, StepFinished]]
    )
    _shown: dict[int, str] = dataclasses.field(default_factory=dict[int, str])

    def __bool__(self) -> bool:
        return bool(self._finished)

    def add(
        self, step: PlanStep, outcome: StepFinished, shown: str | None = None
    ) -> None:
        """Keep a step's outcome, and its content as a model is to read it."""
        self._finished[step.id] = step, outcome
        self._shown[step.id] = outcome.content if shown is None else shown

    @property
    def first(self) -> int:
        """The lowest number that is free for a new step, above all others."""
        return max(self._finished, default=0) + 1

    @property
    def done(self) -> tuple[PlanStep, ...]:
        """The steps that have a result."""
        return tuple(
            step for step, outcome in self._finished.values() if outcome.status == "ok"
        )

    def worked(self, plan: Plan) -> bool:
        """Whether every step of a plan has a result."""
        return {step.id for step in plan.steps} <= {step.id for step in self.done}

    def left(self, plan: Plan) -> list[PlanStep]:
        """The steps of a plan without an outcome."""
        return [step for step in plan.steps if step.id not in self._finished]

    def skipped(self, step: PlanStep) -> StepFinished | None:
        """The outcome of a step that needs one without a result; `None` if none of those it needs has failed."""
        broken = set(step.depends_on) & self._finished.keys() - {
            one.id for one in self.done
        }
        if not broken:
            return None
        return StepFinished(
            step.id, "skipped", f"It needs step {min(broken)}, which has no result."
        )

    def ready(self, step: PlanStep) -> bool:
        """Whether all that a step needs has an outcome."""
        return all(one in self._finished for one in step.depends_on)

    def results(self, ids: Iterable[int]) -> dict[int, str]:
        """What came of some steps, by id, for the arguments of calls."""
        return {one: self._finished[one][1].content for one in ids}

    def shown(self, ids: Iterable[int]) -> dict[int, str]:
        """The same for a model to read."""
        return {one: self._shown[one] for one in ids}

    def told(self, ids: Iterable[int] | None = None) -> str:
        """Steps (all, or some) with their outcomes, for a model to read.

        What tools and models said is indented, so that no line of it can pass for another step.
        """
        told: list[str] = []
        for one in sorted(self._finished if ids is None else ids):
            step, outcome = self._finished[one]
            told += [str(step), LABELS[outcome.status], _indented(self._shown[one])]
            told += (
                ["As far as it came:", _indented(outcome.partial)]
                if outcome.partial
                else []
            )
        return "\n".join(told) or "none"


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ", lambda line: True)
