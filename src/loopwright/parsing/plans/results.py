"""The outcomes of the steps of plans, and what they mean for the steps that are left."""

import textwrap
from collections.abc import Iterable
from typing import Literal

from ..._internal import dataclasses
from .plan import Plan, PlanStep

LABELS = {"ok": "Result:", "failed": "Failed:", "skipped": "Not started:"}


@dataclasses.dataclass(frozen=True)
class StepFinished:
    """The outcome of a step.

    Args:
        id: the number of the step.
        status: whether it has a result, failed, or was not started.
        content: its result or, where there is none, the reason.
        partial: what a sub-engine had found when it failed: for the final answer, not for other
            steps.
    """

    id: int
    status: Literal["ok", "failed", "skipped"]
    content: str
    partial: str = ""


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A step, its outcome, and the content of the outcome as a model reads it."""

    step: PlanStep
    outcome: StepFinished
    shown: str


class Ledger:
    """The steps of a run's plans that have an outcome, by id; no id is used twice.

    What a model reads of an outcome may differ from what code reads, so both are kept.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(
        self, step: PlanStep, outcome: StepFinished, shown: str | None = None
    ) -> None:
        """Keep a step's outcome, and its content as a model is to read it."""
        content = outcome.content if shown is None else shown
        self._entries[step.id] = _Entry(step, outcome, content)

    @property
    def next_id(self) -> int:
        """The lowest number that is free for a new step, above all others."""
        return max(self._entries, default=0) + 1

    @property
    def done(self) -> tuple[PlanStep, ...]:
        """The steps that have a result."""
        entries = self._entries.values()
        return tuple(entry.step for entry in entries if entry.outcome.status == "ok")

    def is_complete(self, plan: Plan) -> bool:
        """Return whether every step of a plan has a result."""
        planned = {step.id for step in plan.steps}
        return planned.issubset(self._get_done_ids())

    def has_failed(self, plan: Plan) -> bool:
        """Return whether a step of a plan has an outcome and no result."""
        planned = {step.id for step in plan.steps}
        failed = self._entries.keys() - self._get_done_ids()
        return not planned.isdisjoint(failed)

    def get_pending(self, plan: Plan) -> list[PlanStep]:
        """Return the steps of a plan without an outcome."""
        return [step for step in plan.steps if step.id not in self._entries]

    def find_skip(self, step: PlanStep) -> StepFinished | None:
        """Return the outcome of a step that needs a step without a result; `None` if none of those
        it needs failed.
        """
        failed = self._entries.keys() - self._get_done_ids()
        broken = failed.intersection(step.depends_on)
        if not broken:
            return None
        reason = f"It needs step {min(broken)}, which has no result."
        return StepFinished(step.id, "skipped", reason)

    def is_ready(self, step: PlanStep) -> bool:
        """Return whether all steps that a step needs have an outcome."""
        return self._entries.keys() >= set(step.depends_on)

    def get_results(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the contents of outcomes by id, for the arguments of calls."""
        return {number: self._entries[number].outcome.content for number in ids}

    def get_shown(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the contents of outcomes by id, as a model reads them."""
        return {number: self._entries[number].shown for number in ids}

    def render(self, ids: Iterable[int] | None = None) -> str:
        """Return steps (all, or some) with their outcomes, for a model to read.

        What tools and models said is indented, so that no line of it can pass for another step.
        """
        lines: list[str] = []
        for number in sorted(self._entries if ids is None else ids):
            lines += _render_entry(self._entries[number])
        return "\n".join(lines) or "none"

    def _get_done_ids(self) -> set[int]:
        return {step.id for step in self.done}


def _render_entry(entry: _Entry) -> list[str]:
    label = LABELS[entry.outcome.status]
    lines = [str(entry.step), label, _indent(entry.shown)]
    if entry.outcome.partial:
        lines += "As far as it came:", _indent(entry.outcome.partial)
    return lines


def _indent(text: str) -> str:
    return textwrap.indent(text, "    ", lambda line: True)
