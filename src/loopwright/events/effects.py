"""Events of the effects of a run: model calls, gate decisions, tools, recoveries, undos and child runs."""

import dataclasses
from typing import Literal, TypeAlias

from ..labels import Label
from ..messages import (
    Completion,
    Effect,
    Json,
    JsonObject,
    Message,
    ObservationStatus,
    ToolCall,
)
from .run import ErrorRecord, Status, StopReason

Failure: TypeAlias = Literal["", "told", "raised", "timed_out", "open", "elsewhere"]
GateVerdict: TypeAlias = Literal[
    "allow", "modify", "deny", "ask", "invalid", "blocked", "stuck"
]


@dataclasses.dataclass(frozen=True)
class ModelRequested:
    """A model call is about to be made (its intent).

    `fingerprint` is what replay compares. `setup` is what may change between deployments without breaking a run: model,
    sampling, tools, limits. `delivered` are the messages that the runtime adds to the conversation with this call,
    `commands` the numbers of those that people sent. `purpose` is what an engine asks it for, in a word: "plan",
    "judge". `label` is how sensitive the words of people are that it delivers.
    """

    verb: str
    fingerprint: str
    setup: str
    iteration: int
    delivered: tuple[Message, ...] = ()
    provider: str = ""
    model: str = ""
    sampling: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    purpose: str = ""
    commands: tuple[int, ...] = ()
    label: Label = "public"


@dataclasses.dataclass(frozen=True)
class ModelReplied:
    """A model call's outcome: the reply; `seconds` is how long it took.

    `sealed` numbers the calls whose arguments held a secret: here they stand without it.
    """

    completion: Completion
    seconds: float
    sealed: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ModelFailed:
    """A model call's outcome: it failed for good."""

    error: ErrorRecord
    seconds: float


@dataclasses.dataclass(frozen=True)
class AttemptFailed:
    """One attempt of a model call failed and another follows after `delay` seconds; the effect goes on."""

    attempt: int
    error: ErrorRecord
    delay: float


@dataclasses.dataclass(frozen=True)
class LimitHit:
    """A verb was refused because the run is at a limit (or out of time): this is its outcome."""

    limit: str
    detail: str
    verb: str = ""


@dataclasses.dataclass(frozen=True)
class CallsProposed:
    """The engine itself wrote these calls; `fingerprint` is what replay compares; `sealed` as in `ModelReplied`.

    `command` is the number of the command if a person wrote them.
    """

    calls: tuple[ToolCall, ...]
    fingerprint: str
    sealed: tuple[int, ...] = ()
    command: int = 0


@dataclasses.dataclass(frozen=True)
class GateDecided:
    """What was decided about one call before anything ran.

    `arguments` are the arguments as decided upon, in full only where the gate changed them. `waited` are the seconds
    for which the run stood still meanwhile because a person was asked. `stop` is why the run ends, where the verdict is
    "stuck". `sealed` says that the call has a secret in its arguments, which stands in no entry. `command` is the
    number of the command by which a person decided; `until` (wall clock, seconds) is how long the decision holds, or
    the question stands, 0 for ever. `effect` is what the call does to the world, as the gate was told.
    """

    tool: str
    call_id: str
    verdict: GateVerdict
    reason: str
    policy_version: str
    arguments_hash: str
    arguments: JsonObject | None = None
    waited: float = 0.0
    stop: StopReason | Literal[""] = ""
    sealed: bool = False
    command: int = 0
    until: float = 0.0
    effect: Effect | Literal[""] = ""


@dataclasses.dataclass(frozen=True)
class ToolStarted:
    """A tool is about to run (its intent): durable before it starts.

    `sealed` says that it gets arguments with a secret that is not kept: such a call cannot be made again.
    """

    tool: str
    call_id: str
    arguments_hash: str
    idempotency_key: str
    effect: Effect
    sealed: bool = False


@dataclasses.dataclass(frozen=True)
class ToolFinished:
    """A call's outcome, whether a tool ran or not: what the model is told.

    `content` stands here as it came, but for secrets and what is hidden; a model reads it marked as from outside if it
    is `untrusted`, with a note if it was `cut` from so many characters, unless it is `marked` already. `label` says how
    sensitive it is. `waited` are the seconds for which the run stood still meanwhile because its user was asked.
    `failure` says what kind of failure it is, if it is one.
    """

    tool: str
    call_id: str
    status: ObservationStatus
    content: str
    seconds: float
    label: Label = "public"
    untrusted: bool = False
    cut: int = 0
    marked: bool = False
    waited: float = 0.0
    failure: Failure = ""


@dataclasses.dataclass(frozen=True)
class RecoveryTriggered:
    """A call failed, and what its tool says about that is done next; the call's effect goes on.

    `status`, `error` and `failure` (what kind of failure it is) are what came of it so far. `attempt` counts the
    recoveries of the call from 1; `delay` is the pause before a retry, in seconds. `marked` says that what is from
    outside in the error stands there as a model reads it; `untrusted` that some of it is, `label` how sensitive it is.
    """

    tool: str
    call_id: str
    strategy: str
    attempt: int
    status: ObservationStatus
    error: str
    delay: float = 0.0
    failure: Failure = ""
    marked: bool = False
    label: Label = "public"
    untrusted: bool = False


@dataclasses.dataclass(frozen=True)
class UnknownOutcomeResolved:
    """It became known what came of a call that was in doubt or had failed: its tool looked it up, or a person said.

    "not_done" lets it be made (again), with "unknown" the model is told that nobody knows. `command` is the number of
    the person's command, which counts once. `label` is how sensitive the result is.
    """

    tool: str
    call_id: str
    by: Literal["lookup", "person"]
    verdict: Literal["done", "not_done", "unknown"]
    result: str = ""
    command: int = 0
    label: Label = "public"


@dataclasses.dataclass(frozen=True)
class CallDeadLettered:
    """A failed call was set aside, whole, for somebody to see to later; the run goes on without it."""

    tool: str
    call_id: str
    arguments: JsonObject
    status: ObservationStatus
    error: str
    queue: str


@dataclasses.dataclass(frozen=True)
class UndoCall:
    """A call of a saga that is to be undone: its place, what it was, what came of it.

    With another `status` than "ok" it is not known whether it took effect.
    """

    key: str
    call: ToolCall
    content: str
    idempotency_key: str
    status: ObservationStatus = "ok"


@dataclasses.dataclass(frozen=True)
class UndoBegun:
    """A saga did not complete: these calls are undone, in this order, before the run ends as it says here."""

    status: Status
    stop_reason: StopReason
    answer: str | None
    error: ErrorRecord | None
    calls: tuple[UndoCall, ...]


@dataclasses.dataclass(frozen=True)
class UndoStarted:
    """A call is about to be undone (the intent)."""

    tool: str
    call_id: str
    idempotency_key: str


@dataclasses.dataclass(frozen=True)
class UndoFinished:
    """What came of undoing a call."""

    tool: str
    call_id: str
    status: ObservationStatus
    content: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class EffectStarted:
    """An effect of the engine's own is about to happen (its intent)."""

    name: str


@dataclasses.dataclass(frozen=True)
class EffectFinished:
    """An engine's own effect: its value, as JSON, or the error it raised.

    `waited` are the seconds for which the run stood still meanwhile because its user was asked. `label` is how
    sensitive the value or the error is.
    """

    name: str
    value: Json = None
    error: ErrorRecord | None = None
    waited: float = 0.0
    label: Label = "public"


@dataclasses.dataclass(frozen=True)
class ChildStarted:
    """Another engine runs as a child; its entries have keys below this one."""

    engine: str
    options: JsonObject
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class ChildFinished:
    """A child engine ended; its own calls are in the entries below its key."""

    engine: str
    status: Status
    stop_reason: StopReason
    answer: str | None
    error: ErrorRecord | None
    iterations: int


@dataclasses.dataclass(frozen=True)
class FactNoted:
    """A fact of the strategy: a plan, a score, a vote, a reflection."""

    name: str
    value: Json


@dataclasses.dataclass(frozen=True)
class ClockRead:
    """The engine read the wall clock: seconds since the Unix epoch."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class BreakerChanged:
    """A circuit breaker changed its state; `reason` is given where a person changed it."""

    name: str
    before: str
    after: str
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class DriftNoticed:
    """On replay something differs that does not break the run: model, sampling, tools, limits, or a note."""

    what: str
    before: str
    after: str


EffectEvent: TypeAlias = (
    ModelRequested | ModelReplied | ModelFailed | AttemptFailed | LimitHit | CallsProposed | GateDecided | ToolStarted |
    ToolFinished | RecoveryTriggered | UnknownOutcomeResolved | CallDeadLettered | UndoBegun | UndoStarted |
    UndoFinished | EffectStarted | EffectFinished | ChildStarted | ChildFinished | FactNoted | ClockRead |
    BreakerChanged | DriftNoticed
)  # fmt: skip
