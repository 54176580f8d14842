"""What is done about failed calls of tools that have no recovery of their own."""

from typing import Any

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import Effect
from .base import Tool, list_strategies
from .recovery import Fallback, RecoveryStrategy, check_strategy


def list_default_recovery(given: Any) -> tuple[RecoveryStrategy, ...]:
    """Return the strategies for tools without any of their own; raise `ConfigError` for one that no such tool can have."""
    strategies = list_strategies(given)
    for strategy in strategies:
        if isinstance(strategy, Fallback):
            raise ConfigError(
                f"default_recovery: {strategy!r} names the tool for one other; give it to that tool"
            )
        try:
            check_strategy(strategy, "read")
        except ConfigError as error:
            raise ConfigError(f"default_recovery: {error}") from None
    return strategies


def with_default_recovery(
    tool: Tool | None, strategies: tuple[RecoveryStrategy, ...]
) -> Tool | None:
    """Return a function's tool without strategies of its own with those of the given ones that suit its effect."""
    if tool is None or tool.recovery or tool.engine:
        return tool
    suitable = tuple(one for one in strategies if _suits(one, tool.effect))
    return dataclasses.replace(tool, recovery=suitable)


def _suits(strategy: RecoveryStrategy, effect: Effect) -> bool:
    try:
        check_strategy(strategy, effect)
    except ConfigError:
        return False
    return True
