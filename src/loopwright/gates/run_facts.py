"""What gates are told of a run beside the call: its task, its agent, its plan, the calls before."""

from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..messages import ObservationStatus

Author: TypeAlias = Literal["model", "engine", "operator", "code"]
"""Who wrote a call: the model, the engine (a step of a plan, say), a person, or code for an effect of its own."""


@dataclasses.dataclass(frozen=True)
class PastCall:
    """A call of the run that was decided about before.

    Args:
        key: its place in the run.
        tool: its tool.
        allowed: whether gates or people allowed it.
        status: how it ended; empty while it is under way, and for one that did not begin.
    """

    key: str
    tool: str
    allowed: bool
    status: ObservationStatus | Literal[""] = ""


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Facts about a run that only some gates need, so that they are put together when asked for.

    Args:
        task: the latest text that the caller gave the run.
        agent: the name of the agent; empty without one.
        plan: the tools of the plan that was decided before the run read text from outside, once
            for each call; `None` if there is no such plan.
        history: the calls that were decided about before, in order.
    """

    task: str = ""
    agent: str = ""
    plan: tuple[str, ...] | None = None
    history: tuple[PastCall, ...] = ()

    def is_planned(self, tool: str, key: str = "") -> bool:
        """Return whether the plan has a step with that tool that no call has used yet.

        The call at `key` itself does not count as one that has used it.
        """
        planned = (self.plan or ()).count(tool)
        return planned > 0 and self.count_allowed(tool, key) < planned

    def count_allowed(self, tool: str, key: str = "") -> int:
        """Return how many calls of a tool were allowed, without the one at `key`."""
        return sum(
            call.tool == tool and call.allowed and call.key != key
            for call in self.history
        )


@dataclasses.dataclass(frozen=True)
class PlannedCall:
    """A call that a plan has, by the name of its tool."""

    tool: str


@dataclasses.dataclass(frozen=True)
class DecidedPlan:
    """Fact: what a model planned before its engine began, from the trusted messages alone."""

    steps: tuple[PlannedCall, ...] = ()
