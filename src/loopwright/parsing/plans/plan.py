"""Plans: graphs of steps."""

from ..._internal import dataclasses
from ...messages import Json


@dataclasses.dataclass(frozen=True)
class PlanStep:
    """One step of a plan.

    Args:
        id: its number; other steps refer to its result by it (`$1`, `${1}`, `#E1`).
        tool: the tool that it calls, as written; `None` if it is a sub-goal. `LLM` is a sub-goal
            without tools.
        arguments: the input of the call as written.
        goal: what a sub-goal is to find out or do; for a call, what is said about it.
        depends_on: the steps that must be done before it, in order.
        references: those of them whose results its text names.
        thought: what the model thought just before it.
    """

    id: int
    tool: str | None
    arguments: str = ""
    goal: str = ""
    depends_on: tuple[int, ...] = ()
    references: tuple[int, ...] = ()
    thought: str = ""

    def __str__(self) -> str:
        """Return `1. search("x")` or `1. Find out …`."""
        text = self.goal if self.tool is None else f"{self.tool}({self.arguments})"
        return f"{self.id}. {text}"

    def to_json(self) -> dict[str, Json]:
        """Return what a person who approves the plan has to see of the step."""
        return {
            "id": self.id,
            "tool": self.tool,
            "arguments": self.arguments,
            "goal": self.goal,
            "depends_on": list(self.depends_on),
        }


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of a plan, and the `join()` that ends a plan of LLMCompiler, which depends on all
    of them.
    """

    steps: tuple[PlanStep, ...]
    join: PlanStep | None = None

    def to_json(self) -> list[Json]:
        """Return the steps as JSON, for the person who approves them."""
        return [step.to_json() for step in self.steps]
