"""Limits, what a run may use, and Budget, what it has used."""

import operator
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from ._internal import dataclasses
from ._internal.options import Options
from .errors import LimitReached
from .messages import Usage

MIN_BEST_ANSWER = 1_024  # tokens
OF_AGENT = ("max_iterations", "context_tokens")
"""The limits that concern one agent and not the run."""
MIN_OUTPUT = 16  # tokens; the Responses API takes no less


class Limits(Options):
    """What a run may use; `None` lifts a limit. Times are seconds of active time.

    Args:
        max_iterations: turns of one loop; nested loops are counted separately.
        max_llm_calls: model calls, however many attempts each takes; one is reserved for the best-effort answer.
        max_tool_calls: tool calls that reached a tool.
        max_calls_per_turn: calls of one turn; further ones are rejected, and the model may propose them again.
        max_tokens: input and output tokens of all model calls; what is left of them bounds each reply.
        max_cost: cost of the model calls, as reported by providers or computed from `Runtime(prices=...)`.
        timeout: the whole run, without the time it waits for a person or is not running.
        tool_timeout: one tool call.
        model_timeout: one attempt of a model call; an attempt that takes longer is made again.
        max_provider_wait: how long a model call waits for its provider to work again, in wall time; then the run is
            suspended, and resumed later.
        max_concurrent_tools: concurrent tool calls of one run.
        max_output_chars: length of a tool result that a model reads.
        context_tokens: size of the conversation that a model reads, estimated; `None` is the model's own, as far as it
            is known, else 32,000.
        max_depth: how deep engines may delegate to engines (`Run.delegate`, `as_tool`): 1 is a child of the run's engine.
        max_handoffs: how often a run may be handed off from agent to agent (`Run.handoff`, `handoffs=`).
        best_effort: whether a run at a limit makes one more call, without tools, for its best answer.
    """

    max_iterations: int | None = Field(default=25, ge=1)
    max_llm_calls: int | None = Field(default=60, ge=1)
    max_tool_calls: int | None = Field(default=200, ge=0)
    max_tokens: int | None = Field(default=100_000, ge=1)
    max_cost: float | None = Field(default=None, ge=0)
    timeout: float | None = Field(default=300.0, gt=0)
    tool_timeout: float | None = Field(default=30.0, gt=0)
    model_timeout: float | None = Field(default=90.0, gt=0)
    max_provider_wait: float | None = Field(default=120.0, ge=0)
    max_concurrent_tools: int | None = Field(default=5, ge=1)
    max_output_chars: int | None = Field(default=50_000, ge=1)
    context_tokens: int | None = Field(default=None, ge=1)
    best_effort: bool = True
    max_depth: int | None = Field(default=3, ge=1)
    max_handoffs: int | None = Field(default=10, ge=0)
    max_calls_per_turn: int | None = Field(default=50, ge=1)

    def restrict(self, own: "Limits") -> "Limits":
        """Return the limits of a run in which an agent with limits of its own works.

        Iterations and the size of the context are the agent's; of the others the lower ones count.
        """
        lowest: dict[str, Any] = {}
        for name, value in vars(own).items():
            values = [one for one in (value, getattr(self, name)) if one is not None]
            lowest[name] = min(values, default=None)
        lowest |= {name: getattr(own, name) for name in OF_AGENT}
        return Limits(**lowest)

    def share(self, parts: int, used: "Share") -> "Share":
        """Return one of so many equal parts of what is left once that is used, with a call and its tokens at least."""
        calls, tokens = self.max_llm_calls, self.max_tokens
        left_calls = None if calls is None else calls - used.llm_calls
        left_tokens = None if tokens is None else tokens - used.tokens
        return Share(_divide(left_calls, parts), _divide(left_tokens, parts))


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a run has used so far: model calls, tool calls, tokens, and money where prices are known.

    `share` is the largest part of a limit that is used, 0 to 1.
    """

    llm_calls: int
    tool_calls: int
    tokens: int
    cost: float | None
    share: float


class ProgressRules(Options):
    """When a run makes no progress, and what happens then.

    Args:
        repeats: how often a call with its result, a denial, an unknown tool or an error of a tool comes before it is a loop.
        similarity: from which similarity on, 0 to 1, two errors of a tool are the same: 1 - Levenshtein distance / length.
        then: what happens at the call after a blocked one: the run is asked for its best "answer" and ends as stuck;
            it ends at once ("abort"); or the gate's approver is asked whether the call is made all the same ("ask").
    """

    repeats: int = Field(default=3, ge=2, le=100)
    similarity: float = Field(default=0.85, gt=0, le=1)
    then: Literal["answer", "abort", "ask"] = "answer"


UNLIMITED = 2**63
"""A number of calls or tokens that no run reaches."""


def _divide(left: int | None, parts: int) -> int:
    return UNLIMITED if left is None else max(left // parts, 1)


@dataclasses.dataclass(frozen=True)
class Share:
    """A part of the budget of a run, for a child: model calls, and tokens of input and output."""

    llm_calls: int
    tokens: int

    def is_used(self, used: "Share") -> bool:
        """Return whether nothing is left of it."""
        return used.llm_calls >= self.llm_calls or used.tokens >= self.tokens


@dataclasses.dataclass(eq=False)
class OpenCall:
    """A model call under way: the tokens of its input, estimated, and how many its reply may have."""

    input_tokens: int
    output_tokens: int = 0


_get_input_tokens: Callable[[OpenCall], int] = operator.attrgetter("input_tokens")
_get_output_tokens: Callable[[OpenCall], int] = operator.attrgetter("output_tokens")


@dataclasses.dataclass
class Budget:
    """What one run, with all its branches and children, has used of its limits."""

    limits: Limits
    llm_calls: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    reserved_used: bool = False
    in_flight: list[OpenCall] = dataclasses.field(default_factory=list[OpenCall])
    """The model calls that are under way; each is removed when it ends."""
    sent: dict[str, Callable[[], Usage]] = dataclasses.field(
        default_factory=dict[str, Callable[[], Usage]]
    )
    """What estimates the usage of each request that has no reply yet, in case that its call is cut off; by their keys."""

    def book_cut(self, effect: str) -> Usage:
        """Count what requests in the branches of an effect have used, which is now cut off; return it."""
        keys = [key for key in self.sent if key.startswith(f"{effect}.")]
        usage = sum((self.sent.pop(key)() for key in keys), Usage())
        self.usage += usage
        return usage

    def share_output(self, strands: int) -> int | None:
        """Return how many tokens the reply to one more call may have: an equal share of what is left.

        It is a share for each strand of the program at work, and no more than what the calls under way leave; 16 at
        least, and 1,024 once the best answer was asked for.
        """
        if self.limits.max_tokens is None:
            return None
        left = self.limits.max_tokens - self.usage.total_tokens
        left -= sum(map(_get_input_tokens, self.in_flight))
        unclaimed = left - sum(map(_get_output_tokens, self.in_flight))
        share = left // max(strands, len(self.in_flight), 1)
        room = MIN_BEST_ANSWER if self.reserved_used else MIN_OUTPUT
        return max(min(share, unclaimed), room)

    @property
    def reserved_calls(self) -> int:
        """The number of model calls reserved for the best-effort answer: 1 or 0."""
        limit = self.limits.max_llm_calls
        if not self.limits.best_effort or self.reserved_used or limit is None:
            return 0
        return int(limit >= 2)

    def has_model_calls(self, number: int = 1) -> bool:
        """Return whether so many more model calls are left, beside a reserved one."""
        limit = self.limits.max_llm_calls
        return limit is None or self.llm_calls + number <= limit - self.reserved_calls

    @property
    def tool_calls_left(self) -> int | None:
        """The number of tool calls that are left; `None` without a limit."""
        limit = self.limits.max_tool_calls
        return None if limit is None else max(limit - self.tool_calls, 0)

    @property
    def has_tool_call(self) -> bool:
        """Whether one more tool call is left."""
        limit = self.limits.max_tool_calls
        return limit is None or self.tool_calls < limit

    def check(self, calls: int = 1) -> None:
        """Raise `LimitReached` if one more model call, or so many, are not allowed."""
        limits, tokens = self.limits, self.usage.total_tokens
        if not self.has_model_calls(calls):
            wanted = "" if calls == 1 else f", and {calls} more were to be made"
            raise LimitReached(
                "max_llm_calls",
                f"{self.llm_calls} of {limits.max_llm_calls} model calls are used{wanted}",
            )
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            raise LimitReached(
                "max_tokens", f"{tokens} of {limits.max_tokens} tokens are used"
            )
        if limits.max_cost is not None and (self.usage.cost or 0.0) >= limits.max_cost:
            raise LimitReached(
                "max_cost", f"{self.usage.cost} of {limits.max_cost} are spent"
            )

    def measure(self) -> Spent:
        """Return what is used, and how much of the limits that is."""
        limits, tokens, cost = self.limits, self.usage.total_tokens, self.usage.cost
        shares = [
            used / limit
            for used, limit in (
                (self.llm_calls, limits.max_llm_calls),
                (self.tool_calls, limits.max_tool_calls),
                (tokens, limits.max_tokens),
                (cost or 0.0, limits.max_cost),
            )
            if limit
        ]
        share = min(max(shares, default=0.0), 1.0)
        return Spent(self.llm_calls, self.tool_calls, tokens, cost, share)

    def count_tool_call(self) -> None:
        """Count one tool call; raise `LimitReached` if it is not allowed."""
        if not self.has_tool_call:
            limit = self.limits.max_tool_calls
            raise LimitReached(
                "max_tool_calls", f"{self.tool_calls} of {limit} tool calls are used"
            )
        self.tool_calls += 1
