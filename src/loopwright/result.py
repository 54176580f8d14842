"""What a run came to: its result, and how an error becomes a status and a stop reason."""

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, cast

from pydantic import BaseModel

from .errors import (
    Aborted,
    AskFailed,
    ContextTooLong,
    Denied,
    InvalidOutput,
    JournalError,
    LimitReached,
    LoopwrightError,
    ProviderError,
    Stuck,
    Suspended,
    UnknownOutcome,
    Unreadable,
)
from .events.effects import FactNoted
from .events.run import Question, Status, StopReason
from .messages import Conversation, Usage

if TYPE_CHECKING:  # for their defaults, which typing has from Python 3.13 on
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=Any, covariant=True)
    Model = TypeVar("Model", bound=BaseModel, default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output", covariant=True)
    Model = TypeVar("Model")
T = TypeVar("T")
NO_OUTPUT: Any = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a strategy ended. `answer` may be there for a limit or a stuck run too: the best one so far."""

    status: Status
    stop_reason: StopReason
    answer: str | None = None
    error: LoopwrightError | None = None


REASONS: tuple[tuple[type[LoopwrightError], Status, StopReason], ...] = (
    (Aborted, "aborted", "aborted"),
    (Denied, "failed", "denied"),
    (ContextTooLong, "failed", "context_overflow"),
    (ProviderError, "failed", "provider_error"),
    (Unreadable, "failed", "unreadable"),
    (InvalidOutput, "failed", "invalid_output"),
    (AskFailed, "failed", "invalid_output"),
    (UnknownOutcome, "failed", "unknown_outcome"),
    (JournalError, "failed", "journal_error"),
)


def outcome_of(error: LoopwrightError, answer: str | None = None) -> Outcome:
    """The outcome that an error (or a signal) means."""
    if isinstance(error, LimitReached):
        reason: Any = error.limit  # the names of the limits are stop reasons
        return Outcome("limit", reason, answer, error)
    if isinstance(error, Stuck):
        stuck_reason: Any = error.reason
        return Outcome("stuck", stuck_reason, answer, error)
    if isinstance(error, Suspended):
        waiting_for: Any = error.reason
        return Outcome("waiting", waiting_for, answer, error)
    for kind, status, reason in REASONS:
        if isinstance(error, kind):
            return Outcome(status, reason, answer, error)
    return Outcome("failed", "engine_error", answer, error)


@dataclasses.dataclass(frozen=True)
class Result(Generic[Output]):
    """What a run came to; `Result[Forecast | None]` if it was asked for a `Forecast`, plain `Result` where any will do.

    Args:
        answer: the final text, or the best so far where the run ended before it; never an error text.
        status: completed, stuck, limit, aborted, waiting or failed.
        stop_reason: why it ended, from a closed set.
        usage: tokens of all model calls.
        iterations: turns of the engine's own loops.
        run_id: its name in the journal.
        error: what went wrong or was hit; `raise_for_status` raises it.
        pending: the questions that a waiting run has.
        head_hash: hash of the journal's last entry; keep it to find a cut tail.
        output: the answer as the model class that was asked for; `None` unless the run is completed.
        conversation: what was said, as far as it came.
        llm_calls: model calls, failed attempts included.
        tool_calls: calls that reached a tool.
        facts: what the strategies noted, in the journal's order: plans, votes, critiques; see `fact`.
    """

    answer: str | None
    status: Status
    stop_reason: StopReason
    usage: Usage
    iterations: int
    run_id: str
    error: LoopwrightError | None = None
    pending: tuple[Question, ...] = ()
    head_hash: str = ""
    output: Output = NO_OUTPUT
    conversation: Conversation = dataclasses.field(
        default_factory=Conversation, repr=False
    )
    llm_calls: int = 0
    tool_calls: int = 0
    facts: tuple[FactNoted, ...] = dataclasses.field(default=(), repr=False)

    def fact(self, name: str) -> Any:
        """The last fact of that name, as JSON, or `None`: `result.fact("Vote")["agreement"]`."""
        return next(
            (fact.value for fact in reversed(self.facts) if fact.name == name), None
        )

    def raise_for_status(self: "Result[T | None]") -> "Result[T]":
        """The result itself if the run is completed, so that it has its output; otherwise its error is raised."""
        if self.status == "completed":
            return cast("Result[T]", self)
        raise self.error or LoopwrightError(
            f"the run ended as {self.status}: {self.stop_reason}"
        )
