"""The result of a run, and the status and stop reason of an error."""

from typing import TYPE_CHECKING, Any, Generic, cast

from ._internal import dataclasses
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
    QuestionExpired,
    Stuck,
    Suspended,
    UnknownOutcome,
    Unreadable,
)
from .events.effects import FactNoted
from .events.run import ErrorRecord, Question, Status, StopReason
from .labels import Label, mark_texts
from .messages import Conversation, Usage

if TYPE_CHECKING:  # typing has defaults of type variables from Python 3.13 on
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=Any, covariant=True)
    Model = TypeVar("Model", default=Any)
    Value = TypeVar("Value", default=Any, covariant=True)
else:
    from typing import TypeVar

    Output = TypeVar("Output", covariant=True)
    Model = TypeVar("Model")
    Value = TypeVar("Value", covariant=True)
T = TypeVar("T")
NO_OUTPUT: Any = None


SUSPENDING = ("provider_unavailable", "sleeping")
"""Stop reasons of a run that waits for a time, and for no person."""


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """How a strategy ended. A run at a limit or a stuck run may have an `answer` too: the best one so far."""

    status: Status
    stop_reason: StopReason
    answer: str | None = None
    error: LoopwrightError | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the run waits, for a person or for a time, and can be resumed."""
        return self.status in ("waiting", "suspended")

    def record_error(self) -> ErrorRecord | None:
        """Return the error as a journal keeps it; `None` if there is none."""
        return None if self.error is None else ErrorRecord.of(self.error)


@dataclasses.dataclass(frozen=True)
class Finished(Generic[Value]):
    """The outcome of one of the works of `Run.as_completed`.

    Args:
        index: the place of the work among all, in the order in which they were begun.
        value: what it returned; `None` if it raised an error.
        error: what it raised, or `None`.
    """

    index: int
    value: Value
    error: Exception | None = None


REASONS: tuple[tuple[type[LoopwrightError], Status, StopReason], ...] = (
    (Aborted, "aborted", "aborted"),
    (Denied, "failed", "denied"),
    (ContextTooLong, "failed", "context_overflow"),
    (ProviderError, "failed", "provider_error"),
    (Unreadable, "failed", "unreadable"),
    (InvalidOutput, "failed", "invalid_output"),
    (AskFailed, "failed", "invalid_output"),
    (QuestionExpired, "failed", "question"),
    (UnknownOutcome, "failed", "unknown_outcome"),
    (JournalError, "failed", "journal_error"),
)


def build_outcome(error: LoopwrightError, answer: str | None = None) -> RunOutcome:
    """Return the outcome of a run that ended with an error or a signal."""
    # The names of the limits and the reasons of these errors are stop reasons.
    match error:
        case LimitReached():
            return RunOutcome("limit", cast("StopReason", error.limit), answer, error)
        case Stuck():
            return RunOutcome("stuck", cast("StopReason", error.reason), answer, error)
        case Suspended():
            reason = cast("StopReason", error.reason)
            status: Status = "suspended" if reason in SUSPENDING else "waiting"
            return RunOutcome(status, reason, answer, error)
        case _:
            pass
    for kind, status, stop_reason in REASONS:
        if isinstance(error, kind):
            return RunOutcome(status, stop_reason, answer, error)
    return RunOutcome("failed", "engine_error", answer, error)


@dataclasses.dataclass(frozen=True)
class Result(Generic[Output]):
    """The result of a run: `Result[Forecast | None]` if a `Forecast` was requested, plain `Result` for any.

    Args:
        answer: the final text, or the best so far where the run ended before it; never an error text.
        status: completed, stuck, limit, aborted, waiting (for a person), suspended (until a time) or failed.
        stop_reason: why it ended, from a closed set.
        usage: tokens of all model calls.
        iterations: turns of the engine's own loops.
        run_id: its name in the journal.
        error: the error or limit that ended it; `raise_for_status` raises it.
        pending: the questions of a waiting run.
        head_hash: hash of the journal's last entry; keep it to find a cut tail.
        output: the answer as the requested model class; `None` unless the run is completed.
        conversation: the messages, up to where the run ended.
        llm_calls: model calls, each with all its attempts.
        tool_calls: calls that reached a tool.
        facts: the facts that the strategies noted, in the journal's order: plans, votes, critiques; see `fact`.
        label: how sensitive what the run has read is. A run that is given the `answer`, a text of the `output` or the
            `conversation` starts with it, and as `untrusted` as this one is.
        untrusted: whether the run has read anything from outside.
        trimmed: model calls that were not sent all of their conversation, since it did not fit.
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
    label: Label = dataclasses.field(default="normal", compare=False, repr=False)
    untrusted: bool = dataclasses.field(default=False, compare=False, repr=False)
    trimmed: int = 0

    def __post_init__(self) -> None:
        """Give answer, output and conversation the label of the run, where that says something."""
        label, untrusted = self.label, self.untrusted
        marked = self.conversation.with_provenance(label, untrusted=untrusted)
        object.__setattr__(self, "conversation", marked)
        for name in ("answer", "output"):
            text = mark_texts(getattr(self, name), label, untrusted=untrusted)
            object.__setattr__(self, name, text)

    def fact(self, name: str) -> Any:
        """Return the last fact of that name, as JSON, or `None`: `result.fact("Vote")["agreement"]`.

        Its texts are as sensitive and untrusted as the run was when it ended.
        """
        found = (fact.value for fact in reversed(self.facts) if fact.name == name)
        return mark_texts(next(found, None), self.label, untrusted=self.untrusted)

    def raise_for_status(self: "Result[T | None]") -> "Result[T]":
        """Return the result itself if the run is completed, so that it has its output; else raise its error."""
        if self.status == "completed":
            return cast("Result[T]", self)
        raise self.error or LoopwrightError(
            f"the run ended as {self.status}: {self.stop_reason}"
        )
