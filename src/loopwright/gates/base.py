"""The policy gate: the actions it decides about, its decisions, and the permits that result."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeGuard

from .._internal import dataclasses
from ..clock import MAX_SECONDS
from ..errors import ConfigError
from ..labels import Label
from ..messages import (
    Effect,
    IssuedByRun,
    Json,
    JsonObject,
    ObservationStatus,
    ToolCall,
)
from ..principals import ApprovalRule, Principal
from .provenance import UNKNOWN, CallProvenance, ValueTracer
from .run_facts import Author, PastCall, RunFacts

PERMIT_SECONDS = 60.0
"""Lifetime of a permit, in active seconds of the run."""
PHRASE = 5
"""Words from which a text is more than a name or an address."""
RESPOND = "run:respond"
"""The action of giving an answer: its arguments are `answer`, `status` and `stop_reason` of the run that ends."""


@dataclasses.dataclass(frozen=True)
class Action:
    """An action that needs permission.

    `tool` is the tool's name; "delegate" for a task given to another engine, `RESPOND` for the run's
    answer, `<tool>:undo` for undoing a call of a saga, and the name of an engine's own effect.
    `labels` says what the run has read and may therefore disclose: "sensitive" or "secret" data, and
    "untrusted" for text from outside.
    `outbound` says that data leaves by it: to a recipient, in an address that is fetched, by what a
    provider's own tool (`provider:web_search`) looks for. `destinations` are the arguments that decide
    where it goes; `source` is "own", or the server or file that declares the tool, or "engine" for
    what no tool does. `defaults` are the values of the tool's schema for arguments that the call leaves out; `filled`
    has both. `principal` is who started the run, if the application said so.
    """

    tool: str
    arguments: JsonObject
    call_id: str = ""
    effect: Effect = "write"
    labels: frozenset[str] = frozenset()
    defaults: JsonObject = dataclasses.field(
        default_factory=dict[str, Json], compare=False, repr=False
    )
    outbound: bool = False
    destinations: tuple[str, ...] = ()
    source: str = "own"
    tracer: ValueTracer = dataclasses.field(default=UNKNOWN, compare=False, repr=False)
    principal: Principal | None = None

    @functools.cached_property
    def provenance(self) -> CallProvenance:
        """Where each argument comes from, computed when a gate looks: `action.provenance["to"].trusted`."""
        return CallProvenance(self.arguments, self.tracer)

    @functools.cached_property
    def copied(self) -> list[str]:
        """Return the arguments with a phrase out of a longer text from outside, of a call that names no destination.

        What such a call writes is all that it does, and that text may have dictated it.
        """
        provenance = self.provenance
        if any(map(provenance.has_leaves, self.destinations)):
            return []
        return provenance.find_excerpts(PHRASE)

    @property
    def filled(self) -> JsonObject:
        """Return the arguments, with the defaults of those that were left out."""
        return {**self.defaults, **self.arguments} if self.defaults else self.arguments


@dataclasses.dataclass(frozen=True)
class PolicyState:
    """The state of the run when the gate is asked.

    `key` is the place of the call, `tool_calls` counts those that were permitted. `label` is the
    highest label of the data that the run has read so far, `untrusted` whether any of it came from
    outside (see `Action.labels`). `at` is wall clock, seconds since the Unix epoch. `author` says who
    wrote the call, `principal` who started the run. `facts` returns what takes time to put together; the properties read it.
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
    author: Author = "model"
    facts: Callable[[], RunFacts] = dataclasses.field(
        default=RunFacts, compare=False, repr=False
    )
    principal: Principal | None = None

    @property
    def task(self) -> str:
        """The latest text that the caller gave the run."""
        return self.facts().task

    @property
    def agent(self) -> str:
        """The name of the agent; empty without one."""
        return self.facts().agent

    @property
    def plan(self) -> tuple[str, ...] | None:
        """The tools of the plan that was decided before the run read text from outside; `None` without one."""
        return self.facts().plan

    @property
    def history(self) -> tuple[PastCall, ...]:
        """The calls that were decided about before, in order."""
        return self.facts().history

    def is_in_plan(self, tool: str) -> bool:
        """Return whether the plan has the tool, however often it was called."""
        return tool in (self.facts().plan or ())

    def is_planned(self, tool: str) -> bool:
        """Return whether this call is a step of the plan: of a tool with a step that is not used yet."""
        return self.facts().is_planned(tool, self.key)


@dataclasses.dataclass(frozen=True)
class Allow:
    """Permit the call unchanged."""


@dataclasses.dataclass(frozen=True)
class Deny:
    """Refuse the call; the model reads the reason."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Modify:
    """Permit the call with other arguments, which are validated and decided about again."""

    arguments: JsonObject
    reason: str


@dataclasses.dataclass(frozen=True)
class Ask:
    """Let a person decide; `approvals` says whose approvals it takes, beside those that the run needs."""

    question: str
    approvals: tuple[ApprovalRule, ...] = ()


Decision: TypeAlias = Allow | Deny | Modify | Ask


class PolicyGate(Protocol):
    """Decides about one action. A result that is not a decision (an exception, a timeout) denies.

    A gate may have a `version: str`; a permit of one version is not honoured under another. It may
    have a `timeout: float`, the seconds for a decision, by default 1; a later one denies.
    One with a true `answers` is also asked about the answer with which a run ends (`RESPOND`): a
    denial withholds it, `Modify` changes it.
    """

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision; called once for every call, before it runs."""
        ...


class InstantGate(ABC):
    """A gate that only computes: it is called directly, without a task.

    It may have a `timeout: float`, by default 1 second: nothing interrupts it, but a decision that
    comes later denies. A subclass that overrides `evaluate` is awaited, like any other gate.
    """

    version: str

    @abstractmethod
    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision."""

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Return the result of `decide`."""
        return self.decide(action, state)


def is_instant(gate: object) -> TypeGuard[InstantGate]:
    """Whether a gate is complete with `decide`; one that overrides `evaluate` must be awaited."""
    own = getattr(getattr(gate, "evaluate", None), "__func__", None)
    return isinstance(gate, InstantGate) and own is InstantGate.evaluate


class DefaultGate(InstantGate):
    """Allows reads, idempotent and write tools; asks about destructive ones."""

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
    """An approver that waits: the run stops as `waiting` until a person decides.

    Args:
        expires: seconds for which a question stays open; a call without approval by then is denied.
            `None` is without limit.
        holds: seconds for which an approval is valid; the question is asked again after that.
    """

    expires: float | None = 86_400.0
    holds: float = 3_600.0

    def __post_init__(self) -> None:
        _check_seconds("holds", self.holds)
        if self.expires is not None:
            _check_seconds("expires", self.expires)


def _check_seconds(field: str, seconds: float) -> None:
    if not 0 < seconds <= MAX_SECONDS:
        raise ConfigError(
            f"Suspend: {field}: must be seconds above 0 and at most {MAX_SECONDS:g}, got {seconds}"
        )


Approver: TypeAlias = Callable[[Action, str], Awaitable[bool | Allow | Deny | Modify]]


class Permit(IssuedByRun):
    """The permission to run one call once, bound to run, step, call, tool, arguments and policy version.

    `expires` is in active seconds of the run.
    """

    cure = "only `await run.gate(proposal)` gives permits"
    call: ToolCall
    arguments_hash: str
    policy_version: str
    run_id: str
    key: str
    expires: float
    unredacted: ToolCall | None = None
    """The call with the secrets that are redacted in `call`, for the tool alone."""
    unredacted_hash: str = ""
    approved_until: float = 0.0
    """When the approval that it rests on expires, in wall clock seconds; 0 without one."""
    approval: int = 0
    """The number of the command by which a person approved it; 0 without one."""
    tool_name: str = ""
    """The tool that policy decided about."""


@dataclasses.dataclass(frozen=True)
class Denial:
    """A call that will not run, and the reason for the model; `final` ends the run as stuck."""

    call: ToolCall
    arguments_hash: str
    key: str
    status: ObservationStatus
    reason: str
    final: bool = False


class Cleared(IssuedByRun):
    """The gate's decisions about a proposal: a permit or a denial for each call, in call order."""

    cure = "use `cleared = await run.gate(proposal)`"
    decisions: tuple[Permit | Denial, ...]
    key: str
    issuer: object

    @property
    def permits(self) -> tuple[Permit, ...]:
        """Return the permits of the calls that may run."""
        return tuple(d for d in self.decisions if isinstance(d, Permit))

    @property
    def denials(self) -> tuple[Denial, ...]:
        """Return the denials of the calls that may not run."""
        return tuple(d for d in self.decisions if isinstance(d, Denial))
