"""What a tool wants done when a call of it fails: six strategies, tried in the order in which they are given."""

import dataclasses
from typing import ClassVar, TypeAlias

from ..errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Retry:
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


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Call another tool of the runtime with the same arguments; it passes the policy gate as any call does."""

    name: ClassVar[str] = "fallback"
    tool: str


@dataclasses.dataclass(frozen=True)
class CachedResult:
    """Give the last good result of the same call in this run, if it is at most `max_age` seconds old; reads only."""

    name: ClassVar[str] = "cached_result"
    max_age: float = 300.0

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise ConfigError(
                f"CachedResult: max_age must be seconds greater than 0, got {self.max_age!r}"
            )


@dataclasses.dataclass(frozen=True)
class LlmRecovery:
    """Ask the model for arguments that could work, and make that call through the gate, at most so many times."""

    name: ClassVar[str] = "llm_recovery"
    max_attempts: int = 1

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigError(
                f"LlmRecovery: max_attempts must be at least 1, got {self.max_attempts!r}"
            )


@dataclasses.dataclass(frozen=True)
class Escalate:
    """Let a person decide: the run waits, and goes on with what `Runtime.resolve` says came of the call."""

    name: ClassVar[str] = "escalate"


@dataclasses.dataclass(frozen=True)
class DeadLetter:
    """Set the call aside, whole, in the journal (`CallDeadLettered`), for somebody to see to later; the run goes on."""

    name: ClassVar[str] = "dead_letter"
    queue: str = "default"


Recovery: TypeAlias = (
    Retry | Fallback | CachedResult | LlmRecovery | Escalate | DeadLetter
)
MADE_AGAIN = (Retry.name, Escalate.name)
"""Strategies after which a result is still that of the call itself."""
STRATEGIES = (Retry, Fallback, CachedResult, LlmRecovery, Escalate, DeadLetter)


def steps_of(recovery: tuple[Recovery, ...]) -> tuple[Recovery, ...]:
    """The strategies, each as often as it may be tried."""
    return tuple(strategy for strategy in recovery for _ in range(times(strategy)))


def times(strategy: Recovery) -> int:
    """How often a strategy may be tried for one call."""
    if isinstance(strategy, Retry):
        return strategy.max_attempts - 1
    return strategy.max_attempts if isinstance(strategy, LlmRecovery) else 1
