"""What is done about a failed call of a tool: strategies, tried in the order in which they are given."""

import abc
import random
from typing import ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from .._internal import dataclasses
from ..errors import ConfigError
from ..events.effects import Failure
from ..messages import (
    Effect,
    Json,
    JsonObject,
    ObservationStatus,
    ToolCall,
    canonical_json,
)
from ..security.redaction import REDACTED

ModelT = TypeVar("ModelT", bound=BaseModel)

REPAIR_PROMPT = (
    "A call of the tool {tool} failed. Its arguments were:\n{arguments}\n\nWhat came of it:\n{error}\n\n"
    "The tool: {description}\nIts arguments must fit this JSON schema:\n{schema}\n\n"
    "Give arguments that could work, or none if no arguments will."
)


class MendedCall(BaseModel):
    """What a model proposes in place of a call that failed."""

    model_config = ConfigDict(defer_build=True)

    arguments: dict[str, Json] | None = Field(
        description="the arguments to try, or null if there is no point"
    )


@dataclasses.dataclass(frozen=True)
class FailedCall:
    """A call that failed, as a strategy sees it.

    Args:
        call: the call, without secrets in its arguments.
        effect: the effect of its tool on the world.
        description: the description of its tool.
        schema: the JSON schema of its arguments.
        status: the status of its observation so far.
        content: the text of its failure so far, as it was recorded.
        error: the same text as a model reads it, delimited where it is from outside.
        failure: "told" (a `ToolError`), "raised" (another exception), "timed_out", "open" (its circuit breaker), or
            "elsewhere" (a substitute call may have taken effect).
        may_have_taken_effect: whether the call, or a substitute, may have changed something: then no call is made.
        has_arguments: whether all of its arguments are known still; a secret in them is lost in a crash.
        has_secret: whether its arguments held a secret, which `call` lacks.
    """

    call: ToolCall
    effect: Effect
    description: str
    schema: JsonObject
    status: ObservationStatus
    content: str
    error: str
    failure: Failure
    may_have_taken_effect: bool
    has_arguments: bool
    has_secret: bool


class CallOutcome(Protocol):
    """The outcome of a call so far; a `RecoveryContext` makes them. Without a `failure` the recovery ends."""

    @property
    def status(self) -> ObservationStatus:
        """Return the status of the observation."""
        ...

    @property
    def content(self) -> str:
        """Return the text that the model will read."""
        ...

    @property
    def failure(self) -> Failure:
        """Return the kind of failure; empty for none."""
        ...


class RecoveryContext(Protocol):
    """What a strategy may do about a call; each step passes the gate, is recorded, and is replayed on resume."""

    @property
    def failed(self) -> FailedCall:
        """Return the call and its failure."""
        ...

    @property
    def outcome(self) -> CallOutcome:
        """Return the failure as it stands: what a strategy gives that achieved nothing."""
        ...

    @property
    def has_budget(self) -> bool:
        """Whether time and tool calls are left for one more call."""
        ...

    def find_cached_result(self, max_age: float) -> CallOutcome | None:
        """Return the last good result of the same call in this run if it is at most `max_age` seconds old."""
        ...

    def succeed(self, content: str) -> CallOutcome:
        """Return an outcome of the strategy's own, which the model reads in place of the failure."""
        ...

    async def call(self, tool: str, arguments: JsonObject) -> CallOutcome:
        """Make a substitute call, at most one in a step; it passes the gate and has no recovery of its own.

        Raises `PhaseError` if the failed call may have taken effect.
        """
        ...

    async def ask_model(self, prompt: str, into: type[ModelT]) -> ModelT | None:
        """Return a reply of the run's model outside the conversation; `None` if there was none that fits."""
        ...

    async def repeat(self) -> CallOutcome:
        """Make the same call again, with the same idempotency key: for `Retry` and its subclasses."""
        ...

    async def ask_person(self, text: str) -> CallOutcome:
        """Return what a person says the outcome is; the run waits: for `Escalate` and its subclasses."""
        ...

    def dead_letter(self, queue: str) -> CallOutcome:
        """Record the call whole for a person to handle later."""
        ...


class RecoveryStrategy(abc.ABC):
    """The base of every strategy; a third party's is a frozen dataclass with a `name` of its own.

    A `RecoveryTriggered` entry is durable before `recover` is called. A run that is resumed calls `recover` of the step
    that was under way again, so it must do the same then: its calls and questions have recorded outcomes.
    """

    name: ClassVar[str]
    """Its name in the journal."""

    @property
    def max_steps(self) -> int:
        """Return how often it may be tried for one call."""
        return 1

    def check_effect(self, effect: Effect) -> None:
        """Raise `ConfigError` if it is not for tools with that effect; called when a tool is made."""
        return

    def delay(self, earlier: int) -> float:
        """Return the seconds to wait first, given how often it was tried `earlier`; not waited again on resume."""
        return 0.0

    @abc.abstractmethod
    def applies(self, context: RecoveryContext) -> bool:
        """Return whether it can help with this failure; without any effect."""

    @abc.abstractmethod
    async def recover(self, context: RecoveryContext) -> CallOutcome:
        """Return the outcome of the call now: one that `context` made, `context.outcome` if nothing changed."""


@dataclasses.dataclass(frozen=True)
class Retry(RecoveryStrategy):
    """Make the same call again, with the same idempotency key: for tools whose effect is `read` or `idempotent` only.

    Args:
        max_attempts: calls in all, the first one included.
        base_delay: seconds; the pause before the k-th retry is random in 0 … base_delay * 2^(k-1), at most `max_delay`.
        max_delay: longest pause, in seconds.
    """

    name: ClassVar[str] = "retry"
    max_attempts: int = 2
    base_delay: float = 0.5
    max_delay: float = 8.0

    def __post_init__(self) -> None:
        if self.max_attempts < 2:
            raise ConfigError(
                f"Retry: max_attempts counts the first call too and must be at least 2, got {self!r}"
            )
        if not (0 <= self.base_delay <= self.max_delay):
            raise ConfigError(
                f"Retry: base_delay must be seconds between 0 and max_delay, got {self!r}"
            )

    @property
    def max_steps(self) -> int:
        return self.max_attempts - 1

    def check_effect(self, effect: Effect) -> None:
        if effect not in ("read", "idempotent"):
            raise ConfigError(
                "Retry would repeat a side effect; if the tool passes ctx.idempotency_key to its service, "
                "declare it with effect='idempotent'"
            )

    def delay(self, earlier: int) -> float:
        bound = min(self.max_delay, self.base_delay * 2**earlier)
        return random.uniform(0, bound)  # noqa: S311 - jitter

    def applies(self, context: RecoveryContext) -> bool:
        failed = context.failed
        if failed.may_have_taken_effect or not failed.has_arguments:
            return False
        return failed.failure in ("raised", "timed_out") and context.has_budget

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        return await context.repeat()


@dataclasses.dataclass(frozen=True)
class Fallback(RecoveryStrategy):
    """Call another tool of the runtime with the same arguments; it passes the policy gate as any call does."""

    name: ClassVar[str] = "fallback"
    tool: str

    def applies(self, context: RecoveryContext) -> bool:
        failed = context.failed
        return failed.has_arguments and not failed.may_have_taken_effect

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        return await context.call(self.tool, context.failed.call.arguments)


@dataclasses.dataclass(frozen=True)
class CachedResult(RecoveryStrategy):
    """Give the last good result of the same call in this run, if it is at most `max_age` seconds old; reads only."""

    name: ClassVar[str] = "cached_result"
    max_age: float = 300.0

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise ConfigError(
                f"CachedResult: max_age must be seconds greater than 0, got {self.max_age!r}"
            )

    def check_effect(self, effect: Effect) -> None:
        if effect != "read":
            raise ConfigError("CachedResult is for tools whose effect is 'read'")

    def applies(self, context: RecoveryContext) -> bool:
        if context.failed.may_have_taken_effect:
            return False
        return context.find_cached_result(self.max_age) is not None

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        # On resume the result may have grown too old.
        return context.find_cached_result(self.max_age) or context.outcome


@dataclasses.dataclass(frozen=True)
class LlmRecovery(RecoveryStrategy):
    """Ask the model for arguments that could work, and make that call through the gate, at most so many times."""

    name: ClassVar[str] = "llm_recovery"
    max_attempts: int = 1

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigError(
                f"LlmRecovery: max_attempts must be at least 1, got {self.max_attempts!r}"
            )

    @property
    def max_steps(self) -> int:
        return self.max_attempts

    def applies(self, context: RecoveryContext) -> bool:
        failed = context.failed
        if failed.may_have_taken_effect or not failed.has_arguments:
            return False
        # A model would have to guess a secret.
        return failed.failure in ("told", "raised") and not failed.has_secret

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        failed = context.failed
        given = dict(failed.call.arguments)
        prompt = REPAIR_PROMPT.format(
            tool=failed.call.name,
            arguments=canonical_json(given).decode(),
            error=failed.error,
            description=failed.description,
            schema=canonical_json(dict(failed.schema)).decode(),
        )
        repaired = await context.ask_model(prompt, MendedCall)
        if (
            repaired is None
            or repaired.arguments is None
            or repaired.arguments == given
        ):
            return context.outcome
        if REDACTED in canonical_json(repaired.arguments).decode():
            return context.outcome  # the model wrote a secret, which was redacted
        return await context.call(failed.call.name, repaired.arguments)


@dataclasses.dataclass(frozen=True)
class Escalate(RecoveryStrategy):
    """Let a person decide: the run waits for the outcome of the call that `Runtime.resolve` gives."""

    name: ClassVar[str] = "escalate"

    def applies(self, context: RecoveryContext) -> bool:
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        failed = context.failed
        text = f"{failed.call.name} failed ({failed.status}): {failed.content}"
        return await context.ask_person(text)


@dataclasses.dataclass(frozen=True)
class DeadLetter(RecoveryStrategy):
    """Record the call whole in the journal (`CallDeadLettered`) for a person to handle later; the run continues."""

    name: ClassVar[str] = "dead_letter"
    queue: str = "default"

    def applies(self, context: RecoveryContext) -> bool:
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        return context.dead_letter(self.queue)


MADE_AGAIN = (Retry.name, Escalate.name)
"""Strategies after which a result is still that of the call itself."""
ASKS_NO_MODEL = (*MADE_AGAIN, Fallback.name, CachedResult.name, DeadLetter.name)
"""Built-in strategies that show the failure to no model; a third party's counts as one that does."""
_BUILT_IN: dict[str, type[RecoveryStrategy]] = {
    strategy.name: strategy
    for strategy in (Retry, Fallback, CachedResult, LlmRecovery, Escalate, DeadLetter)
}


def check_strategy(strategy: object, effect: Effect) -> None:
    """Raise `ConfigError` unless it is a strategy that a tool with that effect may have."""
    if not isinstance(strategy, RecoveryStrategy):
        raise ConfigError(
            "must be Retry(), Fallback(tool), CachedResult(), LlmRecovery(), Escalate(), DeadLetter() or another "
            f"strategy derived from RecoveryStrategy, got {strategy!r}"
        )
    name: object = getattr(strategy, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{type(strategy).__name__}.name: must be a text")
    built_in = _BUILT_IN.get(name, type(strategy))
    if not isinstance(strategy, built_in):
        raise ConfigError(
            f"{type(strategy).__name__}.name: {name!r} is the name of {built_in.__name__}; give it another"
        )
    strategy.check_effect(effect)


def steps_of(strategies: tuple[RecoveryStrategy, ...]) -> tuple[RecoveryStrategy, ...]:
    """Return the strategies in order, each as often as it may be tried."""
    return tuple(strategy for strategy in strategies for _ in range(strategy.max_steps))
