"""Events of calls that failed or whose outcome is unknown, and of the undo of a saga."""

from typing import Annotated, Literal, TypeAlias

from .._internal import dataclasses
from ..labels import Label
from ..messages import JsonObject, ObservationStatus, ToolCall
from .describe import (
    CALL_ID,
    CONTENT,
    PUBLIC,
    RESULT_TEXT,
    STATUS,
    STOP_REASON,
    TOOL,
    TOOL_STATUS,
    Counter,
    DescribedEvent,
    Exposure,
    Level,
    format_call,
    format_count,
    public,
)
from .effects import Failure, ToolStarted
from .run import ErrorRecord, Status, StopReason

ERROR_TEXT = Exposure("content", "exception.message")


@dataclasses.dataclass(frozen=True)
class RecoveryTriggered(
    DescribedEvent,
    heading="recovery",
    level="warning",
    counter=Counter(
        "loopwright.tool.recoveries",
        "{recovery}",
        "Recoveries of failed tool calls, by strategy.",
    ),
):
    """A call failed, and a strategy of its tool is about to be applied; the effect of the call continues.

    `status`, `error` and `failure` (the kind of failure) are the outcome so far. `attempt` counts the recoveries of the
    call from 1; `delay` is the pause before a retry, in seconds. `marked` says that text from outside in the error is
    delimited already; `untrusted` that it holds some, `label` how sensitive it is.
    """

    tool: Annotated[str, TOOL]
    call_id: Annotated[str, CALL_ID]
    strategy: Annotated[str, public("loopwright.recovery.strategy", metric=True)]
    attempt: Annotated[int, public("loopwright.recovery.attempt")]
    status: Annotated[ObservationStatus, TOOL_STATUS]
    error: Annotated[str, ERROR_TEXT]
    delay: Annotated[float, public("loopwright.delay")] = 0.0
    failure: Failure = ""
    marked: bool = False
    label: Label = "public"
    untrusted: bool = False

    def summary(self) -> str:
        pause = f" in {self.delay:.1f} s" if self.delay else ""
        next_step = f"{self.strategy.replace('_', ' ')}{pause}"
        return f"{self.tool}: {self.status}: {self.error}; {next_step}"


@dataclasses.dataclass(frozen=True)
class UnknownOutcomeResolved(
    DescribedEvent,
    kind="doubt_resolved",
    heading="outcome",
    level="warning",
    counter=Counter(
        "loopwright.tool.doubts",
        "{call}",
        "Calls that failed or had an unknown outcome, and were resolved by a look-up or a person.",
    ),
):
    """The outcome of a call that was unknown, or had failed, was established by the tool's look-up or by a person.

    With "not_done" the call may be made (again), with "unknown" the model reads that the outcome is not known.
    `command` is the number of the person's command, which counts once. `label` is how sensitive the result is.
    """

    tool: Annotated[str, TOOL]
    call_id: Annotated[str, CALL_ID]
    by: Annotated[
        Literal["lookup", "person"], public("loopwright.doubt.by", metric=True)
    ]
    verdict: Annotated[
        Literal["done", "not_done", "unknown"],
        public("loopwright.doubt.verdict", metric=True),
    ]
    result: Annotated[str, RESULT_TEXT] = ""
    command: Annotated[int, PUBLIC] = 0
    label: Label = "public"

    def summary(self) -> str:
        source = "a look-up" if self.by == "lookup" else "a person"
        words = {"done": "completed", "not_done": "not executed", "unknown": "unknown"}
        result = f": {self.result}" if self.result else ""
        return f"{self.tool}: {words[self.verdict]}, according to {source}{result}"


@dataclasses.dataclass(frozen=True)
class CallDeadLettered(
    DescribedEvent,
    heading="dead letter",
    level="warning",
    counter=Counter(
        "loopwright.tool.dead_letters",
        "{call}",
        "Failed calls that were dead-lettered.",
    ),
):
    """A failed call was recorded whole for a person to handle later; the run continues without it.

    `resolvable` says that a resumed run can find out whether the call took effect: by the tool's look-up, or from a
    person (`Runtime(on_unknown="ask")`).
    """

    tool: Annotated[str, TOOL]
    call_id: Annotated[str, CALL_ID]
    arguments: Annotated[JsonObject, Exposure("content", "gen_ai.tool.call.arguments")]
    status: Annotated[ObservationStatus, TOOL_STATUS]
    error: Annotated[str, ERROR_TEXT]
    queue: Annotated[str, public("loopwright.recovery.queue", metric=True)]
    resolvable: Annotated[bool, PUBLIC] = False

    def is_repeatable(self, started: object) -> bool:
        """Whether a retry makes the call again, or finds out whether it took effect; `started` is its intent, if any."""
        if not isinstance(started, ToolStarted):
            return True
        is_harmless = started.effect in ("read", "idempotent")
        return not started.sealed and (is_harmless or self.resolvable)

    def summary(self) -> str:
        call = format_call(self.tool, self.arguments)
        return f"{call}  [{self.queue}]: {self.error}"


# --- sagas ---


@dataclasses.dataclass(frozen=True)
class UndoCall:
    """A call of a saga that is to be undone: its key, the call, its outcome.

    With another `status` than "ok" it is not known whether it took effect.
    """

    key: str
    call: ToolCall
    content: str
    idempotency_key: str
    status: ObservationStatus = "ok"


@dataclasses.dataclass(frozen=True)
class UndoBegun(
    DescribedEvent,
    heading="undo",
    level="warning",
    derived={"call_count": public("loopwright.undo.calls", log="")},
):
    """A saga did not complete: these calls are undone, in this order, before the run ends as it says here."""

    status: Annotated[Status, STATUS]
    stop_reason: Annotated[StopReason, STOP_REASON]
    answer: Annotated[str | None, CONTENT]
    error: Annotated[ErrorRecord | None, PUBLIC]
    calls: Annotated[tuple[UndoCall, ...], CONTENT]

    @property
    def call_count(self) -> int:
        """Return the number of calls to undo."""
        return len(self.calls)

    def summary(self) -> str:
        calls = format_count(self.call_count, "call")
        return f"{self.status}: {self.stop_reason}; {calls} to undo"


@dataclasses.dataclass(frozen=True)
class UndoStarted(DescribedEvent, heading=""):
    """A call is about to be undone (the intent)."""

    tool: Annotated[str, PUBLIC]
    call_id: Annotated[str, PUBLIC]
    idempotency_key: Annotated[str, PUBLIC]


@dataclasses.dataclass(frozen=True)
class UndoFinished(
    DescribedEvent,
    heading="undo",
    counter=Counter(
        "loopwright.tool.undos",
        "{call}",
        "Calls of sagas that were to be undone, by the outcome of the undo.",
    ),
):
    """The outcome of undoing a call."""

    tool: Annotated[str, TOOL]
    call_id: Annotated[str, CALL_ID]
    status: Annotated[ObservationStatus, public("loopwright.tool.status", metric=True)]
    content: Annotated[str, RESULT_TEXT]
    seconds: Annotated[float, PUBLIC]

    @property
    def level(self) -> Level:
        return "info" if self.status == "ok" else "warning"

    def summary(self) -> str:
        return f"{self.tool}: {self.status}: {self.content}"

    def lines(self) -> list[tuple[str, str]]:
        heading = "undone" if self.status == "ok" else self.heading
        return [(heading, self.summary())]


RecoveryEvent: TypeAlias = (
    RecoveryTriggered | UnknownOutcomeResolved | CallDeadLettered | UndoBegun | UndoStarted | UndoFinished
)  # fmt: skip
