"""Limits (what a run is allowed) and Budget (what it has spent)."""

import dataclasses

from pydantic import Field

from ._internal.options import Options
from .errors import LimitReached
from .messages import Usage


class Limits(Options):
    """What a run may use; `None` lifts a limit. Times are seconds of active time.

    Args:
        max_iterations: turns of one loop; nested loops count for themselves.
        max_llm_calls: model calls, failed ones included; one of them is held back for the best-effort answer.
        max_tool_calls: tool calls that were let through to a tool.
        max_tokens: input and output tokens of all model calls.
        max_cost: what model calls may cost, as providers charge it or `Runtime(prices=...)` tells.
        timeout: the whole run; time spent waiting for a person or not running at all does not count.
        tool_timeout: one tool call.
        max_concurrent_tools: tools of one run at work at once.
        max_output_chars: longest tool result that a model gets to read.
        context_tokens: longest conversation that a model gets to read, estimated from its size.
        best_effort: whether a run that reaches a limit asks once more, without tools, for its best answer.
    """

    max_iterations: int | None = Field(default=25, ge=1)
    max_llm_calls: int | None = Field(default=60, ge=1)
    max_tool_calls: int | None = Field(default=200, ge=0)
    max_tokens: int | None = Field(default=100_000, ge=1)
    max_cost: float | None = Field(default=None, ge=0)
    timeout: float | None = Field(default=300.0, gt=0)
    tool_timeout: float | None = Field(default=30.0, gt=0)
    max_concurrent_tools: int | None = Field(default=5, ge=1)
    max_output_chars: int | None = Field(default=50_000, ge=1)
    context_tokens: int | None = Field(default=32_000, ge=1)
    best_effort: bool = True


@dataclasses.dataclass
class Budget:
    """What one run, with all its branches and children, has spent of its limits."""

    limits: Limits
    llm_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    reserved_used: bool = False

    @property
    def held_back(self) -> int:
        """Model calls kept for the best-effort answer: 1 or 0."""
        most = self.limits.max_llm_calls
        return int(
            self.limits.best_effort
            and most is not None
            and most >= 2
            and not self.reserved_used
        )

    def check(self) -> None:
        """Raise `LimitReached` if one more model call is not allowed."""
        limits = self.limits
        if (
            limits.max_llm_calls is not None
            and self.llm_calls >= limits.max_llm_calls - self.held_back
        ):
            raise LimitReached(
                "max_llm_calls",
                f"{self.llm_calls} of {limits.max_llm_calls} model calls are used",
            )
        if (
            limits.max_tokens is not None
            and self.usage.total_tokens >= limits.max_tokens
        ):
            raise LimitReached(
                "max_tokens",
                f"{self.usage.total_tokens} of {limits.max_tokens} tokens are used",
            )
        if limits.max_cost is not None and (self.usage.cost or 0.0) >= limits.max_cost:
            raise LimitReached(
                "max_cost", f"{self.usage.cost} of {limits.max_cost} are spent"
            )

    def take_tool_call(self) -> None:
        """Count one tool call, or raise `LimitReached`."""
        most = self.limits.max_tool_calls
        if most is not None and self.tool_calls >= most:
            raise LimitReached(
                "max_tool_calls", f"{self.tool_calls} of {most} tool calls are used"
            )
        self.tool_calls += 1
