"""Hook: tell a model how much of the run's limits is used, and end a run that costs too much."""

from collections.abc import Sequence

from .base import Abort, Before, Hook, ModelQuestion, Moment

STEPS = (0.5, 0.8, 0.95)


class Cost(Hook):
    """Says once at each step how much is used, and records it in its state.

    Args:
        steps: shares of the limit that is nearest, 0 to 1.
        max_cost: what the run may cost, in the currency of its prices; above it the run is aborted.
    """

    name = "cost"
    version = "1"
    priority = 200
    purposes = ("*",)

    def __init__(
        self, steps: Sequence[float] = STEPS, max_cost: float | None = None
    ) -> None:
        if not all(0 < step <= 1 for step in steps):
            raise ValueError(f"steps: must be above 0 and at most 1, got {steps!r}")
        self.steps, self.max_cost = sorted(steps), max_cost

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before | None:
        """Say what is used at a step that was not told yet."""
        spent = at.spent
        cost = spent.cost or 0.0
        if self.max_cost is not None and cost > self.max_cost:
            raise Abort(f"the run has cost {cost:g}, more than {self.max_cost:g}")
        passed = [step for step in self.steps if spent.share >= step]
        last = float(str(at.state.get("step", 0)))
        if not passed or passed[-1] <= last:
            return None
        at.state.update(step=passed[-1], tokens=spent.tokens, llm_calls=spent.llm_calls)
        if spent.cost is not None:
            at.state["cost"] = spent.cost
        return Before(
            messages=(
                f"{spent.share:.0%} of what this run may use is used ({spent.llm_calls} model calls, "
                f"{spent.tokens} tokens). Come to an end.",
            )
        )
