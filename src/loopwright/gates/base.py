"""The policy gate: what it is asked, what it may say, and the permits that come of it."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeGuard

from ..clock import LONGEST
from ..errors import ConfigError
from ..labels import Label
from ..messages import Effect, Json, JsonObject, ObservationStatus, Sealed, ToolCall

PERMIT_SECONDS = 60.0
"""For so long, in active seconds of the run, a call may be made that was let through."""
RESPOND = "run:respond"
"""The action of giving an answer: its arguments are `answer`, `status` and `stop_reason` of the run that ends."""


@dataclasses.dataclass(frozen=True)
class Action:
    """What is about to happen.

    `tool` is the tool's name; "delegate" for handing a task to another engine, `RESPOND` for giving the run's answer,
    `<tool>:undo` for undoing a call of a saga, and the name of an engine's own effect.
    `labels` says what the run knows by now and may therefore pass on: "sensitive" or "secret" if it has read anything
    of the kind, "untrusted" if it has read words from outside; empty without.
    `defaults` is what the tool's schema fills in for arguments that the call leaves out; `filled` has both.
    """

    tool: str
    arguments: JsonObject
    call_id: str = ""
    effect: Effect = "write"
    labels: frozenset[str] = frozenset()
    defaults: JsonObject = dataclasses.field(
        default_factory=dict[str, Json], compare=False, repr=False
    )

    @property
    def filled(self) -> JsonObject:
        """The arguments with the defaults of those that were left out."""
        return {**self.defaults, **self.arguments} if self.defaults else self.arguments


@dataclasses.dataclass(frozen=True)
class PolicyState:
    """Where the run stands when the gate is asked.

    `key` is the place of the call, `tool_calls` counts those let through. `label` is the highest label of what the run
    has read so far, `untrusted` whether any of that came from outside (see `Action.labels`). `at` is wall clock,
    seconds since the Unix epoch.
    """

    run_id: str
    key: str
    engine: str
    iteration: int
    llm_calls: int
    tool_calls: int
    label: Label = "normal"
    untrusted: bool = False
    at: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass(frozen=True)
class Allow:
    """Let the call through as it is."""


@dataclasses.dataclass(frozen=True)
class Deny:
    """Refuse the call; the model reads the reason."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Modify:
    """Let the call through with other arguments; they are validated and gated again."""

    arguments: JsonObject
    reason: str


@dataclasses.dataclass(frozen=True)
class Ask:
    """Let a person decide."""

    question: str


Decision: TypeAlias = Allow | Deny | Modify | Ask


class PolicyGate(Protocol):
    """Decides about one action. Whatever is not a decision (an exception, silence, another type) denies.

    A gate may carry a `version: str`; a permit given under one version is not honoured under another. It may carry a
    `timeout: float`, the seconds that it has for a decision: 1 without it. One with a true `answers` is also asked
    about the answer with which a run ends (`RESPOND`): a denial withholds it, `Modify` changes it.
    """

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Decide; called before anything runs, once for every call."""
        ...


class InstantGate(ABC):
    """A gate that only computes: it is asked in place, without a task and a deadline of its own.

    A subclass that has an `evaluate` of its own is awaited, as any other gate is.
    """

    version: str

    @abstractmethod
    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Decide at once."""

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """The same as `decide`."""
        return self.decide(action, state)


def is_instant(gate: object) -> TypeGuard[InstantGate]:
    """Whether `decide` is all that a gate does: one with an `evaluate` of its own has more to say, and is awaited."""
    own = getattr(getattr(gate, "evaluate", None), "__func__", None)
    return isinstance(gate, InstantGate) and own is InstantGate.evaluate


class DefaultGate(InstantGate):
    """Reads, idempotent and write tools that the caller registered are allowed; destructive ones are asked about."""

    version = "default-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Ask for destructive actions, allow the rest."""
        if action.effect == "destructive":
            return Ask(f"{action.tool} is destructive: run it?")
        return Allow()


class AllowAll(InstantGate):
    """Allows everything, destructive tools too."""

    version = "allow-all-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Allow."""
        return Allow()


class DenyAll(InstantGate):
    """Denies everything."""

    version = "deny-all-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Deny."""
        return Deny("no tool may run here")


@dataclasses.dataclass(frozen=True)
class Suspend:
    """An approver's place taken by waiting: the run stops as `waiting` until someone decides.

    Args:
        expires: seconds for which a question stands; a call that nobody approved by then is denied. `None` is for ever.
        holds: seconds for which an approval holds once it is given; the question is asked again after that.
    """

    expires: float | None = 86_400.0
    holds: float = 3_600.0

    def __post_init__(self) -> None:
        if not 0 < self.holds <= LONGEST or not (
            self.expires is None or 0 < self.expires <= LONGEST
        ):
            raise ConfigError(
                f"Suspend: expires and holds are seconds above 0 and at most {LONGEST:g}, "
                f"got {self.expires} and {self.holds}"
            )


Approver: TypeAlias = Callable[[Action, str], Awaitable[bool | Allow | Deny | Modify]]


class Permit(Sealed):
    """Leave to run one call once: bound to run, step, call, tool, arguments and policy version, until it expires.

    `expires` is in active seconds of the run.
    """

    cure = "only `await run.gate(proposal)` gives permits"
    call: ToolCall
    arguments_hash: str
    policy_version: str
    run_id: str
    key: str
    expires: float
    real: ToolCall | None = None
    """The call with the secrets that are redacted in `call`, for the tool alone."""
    real_hash: str = ""
    until: float = 0.0
    """How long the approval holds that it rests on, wall clock, seconds; 0 for one that nobody had to approve."""
    leave: int = 0
    """The number of the command by which a person approved it from outside; 0 if nobody did."""


@dataclasses.dataclass(frozen=True)
class Denial:
    """A call that will not run, and what the model is told instead; `final` ends the run as stuck."""

    call: ToolCall
    arguments_hash: str
    key: str
    status: ObservationStatus
    reason: str
    final: bool = False


class Cleared(Sealed):
    """What the gate made of a proposal: a permit or a denial for each call, in call order."""

    cure = "use `cleared = await run.gate(proposal)`"
    decisions: tuple[Permit | Denial, ...]
    key: str
    issuer: object

    @property
    def permits(self) -> tuple[Permit, ...]:
        """The calls that may run."""
        return tuple(d for d in self.decisions if isinstance(d, Permit))

    @property
    def denials(self) -> tuple[Denial, ...]:
        """The calls that may not."""
        return tuple(d for d in self.decisions if isinstance(d, Denial))
