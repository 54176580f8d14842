"""Every error that Loopwright raises, as one tree; this module imports nothing of the package.

LoopwrightError
├── ConfigError            a bad option, tool, file or name; the message names the field and the cure
│   └── UnknownRun         the journal has no run of that id
├── PhaseError             the verbs of a run were called out of order
├── RunBusy                another live process or task owns the run
├── ThreadBusy             the last turn of a thread is at work, or waits for something else than a message
├── ReplayDivergence       the engine asks for something else than the journal recorded
├── JournalError           the journal failed to store or read an entry
│   ├── CodecError         what is stored cannot be encoded or decoded: a key is missing, or another one
│   └── Fenced             another worker took the run over
├── KnowledgeError         a store of knowledge failed to store, find or forget an item
├── SettingsError          a store of settings failed, or another writer was faster
├── RunSignal              the run must end or pause; sticky: the engine's next verb raises it again
│   ├── LimitReached       a limit of the run is used up
│   ├── Stuck              no progress: repeated calls or repeated denials
│   ├── Suspended          the run waits for a decision from outside
│   ├── AgentReplaced      the agent handed the run off to another one
│   └── Aborted            the caller aborted the run
├── ProviderError          a model call failed; `retryable` says whether a retry can help
│   ├── ProviderTimeout    no reply in time (also a TimeoutError)
│   ├── ContextTooLong     the conversation exceeds the model's context
│   └── CircuitOpen        the circuit breaker of a provider or tool rejects calls
├── Denied                 policy denied an engine's own effect or a delegation
├── CapabilityError        a signed capability does not allow the call; `check` names the failed check
├── QuestionExpired        a question to the user had no answer in time
├── AskFailed              no usable reply, or no valid value after the repair rounds
├── Unreadable             four consecutive replies of the model were unreadable
├── InvalidOutput          the answer does not fit the requested output model
├── UnknownOutcome         a side effect may have happened, and the run was told to stop in that case
├── HookFailed             a hook failed that the run requires
├── UndoFailed             a saga failed, and some of its calls could not be undone
├── EngineError            an engine raised a third-party exception; it is the `__cause__`
└── ToolError              raised by a tool; the model reads its text unchanged
"""

from collections.abc import Mapping
from typing import Any


class LoopwrightError(Exception):
    """Base class of every error in this library; catch it to catch them all."""

    def __reduce__(self) -> tuple[object, ...]:
        """Keep text and attributes in copies and pickles, whatever the constructor's arguments."""
        return _unpickle, (type(self), self.args, {**vars(self)})


def _unpickle(
    kind: type[LoopwrightError], args: tuple[object, ...], own: dict[str, object]
) -> LoopwrightError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(own)
    return error


class ConfigError(LoopwrightError):
    """Raised for a bad option, tool, file or name, before anything runs.

    The message reads `field: what is wrong, got value; what to do`. Change the field and try again.
    """


class UnknownRun(ConfigError):
    """Raised by reading, resuming or commanding a run that the journal does not have.

    Check the run id, and that the journal is the one that the run was started with.
    """


class PhaseError(LoopwrightError):
    """Raised when an engine calls the verbs of a run out of order; the message names the cure.

    It is a bug of the engine: correct the order of its calls.
    """


class RunBusy(LoopwrightError):
    """Raised by claiming or resuming a run that another live process or task owns.

    Wait for that owner, or pass `take_over=True` to fence it off.
    """


class ThreadBusy(LoopwrightError):
    """Raised when a thread takes no message now, since its last turn has not ended.

    Send the message again once it has. A turn that waits is continued by `Thread.resume`, once its questions are
    decided: `runtime.control(error.run_id)`.

    Args:
        run_id: the turn, as a run.
        status: that of the run: running, waiting, suspended or parked.
        questions: what it wants decided, as in `Result.pending`.
        command: the number of the command as which the turn has the message, if it was sent to it as guidance: then do
            not send it again. 0 if nothing of it was stored.
    """

    run_id, status, command = "", "", 0
    questions: tuple[Any, ...] = ()

    def __init__(
        self,
        message: str,
        *,
        run_id: str = "",
        status: str = "",
        questions: tuple[Any, ...] = (),
        command: int = 0,
    ) -> None:
        super().__init__(message)
        self.run_id, self.status = run_id, status
        self.questions, self.command = questions, command


class ReplayDivergence(LoopwrightError):
    """Raised on resume when the engine asks for something else than the journal recorded.

    The code or its options have changed. Restore them, or fork the run at `seq` and resume the fork.

    Args:
        key: the effect: scope path and number.
        expected: what the journal holds, in words.
        found: what the code asks for now, in words.
        seq: the last entry on which both agree.
    """

    def __init__(
        self,
        message: str,
        *,
        key: str = "",
        expected: str = "",
        found: str = "",
        seq: int = 0,
    ) -> None:
        super().__init__(message)
        self.key, self.expected, self.found, self.seq = key, expected, found, seq


class JournalError(LoopwrightError):
    """Raised when the journal cannot store or read entries; no tool starts after it.

    The message names the file, the problem and the cure. Repair the cause, then resume the run.
    """


class CodecError(JournalError):
    """Raised when what a journal stores cannot be encoded or decoded.

    The message names the place and the cure: a key is missing or is another one, or what is stored was changed.
    """


class KnowledgeError(LoopwrightError):
    """Raised when a store of knowledge does not work; the message names the store, the problem and the cure."""


class SettingsError(LoopwrightError):
    """Raised when a store of settings does not work, or its version is another one than a writer expects."""


class Fenced(JournalError):
    """Raised in a worker whose run another worker took over.

    Stop working on the run: what this worker writes is refused.
    """


class RunSignal(LoopwrightError):
    """Base class of the signals by which a run ends or pauses.

    An engine may catch one to clean up; its next verb raises the signal again.
    """


class LimitReached(RunSignal):
    """Raised when a limit of the run is used up; `limit` is its field in `Limits`.

    Raise that limit, or use the best answer so far, which the result has.
    """

    limit = ""

    def __init__(self, limit: str, detail: str = "") -> None:
        super().__init__(detail or f"the run reached its limit {limit}")
        self.limit = limit


class Stuck(RunSignal):
    """Raised when the run repeats itself without progress; `reason` is the stop reason.

    Look at the repeated calls in the journal, and change the tools, the task or the engine.
    """

    reason = ""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Suspended(RunSignal):
    """Raised when the run has to wait: for a decision from outside, or for a time.

    Answer the questions of `result.pending`, then resume the run. A run without questions
    continues by itself in a worker at `wake_at`, or when it is resumed.

    Args:
        reason: the stop reason.
        wake_at: when a worker resumes the run (wall clock, seconds); 0 is never.
    """

    reason = "approval"
    wake_at = 0.0

    def __init__(
        self, message: str, *, reason: str = "approval", wake_at: float = 0.0
    ) -> None:
        super().__init__(message)
        self.reason, self.wake_at = reason, wake_at


class AgentReplaced(RunSignal):
    """Raised in an engine whose agent handed the run off; the run continues with the other agent.

    There is nothing to do: let it end the engine.
    """


class Aborted(RunSignal):
    """Raised in a run that its caller aborted."""


TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
"""The HTTP statuses below 500 after which the same request may succeed later."""


def is_transient(status: int | None) -> bool:
    """Whether the same request may succeed after a response with this HTTP status."""
    return status is not None and (status in TRANSIENT_STATUSES or status >= 500)


class TimedOut(LoopwrightError, TimeoutError):
    """Raised by `Run.timeout` when its work took too long; nothing of that work is under way any more.

    Catch it to go another way, or give the work more time.
    """


class ProviderError(LoopwrightError):
    """Raised when a model call fails; a retryable failure was already retried.

    Args:
        status: HTTP status, if there was a response.
        retryable: whether the same request may succeed later; if it is not said, the status decides.
        retry_after: seconds that the server asked to wait.
    """

    status: int | None = None
    retryable: bool = False
    retry_after: float | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.retryable = is_transient(status) if retryable is None else retryable


class ProviderTimeout(ProviderError, TimeoutError):
    """Raised when the provider sends no reply in time; a longer time-out may help."""


class ContextTooLong(ProviderError):
    """Raised when the conversation exceeds the model's context.

    Lower `Limits(context_tokens=...)`, or use a model with a larger context.
    """


class ClearanceRefused(ProviderError):
    """Raised when a provider may not see a request, since the run has read something above its clearance.

    Nothing was sent. Let another provider see it, in a `FallbackProvider`, or lower the run with `declassify`.
    """


class CircuitOpen(ProviderError):
    """Raised when a circuit breaker rejects a call, which was therefore not made.

    `retry_after` is the number of seconds until the breaker allows a call, `None` if a person forced it open. It is
    `retryable` if nothing failed: the server asked for a pause of that length, and is worth waiting for.
    """


class Denied(LoopwrightError):
    """Raised when policy denies an engine's own effect or a delegation.

    An engine may catch it and continue in another way.
    """


class CapabilityError(LoopwrightError):
    """Raised when a signed capability does not allow a call; `check` names the check that failed.

    See `CapabilityVerifier` for the checks.
    """

    check = ""

    def __init__(self, check: str, detail: str = "") -> None:
        super().__init__(detail or f"the capability failed the check of its {check}")
        self.check = check


class QuestionExpired(LoopwrightError):
    """Raised by `Run.ask_user` when there was no answer before the question expired.

    Catch it to continue without an answer.
    """


class AskFailed(LoopwrightError):
    """Raised by `Run.ask` without a usable reply, or without a valid value after its repair rounds.

    Args:
        text: the last reply, possibly incomplete.
        cut: whether the limit of output tokens truncated it.
    """

    text: str = ""
    cut: bool = False

    def __init__(self, message: str, *, text: str = "", cut: bool = False) -> None:
        super().__init__(message)
        self.text, self.cut = text, cut


class Unreadable(LoopwrightError):
    """Raised after four consecutive replies of the model that cannot be read.

    Try another dialect of `TextTools`, or another model.
    """


class InvalidOutput(LoopwrightError):
    """Raised when the final answer does not fit the requested output model.

    Simplify the output model, or describe its fields.
    """


class UnknownOutcome(LoopwrightError):
    """Raised on resume when the outcome of a side effect is unknown and `on_unknown="stop"`.

    Find out whether it happened, or resume with another `on_unknown`.
    """


class UndoFailed(LoopwrightError):
    """Raised when a saga fails and some of its calls could not be undone.

    `__cause__` is the failure of the saga. The journal names the calls to undo by hand.
    """


class HookFailed(LoopwrightError):
    """Raised when a hook fails that is `required`, which ends the run.

    Correct the hook, or let it be skipped where it fails.
    """


class EngineError(LoopwrightError):
    """Raised when an engine raises an exception that is not a `LoopwrightError`.

    `__cause__` is the original exception.
    """


class ToolError(LoopwrightError):
    """Raise it in a tool to tell the model what went wrong; it reads the text unchanged."""


# The attributes that the journal stores with an error.
DETAILS = ("status", "retryable", "retry_after", "limit", "reason", "text", "cut")


def format_error(error: BaseException) -> str:
    """Return an error's text as valid Unicode, even if the error cannot be printed."""
    try:
        return str(error).encode("utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - __str__ of a third-party error may raise anything
        return f"an error of type {type(error).__name__} that cannot be printed"


def get_error_name(error: BaseException) -> str:
    """Return the class name to record an error under.

    That is the nearest class of this module, so that the same handlers catch it after a resume.
    """
    for kind in type(error).__mro__:
        is_ours = globals().get(kind.__name__) is kind
        if is_ours and kind is not LoopwrightError:
            return kind.__name__
    return type(error).__name__


def rebuild_error(
    name: str, message: str, details: Mapping[str, object] | None = None
) -> LoopwrightError:
    """Rebuild a recorded error from its class name; an unknown name becomes `EngineError`."""
    found = globals().get(name)
    if not (isinstance(found, type) and issubclass(found, LoopwrightError)):
        return EngineError(f"{name}: {message}")
    error = found.__new__(found, message)
    LoopwrightError.__init__(error, message)
    for attribute in DETAILS:
        if details and attribute in details:
            setattr(error, attribute, details[attribute])
    return error
