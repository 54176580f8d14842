"""Every error Loopwright raises, as one tree that imports nothing.

LoopwrightError
├── ConfigError            a bad option, tool, file or name; says which field and what to do
│   └── UnknownRun         no such run in this journal
├── PhaseError             the verbs of a run used out of order; names the cure
├── RunBusy                another live process (or task) owns the run
├── ReplayDivergence       the code no longer asks for what the journal recorded
├── JournalError           the journal could not keep an entry
│   └── Fenced             another worker took the run over
├── RunSignal              a run must end or pause; sticky: meets the engine again at its next verb
│   ├── LimitReached       one of the run's limits
│   ├── Stuck              no progress: repeated calls, repeated denials
│   ├── Suspended          waits for a decision from outside
│   └── Aborted            the caller said stop
├── ProviderError          a model call failed; `retryable` says whether trying again can help
│   ├── ProviderTimeout    no answer in time (also a TimeoutError)
│   ├── ContextTooLong     the conversation does not fit the model
│   └── CircuitOpen        the breaker of this provider or tool rejects calls for `retry_after` seconds
├── Denied                 policy refused an engine's own effect or a delegation
├── CapabilityError        a signed capability does not allow this call; `check` says why not
├── AskFailed              no usable reply, or no valid structured one after the repair rounds
├── Unreadable             the model's replies could not be read, four times running
├── InvalidOutput          the answer does not fit the output model asked for
├── UnknownOutcome         a side effect may or may not have happened, and the run was told to stop then
├── UndoFailed             a saga did not complete, and not all that it did could be undone
├── EngineError            an engine raised something that is not ours; `__cause__` has it
└── ToolError              raised by a tool: its text goes to the model as it is
"""

from collections.abc import Mapping


class LoopwrightError(Exception):
    """Base of every error in this library."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles keep text and attributes, whatever arguments a class is made with."""
        return _rebuilt, (type(self), self.args, {**vars(self)})


def _rebuilt(
    kind: type[LoopwrightError], args: tuple[object, ...], own: dict[str, object]
) -> LoopwrightError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(own)
    return error


class ConfigError(LoopwrightError):
    """A bad option, tool, file or name; the text names the field and the cure."""


class UnknownRun(ConfigError):
    """No such run in this journal."""


class PhaseError(LoopwrightError):
    """The verbs of a run were used out of order; the text names the cure."""


class RunBusy(LoopwrightError):
    """Another live process or task owns the run."""


class ReplayDivergence(LoopwrightError):
    """The engine asked for something else than the journal recorded.

    Args:
        key: where: scope path and number of the effect.
        expected: fingerprint (or description) in the journal.
        found: fingerprint (or description) of what the code asks for now.
        seq: the last entry on which both agree, the place to fork from.
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
    """The journal could not keep an entry; no tool starts after this."""


class Fenced(JournalError):
    """Another worker took the run over; this one must stop at once."""


class RunSignal(LoopwrightError):
    """A run must end or pause; an engine that swallows it meets it at its next verb."""


class LimitReached(RunSignal):
    """One of the run's limits; `limit` is its field name in `Limits`."""

    limit = ""

    def __init__(self, limit: str, detail: str = "") -> None:
        super().__init__(detail or f"the run reached its limit {limit}")
        self.limit = limit


class Stuck(RunSignal):
    """The run makes no progress; `reason` is the stop reason."""

    reason = ""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Suspended(RunSignal):
    """The run waits for a decision from outside; `reason` is the stop reason."""

    reason = "approval"

    def __init__(self, message: str, *, reason: str = "approval") -> None:
        super().__init__(message)
        self.reason = reason


class Aborted(RunSignal):
    """The caller asked the run to stop."""


class ProviderError(LoopwrightError):
    """A model call failed.

    Args:
        status: HTTP status, if there was an answer.
        retryable: whether the same request may succeed later.
        retry_after: seconds the server asked to wait.
    """

    status: int | None = None
    retryable: bool = False
    retry_after: float | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retryable, self.retry_after = status, retryable, retry_after


class ProviderTimeout(ProviderError, TimeoutError):
    """The provider gave no answer in time."""


class ContextTooLong(ProviderError):
    """The provider says that the conversation does not fit its context."""


class CircuitOpen(ProviderError):
    """The circuit breaker rejects calls, so that none was made.

    `retry_after` seconds until it lets one through; `None` if a person forced it open. `retryable` if nothing failed:
    what is called asked to be left alone that long, and is well worth waiting for.
    """


class Denied(LoopwrightError):
    """Policy refused an engine's own effect or a delegation; an engine may catch it."""


class CapabilityError(LoopwrightError):
    """A signed capability does not allow this call; `check` names the check that failed (see `CapabilityVerifier`)."""

    check = ""

    def __init__(self, check: str, detail: str = "") -> None:
        super().__init__(detail or f"the capability failed the check of its {check}")
        self.check = check


class AskFailed(LoopwrightError):
    """`Run.ask` got no usable reply, or no valid value after its repair rounds.

    Args:
        text: the last reply as far as it came.
        cut: whether it reached the limit of output tokens, so that more would have come.
    """

    text: str = ""
    cut: bool = False

    def __init__(self, message: str, *, text: str = "", cut: bool = False) -> None:
        super().__init__(message)
        self.text, self.cut = text, cut


class Unreadable(LoopwrightError):
    """The model's replies could not be read, four times running."""


class InvalidOutput(LoopwrightError):
    """The final answer does not fit the output model that was asked for."""


class UnknownOutcome(LoopwrightError):
    """A side effect may or may not have happened, and the run was told to stop in that case."""


class UndoFailed(LoopwrightError):
    """A saga did not complete, and not all of its calls could be undone; `__cause__` is why it did not complete."""


class EngineError(LoopwrightError):
    """An engine raised something that is not ours; `__cause__` has the original."""


class ToolError(LoopwrightError):
    """Raise this in a tool to tell the model what went wrong, in your own words."""


# The attributes that are recorded with an error.
DETAILS = ("status", "retryable", "retry_after", "limit", "reason", "text", "cut")


def text_of(error: BaseException) -> str:
    """An error's text, also of one that cannot be printed or is no valid Unicode."""
    try:
        return str(error).encode("utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - foreign errors may do anything when they are asked for their text
        return f"an error of type {type(error).__name__} that cannot be printed"


def name_of(error: BaseException) -> str:
    """The class to record an error under: the nearest of ours, so that what catches it still does after a resume."""
    ours = (
        kind.__name__
        for kind in type(error).__mro__
        if globals().get(kind.__name__) is kind
    )
    return next(
        (name for name in ours if name != LoopwrightError.__name__),
        type(error).__name__,
    )


def error_named(
    name: str, message: str, details: Mapping[str, object] | None = None
) -> LoopwrightError:
    """Rebuild a recorded error from its class name; unknown names become `EngineError`."""
    found = globals().get(name)
    if not (isinstance(found, type) and issubclass(found, LoopwrightError)):
        return EngineError(f"{name}: {message}")
    error = found.__new__(found, message)
    LoopwrightError.__init__(error, message)
    for attribute in DETAILS:
        if details and attribute in details:
            setattr(error, attribute, details[attribute])
    return error
