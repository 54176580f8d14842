"""Events of the effects of a run: model calls, gate decisions, tools, own effects and child runs."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from .._internal import dataclasses
from ..attachments import Attachment
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
from .describe import (
    CALL_ID,
    CONTENT,
    PROPOSED_TOOL,
    PUBLIC,
    STATUS,
    STOP_REASON,
    TOOL,
    TOOL_STATUS,
    Counter,
    DescribedEvent,
    Exposure,
    Level,
    drop_defaults,
    format_call,
    format_usage,
    format_value,
    public,
)
from .request_records import Excerpt, RequestRecord, shorten_reply
from .run import ErrorRecord, Status, StopReason, level_of_status

Failure: TypeAlias = Literal["", "told", "raised", "timed_out", "open", "elsewhere"]
GateVerdict: TypeAlias = Literal[
    "allow", "modify", "deny", "ask", "invalid", "blocked", "stuck"
]


# --- model calls ---


@dataclasses.dataclass(frozen=True)
class ModelRequested(DescribedEvent):
    """A model call is about to be made (its intent).

    `fingerprint` is what replay compares. `setup` is what may change between deployments without breaking a run: model,
    sampling, tools, limits. `delivered` are the messages that the runtime adds to the conversation with this call,
    `commands` the numbers of the commands that sent some of them. `purpose` says in a word what an engine makes the
    call for: "plan", "judge". `label` is how sensitive the delivered texts of people are. `about` says in a line what was
    asked, for the error of a replay whose code asks for something else. `untrusted` says whether knowledge that is delivered
    came from outside. `request` is what was sent, `covers` the number of messages that a context policy asks about.
    """

    verb: Annotated[str, public("loopwright.verb")]
    fingerprint: str
    setup: str
    iteration: Annotated[int, public("loopwright.iteration")]
    delivered: tuple[Message, ...] = ()
    provider: Annotated[str, PUBLIC] = ""
    model: Annotated[str, PUBLIC] = ""
    sampling: JsonObject = dataclasses.field(default_factory=dict[str, Json])
    purpose: Annotated[str, public("loopwright.purpose")] = ""
    commands: tuple[int, ...] = ()
    label: Label = "public"
    about: Annotated[str, CONTENT] = ""
    untrusted: bool = False
    request: RequestRecord | None = None
    covers: int = 0

    def to_stored(self) -> Any:
        """Return the fields that say something."""
        return drop_defaults(self)

    def summary(self) -> str:
        names = [name for name in (self.provider, self.model) if name]
        model = "/".join(names) or "asked"
        trimmed = "" if self.request is None else self.request.describe_trimmed()
        return f"{model}, {self.purpose or f'turn {self.iteration}'}{trimmed}"

    def lines(self) -> list[tuple[str, str]]:
        # What is not trusted is the result of a tool, which has a line of its own.
        return [("message", one.content) for one in self.delivered if one.trusted]


@dataclasses.dataclass(frozen=True)
class ModelReplied(DescribedEvent, heading="model", level="info"):
    """The outcome of a model call: the reply; `seconds` is how long it took.

    `sealed` numbers the calls whose arguments held a secret, which is left out here. `waited` are the seconds before it
    in which the run only waited.
    """

    completion: Annotated[Completion, CONTENT]
    seconds: Annotated[float, PUBLIC]
    sealed: tuple[int, ...] = ()
    waited: float = 0.0
    repeats: tuple[str, ...] = ()

    def to_stored(self) -> Any:
        """Return what says something, with its text once: `repeats` names the other fields that have the same."""
        reply, repeats = shorten_reply(self.completion)
        named = {"repeats": repeats} if repeats else {}
        return {**drop_defaults(self), "completion": reply, **named}

    def restore(self) -> "ModelReplied":
        """Return it with its text in all its fields."""
        if not self.repeats:
            return self
        same: dict[str, Any] = dict.fromkeys(self.repeats, self.completion.text)
        whole = dataclasses.replace(self.completion, **same)
        return dataclasses.replace(self, completion=whole, repeats=())

    def summary(self) -> str:
        return ", ".join(
            [f"{self.seconds:.1f} s", *format_usage(self.completion.usage)]
        )

    def lines(self) -> list[tuple[str, str]]:
        reply = self.completion
        # The text of a reply with calls may be the protocol of the calls.
        spoken = reply.thought if reply.calls else reply.thought or reply.text
        text = spoken if reply.answer is None else reply.answer
        heading = "thought" if reply.calls or reply.problem else "reply"
        return [
            (self.heading, self.summary()),
            *(("thinking", thought.text) for thought in reply.reasoning),
            (heading, text),
            ("problem", reply.problem or ""),
        ]


@dataclasses.dataclass(frozen=True)
class ModelFailed(DescribedEvent, heading="model", level="warning"):
    """The outcome of a model call that failed, and is no use trying again."""

    error: Annotated[ErrorRecord, PUBLIC]
    seconds: Annotated[float, PUBLIC]
    waited: float = 0.0

    def summary(self) -> str:
        return f"failed after {self.seconds:.1f} s: {self.error.summary()}"


@dataclasses.dataclass(frozen=True)
class AttemptFailed(DescribedEvent, heading="retry", level="warning"):
    """One attempt of a model call failed; another one follows after `delay` seconds, in the same effect.

    `waited` are the seconds before that in which the run only waited.
    """

    attempt: Annotated[int, public("loopwright.attempt")]
    error: Annotated[ErrorRecord, public("error.type")]
    delay: Annotated[float, public("loopwright.delay")]
    waited: float = 0.0

    def summary(self) -> str:
        failed = f"attempt {self.attempt} failed, again in {self.delay:.1f} s"
        return f"{failed}: {self.error.summary()}"


@dataclasses.dataclass(frozen=True)
class ModelWaiting(
    DescribedEvent,
    heading="wait",
    level="warning",
    counter=Counter(
        "loopwright.model_waits",
        "{wait}",
        "Periods in which model calls waited for their provider.",
    ),
):
    """A model call waits for its provider at least until `until` (wall clock, seconds); it is not lost.

    The reason is the model's circuit breaker, which is open. `waited` are the seconds before that in which the run
    only waited.
    """

    reason: Annotated[str, public("loopwright.reason")]
    until: Annotated[float, public("loopwright.until")]
    waited: float = 0.0

    def summary(self) -> str:
        return "the model does not answer; its circuit breaker is open"


@dataclasses.dataclass(frozen=True)
class LimitHit(
    DescribedEvent,
    heading="limit",
    level="warning",
    counter=Counter(
        "loopwright.limits",
        "{refusal}",
        "Refusals at a limit of a run.",
        by_engine=True,
    ),
):
    """The outcome of a verb that was refused because the run is at a limit or out of time."""

    limit: Annotated[str, public("loopwright.limit", metric=True)]
    detail: str
    verb: Annotated[str, PUBLIC] = ""

    def summary(self) -> str:
        return f"{self.limit}: {self.detail}"


# --- decisions about calls ---


@dataclasses.dataclass(frozen=True)
class CallsProposed(DescribedEvent, heading=""):
    """The engine itself wrote these calls; `fingerprint` is what replay compares; `sealed` as in `ModelReplied`.

    `command` is the number of the command if a person wrote them.
    """

    calls: Annotated[tuple[ToolCall, ...], Exposure("content", count=True)]
    fingerprint: str
    sealed: tuple[int, ...] = ()
    command: int = 0

    def summary(self) -> str:
        return ", ".join(format_call(call.name, call.arguments) for call in self.calls)


@dataclasses.dataclass(frozen=True)
class GateDecided(
    DescribedEvent,
    heading="gate",
    counter=Counter(
        "loopwright.gate.decisions", "{decision}", "Decisions about calls, by verdict."
    ),
):
    """The decision about one call, before anything is executed.

    `arguments` are the decided arguments, in full only where the gate changed them. `waited` are the seconds in which a
    person was asked and nothing else was at work. `stop` is the stop reason of the run where the verdict is "stuck".
    `sealed` marks a call with a secret in its arguments, which no entry holds. `command` is the number of the command
    by which a person decided; `until` (wall clock, seconds) is the end of the decision or of the question, 0 for none.
    `effect` is what the call does to the world, as the gate was told.
    """

    tool: Annotated[str, PROPOSED_TOOL]
    call_id: Annotated[str, CALL_ID]
    verdict: Annotated[GateVerdict, public("loopwright.verdict", metric=True)]
    reason: Annotated[str, Exposure("content", "loopwright.reason")]
    policy_version: Annotated[str, public("loopwright.policy_version")]
    arguments_hash: str
    arguments: Annotated[JsonObject | None, CONTENT] = None
    waited: Annotated[float, PUBLIC] = 0.0
    stop: StopReason | Literal[""] = ""
    sealed: bool = False
    command: Annotated[int, PUBLIC] = 0
    until: float = 0.0
    effect: Effect | Literal[""] = ""

    @property
    def level(self) -> Level:
        levels: dict[GateVerdict, Level] = {
            "allow": "debug",
            "modify": "info",
            "ask": "info",
        }
        return levels.get(self.verdict, "warning")

    def summary(self) -> str:
        return f"{self.tool}  [{self.decision}]"

    @property
    def decision(self) -> str:
        """Return the verdict in words, with its reason."""
        words: dict[GateVerdict, str] = {
            "allow": "allowed",
            "modify": "changed",
            "deny": "denied",
            "ask": "asks",
        }
        verdict = words.get(self.verdict, self.verdict)
        return f"{verdict}: {self.reason}" if self.reason else verdict


# --- tools ---


@dataclasses.dataclass(frozen=True)
class ToolStarted(DescribedEvent, heading=""):
    """A tool is about to run (its intent): durable before it starts.

    `sealed` marks a call that gets arguments with a secret that is not kept: it cannot be made again.
    """

    tool: Annotated[str, TOOL]
    call_id: Annotated[str, CALL_ID]
    arguments_hash: str
    idempotency_key: Annotated[str, PUBLIC]
    effect: Annotated[Effect, public("loopwright.tool.effect")]
    sealed: bool = False


@dataclasses.dataclass(frozen=True)
class ToolFinished(DescribedEvent, heading="result"):
    """The outcome of a call, whether a tool ran or not: what the model reads.

    ``content`` is as it came, without secrets and hidden text; a model reads it delimited as text from outside if it is
    `untrusted`, with a note if it was `cut` from so many characters, unless it is `marked` already. `waited` are the
    seconds in which the user was asked and nothing else was at work. `attachments` are the images and documents that it
    returned; the content names each. Of a content that is made of earlier texts only the `recalled` parts are stored.
    """

    tool: Annotated[str, PROPOSED_TOOL]
    call_id: Annotated[str, CALL_ID]
    status: Annotated[ObservationStatus, TOOL_STATUS]
    content: Annotated[str, CONTENT]
    seconds: Annotated[float, PUBLIC]
    label: Annotated[Label, PUBLIC] = "public"
    untrusted: Annotated[bool, PUBLIC] = False
    cut: int = 0
    marked: bool = False
    waited: float = 0.0
    failure: Failure = ""
    attachments: tuple[Attachment, ...] = ()
    recalled: tuple[Excerpt, ...] = ()

    @property
    def level(self) -> Level:
        return "info" if self.status == "ok" else "warning"

    def summary(self) -> str:
        status = "" if self.status == "ok" else f"{self.status}: "
        text = self.content or ", ".join(map(str, self.recalled))
        return f"{status}{text}" or "(nothing)"


# --- effects, children and facts of an engine ---


@dataclasses.dataclass(frozen=True)
class EffectStarted(DescribedEvent, heading=""):
    """An effect of the engine's own is about to happen (its intent)."""

    name: Annotated[str, public("loopwright.effect.name", log="effect")]


@dataclasses.dataclass(frozen=True)
class EffectFinished(DescribedEvent, heading="effect"):
    """The outcome of an engine's own effect: its value, as JSON, or the error it raised.

    `waited` are the seconds in which the user was asked and nothing else was at work. `label` is how sensitive the
    value or the error is, and `untrusted` whether any of it came from outside.
    """

    name: Annotated[str, public(log="effect")]
    value: Annotated[Json, CONTENT] = None
    error: Annotated[ErrorRecord | None, PUBLIC] = None
    waited: float = 0.0
    label: Label = "public"
    untrusted: bool = False

    @property
    def level(self) -> Level:
        return "debug" if self.error is None else "warning"

    def summary(self) -> str:
        value = format_value(self.value) if self.error is None else self.error.summary()
        return f"{self.name}: {value}"


@dataclasses.dataclass(frozen=True)
class SleepSet(DescribedEvent, heading="sleep", level="info"):
    """The engine sleeps `until` a wall time (seconds since the Unix epoch); the intent of `Run.sleep`."""

    until: Annotated[float, public("loopwright.until")]

    def summary(self) -> str:
        when = datetime.fromtimestamp(self.until, UTC)
        return f"until {when.isoformat(timespec='seconds')}"


@dataclasses.dataclass(frozen=True)
class ChildStarted(DescribedEvent, heading="child", level="info"):
    """Another engine runs as a child; its entries have keys below this one.

    `about` is the beginning of its task. `agent` is the name of the agent that it works for, if it is one's.
    """

    engine: Annotated[str, public(log="")]
    options: JsonObject
    fingerprint: str
    about: Annotated[str, CONTENT] = ""
    agent: Annotated[str, public("gen_ai.agent.name", log="")] = ""

    def summary(self) -> str:
        return f"{self.agent or self.engine} starts"


@dataclasses.dataclass(frozen=True)
class ChildFinished(DescribedEvent, heading="child"):
    """A child engine ended; its own calls are in the entries below its key.

    `label` and `untrusted` are those of the run at that time.
    """

    engine: Annotated[str, public(log="")]
    status: Annotated[Status, STATUS]
    stop_reason: Annotated[StopReason, STOP_REASON]
    answer: Annotated[str | None, CONTENT]
    error: Annotated[ErrorRecord | None, PUBLIC]
    iterations: Annotated[int, public("loopwright.iterations")]
    label: Label = "normal"
    untrusted: bool = False

    @property
    def level(self) -> Level:
        return level_of_status(self.status)

    def summary(self) -> str:
        error = "" if self.error is None else self.error.summary()
        result = error if self.answer is None else self.answer
        return f"{self.engine} ended, {self.status}: {self.stop_reason}: {result}"


@dataclasses.dataclass(frozen=True)
class FactNoted(DescribedEvent, heading="fact"):
    """A fact of the strategy: a plan, a score, a vote, a reflection."""

    name: Annotated[str, public(log="fact")]
    value: Annotated[Json, CONTENT]

    def summary(self) -> str:
        return f"{self.name} {format_value(self.value)}"


@dataclasses.dataclass(frozen=True)
class ClockRead(DescribedEvent, heading=""):
    """The engine read the wall clock: seconds since the Unix epoch."""

    seconds: Annotated[float, PUBLIC]


@dataclasses.dataclass(frozen=True)
class PatchDecided(DescribedEvent, heading="patch"):
    """A scope decided whether it runs the code of a patch (`Run.patched`), or the code from before it."""

    name: Annotated[str, public("loopwright.patch", log="patch")]
    active: Annotated[bool, PUBLIC]

    def summary(self) -> str:
        return f"{self.name}: {'new' if self.active else 'old'} code"


@dataclasses.dataclass(frozen=True)
class BreakerChanged(
    DescribedEvent,
    heading="breaker",
    level="warning",
    counter=Counter(
        "loopwright.breaker.changes", "{change}", "Changes of circuit breakers."
    ),
):
    """A circuit breaker changed its state; `reason` is given where a person changed it."""

    name: Annotated[str, public("loopwright.breaker.name", metric=True, log="breaker")]
    before: Annotated[str, public("loopwright.breaker.before")]
    after: Annotated[str, public("loopwright.breaker.after", metric=True)]
    reason: Annotated[str, PUBLIC] = ""

    def summary(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.name}: {self.before} → {self.after}{reason}"


@dataclasses.dataclass(frozen=True)
class DriftNoticed(DescribedEvent, heading="drift", level="warning"):
    """On replay something differs that does not break the run: model, sampling, tools, limits, context, instructions …"""

    what: Annotated[str, public("loopwright.drift")]
    before: Annotated[str, CONTENT]
    after: Annotated[str, CONTENT]

    def summary(self) -> str:
        return f"{self.what}: {self.before} → {self.after}"


EffectEvent: TypeAlias = (
    ModelRequested | ModelReplied | ModelFailed | AttemptFailed | ModelWaiting |
    LimitHit | CallsProposed | GateDecided | ToolStarted |
    ToolFinished | EffectStarted | EffectFinished | SleepSet | ChildStarted | ChildFinished | FactNoted | ClockRead |
    PatchDecided | BreakerChanged | DriftNoticed
)  # fmt: skip
