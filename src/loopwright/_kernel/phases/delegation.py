"""Refuse a delegation that goes round in a circle, or too deep, before anything of it runs."""

from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError
from ..session.scope import Scope


def check_delegation(scope: Scope, engine: Any) -> None:
    """Raise `ConfigError`, which names the engines, for one that is at work around the scope, or too deep."""
    around = scope.engine_usage.engines
    names = _format_chain([*around, engine])
    if any(_is_same(engine, other) for other in around):
        raise ConfigError(
            f"delegate: {_name(engine)} is at work already in {names}; delegate to another one"
        )
    limit = scope.session.services.limits.max_depth
    if limit is not None and len(around) > limit:
        raise ConfigError(
            f"max_depth: at most {limit} engines may work below one another, got {names}; "
            f"let fewer delegate, or raise Limits(max_depth=...)"
        )


def _is_same(engine: Any, other: Any) -> bool:
    """Whether two engines are one, or that of one agent: a resumed run has its engine built anew."""
    if engine is other:
        return True
    agent = engine.runtime.agent_name
    is_same_agent = agent != "" and agent == other.runtime.agent_name
    return is_same_agent and type(engine) is type(other)


def _format_chain(engines: Sequence[Any]) -> str:
    return " > ".join(map(_name, engines))


def _name(engine: Any) -> str:
    return str(engine.runtime.agent_name or engine.name)
